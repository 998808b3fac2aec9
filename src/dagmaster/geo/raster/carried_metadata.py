"""What a raster says besides its pixels, and which of it a COG made from it does not say.

GDAL's COG driver keeps most metadata in the file. It writes some into files next to it, which are not
published: names of categories, raster attribute tables, other domains. What a result lacks is named in the
output of the handler.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final
from xml.etree.ElementTree import fromstring

import rasterio.shutil

from dagmaster.geo.gdal import gdal_env, open_raster
from dagmaster.geo.raster.earth_positions import height_reference
from dagmaster.geo.raster.georeferences import read_rpcs
from dagmaster.geo.raster.provenance_tags import TAG
from dagmaster.geo.raster.vrts import color_table

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

    from rasterio.io import DatasetReader

    from dagmaster.geo.raster.raster_sources import RasterSource
    from dagmaster.sdk.handler_context import HandlerContext

_STRUCTURAL_DOMAINS: Final = ("IMAGE_STRUCTURE", "DERIVED_SUBDATASETS", "SUBDATASETS", "RPC")
"""How a file is built, and what is compared otherwise."""
_STRUCTURAL_ITEMS: Final = (TAG, "METADATATYPE")
_STATISTICS: Final = "STATISTICS_"
_BAND_ELEMENTS: Final = {
    "CategoryNames": "category names",
    "GDALRasterAttributeTable": "raster attribute table",
}
"""Elements of GDAL's VRT of a raster that no TIFF tag holds."""


def find_lost_metadata(
    ctx: HandlerContext, source: RasterSource, cog_path: Path | str
) -> tuple[list[str], list[str]]:
    """Return the names of the sidecars that GDAL uses with a raster, and what its COG does not carry."""
    with gdal_env(ctx.share, **source.options), open_raster(source.path, ctx.share, whole=False) as raster:
        files = {str(file).rpartition("/")[2] for file in raster.files}
        # The CRS of a .prj file may be supplied to GDAL in another file.
        files |= {part.name for part in source.sidecars if part.name.lower().endswith(".prj")}
        unused = {text.partition(":")[0] for text in source.ignored}
        used = [part.name for part in source.sidecars if part.name in files - unused]
        facts = dict(_facts(raster)) | dict(_facts_outside_tiff(raster, ctx.scratch / "metadata.vrt"))
    with gdal_env(ctx.share), open_raster(cog_path, ctx.share, whole=False) as cog:
        carried = dict(_facts(cog))
    lost = [name for name, value in facts.items() if carried.get(name) != value]
    return used, [*lost, *source.ignored]


def _facts(raster: DatasetReader) -> Iterator[tuple[str, Any]]:
    yield from _tag_facts(raster, 0, "")
    points, _ = raster.gcps
    if points:
        yield "ground control points", [(point.row, point.col, point.x, point.y) for point in points]
    heights = height_reference(raster.crs)
    if heights is not None:
        yield f"vertical CRS {heights}", True
    rpcs = read_rpcs(raster)
    if rpcs is not None:
        # A file may write a coefficient with fewer digits, or as 1.0 instead of 1.
        numbers = " ".join(
            value for key, value in sorted(rpcs.to_gdal().items()) if not key.startswith("ERR_")
        )
        yield "RPCs", [f"{float(number):.6g}" for number in numbers.split()]
    for band in raster.indexes:
        index, label = band - 1, f" of band {band}"
        yield from _tag_facts(raster, band, label)
        values = {
            "nodata value": _comparable(raster.nodatavals[index]),
            "name": raster.descriptions[index],
            "unit": raster.units[index],
            "scale": None if raster.scales[index] == 1 else raster.scales[index],
            "offset": None if raster.offsets[index] == 0 else raster.offsets[index],
            "color table": color_table(raster, band),
            # A separate mask, unlike one that all bands share.
            "mask": None if raster.mask_flag_enums[index] else True,
        }
        yield from ((f"{name}{label}", value) for name, value in values.items() if value is not None)


def _tag_facts(raster: DatasetReader, band: int, label: str) -> Iterator[tuple[str, Any]]:
    items = {key: value for key, value in raster.tags(band).items() if key not in _STRUCTURAL_ITEMS}
    statistics = {key: items.pop(key) for key in list(items) if key.startswith(_STATISTICS)}
    if statistics:
        yield f"statistics{label}", statistics
    yield from ((f"metadata item {key}{label}", value) for key, value in items.items())
    for domain in raster.tag_namespaces(band):
        tags = raster.tags(band, ns=domain)
        if tags and domain not in _STRUCTURAL_DOMAINS:
            yield f"metadata domain {domain}{label}", tags


def _facts_outside_tiff(raster: DatasetReader, vrt_path: Path) -> Iterator[tuple[str, Any]]:
    """Yield what only GDAL's own description of a raster contains."""
    if raster.overviews(1):
        yield "overviews: they are made from the pixels", True
    rasterio.shutil.copy(raster, str(vrt_path), driver="VRT")
    root = fromstring(vrt_path.read_bytes())  # noqa: S314 - GDAL has just written it here
    vrt_path.unlink()
    for element in root.iterfind("VRTRasterBand"):
        for tag, name in _BAND_ELEMENTS.items():
            if element.find(tag) is not None:
                yield f"{name} of band {element.get('band')}", True


def _comparable(value: float | None) -> float | str | None:
    """Return a value that equals itself: NaN does not."""
    return "nan" if value is not None and value != value else value  # noqa: PLR0124 - only NaN does
