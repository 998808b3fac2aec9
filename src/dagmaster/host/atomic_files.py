"""Atomic, durable file creation."""

from __future__ import annotations

import contextlib
import errno
import os
import secrets
from typing import IO, TYPE_CHECKING, Final

from dagmaster.host import private_files
from dagmaster.ports.blob_uris import UNFINISHED

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
    from pathlib import Path

_UNNAMED_UNSUPPORTED: Final = (
    errno.EOPNOTSUPP,
    errno.EISDIR,
    errno.EINVAL,
    errno.ENOENT,
    errno.EPERM,
    errno.EACCES,
)


def create(path: Path, fill: Callable[[IO[bytes]], object]) -> bool:
    """Create a file atomically; return False if it exists.

    The bytes are durable before the name is, and the name before this returns. A killed process leaves
    nothing on file systems with unnamed files (ext4, xfs, btrfs, tmpfs), and a hidden temporary file
    elsewhere.
    """
    make_folder(path.parent)
    with _open_unnamed(path.parent) as (file, link):
        fill(file)
        _sync(file)
        try:
            link(path)
        except FileExistsError:
            return False
    sync_folder(path.parent)
    return True


def replace(path: Path, fill: Callable[[IO[bytes]], object]) -> None:
    make_folder(path.parent)
    with _open_temporary(path.parent) as (file, temp_path):
        fill(file)
        _sync(file)
        temp_path.replace(path)
    sync_folder(path.parent)


def replace_private(path: Path, fill: Callable[[IO[bytes]], object]) -> None:
    """Create or replace a file that only its user can read, with its missing folders: see `private_files`."""

    def fill_private(file: IO[bytes]) -> None:
        # Before there is anything to read.
        private_files.set_file_mode(file.fileno(), path.parent)
        fill(file)

    for folder in private_files.make_folder(path.parent):
        sync_folder(folder.parent)
    replace(path, fill_private)


def write_private(path: Path, data: bytes) -> None:
    """Write a file that only its owner can read, replacing any other file of that name."""

    def fill(file: IO[bytes]) -> None:
        # Not as its folder: a key is for one user.
        os.fchmod(file.fileno(), private_files.FILE_MODE)
        file.write(data)

    replace(path, fill)


def make_folder(folder: Path) -> None:
    """Create a folder and its parents durably.

    A folder that another process just created is assumed durable: on a journalling file system (ext4, xfs,
    btrfs) the later sync of our file includes it.
    """
    missing = []
    while not folder.is_dir():
        missing.append(folder)
        folder = folder.parent
    for folder in reversed(missing):
        folder.mkdir(exist_ok=True)
        sync_folder(folder.parent)


def sync_folder(folder: Path) -> None:
    descriptor = os.open(folder, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)


def _sync(file: IO[bytes]) -> None:
    file.flush()
    os.fsync(file.fileno())


@contextlib.contextmanager
def _open_unnamed(folder: Path) -> Iterator[tuple[IO[bytes], Callable[[Path], None]]]:
    """Yield an unnamed file, and the function that links it to a free name."""
    try:
        descriptor = os.open(folder, os.O_TMPFILE | os.O_WRONLY, 0o666)
    except (AttributeError, OSError) as error:
        # NFS and some others have none; nor has a system without /proc, which is tried below all the same.
        if isinstance(error, OSError) and error.errno not in _UNNAMED_UNSUPPORTED:
            raise
        with _open_temporary(folder) as (file, temp_path):
            yield file, lambda path: os.link(temp_path, path)
        return
    with os.fdopen(descriptor, "wb") as file:
        # A folder as src_dir_fd makes Python call linkat with AT_SYMLINK_FOLLOW, which link(2) does not do.
        yield file, lambda path: _link_descriptor(file.fileno(), path)


def _link_descriptor(descriptor: int, path: Path) -> None:
    folder = os.open(path.parent, os.O_RDONLY)
    try:
        os.link(f"/proc/self/fd/{descriptor}", path, src_dir_fd=folder, follow_symlinks=True)
    finally:
        os.close(folder)


@contextlib.contextmanager
def _open_temporary(folder: Path) -> Iterator[tuple[IO[bytes], Path]]:
    """Yield a hidden temporary file that is removed afterwards."""
    temp_path = folder / f"{UNFINISHED}-{secrets.token_hex(8)}"
    try:
        with temp_path.open("xb") as file:
            yield file, temp_path
    finally:
        with contextlib.suppress(OSError):
            temp_path.unlink(missing_ok=True)
