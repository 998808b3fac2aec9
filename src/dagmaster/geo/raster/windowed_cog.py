"""Compute a COG window by window.

Every finished window is kept, so that a later attempt computes only the others.

A window is a small GeoTIFF in the storage, next to the result and named like it: by the fingerprint of the
sources, the params and the handler version. It is published atomically, and found by its name. When all are
there, GDAL reads them as one raster and writes the COG; then they are deleted. Memory is needed for one
window, whatever the raster's size.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

import numpy as np
import rasterio
from rasterio.windows import Window

from dagmaster.errors import PermanentError
from dagmaster.geo.gdal import GDAL_ERRORS, explain_io_errors, open_raster
from dagmaster.geo.raster.cog_output import CogParams, CogResult, Origin, cog_uri, publish_cog
from dagmaster.geo.raster.cog_writer import write_cog
from dagmaster.geo.raster.grids import Grid
from dagmaster.geo.raster.vrts import VrtSource, open_vrt
from dagmaster.geo.result_uris import publish_file
from dagmaster.geo.source_files import LocalFile, local_file
from dagmaster.sdk.handler_context import HandlerContext

if TYPE_CHECKING:
    from dagmaster.geo.raster.raster_sources import RasterSource
    from dagmaster.ports.blob_uris import BlobUri

WINDOW_PIXELS: Final = 2048
"""Width and height of a window: 16 MB of a float32 band. Smaller ones are more files, larger ones more to
repeat."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Layout:
    """The raster to compute: its grid, its bands by name, and how pixels without data are marked."""

    grid: Grid
    dtype: str
    bands: Sequence[str]
    nodata: float | None = None
    """The value of pixels without data. None: the raster gets a mask."""
    window_pixels: int = WINDOW_PIXELS


Compute = Callable[[Window], Any]
"""Returns the pixels of a window, as rows and columns or as bands, rows and columns. What it masks is without
data."""


def publish_windowed_cog(
    ctx: HandlerContext,
    sources: Sequence[LocalFile | RasterSource],
    params: CogParams,
    layout: Layout,
    compute: Compute,
    *,
    name: str,
    pixel_params: Mapping[str, Any],
    folder: str = "cogs",
) -> CogResult:
    """Compute the windows of a raster that no earlier attempt has finished; publish all of them as one COG.

    The COG names every source with its checksum. `compute` is called within `gdal_env`, and not at all if the
    result exists. It must return the same pixels for the same sources and `pixel_params`, which are part of
    the fingerprint.
    """
    origin = Origin.of_files(ctx, *sources)
    uri = cog_uri(ctx, name, params, origin, pixel_params, folder=folder)
    store = _WindowStore(ctx, uri, layout)

    def write(target: Path) -> None:
        parts = list(store.files(compute))
        with (
            open_raster(parts[0].path, ctx.share) as template,
            explain_io_errors(target=target),
            open_vrt(
                template, layout.grid, parts, nodata=layout.nodata, vrt_path=target.with_suffix(".vrt")
            ) as raster,
        ):
            write_cog(raster, target, params.options(origin), ctx.share)

    result = publish_cog(ctx, uri, params, origin, write, name=name, pixel_params=pixel_params)
    store.delete()
    return result


class _WindowStore:
    """The windows of one result: in the storage, and as local files."""

    def __init__(self, ctx: HandlerContext, uri: BlobUri, layout: Layout) -> None:
        self._ctx = ctx
        self._layout = layout
        self._windows = list(layout.grid.windows(layout.window_pixels))
        folder, _, file = uri.name.rpartition("/")
        self._home = replace(uri, name=f"{folder}/parts/{file.removesuffix('.tif')}-{layout.window_pixels}")

    def files(self, compute: Compute) -> Iterator[VrtSource]:
        """Yield every window as a local file, finished before or now."""
        ctx, count = self._ctx, len(self._windows)
        finished = {info.uri.name for info in ctx.blobs.list_blobs(self._home)}
        for number, window in enumerate(self._windows, 1):
            ctx.raise_if_cancelled()
            uri = self._uri(number)
            path = self._find(uri, window) if uri.name in finished else None
            if path is None:
                path = self._write(compute(window), window, ctx.scratch / f"window{number}.tif")
                publish_file(ctx, path, uri)
                self._save(number)
            ctx.progress(number, count, f"window {number} of {count}")
            size = (window.width, window.height)
            mask = "mask,1" if self._layout.nodata is None else None
            target = (window.col_off, window.row_off)
            yield VrtSource(path=str(path), size=size, window=(0, 0, *size), target=target, mask=mask)

    def _save(self, number: int) -> None:
        """Save a checkpoint, with what the handler itself has saved before.

        A window is no artifact: each is looked up by itself, so that a missing one does not cost the others.
        """
        last = self._ctx.last_checkpoint
        data, artifacts = ({}, ()) if last is None else (last.data, last.artifacts)
        phase = f"window {number} of {len(self._windows)}"
        self._ctx.checkpoint(phase, {**data, "windows": number}, artifacts)

    def delete(self) -> None:
        """Delete the windows: the result has their pixels."""
        for info in list(self._ctx.blobs.list_blobs(self._home)):
            self._ctx.blobs.delete(info.uri)

    def _uri(self, number: int) -> BlobUri:
        # The leading dot marks unfinished work, which is never cataloged.
        return self._home.child(f".window{number}.tif")

    def _find(self, uri: BlobUri, window: Window) -> Path | None:
        """Return a finished window as a local file; None if it is damaged, and has to be computed again."""
        path = local_file(self._ctx, uri).path
        try:
            with rasterio.open(path, driver="GTiff") as raster:
                shape = (raster.count, raster.height, raster.width)
                is_whole = shape == (len(self._layout.bands), window.height, window.width)
                return path if is_whole and raster.read().size else None
        except GDAL_ERRORS:
            return None

    def _write(self, values: Any, window: Window, path: Path) -> Path:
        layout = self._layout
        pixels = _checked_pixels(values, layout, window)
        is_missing = np.ma.getmaskarray(pixels)
        grid = layout.grid.window(window.col_off, window.row_off, window.width, window.height)
        profile: dict[str, Any] = {
            "driver": "GTiff", "width": window.width, "height": window.height, "count": len(layout.bands),
            "dtype": layout.dtype, "crs": grid.crs, "transform": grid.affine, "nodata": layout.nodata,
            "compress": "ZSTD", "zstd_level": 1, "bigtiff": "if_safer",
        }  # fmt: skip
        with explain_io_errors(target=path), rasterio.open(path, "w", **profile) as raster:
            raster.write(pixels.filled(0 if layout.nodata is None else layout.nodata))
            if layout.nodata is None:
                # One mask for all bands: a pixel counts as data if every band has it.
                raster.write_mask(~is_missing.any(axis=0))
            for number, band in enumerate(layout.bands, 1):
                raster.set_band_description(number, band)
        return path


def _checked_pixels(values: Any, layout: Layout, window: Window) -> Any:
    """Return computed pixels as a masked array of bands, rows and columns of the layout's type."""
    pixels = np.ma.asarray(values)
    pixels = pixels[None] if pixels.ndim == 2 else pixels  # noqa: PLR2004 - one band
    expected = (len(layout.bands), window.height, window.width)
    if pixels.shape != expected or not np.can_cast(pixels.dtype, layout.dtype, "same_kind"):
        raise PermanentError(
            f"the pixels of a window are {pixels.dtype} of shape {pixels.shape}: expected {layout.dtype} of"
            f" shape {expected} (bands, rows, columns)",
            kind="invalid_output",
        )
    return pixels.astype(layout.dtype)
