"""A raster made of parts of others, as a VRT of our own: GDAL reads it block by block, however many parts there are.

A user's VRT is never opened: it points where its author likes. These are written here, about files that were looked at.
"""

from __future__ import annotations

import contextlib
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any
from xml.etree.ElementTree import Element, SubElement, tostring

from rasterio._path import _UnparsedPath as UnparsedPath
from rasterio.dtypes import dtype_rev, typename_fwd
from rasterio.enums import MaskFlags
from rasterio.io import DatasetReader

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence
    from pathlib import Path

    from dagmaster.handlers.raster.grids import Grid

Rectangle = tuple[int, int, int, int]
"""Column, row, width, height."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Part:
    """What is taken from a raster, and where it goes."""

    path: str
    size: tuple[int, int]
    """Width and height of that raster: so GDAL need not open it before its turn."""
    window: Rectangle
    at: tuple[int, int] = (0, 0)
    mask: str | None = None
    """Where its mask is, in GDAL's words, if it has one."""
    alpha: bool = False
    """One of its bands tells what is seen."""


@contextlib.contextmanager
def composed(
    like: DatasetReader,
    grid: Grid,
    parts: Sequence[Part],
    *,
    nodata: float | None,
    mix: bool = False,
    to: Path | None = None,
) -> Iterator[DatasetReader]:
    """Open a raster made of parts, with bands as `like` has them. `mix`: a part without data lets others shine through.

    It stands in a file at `to`; a short one may go without.
    """
    text = _document(like, grid, parts, nodata=nodata, mix=mix)
    if to is not None:
        to.write_text(text, encoding="utf-8")
    with DatasetReader(UnparsedPath(text if to is None else str(to)), driver="VRT", sharing=False) as raster:
        yield raster


def mask_of(raster: DatasetReader) -> str | None:
    """Where the mask of a raster is, if it has one of its own."""
    return "mask,1" if has_mask(raster) else None


def has_mask(raster: DatasetReader) -> bool:
    """Whether it has a mask of its own, beside its bands."""
    return bool(raster.mask_flag_enums) and MaskFlags.per_dataset in raster.mask_flag_enums[0] and not has_alpha(raster)


def has_alpha(raster: DatasetReader) -> bool:
    """Whether one of its bands tells what is seen."""
    return bool(raster.mask_flag_enums) and MaskFlags.alpha in raster.mask_flag_enums[0]


def _document(like: DatasetReader, grid: Grid, parts: Sequence[Part], *, nodata: float | None, mix: bool) -> str:
    root = Element("VRTDataset", rasterXSize=str(grid.width), rasterYSize=str(grid.height))
    SubElement(root, "SRS").text = grid.crs.to_wkt()
    a, b, c, d, e, f = tuple(grid.affine)[:6]
    SubElement(root, "GeoTransform").text = ", ".join(repr(float(one)) for one in (c, a, b, f, d, e))
    _tags(root, like.tags())
    for number in like.indexes:
        _band(root, like, number, parts, nodata=nodata, mix=mix)
    if any(part.mask for part in parts):
        mask = SubElement(SubElement(root, "MaskBand"), "VRTRasterBand", dataType="Byte")
        for part in parts:
            # Where one part has data, another that has none there takes nothing away.
            _source(mask, part, part.mask or "mask,1", "Byte", "0" if mix else None)
    return tostring(root, encoding="unicode")


def _band(
    root: Element, like: DatasetReader, number: int, parts: Sequence[Part], *, nodata: float | None, mix: bool
) -> None:
    at = number - 1
    kind = like.dtypes[at]
    name = str(typename_fwd[dtype_rev[kind]])
    band = SubElement(root, "VRTRasterBand", dataType=name, band=str(number))
    _tags(band, like.tags(number))
    for tag, said in (
        ("Description", like.descriptions[at]),
        ("UnitType", like.units[at]),
        ("Offset", None if like.offsets[at] == 0 else repr(float(like.offsets[at]))),
        ("Scale", None if like.scales[at] == 1 else repr(float(like.scales[at]))),
        ("NoDataValue", None if nodata is None else _number(nodata, kind)),
        ("ColorInterp", like.colorinterp[at].name.capitalize()),
    ):
        if said:
            SubElement(band, tag).text = said
    if like.colorinterp[at].name == "palette":
        table = SubElement(band, "ColorTable")
        for colour in like.colormap(number).values():
            SubElement(table, "Entry", {f"c{place}": str(one) for place, one in enumerate(colour, 1)})
    for part in parts:
        by_mask = mix and (part.alpha or part.mask is not None)
        without = None if nodata is None or not mix else _number(nodata, kind)
        if by_mask:
            without = None
        if mix and like.colorinterp[at].name == "alpha":
            # It has no mask but itself: what is not seen of one part takes nothing away from another.
            by_mask, without = False, "0"
        _source(band, part, str(number), name, without, by_mask=by_mask)


def _source(band: Element, part: Part, which: str, kind: str, nodata: str | None, *, by_mask: bool = False) -> None:
    source = SubElement(band, "SimpleSource" if nodata is None and not by_mask else "ComplexSource")
    SubElement(source, "SourceFilename", relativeToVRT="0").text = part.path
    SubElement(source, "SourceBand").text = which
    width, height = part.size
    SubElement(source, "SourceProperties", RasterXSize=str(width), RasterYSize=str(height), DataType=kind)
    column, row, wide, high = part.window
    SubElement(source, "SrcRect", xOff=str(column), yOff=str(row), xSize=str(wide), ySize=str(high))
    SubElement(source, "DstRect", xOff=str(part.at[0]), yOff=str(part.at[1]), xSize=str(wide), ySize=str(high))
    if nodata is not None:
        SubElement(source, "NODATA").text = nodata
    elif by_mask:
        SubElement(source, "UseMaskBand").text = "true"


def _tags(parent: Element, tags: dict[str, Any]) -> None:
    # Statistics are of all pixels, and these are others.
    kept = {key: str(value) for key, value in tags.items() if not key.startswith("STATISTICS_")}
    if kept:
        metadata = SubElement(parent, "Metadata")
        for key, value in kept.items():
            SubElement(metadata, "MDI", key=key).text = value


def _number(value: float, kind: str) -> str:
    """A number as GDAL reads it; whole where the band is, so that 64 bits stay exact."""
    return str(int(value)) if "int" in kind and value == int(value) else repr(float(value))
