"""Bytes that pass by, piece by piece: counted, summed up, and reported."""

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
    errno.ENOSPC: "there is no room left on the disk",
    errno.EDQUOT: "the quota of the disk is used up",
    errno.EFBIG: "it is larger than a file may be here",
}


class Passing:
    """What has passed: how much, and its checksum. `on_bytes` hears the sum after each piece."""

    def __init__(self, on_bytes: Callable[[int], None] | None = None) -> None:
        self.done = 0
        self._digest = hashlib.sha256()
        self._on_bytes = on_bytes

    def see(self, pieces: Iterable[Any]) -> Iterator[bytes]:
        """The same pieces."""
        for piece in pieces:
            view = bytes(piece)
            self._digest.update(view)
            self.done += len(view)
            yield view
            if self._on_bytes is not None:
                self._on_bytes(self.done)

    @property
    def sha256(self) -> str:
        """Of all that has passed."""
        return self._digest.hexdigest()


def pieces_of(file: IO[bytes], size: int = PIECE) -> Iterator[bytes]:
    """What is in a file."""
    while piece := file.read(size):
        yield piece


def keep(pieces: Iterable[bytes], to: Path) -> None:
    """Write a local file that is whole or not there. It need not outlive a loss of power: it can be fetched again."""
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
def writing(what: str) -> Iterator[None]:
    """What a disk refuses is told in a sentence."""
    try:
        yield
    except OSError as error:
        raise BlobsUnavailable(f"{what} cannot be written: {said(error)}") from error


def said(error: OSError) -> str:
    """What the system says, in words that tell what to do where there is something."""
    return _NO_ROOM.get(error.errno or 0) or error.strerror or str(error)
