"""Large outputs in an object store, for services that share no directory."""

from __future__ import annotations

import asyncio
from itertools import islice
from typing import TYPE_CHECKING, Final

from dagmaster.errors import BlobNotFound
from dagmaster.ports.output_blobs import CHUNK_BYTES, check_plain

if TYPE_CHECKING:
    from collections.abc import AsyncGenerator

    from dagmaster.ports.blob_uris import BlobUri
    from dagmaster.ports.storage import Storage

LISTED_AT_ONCE: Final = 1_000


class StoredBlobs:
    """Output blobs below one prefix of a storage. What a store has acknowledged is durable."""

    def __init__(self, storage: Storage, root: BlobUri) -> None:
        self._storage = storage
        self._root = root

    async def write(self, name: str, data: bytes) -> None:
        await asyncio.to_thread(self._storage.write, self._uri(name), data)

    async def read(self, name: str) -> bytes:
        return await asyncio.to_thread(self._storage.read, self._uri(name))

    async def read_chunks(self, name: str) -> AsyncGenerator[bytes]:
        chunks = self._storage.read_chunks(self._uri(name), CHUNK_BYTES)
        while chunk := await asyncio.to_thread(next, chunks, b""):
            yield chunk

    async def names(self) -> AsyncGenerator[str]:
        blobs = self._storage.list_blobs(self._root)
        while batch := await asyncio.to_thread(lambda: list(islice(blobs, LISTED_AT_ONCE))):
            for info in batch:
                yield info.uri.name.removeprefix(self._root.name).lstrip("/")

    async def size(self, name: str) -> int:
        """Ask the storage for the metadata of the blob."""
        info = await asyncio.to_thread(self._storage.find, self._uri(name))
        if info is None:
            raise BlobNotFound(f"there is no blob {self._uri(name)}")
        return info.size

    def _uri(self, name: str) -> BlobUri:
        return self._root.child(check_plain(name))
