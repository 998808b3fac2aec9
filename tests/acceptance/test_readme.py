"""The commands of the README work as they are written, in its order, in a copy of the files that they name."""

from __future__ import annotations

import re
import shlex
import shutil
import signal
import subprocess
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

import pytest

from dagmaster.store.embedded.server import EmbeddedPostgres
from tests.acceptance.background_process import Process
from tests.acceptance.fork_server import DAGMASTER, ROOT, CommandProcess, run_command
from tests.environment import without_settings
from tests.patience import PATIENCE_SECONDS
from tests.server_folders import copy_migrated_cluster, server_folder

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

ADDRESS: Final = "postgresql://dagmaster@db.example/dagmaster"
ACTIVATE: Final = "source .venv/bin/activate"
DEV: Final = "dagmaster dev"
HANDLER: Final = """
from dagmaster import handler

@handler("night.count", queue="light")
def count() -> dict:
    return {"count": 3}
"""


@dataclass(frozen=True)
class Step:
    """A file to write, or a command with the output that the README shows."""

    section: str
    text: str
    file: str = ""
    output: str = ""


def read_steps(readme: str) -> list[Step]:
    """Return the steps of a page: fenced blocks that start with a file name, and the lines of indented blocks."""
    steps: list[Step] = []
    for part in re.split(r"^## ", readme, flags=re.MULTILINE)[1:]:
        section, _, body = part.partition("\n")
        for fenced, indented in re.findall(
            r"^```\w+\n(.*?)^```|((?:^    [^\n]+\n)+)", body, re.MULTILINE | re.DOTALL
        ):
            name = re.match(r"# (\S+\.\w+)\n", fenced)
            if name:
                steps.append(Step(section, fenced, file=name[1]))
            lines = [line.removeprefix("    ") for line in indented.splitlines()]
            if lines and lines[0].startswith("$ "):
                steps.append(Step(section, lines[0].removeprefix("$ "), output="\n".join(lines[1:])))
            else:
                steps += [Step(section, line) for line in lines]
    return steps


class Shell:
    """A terminal in a copy of the checkout: `export`, `&`, comments, quotes and `*` mean what they mean in a shell."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder / "checkout"
        self.folder.mkdir()
        self.env = without_settings() | {
            "DAGMASTER_DATA_DIR": str(folder / "data"),
            "DAGMASTER_DRAIN_SECONDS": "0.5",
            "DAGMASTER_PROCESSES": "2",
        }
        self.processes: list[Process] = []

    def run(self, line: str) -> subprocess.CompletedProcess[str] | None:
        """Run a line; return what it printed, unless it runs in the background."""
        program, *arguments = shlex.split(line, comments=True)
        if program == "export":
            self.env |= dict(argument.split("=", 1) for argument in arguments)
            return None
        assert program == "dagmaster", line
        if arguments[-1] == "&":
            # From the entry point: what can be imported depends on how the interpreter starts.
            self.processes.append(Process(arguments[:-1], self.env, subprocess.Popen, self.folder))
            return None
        return run_command(*self._expand(arguments), env=self.env, cwd=self.folder, timeout=PATIENCE_SECONDS)

    def start(self, *arguments: str) -> Process:
        """Run a command in a terminal of its own."""
        process = Process(arguments, self.env, CommandProcess, self.folder)
        self.processes.append(process)
        return process

    def _expand(self, arguments: list[str]) -> list[str]:
        return [
            str(path)
            for argument in arguments
            for path in (sorted(self.folder.glob(argument)) if "*" in argument else [argument])
        ]


@pytest.fixture
def shell() -> Iterator[Shell]:
    with server_folder() as folder:
        copy_migrated_cluster(folder / "data")
        shell = Shell(folder)
        yield shell
        for process in reversed(shell.processes):
            process.end()


def test_the_commands_of_the_readme_work_in_its_order(shell: Shell):
    for folder in ("workflows", "examples"):
        shutil.copytree(ROOT / folder, shell.folder / folder)
    (shell.folder / "flows").mkdir()
    (shell.folder / "flows" / "nightly.yaml").write_text(
        "{workflow_id: nightly, nodes: {a: {handler: night.count}}}"
    )
    (shell.folder / "myapp").mkdir()
    (shell.folder / "myapp" / "tasks.py").write_text(HANDLER)
    dev = shell.start("dev", "--port=0")
    dev.until("ready in")
    done: list[str] = []
    steps = [
        step for step in read_steps((ROOT / "README.md").read_text()) if not step.text.startswith("make ")
    ]
    with EmbeddedPostgres(shell.folder.parent / "server") as server:
        for step in steps:
            if step.file:
                (shell.folder / step.file).write_text(step.text)
            elif step.text != ACTIVATE and not step.text.startswith(DEV):
                check(shell, step, server.dsn)
                done.append(step.section)
        for process in shell.processes[1:]:
            process.signal(signal.SIGTERM)
            assert process.wait() == 0, process.text
    sections = list(dict.fromkeys(done))
    assert (sections[0], sections[-1], len(sections)) == ("On your laptop", "On servers", 7), sections
    for name in ("hello.svg", "workflow.schema.json", "run.png"):
        assert (shell.folder / name).stat().st_size > 1000


def check(shell: Shell, step: Step, server: str) -> None:
    """Run a command of the README; it succeeds, or prints what the README shows."""
    result = shell.run(step.text.replace(ADDRESS, shlex.quote(server)))
    if result is None:
        return
    if step.output:
        assert result.stdout + result.stderr == f"{step.output}\n"
    else:
        assert result.returncode == 0, f"{step.text}\n{result.stdout}{result.stderr}"


def test_a_folder_next_to_the_handlers_does_not_hide_an_installed_package(tmp_path):
    for package in ("json", "myapp"):
        (tmp_path / package).mkdir()
    (tmp_path / "json" / "__init__.py").write_text("raise ImportError('the wrong json')")
    (tmp_path / "myapp" / "tasks.py").write_text(f"import json\n{HANDLER}")
    command = [DAGMASTER, "handlers", "list", "--handlers", "myapp.tasks"]
    listed = subprocess.run(
        command, cwd=tmp_path, capture_output=True, text=True, check=True, timeout=PATIENCE_SECONDS
    )
    assert "night.count" in listed.stdout
