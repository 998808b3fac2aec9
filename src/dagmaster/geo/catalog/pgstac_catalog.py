"""A STAC catalog on a server: pgstac with PostGIS. Other tools read it through pgstac's APIs.

pgstac drops nulls and rewrites coordinates. An item that would not be read back exactly is also kept as text
in pgstac's `private` column. Only `migrate` changes the schema, and only `dagmaster stac init` calls it.
"""

from __future__ import annotations

import contextlib
import json
import random
import threading
import time
from typing import TYPE_CHECKING, Any, Final, TypeVar

import psycopg
from psycopg import errors
from psycopg.conninfo import conninfo_to_dict

from dagmaster.errors import CatalogUnavailable, PermanentError, invalid_input
from dagmaster.geo.rules.bounding_boxes import bbox_to_geometry
from dagmaster.geo.rules.stac_extents import extend_extent
from dagmaster.geo.rules.stac_items import check_collection, check_items, encode_document, require_collections
from dagmaster.geo.rules.stac_search import parse_search
from dagmaster.ports.catalog import Registered

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Sequence

    from dagmaster.geo.rules.stac_items import CheckedItem
    from dagmaster.geo.rules.stac_search import ParsedSearch
    from dagmaster.json_types import JsonObject, JsonValue
    from dagmaster.ports.catalog import Search

T = TypeVar("T")
Cursor = psycopg.Cursor[tuple[Any, ...]]

PAGE_ROWS: Final = 500
ATTEMPTS: Final = 5
CONNECT_SECONDS: Final = 10
_MIGRATION_LOCK: Final = 0x5_7AC_1917
"""The advisory lock of a migration."""
_PARTITION_LOCK: Final = _MIGRATION_LOCK + 1
"""The advisory lock of a transaction that creates a partition."""

_RETRYABLE: Final = (errors.DeadlockDetected, errors.SerializationFailure, errors.LockNotAvailable)
_SCHEMA_MISSING: Final = (
    errors.UndefinedTable,
    errors.InvalidSchemaName,
    errors.UndefinedFunction,
    errors.UndefinedColumn,
)
_INVALID_INPUT: Final = (errors.DataError, errors.IntegrityError, errors.RaiseException)

# pgstac's functions refer to each other without a schema. LOCAL: behind a pooler the session may change.
_SET_SEARCH_PATH: Final = "SET LOCAL search_path TO pgstac, public"
_ITEM_COLUMNS: Final = (
    "i.private->>'dagmaster:item', CASE WHEN i.private ? 'dagmaster:item' THEN NULL"
    " ELSE content_hydrate(i)::text END"
)
_LOCK_COLLECTIONS: Final = (
    "SELECT id, to_regclass('pgstac._items_' || key) IS NOT NULL, content::text FROM collections WHERE id ="
    " ANY(%s)"
    " ORDER BY id FOR NO KEY UPDATE"
)
_UPDATE_EXTENT: Final = (
    "UPDATE collections SET content = content || jsonb_build_object('extent', %s::jsonb) WHERE id = %s"
)
_SELECT_ITEMS: Final = (
    f"SELECT i.collection, i.id, {_ITEM_COLUMNS}"  # noqa: S608 - constant text
    " FROM unnest(%s::text[], %s::text[]) AS w(collection, id)"
    " JOIN items i ON i.collection = w.collection AND i.id = w.id"
)
_STORE_TEXT: Final = (
    "UPDATE items i SET private = coalesce(i.private, '{}') || jsonb_build_object('dagmaster:item', w.item)"
    " FROM unnest(%s::text[], %s::text[], %s::text[]) AS w(collection, id, item)"
    " WHERE i.collection = w.collection AND i.id = w.id"
)


