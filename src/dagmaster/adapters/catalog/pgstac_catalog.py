"""A STAC catalog on a server: pgstac with PostGIS. Other tools read it through pgstac's APIs.

pgstac drops nulls and rewrites coordinates. An item that would not be read back exactly is also kept as text in
pgstac's `private` column. Only `migrate` changes the schema, and only `dagmaster stac init` calls it.
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
from dagmaster.geo.bounding_boxes import bbox_to_geometry
from dagmaster.geo.stac_extents import extend_extent
from dagmaster.geo.stac_items import check_collection, check_items, encode_document
from dagmaster.geo.stac_search import parse_search
from dagmaster.ports.catalog import Registered

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Sequence

    from dagmaster.geo.stac_items import CheckedItem
    from dagmaster.geo.stac_search import ParsedSearch
    from dagmaster.json_types import JsonObject, JsonValue
    from dagmaster.ports.catalog import Search

T = TypeVar("T")
Cursor = psycopg.Cursor[tuple[Any, ...]]

PAGE: Final = 500
ATTEMPTS: Final = 5
CONNECT_SECONDS: Final = 10
_MIGRATING: Final = 0x5_7AC_1917
"""The lock of those who change the schema."""
_PARTITIONING: Final = _MIGRATING + 1
"""The lock of those who make a partition."""

_AGAIN: Final = (errors.DeadlockDetected, errors.SerializationFailure, errors.LockNotAvailable)
_NOT_THERE: Final = (errors.UndefinedTable, errors.InvalidSchemaName, errors.UndefinedFunction, errors.UndefinedColumn)
_OF_THE_INPUT: Final = (errors.DataError, errors.IntegrityError, errors.RaiseException)

# pgstac's functions refer to each other without a schema. LOCAL: behind a pooler the session may change.
_PATH: Final = "SET LOCAL search_path TO pgstac, public"
_ITEM: Final = (
    "i.private->>'dagmaster:item', CASE WHEN i.private ? 'dagmaster:item' THEN NULL ELSE content_hydrate(i)::text END"
)
_HOLD_COLLECTIONS: Final = (
    "SELECT id, to_regclass('pgstac._items_' || key) IS NOT NULL, content::text FROM collections WHERE id = ANY(%s)"
    " ORDER BY id FOR NO KEY UPDATE"
)
_REACH: Final = "UPDATE collections SET content = content || jsonb_build_object('extent', %s::jsonb) WHERE id = %s"
_THERE: Final = (
    f"SELECT i.collection, i.id, {_ITEM} FROM unnest(%s::text[], %s::text[]) AS w(collection, id)"  # noqa: S608 - ours
    " JOIN items i ON i.collection = w.collection AND i.id = w.id"
)
_KEEP_TEXT: Final = (
    "UPDATE items i SET private = coalesce(i.private, '{}') || jsonb_build_object('dagmaster:item', w.item)"
    " FROM unnest(%s::text[], %s::text[], %s::text[]) AS w(collection, id, item)"
    " WHERE i.collection = w.collection AND i.id = w.id"
)


class PgstacCatalog:
    """A catalog in PostgreSQL. `url` may contain a password, which no error shows."""

    def __init__(self, url: str) -> None:
        self._url = url
        self._connection: psycopg.Connection[tuple[Any, ...]] | None = None
        self._one_at_a_time = threading.RLock()

    def close(self) -> None:
        """Close the connection; the next query opens another."""
        with self._one_at_a_time:
            if self._connection is not None:
                self._connection.close()
                self._connection = None

    def __del__(self) -> None:
        with contextlib.suppress(Exception):
            self.close()

    # ── collections ─────────────────────────────────────────────────────────────────────────────────────────────────

    def ensure_collection(self, collection: JsonObject) -> bool:
        """Insert a collection, unless it exists."""
        text = check_collection(collection)
        query = "INSERT INTO collections (content) VALUES (%s::jsonb) ON CONFLICT (id) DO NOTHING RETURNING id"
        return bool(self._ask(query, [text]))

    def collection(self, collection_id: str) -> JsonObject | None:
        """Return a collection."""
        rows = self._ask("SELECT content::text FROM collections WHERE id = %s", [_plain(collection_id)])
        return json.loads(rows[0][0]) if rows else None

    def collections(self) -> list[JsonObject]:
        """Return all collections."""
        return [
            json.loads(row[0]) for row in self._ask('SELECT content::text FROM collections ORDER BY id COLLATE "C"')
        ]

    def counts(self) -> dict[str, int]:
        """Count rows."""
        rows = self._ask('SELECT collection, count(*) FROM items GROUP BY 1 ORDER BY collection COLLATE "C"')
        return {str(collection): int(count) for collection, count in rows}

    # ── items ───────────────────────────────────────────────────────────────────────────────────────────────────────

    def register(self, items: Sequence[JsonObject]) -> Registered:
        """Register items in one transaction that locks the collections."""
        known = check_items(items)
        return self._doing(lambda cursor: _register(cursor, known)) if known else Registered()

    def item(self, collection_id: str, item_id: str) -> JsonObject | None:
        """Return one item."""
        rows = self._ask(_THERE, [[_plain(collection_id)], [_plain(item_id)]])
        return _read(rows[0][2:]) if rows else None

    def search(self, search_request: Search) -> list[JsonObject]:
        """Search in one statement, in an order independent of the server's locale."""
        condition, values = _conditions(read := parse_search(search_request))
        query = (
            f"SELECT {_ITEM} FROM items i WHERE {condition}"  # noqa: S608 - our words
            ' ORDER BY i.datetime DESC, i.id COLLATE "C", i.collection COLLATE "C" LIMIT %s'
        )
        return [_read(row) for row in self._ask(query, [*values, read.limit])]

    def items(self, collection_id: str) -> Iterator[JsonObject]:
        """Yield items page by page, from a snapshot of the ids. Items removed meanwhile are left out."""
        ids = sorted(row[0] for row in self._ask("SELECT id FROM items WHERE collection = %s", [_plain(collection_id)]))
        for begin in range(0, len(ids), PAGE):
            page = ids[begin : begin + PAGE]
            rows = self._ask(_THERE, [[collection_id] * len(page), page])
            rows_by_id = {row[1]: row[2:] for row in rows}
            yield from (_read(rows_by_id[item_id]) for item_id in page if item_id in rows_by_id)

    def remove(self, collection_id: str, item_ids: Sequence[str]) -> int:
        """Delete rows."""
        query = "DELETE FROM items WHERE collection = %s AND id = ANY(%s) RETURNING id"
        return len(self._ask(query, [_plain(collection_id), [_plain(one) for one in item_ids]]))

    # ── the connection ──────────────────────────────────────────────────────────────────────────────────────────────

    def _ask(self, query: str, values: Sequence[Any] = ()) -> list[tuple[Any, ...]]:
        return self._doing(lambda cursor: cursor.execute(query, values).fetchall())

    def _doing(self, work: Callable[[Cursor], T]) -> T:
        """Run work in one transaction; retry idempotent work after a lost connection."""
        with self._one_at_a_time:
            for attempt in range(1, ATTEMPTS + 1):
                was_open = self._connection is not None
                try:
                    connection = self._connected()
                    with connection.transaction(), connection.cursor() as cursor:
                        cursor.execute(_PATH)
                        return work(cursor)
                except psycopg.Error as error:
                    lost = self._connection is None or self._connection.broken or self._connection.closed
                    if lost:
                        self.close()
                    # An idle connection may be gone; an error of a new one is real.
                    if attempt == ATTEMPTS or not ((lost and was_open) or _may_pass(error)):
                        raise self._in_words(error) from None
                    time.sleep(random.uniform(0, 0.02) * attempt)  # noqa: S311 - so that two do not meet again
        raise AssertionError

    def _connected(self) -> psycopg.Connection[tuple[Any, ...]]:
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

    def _in_words(self, error: psycopg.Error) -> PermanentError | CatalogUnavailable:
        return in_words(self._url, error)


