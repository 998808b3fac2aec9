"""The storage of handlers: blobs by URI, in zones.

Only `Storage.resolve` turns a user's text into a `BlobUri`. Outputs of nodes that are too long for a row have
a separate port, `ports/output_blobs.py`.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Final, Protocol

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Mapping
    from pathlib import Path

    from dagmaster.ports.blob_uris import BlobUri

ZONES: Final = ("bronze", "silver", "gold")
"""Raw; processed; published."""


@dataclass(frozen=True, slots=True, kw_only=True)
class BlobInfo:
    """The metadata of a blob.

    `sha256`: if it was read or written here; `created`: it did not exist before.
    """

    uri: BlobUri
    size: int
    etag: str = ""
    modified: float | None = None
    """In seconds since 1970."""
    sha256: str = ""
    created: bool = False

    @property
    def version(self) -> str:
        """Return text that changes with the content: size and etag, which need no read of the blob."""
        return f"{self.size}-{self.etag}"


IN_PLACE: Final = "DAGMASTER_IN_PLACE"
"""An option of a path that GDAL reads over the network. GDAL does not know it; `gdal_env` does."""


@dataclass(frozen=True, slots=True, kw_only=True)
class GdalPath:
    """The path and options with which GDAL reads a blob in place."""

    path: str
    options: Mapping[str, str] = field(default_factory=dict, repr=False)


class Storage(Protocol):
    """Blobs by URI. Its methods block: handlers are plain functions.

    A blob is written completely or not at all.

    Methods raise `BlobNotFound` if the blob or its container does not exist; `BlobsUnavailable` if the
    storage does not respond, is full, rejects the credentials, or has no such container to write to: a retry
    may help; and `BlobNameInvalid`, for which a retry does not help.
    """

    def resolve(self, text: str, *, container: str | None = None) -> BlobUri:
        """Resolve a user's text: a URI, a name in a container or zone, a path below an allowed directory."""

    def in_zone(self, zone: str, name: str = "") -> BlobUri:
        """Return a URI in a zone; without a name that of the zone itself."""

    def find(self, uri: BlobUri) -> BlobInfo | None:
        """Return the metadata of a blob, if it exists; raise `BlobNotFound` if its container does not."""

    def list_blobs(self, uri: BlobUri) -> Iterator[BlobInfo]:
        """Yield all blobs below a URI by name."""

    def list_beside(self, uri: BlobUri, *prefixes: str) -> Iterator[BlobInfo]:
        """Yield the blobs in a blob's folder with longer names that begin with a prefix, by prefix and name.

        No prefix may begin with another.
        """

    def read(self, uri: BlobUri) -> bytes:
        """Return all of a small blob."""

    def read_chunks(self, uri: BlobUri, size: int) -> Iterator[bytes]:
        """Yield a blob of any size in chunks of about this many bytes."""

    def write(self, uri: BlobUri, data: bytes) -> BlobInfo:
        """Write a small blob; replace an existing one."""

    def fetch(self, uri: BlobUri, to: Path, on_bytes: Callable[[int], None] | None = None) -> BlobInfo:
        """Copy a blob of any size to a local file in chunks, with its checksum.

        `on_bytes` gets the bytes so far.
        """

    def publish(self, path: Path, uri: BlobUri, on_bytes: Callable[[int], None] | None = None) -> BlobInfo:
        """Upload a local file in chunks, unless the blob exists; return the metadata of the stored blob.

        If two callers publish at the same time, one creates the blob, and both get the same metadata.
        `on_bytes` gets the bytes so far; it must not use the storage, which is locked meanwhile.
        """

    def replace(self, path: Path, uri: BlobUri, on_bytes: Callable[[int], None] | None = None) -> BlobInfo:
        """Upload a local file of any size, and replace an existing blob once the new one is complete.

        Only on a person's request. A handler publishes, because others may be reading.
        """

    def delete(self, uri: BlobUri) -> bool:
        """Delete a blob; return whether it existed."""

    def local_path(self, uri: BlobUri) -> Path | None:
        """Return the path of a local blob, or None."""

    def gdal_path(self, uri: BlobUri) -> GdalPath:
        """Return the path with which GDAL reads a blob in place."""
