"""The STAC item of a table of features: where it lies, what it holds, what it was made of, how, by what.

It is made of facts alone: the same table gives the same item, so a retry or a twin registers nothing new.
"""

from __future__ import annotations

import re
from datetime import UTC, datetime
from importlib.metadata import PackageNotFoundError, version
from typing import TYPE_CHECKING, Any, Final

import pyproj

from dagmaster.handlers.vector.fetching import invalid
from dagmaster.handlers.vector.geometries import lon_lat_bounds
from dagmaster.ports.stac import box_geometry, collection_link, read_box, split_box

if TYPE_CHECKING:
    from dagmaster.ports.handler import HandlerContext
    from dagmaster.ports.tables import TableInfo

STAC_VERSION: Final = "1.1.0"
EXTENSIONS: Final = (
    "https://stac-extensions.github.io/processing/v1.2.0/schema.json",
    "https://stac-extensions.github.io/projection/v2.0.0/schema.json",
    "https://stac-extensions.github.io/table/v1.2.0/schema.json",
)
_DIGEST: Final = re.compile(r"[0-9a-f]{64}")


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
    bbox = lon_lat_bounds(info.bbox, pyproj.CRS.from_epsg(info.srid))
    columns = [{"name": name, "type": kind} for name, kind in info.columns.items()]
    columns.append({"name": info.geometry_column, "type": info.geometry_type})
    item: dict[str, Any] = {
        "type": "Feature",
        "stac_version": STAC_VERSION,
        "stac_extensions": list(EXTENSIONS),
        "id": item_id,
        "collection": collection_id,
        "geometry": None if bbox is None else _outline(bbox),
        "properties": {
            **_moment(when, source.get("modified")),
            **({} if title is None else {"title": title}),
            "proj:code": f"EPSG:{info.srid}",
            "table:columns": columns,
            "table:primary_geometry": info.geometry_column,
            "table:row_count": info.rows,
            **_provenance(ctx, source),
        },
        "assets": {
            "data": {
                "href": info.href,
                "title": f"The table {info.name}",
                **({"type": info.media_type} if info.media_type else {}),
                "roles": ["data"],
            }
        },
        "links": [
            collection_link(collection_id),
            *([{"rel": "via", "href": source["href"], "title": "The source"}] if "href" in source else []),
        ],
    }
    if bbox is not None:
        item["bbox"] = bbox
    return item


def table_collection(collection_id: str) -> dict[str, Any]:
    """A collection that says no more than its name, for items that have none yet."""
    return {
        "type": "Collection",
        "stac_version": STAC_VERSION,
        "id": collection_id,
        "title": collection_id,
        "description": f"Tables of features of {collection_id}.",
        "license": "other",
        "extent": {"spatial": {"bbox": [[-180, -90, 180, 90]]}, "temporal": {"interval": [[None, None]]}},
        "links": [],
    }


def _outline(bbox: list[float]) -> dict[str, Any]:
    """A bbox as a footprint. One across the antimeridian is two rectangles: as one it would be everywhere else."""
    parts = [box_geometry(part) for part in split_box(read_box(bbox))]
    if len(parts) == 1:
        return parts[0]
    if any(part["type"] != "Polygon" for part in parts):
        return {"type": "GeometryCollection", "geometries": parts}
    return {"type": "MultiPolygon", "coordinates": [part["coordinates"] for part in parts]}


def _moment(when: str | None, modified: float | None) -> dict[str, Any]:
    if when is not None:
        try:
            read = datetime.fromisoformat(when)
        except ValueError as error:
            raise invalid(f"`when` is {when[:60]!r}: a moment was expected, as 2026-01-31T00:00:00Z") from error
        read = read if read.tzinfo else read.replace(tzinfo=UTC)
        return {"datetime": read.astimezone(UTC).isoformat().replace("+00:00", "Z")}
    # Not the present moment: a retry would make another item.
    taken = datetime.fromtimestamp(int(modified or 0), UTC).isoformat().replace("+00:00", "Z")
    return {"datetime": taken, "dagmaster:datetime_assumed": True}


def _provenance(ctx: HandlerContext, source: dict[str, Any]) -> dict[str, Any]:
    digest = str(source.get("sha256", ""))
    checksum = f"1220{digest}" if _DIGEST.fullmatch(digest) else digest
    said = {
        "processing:software": _software(),
        "dagmaster:handler": ctx.handler and f"{ctx.handler} v{ctx.handler_version}",
        "dagmaster:workflow": ctx.workflow,
        "dagmaster:sources": [{"href": source["href"], "file:checksum": checksum}] if "href" in source else [],
    }
    return {key: value for key, value in said.items() if value}


def _software() -> dict[str, str]:
    found = {}
    for package in ("dagmaster", "pyogrio", "shapely", "pyproj"):
        try:
            found[package] = version(package)
        except PackageNotFoundError:
            continue
    return found
