"""Run a workflow in a test: real engine, real handlers, no server, and time that does not have to pass."""

from __future__ import annotations

import asyncio
import pathlib
from typing import TYPE_CHECKING, Any

from dagmaster.authoring.compiler import compile_file, compile_text
from dagmaster.authoring.handlers import Registry
from dagmaster.testing.clock import FakeClock
from dagmaster.testing.one_process import Answers, OneProcess

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Mapping

    from dagmaster.engine.graph import Graph
    from dagmaster.ports.clock import Clock
    from dagmaster.ports.services import Services
    from dagmaster.ports.store import JobReport


def run_workflow(
    workflow: Graph | pathlib.Path | str,
    inputs: Mapping[str, Any] | None = None,
    *,
    handlers: Registry | Iterable[Callable[..., Any]] = (),
    answers: Answers | None = None,
    clock: Clock | None = None,
    services: Services | None = None,
) -> JobReport:
    """Run a workflow (a graph, a file, or YAML text) to its end and give the report.

    Handlers are decorated functions. Without a clock, waits and retry delays pass at once. Handlers that ask for
    storage, a catalog or tables get those of `services`: see `local_services`.
    """
    registry = handlers if isinstance(handlers, Registry) else Registry(handlers)
    if isinstance(workflow, pathlib.Path):
        workflow = compile_file(workflow, handlers=registry).graph
    elif isinstance(workflow, str):
        workflow = compile_text(workflow, handlers=registry).graph
    process = OneProcess(registry, answers=answers, clock=clock or FakeClock(), services=services, alone=True)
    return asyncio.run(process.run(workflow, inputs or {}))
