"""Folders for the PostgreSQL servers of tests, and a migrated cluster to copy into them."""

from __future__ import annotations

import contextlib
import fcntl
import os
import shutil
import subprocess
import tempfile
import time
from functools import cache
from pathlib import Path
from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    from collections.abc import Iterator

_BEGINS_RUN: Final = "DAGMASTER_TEST_RUN" not in os.environ
RUN: Final = os.environ.setdefault("DAGMASTER_TEST_RUN", f"{os.getpid()}-{time.time_ns():x}")
"""The id of this test run: the same in all of its processes, and in test runs that a test starts."""

_ROOM_BYTES: Final = 4_000_000_000


@cache
def parent_folder() -> Path:
    """Return where servers have their files: not under pytest's own folder, which root's server may not enter.

    In memory where there is room: on a disk that others use, too, initdb took five seconds instead of half a one.
    """
    memory = Path("/dev/shm")
    if memory.is_dir() and shutil.disk_usage(memory).free > _ROOM_BYTES:
        # A copy of the server's programs may have to run from there.
        return Path("/var/tmp") if os.statvfs(memory).f_flag & os.ST_NOEXEC else memory
    return Path("/var/tmp")


@contextlib.contextmanager
def server_folder() -> Iterator[Path]:
    """Provide a folder that the user of a server may enter."""
    folder = make_server_folder()
    try:
        yield folder
    finally:
        shutil.rmtree(folder, ignore_errors=True)


def make_server_folder() -> Path:
    """Create a folder that the user of a server may enter."""
    folder = Path(tempfile.mkdtemp(prefix="dagmaster-", dir=parent_folder()))
    folder.chmod(0o755)
    return folder


def run_folder() -> Path:
    """Return the folder that all processes of a test run share."""
    folder = parent_folder() / f"dagmaster-run-{RUN}"
    folder.mkdir(mode=0o755, exist_ok=True)
    folder.chmod(0o755)
    return folder


def remove_run_folder() -> None:
    """Remove the folder of a test run, in the process that began the run."""
    if _BEGINS_RUN:
        shutil.rmtree(parent_folder() / f"dagmaster-run-{RUN}", ignore_errors=True)


@contextlib.contextmanager
def one_at_a_time() -> Iterator[None]:
    """Exclude the other processes of the test run."""
    with (run_folder() / "lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        yield


def copy_migrated_cluster(data_dir: Path) -> None:
    """Make a data directory of a server with all tables.

    Copying one takes 0.1 s of CPU, creating and migrating it 2 (2026-11).
    """
    subprocess.run(["cp", "-a", _migrated_cluster(), data_dir], check=True)


@cache
def _migrated_cluster() -> Path:
    from dagmaster.store.embedded.server import EmbeddedPostgres
    from dagmaster.store.postgres import schema_version

    data_dir = run_folder() / "template"
    with one_at_a_time():
        if not data_dir.exists():
            unfinished = data_dir.with_name("template.new")
            with EmbeddedPostgres(unfinished) as server:
                schema_version.upgrade(server.dsn)
            unfinished.rename(data_dir)
    return data_dir
