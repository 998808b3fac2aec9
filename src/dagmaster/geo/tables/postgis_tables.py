"""Feature tables in PostGIS: chunks are identified by the column `_chunk`.

psycopg, not asyncpg: the port is synchronous, like handlers, and libpq reads every form of connection string
(services, TLS, several hosts). Rows are sent as one binary COPY, built from Arrow columns.

Locks are taken in one order: the table's, then the schema's or the chunk's. So a chunk that two workers
upload at once exists once, and transactions cannot deadlock. A worker that dies rolls back its transaction.
"""

from __future__ import annotations

import contextlib
from typing import TYPE_CHECKING, Any, Final

import psycopg
from psycopg import errors as pg
from psycopg import sql
from psycopg.conninfo import conninfo_to_dict

from dagmaster.errors import DagmasterError, PermanentError, TablesUnavailable
from dagmaster.geo.rules import arrow_features
from dagmaster.geo.rules.bounding_boxes import bbox_union
from dagmaster.geo.tables.parquet_tables import check_existing, table_not_found
from dagmaster.geo.tables.postgres_copy import encode_copy
from dagmaster.ports.table_schemas import CHUNK_COLUMN, ColumnType, TableSpec, check_chunk, check_table
from dagmaster.ports.tables import TableInfo
from dagmaster.text_format import format_count

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from psycopg import Connection

MAX_COLUMNS: Final = 1600
"""The limit of a table in PostgreSQL."""
LOCK_SECONDS: Final = 300
SOURCE_PREFIX: Final = "dagmaster source: "
"""The start of the comment of a table, which psql and QGIS show."""
_SOURCE_PREFIXES: Final = (SOURCE_PREFIX, "dagmaster made this of ")
"""Existing tables may have the second one."""

_TYPES: Final = {
    "text": "text",
    "integer": "bigint",
    "number": "double precision",
    "boolean": "boolean",
    "date": "date",
    "time": "time without time zone",
    "timestamp": "timestamp with time zone",
    "binary": "bytea",
    "json": "jsonb",
}
_SESSION: Final = (
    # Not as connection options: poolers reject those. A lost worker machine is noticed within a minute.
    f"SET LOCAL lock_timeout = '{LOCK_SECONDS}s';"
    " SET LOCAL tcp_keepalives_idle = 30; SET LOCAL tcp_keepalives_interval = 10; SET LOCAL"
    " tcp_keepalives_count = 3"
)
_TRANSIENT: Final = (pg.OperationalError, pg.InterfaceError, pg.ReadOnlySqlTransaction)
"""Unreachable, shut down, disk full, lock timeout, failover to a standby: a retry may help."""


