"""The storage of large outputs, which are too long for a row."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Final, Protocol

from dagmaster.errors import BlobNotFound

if TYPE_CHECKING:
    from collections.abc import AsyncGenerator

CHUNK_BYTES: Final = 256 * 1024
"""The most that is in memory of a blob that is read in chunks."""

_NAME: Final = re.compile(r"[A-Za-z0-9_-][A-Za-z0-9_.-]*(/[A-Za-z0-9_-][A-Za-z0-9_.-]*)*")


class OutputBlobs(Protocol):
    """Stores bytes by name.

    A name is a relative path of plain words; a blob is written completely or not at all.
    """

    async def write(self, name: str, data: bytes) -> None:
        """Store a blob durably: it survives a power failure after this returns."""

    async def read(self, name: str) -> bytes:
        """Return a blob; raise `BlobNotFound` if it does not exist."""

    def read_chunks(self, name: str) -> AsyncGenerator[bytes]:
        """Yield a blob in chunks of about `CHUNK_BYTES`; raise `BlobNotFound` if it does not exist."""

    def names(self) -> AsyncGenerator[str]:
        """Yield the names of all blobs, in any order."""

    async def size(self, name: str) -> int:
        """Return how many bytes a blob has, without reading it; raise `BlobNotFound` if it does not exist."""


def check_plain(name: str) -> str:
    """Return the name if it is a relative path of plain words; else raise `BlobNotFound`."""
    if not _NAME.fullmatch(name):
        raise BlobNotFound(
            f"{name!r} is not a valid blob name: use words of letters, digits, '.', '_' and '-', separated by"
            " '/'"
        )
    return name
