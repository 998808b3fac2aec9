"""Write Cloud-Optimized GeoTIFFs with GDAL's COG driver, at the cost of native GDAL."""

from __future__ import annotations

import contextlib
import math
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any, Final, Literal

import rasterio.shutil
from rasterio.warp import transform_bounds

from dagmaster.errors import invalid_input
from dagmaster.geo.gdal import explain_io_errors, gdal_env, open_raster
from dagmaster.geo.raster.cog_validation import check_layout
from dagmaster.geo.raster.earth_positions import crs_name
from dagmaster.geo.raster.georeferences import require_georeferenced
from dagmaster.geo.raster.grids import (
    EXACT_TOLERANCE,
    Grid,
    Warp,
    open_warped,
    raster_grid,
    require_north_up,
    target_grid,
)
from dagmaster.geo.raster.nodata import choose_nodata
from dagmaster.geo.raster.projection_bounds import normalize_longitudes
from dagmaster.geo.raster.provenance_tags import open_with_tag
from dagmaster.geo.raster.vrts import VrtSource, mask_band, open_vrt

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

    from rasterio.io import DatasetReader

    from dagmaster.geo.raster.vrts import PixelWindow
    from dagmaster.ports.handler_services import Share

Compression = Literal["DEFLATE", "ZSTD", "LZW", "LERC", "NONE"]

_FULL_CIRCLE: Final = 360.0
_WITH_PREDICTOR: Final = ("DEFLATE", "ZSTD", "LZW")
_PREDICTOR_BITS: Final = ("8", "16", "32", "64")
_OF_COMPLEX: Final = ("nearest", "average", "mode", "rms")
_WITH_LEVEL: Final = ("DEFLATE", "ZSTD")
_TEMPORARY_OVERVIEWS: Final = {"ZSTD_LEVEL_OVERVIEW": 1}
"""GDAL compresses overviews into a temporary file first, at level 9 by default: a fifth of all CPU time
(2026-11, bench raster). The COG is the same, byte for byte, unless it is ZSTD itself: then this would be the
level of its overviews."""


@dataclass(frozen=True, slots=True, kw_only=True)
class CogOptions:
    """How a COG is written.

    `resampling` is for overviews: average for continuous data, nearest or mode for classes.

    `auto`: mode for palettes and single bits, nearest for complex numbers, else average.
    """

    compression: Compression = "DEFLATE"
    level: int | None = None
    tile_size: int = 512
    resampling: str = "auto"
    provenance_tag: str = ""
    """Written as a TIFF tag unless empty."""

    def creation_options(self, source: DatasetReader | Any, share: Share) -> dict[str, Any]:
        is_complex = any("complex" in dtype for dtype in source.dtypes)
        resampling = _default_resampling(source) if self.resampling == "auto" else self.resampling
        if is_complex and resampling not in _OF_COMPLEX:
            raise invalid_input(
                f"overviews of complex numbers cannot be resampled by {resampling}: use"
                f" {', '.join(_OF_COMPLEX)}"
            )
        options: dict[str, Any] = {
            "COMPRESS": self.compression,
            "BLOCKSIZE": self.tile_size,
            "BIGTIFF": "IF_SAFER",
            # Those of the source may be resampled otherwise, unsorted, or in SubIFDs: they are made from the
            # pixels.
            "OVERVIEWS": "IGNORE_EXISTING",
            "OVERVIEW_RESAMPLING": resampling.upper(),
            "NUM_THREADS": share.threads,
        }
        # TIFF has no predictor for complex numbers, nor for 1 or 12 bits.
        bits = source.tags(1, ns="IMAGE_STRUCTURE").get("NBITS", "8")
        if self.compression in _WITH_PREDICTOR and not is_complex and bits in _PREDICTOR_BITS:
            options["PREDICTOR"] = "YES"
        if self.level is not None and self.compression in _WITH_LEVEL:
            options["LEVEL"] = self.level
        return options


def convert_to_cog(
    path: Path | str,
    target: Path,
    options: CogOptions,
    share: Share,
    *,
    warp: Warp,
    window: PixelWindow | None = None,
    size: int | None = None,
) -> None:
    """Convert a raster file, or only a window of it, to a north-up COG.

    With a window and another CRS, the result is the part of the whole raster's target grid that the window
    touches, so that tiles warped separately share one grid. `size` is the file size in bytes of a remote
    raster.
    """
    with open_raster(path, share, whole=window is None, size=size) as raster:
        if warp.crs is None or window is not None:
            require_georeferenced(raster)
        with (
            explain_io_errors(path, target=target),
            _open_part(raster, path, share, warp=warp, window=window) as source,
        ):
            write_cog(source, target, options, share)


