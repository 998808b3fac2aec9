"""`dagmaster dev --reload`: publish workflow files that change, and restart workers when code does."""

from __future__ import annotations

import asyncio
import contextlib
import json
import os
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Final, NamedTuple

from dagmaster.cli.dev_publication import MODULES_LINE, WORKFLOWS_LINE
from dagmaster.cli.service_supervisor import print_status
from dagmaster.text_format import format_count, format_list

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Sequence

    from dagmaster.cli.service_supervisor import ServiceSupervisor

POLL_SECONDS: Final = 0.5
"""How often files are polled. A change counts once a poll finds no more: editors write in steps."""
WORKER: Final = "worker"
_SUFFIXES: Final = frozenset({".py", ".yaml", ".yml"})


class WorkflowReloader:
    """Publishes the workflow files of paths, and knows the modules that have their tasks.

    `folder`: its YAML files are published by others, and again here when they change. `modules`: the handlers
    of workers; `watched_modules`: modules whose files are also watched.
    """

    def __init__(
        self,
        paths: Sequence[Path],
        *,
        modules: Sequence[str],
        folder: Path,
        watched_modules: Sequence[str],
        data_dir: Path | None,
    ) -> None:
        self._paths = [path.absolute() for path in paths]
        self._folder = folder.absolute()
        self._named_modules = list(modules)
        self._watched_modules = list(watched_modules)
        self._data_dir = data_dir
        self._task_modules: dict[str, list[str]] = {}
        self.workflow_ids: dict[str, None] = {}
        """The workflows that were published, in order."""

    @property
    def modules(self) -> list[str]:
        of_files = [module for names in self._task_modules.values() for module in names]
        return list(dict.fromkeys((*self._named_modules, *of_files)))

    async def publish_all(self) -> bool:
        """Publish the files of all paths; return whether all Python code could be imported."""
        files = self._files()
        return not files or await self._publish(files)

    async def run(self, supervisor: ServiceSupervisor, worker: Sequence[str]) -> None:
        """Publish what changes, until this is cancelled.

        `worker`: the command of a worker without its handlers.
        """
        paths = [*self._paths, *([self._folder] if self._folder.is_dir() else [])]
        watch = FileWatch([*paths, *_module_files(self._watched_modules)], _packages(self._watched_modules))
        names = format_list([*(_shown(path) for path in paths), *self._watched_modules])
        print_status("reload", f"watching {names} ({format_count(len(watch.files), 'file')})")
        while True:
            await asyncio.sleep(POLL_SECONDS)
            changed, removed = await _settle(watch)
            for file in removed:
                print_status("reload", f"{_shown(file)} was removed; what it published stays published")
            if changed:
                await self._reload(changed, supervisor, worker)

    async def _reload(
        self, changed: list[Path], supervisor: ServiceSupervisor, worker: Sequence[str]
    ) -> None:
        print_status("reload", f"{format_list([_shown(file) for file in changed])} changed")
        has_code = any(file.suffix == ".py" for file in changed)
        # The graph of a Python workflow may depend on any other module.
        code = [file for file in self._files() if file.suffix == ".py"] if has_code else []
        yaml = [file for file in changed if file.suffix != ".py"]
        is_loadable = await self._publish([*yaml, *code])
        if not has_code:
            return
        if is_loadable:
            supervisor.replace(WORKER, worker_arguments(worker, self.modules))
        else:
            print_status("reload", "workers keep the code that they have")

    def _files(self) -> list[Path]:
        return list(dict.fromkeys(file for path in self._paths for file in _list_files(path)))

    async def _publish(self, files: list[Path]) -> bool:
        """Publish files in another process, and print its report; return whether Python was imported."""
        request = {
            "files": [_shown(file) for file in files],
            "modules": self._named_modules,
            "data_dir": None if self._data_dir is None else str(self._data_dir),
        }
        process = await asyncio.create_subprocess_exec(
            sys.executable,
            "-m",
            "dagmaster.cli.dev_publication",
            json.dumps(request),
            stdin=asyncio.subprocess.DEVNULL,
            stdout=asyncio.subprocess.PIPE,
            stderr=asyncio.subprocess.STDOUT,
            start_new_session=True,
        )
        assert process.stdout is not None  # noqa: S101 - for mypy: it is a pipe
        is_loadable = False
        try:
            async for line in process.stdout:
                text = line.decode(errors="replace").rstrip()
                if text.startswith(MODULES_LINE):
                    self._task_modules |= json.loads(text.removeprefix(MODULES_LINE))
                    is_loadable = True
                elif text.startswith(WORKFLOWS_LINE):
                    self.workflow_ids |= dict.fromkeys(json.loads(text.removeprefix(WORKFLOWS_LINE)))
                elif text:
                    print_status("workflows", text)
            await process.wait()
        finally:
            if process.returncode is None:
                with contextlib.suppress(ProcessLookupError):
                    process.kill()
        return is_loadable