def _may_pass(error: psycopg.Error) -> bool:
    """Return whether the error is transient: a deadlock, or a partition that was not created because of one."""
    return isinstance(error, _AGAIN) or (isinstance(error, errors.UndefinedTable) and '"_items_' in str(error))


def migrate(url: str) -> str:
    """Migrate the database's pgstac to the installed version; return the version."""
    from pypgstac.db import PgstacDB
    from pypgstac.migrate import Migrate

    try:
        with psycopg.connect(url, autocommit=True, connect_timeout=CONNECT_SECONDS) as one_at_a_time:
            one_at_a_time.execute("SELECT pg_advisory_lock(%s)", [_MIGRATING])
            database = PgstacDB(dsn=url)
            try:
                return str(Migrate(database).run_migration())
            finally:
                pool = database.pool
                database.disconnect()
                if pool is not None:
                    pool.close()
    except psycopg.Error as error:
        raise in_words(url, error) from None


def in_words(url: str, error: psycopg.Error) -> PermanentError | CatalogUnavailable:
    """Return the error, without the password."""
    try:
        parts = conninfo_to_dict(url)
    except psycopg.Error:
        parts = {"host": "@"}
    if "@" in str(parts.get("host", "")):
        # The driver's message may contain a part of the password.
        return CatalogUnavailable(
            "DAGMASTER_CATALOG_URL is not a PostgreSQL URL: write postgresql://user:password@host:5432/database,"
            " with special characters of the password escaped (%40 for @)"
        )
    place = f"{parts.get('host', 'localhost')}:{parts.get('port', 5432)}/{parts.get('dbname', '')}"
    reason = (str(error).strip().splitlines() or [type(error).__name__])[0]
    password = parts.get("password")
    if password:
        reason = reason.replace(str(password), "***")
    if isinstance(error, _NOT_THERE):
        return CatalogUnavailable(
            f"the database {place} has no pgstac, or an old one ({reason}): run dagmaster stac init"
        )
    if isinstance(error, _OF_THE_INPUT):
        return invalid_input(f"pgstac rejected the request: {reason}")
    return CatalogUnavailable(f"the catalog on {place} does not answer: {reason}")


