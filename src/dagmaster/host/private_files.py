"""Folders and files with the data of jobs: only their user can read them, whatever the umask is.

What this makes has the modes 0700 and 0600. A folder with the set-group-ID bit is one that its owner shares
with its group: what is made below it has 2770 and 0660. A folder that exists keeps its mode; `tighten`
changes that of a folder that dagmaster made, as earlier versions made them with the umask. No mode of a
parent is ever changed.
"""

from __future__ import annotations

import contextlib
import os
import stat
from pathlib import Path
from typing import Final

FOLDER_MODE, FILE_MODE = 0o700, 0o600
_SHARED_FOLDER_MODE, _SHARED_FILE_MODE = 0o2770, 0o660
_OTHERS: Final = 0o077


def make_folder(folder: Path) -> list[Path]:
    """Create a folder and its missing parents; return those that were created, the outermost first."""
    missing = []
    while not folder.is_dir():
        missing.append(folder)
        folder = folder.parent
    created = []
    for folder in reversed(missing):
        mode = _SHARED_FOLDER_MODE if _is_shared(folder.parent) else FOLDER_MODE
        try:
            folder.mkdir(mode=FOLDER_MODE)
        except FileExistsError:
            # Another process may have created it at the same moment.
            if not folder.is_dir():
                raise
            continue
        # The umask may have taken a part of it.
        folder.chmod(mode)
        created.append(folder)
    return created


def tighten(folder: Path, mode: int = FOLDER_MODE, *, is_named: bool = False) -> None:
    """Take the rights of others from a folder of this user; leave one that it shares with its group.

    A link is not followed. `is_named`: the user has chosen the folder, and its mode; nothing is done.
    """
    if is_named:
        return
    with contextlib.suppress(OSError):
        descriptor = os.open(folder, os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW)
        try:
            status = os.fstat(descriptor)
            is_wider = status.st_mode & _OTHERS & ~mode
            if status.st_uid == os.geteuid() and is_wider and not status.st_mode & stat.S_ISGID:
                os.fchmod(descriptor, mode)
        finally:
            os.close(descriptor)


def own_folder(folder: Path, *, is_named: bool = False) -> None:
    """Create a folder, or tighten one that was not named by the user. Its first use reports a failure."""
    with contextlib.suppress(OSError):
        make_folder(folder)
    tighten(folder, is_named=is_named)


def set_file_mode(descriptor: int, folder: Path) -> None:
    """Make an open file of a folder private."""
    os.fchmod(descriptor, _SHARED_FILE_MODE if _is_shared(folder) else FILE_MODE)


def opener(path: str, flags: int) -> int:
    """Open a file for `open`: one that it creates is private."""
    try:
        return os.open(path, flags & ~os.O_CREAT)
    except FileNotFoundError:
        if not flags & os.O_CREAT:
            raise
    descriptor = os.open(path, flags, FILE_MODE)
    set_file_mode(descriptor, Path(path).parent)
    return descriptor


def _is_shared(folder: Path) -> bool:
    return bool(folder.stat().st_mode & stat.S_ISGID)