def use_fresh_code() -> None:
    """Write no bytecode, here and in child processes: of two edits in one second, the first would run."""
    sys.dont_write_bytecode = True
    os.environ["PYTHONDONTWRITEBYTECODE"] = "1"


def worker_arguments(worker: Sequence[str], modules: Sequence[str]) -> list[str]:
    return [*worker, *(f"--handlers={module}" for module in modules)]


async def _settle(watch: FileWatch) -> tuple[list[Path], list[Path]]:
    """Return what changed, after the last of changes that follow each other."""
    changed: dict[Path, None] = {}
    removed: dict[Path, None] = {}
    while changes := watch.poll():
        changed |= dict.fromkeys(changes.changed)
        removed |= dict.fromkeys(changes.removed)
        await asyncio.sleep(POLL_SECONDS)
    return [file for file in changed if file.exists()], [file for file in removed if not file.exists()]


def _module_files(modules: Sequence[str]) -> list[Path]:
    from dagmaster.sdk.module_imports import is_file

    files = [Path(module) if is_file(module) else _file_of(module) for module in modules]
    return [file.absolute() for file in files if file is not None]


def _packages(modules: Sequence[str]) -> list[Path]:
    files = [_file_of(module) for module in modules if hasattr(sys.modules.get(module), "__path__")]
    return [file.parent for file in files if file is not None]


def _file_of(module: str) -> Path | None:
    file = getattr(sys.modules.get(module), "__file__", None)
    return None if file is None else Path(file)


def _shown(path: Path) -> str:
    """Return a path as a person writes it: below the working directory, relative to it."""
    folder = Path.cwd()
    return str(path.relative_to(folder)) if path.is_relative_to(folder) else str(path)


class Changes(NamedTuple):
    """Files that are new or have other content, and files that are gone."""

    changed: list[Path]
    removed: list[Path]

    def __bool__(self) -> bool:
        return bool(self.changed or self.removed)


class FileWatch:
    """Watches Python and YAML files: named ones, those in named folders, and Python files of packages.

    It compares their times: that needs no system service, and works in network folders.
    """

    def __init__(self, paths: Iterable[Path], packages: Iterable[Path] = ()) -> None:
        self._paths = list(dict.fromkeys(paths))
        self._packages = list(dict.fromkeys(packages))
        self._states = self._scan()

    @property
    def files(self) -> list[Path]:
        return list(self._states)

    def poll(self) -> Changes:
        before, self._states = self._states, self._scan()
        changed = [file for file, state in self._states.items() if before.get(file) != state]
        return Changes(changed, [file for file in before if file not in self._states])

    def _scan(self) -> dict[Path, tuple[int, int, int]]:
        states = {}
        for file in self._list():
            try:
                status = file.stat()
            except OSError:
                continue
            states[file] = (status.st_mtime_ns, status.st_size, status.st_ino)
        return states

    def _list(self) -> Iterator[Path]:
        for path in self._paths:
            yield from _list_files(path)
        for package in self._packages:
            yield from sorted(package.rglob("*.py"))


def _list_files(path: Path) -> list[Path]:
    """Return a file, or the Python and YAML files of a folder, without those in its folders."""
    if not path.is_dir():
        return [path]
    return sorted(file for file in path.iterdir() if file.suffix in _SUFFIXES)