class PostgisTables:
    """Tables on one server. Each call opens its own connection: moving a chunk takes much longer."""

    def __init__(self, url: str) -> None:
        self._url = url

    def create(self, spec: TableSpec, *, replace: bool = False) -> bool:
        """Create the table with a spatial index, unless it exists."""
        if len(spec.columns) + 2 > MAX_COLUMNS:
            raise PermanentError(
                f"{spec.name} would have {format_count(len(spec.columns), 'column')}: PostgreSQL allows"
                f" {MAX_COLUMNS - 2:,}; leave some out, or keep it as GeoParquet",
                kind="invalid_input",
            )
        with self._transaction() as connection:
            self._ensure_postgis(connection)
            _lock(connection, spec.name)
            if "." in spec.name:
                schema = spec.name.partition(".")[0]
                # Of two concurrent CREATE SCHEMA one fails, despite IF NOT EXISTS.
                _lock(connection, f"schema {schema}")
                connection.execute(sql.SQL("CREATE SCHEMA IF NOT EXISTS {}").format(sql.Identifier(schema)))
            if _table_exists(connection, spec.name):
                if check_existing(spec, _spec(connection, spec.name), replace=replace):
                    _record_source(connection, spec)
                return False
            kind = f"geometry({spec.geometry_type.replace(' ', '')},{int(spec.srid)})"
            columns = [(name, _server_type(type_)) for name, type_ in spec.columns.items()]
            columns += [(spec.geometry_column, kind), (CHUNK_COLUMN, "text NOT NULL")]
            # The types are constants; the names come from the user, and are quoted.
            definitions = [sql.SQL("{} " + type_).format(sql.Identifier(name)) for name, type_ in columns]
            table = _identifier(spec.name)
            connection.execute(sql.SQL("CREATE TABLE {} ({})").format(table, sql.SQL(", ").join(definitions)))
            geometry, chunk = sql.Identifier(spec.geometry_column), sql.Identifier(CHUNK_COLUMN)
            connection.execute(sql.SQL("CREATE INDEX ON {} USING gist ({})").format(table, geometry))
            connection.execute(sql.SQL("CREATE INDEX ON {} ({})").format(table, chunk))
            _record_source(connection, spec)
            return True

    def replace_chunk(self, table: str, chunk: str, rows: Any) -> int:
        """DELETE and COPY in one transaction."""
        check_chunk(chunk)
        with self._transaction() as connection:
            _lock(connection, check_table(table), shared=True)
            _lock(connection, f"{table}/{chunk}")
            spec = _require_spec(connection, table)
            fitting = arrow_features.fit_to_table(rows, spec)
            name, chunk_column = _identifier(table), sql.Identifier(CHUNK_COLUMN)
            connection.execute(sql.SQL("DELETE FROM {} WHERE {} = %s").format(name, chunk_column), [chunk])
            names = sql.SQL(", ").join(map(sql.Identifier, [*fitting.column_names, CHUNK_COLUMN]))
            command = sql.SQL("COPY {} ({}) FROM STDIN (FORMAT binary)").format(name, names)
            with connection.cursor() as cursor, cursor.copy(command) as copy:
                for chunk_bytes in encode_copy(fitting, spec, chunk):
                    copy.write(chunk_bytes)
            return int(fitting.num_rows)

    def keep_only(self, table: str, chunks: Sequence[str]) -> int:
        """Wait for uploads in progress, then delete the other chunks."""
        with self._transaction() as connection:
            _lock(connection, check_table(table))
            _require_spec(connection, table)
            command = sql.SQL("DELETE FROM {} WHERE {} <> ALL(%s)")
            chunk_column = sql.Identifier(CHUNK_COLUMN)
            return connection.execute(
                command.format(_identifier(table), chunk_column), [list(chunks)]
            ).rowcount

    def describe(self, table: str) -> TableInfo | None:
        """Return the row count and extent of each chunk."""
        with self._transaction() as connection:
            spec = _spec(connection, table)
            if spec is None:
                return None
            command = sql.SQL(
                "SELECT chunk, rows, ST_XMin(box), ST_YMin(box), ST_XMax(box), ST_YMax(box)"
                " FROM (SELECT {} AS chunk, count(*) AS rows, ST_Extent({}) AS box FROM {} GROUP BY 1) AS"
                " chunks"
                ' ORDER BY chunk COLLATE "C"'
            ).format(sql.Identifier(CHUNK_COLUMN), sql.Identifier(spec.geometry_column), _identifier(table))
            rows = connection.execute(command).fetchall()
        boxes = [(row[2], row[3], row[4], row[5]) for row in rows if row[2] is not None]
        return TableInfo.of(
            spec,
            href=self._href(table),
            rows=sum(row[1] for row in rows),
            chunks=tuple(row[0] for row in rows),
            bbox=bbox_union(boxes) if boxes else None,
            media_type="application/vnd.postgresql.table",
        )

    def read(self, table: str) -> Any:
        import pyarrow as pa

        with self._transaction() as connection:
            spec = _require_spec(connection, table)
            columns_sql = [
                sql.SQL("{}::text").format(sql.Identifier(name)) if kind == "json" else sql.Identifier(name)
                for name, kind in spec.columns.items()
            ]
            columns_sql.append(sql.SQL("ST_AsBinary({})").format(sql.Identifier(spec.geometry_column)))
            command = sql.SQL("SELECT {} FROM {}").format(sql.SQL(", ").join(columns_sql), _identifier(table))
            with connection.cursor(binary=True) as cursor:
                rows = cursor.execute(command).fetchall()
        schema = arrow_features.arrow_schema(spec)
        columns = list(zip(*rows, strict=True)) or [()] * len(schema)
        arrays = [pa.array(values, field.type) for values, field in zip(columns, schema, strict=True)]
        return pa.table(arrays, schema=schema)

    def drop(self, table: str) -> bool:
        """Drop the table, if dagmaster created it."""
        with self._transaction() as connection:
            _lock(connection, check_table(table))
            if not _table_exists(connection, table):
                return False
            _require_spec(connection, table)
            connection.execute(sql.SQL("DROP TABLE {}").format(_identifier(table)))
            return True

    # ── inside ──────────────────────────────────────────────────────────────────────────────────────────────

    @contextlib.contextmanager
    def _transaction(self) -> Iterator[Connection[Any]]:
        """Yield a connection in a transaction; translate driver errors."""
        try:
            with psycopg.connect(self._url, connect_timeout=10, prepare_threshold=None) as connection:
                connection.execute(_SESSION)
                yield connection
        except DagmasterError:
            raise
        except _TRANSIENT as error:
            raise TablesUnavailable(
                f"PostGIS at {self._address()} is unavailable: {_server_message(error)}"
            ) from error
        except (
            pg.DataError,
            pg.IntegrityError,
            pg.ProgrammingError,
            pg.NotSupportedError,
            pg.InternalError,
        ) as error:
            raise PermanentError(
                f"PostGIS rejected the request: {_server_message(error)}", kind="invalid_input"
            ) from error

    def _ensure_postgis(self, connection: Connection[Any]) -> None:
        command = "SELECT 1 FROM pg_extension WHERE extname = 'postgis'"
        if connection.execute(command).fetchone():
            return
        _lock(connection, "extension postgis")
        try:
            connection.execute("CREATE EXTENSION IF NOT EXISTS postgis")
        except (pg.InsufficientPrivilege, pg.FeatureNotSupported, pg.UndefinedFile) as error:
            raise TablesUnavailable(
                f"the database at {self._address()} has no PostGIS, and it cannot be created"
                f" ({_server_message(error)}): ask an administrator to run CREATE EXTENSION postgis"
            ) from error

    def _href(self, table: str) -> str:
        return f"postgresql://{self._address()}/{table}"

    def _address(self) -> str:
        """Return the server's address without credentials."""
        conninfo = conninfo_to_dict(self._url)
        host = str(conninfo.get("host") or "localhost").rpartition("/")[2]
        return f"{host}:{conninfo.get('port') or 5432}/{conninfo.get('dbname') or ''}"


