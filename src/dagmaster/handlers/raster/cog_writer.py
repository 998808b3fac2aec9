"""Write a Cloud-Optimized GeoTIFF with GDAL's own driver: what it costs is what GDAL costs."""

from __future__ import annotations

import contextlib
import math
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any, Final, Literal

import rasterio.shutil
from rasterio.warp import transform_bounds
from rio_cogeo.cogeo import cog_validate

from dagmaster.handlers.gdal import invalid, opened, quiet, working
from dagmaster.handlers.raster.grids import (
    EXACT,
    Grid,
    Warp,
    grid_of,
    require_north_up,
    require_place,
    target_grid,
    warped,
)
from dagmaster.handlers.raster.nodata import agreed
from dagmaster.handlers.raster.projection_bounds import within_a_turn
from dagmaster.handlers.raster.provenance_tags import tagged
from dagmaster.handlers.raster.vrts import Part, composed, mask_of

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

    from rasterio.io import DatasetReader

    from dagmaster.handlers.raster.vrts import Rectangle
    from dagmaster.ports.handler_services import Share

Compression = Literal["DEFLATE", "ZSTD", "LZW", "LERC", "NONE"]

_TURN: Final = 360.0
_WITH_PREDICTOR: Final = ("DEFLATE", "ZSTD", "LZW")
_WITH_BITS: Final = ("8", "16", "32", "64")
_WITH_LEVEL: Final = ("DEFLATE", "ZSTD")


@dataclass(frozen=True, slots=True, kw_only=True)
class CogOptions:
    """How a COG is made. `resampling` is of its overviews: average for measurements, nearest or mode for classes.

    `auto`: mode for a palette and for single bits, nearest for complex numbers, else average.
    """

    compression: Compression = "DEFLATE"
    level: int | None = None
    tile_size: int = 512
    resampling: str = "auto"
    made_of: str = ""
    """Written into it as a tag, if there is something to say."""

    def creation(self, source: DatasetReader | Any, share: Share) -> dict[str, Any]:
        """The options of GDAL's driver."""
        is_complex = any("complex" in kind for kind in source.dtypes)
        options: dict[str, Any] = {
            "COMPRESS": self.compression,
            "BLOCKSIZE": self.tile_size,
            "BIGTIFF": "IF_SAFER",
            "OVERVIEW_RESAMPLING": (_fitting(source) if self.resampling == "auto" else self.resampling).upper(),
            "NUM_THREADS": share.threads,
        }
        # There is no predictor for complex numbers, nor for those of 1 or 12 bits.
        bits = source.tags(1, ns="IMAGE_STRUCTURE").get("NBITS", "8")
        if self.compression in _WITH_PREDICTOR and not is_complex and bits in _WITH_BITS:
            options["PREDICTOR"] = "YES"
        if self.level is not None and self.compression in _WITH_LEVEL:
            options["LEVEL"] = self.level
        return options


def make_cog(
    path: Path | str,
    to: Path,
    options: CogOptions,
    share: Share,
    *,
    warp: Warp,
    window: Rectangle | None = None,
    size: int | None = None,
) -> None:
    """Make a COG of a raster file, or of a window of it, of which only that is read. It stands north-up.

    With a window and another coordinate system: the part of the whole raster's target grid that the window touches. So
    tiles that were warped each for itself lie on one grid. `size` is of a file that lies elsewhere, in bytes.
    """
    with opened(path, share, whole=window is None, size=size) as raster:
        require_place(raster)
        with working(path, to=to), _wanted(raster, path, share, warp=warp, window=window) as source:
            write_cog(source, to, options, share)


def write_cog(source: DatasetReader | Any, to: Path, options: CogOptions, share: Share) -> None:
    """Write all of an open raster (or a WarpedVRT) as a COG. It is read and written block by block."""
    unfit = [kind for kind in source.dtypes if "complex" in kind or kind in ("int64", "uint64")]
    if options.compression == "LERC" and unfit:
        raise invalid(f"LERC cannot hold {unfit[0]}: use DEFLATE or ZSTD")
    told = (
        tagged(source, options.made_of, to.with_suffix(".tagged.vrt"))
        if options.made_of
        else contextlib.nullcontext(source)
    )
    with told as whole:
        rasterio.shutil.copy(whole, str(to), driver="COG", **options.creation(source, share))


