"""VRTs that dagmaster writes: rasters of windows or bands of other rasters, read block by block.

A user's VRT is never opened, since it may reference any file. These reference only files that were checked
before.
"""

from __future__ import annotations

import contextlib
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final
from xml.etree.ElementTree import Element, SubElement, tostring

from rasterio._path import _UnparsedPath as UnparsedPath
from rasterio.dtypes import dtype_rev, typename_fwd
from rasterio.enums import MaskFlags
from rasterio.io import DatasetReader

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping, Sequence
    from pathlib import Path

    from affine import Affine

    from dagmaster.geo.raster.grids import Grid

PixelWindow = tuple[int, int, int, int]
"""Column, row, width, height."""
CARRIED_DOMAINS: Final = ("xml:XMP", "COLOR_PROFILE")
"""The metadata domains of a raster that GDAL's COG driver keeps, besides the default one and RPCs."""
CARRIED_BAND_DOMAINS: Final = ("IMAGERY",)


@dataclass(frozen=True, slots=True, kw_only=True)
class VrtSource:
    """A window of a raster, and where it goes."""

    path: str
    size: tuple[int, int]
    """Width and height of that raster, so that GDAL opens it only when it reads it."""
    window: PixelWindow
    target: tuple[int, int] = (0, 0)
    """Column and row of its upper left pixel in the VRT."""
    mask: str | None = None
    """The source band of its mask in GDAL's notation, if it has one."""
    has_alpha: bool = False


@contextlib.contextmanager
def open_vrt(
    template: DatasetReader,
    grid: Grid,
    sources: Sequence[VrtSource],
    *,
    nodata: float | None,
    skip_nodata: bool = False,
    vrt_path: Path | None = None,
) -> Iterator[DatasetReader]:
    """Open a raster composed of windows, with the bands of `template`; a later source covers an earlier one.

    `skip_nodata`: pixels without data in one source do not cover another. The VRT is written to `vrt_path`; a
    short one may stay in memory.
    """
    root = dataset_element(grid)
    _add_tags(root, template.tags())
    carry_domains(root, template)
    for band in template.indexes:
        _add_template_band(root, template, band, sources, nodata=nodata, skip_nodata=skip_nodata)
    if any(source.mask for source in sources):
        mask = SubElement(SubElement(root, "MaskBand"), "VRTRasterBand", dataType="Byte")
        for source in sources:
            # A source that masks a pixel must not hide the data of another one there.
            _add_source(mask, source, source.mask or "mask,1", "Byte", "0" if skip_nodata else None)
    xml = tostring(root, encoding="unicode")
    if vrt_path is not None:
        vrt_path.write_text(xml, encoding="utf-8")
    with open_vrt_file(xml if vrt_path is None else str(vrt_path)) as raster:
        yield raster


@contextlib.contextmanager
def open_band_stack(
    grid: Grid, bands: Mapping[str, Path], *, dtype: str, nodata: float, unit: str, tags: dict[str, Any]
) -> Iterator[DatasetReader]:
    """Open the first bands of rasters on one grid as the bands of one raster.

    The keys of `bands` are their names.
    """
    root = dataset_element(grid)
    _add_tags(root, tags)
    size = (grid.width, grid.height)
    for number, (name, path) in enumerate(bands.items(), 1):
        texts = {"Description": name, "UnitType": unit, "NoDataValue": format_number(nodata, dtype)}
        band = add_band(root, number, dtype, texts)
        source = VrtSource(path=str(path), size=size, window=(0, 0, *size))
        _add_source(band, source, "1", _gdal_type(dtype), None)
    with open_vrt_file(tostring(root, encoding="unicode")) as raster:
        yield raster


def open_vrt_file(path: str) -> DatasetReader:
    """Open a VRT that dagmaster wrote: a file, or the XML itself."""
    return DatasetReader(UnparsedPath(path), driver="VRT", sharing=False)


def mask_band(raster: DatasetReader) -> str | None:
    """Return the source band of a raster's own mask, in GDAL's notation, or None."""
    return "mask,1" if has_mask(raster) else None


def has_mask(raster: DatasetReader) -> bool:
    return (
        bool(raster.mask_flag_enums)
        and MaskFlags.per_dataset in raster.mask_flag_enums[0]
        and not has_alpha(raster)
    )


def has_alpha(raster: DatasetReader) -> bool:
    return bool(raster.mask_flag_enums) and MaskFlags.alpha in raster.mask_flag_enums[0]


def is_alpha_last(raster: DatasetReader) -> bool:
    """Return whether the last band is an alpha band: `gdalwarp` takes only that one for the mask."""
    return bool(raster.count > 1 and raster.colorinterp[-1].name == "alpha")


def color_table(raster: DatasetReader, band: int) -> dict[int, tuple[int, int, int, int]] | None:
    """Return the color table of a band. A band may be declared paletted and have none."""
    try:
        table: dict[int, tuple[int, int, int, int]] = raster.colormap(band)
    except ValueError:
        return None
    return table


def dataset_element(grid: Grid, **attributes: str) -> Element:
    size = {"rasterXSize": str(grid.width), "rasterYSize": str(grid.height)}
    root = Element("VRTDataset", {**size, **attributes})
    SubElement(root, "SRS").text = grid.crs.to_wkt()
    SubElement(root, "GeoTransform").text = format_geotransform(grid.affine)
    return root


