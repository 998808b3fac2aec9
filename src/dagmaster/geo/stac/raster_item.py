"""Build the STAC item of a raster as plain JSON: geometry, datetime, projection, bands, asset and provenance.

Only facts go in: the same file gives the same item, so registering it again is idempotent.
"""

from __future__ import annotations

import datetime as dt
import re
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Any, Final

import rasterio

from dagmaster.geo.gdal import open_raster
from dagmaster.geo.provenance import installed_versions, multihash, provenance_properties, source_links
from dagmaster.geo.raster.cog_validation import check_layout
from dagmaster.geo.raster.earth_positions import celestial_body, crs_code, mean_radius_metres
from dagmaster.geo.raster.footprints import raster_footprint
from dagmaster.geo.raster.georeferences import require_georeferenced
from dagmaster.geo.raster.provenance_tags import ProvenanceTag, read_provenance_tag
from dagmaster.geo.rules.datetimes import format_datetime, normalize_datetime
from dagmaster.geo.rules.stac_items import (
    PROJECTION_EXTENSION,
    STAC_VERSION,
    collection_link,
    projection_code,
)

if TYPE_CHECKING:
    from pathlib import Path

    from rasterio.io import DatasetReader

    from dagmaster.geo.provenance import Provenance
    from dagmaster.ports.handler_services import Share

EXTENSIONS: Final = (
    "https://stac-extensions.github.io/file/v2.1.0/schema.json",
    "https://stac-extensions.github.io/processing/v1.2.0/schema.json",
    PROJECTION_EXTENSION,
    "https://stac-extensions.github.io/raster/v2.0.0/schema.json",
)
SOLAR_SYSTEM_EXTENSION: Final = "https://stac-extensions.github.io/ssys/v1.1.1/schema.json"
COG_TYPE: Final = "image/tiff; application=geotiff; profile=cloud-optimized"
_GEOTIFF_TYPE: Final = "image/tiff; application=geotiff"
_MEDIA_TYPES: Final = {"JP2OpenJPEG": "image/jp2", "PNG": "image/png", "JPEG": "image/jpeg"}
_UNKNOWN_TYPE: Final = "application/octet-stream"
"""For formats without a registered media type, such as .hgt."""
_STAC_DTYPES: Final = {"complex_int16": "cint16", "complex64": "cfloat32", "complex128": "cfloat64"}
_TIFF_DATETIME: Final = re.compile(r"(\d{4}):(\d\d):(\d\d) (\d\d):(\d\d):(\d\d)")


@dataclass(frozen=True, slots=True, kw_only=True)
class ItemMetadata:
    """The metadata of an item that its raster file does not contain.

    Without a `datetime` (RFC 3339), the item takes the date in the file or `source_modified` (seconds since
    1970), and is marked as assumed. `created` is when the file was published.
    """

    item_id: str
    href: str
    sha256: str
    size: int
    collection: str | None = None
    datetime: str | None = None
    source_modified: float | None = None
    created: float | None = None
    properties: dict[str, Any] = field(default_factory=dict)


def raster_item(
    path: Path | str, share: Share, metadata: ItemMetadata, provenance: Provenance
) -> dict[str, Any]:
    """Build the STAC item of a raster file that is or will be at `metadata.href`.

    Call it within `gdal_env(share)`.
    """
    with open_raster(path, share, whole=False) as raster:
        require_georeferenced(raster)
        footprint = raster_footprint(raster.crs, raster.transform, raster.width, raster.height)
        # The task that wrote the raster names its sources; otherwise use the tag in the file.
        tag = ProvenanceTag() if provenance.sources else read_provenance_tag(raster)
        if tag.sources:
            provenance = replace(provenance, sources=tag.sources)
            metadata = replace(metadata, source_modified=tag.modified or metadata.source_modified)
        body = celestial_body(raster.crs)
        software = {"gdal": rasterio.__gdal_version__, **installed_versions("rasterio", "dagmaster")}
        return {
            "type": "Feature",
            "stac_version": STAC_VERSION,
            "stac_extensions": [*EXTENSIONS, *([] if body is None else [SOLAR_SYSTEM_EXTENSION])],
            "id": metadata.item_id,
            # Only a place on the Earth has a geometry in WGS 84. STAC forbids a bbox without a geometry.
            "geometry": None if footprint is None else footprint.geometry,
            **({} if footprint is None else {"bbox": footprint.bbox}),
            "properties": {
                **_datetime_properties(raster, metadata),
                **({} if metadata.created is None else {"created": _format_timestamp(metadata.created)}),
                **_projection(raster),
                **({} if body is None else {"ssys:targets": [body]}),
                **provenance_properties(provenance, software),
                **metadata.properties,
            },
            "assets": {
                "data": {
                    "href": metadata.href,
                    "type": _media_type(raster, path),
                    "roles": ["data"],
                    "file:size": metadata.size,
                    "file:checksum": multihash(metadata.sha256),
                    "bands": _bands(raster),
                    "raster:spatial_resolution": _resolution_metres(raster),
                }
            },
            **({} if metadata.collection is None else {"collection": metadata.collection}),
            "links": [
                *([] if metadata.collection is None else [collection_link(metadata.collection)]),
                *source_links(provenance),
            ],
        }


