"""Streams of bytes: counted, hashed and reported."""

from __future__ import annotations

import contextlib
import errno
import hashlib
import secrets
from typing import IO, TYPE_CHECKING, Any, Final

from dagmaster.errors import BlobsUnavailable
from dagmaster.ports.storage import UNFINISHED

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator
    from pathlib import Path

PIECE: Final = 8 * 1024 * 1024
"""What is held in memory of a large blob, at a time."""
_NO_ROOM: Final = {
    errno.ENOSPC: "the disk is full",
    errno.EDQUOT: "the disk quota is exceeded",
    errno.EFBIG: "the file is too large for this file system",
}


class Passing:
    """Count and hash a stream. `on_bytes` is called with the total after each chunk."""

    def __init__(self, on_bytes: Callable[[int], None] | None = None) -> None:
        self.done = 0
        self._digest = hashlib.sha256()
        self._on_bytes = on_bytes

    def see(self, pieces: Iterable[Any]) -> Iterator[bytes]:
        """Yield the same chunks."""
        for piece in pieces:
            view = bytes(piece)
            self._digest.update(view)
            self.done += len(view)
            yield view
            if self._on_bytes is not None:
                self._on_bytes(self.done)

    @property
    def sha256(self) -> str:
        """Return the checksum of everything so far."""
        return self._digest.hexdigest()


def pieces_of(file: IO[bytes], size: int = PIECE) -> Iterator[bytes]:
    """Yield the content of a file in chunks."""
    while piece := file.read(size):
        yield piece


def keep(pieces: Iterable[bytes], to: Path) -> None:
    """Write a local file atomically. It need not be durable: it can be fetched again."""
    beside = to.with_name(f"{UNFINISHED}-{secrets.token_hex(8)}")
    try:
        with beside.open("xb") as file:
            for piece in pieces:
                with writing(str(to)):
                    file.write(piece)
        beside.replace(to)
    finally:
        with contextlib.suppress(OSError):
            beside.unlink(missing_ok=True)


@contextlib.contextmanager
def writing(subject: str) -> Iterator[None]:
    """Turn errors of the disk into BlobsUnavailable."""
    try:
        yield
    except OSError as error:
        raise BlobsUnavailable(f"{subject} cannot be written: {error_text(error)}") from error


def error_text(error: OSError) -> str:
    """Return the system's error message, with the remedy where known."""
    return _NO_ROOM.get(error.errno or 0) or error.strerror or str(error)
