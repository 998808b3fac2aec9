"""Where large values are kept: outputs that are too long for a row."""

from __future__ import annotations

import re
from typing import Final, Protocol

from dagmaster.errors import BlobNotFound

_NAME: Final = re.compile(r"[A-Za-z0-9_-][A-Za-z0-9_.-]*(/[A-Za-z0-9_-][A-Za-z0-9_.-]*)*")


class OutputBlobs(Protocol):
    """Keeps bytes by name. A name is a relative path of plain words; what is written there is whole, or not there."""

    async def write(self, name: str, data: bytes) -> None:
        """Keep it, for good: when this returns, a loss of power does not lose it."""

    async def read(self, name: str) -> bytes:
        """Give it back. `BlobNotFound` if it is not there."""


def check_plain(name: str) -> str:
    """Return the name, if it is a relative path of plain words. Nothing can be at another: `BlobNotFound`."""
    if not _NAME.fullmatch(name):
        raise BlobNotFound(
            f"{name!r} is no name of a blob: it is words of letters, digits, '.', '_' and '-' between '/'"
        )
    return name