def _media_type(raster: DatasetReader, path: Path | str) -> str:
    """Return the media type. Clients read a COG in parts, so only a valid COG may be declared one."""
    if raster.driver != "GTiff":
        return _MEDIA_TYPES.get(raster.driver, _UNKNOWN_TYPE)
    # GDAL records the layout and drops the record on a change; otherwise check the order of the parts.
    is_cog = raster.tags(ns="IMAGE_STRUCTURE").get("LAYOUT") == "COG" or not check_layout(path)
    return COG_TYPE if is_cog else _GEOTIFF_TYPE


def _datetime_properties(raster: DatasetReader, metadata: ItemMetadata) -> dict[str, Any]:
    if metadata.datetime is not None:
        return {"datetime": normalize_datetime(metadata.datetime)}
    match = _TIFF_DATETIME.match(raster.tags().get("TIFFTAG_DATETIME", ""))
    if match is not None:
        try:
            year, month, day, hour, minute, second = map(int, match.groups())
            written = dt.datetime(year, month, day, hour, minute, second, tzinfo=dt.UTC)
            # When the file was written, in an unknown time zone: usually not when it was measured.
            return {"datetime": format_datetime(written), "dagmaster:datetime_assumed": True}
        except ValueError:
            pass
    modified = metadata.source_modified
    assumed = dt.datetime.now(dt.UTC) if modified is None else dt.datetime.fromtimestamp(modified, dt.UTC)
    return {"datetime": format_datetime(assumed.replace(microsecond=0)), "dagmaster:datetime_assumed": True}


def _format_timestamp(seconds: float) -> str:
    return format_datetime(dt.datetime.fromtimestamp(seconds, dt.UTC))


def _projection(raster: DatasetReader) -> dict[str, Any]:
    text = crs_code(raster.crs)
    if text is not None and text.startswith("EPSG:"):
        code = projection_code(int(text.removeprefix("EPSG:")))
    else:
        code = {
            **projection_code(None),
            "proj:code": text,
            "proj:wkt2": raster.crs.to_wkt(version="WKT2_2019"),
        }
    return {
        **code,
        "proj:shape": [raster.height, raster.width],
        "proj:transform": [float(number) for number in raster.transform][:6],
        "proj:bbox": [float(side) for side in raster.bounds],
    }


def _resolution_metres(raster: DatasetReader) -> float:
    """Return the pixel size in metres; for degrees the pixel height, which varies by less than a percent."""
    _, factor = raster.crs.units_factor
    if raster.crs.is_geographic:
        return float(raster.res[1] * factor * mean_radius_metres(raster.crs))
    return float(raster.res[0] * factor)


def _bands(raster: DatasetReader) -> list[dict[str, Any]]:
    bands = []
    for index, dtype in enumerate(raster.dtypes):
        band: dict[str, Any] = {
            "name": raster.descriptions[index] or f"b{index + 1}",
            "data_type": _STAC_DTYPES.get(dtype, dtype),
        }
        nodata = raster.nodatavals[index]
        if nodata is not None:
            band["nodata"] = _stac_number(float(nodata))
        if raster.units[index]:
            band["unit"] = raster.units[index]
        if raster.scales[index] != 1 or raster.offsets[index] != 0:
            band |= {
                "raster:scale": float(raster.scales[index]),
                "raster:offset": float(raster.offsets[index]),
            }
        bands.append(band)
    return bands


def _stac_number(value: float) -> float | str:
    """Return a number as STAC writes it: JSON has no NaN and no infinity."""
    if value != value:  # noqa: PLR0124 - only NaN differs from itself
        return "nan"
    return {float("inf"): "inf", float("-inf"): "-inf"}.get(value, value)
