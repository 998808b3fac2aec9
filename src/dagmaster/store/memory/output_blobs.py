"""Large outputs in memory."""

from __future__ import annotations

from typing import TYPE_CHECKING

from dagmaster.errors import BlobNotFound
from dagmaster.ports.output_blobs import CHUNK_BYTES

if TYPE_CHECKING:
    from collections.abc import AsyncGenerator


class MemoryBlobs:
    """Blobs in memory."""

    def __init__(self) -> None:
        self.blobs: dict[str, bytes] = {}

    async def write(self, name: str, data: bytes) -> None:
        self.blobs[name] = data

    async def read(self, name: str) -> bytes:
        if name not in self.blobs:
            raise BlobNotFound(f"there is no blob {name!r} in memory")
        return self.blobs[name]

    async def read_chunks(self, name: str) -> AsyncGenerator[bytes]:
        data = await self.read(name)
        for start in range(0, len(data), CHUNK_BYTES):
            yield data[start : start + CHUNK_BYTES]

    async def names(self) -> AsyncGenerator[str]:
        for name in list(self.blobs):
            yield name

    async def size(self, name: str) -> int:
        return len(await self.read(name))
