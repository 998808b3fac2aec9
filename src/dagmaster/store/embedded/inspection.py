"""Inspect the data directory of an embedded PostgreSQL without creating it or starting its server."""

from __future__ import annotations

import os
import re
import shutil
import tempfile
import time
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from dagmaster.errors import DataDirectoryUnusable
from dagmaster.store.embedded import cluster
from dagmaster.store.embedded.server import EmbeddedPostgres

_FLOCK: Final = re.compile(r"\d+: FLOCK +\S+ +\S+ (?P<pid>\d+) [0-9a-f]+:[0-9a-f]+:(?P<inode>\d+) ")
"""A line of /proc/locks."""


@dataclass(frozen=True, slots=True)
class DataDirectory:
    """Whether a data directory has a cluster, and which processes use it, like `process 7 (dagmaster)`."""

    has_cluster: bool
    users: tuple[str, ...]


def inspect_data_directory(data_dir: Path) -> DataDirectory:
    """Return the state of a data directory; raise what a start of its server would raise."""
    _require_usable(data_dir)
    return DataDirectory(cluster.exists(data_dir / "cluster"), tuple(lock_holders(data_dir / "users.lock")))


def time_trial_start() -> float:
    """Start a server on a temporary directory; return the seconds until it accepted connections."""
    folder = Path(tempfile.mkdtemp(prefix="dagmaster-doctor-"))
    try:
        # As root the server runs as another user, who needs access.
        folder.chmod(0o711)
        started = time.monotonic()
        with EmbeddedPostgres(folder / "trial"):
            return time.monotonic() - started
    finally:
        shutil.rmtree(folder, ignore_errors=True)


def lock_holders(lock: Path, locks: Path = Path("/proc/locks")) -> list[str]:
    """Return the other processes that hold a lock file, from Linux's list of locks; on other systems none."""
    try:
        inode = lock.stat().st_ino
        lines = locks.read_text(encoding="ascii").splitlines()
    except OSError:
        return []
    matches = [match for line in lines if (match := _FLOCK.match(line)) and int(match["inode"]) == inode]
    pids = [int(match["pid"]) for match in matches]
    return [f"process {pid}{_program(pid)}" for pid in pids if pid != os.getpid()]


def _require_usable(data_dir: Path) -> None:
    existing = next(folder for folder in (data_dir, *data_dir.parents) if folder.exists())
    if existing == data_dir:
        cluster.open_directory(data_dir)
        return
    account = cluster.account_for(data_dir / "cluster")
    closed = cluster.find_inaccessible_parent(existing, account)
    if closed is not None:
        raise DataDirectoryUnusable(
            f"{data_dir} cannot be used: the server runs as user {account}, who may not enter {closed}."
            " Choose another"
            f" directory with --data-dir or DAGMASTER_DATA_DIR, or run `chmod o+x {closed}`"
        )


def _program(pid: int) -> str:
    """Return the program of a process and its command: ` (dagmaster dev)`.

    Its other arguments may be secret.
    """
    try:
        words = Path(f"/proc/{pid}/cmdline").read_bytes().decode("utf-8", "replace").split("\0")
    except OSError:
        return ""
    position = next((index for index, word in enumerate(words) if word.endswith("/dagmaster")), None)
    names = [Path(words[0]).name] if position is None else ["dagmaster", *words[position + 1 : position + 2]]
    return f" ({' '.join(name for name in names if name)})" if words[0] else ""
