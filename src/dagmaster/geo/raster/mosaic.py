"""Merge rasters on one pixel grid into one COG, block by block and without resampling."""

from __future__ import annotations

import hashlib
import json
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

import numpy as np
from affine import Affine

from dagmaster.errors import invalid_input
from dagmaster.geo.gdal import explain_io_errors, open_raster
from dagmaster.geo.raster.cog_writer import write_cog
from dagmaster.geo.raster.georeferences import require_georeferenced
from dagmaster.geo.raster.grids import Grid, crs_text, require_north_up
from dagmaster.geo.raster.nodata import choose_nodata
from dagmaster.geo.raster.vrts import VrtSource, color_table, has_alpha, mask_band, open_vrt

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence
    from pathlib import Path

    from rasterio.crs import CRS
    from rasterio.io import DatasetReader

    from dagmaster.geo.raster.cog_writer import CogOptions
    from dagmaster.ports.handler_services import Share

_MAX_OFFSET_PIXELS: Final = 0.01
"""How far a source may lie off the grid of the first one."""
_MAX_CELLS: Final = 50_000_000


@dataclass(frozen=True, slots=True, kw_only=True)
class _SourceRaster:
    """What the sources must agree on, and the grid of one."""

    path: str
    crs: CRS
    dtypes: tuple[str, ...]
    nodata: float | None
    mask: str | None
    has_alpha: bool
    band_encoding: str
    affine: Affine
    width: int
    height: int


def write_mosaic(
    paths: Sequence[Path | str],
    target: Path,
    options: CogOptions,
    share: Share,
    *,
    nodata: float | None = None,
    first_wins: bool = True,
    names: Sequence[str] = (),
    on_source: Callable[[], None] = lambda: None,
) -> None:
    """Write the mosaic of rasters. Where they overlap, the first (or the last) that has data wins.

    They must agree on CRS, bands, data types and pixel size, and lie on one pixel grid.
    """
    sources = []
    for path in paths:
        on_source()
        sources.append(_read_source(path, share))
    labels = list(names) or [str(path) for path in paths]
    _require_compatible(sources, labels)
    grid, parts = _lay_out(sources, labels)
    band_count = len(sources[0].dtypes)
    if grid.width * grid.height * band_count > share.max_pixels:
        raise invalid_input(
            f"the mosaic would have {grid.width:,} x {grid.height:,} pixels in {band_count} bands: at most"
            f" {share.max_pixels:,} are allowed (DAGMASTER_RASTER_MAX_PIXELS). Use fewer sources"
        )
    nodata = choose_nodata(sources[0].nodata, nodata, sources[0].dtypes)
    has_gaps, has_overlaps = _coverage(parts)
    if has_gaps and nodata is None and not sources[0].mask:
        raise invalid_input(
            "the sources leave gaps between them and have no nodata value: zeros there would look like"
            " measurements. Set nodata"
        )
    if first_wins:
        # What is drawn last is on top.
        parts.reverse()
    with (
        open_raster(paths[0], share) as template,
        explain_io_errors(*paths, target=target),
        # Only overlapping sources need a test of each pixel.
        open_vrt(
            template,
            grid,
            parts,
            nodata=nodata,
            skip_nodata=has_overlaps,
            vrt_path=target.with_suffix(".vrt"),
        ) as source,
    ):
        write_cog(source, target, options, share)


def _read_source(path: Path | str, share: Share) -> _SourceRaster:
    with open_raster(path, share) as raster:
        require_georeferenced(raster)
        require_north_up(raster)
        return _SourceRaster(
            path=str(path),
            crs=raster.crs,
            dtypes=tuple(raster.dtypes),
            nodata=raster.nodata,
            mask=mask_band(raster),
            has_alpha=has_alpha(raster),
            band_encoding=_band_encoding(raster),
            affine=raster.transform,
            width=raster.width,
            height=raster.height,
        )


