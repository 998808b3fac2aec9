"""Removal of scratch directories that killed processes left behind.

Each process has its own directory below the worker's scratch directory. A live process removes its own
after each task; the worker removes the directories of dead processes.
"""

from __future__ import annotations

import contextlib
import shutil
import time
from typing import TYPE_CHECKING, Final

from dagmaster.sdk.scratch_dirs import NAME, machine_name, process_start

if TYPE_CHECKING:
    from pathlib import Path

STALE_SECONDS: Final = 7 * 24 * 3600.0
"""A directory of another machine that did not change for so long is of a dead process, perhaps ours before a
reboot."""


def remove_process_dir(scratch: Path, pid: int) -> None:
    with contextlib.suppress(OSError):
        for folder in scratch.glob(f"{machine_name()}_{pid}_*"):
            _remove_if_stale(folder)


def remove_stale_dirs(scratch: Path) -> None:
    """Remove the directories of dead processes of this machine, also of a killed worker's."""
    with contextlib.suppress(OSError):
        for folder in scratch.iterdir():
            _remove_if_stale(folder)


def _remove_if_stale(folder: Path) -> None:
    match = NAME.fullmatch(folder.name)
    if match is None:
        return
    if match[1] == machine_name():
        is_stale = process_start(int(match[2])) != int(match[3])
    else:
        try:
            is_stale = time.time() - folder.stat().st_mtime > STALE_SECONDS
        except OSError:
            return
    if is_stale:
        shutil.rmtree(folder, ignore_errors=True)
