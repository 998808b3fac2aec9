"""Build the STAC item of a table of features.

Only facts go in: the same table gives the same item, so registering it again is idempotent.
"""

from __future__ import annotations

from datetime import UTC, datetime
from typing import TYPE_CHECKING, Any, Final

import pyproj

from dagmaster.geo.provenance import Provenance, installed_versions, provenance_properties, source_links
from dagmaster.geo.rules.bounding_boxes import bbox_to_geometry, parse_bbox
from dagmaster.geo.rules.datetimes import format_datetime, normalize_datetime
from dagmaster.geo.rules.stac_items import (
    PROJECTION_EXTENSION,
    STAC_VERSION,
    collection_link,
    projection_code,
)
from dagmaster.geo.vector.reprojection import lon_lat_bounds

if TYPE_CHECKING:
    from dagmaster.ports.tables import TableInfo
    from dagmaster.sdk.handler_context import HandlerContext

EXTENSIONS: Final = (
    "https://stac-extensions.github.io/processing/v1.2.0/schema.json",
    PROJECTION_EXTENSION,
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
    source = source or {}
    provenance = Provenance.of_task(
        ctx, [(source["href"], str(source.get("sha256", "")))] if "href" in source else []
    )
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
            **_datetime_properties(when, source.get("modified")),
            **({} if title is None else {"title": title}),
            **projection_code(info.srid),
            "table:columns": columns,
            "table:primary_geometry": info.geometry_column,
            "table:row_count": info.rows,
            **provenance_properties(
                provenance, installed_versions("dagmaster", "pyogrio", "shapely", "pyproj")
            ),
        },
        "assets": {
            "data": {
                "href": info.href,
                "title": f"The table {info.name}",
                **({"type": info.media_type} if info.media_type else {}),
                "roles": ["data"],
            }
        },
        "links": [collection_link(collection_id), *source_links(provenance)],
    }
    if bbox is not None:
        item["bbox"] = bbox
    return item


def _datetime_properties(stated: str | None, modified: float | None) -> dict[str, Any]:
    if stated is not None:
        return {"datetime": normalize_datetime(stated)}
    # Not the current time: a retry would build a different item.
    assumed = datetime.fromtimestamp(int(modified or 0), UTC)
    return {"datetime": format_datetime(assumed), "dagmaster:datetime_assumed": True}
