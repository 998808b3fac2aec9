"""Items as stac-geoparquet, for other readers. Values that fit no column are JSON text.

A lossy view: the exact JSON of an item is in the index. Parquet needs one type per column and no empty
structs, and items of one collection may violate both.
"""

from __future__ import annotations

import json
import logging
import math
from typing import TYPE_CHECKING, Any, Final

import pyarrow as pa
from stac_geoparquet.arrow import to_parquet

# Not `parse_stac_items_to_arrow`, which also logs the memory of the process: of 26 ms to register an item,
# reading /proc for that log took 10 (November 2026).
from stac_geoparquet.arrow._api import stac_items_to_arrow

from dagmaster.geo.rules.datetimes import parse_datetime
from dagmaster.geo.rules.stac_items import item_bbox

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from dagmaster.geo.rules.stac_items import CheckedItem
    from dagmaster.json_types import JsonObject, JsonValue

# It logs the size of every batch at INFO.
logging.getLogger("stac_geoparquet").setLevel(logging.WARNING)

MAX_COLUMNS: Final = 400
"""The limit for properties and for assets. Assets named after their files would add a column per item."""
_TOP_LEVEL: Final = (
    "type",
    "stac_version",
    "id",
    "geometry",
    "bbox",
    "links",
    "assets",
    "stac_extensions",
    "collection",
)
_DATETIME_KEYS: Final = ("datetime", "start_datetime", "end_datetime")


_NOWHERE: Final[dict[str, Any]] = {
    "geometry": {"type": "GeometryCollection", "geometries": []},
    "bbox": [math.nan] * 4,
}
"""In place of a missing geometry, which stac-geoparquet does not take."""


def write_items(checked: Sequence[CheckedItem], path: str) -> None:
    to_parquet(build_table(checked), path, compression="zstd")


def build_table(checked: Sequence[CheckedItem]) -> pa.Table:
    """Build an Arrow table of items, simplified as far as needed."""
    items = [item.item if item.bounds is not None else {**item.item, **_NOWHERE} for item in checked]
    # Each strategy accepts more items than the one before, and the last accepts all.
    strategies: list[Callable[[Sequence[dict[str, Any]]], Sequence[dict[str, Any]]]] = [
        list,
        _simplify,
        _reduce_all,
    ]
    for simplify in strategies:
        try:
            table = pa.Table.from_batches([stac_items_to_arrow(simplify(items))])
        except (pa.ArrowException, TypeError, ValueError, KeyError, AttributeError, OverflowError):
            continue
        if _fits(table.schema):
            return table
    raise AssertionError("checked items have an id, a geometry and a datetime")


def _simplify(items: Sequence[dict[str, Any]]) -> list[dict[str, Any]]:
    """Convert properties and assets that fit no column to JSON text."""
    properties = _columns([item["properties"] for item in items], keep=_DATETIME_KEYS)
    assets = _columns([item["assets"] for item in items])
    return [
        {**_reduce(item), "properties": item_properties | _datetimes(item), "assets": item_assets}
        for item, item_properties, item_assets in zip(items, properties, assets, strict=True)
    ]


def _columns(rows: Sequence[JsonObject], keep: Sequence[str] = ()) -> list[JsonObject]:
    names = sorted({name for row in rows for name in row})
    if len(names) > MAX_COLUMNS:
        return [{name: row[name] for name in keep if name in row} | {"json": json.dumps(row)} for row in rows]
    unsupported = {
        name for name in names if name not in keep and not _is_column([row.get(name) for row in rows])
    }
    return [
        {name: json.dumps(value) if name in unsupported else value for name, value in row.items()}
        for row in rows
    ]


def _is_column(values: Sequence[JsonValue]) -> bool:
    try:
        return _has_type(pa.array(values).type)
    except (pa.ArrowException, TypeError, ValueError, OverflowError):
        return False


def _reduce_all(items: Sequence[JsonObject]) -> list[JsonObject]:
    return [_reduce(item) for item in items]


def _reduce(item: dict[str, Any]) -> dict[str, Any]:
    """Keep id, geometry, datetimes and links; convert the rest to JSON text."""
    links = [{name: str(link.get(name) or "") for name in ("rel", "href")} for link in item["links"]]
    return {
        "type": "Feature",
        "stac_version": str(item.get("stac_version", "")),
        "stac_extensions": [str(extension) for extension in item.get("stac_extensions") or []],
        "id": item["id"],
        "collection": item["collection"],
        "geometry": item["geometry"],
        "bbox": item["bbox"] if item["geometry"] == _NOWHERE["geometry"] else [*item_bbox(item)],
        "links": links,
        "properties": {**_datetimes(item), "json": json.dumps(item["properties"])},
        "assets": {"json": {"href": "", "json": json.dumps(item["assets"])}},
    }


def _datetimes(item: dict[str, Any]) -> dict[str, str]:
    """Return the datetimes in microseconds: Arrow rejects a finer resolution."""
    times = {name: item["properties"].get(name) for name in _DATETIME_KEYS}
    return {name: parse_datetime(text).isoformat() for name, text in times.items() if text is not None}


def _fits(schema: pa.Schema) -> bool:
    """Return whether Parquet can store a schema. `to_parquet` omits empty structs at the top level itself."""
    fields = [
        field for field in schema if not (pa.types.is_struct(field.type) and field.type.num_fields == 0)
    ]
    return len(fields) <= MAX_COLUMNS + len(_TOP_LEVEL) and all(_has_type(field.type) for field in fields)


def _has_type(arrow_type: pa.DataType) -> bool:
    if pa.types.is_struct(arrow_type):
        return 0 < arrow_type.num_fields <= MAX_COLUMNS and all(_has_type(field.type) for field in arrow_type)
    if pa.types.is_list(arrow_type):
        return _has_type(arrow_type.value_type)
    return True
