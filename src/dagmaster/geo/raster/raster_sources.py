"""The raster that a handler reads: fetched as a whole, or read in place if a small part is needed.

Either way its sidecars are used with it, and are part of what identifies it.
"""

from __future__ import annotations

import hashlib
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import partial
from typing import TYPE_CHECKING, Any, Final

from pydantic import Field

from dagmaster.errors import PermanentError, invalid_input
from dagmaster.geo.optional_imports import require_extra
from dagmaster.geo.raster.shared_cache import copy_to_mount
from dagmaster.geo.source_files import SourceParams, check_file_size, file_not_found, local_file

if TYPE_CHECKING:
    from dagmaster.geo.raster.sidecars import RasterPart
    from dagmaster.ports.blob_uris import BlobUri
    from dagmaster.ports.storage import BlobInfo
    from dagmaster.sdk.handler_context import HandlerContext


class RasterParams(SourceParams):
    """One raster file, and which of its rasters."""

    subdataset: str | None = Field(
        default=None,
        description="The raster in a file that contains several, by a name that raster.validate lists.",
    )


@dataclass(frozen=True, slots=True, kw_only=True)
class RasterSource:
    """A raster that GDAL reads at `path`, within `gdal_env(share, **options)`.

    `version` is its checksum, or the storage's version if it was not read.
    """

    uri: BlobUri
    path: str
    version: str
    size: int
    sha256: str | None = None
    modified: float | None = None
    sidecars: Sequence[RasterPart] = ()
    ignored: Sequence[str] = ()
    """Which sidecars are not used, and why."""
    subdataset: str | None = None
    options: Mapping[str, Any] = field(default_factory=dict, repr=False)

    @property
    def href(self) -> str:
        """Return the URI, with the subdataset as its fragment."""
        return str(self.uri) if self.subdataset is None else f"{self.uri}#{self.subdataset}"

    @property
    def versions(self) -> list[str]:
        return [self.version, *(version for _, version in self.sidecar_versions)]

    @property
    def sidecar_versions(self) -> list[tuple[str, str]]:
        return [(str(sidecar.uri), sidecar.version) for sidecar in self.sidecars]

    @property
    def sidecar_digest(self) -> str | None:
        """Return what identifies the sidecars together; None if there are none."""
        text = "\n".join(version for _, version in self.sidecar_versions)
        return hashlib.sha256(text.encode()).hexdigest()[:16] if self.sidecars else None


_CHECKSUMS: dict[tuple[str, str, float | None], str] = {}
"""Checksums this process computed, by URI, etag and modification time: once for many tiles of one raster."""
_MAX_CHECKSUMS: Final = 1000


def fetch_raster(
    ctx: HandlerContext, uri: BlobUri, *, subdataset: str | None = None, use_mount: bool = False
) -> RasterSource:
    """Return a raster and its sidecars as local files, from copies in the mount if requested."""
    return _choose(ctx, _fetch(ctx, uri, use_mount=use_mount), subdataset)


def _fetch(ctx: HandlerContext, uri: BlobUri, *, use_mount: bool) -> RasterSource:
    with require_extra("raster"):
        from dagmaster.geo.raster.dataset_folders import fetch_dataset, is_dataset
        from dagmaster.geo.raster.sidecars import RasterPart, find_sidecars

    if is_dataset(ctx, uri):
        return fetch_dataset(ctx, uri)
    info = ctx.blobs.find(uri)
    if info is None:
        raise file_not_found(ctx, uri)
    uris = [uri, *(sidecar.uri for sidecar in find_sidecars(ctx, uri))]
    files = copy_to_mount(ctx, *uris) if use_mount else [local_file(ctx, part) for part in uris]
    raster, *sidecars = (
        RasterPart(uri=file.uri, path=str(file.path), size=file.size, version=file.sha256) for file in files
    )
    return _stage_local(ctx, raster, sidecars, info.modified)


def locate_raster(
    ctx: HandlerContext,
    uri: BlobUri,
    *,
    subdataset: str | None = None,
    version: str | None = None,
    size: int | None = None,
    sidecars: str | None = None,
) -> RasterSource:
    """Return the raster in place; fetch it only if GDAL cannot read it there.

    `version`, `size` and `sidecars` come from a plan, which may be outdated: a raster that differs from them
    is rejected, and results are named only by what the raster itself states.
    """
    source = _choose(ctx, _locate(ctx, uri), subdataset)
    if size is not None and source.size != size:
        raise _changed(uri, f"it has {source.size:,} bytes, the plan says {size:,}")
    if version not in (None, source.version):
        raise _changed(uri, f"its version is {source.version}, the plan says {version[:100]}")
    if version is not None and sidecars != source.sidecar_digest:
        raise _changed(uri, "the files that belong to it were changed, added or removed")
    return source