class PgstacCatalog:
    """A catalog in PostgreSQL. `url` may contain a password, which no error shows."""

    def __init__(self, url: str) -> None:
        self._url = url
        self._connection: psycopg.Connection[tuple[Any, ...]] | None = None
        self._lock = threading.RLock()

    def close(self) -> None:
        """Close the connection; the next query opens another."""
        with self._lock:
            if self._connection is not None:
                self._connection.close()
                self._connection = None

    def __del__(self) -> None:
        with contextlib.suppress(Exception):
            self.close()

    # ── collections ─────────────────────────────────────────────────────────────────────────────────────────

    def ensure_collection(self, collection: JsonObject) -> bool:
        text = check_collection(collection)
        query = (
            "INSERT INTO collections (content) VALUES (%s::jsonb) ON CONFLICT (id) DO NOTHING RETURNING id"
        )
        return bool(self._fetch(query, [text]))

    def collection(self, collection_id: str) -> JsonObject | None:
        rows = self._fetch(
            "SELECT content::text FROM collections WHERE id = %s", [_replace_nul(collection_id)]
        )
        return json.loads(rows[0][0]) if rows else None

    def collections(self) -> list[JsonObject]:
        return [
            json.loads(row[0])
            for row in self._fetch('SELECT content::text FROM collections ORDER BY id COLLATE "C"')
        ]

    def counts(self) -> dict[str, int]:
        rows = self._fetch(
            'SELECT collection, count(*) FROM items GROUP BY 1 ORDER BY collection COLLATE "C"'
        )
        return {str(collection): int(count) for collection, count in rows}

    # ── items ───────────────────────────────────────────────────────────────────────────────────────────────

    def register(self, items: Sequence[JsonObject]) -> Registered:
        """Register items in one transaction that locks the collections."""
        checked = check_items(items)
        return self._run_transaction(lambda cursor: _register(cursor, checked)) if checked else Registered()

    def item(self, collection_id: str, item_id: str) -> JsonObject | None:
        rows = self._fetch(_SELECT_ITEMS, [[_replace_nul(collection_id)], [_replace_nul(item_id)]])
        return _decode_item(rows[0][2:]) if rows else None

    def search(self, search_request: Search) -> list[JsonObject]:
        """Search in one statement, in an order independent of the server's locale."""
        condition, values = _conditions(parsed := parse_search(search_request))
        query = (
            f"SELECT {_ITEM_COLUMNS} FROM items i WHERE {condition}"  # noqa: S608 - constant text
            ' ORDER BY i.datetime DESC, i.id COLLATE "C", i.collection COLLATE "C" LIMIT %s'
        )
        return [_decode_item(row) for row in self._fetch(query, [*values, parsed.limit])]

    def items(self, collection_id: str) -> Iterator[JsonObject]:
        """Yield items page by page, from a snapshot of the ids. Items removed meanwhile are left out."""
        ids = sorted(
            row[0]
            for row in self._fetch(
                "SELECT id FROM items WHERE collection = %s", [_replace_nul(collection_id)]
            )
        )
        for begin in range(0, len(ids), PAGE_ROWS):
            page = ids[begin : begin + PAGE_ROWS]
            rows = self._fetch(_SELECT_ITEMS, [[collection_id] * len(page), page])
            rows_by_id = {row[1]: row[2:] for row in rows}
            yield from (_decode_item(rows_by_id[item_id]) for item_id in page if item_id in rows_by_id)

    def remove(self, collection_id: str, item_ids: Sequence[str]) -> int:
        query = "DELETE FROM items WHERE collection = %s AND id = ANY(%s) RETURNING id"
        return len(
            self._fetch(query, [_replace_nul(collection_id), [_replace_nul(item_id) for item_id in item_ids]])
        )

    # ── the connection ──────────────────────────────────────────────────────────────────────────────────────

    def _fetch(self, query: str, values: Sequence[Any] = ()) -> list[tuple[Any, ...]]:
        return self._run_transaction(lambda cursor: cursor.execute(query, values).fetchall())

    def _run_transaction(self, work: Callable[[Cursor], T]) -> T:
        """Run work in one transaction; retry idempotent work after a lost connection."""
        with self._lock:
            for attempt in range(1, ATTEMPTS + 1):
                was_open = self._connection is not None
                try:
                    connection = self._connect()
                    with connection.transaction(), connection.cursor() as cursor:
                        cursor.execute(_SET_SEARCH_PATH)
                        return work(cursor)
                except psycopg.Error as error:
                    is_lost = self._connection is None or self._connection.broken or self._connection.closed
                    if is_lost:
                        self.close()
                    # The server may have closed an idle connection; an error of a new one is real.
                    if attempt == ATTEMPTS or not ((is_lost and was_open) or _is_transient(error)):
                        raise translate_error(self._url, error) from None
                    time.sleep(random.uniform(0, 0.02) * attempt)  # noqa: S311 - not to collide again
        raise AssertionError

    def _connect(self) -> psycopg.Connection[tuple[Any, ...]]:
        if self._connection is None:
            # No prepared statements: there may be a pooler.
            self._connection = psycopg.connect(
                self._url,
                autocommit=True,
                prepare_threshold=None,
                connect_timeout=CONNECT_SECONDS,
                application_name="dagmaster",
            )
        return self._connection


def _is_transient(error: psycopg.Error) -> bool:
    """Return whether the error is transient: a deadlock, or a partition that one left uncreated."""
    return isinstance(error, _RETRYABLE) or (
        isinstance(error, errors.UndefinedTable) and '"_items_' in str(error)
    )


def migrate(url: str) -> str:
    """Migrate the database's pgstac to the installed version; return the version."""
    from pypgstac.db import PgstacDB
    from pypgstac.migrate import Migrate

    try:
        with psycopg.connect(url, autocommit=True, connect_timeout=CONNECT_SECONDS) as connection:
            connection.execute("SELECT pg_advisory_lock(%s)", [_MIGRATION_LOCK])
            database = PgstacDB(dsn=url)
            try:
                return str(Migrate(database).run_migration())
            finally:
                pool = database.pool
                database.disconnect()
                if pool is not None:
                    pool.close()
    except psycopg.Error as error:
        raise translate_error(url, error) from None


