"""Folders that tasks leave behind when their processes are killed.

Each process has one, with a name that is its alone, below the worker's scratch folder. A process that lives takes its
own away after each task; the worker takes away those of the dead.
"""

from __future__ import annotations

import contextlib
import shutil
import time
from typing import TYPE_CHECKING, Final

from dagmaster.scratch_dirs import NAME, machine_name, process_start

if TYPE_CHECKING:
    from pathlib import Path

LEFT_SECONDS: Final = 7 * 24 * 3600.0
"""What another machine has not touched for so long was left by a dead process: perhaps of ours, before a restart."""


def remove_process_dir(scratch: Path, pid: int) -> None:
    """Take away what this process left, which is dead."""
    with contextlib.suppress(OSError):
        for folder in scratch.glob(f"{machine_name()}_{pid}_*"):
            _remove_if_stale(folder)


def remove_stale_dirs(scratch: Path) -> None:
    """Take away what dead processes of this machine left, those of a worker that was killed among them."""
    with contextlib.suppress(OSError):
        for folder in scratch.iterdir():
            _remove_if_stale(folder)


def _remove_if_stale(folder: Path) -> None:
    found = NAME.fullmatch(folder.name)
    if found is None:
        return
    if found[1] == machine_name():
        is_left = process_start(int(found[2])) != int(found[3])
    else:
        try:
            is_left = time.time() - folder.stat().st_mtime > LEFT_SECONDS
        except OSError:
            return
    if is_left:
        shutil.rmtree(folder, ignore_errors=True)
