"""STAC items of rasters, as plain JSON: where and when, what is in the file, and what it was made of, how, by what.

They are made of facts alone: the same file gives the same item, so a retry or a twin registers nothing new.
"""

from __future__ import annotations

import re
from dataclasses import dataclass, field, replace
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Any, Final

import rasterio

from dagmaster.geo.datetimes import format_datetime, normalize_datetime
from dagmaster.geo.stac_items import STAC_VERSION, collection_link
from dagmaster.handlers.gdal import opened
from dagmaster.handlers.provenance import installed, multihash, provenance, source_links
from dagmaster.handlers.raster.cog_writer import is_valid_cog
from dagmaster.handlers.raster.footprints import footprint
from dagmaster.handlers.raster.grids import crs_text, require_place
from dagmaster.handlers.raster.provenance_tags import MadeOf, made_of

if TYPE_CHECKING:
    from pathlib import Path

    from rasterio.io import DatasetReader

    from dagmaster.handlers.provenance import Made
    from dagmaster.ports.handler_services import Share

EXTENSIONS: Final = (
    "https://stac-extensions.github.io/file/v2.1.0/schema.json",
    "https://stac-extensions.github.io/processing/v1.2.0/schema.json",
    "https://stac-extensions.github.io/projection/v2.0.0/schema.json",
    "https://stac-extensions.github.io/raster/v2.0.0/schema.json",
)
COG_TYPE: Final = "image/tiff; application=geotiff; profile=cloud-optimized"
_GEOTIFF: Final = "image/tiff; application=geotiff"
_MEDIA: Final = {"JP2OpenJPEG": "image/jp2", "PNG": "image/png", "JPEG": "image/jpeg"}
_UNKNOWN: Final = "application/octet-stream"
"""Of a format that nobody has registered, as .hgt."""
_TYPES: Final = {"complex_int16": "cint16", "complex64": "cfloat32", "complex128": "cfloat64"}
_RADIUS: Final = 6_371_008.8
"""Of the Earth, in metres."""
_TAGGED: Final = re.compile(r"(\d{4}):(\d\d):(\d\d) (\d\d):(\d\d):(\d\d)")


@dataclass(frozen=True, slots=True, kw_only=True)
class Told:
    """What a raster file does not say of itself.

    `when` is its moment, as RFC 3339; else the file's own date is taken, or `assumed` (seconds since 1970, as of the
    source's last change), and the item says so. `created` is when the file came to its place.
    """

    item_id: str
    href: str
    sha256: str
    size: int
    collection: str | None = None
    when: str | None = None
    assumed: float | None = None
    created: float | None = None
    properties: dict[str, Any] = field(default_factory=dict)


def raster_item(path: Path | str, share: Share, told: Told, made: Made) -> dict[str, Any]:
    """The STAC item of a raster file, that is or will be at `told.href`. Call it within `gdal(share)`."""
    with opened(path, share, whole=False) as raster:
        require_place(raster)
        place = footprint(raster.crs, raster.transform, raster.width, raster.height)
        # Who made it says so; else the raster itself does.
        own = MadeOf() if made.sources else made_of(raster)
        if own.sources:
            made, told = replace(made, sources=own.sources), replace(told, assumed=own.modified or told.assumed)
        return {
            "type": "Feature",
            "stac_version": STAC_VERSION,
            "stac_extensions": list(EXTENSIONS),
            "id": told.item_id,
            "geometry": place.geometry,
            "bbox": place.bbox,
            "properties": {
                **_moment(raster, told),
                **(
                    {}
                    if told.created is None
                    else {"created": format_datetime(datetime.fromtimestamp(told.created, UTC))}
                ),
                **_projection(raster),
                **provenance(made, {"gdal": rasterio.__gdal_version__, **installed("rasterio", "dagmaster")}),
                **told.properties,
            },
            "assets": {
                "data": {
                    "href": told.href,
                    "type": _media_type(raster, path),
                    "roles": ["data"],
                    "file:size": told.size,
                    "file:checksum": multihash(told.sha256),
                    "bands": _bands(raster),
                    "raster:spatial_resolution": _metres(raster),
                }
            },
            **({} if told.collection is None else {"collection": told.collection}),
            "links": [*([] if told.collection is None else [collection_link(told.collection)]), *source_links(made)],
        }


def _media_type(raster: DatasetReader, path: Path | str) -> str:
    """What the file is: who reads a COG asks for parts of it, and would ask long for those of another."""
    if raster.driver != "GTiff":
        return _MEDIA.get(raster.driver, _UNKNOWN)
    # GDAL has written it so, and nobody has changed it since; else the order of its parts tells.
    is_cog = raster.tags(ns="IMAGE_STRUCTURE").get("LAYOUT") == "COG" or is_valid_cog(path)
    return COG_TYPE if is_cog else _GEOTIFF


def _moment(raster: DatasetReader, told: Told) -> dict[str, Any]:
    if told.when is not None:
        return {"datetime": normalize_datetime(told.when)}
    tagged = _TAGGED.match(raster.tags().get("TIFFTAG_DATETIME", ""))
    if tagged is not None:
        try:
            year, month, day, hour, minute, second = map(int, tagged.groups())
            at = datetime(year, month, day, hour, minute, second, tzinfo=UTC)
            # When the file was written, by a clock somewhere: mostly not when it was measured.
            return {"datetime": format_datetime(at), "dagmaster:datetime_assumed": True}
        except ValueError:
            pass
    taken = datetime.now(UTC) if told.assumed is None else datetime.fromtimestamp(told.assumed, UTC)
    return {"datetime": format_datetime(taken.replace(microsecond=0)), "dagmaster:datetime_assumed": True}


def _projection(raster: DatasetReader) -> dict[str, Any]:
    text = crs_text(raster.crs)
    named: dict[str, Any] = {"proj:code": text}
    if not text.startswith("EPSG:"):
        named = {"proj:code": None, "proj:wkt2": raster.crs.to_wkt(version="WKT2_2019")}
    return {
        **named,
        "proj:shape": [raster.height, raster.width],
        "proj:transform": [float(one) for one in raster.transform][:6],
        "proj:bbox": [float(one) for one in raster.bounds],
    }


def _metres(raster: DatasetReader) -> float:
    """The side of a pixel; of one in degrees its height, which is the same everywhere but for a percent."""
    _, factor = raster.crs.units_factor
    if raster.crs.is_geographic:
        return float(raster.res[1] * factor * _RADIUS)
    return float(raster.res[0] * factor)


def _bands(raster: DatasetReader) -> list[dict[str, Any]]:
    bands = []
    for at, kind in enumerate(raster.dtypes):
        band: dict[str, Any] = {"name": raster.descriptions[at] or f"b{at + 1}", "data_type": _TYPES.get(kind, kind)}
        nodata = raster.nodatavals[at]
        if nodata is not None:
            band["nodata"] = _special(float(nodata))
        if raster.units[at]:
            band["unit"] = raster.units[at]
        if raster.scales[at] != 1 or raster.offsets[at] != 0:
            band |= {"raster:scale": float(raster.scales[at]), "raster:offset": float(raster.offsets[at])}
        bands.append(band)
    return bands


def _special(value: float) -> float | str:
    """JSON has no NaN; STAC spells it."""
    if value != value:  # noqa: PLR0124 - only NaN differs from itself
        return "nan"
    return {float("inf"): "inf", float("-inf"): "-inf"}.get(value, value)
