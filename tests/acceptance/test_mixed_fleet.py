"""A rolling upgrade with real processes: services of the previous schema run on this one, next to services of this code.

Their code is that of the commit before the last migration was added, from the history of this repository.
"""

from __future__ import annotations

import asyncio
import io
import signal
import subprocess
import tarfile
from typing import TYPE_CHECKING

import asyncpg
import pytest

from tests.acceptance.background_process import Process
from tests.acceptance.fork_server import ROOT
from tests.acceptance.test_services import new_sandbox
from tests.environment import LOG_DIR
from tests.patience import PATIENCE_SECONDS

if TYPE_CHECKING:
    from pathlib import Path

    from tests.acceptance.test_services import Sandbox

__all__ = ["new_sandbox"]

SCHEMA_VERSION = "src/dagmaster/store/postgres/schema_version.py"
PREVIOUS = "0012"
"""The newest schema that a published version had before this one: the versions between were never published."""

HANDLERS = """
import asyncio, pathlib
from dagmaster import handler

@handler("gated", queue="light")
async def gated(gate: str) -> dict:
    while not pathlib.Path(gate).exists():
        await asyncio.sleep(0.02)
    return {}
"""


def flow(name: str, gate: Path, count: int) -> str:
    task = f"{{handler: gated, queue: light, params: {{gate: {gate}}}}}"
    fan_out = f"{{type: fan_out, source: {list(range(count))}, task: {task}, next: all}}"
    return f"{{name: {name}, nodes: {{tiles: {fan_out}, all: {{type: fan_in}}}}}}"


def git(*arguments: str) -> bytes:
    return subprocess.run(["git", *arguments], cwd=ROOT, capture_output=True, check=True).stdout


def previous_source(folder: Path) -> Path:
    """Extract the source of the last commit with the previous schema."""
    previous = f'HEAD: Final = "{PREVIOUS}"'
    try:
        # The commit that replaced it.
        (commit, *_) = git("log", "--format=%H", f"-G{previous}", "--", SCHEMA_VERSION).decode().split()
        archive = git("archive", f"{commit}^", "src")
    except (OSError, ValueError, subprocess.CalledProcessError):
        pytest.skip(
            "the history of the repository is not here: the code of the previous schema cannot be run"
        )
    with tarfile.open(fileobj=io.BytesIO(archive)) as files:
        files.extractall(folder, filter="data")
    return folder / "src"


class Fleet:
    """Services of two versions on one database."""

    def __init__(self, box: Sandbox, source: Path) -> None:
        self.box = box
        handlers = box.folder / "gated.py"
        handlers.write_text(HANDLERS)
        box.env["DAGMASTER_HANDLERS"] = str(handlers)
        self.previous_env = box.env | {"PYTHONPATH": str(source)}
        # It does not know `off`, and would make a directory of this name.
        self.previous_env.pop(LOG_DIR, None)

    def start_previous(self, *arguments: str) -> Process:
        process = Process(arguments, self.previous_env, subprocess.Popen)
        self.box.processes.append(process)
        return process

    def submit(self, name: str, gate: Path, count: int = 4) -> None:
        done = self.box.run("submit", self.box.write(flow(name, gate, count), f"{name}.yaml"))
        assert done.returncode == 0, done.stderr

    def until_claimed(self, count: int, workers: int) -> None:
        self._until(
            f"SELECT count(*) = {count} AND count(DISTINCT worker_id) = {workers} FROM dagapp.dag_task_queue"
            " WHERE worker_id IS NOT NULL"
        )

    def until_completed(self, name: str) -> None:
        self._until(f"SELECT status = 'COMPLETED' FROM dagapp.dag_jobs WHERE workflow_id = '{name}'")

    def _until(self, query: str) -> None:
        async def poll() -> None:
            connection = await asyncpg.connect(self.box.env["DAGMASTER_DATABASE_URL"])
            try:
                async with asyncio.timeout(PATIENCE_SECONDS):
                    while not await connection.fetchval(query):  # noqa: ASYNC110 - other processes change it
                        await asyncio.sleep(0.05)
            finally:
                await connection.close()

        asyncio.run(poll())


def test_services_of_the_previous_schema_run_on_this_one_until_they_are_replaced(new_sandbox, tmp_path):
    source = previous_source(tmp_path)
    with new_sandbox.on_server():
        _replace_services(new_sandbox, source, [tmp_path / name for name in ("first", "second", "third")])


def _replace_services(box: Sandbox, source: Path, gates: list[Path]) -> None:
    fleet = Fleet(box, source)
    worker = ("worker", "--queue", "light", "--concurrency", "2")
    migration = fleet.start_previous("migrate")
    assert migration.wait() == 0
    assert PREVIOUS in migration.text
    services = [fleet.start_previous("orchestrator"), fleet.start_previous(*worker)]

    # A job that runs during the migration.
    fleet.start_previous("submit", box.write(flow("first", gates[0], 2))).wait()
    fleet.until_claimed(2, workers=1)
    assert box.run("migrate").returncode == 0
    gates[0].touch()
    fleet.until_completed("first")
    # A job of a newer client.
    fleet.submit("second", gates[1])
    fleet.until_claimed(2, workers=1)
    gates[1].touch()
    fleet.until_completed("second")

    # Both versions run tasks of one job; then those of the previous one die.
    replacements = [box.start("orchestrator"), box.start(*worker)]
    fleet.submit("third", gates[2])
    fleet.until_claimed(4, workers=2)
    for service in services:
        service.signal(signal.SIGKILL)
    gates[2].touch()
    fleet.until_completed("third")
    audit = box.run("jobs", "audit")
    assert audit.returncode == 0, audit.stdout + audit.stderr

    # And back: the previous code runs on the schema that a downgrade restores.
    for service in replacements:
        service.signal(signal.SIGTERM)
        assert service.wait() == 0, service.text
    assert box.run("migrate", "downgrade", PREVIOUS, "--yes").returncode == 0
    for arguments in (("orchestrator",), worker):
        fleet.start_previous(*arguments)
    fleet.start_previous("submit", box.write(flow("fourth", gates[2], 2), "fourth.yaml")).wait()
    fleet.until_completed("fourth")