def _lock(connection: Connection[Any], name: str, *, shared: bool = False) -> None:
    """Take an advisory lock until the transaction ends."""
    function = "pg_advisory_xact_lock_shared" if shared else "pg_advisory_xact_lock"
    command = sql.SQL("SELECT {}(hashtextextended(%s, 0))").format(sql.SQL(function))
    connection.execute(command, [f"dagmaster.tables {name}"])


def _identifier(table: str) -> sql.Composable:
    return sql.Identifier(*check_table(table).split("."))


def _table_exists(connection: Connection[Any], table: str) -> bool:
    row = connection.execute("SELECT to_regclass(%s)", [_identifier(table).as_string(connection)]).fetchone()
    return row is not None and row[0] is not None


def _require_spec(connection: Connection[Any], table: str) -> TableSpec:
    spec = _spec(connection, table)
    if spec is None:
        raise table_not_found(table)
    return spec


def _record_source(connection: Connection[Any], spec: TableSpec) -> None:
    """Record the source as a comment, unless there is another comment."""
    existing = _comment(connection, spec.name)
    if spec.source and (not existing or existing.startswith(_SOURCE_PREFIXES)):
        comment = sql.Literal(f"{SOURCE_PREFIX}{spec.source}")
        connection.execute(sql.SQL("COMMENT ON TABLE {} IS {}").format(_identifier(spec.name), comment))


def _comment(connection: Connection[Any], table: str) -> str:
    command = "SELECT coalesce(obj_description(to_regclass(%s), 'pg_class'), '')"
    row = connection.execute(command, [_identifier(table).as_string(connection)]).fetchone()
    return str(row[0]) if row else ""


def _spec(connection: Connection[Any], table: str) -> TableSpec | None:
    """Return the spec of a table from the system catalog; None if dagmaster has not created it."""
    if not _table_exists(connection, table):
        return None
    rows = connection.execute(
        """
        SELECT a.attname, format_type(a.atttypid, a.atttypmod), postgis_typmod_type(a.atttypmod),
               postgis_typmod_srid(a.atttypmod), format_type(a.atttypid, NULL)
        FROM pg_attribute AS a
        WHERE a.attrelid = to_regclass(%s) AND a.attnum > 0 AND NOT a.attisdropped
        ORDER BY a.attnum
        """,
        [_identifier(table).as_string(connection)],
    ).fetchall()
    geometries = [row for row in rows if row[4].rpartition(".")[2] == "geometry"]
    columns = {
        row[0]: _column_type(row[1]) for row in rows if row not in geometries and row[0] != CHUNK_COLUMN
    }
    supported = {name: kind for name, kind in columns.items() if kind is not None}
    if len(geometries) != 1 or len(supported) != len(columns) or CHUNK_COLUMN not in [row[0] for row in rows]:
        return None
    name, _, kind, srid, _ = geometries[0]
    geometry_type = kind.removesuffix("Z") + (" Z" if kind.endswith("Z") else "")
    return TableSpec(
        name=table,
        columns=supported,
        geometry_type=geometry_type,
        srid=srid,
        geometry_column=name,
        source=_source(_comment(connection, table)),
    )


def _source(comment: str) -> str:
    """Return the source that the comment of a table states; empty if another program wrote the comment."""
    for prefix in _SOURCE_PREFIXES:
        if comment.startswith(prefix):
            return comment.removeprefix(prefix)
    return ""


def _server_type(column_type: str) -> str:
    """Return PostgreSQL's name of a column type, as `format_type` writes it."""
    parsed = ColumnType.parse(column_type)
    assert parsed is not None  # noqa: S101 - the spec has checked it
    name = f"numeric({parsed.precision},{parsed.scale})" if parsed.name == "decimal" else _TYPES[parsed.name]
    return f"{name}[]" if parsed.is_list else name


def _column_type(server_type: str) -> str | None:
    """Return the column type of a type of PostgreSQL; None for an unknown type."""
    element = server_type.removesuffix("[]")
    name = next((name for name, type_ in _TYPES.items() if type_ == element), None)
    if element.startswith("numeric("):
        name = element.replace("numeric", "decimal")
    column_type = f"{name}{server_type[len(element) :]}"
    return column_type if name is not None and ColumnType.parse(column_type) is not None else None


def _server_message(error: psycopg.Error) -> str:
    message = error.diag.message_primary or str(error).strip()
    detail = error.diag.message_detail or error.diag.context
    return " ".join(f"{message} ({detail})".split())[:500] if detail else message[:500]