def write_cog(
    source: DatasetReader | Any,
    target: Path,
    options: CogOptions,
    share: Share,
    *,
    template: DatasetReader | None = None,
) -> None:
    """Write an open raster as a COG, block by block.

    Metadata domains that a COG keeps come from `template`, for a source that rasterio wrote: it cannot
    write them.
    """
    unsupported = [dtype for dtype in source.dtypes if "complex" in dtype or dtype in ("int64", "uint64")]
    if options.compression == "LERC" and unsupported:
        raise invalid_input(f"LERC cannot store {unsupported[0]}: use DEFLATE or ZSTD")
    vrt_path = target.with_suffix(".tagged.vrt")
    with (
        open_with_tag(source, options.provenance_tag, vrt_path, template or source) as raster,
        rasterio.Env(**({} if options.compression == "ZSTD" else _TEMPORARY_OVERVIEWS)),
    ):
        rasterio.shutil.copy(raster, str(target), driver="COG", **options.creation_options(source, share))
    # Alone: GDAL writes a CRS that GeoTIFF cannot store into a file next to it.
    with gdal_env(share), open_raster(target, share, whole=False) as written:
        if written.crs is None:
            raise invalid_input(
                f"GeoTIFF cannot store the CRS {crs_name(source.crs)} of the raster: warp it to another one,"
                " with target_crs"
            )


def check_cog(path: Path) -> None:
    """Raise an internal error if a file that dagmaster wrote is not a valid COG."""
    problems = check_layout(path)
    if problems:
        raise RuntimeError(f"the written file is not a Cloud-Optimized GeoTIFF: {'; '.join(problems)}")


@contextlib.contextmanager
def _open_part(
    raster: DatasetReader, path: Path | str, share: Share, *, warp: Warp, window: PixelWindow | None
) -> Iterator[Any]:
    if window is None:
        with open_warped(raster, target_grid(raster, warp, share), warp) as source:
            yield source
        return
    require_north_up(raster)
    column, row, width, height = window
    if (
        min(column, row) < 0
        or min(width, height) < 1
        or column + width > raster.width
        or row + height > raster.height
    ):
        raise invalid_input(
            f"the window {list(window)} is not inside the raster of {raster.width:,} x {raster.height:,}"
            " pixels: expected column, row, width, height"
        )
    if width * height * raster.count > share.max_pixels:
        raise invalid_input(
            f"the window {list(window)} has more than {share.max_pixels:,} pixels: plan smaller tiles"
        )
    grid = target_grid(raster, warp, share, whole=False)
    if grid != raster_grid(raster):
        part = grid_part(raster, grid, window)
        if part.width * part.height * raster.count > share.max_pixels:
            raise invalid_input(
                f"the window {list(window)} has more than {share.max_pixels:,} pixels in the target CRS:"
                " plan smaller tiles"
            )
        # Exact, so that tiles warped separately agree where they meet.
        with open_warped(raster, part, replace(warp, tolerance=EXACT_TOLERANCE)) as source:
            yield source
        return
    vrt_source = VrtSource(
        path=str(path), size=(raster.width, raster.height), window=window, mask=mask_band(raster)
    )
    nodata = choose_nodata(raster.nodata, warp.nodata, raster.dtypes)
    with open_vrt(raster, grid.window(*window), [vrt_source], nodata=nodata) as source:
        yield source


def grid_part(raster: DatasetReader, grid: Grid, window: PixelWindow) -> Grid:
    """Return the part of a target grid that a window of the source touches."""
    source = raster_grid(raster) if grid.crs.is_geographic else normalize_longitudes(raster_grid(raster))
    left, bottom, right, top = transform_bounds(source.crs, grid.crs, *source.window(*window).bounds)
    a, _, c, _, e, f = tuple(grid.affine)[:6]
    if grid.crs.is_geographic:
        # GDAL returns -180 to 180, but the grid may continue beyond 180.
        right += _FULL_CIRCLE if right < left else 0
        shift = _FULL_CIRCLE * round((c + a * grid.width / 2 - (left + right) / 2) / _FULL_CIRCLE)
        left, right = left + shift, right + shift
    column, width = _pixel_range((left - c) / a, (right - c) / a, grid.width)
    row, height = _pixel_range((top - f) / e, (bottom - f) / e, grid.height)
    if width < 1 or height < 1:
        raise invalid_input(
            f"the window {list(window)} lies outside what the raster covers in the target CRS: choose a CRS"
            " that covers the whole raster"
        )
    return grid.window(column, row, width, height)


def _pixel_range(begin: float, end: float, size: int) -> tuple[int, int]:
    """Return the first pixel and how many there are up to `end`; GDAL's grid may end half a pixel early."""
    first = max(0, min(math.floor(begin), size - 1 if begin < size + 1 else size))
    return first, min(size, max(math.ceil(end), 1 if end > -1 else 0)) - first


def _default_resampling(source: DatasetReader | Any) -> str:
    if any(color.name == "palette" for color in source.colorinterp):
        return "mode"
    if any("complex" in dtype for dtype in source.dtypes):
        return "nearest"
    return "mode" if source.tags(1, ns="IMAGE_STRUCTURE").get("NBITS") == "1" else "average"
