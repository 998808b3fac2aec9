"""Put rasters together into one COG. They lie on one grid, so that no pixel is resampled; it is read block by block."""

from __future__ import annotations

import hashlib
import json
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

import numpy as np
from affine import Affine

from dagmaster.handlers.gdal import invalid, opened, working
from dagmaster.handlers.raster.cog_writer import write_cog
from dagmaster.handlers.raster.grids import Grid, crs_text, require_north_up, require_place
from dagmaster.handlers.raster.nodata import agreed
from dagmaster.handlers.raster.vrts import Part, composed, has_alpha, mask_of

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence
    from pathlib import Path

    from rasterio.crs import CRS
    from rasterio.io import DatasetReader

    from dagmaster.handlers.raster.cog_writer import CogOptions
    from dagmaster.ports.handler_services import Share

_OFF_GRID: Final = 0.01
"""Of a pixel: how far a source may lie beside the grid of the first."""
_MAX_CELLS: Final = 50_000_000


@dataclass(frozen=True, slots=True, kw_only=True)
class _Facts:
    """What sources have to agree in, and where one lies."""

    path: str
    crs: CRS
    dtypes: tuple[str, ...]
    nodata: float | None
    mask: str | None
    alpha: bool
    meaning: str
    affine: Affine
    width: int
    height: int


def mosaic(
    paths: Sequence[Path],
    to: Path,
    options: CogOptions,
    share: Share,
    *,
    nodata: float | None = None,
    first: bool = True,
    names: Sequence[str] = (),
    on_round: Callable[[], None] = lambda: None,
) -> None:
    """Write the mosaic of these rasters. Where they overlap, the first that has data wins, or the last.

    They have to agree in coordinate system, bands, data types and pixel size, and lie on one grid of pixels.
    """
    facts = []
    for path in paths:
        on_round()
        facts.append(_facts(path, share))
    named = list(names) or [str(path) for path in paths]
    _check_alike(facts, named)
    grid, parts = _placed(facts, named)
    pixels = grid.width * grid.height * len(facts[0].dtypes)
    if pixels > share.max_pixels:
        raise invalid(
            f"the mosaic would have {grid.width:,} x {grid.height:,} pixels in {len(facts[0].dtypes)} bands: at most"
            f" {share.max_pixels:,} are made (DAGMASTER_RASTER_MAX_PIXELS). Make it of fewer sources"
        )
    known = agreed(facts[0].nodata, nodata, facts[0].dtypes)
    has_gaps, overlaps = _covered(parts)
    if has_gaps and known is None and not facts[0].mask:
        raise invalid(
            "the sources leave gaps between them and have no nodata value: zeros there would look like measurements."
            " Give nodata"
        )
    if first:
        # What is drawn last is on top.
        parts.reverse()
    with (
        opened(paths[0], share) as like,
        working(*paths, to=to),
        # Only sources that overlap need a look at each pixel.
        composed(like, grid, parts, nodata=known, mix=overlaps, to=to.with_suffix(".vrt")) as source,
    ):
        write_cog(source, to, options, share)


def _facts(path: Path, share: Share) -> _Facts:
    with opened(path, share) as raster:
        require_place(raster)
        require_north_up(raster)
        return _Facts(
            path=str(path),
            crs=raster.crs,
            dtypes=tuple(raster.dtypes),
            nodata=raster.nodata,
            mask=mask_of(raster),
            alpha=has_alpha(raster),
            meaning=_meaning(raster),
            affine=raster.transform,
            width=raster.width,
            height=raster.height,
        )


def _meaning(raster: DatasetReader) -> str:
    """How the numbers of its bands are meant."""
    bands = []
    for at, number in enumerate(raster.indexes):
        said = f"{raster.scales[at]:g} * x + {raster.offsets[at]:g} {raster.units[at] or ''}".strip()
        if raster.colorinterp[at].name == "palette":
            told = json.dumps(raster.colormap(number), sort_keys=True)
            said += f" palette {hashlib.sha256(told.encode()).hexdigest()[:8]}"
        bands.append(said)
    return ", ".join(bands)


def _check_alike(facts: list[_Facts], names: list[str]) -> None:
    one = facts[0]
    for other, name in zip(facts[1:], names[1:], strict=True):
        for what, mine, theirs in (
            ("coordinate system", crs_text(one.crs), crs_text(other.crs)),
            ("number of bands", len(one.dtypes), len(other.dtypes)),
            ("data types", ", ".join(one.dtypes), ", ".join(other.dtypes)),
            ("nodata value", str(one.nodata), str(other.nodata)),
            ("mask", one.mask, other.mask),
            ("alpha", one.alpha, other.alpha),
            ("scales, offsets, units or colours", one.meaning, other.meaning),
        ):
            if mine != theirs:
                raise invalid(
                    f"the sources differ in {what}: {names[0]} has {mine}, {name} has {theirs}. Expected rasters that"
                    " agree; bring them to one with raster.reproject first"
                )
        for ours, its in ((one.affine.a, other.affine.a), (one.affine.e, other.affine.e)):
            # Over the whole width the grids may not drift apart.
            if abs(ours - its) * max(other.width, other.height) > abs(ours) * _OFF_GRID:
                raise invalid(
                    f"the sources differ in pixel size: {names[0]} has {ours}, {name} has {its}. Bring them to one"
                    " with raster.reproject and a resolution first"
                )


def _placed(facts: list[_Facts], names: list[str]) -> tuple[Grid, list[Part]]:
    across, down = facts[0].affine.a, facts[0].affine.e
    left, top = min(one.affine.c for one in facts), max(one.affine.f for one in facts)
    parts = []
    for one, name in zip(facts, names, strict=True):
        column, row = (one.affine.c - left) / across, (one.affine.f - top) / down
        beside = max(abs(column - round(column)), abs(row - round(row)))
        if beside > _OFF_GRID:
            raise invalid(
                f"{name} lies {beside:.2f} pixels beside the grid of the others: expected rasters on one grid of"
                " pixels; warp them to one first"
            )
        size = (one.width, one.height)
        at = (round(column), round(row))
        parts.append(Part(path=one.path, size=size, window=(0, 0, *size), at=at, mask=one.mask, alpha=one.alpha))
    width = max(part.at[0] + part.size[0] for part in parts)
    height = max(part.at[1] + part.size[1] for part in parts)
    affine = Affine(across, 0, left, 0, down, top)
    return Grid(crs=facts[0].crs, affine=affine, width=width, height=height), parts


def _covered(parts: list[Part]) -> tuple[bool, bool]:
    """Whether there are gaps, and whether parts overlap. Exact, on the grid of the parts' own edges."""
    xs = np.unique([x for part in parts for x in (part.at[0], part.at[0] + part.size[0])])
    ys = np.unique([y for part in parts for y in (part.at[1], part.at[1] + part.size[1])])
    if len(xs) * len(ys) > _MAX_CELLS:
        return True, True
    times = np.zeros((len(ys) - 1, len(xs) - 1), np.uint16)
    for part in parts:
        (x, y), (width, height) = part.at, part.size
        x0, x1 = np.searchsorted(xs, (x, x + width))
        y0, y1 = np.searchsorted(ys, (y, y + height))
        times[y0:y1, x0:x1] += 1
    return bool((times == 0).any()), bool((times > 1).any())
