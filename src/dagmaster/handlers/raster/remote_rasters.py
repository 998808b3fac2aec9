"""Rasters that GDAL reads in place, for work that needs only a small part of a large file."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Final

from dagmaster.errors import PermanentError, invalid_input
from dagmaster.handlers.source_files import check_file_size, file_not_found, local_file

if TYPE_CHECKING:
    from dagmaster.authoring.handler_context import HandlerContext
    from dagmaster.ports.storage import BlobInfo, BlobUri


@dataclass(frozen=True, slots=True, kw_only=True)
class RasterSource:
    """A raster that GDAL can read. `version` is its checksum, or the storage's version if it was not read."""

    uri: BlobUri
    path: str
    version: str
    size: int
    sha256: str | None = None
    modified: float | None = None
    options: Mapping[str, str] = field(default_factory=dict, repr=False)


_CHECKSUMS: dict[tuple[str, str, float | None], str] = {}
"""Checksums this process computed, by URI, etag and modification time: once for many tiles of one raster."""
_MAX_CHECKSUMS: Final = 1000


def locate_raster(
    ctx: HandlerContext, uri: BlobUri, *, version: str | None = None, size: int | None = None
) -> RasterSource:
    """Return the raster in place; fetch it only if GDAL cannot read it there.

    `version` and `size` come from a plan, which may be outdated: a raster that differs from them is rejected, and
    results are named only by what the raster itself states.
    """
    info = ctx.blobs.find(uri)
    if info is None:
        raise file_not_found(ctx, uri)
    if size is not None and info.size != size:
        raise _changed(uri, f"it has {info.size:,} bytes, the plan says {size:,}")
    check_file_size(ctx, info)
    if uri.scheme in ("az", "s3", "gs"):
        gdal_path = ctx.blobs.gdal_path(uri)
        source = RasterSource(
            uri=uri,
            path=gdal_path.path,
            version=f"{info.etag}:{info.size}",
            size=info.size,
            modified=info.modified,
            options=gdal_path.options,
        )
    else:
        source = _local_source(ctx, info)
    if version not in (None, source.version):
        raise _changed(uri, f"its version is {source.version}, the plan says {version[:100]}")
    return source


def _local_source(ctx: HandlerContext, info: BlobInfo) -> RasterSource:
    path, key = ctx.blobs.local_path(info.uri), (str(info.uri), info.etag, info.modified)
    checksum = _CHECKSUMS.get(key) if path is not None and info.etag else None
    if path is None or checksum is None:
        file = local_file(ctx, info.uri)
        path, checksum = file.path, file.sha256
        if len(_CHECKSUMS) >= _MAX_CHECKSUMS:
            _CHECKSUMS.clear()
        _CHECKSUMS[key] = checksum
    return RasterSource(
        uri=info.uri, path=str(path), version=checksum, sha256=checksum, size=info.size, modified=info.modified
    )


def _changed(uri: BlobUri, difference: str) -> PermanentError:
    return invalid_input(
        f"{uri} is not the raster whose tiles were planned: {difference}. It changed, or is another raster: plan again"
    )
