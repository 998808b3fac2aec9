"""The STAC item of a table of features: where it lies, what it holds, what it was made of, how, by what.

It is made of facts alone: the same table gives the same item, so a retry or a twin registers nothing new.
"""

from __future__ import annotations

from datetime import UTC, datetime
from typing import TYPE_CHECKING, Any, Final

import pyproj

from dagmaster.geo.bounding_boxes import bbox_to_geometry, parse_bbox
from dagmaster.geo.datetimes import format_datetime, normalize_datetime
from dagmaster.geo.stac_items import STAC_VERSION, collection_link
from dagmaster.handlers.provenance import Made, installed, provenance, source_links
from dagmaster.handlers.vector.geometry_cleaning import lon_lat_bounds

if TYPE_CHECKING:
    from dagmaster.authoring.handler_context import HandlerContext
    from dagmaster.ports.tables import TableInfo

EXTENSIONS: Final = (
    "https://stac-extensions.github.io/processing/v1.2.0/schema.json",
    "https://stac-extensions.github.io/projection/v2.0.0/schema.json",
    "https://stac-extensions.github.io/table/v1.2.0/schema.json",
)


def table_item(
    ctx: HandlerContext,
    info: TableInfo,
    *,
    item_id: str,
    collection_id: str,
    title: str | None = None,
    when: str | None = None,
    source: dict[str, Any] | None = None,
) -> dict[str, Any]:
    """The item of a table."""
    source = source or {}
    made = Made.by(ctx, [(source["href"], str(source.get("sha256", "")))] if "href" in source else [])
    bbox = lon_lat_bounds(info.bbox, pyproj.CRS.from_epsg(info.srid))
    columns = [{"name": name, "type": kind} for name, kind in info.columns.items()]
    columns.append({"name": info.geometry_column, "type": info.geometry_type})
    item: dict[str, Any] = {
        "type": "Feature",
        "stac_version": STAC_VERSION,
        "stac_extensions": list(EXTENSIONS),
        "id": item_id,
        "collection": collection_id,
        "geometry": None if bbox is None else bbox_to_geometry(parse_bbox(bbox)),
        "properties": {
            **_moment(when, source.get("modified")),
            **({} if title is None else {"title": title}),
            "proj:code": f"EPSG:{info.srid}",
            "table:columns": columns,
            "table:primary_geometry": info.geometry_column,
            "table:row_count": info.rows,
            **provenance(made, installed("dagmaster", "pyogrio", "shapely", "pyproj")),
        },
        "assets": {
            "data": {
                "href": info.href,
                "title": f"The table {info.name}",
                **({"type": info.media_type} if info.media_type else {}),
                "roles": ["data"],
            }
        },
        "links": [collection_link(collection_id), *source_links(made)],
    }
    if bbox is not None:
        item["bbox"] = bbox
    return item


def _moment(when: str | None, modified: float | None) -> dict[str, Any]:
    if when is not None:
        return {"datetime": normalize_datetime(when)}
    # Not the present moment: a retry would make another item.
    taken = datetime.fromtimestamp(int(modified or 0), UTC)
    return {"datetime": format_datetime(taken), "dagmaster:datetime_assumed": True}
