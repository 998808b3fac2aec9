"""`dagmaster dev` as a user starts it, on a data directory of its own, and the names of its process_usage."""

from __future__ import annotations

import asyncio
import contextlib
import os
import re
import shutil
import subprocess
import sys
import tempfile
import threading
import time
from pathlib import Path
from typing import TYPE_CHECKING, Any, Self

import asyncpg

from bench import process_usage
from dagmaster.store.postgres import schema_version

if TYPE_CHECKING:
    from collections.abc import Iterator

ROOT = Path(__file__).parent.parent
DAGMASTER = str(Path(sys.executable).with_name("dagmaster"))
START_SECONDS = 60.0
FLOOR = "floor"
"""A second database on the same server, with the same schema, for the hand-written SQL of `bench.floor`."""


@contextlib.contextmanager
def folder() -> Iterator[Path]:
    """Provide a temporary directory. Readable by all: the server of root runs as another user."""
    path = Path(tempfile.mkdtemp(prefix="bench-", dir="/var/tmp"))
    path.chmod(0o755)
    try:
        yield path
    finally:
        shutil.rmtree(path, ignore_errors=True)


NO_LOG_FILES = {"DAGMASTER_LOG_DIR": "off"}
"""Who may write to the default directory depends on the user."""


def environment() -> dict[str, str]:
    """Return the environment without dagmaster settings: the defaults are measured, compiled as an installer does."""
    return {
        key: value
        for key, value in os.environ.items()
        if not key.startswith("DAGMASTER_") and key != "PYTHONDONTWRITEBYTECODE"
    } | NO_LOG_FILES


class Stack:
    """A running `dagmaster dev`; a context manager that starts and stops it."""

    def __init__(self, data_dir: Path, *arguments: str) -> None:
        self.data_dir = data_dir
        self._arguments = arguments
        self.dsn = dsn_of(data_dir)
        self.output: list[str] = []
        self.pids: dict[str, int] = {}
        self.api = ""
        self._key_file = ""
        self.ready_seconds = 0.0
        self._ready = threading.Event()

    def __enter__(self) -> Self:
        started = time.perf_counter()
        self._process = subprocess.Popen(  # noqa: S603 - our own command
            [DAGMASTER, "dev", "--port=0", "--data-dir", str(self.data_dir), *self._arguments],
            cwd=ROOT,
            env=environment(),
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
        )
        self._listener = threading.Thread(target=self._listen, daemon=True)
        self._listener.start()
        try:
            self._await_ready()
            self.ready_seconds = time.perf_counter() - started
            postmaster = (self.data_dir / "cluster" / "postmaster.pid").read_text().split()[0]
            self.pids |= {"dev": self._process.pid, "postmaster": int(postmaster)}
        except BaseException:
            self._stop()
            raise
        return self

    def __exit__(self, kind: type[BaseException] | None, *_: object) -> None:
        stopped_by_others = self._process.poll() is not None or any(
            line.startswith("stopping") for line in self.output
        )
        self._stop()
        if kind is not None and issubclass(kind, Exception):
            state = "was stopped, and not by this benchmark" if stopped_by_others else "was running"
            log = (self.data_dir / "server.log").read_text(errors="replace").splitlines()
            print(
                f"dagmaster dev {state}; its last output:",
                *self.output[-20:],
                *log[-20:],
                sep="\n  ",
                file=sys.stderr,
            )

    def _await_ready(self) -> None:
        if not self._ready.wait(START_SECONDS) or "worker" not in self.pids:
            raise RuntimeError("dagmaster dev did not start:\n" + "\n".join(self.output))

    def _listen(self) -> None:
        assert self._process.stdout is not None
        for line in self._process.stdout:
            self.output.append(line.rstrip())
            if match := re.match(r"  (orchestrator|worker|server) +pid (\d+)$", self.output[-1]):
                self.pids[match[1]] = int(match[2])
            if match := re.match(r"  API +(http://\S+)/api/v1 \(key in (.+)\)$", self.output[-1]):
                self.api, self._key_file = match[1], match[2]
            if line.startswith("ready in"):
                self._ready.set()
        self._ready.set()

    def _stop(self) -> None:
        self._process.terminate()
        try:
            self._process.wait(60)
        except subprocess.TimeoutExpired:
            # Its children end when their standard input closes, and the server when its last user has left.
            self._process.kill()
            self._process.wait(10)
        self._listener.join(5)

    @property
    def key(self) -> str:
        """Return the key of the API."""
        return Path(self._key_file).read_text(encoding="utf-8").strip()

    def floor_dsn(self) -> str:
        """Create the database for the floor and return its DSN."""
        return self.create_database(FLOOR)

    def create_database(self, name: str) -> str:
        """Create a database with dagmaster's schema, which the services do not use; return its DSN."""
        create_database(self.dsn, name)
        return dsn_of(self.data_dir, name)

    def names(self) -> dict[int, str]:
        """Return process names by pid: dagmaster's processes, and the server processes of its connections."""
        services = {pid: name for name, pid in self.pids.items() if name != "postmaster"}
        return services | asyncio.run(_backends(self.dsn))

    def cpu(self) -> dict[int, float]:
        """Return CPU seconds by pid; those of finished server processes count for the postmaster."""
        postmaster = self.pids["postmaster"]
        pids = [
            *self.pids.values(),
            *process_usage.children(postmaster),
            *process_usage.children(self.pids["worker"]),
        ]
        used = {pid: process_usage.cpu_seconds(pid) for pid in pids}
        used[postmaster] += process_usage.cpu_seconds(postmaster, reaped=True)
        return used

    def fine_cpu(self) -> float:
        """Return the CPU seconds of all live processes, to the nanosecond."""
        return sum(self.fine_cpu_by_pid().values())

    def fine_cpu_by_pid(self) -> dict[int, float]:
        """Return CPU seconds by pid, of all live processes, to the nanosecond."""
        return {pid: process_usage.fine_cpu_seconds(pid) for pid in self.cpu()}


def dsn_of(data_dir: Path, database: str = "dagmaster") -> str:
    """Return the DSN of a database of the embedded server."""
    return f"postgresql:///{database}?host={data_dir / 'socket'}&port=5432&user=dagmaster"


def create_database(dsn: str, name: str = FLOOR) -> None:
    """Create a database on this server, with dagmaster's schema."""
    asyncio.run(_create_database(dsn, name))
    schema_version.upgrade(dsn.replace("postgresql:///dagmaster?", f"postgresql:///{name}?"))


async def connect(dsn: str, **settings: str) -> asyncpg.Connection[Any]:
    """Connect with dagmaster's schema on the search path."""
    server_settings = {"search_path": "dagapp", "application_name": "bench", **settings}
    return await asyncpg.connect(dsn, server_settings=server_settings, command_timeout=120)


async def _create_database(dsn: str, name: str) -> None:
    connection = await connect(dsn)
    await connection.execute(f"CREATE DATABASE {name}")
    await connection.close()


async def _backends(dsn: str) -> dict[int, str]:
    connection = await connect(dsn)
    try:
        rows = await connection.fetch(
            "SELECT pid, coalesce(nullif(application_name, ''), backend_type) AS name FROM pg_stat_activity"
        )
    finally:
        await connection.close()
    return {row["pid"]: f"postgres for {row['name']}" for row in rows if row["name"] != "bench"}
