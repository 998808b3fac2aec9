"""The one place where things are wired."""

from __future__ import annotations

import contextlib
import os
from typing import TYPE_CHECKING

from dagmaster.authoring.compiler import compile_file
from dagmaster.authoring.document import read_file
from dagmaster.authoring.handlers import Registry, discover
from dagmaster.errors import WorkflowInvalid
from dagmaster.settings import Settings, load_settings
from dagmaster.testing.one_process import OneProcess

if TYPE_CHECKING:
    import pathlib
    from collections.abc import Callable, Iterator

    from dagmaster.engine.graph import Graph
    from dagmaster.testing.one_process import Answers, Observer

SHIPPED_HANDLERS = ("dagmaster.handlers.examples",)


def find_handlers(modules: tuple[str, ...] = (), settings: Settings | None = None) -> Registry:
    """Find the handlers that ship, those of the settings and of installed packages, and those of the given modules."""
    settings = settings or load_settings()
    return discover((*SHIPPED_HANDLERS, *settings.handlers, *modules))


def workflows_beside(path: pathlib.Path, handlers: Registry) -> Callable[[str, int | None], Graph | None]:
    """Give a way to find workflows by id: among the files beside this one. The newest version, unless one is named.

    A file that has this id and cannot run is `WorkflowInvalid`: it is there, and that is what is to be told.
    """
    known: dict[str, list[pathlib.Path]] = {}
    compiled: dict[pathlib.Path, Graph] = {}

    def look() -> None:
        for file in sorted([*path.parent.glob("*.yaml"), *path.parent.glob("*.yml")]):
            with contextlib.suppress(WorkflowInvalid):
                data = read_file(file).data
                if isinstance(data, dict):
                    known.setdefault(str(data.get("workflow_id") or data.get("name")), []).append(file)

    def find(workflow_id: str, version: int | None) -> Graph | None:
        if not known:
            look()
        for file in known.get(workflow_id, ()):
            if file not in compiled:
                compiled[file] = compile_file(file, handlers=handlers).graph
        found = [compiled[file] for file in known.get(workflow_id, ())]
        fitting = [graph for graph in found if version in (None, graph.version)]
        return max(fitting, key=lambda graph: graph.version, default=None)

    return find


@contextlib.contextmanager
def database(settings: Settings | None = None, data_dir: pathlib.Path | None = None) -> Iterator[str]:
    """Give the address of the database: the operator's server, else the embedded one, for as long as it is used."""
    settings = settings or load_settings()
    if settings.database_url is not None and data_dir is None:
        yield settings.database_url.get_secret_value()
        return
    from dagmaster.store.embedded import EmbeddedPostgres  # noqa: PLC0415 - a run in memory needs none

    with EmbeddedPostgres(data_dir or settings.data_dir) as server:
        yield server.dsn


def one_process(
    handlers: Registry,
    path: pathlib.Path,
    *,
    answers: Answers | None = None,
    observer: Observer | None = None,
    concurrency: int | None = None,
    settings: Settings | None = None,
) -> OneProcess:
    """Wire a runner for one workflow file."""
    settings = settings or load_settings()
    return OneProcess(
        handlers,
        workflows=workflows_beside(path, handlers),
        answers=answers,
        observer=observer,
        env={name: os.environ[name] for name in settings.allowed_env if name in os.environ},
        secrets=lambda name: os.environ.get(f"DAGMASTER_SECRET_{name}"),
        concurrency=concurrency or settings.concurrency,
        alone=True,
    )