def translate_error(url: str, error: psycopg.Error) -> PermanentError | CatalogUnavailable:
    """Translate an error of the driver, without the password."""
    try:
        parts = conninfo_to_dict(url)
    except psycopg.Error:
        parts = {"host": "@"}
    if "@" in str(parts.get("host", "")):
        # The driver's message may contain a part of the password.
        return CatalogUnavailable(
            "DAGMASTER_CATALOG_URL is not a PostgreSQL URL: write"
            " postgresql://user:password@host:5432/database,"
            " with special characters of the password escaped (%40 for @)"
        )
    address = f"{parts.get('host', 'localhost')}:{parts.get('port', 5432)}/{parts.get('dbname', '')}"
    reason = (str(error).strip().splitlines() or [type(error).__name__])[0]
    password = parts.get("password")
    if password:
        reason = reason.replace(str(password), "***")
    if isinstance(error, _SCHEMA_MISSING):
        return CatalogUnavailable(
            f"the database {address} has no pgstac, or an old one ({reason}): run dagmaster stac init"
        )
    if isinstance(error, _INVALID_INPUT):
        return invalid_input(f"pgstac rejected the request: {reason}")
    return CatalogUnavailable(f"the catalog on {address} is unavailable: {reason}")


def _register(cursor: Cursor, items: Sequence[CheckedItem]) -> Registered:
    names = sorted({item.collection for item in items})
    rows = cursor.execute(_LOCK_COLLECTIONS, [names]).fetchall()
    has_partition: dict[str, bool] = {name: has_items for name, has_items, _ in rows}
    require_collections(names, has_partition)
    if not all(has_partition.values()):
        # The first item of a collection creates its partition, which locks all items. Two such transactions
        # that have read items deadlock, and pgstac does not report that PostgreSQL aborted the creation.
        cursor.execute("SELECT pg_advisory_xact_lock(%s)", [_PARTITION_LOCK])
    digests = _digests(cursor, items)
    new_items = [item for item in items if item.key not in digests]
    changed = [item for item in items if item.key in digests and digests[item.key] != item.digest]
    written = [*new_items, *changed]
    if written:
        cursor.execute("SELECT upsert_items(%s::jsonb)", [f"[{','.join(map(_pgstac_text, written))}]"])
        _store_exact_text(cursor, written)
    for name, _, content in rows:
        collection = json.loads(content)
        extended = extend_extent(collection, items)
        if extended is not collection:
            extent = json.dumps(extended["extent"])
            cursor.execute(_UPDATE_EXTENT, [extent, name])
    return Registered(created=len(new_items), updated=len(changed), unchanged=len(items) - len(written))


def _pgstac_text(item: CheckedItem) -> str:
    """Return an item as pgstac takes it: with a geometry, which is empty off the Earth."""
    if item.bounds is not None:
        return item.text
    return json.dumps({**item.item, "geometry": {"type": "GeometryCollection", "geometries": []}})


def _store_exact_text(cursor: Cursor, written: Sequence[CheckedItem]) -> None:
    stored_digests = _digests(cursor, written)
    missing = [item for item in written if item.key not in stored_digests]
    if missing:
        raise CatalogUnavailable(
            f"pgstac did not store the item {missing[0].id!r} of {missing[0].collection!r}"
        )
    changed = [item for item in written if stored_digests[item.key] != item.digest]
    if changed:
        texts = [item.text for item in changed]
        cursor.execute(
            _STORE_TEXT, [[item.collection for item in changed], [item.id for item in changed], texts]
        )


def _digests(cursor: Cursor, items: Sequence[CheckedItem]) -> dict[tuple[str, str], str]:
    rows = cursor.execute(
        _SELECT_ITEMS, [[item.collection for item in items], [item.id for item in items]]
    ).fetchall()
    return {
        (row[0], row[1]): encode_document(_decode_item(row[2:]), f"the item {row[1]!r}")[1] for row in rows
    }


def _conditions(parsed: ParsedSearch) -> tuple[str, list[JsonValue]]:
    where = ["true"]
    values: list[Any] = []
    for column, names in (("collection", parsed.collections), ("id", parsed.ids)):
        if names:
            where.append(f"i.{column} = ANY(%s)")
            values.append(list(names))
    if parsed.start is not None:
        where.append("i.end_datetime >= %s")
        values.append(parsed.start)
    if parsed.end is not None:
        where.append("i.datetime <= %s")
        values.append(parsed.end)
    if parsed.boxes:
        where.append(
            f"({' OR '.join('ST_Intersects(i.geometry, ST_GeomFromGeoJSON(%s))' for _ in parsed.boxes)})"
        )
        values += [json.dumps(bbox_to_geometry(box)) for box in parsed.boxes]
    return " AND ".join(where), values


def _decode_item(row: Sequence[Any]) -> dict[str, Any]:
    """Decode the exact text if stored, else what pgstac stored."""
    exact_text, hydrated = row
    item: JsonObject = json.loads(hydrated if exact_text is None else exact_text)
    return item


def _replace_nul(text: str) -> str:
    """Replace NUL, which no id has and PostgreSQL rejects."""
    return text.replace("\x00", "\ufffd")