def _register(cursor: Cursor, known: Sequence[CheckedItem]) -> Registered:
    names = sorted({one.collection for one in known})
    rows = cursor.execute(_HOLD_COLLECTIONS, [names]).fetchall()
    held: dict[str, bool] = {name: has_items for name, has_items, _ in rows}
    missing = [name for name in names if name not in held]
    if missing:
        raise invalid_input(
            f"the catalog has no collection {', '.join(map(repr, missing))}: make it first, with stac.ensure_collection"
        )
    if not all(held.values()):
        # The first item of a collection creates its partition, which locks all items. Two such transactions that have
        # read items deadlock, and pgstac does not report that PostgreSQL aborted the creation.
        cursor.execute("SELECT pg_advisory_xact_lock(%s)", [_PARTITIONING])
    there = _digests(cursor, known)
    fresh = [one for one in known if one.key not in there]
    changed = [one for one in known if one.key in there and there[one.key] != one.digest]
    written = [*fresh, *changed]
    if written:
        cursor.execute("SELECT upsert_items(%s::jsonb)", [f"[{','.join(one.text for one in written)}]"])
        _keep_as_they_came(cursor, written)
    for name, _, content in rows:
        collection = json.loads(content)
        grown = extend_extent(collection, known)
        if grown is not collection:
            extent = json.dumps(grown["extent"])
            cursor.execute(_REACH, [extent, name])
    return Registered(created=len(fresh), updated=len(changed), unchanged=len(known) - len(written))


def _keep_as_they_came(cursor: Cursor, written: Sequence[CheckedItem]) -> None:
    back = _digests(cursor, written)
    lost = [one for one in written if one.key not in back]
    if lost:
        raise CatalogUnavailable(f"pgstac did not store the item {lost[0].id!r} of {lost[0].collection!r}")
    odd = [one for one in written if back[one.key] != one.digest]
    if odd:
        texts = [one.text for one in odd]
        cursor.execute(_KEEP_TEXT, [[one.collection for one in odd], [one.id for one in odd], texts])


def _digests(cursor: Cursor, known: Sequence[CheckedItem]) -> dict[tuple[str, str], str]:
    rows = cursor.execute(_THERE, [[one.collection for one in known], [one.id for one in known]]).fetchall()
    return {(row[0], row[1]): encode_document(_read(row[2:]), f"the item {row[1]!r}")[1] for row in rows}


def _conditions(read: ParsedSearch) -> tuple[str, list[JsonValue]]:
    """Return the SQL condition and its parameters."""
    where = ["true"]
    values: list[Any] = []
    for column, names in (("collection", read.collections), ("id", read.ids)):
        if names:
            where.append(f"i.{column} = ANY(%s)")
            values.append(list(names))
    if read.start is not None:
        where.append("i.end_datetime >= %s")
        values.append(read.start)
    if read.end is not None:
        where.append("i.datetime <= %s")
        values.append(read.end)
    if read.boxes:
        where.append(f"({' OR '.join('ST_Intersects(i.geometry, ST_GeomFromGeoJSON(%s))' for _ in read.boxes)})")
        values += [json.dumps(bbox_to_geometry(box)) for box in read.boxes]
    return " AND ".join(where), values


def _read(row: Sequence[Any]) -> dict[str, Any]:
    """Return the exact text if kept, else pgstac's own."""
    kept, hydrated = row
    item: JsonObject = json.loads(hydrated if kept is None else kept)
    return item


def _plain(text: str) -> str:
    """Remove NUL, which no id has and PostgreSQL rejects."""
    return text.replace("\x00", "\ufffd")
