"""Rasters that are directories, such as Zarr, or in a zip archive: unpacked into a folder of ours."""

from __future__ import annotations

import tempfile
from pathlib import Path
from typing import TYPE_CHECKING

from dagmaster.geo.formats.archives import extract_dataset, extract_siblings
from dagmaster.geo.formats.directories import fetch_directory, is_directory
from dagmaster.geo.formats.raster_files import FILE_TYPES, ZIP_SUFFIX
from dagmaster.geo.gdal import SIDECAR_OPTIONS
from dagmaster.geo.raster.raster_sources import RasterSource
from dagmaster.geo.raster.sidecars import (
    RasterPart,
    StagedRaster,
    check_text_size,
    sidecar_names,
    stage_raster,
)
from dagmaster.geo.source_files import local_file, modified_at, name_in_errors
from dagmaster.ports.blob_uris import BlobUri

if TYPE_CHECKING:
    from dagmaster.geo.source_files import LocalFile
    from dagmaster.sdk.handler_context import HandlerContext


def is_dataset(ctx: HandlerContext, uri: BlobUri) -> bool:
    """Return whether a URI is a zip archive, or a directory of a format that consists of one."""
    file_type = FILE_TYPES.get(uri.suffix)
    is_folder = file_type is not None and bool(file_type.markers) and is_directory(ctx, uri)
    return is_folder or uri.suffix == ZIP_SUFFIX


def fetch_dataset(ctx: HandlerContext, uri: BlobUri) -> RasterSource:
    folder = Path(tempfile.mkdtemp(prefix="dataset-", dir=ctx.scratch))
    if uri.suffix == ZIP_SUFFIX:
        file = local_file(ctx, uri)
        with name_in_errors(uri):
            staged = _unpack(ctx, file, folder)
        size, sha256, modified = file.size, file.sha256, modified_at(ctx, uri)
    else:
        directory = fetch_directory(ctx, uri, FILE_TYPES[uri.suffix], folder / uri.name.rpartition("/")[2])
        staged = StagedRaster(path=str(directory.path), options=SIDECAR_OPTIONS)
        size, sha256, modified = directory.size, directory.sha256, directory.modified
    return RasterSource(
        uri=uri,
        path=staged.path,
        version=sha256,
        size=size,
        sha256=sha256,
        modified=modified,
        sidecars=staged.sidecars,
        ignored=staged.ignored,
        options=staged.options,
    )


def _unpack(ctx: HandlerContext, file: LocalFile, folder: Path) -> StagedRaster:
    extracted = extract_dataset(file.path, folder, ctx.share.max_file_mb * 1_000_000, FILE_TYPES)
    if extracted.path.is_dir():
        return StagedRaster(path=str(extracted.path), options=SIDECAR_OPTIONS)
    name = Path(extracted.member).name
    siblings = extract_siblings(file.path, folder, extracted.member, sidecar_names(name))
    raster, *sidecars = (
        RasterPart(
            uri=BlobUri(file.uri.scheme, file.uri.container, f"{file.uri.name}/{part}"),
            path=str(path),
            size=path.stat().st_size,
            version=file.sha256,
        )
        for part, path in {name: extracted.path, **siblings}.items()
    )
    for sidecar in sidecars:
        check_text_size(sidecar.uri, sidecar.size)
    return stage_raster(ctx, raster, sidecars)