def _band_encoding(raster: DatasetReader) -> str:
    """Return scale, offset, unit and palette of each band as text that can be compared."""
    bands = []
    for index, band in enumerate(raster.indexes):
        text = f"{raster.scales[index]:g} * x + {raster.offsets[index]:g} {raster.units[index] or ''}".strip()
        table = color_table(raster, band)
        if table is not None:
            palette = json.dumps(table, sort_keys=True)
            text += f" palette {hashlib.sha256(palette.encode()).hexdigest()[:8]}"
        bands.append(text)
    return ", ".join(bands)


def _require_compatible(sources: list[_SourceRaster], names: list[str]) -> None:
    first = sources[0]
    for other, name in zip(sources[1:], names[1:], strict=True):
        for label, expected, actual in (
            ("CRS", crs_text(first.crs), crs_text(other.crs)),
            ("number of bands", len(first.dtypes), len(other.dtypes)),
            ("data types", ", ".join(first.dtypes), ", ".join(other.dtypes)),
            ("nodata value", str(first.nodata), str(other.nodata)),
            ("mask", first.mask, other.mask),
            ("alpha band", first.has_alpha, other.has_alpha),
            ("scales, offsets, units or colours", first.band_encoding, other.band_encoding),
        ):
            if expected != actual:
                tool = "raster.reproject" if label == "CRS" else "gdal_translate"
                raise invalid_input(
                    f"the sources differ in {label}: {names[0]} has {expected}, {name} has {actual}."
                    f" Expected rasters that agree; convert them first, as with {tool}"
                )
        for expected_size, actual_size in (
            (first.affine.a, other.affine.a),
            (first.affine.e, other.affine.e),
        ):
            # The grids must not drift apart over the whole width.
            drift = abs(expected_size - actual_size) * max(other.width, other.height)
            if drift > abs(expected_size) * _MAX_OFFSET_PIXELS:
                raise invalid_input(
                    f"the sources differ in pixel size: {names[0]} has {expected_size}, {name} has"
                    f" {actual_size}. Convert them to one resolution with raster.reproject first"
                )


def _lay_out(sources: list[_SourceRaster], names: list[str]) -> tuple[Grid, list[VrtSource]]:
    pixel_width, pixel_height = sources[0].affine.a, sources[0].affine.e
    left, top = min(source.affine.c for source in sources), max(source.affine.f for source in sources)
    parts = []
    for source, name in zip(sources, names, strict=True):
        column, row = (source.affine.c - left) / pixel_width, (source.affine.f - top) / pixel_height
        offset = max(abs(column - round(column)), abs(row - round(row)))
        if offset > _MAX_OFFSET_PIXELS:
            raise invalid_input(
                f"{name} lies {offset:.2f} pixels off the grid of the other sources: expected rasters on one"
                " pixel grid; warp them to one first"
            )
        size = (source.width, source.height)
        parts.append(
            VrtSource(
                path=source.path,
                size=size,
                window=(0, 0, *size),
                target=(round(column), round(row)),
                mask=source.mask,
                has_alpha=source.has_alpha,
            )
        )
    width = max(part.target[0] + part.size[0] for part in parts)
    height = max(part.target[1] + part.size[1] for part in parts)
    affine = Affine(pixel_width, 0, left, 0, pixel_height, top)
    return Grid(crs=sources[0].crs, affine=affine, width=width, height=height), parts


def _coverage(parts: list[VrtSource]) -> tuple[bool, bool]:
    """Return whether there are gaps, and whether parts overlap. Exact, on the grid of the parts' edges."""
    xs = np.unique([x for part in parts for x in (part.target[0], part.target[0] + part.size[0])])
    ys = np.unique([y for part in parts for y in (part.target[1], part.target[1] + part.size[1])])
    if len(xs) * len(ys) > _MAX_CELLS:
        return True, True
    counts = np.zeros((len(ys) - 1, len(xs) - 1), np.uint16)
    for part in parts:
        (x, y), (width, height) = part.target, part.size
        x0, x1 = np.searchsorted(xs, (x, x + width))
        y0, y1 = np.searchsorted(ys, (y, y + height))
        counts[y0:y1, x0:x1] += 1
    return bool((counts == 0).any()), bool((counts > 1).any())
