"""Rasters that are directories, as Zarr is, or that are in a zip archive: unpacked into a folder of our own."""

from __future__ import annotations

import tempfile
from pathlib import Path
from typing import TYPE_CHECKING

from dagmaster.handlers.formats.archives import extract_dataset
from dagmaster.handlers.formats.directories import fetch_directory, is_directory
from dagmaster.handlers.formats.raster_files import FILE_TYPES, ZIP_SUFFIX
from dagmaster.handlers.gdal import SIDECAR_OPTIONS
from dagmaster.handlers.raster.raster_sources import RasterSource
from dagmaster.handlers.source_files import local_file, name_in_errors

if TYPE_CHECKING:
    from dagmaster.authoring.handler_context import HandlerContext
    from dagmaster.ports.storage import BlobUri


def is_dataset(ctx: HandlerContext, uri: BlobUri) -> bool:
    """Return whether a URI is a zip archive, or a directory of a format that consists of one."""
    file_type = FILE_TYPES.get(uri.suffix)
    is_folder = file_type is not None and bool(file_type.markers) and is_directory(ctx, uri)
    return is_folder or uri.suffix == ZIP_SUFFIX


def fetch_dataset(ctx: HandlerContext, uri: BlobUri) -> RasterSource:
    """Fetch the files of a dataset, or unpack the only one of an archive."""
    folder = Path(tempfile.mkdtemp(prefix="dataset-", dir=ctx.scratch))
    if uri.suffix == ZIP_SUFFIX:
        file = local_file(ctx, uri)
        info = ctx.blobs.find(uri)
        with name_in_errors(uri):
            path = extract_dataset(file.path, folder, ctx.share.max_file_mb * 1_000_000, FILE_TYPES)
        size, sha256, modified = file.size, file.sha256, None if info is None else info.modified
    else:
        directory = fetch_directory(ctx, uri, FILE_TYPES[uri.suffix], folder / uri.name.rpartition("/")[2])
        path, size, sha256, modified = directory.path, directory.size, directory.sha256, directory.modified
    return RasterSource(
        uri=uri, path=str(path), version=sha256, size=size, sha256=sha256, modified=modified, options=SIDECAR_OPTIONS
    )
