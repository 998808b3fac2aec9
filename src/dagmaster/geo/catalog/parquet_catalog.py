"""A STAC catalog in a directory: stac-geoparquet for any reader, and an index that DuckDB searches."""

from __future__ import annotations

import json
import re
import time
from datetime import UTC, datetime
from functools import partial
from typing import TYPE_CHECKING, Any, Final, TypeVar

import duckdb
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq
import shapely
import shapely.geometry

from dagmaster.errors import CatalogUnavailable
from dagmaster.geo.catalog.parquet_manifest import Manifest, Part
from dagmaster.geo.rules.bounding_boxes import bbox_to_geometry
from dagmaster.geo.rules.stac_extents import extend_extent
from dagmaster.geo.rules.stac_items import (
    CheckedItem,
    check_collection,
    check_item,
    check_items,
    require_collections,
)
from dagmaster.geo.rules.stac_search import parse_search
from dagmaster.ports.catalog import Registered

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Sequence
    from pathlib import Path

    from dagmaster.geo.rules.stac_search import ParsedSearch
    from dagmaster.json_types import JsonObject, JsonValue
    from dagmaster.ports.catalog import Search

T = TypeVar("T")

_EPOCH: Final = datetime(1970, 1, 1, tzinfo=UTC)

MAX_ROWS: Final = 4096
MAX_BYTES: Final = 32_000_000
"""Limits of a part. Changing an item rewrites its part."""
FAN_IN: Final = 8
"""The number of parts of similar size that are merged: a catalog of 20,000 items has at most a few dozen
parts."""
PAGE_ROWS: Final = 500
FIRST_PAGE_SLACK: Final = 100
READ_ATTEMPTS: Final = 10

_SCHEMA: Final = pa.schema(
    [
        ("collection", pa.string()),
        ("id", pa.string()),
        ("begins", pa.int64()),
        ("ends", pa.int64()),
        ("west", pa.float64()),
        ("south", pa.float64()),
        ("east", pa.float64()),
        ("north", pa.float64()),
        ("geometry", pa.binary()),
        ("digest", pa.string()),
        ("item", pa.string()),
    ]
)
"""Times are microseconds since 1970: DuckDB needs no extension to compare them."""


