"""Read a raster where it lies: for work that needs a small part of a large one."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Final

from dagmaster.errors import PermanentError
from dagmaster.handlers.source_files import check_file_size, local_file, no_file

if TYPE_CHECKING:
    from dagmaster.authoring.handler_context import HandlerContext
    from dagmaster.ports.storage import BlobInfo, BlobUri


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


_KNOWN: dict[tuple[str, str, float | None], str] = {}
"""Checksums that this process took, by a file's place, etag and time: once for many tiles of one raster."""
_MOST_KNOWN: Final = 1000


def in_place(ctx: HandlerContext, uri: BlobUri, *, version: str | None = None, size: int | None = None) -> InPlace:
    """The raster where it lies; fetched only where GDAL cannot read it there.

    `version` and `size` are what a plan saw, or says that it saw: nothing is named after them before the raster itself
    says the same. One that has changed since then is refused.
    """
    info = ctx.blobs.find(uri)
    if info is None:
        raise no_file(ctx, uri)
    if size is not None and info.size != size:
        raise _changed(uri, f"it has {info.size:,} bytes, and had {size:,}")
    check_file_size(ctx, info)
    if uri.scheme in ("az", "s3", "gs"):
        place = ctx.blobs.gdal_path(uri)
        found = InPlace(
            uri=uri,
            path=place.path,
            version=f"{info.etag}:{info.size}",
            size=info.size,
            modified=info.modified,
            options=place.options,
        )
    else:
        found = _here(ctx, info)
    if version not in (None, found.version):
        raise _changed(uri, f"its version is {found.version}, and was {version[:100]}")
    return found


def _here(ctx: HandlerContext, info: BlobInfo) -> InPlace:
    """A file of this machine, with its checksum."""
    path, key = ctx.blobs.local_path(info.uri), (str(info.uri), info.etag, info.modified)
    known = _KNOWN.get(key) if path is not None and info.etag else None
    if path is None or known is None:
        file = local_file(ctx, info.uri)
        path, known = file.path, file.sha256
        if len(_KNOWN) >= _MOST_KNOWN:
            _KNOWN.clear()
        _KNOWN[key] = known
    return InPlace(uri=info.uri, path=str(path), version=known, sha256=known, size=info.size, modified=info.modified)


def _changed(uri: BlobUri, how: str) -> PermanentError:
    return PermanentError(
        f"{uri} is not the raster whose tiles were planned: {how}. It has changed, or is another: plan again",
        kind="invalid_input",
    )
