"""The blobs of handlers under the names of the source systems, for handlers that were written for those.

Every method names a blob by container and path. A container is a zone (bronze, silver, gold), or one that the
operator allows. New handlers use `ctx.blobs`, whose `publish` never replaces what another attempt has
published.
"""

from __future__ import annotations

from itertools import islice
from pathlib import Path
from typing import TYPE_CHECKING, Any, BinaryIO

from dagmaster.errors import BlobNotFound
from dagmaster.ports.blob_uris import BlobUri
from dagmaster.text_format import format_rfc3339

if TYPE_CHECKING:
    from dagmaster.ports.storage import BlobInfo, Storage


class BlobRepository:
    """Blobs by container and path. Its methods block, and a blob is written completely or not at all."""

    def __init__(self, blobs: Storage) -> None:
        self._blobs = blobs

    def read_blob(self, container: str, blob_path: str) -> bytes:
        """Return all of a small blob; raise `BlobNotFound` if it does not exist."""
        return self._blobs.read(self._uri(container, blob_path))

    def write_blob(
        self, container: str, blob_path: str, data: bytes | BinaryIO, *, overwrite: bool = True
    ) -> dict[str, Any]:
        """Write a small blob; return its properties.

        Without `overwrite`, raise FileExistsError if there is one.
        """
        uri = self._uri(container, blob_path)
        if not overwrite and self._blobs.find(uri) is not None:
            raise FileExistsError(f"{uri} exists")
        info = self._blobs.write(uri, data if isinstance(data, bytes) else data.read())
        return _properties(info, blob_path)

    def blob_exists(self, container: str, blob_path: str) -> bool:
        try:
            return self._blobs.find(self._uri(container, blob_path)) is not None
        except BlobNotFound:
            return False

    def get_blob_properties(self, container: str, blob_path: str) -> dict[str, Any]:
        """Return name, size, etag, last_modified and uri of a blob, or raise `BlobNotFound`."""
        uri = self._uri(container, blob_path)
        info = self._blobs.find(uri)
        if info is None:
            raise BlobNotFound(f"there is nothing at {uri}")
        return _properties(info, blob_path)

    def list_blobs(self, container: str, prefix: str = "", limit: int | None = None) -> list[dict[str, Any]]:
        """Return the properties of blobs whose path begins with a prefix, in the order of their paths."""
        probe = self._uri(container, "x")
        root = probe.name.removesuffix("x")
        folder = f"{root}{prefix.rpartition('/')[0]}".rstrip("/")
        blobs = self._blobs.list_blobs(BlobUri(probe.scheme, probe.container, folder))
        named = ((info.uri.name.removeprefix(root), info) for info in blobs)
        return [
            _properties(info, name)
            for name, info in islice((p for p in named if p[0].startswith(prefix)), limit)
        ]

    def delete_blob(self, container: str, blob_path: str) -> bool:
        return self._blobs.delete(self._uri(container, blob_path))

    def stream_blob_to_mount(self, container: str, blob_path: str, mount_path: str) -> dict[str, Any]:
        """Copy a blob of any size to a local file, in chunks; return what was copied."""
        target = Path(mount_path)
        target.parent.mkdir(parents=True, exist_ok=True)
        info = self._blobs.fetch(self._uri(container, blob_path), target)
        return _transfer(info, source=str(info.uri), destination=mount_path)

    def stream_mount_to_blob(
        self, container: str, blob_path: str, mount_path: str, *, overwrite_existing: bool = True
    ) -> dict[str, Any]:
        """Copy a local file of any size to a blob, in chunks.

        Without `overwrite_existing`, an existing one stays.
        """
        store = self._blobs.replace if overwrite_existing else self._blobs.publish
        info = store(Path(mount_path), self._uri(container, blob_path))
        return _transfer(info, source=mount_path, destination=str(info.uri))

    def _uri(self, container: str, blob_path: str) -> BlobUri:
        return self._blobs.resolve(blob_path, container=container)


def _properties(info: BlobInfo, name: str) -> dict[str, Any]:
    modified = None if info.modified is None else format_rfc3339(info.modified)
    return {
        "name": name,
        "size": info.size,
        "etag": info.etag,
        "last_modified": modified,
        "uri": str(info.uri),
    }


def _transfer(info: BlobInfo, *, source: str, destination: str) -> dict[str, Any]:
    return {
        "success": True,
        "bytes_transferred": info.size,
        "sha256": info.sha256,
        "source_uri": source,
        "destination_uri": destination,
    }
