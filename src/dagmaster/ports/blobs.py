"""Where large values are kept: outputs that are too long for a row."""

from __future__ import annotations

from typing import Protocol


class Blobs(Protocol):
    """Keeps bytes by name. A name is a relative path of plain words; what is written there is whole, or not there."""

    async def write(self, name: str, data: bytes) -> None:
        """Keep it, for good: when this returns, a loss of power does not lose it."""

    async def read(self, name: str) -> bytes:
        """Give it back. `BlobMissing` if it is not there."""
