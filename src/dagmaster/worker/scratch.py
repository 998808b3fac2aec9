"""Folders that tasks leave behind when their processes are killed.

Each process has one, named by its number, below the worker's scratch folder. A process that lives takes its own away
after each task; the worker takes away those of the dead.
"""

from __future__ import annotations

import contextlib
import os
import shutil
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from pathlib import Path


def forget(scratch: Path, pid: int) -> None:
    """Take away what this process left."""
    shutil.rmtree(scratch / str(pid), ignore_errors=True)


def sweep(scratch: Path) -> None:
    """Take away what dead processes of this machine left, those of a worker that was killed among them."""
    with contextlib.suppress(OSError):
        for folder in scratch.iterdir():
            if folder.name.isdigit() and not _lives(int(folder.name)):
                shutil.rmtree(folder, ignore_errors=True)


def _lives(pid: int) -> bool:
    try:
        os.kill(pid, 0)
    except ProcessLookupError:
        return False
    except OSError:
        return True
    return True
