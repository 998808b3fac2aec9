"""Read a raster where it lies: for work that needs a small part of a large one."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from dagmaster.errors import PermanentError
from dagmaster.handlers.sources import local_file

if TYPE_CHECKING:
    from dagmaster.ports.handler import HandlerContext
    from dagmaster.ports.storage import BlobUri


@dataclass(frozen=True, slots=True, kw_only=True)
class InPlace:
    """A raster for GDAL. `version` is its checksum, or the storage's word for it where nobody has read all of it."""

    uri: BlobUri
    path: str
    version: str
    size: int
    sha256: str | None = None
    modified: float | None = None
    options: Mapping[str, str] = field(default_factory=dict, repr=False)


def in_place(
    ctx: HandlerContext, uri: BlobUri, *, hashed: bool = False, version: str | None = None, size: int | None = None
) -> InPlace:
    """The raster where it lies; fetched only where GDAL cannot read it there.

    `hashed`: take the checksum of a file of this machine. `version` and `size` are what a plan saw: a raster that has
    changed since then is refused, as far as that can be told without reading it.
    """
    info = ctx.blobs.find(uri)
    if info is None:
        raise PermanentError(f"there is no file at {uri}", kind="invalid_input")
    if size is not None and info.size != size:
        raise PermanentError(
            f"{uri} has {info.size:,} bytes, and had {size:,} when its tiles were planned: it has changed. Plan again",
            kind="invalid_input",
        )
    remote = uri.scheme in ("az", "s3", "gs")
    if remote:
        place = ctx.blobs.gdal_path(uri)
        known = version or f"{info.etag}:{info.size}"
        return InPlace(
            uri=uri, path=place.path, version=known, size=info.size, modified=info.modified, options=place.options
        )
    path = ctx.blobs.local_path(uri)
    if path is None or hashed or version is None:
        file = local_file(ctx, uri)
        return InPlace(
            uri=uri,
            path=str(file.path),
            version=file.sha256,
            sha256=file.sha256,
            size=file.size,
            modified=info.modified,
        )
    return InPlace(uri=uri, path=str(path), version=version, size=info.size, modified=info.modified)
