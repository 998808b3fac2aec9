"""Items as columns, for readers of stac-geoparquet. What does not fit into a column is there as JSON text.

This is a view: an item itself is kept as its JSON. Parquet wants one type a column and no empty structs, and items of
one collection may disagree about both.
"""

from __future__ import annotations

import json
import logging
from typing import TYPE_CHECKING, Any, Final

import pyarrow as pa
from stac_geoparquet.arrow import to_parquet

# Not `parse_stac_items_to_arrow`, which is this and a log of the process's memory: of the 26 ms that an item took to be
# registered, reading /proc for that log took 10 (November 2026).
from stac_geoparquet.arrow._api import stac_items_to_arrow

from dagmaster.geo.datetimes import parse_datetime
from dagmaster.geo.stac_items import item_bbox

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from dagmaster.geo.stac_items import CheckedItem
    from dagmaster.json_types import JsonObject, JsonValue

# It tells the size of every batch, at a level that is for what a user wants to know.
logging.getLogger("stac_geoparquet").setLevel(logging.WARNING)

MOST_COLUMNS: Final = 400
"""Of properties, and of assets. An asset named after its file would make a column for each item."""
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
_MOMENTS: Final = ("datetime", "start_datetime", "end_datetime")


def write_items(known: Sequence[CheckedItem], path: str) -> None:
    """Write items as one file of stac-geoparquet."""
    to_parquet(as_table(known), path, compression="zstd")


def as_table(known: Sequence[CheckedItem]) -> pa.Table:
    """Items as an Arrow table."""
    items = [one.item for one in known]
    # Each way takes more than the one before it, and the last takes all.
    ways: list[Callable[[Sequence[dict[str, Any]]], Sequence[dict[str, Any]]]] = [list, _plain, _cores]
    for simplified in ways:
        try:
            table = pa.Table.from_batches([stac_items_to_arrow(simplified(items))])
        except (pa.ArrowException, TypeError, ValueError, KeyError, AttributeError, OverflowError):
            continue
        if _fits(table.schema):
            return table
    raise AssertionError("items that were checked have id, place and time")


def _plain(items: Sequence[dict[str, Any]]) -> list[dict[str, Any]]:
    """Items whose properties and assets that make no column are JSON text."""
    properties = _columns([item["properties"] for item in items], keep=_MOMENTS)
    assets = _columns([item["assets"] for item in items])
    return [
        {**_core(item), "properties": own | _moments(item), "assets": shown}
        for item, own, shown in zip(items, properties, assets, strict=True)
    ]


def _columns(rows: Sequence[JsonObject], keep: Sequence[str] = ()) -> list[JsonObject]:
    names = sorted({name for row in rows for name in row})
    if len(names) > MOST_COLUMNS:
        return [{name: row[name] for name in keep if name in row} | {"json": json.dumps(row)} for row in rows]
    odd = {name for name in names if name not in keep and not _is_column([row.get(name) for row in rows])}
    return [{name: json.dumps(value) if name in odd else value for name, value in row.items()} for row in rows]


def _is_column(values: Sequence[JsonValue]) -> bool:
    try:
        return _has_type(pa.array(values).type)
    except (pa.ArrowException, TypeError, ValueError, OverflowError):
        return False


def _cores(items: Sequence[JsonObject]) -> list[JsonObject]:
    return [_core(item) for item in items]


def _core(item: dict[str, Any]) -> dict[str, Any]:
    """Who, where and when, and the rest as text."""
    links = [{name: str(link.get(name) or "") for name in ("rel", "href")} for link in item["links"]]
    return {
        "type": "Feature",
        "stac_version": str(item.get("stac_version", "")),
        "stac_extensions": [str(one) for one in item.get("stac_extensions") or []],
        "id": item["id"],
        "collection": item["collection"],
        "geometry": item["geometry"],
        "bbox": [*item_bbox(item)],
        "links": links,
        "properties": {**_moments(item), "json": json.dumps(item["properties"])},
        "assets": {"json": {"href": "", "json": json.dumps(item["assets"])}},
    }


def _moments(item: dict[str, Any]) -> dict[str, str]:
    """Return when it is, in microseconds: Arrow refuses finer ones."""
    times = {name: item["properties"].get(name) for name in _MOMENTS}
    return {name: parse_datetime(text).isoformat() for name, text in times.items() if text is not None}


def _fits(schema: pa.Schema) -> bool:
    """Return whether Parquet takes it. `to_parquet` itself leaves out empty structs at the top."""
    fields = [field for field in schema if not (pa.types.is_struct(field.type) and field.type.num_fields == 0)]
    return len(fields) <= MOST_COLUMNS + len(_TOP_LEVEL) and all(_has_type(field.type) for field in fields)


def _has_type(kind: pa.DataType) -> bool:
    if pa.types.is_struct(kind):
        return 0 < kind.num_fields <= MOST_COLUMNS and all(_has_type(field.type) for field in kind)
    if pa.types.is_list(kind):
        return _has_type(kind.value_type)
    return True