class ParquetCatalog:
    """A catalog below `root`, which may be new and must support file locks."""

    def __init__(self, root: Path) -> None:
        self._manifest = Manifest(root)
        # No extension is downloaded, and a search uses one core.
        self._duckdb = duckdb.connect(
            config={"autoinstall_known_extensions": False, "autoload_known_extensions": False, "threads": 1}
        )

    # ── collections ─────────────────────────────────────────────────────────────────────────────────────────

    def ensure_collection(self, collection: JsonObject) -> bool:
        """Create its file, unless it exists."""
        text = check_collection(collection)
        name = str(collection["id"])
        if self.collection(name) is not None:
            return False
        with self._manifest.lock_for_writing():
            if self.collection(name) is not None:
                return False
            self._manifest.write_collection(collection, text)
            return True

    def collection(self, collection_id: str) -> JsonObject | None:
        return self._read_collection(self._manifest.collection_path(collection_id))

    def collections(self) -> list[JsonObject]:
        documents = [self._read_collection(path) for path in self._manifest.collections.glob("*.json")]
        collections = [document for document in documents if document is not None]
        return sorted(collections, key=lambda collection: str(collection["id"]))

    def counts(self) -> dict[str, int]:
        rows = self._fetch("SELECT collection, count(*) FROM {parts} GROUP BY 1 ORDER BY 1", [])
        return {str(collection): int(count) for collection, count in rows}

    # ── items ───────────────────────────────────────────────────────────────────────────────────────────────

    def register(self, items: Sequence[JsonObject]) -> Registered:
        """Write new and changed items as one part; copy the parts of changed items without them."""
        checked = check_items(items)
        if not checked:
            return Registered()
        with self._manifest.lock_for_writing() as parts:
            self._extend_collections(checked)
            existing = self._find(parts, [item.key for item in checked])
            new = [item for item in checked if item.key not in existing]
            changed = [
                item for item in checked if item.key in existing and existing[item.key][0] != item.digest
            ]
            if new or changed:
                changed_keys = {item.key for item in changed}
                kept, replaced = self._rewrite_without(
                    parts, changed_keys, {existing[key][1] for key in changed_keys}
                )
                self._merge(self._commit(kept, replaced, new + changed))
        return Registered(
            created=len(new), updated=len(changed), unchanged=len(checked) - len(new) - len(changed)
        )

    def item(self, collection_id: str, item_id: str) -> dict[str, Any] | None:
        rows = self._fetch(
            "SELECT item FROM {parts} WHERE id = ? AND collection = ?", [item_id, collection_id]
        )
        return json.loads(rows[0][0]) if rows else None

    def search(self, query: Search) -> list[dict[str, Any]]:
        """Select rows by their bounds, in order, then test the geometries."""
        parsed = parse_search(query)
        return [json.loads(text) for text in self._read_with_retry(lambda parts: self._search(parts, parsed))]

    def items(self, collection_id: str) -> Iterator[dict[str, Any]]:
        """Yield items page by page. Items registered meanwhile may be included."""
        last = ""
        while True:
            page = self._fetch(
                "SELECT id, item FROM {parts} WHERE collection = ? AND id > ? ORDER BY id LIMIT ?",
                [collection_id, last, PAGE_ROWS],
            )
            yield from (json.loads(text) for _, text in page)
            if len(page) < PAGE_ROWS:
                return
            last = page[-1][0]

    def remove(self, collection_id: str, item_ids: Sequence[str]) -> int:
        """Remove items by copying their parts without them."""
        with self._manifest.lock_for_writing() as parts:
            existing = self._find(parts, [(collection_id, item_id) for item_id in dict.fromkeys(item_ids)])
            if existing:
                kept, replaced = self._rewrite_without(
                    parts, set(existing), {part for _, part in existing.values()}
                )
                self._commit(kept, replaced, [])
        return len(existing)

    # ── reading ─────────────────────────────────────────────────────────────────────────────────────────────

    def _search(self, parts: Sequence[Part], parsed: ParsedSearch) -> list[str]:
        where, values = _conditions(parsed)
        # An item whose bounds are inside the box needs no geometry test.
        inside = (
            " OR ".join("(west >= ? AND south >= ? AND east <= ? AND north <= ?)" for _ in parsed.boxes)
            or "true"
        )
        query = (
            f"SELECT CASE WHEN {inside} THEN NULL ELSE geometry END, item"  # noqa: S608 - constant text
            f" FROM {{parts}} WHERE {where}"
            " ORDER BY begins DESC, id, collection"
        )
        values = [*(edge for box in parsed.boxes for edge in box), *values]
        if not parsed.boxes:
            return [
                text for _, text in self._query(parts, f"{query} LIMIT ?", [*values, parsed.limit]).fetchall()
            ]
        shape = shapely.union_all([shapely.geometry.shape(bbox_to_geometry(box)) for box in parsed.boxes])
        shapely.prepare(shape)
        # Most often the first rows are enough: to find the first 300 of 20,000 takes 13 ms of CPU, to sort
        # them all 40 (November 2026).
        page_size = 2 * parsed.limit + FIRST_PAGE_SLACK
        page = self._query(parts, f"{query} LIMIT ?", [*values, page_size]).fetchall()
        items = _filter_intersecting(shape, page)
        if len(items) < parsed.limit and len(page) == page_size:
            items = []
            rows = self._query(parts, query, values)
            while len(items) < parsed.limit and (page := rows.fetchmany(PAGE_ROWS)):
                items += _filter_intersecting(shape, page)
        return items[: parsed.limit]

    def _find(
        self, parts: Sequence[Part], keys: Sequence[tuple[str, str]]
    ) -> dict[tuple[str, str], tuple[str, str]]:
        """Return the digest and part of those that exist."""
        key_set = set(keys)
        rows = self._query(
            parts,
            "SELECT collection, id, digest, filename FROM {parts} WHERE id IN (SELECT unnest(?))",
            [list(dict.fromkeys(item_id for _, item_id in keys))],
        ).fetchall()
        return {
            (collection, item_id): (digest, file.rpartition("/")[2])
            for collection, item_id, digest, file in rows
            if (collection, item_id) in key_set
        }

    def _fetch(self, query: str, values: list[Any]) -> list[tuple[Any, ...]]:
        return self._read_with_retry(lambda parts: self._query(parts, query, values).fetchall())

    def _read_with_retry(self, read: Callable[[Sequence[Part]], list[T]]) -> list[T]:
        """Query the current parts. A missing part was merged into another: retry with the newer manifest."""
        for attempt in range(READ_ATTEMPTS):
            parts = self._manifest.current()
            try:
                return read(parts) if parts else []
            except duckdb.Error as error:
                if self._manifest.current() == parts or attempt == READ_ATTEMPTS - 1:
                    raise CatalogUnavailable(
                        f"the catalog in {self._manifest.root} cannot be read: {error}"
                    ) from error
                time.sleep(0.01 * attempt)
        raise AssertionError

    def _query(self, parts: Sequence[Part], query: str, values: list[JsonValue]) -> duckdb.DuckDBPyConnection:
        if not parts:
            parts_table = (
                "(SELECT * FROM (SELECT NULL collection, NULL id, NULL digest, NULL filename) WHERE false)"
            )
            return self._duckdb.cursor().execute(query.format(parts=parts_table), values)
        files = ", ".join(_quote_path(str(self._manifest.index / part.name)) for part in parts)
        return self._duckdb.cursor().execute(
            query.format(parts=f"read_parquet([{files}], filename = true, hive_partitioning = false)"), values
        )

    # ── writing ─────────────────────────────────────────────────────────────────────────────────────────────

    def _commit(self, kept: list[Part], replaced: Sequence[Part], new: Sequence[CheckedItem]) -> list[Part]:
        parts = [*kept, *(self._write(kept, chunk) for chunk in _chunks(new))]
        self._manifest.commit(parts, replaced)
        return parts

    def _write(self, parts: Sequence[Part], items: Sequence[CheckedItem]) -> Part:
        # Two thirds of this module's import time, and a search needs none of it.
        from dagmaster.geo.catalog.stac_parquet import write_items

        newest_first = sorted(items, key=lambda item: (-_micros(item.start), item.id))
        name = self._manifest.new_name(parts)
        self._manifest.write(self._manifest.items / name, partial(write_items, newest_first))
        self._manifest.write(self._manifest.index / name, partial(_write_table, _index_table(newest_first)))
        return Part(name=name, rows=len(items), size=sum(len(item.text) for item in items))

    def _rewrite_without(
        self, parts: Sequence[Part], keys: set[tuple[str, str]], names: set[str]
    ) -> tuple[list[Part], list[Part]]:
        """Return the parts, the named ones replaced by copies without these items, and the replaced ones."""
        kept = [part for part in parts if part.name not in names]
        replaced = [part for part in parts if part.name in names]
        for part in replaced:
            index = pq.read_table(self._manifest.index / part.name, schema=_SCHEMA)
            pairs = zip(index["collection"].to_pylist(), index["id"].to_pylist(), strict=True)
            stays = pa.array([pair not in keys for pair in pairs])
            rest = index.filter(stays)
            if rest.num_rows:
                name = self._manifest.new_name(parts)
                items = pq.read_table(self._manifest.items / part.name, partitioning=None).filter(stays)
                self._manifest.write(self._manifest.items / name, partial(_write_table, items))
                self._manifest.write(self._manifest.index / name, partial(_write_table, rest))
                size = int(pc.sum(pc.utf8_length(rest["item"])).as_py())
                kept.append(Part(name=name, rows=rest.num_rows, size=size))
        return kept, replaced

    def _merge(self, parts: list[Part]) -> None:
        """Merge small parts into one. Nothing changes before the commit."""
        levels: dict[int, list[Part]] = {}
        for part in parts:
            if part.rows < MAX_ROWS // 2 and part.size < MAX_BYTES // 2:
                levels.setdefault(part.rows.bit_length() // 3, []).append(part)
        for level in sorted(levels):
            small = levels[level]
            if len(small) >= FAN_IN:
                texts = [
                    text
                    for part in small
                    for text in pq.read_table(self._manifest.index / part.name, columns=["item"])[
                        "item"
                    ].to_pylist()
                ]
                others = [part for part in parts if part not in small]
                self._commit(others, small, [check_item(json.loads(text)) for text in texts])
                return

    def _extend_collections(self, items: Sequence[CheckedItem]) -> None:
        """Extend collection extents before the commit: after a crash one is too large, never too small."""
        collections = {name: self.collection(name) for name in sorted({item.collection for item in items})}
        existing = {name: collection for name, collection in collections.items() if collection is not None}
        require_collections(collections, existing)
        for collection in existing.values():
            extended = extend_extent(collection, items)
            if extended is not collection:
                self._manifest.write_collection(extended, check_collection(extended))

    def _read_collection(self, path: Path) -> JsonObject | None:
        try:
            collection: JsonObject = json.loads(path.read_bytes())
        except FileNotFoundError:
            return None
        except (OSError, ValueError) as error:
            raise CatalogUnavailable(f"{path} cannot be read: {error}") from error
        return collection


def _filter_intersecting(shape: Any, rows: Sequence[tuple[Any, ...]]) -> list[str]:
    """Return the items whose geometry intersects a shape; a missing geometry was inside the box."""
    intersects = shapely.intersects(shape, shapely.from_wkb([wkb for wkb, _ in rows])) if rows else []
    return [text for (wkb, text), is_hit in zip(rows, intersects, strict=True) if wkb is None or is_hit]


def _conditions(parsed: ParsedSearch) -> tuple[str, list[JsonValue]]:
    where = ["true"]
    values: list[JsonValue] = []
    for column, names in (("collection", parsed.collections), ("id", parsed.ids)):
        if names:
            where.append(f"{column} IN (SELECT unnest(?))")
            values.append(list(names))
    if parsed.start is not None:
        where.append("ends >= ?")
        values.append(_micros(parsed.start))
    if parsed.end is not None:
        where.append("begins <= ?")
        values.append(_micros(parsed.end))
    if parsed.boxes:
        overlaps = "(east >= ? AND north >= ? AND west <= ? AND south <= ?)"
        where.append(f"({' OR '.join(overlaps for _ in parsed.boxes)})")
        values += [edge for box in parsed.boxes for edge in box]
    return " AND ".join(where), values


def _index_table(items: Sequence[CheckedItem]) -> pa.Table:
    rows = [
        {
            "collection": item.collection,
            "id": item.id,
            "begins": _micros(item.start),
            "ends": _micros(item.end),
            **_place(item),
            "digest": item.digest,
            "item": item.text,
        }
        for item in items
    ]
    return pa.Table.from_pylist(rows, schema=_SCHEMA)


def _place(item: CheckedItem) -> dict[str, Any]:
    """Return the columns that a search by place compares: none for an item off the Earth."""
    if item.bounds is None:
        return {}
    sides = dict(zip(("west", "south", "east", "north"), item.bounds, strict=True))
    return {**sides, "geometry": shapely.to_wkb(shapely.geometry.shape(item.item["geometry"]))}


def _write_table(rows: pa.Table, path: str) -> None:
    pq.write_table(rows, path, compression="zstd", row_group_size=1024)


def _chunks(items: Sequence[CheckedItem]) -> Iterator[list[CheckedItem]]:
    """Split items into chunks bounded by rows and bytes."""
    chunk: list[CheckedItem] = []
    size = 0
    for item in items:
        if chunk and (len(chunk) >= MAX_ROWS or size + len(item.text) > MAX_BYTES):
            yield chunk
            chunk, size = [], 0
        chunk.append(item)
        size += len(item.text)
    if chunk:
        yield chunk


def _micros(instant: datetime) -> int:
    # Not timestamp(): that is a float, and loses microseconds.
    since = instant - _EPOCH
    return (since.days * 86_400 + since.seconds) * 1_000_000 + since.microseconds


def _quote_path(text: str) -> str:
    """Quote a path for DuckDB, with wildcards escaped."""
    plain = re.sub(r"([*?\[])", r"[\1]", text)
    return "'" + plain.replace("'", "''") + "'"