def add_band(
    root: Element, number: int, dtype: str, texts: Mapping[str, str | None], **attributes: str
) -> Element:
    """Add a band, with one element for each text that is not empty."""
    band = SubElement(
        root, "VRTRasterBand", {"dataType": _gdal_type(dtype), "band": str(number), **attributes}
    )
    for element, text in texts.items():
        if text:
            SubElement(band, element).text = text
    return band


def carry_domains(root: Element, source: DatasetReader) -> None:
    """Copy from a raster the metadata domains that a COG keeps.

    GDAL leaves them out of a VRT that it writes.
    """
    for domain in CARRIED_DOMAINS:
        _set_domain(root, domain, source.tags(ns=domain))
    for band, element in zip(source.indexes, root.iterfind("VRTRasterBand"), strict=False):
        for domain in CARRIED_BAND_DOMAINS:
            _set_domain(element, domain, source.tags(band, ns=domain))


def format_geotransform(affine: Affine) -> str:
    a, b, c, d, e, f = tuple(affine)[:6]
    return ", ".join(repr(float(number)) for number in (c, a, b, f, d, e))


def format_number(value: float, dtype: str) -> str:
    """Format a number for GDAL; as an integer for integer bands, so that 64 bits stay exact."""
    return str(int(value)) if "int" in dtype and value == int(value) else repr(float(value))


def _add_template_band(
    root: Element,
    template: DatasetReader,
    number: int,
    sources: Sequence[VrtSource],
    *,
    nodata: float | None,
    skip_nodata: bool,
) -> None:
    index = number - 1
    dtype, color = template.dtypes[index], template.colorinterp[index].name
    texts = {
        "Description": template.descriptions[index],
        "UnitType": template.units[index],
        "Offset": None if template.offsets[index] == 0 else repr(float(template.offsets[index])),
        "Scale": None if template.scales[index] == 1 else repr(float(template.scales[index])),
        "NoDataValue": None if nodata is None else format_number(nodata, dtype),
        "ColorInterp": color.capitalize(),
    }
    band = add_band(root, number, dtype, texts)
    _add_tags(band, template.tags(number))
    for domain in CARRIED_BAND_DOMAINS:
        _set_domain(band, domain, template.tags(number, ns=domain))
    _add_color_table(band, color_table(template, number))
    for source in sources:
        use_mask = skip_nodata and (source.has_alpha or source.mask is not None)
        skipped = None if nodata is None or not skip_nodata or use_mask else format_number(nodata, dtype)
        if skip_nodata and color == "alpha":
            # An alpha band masks itself: transparent pixels of one source must not hide another one.
            use_mask, skipped = False, "0"
        _add_source(band, source, str(number), _gdal_type(dtype), skipped, use_mask=use_mask)


def _add_color_table(band: Element, table: Mapping[int, Sequence[int]] | None) -> None:
    if table is None:
        return
    entries = SubElement(band, "ColorTable")
    for entry in table.values():
        SubElement(entries, "Entry", {f"c{channel}": str(value) for channel, value in enumerate(entry, 1)})


def _add_source(
    band: Element,
    source: VrtSource,
    source_band: str,
    data_type: str,
    nodata: str | None,
    *,
    use_mask: bool = False,
) -> None:
    element = SubElement(band, "SimpleSource" if nodata is None and not use_mask else "ComplexSource")
    SubElement(element, "SourceFilename", relativeToVRT="0").text = source.path
    SubElement(element, "SourceBand").text = source_band
    width, height = source.size
    SubElement(
        element, "SourceProperties", RasterXSize=str(width), RasterYSize=str(height), DataType=data_type
    )
    column, row, *window_size = source.window
    for name, (x, y) in (("SrcRect", (column, row)), ("DstRect", source.target)):
        SubElement(
            element, name, xOff=str(x), yOff=str(y), xSize=str(window_size[0]), ySize=str(window_size[1])
        )
    if nodata is not None:
        SubElement(element, "NODATA").text = nodata
    elif use_mask:
        SubElement(element, "UseMaskBand").text = "true"


def _add_tags(parent: Element, tags: Mapping[str, Any]) -> None:
    # Statistics describe all pixels of the source, not of the VRT.
    _set_domain(parent, "", {key: value for key, value in tags.items() if not key.startswith("STATISTICS_")})


def _set_domain(parent: Element, domain: str, tags: Mapping[str, Any]) -> None:
    for old in parent.findall("Metadata"):
        if old.get("domain", "") == domain:
            parent.remove(old)
    if not tags:
        return
    metadata = Element("Metadata", {"domain": domain} if domain else {})
    if domain.startswith("xml:"):
        # A document, not a list of items. GDAL would reformat it as "xml"; as "json" it stays as it is.
        metadata.set("format", "json")
        metadata.text = str(next(iter(tags.values())))
    else:
        for key, value in tags.items():
            SubElement(metadata, "MDI", key=key).text = str(value)
    parent.insert(0, metadata)


def _gdal_type(dtype: str) -> str:
    return str(typename_fwd[dtype_rev[dtype]])
