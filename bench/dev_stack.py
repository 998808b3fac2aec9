"""`dagmaster dev` as a user starts it, on a data directory of its own; and who is who in it."""

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

from bench import processes
from dagmaster.store.postgres import schema_version

if TYPE_CHECKING:
    from collections.abc import Iterator

ROOT = Path(__file__).parent.parent
DAGMASTER = str(Path(sys.executable).with_name("dagmaster"))
START_SECONDS = 60.0
FLOOR = "floor"
"""A database beside ours on the same server, with the same schema, for what is written by hand."""


@contextlib.contextmanager
def folder() -> Iterator[Path]:
    """A directory that is gone afterwards. Open to all: root's server runs as somebody else."""
    path = Path(tempfile.mkdtemp(prefix="bench-", dir="/var/tmp"))
    path.chmod(0o755)
    try:
        yield path
    finally:
        shutil.rmtree(path, ignore_errors=True)


def environment() -> dict[str, str]:
    """Ours, without settings: what is measured is what is shipped."""
    return {key: value for key, value in os.environ.items() if not key.startswith("DAGMASTER_")}


class Stack:
    """A running `dagmaster dev`."""

    def __init__(self, data_dir: Path, *arguments: str) -> None:
        self.data_dir = data_dir
        self._arguments = arguments
        self.dsn = dsn_of(data_dir)
        self.said: list[str] = []
        self.pids: dict[str, int] = {}
        self.ready_seconds = 0.0
        self._ready = threading.Event()

    def __enter__(self) -> Self:
        begun = time.perf_counter()
        self._process = subprocess.Popen(  # noqa: S603 - our own command
            [DAGMASTER, "dev", "--data-dir", str(self.data_dir), *self._arguments],
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
            self.ready_seconds = time.perf_counter() - begun
            postmaster = (self.data_dir / "cluster" / "postmaster.pid").read_text().split()[0]
            self.pids |= {"dev": self._process.pid, "postmaster": int(postmaster)}
        except BaseException:
            self._stop()
            raise
        return self

    def __exit__(self, kind: type[BaseException] | None, *_: object) -> None:
        by_others = self._process.poll() is not None or any(line.startswith("stopping") for line in self.said)
        self._stop()
        if kind is not None and issubclass(kind, Exception):
            how = "was stopped, and not by this benchmark" if by_others else "lived"
            log = (self.data_dir / "server.log").read_text(errors="replace").splitlines()
            print(f"dagmaster dev {how}; it said:", *self.said[-20:], *log[-20:], sep="\n  ", file=sys.stderr)

    def _await_ready(self) -> None:
        if not self._ready.wait(START_SECONDS) or "worker" not in self.pids:
            raise RuntimeError("dagmaster dev did not start:\n" + "\n".join(self.said))

    def _listen(self) -> None:
        assert self._process.stdout is not None
        for line in self._process.stdout:
            self.said.append(line.rstrip())
            found = re.match(r"  (orchestrator|worker) +pid (\d+)$", self.said[-1])
            if found:
                self.pids[found[1]] = int(found[2])
            if line.startswith("ready in"):
                self._ready.set()
        self._ready.set()

    def _stop(self) -> None:
        self._process.terminate()
        try:
            self._process.wait(60)
        except subprocess.TimeoutExpired:
            # Its children end when their input does, and the server when its last user is gone.
            self._process.kill()
            self._process.wait(10)
        self._listener.join(5)

    def floor_dsn(self) -> str:
        """The address of the database for the floor, which is made here."""
        make_floor(self.dsn)
        return dsn_of(self.data_dir, FLOOR)

    def names(self) -> dict[int, str]:
        """Who is who: our processes, and the server's for our connections. The rest of the server has no name here."""
        ours = {pid: name for name, pid in self.pids.items() if name != "postmaster"}
        return ours | asyncio.run(_backends(self.dsn))

    def cpu(self) -> dict[int, float]:
        """The CPU time of each process so far; that of the server's children that are over is the postmaster's."""
        postmaster = self.pids["postmaster"]
        family = [*self.pids.values(), *processes.children(postmaster), *processes.children(self.pids["worker"])]
        used = {pid: processes.cpu_seconds(pid) for pid in family}
        used[postmaster] += processes.cpu_seconds(postmaster, reaped=True)
        return used

    def fine_cpu(self) -> float:
        """The CPU time of all that live, to the nanosecond."""
        return sum(processes.fine_cpu_seconds(pid) for pid in self.cpu())


def dsn_of(data_dir: Path, database: str = "dagmaster") -> str:
    """The address of the embedded server's database."""
    return f"postgresql:///{database}?host={data_dir / 'socket'}&port=5432&user=dagmaster"


def make_floor(dsn: str) -> None:
    """Make the database for the floor on the server of this address, with our schema."""
    asyncio.run(_create(dsn, FLOOR))
    schema_version.upgrade(dsn.replace("postgresql:///dagmaster?", f"postgresql:///{FLOOR}?"))


async def connect(dsn: str, **settings: str) -> asyncpg.Connection[Any]:
    """Connect, with the tables in sight."""
    given = {"search_path": "dagapp", "application_name": "bench", **settings}
    return await asyncpg.connect(dsn, server_settings=given, command_timeout=120)


async def _create(dsn: str, name: str) -> None:
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