def _locate(ctx: HandlerContext, uri: BlobUri) -> RasterSource:
    with require_extra("raster"):
        from dagmaster.geo.formats.raster_files import can_read_in_place
        from dagmaster.geo.raster.dataset_folders import fetch_dataset, is_dataset

    if is_dataset(ctx, uri):
        return fetch_dataset(ctx, uri)
    info = ctx.blobs.find(uri)
    if info is None:
        raise file_not_found(ctx, uri)
    check_file_size(ctx, info)
    is_remote = (
        uri.scheme in ("az", "s3", "gs")
        and can_read_in_place(uri.suffix)
        and not _is_described_beside(ctx, uri)
    )
    return _remote_source(ctx, info) if is_remote else _local_source(ctx, info)


def _is_described_beside(ctx: HandlerContext, uri: BlobUri) -> bool:
    """Return whether a file without a suffix has another one next to it that describes it, as ENVI's have."""
    from dagmaster.geo.formats.raster_files import names_of_parts

    if uri.suffix:
        return False
    name = uri.name.rpartition("/")[2]
    names = {
        sibling.uri.name.rpartition("/")[2].lower() for sibling in ctx.blobs.list_beside(uri, f"{name}.")
    }
    return not names.isdisjoint(names_of_parts(name))


def _choose(ctx: HandlerContext, source: RasterSource, subdataset: str | None) -> RasterSource:
    """Return one of the rasters in a source. It is identified by the file and its name."""
    if subdataset is None:
        return source
    from dagmaster.geo.gdal import gdal_env
    from dagmaster.geo.raster.sidecars import write_beside
    from dagmaster.geo.raster.subdatasets import choose_subdataset
    from dagmaster.geo.raster.supplied_crs import supply_crs

    with gdal_env(ctx.share, **source.options):
        path = choose_subdataset(source.path, subdataset)
        ignored = supply_crs(path, ctx.share, source.sidecars, partial(write_beside, ctx))
    return replace(
        source,
        path=path,
        version=f"{source.version} {subdataset}",
        subdataset=subdataset,
        ignored=[*source.ignored, *ignored],
    )


def _local_source(ctx: HandlerContext, info: BlobInfo) -> RasterSource:
    with require_extra("raster"):
        from dagmaster.geo.raster.sidecars import find_sidecars
    sidecars = [_local_part(ctx, sidecar) for sidecar in find_sidecars(ctx, info.uri)]
    return _stage_local(ctx, _local_part(ctx, info), sidecars, info.modified)


def _stage_local(
    ctx: HandlerContext, raster: RasterPart, sidecars: Sequence[RasterPart], modified: float | None
) -> RasterSource:
    from dagmaster.geo.raster.sidecars import stage_raster

    staged = stage_raster(ctx, raster, sidecars)
    return RasterSource(
        uri=raster.uri,
        path=staged.path,
        version=raster.version,
        size=raster.size,
        sha256=raster.version,
        modified=modified,
        sidecars=staged.sidecars,
        ignored=staged.ignored,
        options=staged.options,
    )


def _local_part(ctx: HandlerContext, info: BlobInfo) -> RasterPart:
    from dagmaster.geo.raster.sidecars import RasterPart

    path, key = ctx.blobs.local_path(info.uri), (str(info.uri), info.etag, info.modified)
    checksum = _CHECKSUMS.get(key) if path is not None and info.etag else None
    if path is None or checksum is None:
        file = local_file(ctx, info.uri)
        path, checksum = file.path, file.sha256
        if len(_CHECKSUMS) >= _MAX_CHECKSUMS:
            _CHECKSUMS.clear()
        _CHECKSUMS[key] = checksum
    return RasterPart(uri=info.uri, path=str(path), size=info.size, version=checksum)


def _remote_source(ctx: HandlerContext, info: BlobInfo) -> RasterSource:
    """Return a raster in an object store: in place, with the sidecars that hold pixels."""
    with require_extra("raster"):
        from dagmaster.geo.raster.sidecars import (
            RasterPart,
            StagedRaster,
            find_sidecars,
            is_binary,
            stage_raster,
        )

    def locate(part: BlobInfo) -> RasterPart:
        if is_binary(part.uri) or part is info:
            path, version = ctx.blobs.gdal_path(part.uri).path, f"{part.etag}:{part.size}"
        else:
            file = local_file(ctx, part.uri)
            path, version = str(file.path), file.sha256
        return RasterPart(uri=part.uri, path=path, size=part.size, version=version)

    raster, options = locate(info), {**ctx.blobs.gdal_path(info.uri).options, "network": True}
    sidecars = [locate(sidecar) for sidecar in find_sidecars(ctx, info.uri)]
    staged = StagedRaster(path=raster.path, options=options)
    if sidecars:
        staged = stage_raster(ctx, raster, sidecars, options)
    return RasterSource(
        uri=info.uri,
        path=staged.path,
        version=raster.version,
        size=info.size,
        modified=info.modified,
        sidecars=staged.sidecars,
        ignored=staged.ignored,
        options=staged.options,
    )


def _changed(uri: BlobUri, difference: str) -> PermanentError:
    return invalid_input(
        f"{uri} is not the raster whose tiles were planned: {difference}. It changed, or is another raster:"
        " plan again"
    )