def check_cog(path: Path) -> None:
    """Refuse to publish what is not a COG. That would be a mistake of ours."""
    errors = _faults(path)
    if errors:
        raise RuntimeError(f"what was written is not a Cloud-Optimized GeoTIFF: {'; '.join(errors)}")


def is_valid_cog(path: Path | str) -> bool:
    """Whether a GeoTIFF, of whomever, is a COG."""
    return not _faults(path)


def _faults(path: Path | str) -> list[str]:
    with quiet():
        _, errors, _ = cog_validate(str(path), strict=False, quiet=True)
    return list(errors)


@contextlib.contextmanager
def _wanted(
    raster: DatasetReader, path: Path | str, share: Share, *, warp: Warp, window: Rectangle | None
) -> Iterator[Any]:
    if window is None:
        with warped(raster, target_grid(raster, warp, share), warp) as source:
            yield source
        return
    require_north_up(raster)
    column, row, width, height = window
    if min(column, row) < 0 or min(width, height) < 1 or column + width > raster.width or row + height > raster.height:
        raise invalid(
            f"the window {list(window)} is not inside the raster of {raster.width:,} x {raster.height:,} pixels:"
            " expected column, row, width, height"
        )
    if width * height * raster.count > share.max_pixels:
        raise invalid(f"the window {list(window)} has more than {share.max_pixels:,} pixels: plan smaller tiles")
    grid = target_grid(raster, warp, share, whole=False)
    if grid != grid_of(raster):
        there = part_of(raster, grid, window)
        if there.width * there.height * raster.count > share.max_pixels:
            raise invalid(
                f"the window {list(window)} has more than {share.max_pixels:,} pixels there: plan smaller tiles"
            )
        # Exact: tiles that are warped each for itself agree where they meet.
        with warped(raster, there, replace(warp, tolerance=EXACT)) as source:
            yield source
        return
    part = Part(path=str(path), size=(raster.width, raster.height), window=window, mask=mask_of(raster))
    nodata = agreed(raster.nodata, warp.nodata, raster.dtypes)
    with composed(raster, grid.window(*window), [part], nodata=nodata) as source:
        yield source


def part_of(raster: DatasetReader, grid: Grid, window: Rectangle) -> Grid:
    """The part of a target grid that a window of the source touches."""
    source = grid_of(raster) if grid.crs.is_geographic else within_a_turn(grid_of(raster))
    left, bottom, right, top = transform_bounds(source.crs, grid.crs, *source.window(*window).bounds)
    a, _, c, _, e, f = tuple(grid.affine)[:6]
    if grid.crs.is_geographic:
        # GDAL answers from -180 to 180, and the grid may go on beyond.
        right += _TURN if right < left else 0
        turns = _TURN * round((c + a * grid.width / 2 - (left + right) / 2) / _TURN)
        left, right = left + turns, right + turns
    column, wide = _touched((left - c) / a, (right - c) / a, grid.width)
    row, high = _touched((top - f) / e, (bottom - f) / e, grid.height)
    if wide < 1 or high < 1:
        raise invalid(
            f"the window {list(window)} lies beside what its raster covers in the other coordinate system: expected"
            " one that holds the whole raster"
        )
    return grid.window(column, row, wide, high)


def _touched(begin: float, end: float, size: int) -> tuple[int, int]:
    """The pixels of a side from `begin` to `end`: the first, and how many. GDAL's grid may end half a pixel early."""
    first = max(0, min(math.floor(begin), size - 1 if begin < size + 1 else size))
    return first, min(size, max(math.ceil(end), 1 if end > -1 else 0)) - first


def _fitting(source: DatasetReader | Any) -> str:
    if any(one.name == "palette" for one in source.colorinterp):
        return "mode"
    if any("complex" in kind for kind in source.dtypes):
        return "nearest"
    return "mode" if source.tags(1, ns="IMAGE_STRUCTURE").get("NBITS") == "1" else "average"
