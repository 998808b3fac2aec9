"""The schema version of a database: read it, compare it with the version of this code, and migrate."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final, NamedTuple

import asyncpg
from asyncpg.exceptions import (
    InsufficientPrivilegeError,
    InterfaceError,
    InvalidSchemaNameError,
    PostgresError,
    UndefinedTableError,
)

from dagmaster.errors import DatabaseReadOnly, DatabaseUnavailable, SchemaVersionMismatch
from dagmaster.ports.schema_admin import SchemaVersion
from dagmaster.store.postgres.connection_errors import STANDBY
from dagmaster.store.postgres.named_queries import queries
from dagmaster.text_format import format_seconds

if TYPE_CHECKING:
    from alembic.config import Config

    from dagmaster.store.postgres.connection_pool import ReadOnlyPool

# The newest version. A test compares it with the migration files.
HEAD: Final = "0017"
COMPATIBLE_FROM: Final = "0002"
"""The oldest version whose code can use the newest schema. A test compares it with what the schema says."""
ANSWER_SECONDS: Final = 3.0
"""How long the database may take to accept a connection, and to answer: the readiness of a server waits for
it."""
_SQL = queries("read")
_DOCTOR = queries("doctor")


async def current(dsn: str) -> str | None:
    """Return the version of a database; None if it has no schema yet."""
    return (await versions(dsn))[0]


class Versions(NamedTuple):
    """The version of a database (None: no schema), and the oldest code that can use one newer than this code.

    `is_read_only`: a standby, or a server that is set to read-only.
    """

    revision: str | None
    compatible_from: str | None
    is_read_only: bool


async def versions(dsn: str) -> Versions:
    """Return the version of a database, and whether it can be written to."""
    try:
        return await _read_versions(dsn)
    except TimeoutError as error:
        raise DatabaseUnavailable(
            f"the database did not answer within {format_seconds(ANSWER_SECONDS)}: check its address and its"
            " load"
        ) from error


async def _read_versions(dsn: str) -> Versions:
    connection = await _connect(dsn)
    try:
        is_read_only = await connection.fetchval("SHOW transaction_read_only") == "on"
        if await connection.fetchval("SELECT to_regclass('dagapp.alembic_version')") is None:
            return Versions(None, None, is_read_only)
        revision = await connection.fetchval("SELECT version_num FROM dagapp.alembic_version")
        compatible_from = None
        if revision is not None and revision > HEAD:
            compatible_from = await connection.fetchval("SELECT dagapp.dag_compatible_from()")
        return Versions(revision, compatible_from, is_read_only)
    finally:
        await connection.close(timeout=ANSWER_SECONDS)


class LiveService(NamedTuple):
    """A service with a live lease, and the version of its code."""

    kind: str
    id: int
    host: str
    pid: int
    version: str

    def __str__(self) -> str:
        """Return its kind, where it runs, and its version."""
        return f"{self.kind} {self.host}:{self.pid} ({self.version or 'of an unknown version'})"


async def live_services(dsn: str, *, lease_seconds: float, worker_lease_seconds: float) -> list[LiveService]:
    """Return the services whose leases have not ended; none if there are no tables, or none for this user."""
    connection = await _connect(dsn)
    query = _DOCTOR["live_versions"]
    try:
        leases = {"lease_seconds": lease_seconds, "worker_lease_seconds": worker_lease_seconds}
        rows = await connection.fetch(query.sql, *query.arguments(leases))
    except (UndefinedTableError, InvalidSchemaNameError, InsufficientPrivilegeError):
        return []
    finally:
        await connection.close(timeout=ANSWER_SECONDS)
    return [LiveService(*row) for row in rows]


def breaks_services(before: str | None, target: str) -> bool:
    """Return whether live services cannot go on when a schema is brought to a version.

    The code of a service is not older than `before` allows. An upgrade keeps code from `COMPATIBLE_FROM` on
    working; a downgrade takes away what newer code needs.
    """
    if before is None:
        return False
    return before < COMPATIBLE_FROM if target == "head" or target > before else target < before


def needs_upgrade(revision: str | None) -> bool:
    """Return whether a database has no schema yet, or an older one."""
    return revision is None or revision < HEAD


def is_usable(revision: str | None, compatible_from: str | None) -> bool:
    """Return whether this code can use a schema: of the same version, or of a newer, compatible one."""
    if needs_upgrade(revision):
        return False
    return revision == HEAD or (compatible_from is not None and compatible_from <= HEAD)


async def require_current(dsn: str) -> None:
    """Raise unless this code can use the schema of the database, and write to it.

    `SchemaVersionMismatch` has the remedy; `DatabaseReadOnly`: it is a standby, which may be promoted.
    """
    revision, compatible_from, is_read_only = await versions(dsn)
    _check_usable(revision, compatible_from)
    if is_read_only:
        raise DatabaseReadOnly(STANDBY)


async def require_current_of(pool: ReadOnlyPool) -> None:
    """Do the same on a connection of a pool: a command needs no other one then."""
    try:
        row = await pool.row(_SQL["schema_version"], {})
    except SchemaVersionMismatch:
        # There is no such table.
        row = None
    revision, compatible = None if row is None else row["version_num"], None
    if revision is not None and revision > HEAD:
        compatible = await pool.row(_SQL["compatible_from"], {})
    _check_usable(revision, None if compatible is None else compatible["revision"])


def _check_usable(revision: str | None, compatible_from: str | None) -> None:
    """Raise `SchemaVersionMismatch`, with the remedy, unless this code can use a schema of this version.

    In a rolling upgrade the schema is migrated first: it may be newer than this code, if it is compatible.
    """
    if revision is None:
        raise SchemaVersionMismatch("the database has no dagmaster schema yet: run `dagmaster migrate`")
    if needs_upgrade(revision):
        raise SchemaVersionMismatch(
            f"the schema has version {revision}, this code needs {HEAD}: run `dagmaster migrate`"
        )
    if not is_usable(revision, compatible_from):
        raise SchemaVersionMismatch(
            f"the schema has version {revision}, this code knows {HEAD}: upgrade dagmaster, or run "
            f"`dagmaster migrate downgrade {HEAD}` with the newer one"
        )


def upgrade(dsn: str, revision: str = "head") -> None:
    """Upgrade a database to a version; by default to the newest."""
    from alembic import command

    _run(command.upgrade, dsn, revision)


def downgrade(dsn: str, revision: str) -> None:
    """Downgrade a database to an earlier version. Data that only later versions store is lost."""
    from alembic import command

    _run(command.downgrade, dsn, revision)


def history(revision: str | None) -> list[SchemaVersion]:
    """Return every version, oldest first; `revision` is that of the database."""
    from alembic.script import ScriptDirectory

    scripts = ScriptDirectory.from_config(_config("")).walk_revisions()
    versions = [
        SchemaVersion(script.revision, (script.doc or "").split("\n")[0], script.revision == revision)
        for script in scripts
    ]
    return versions[::-1]


def _run(step: Any, dsn: str, revision: str) -> None:
    from alembic.util import CommandError

    try:
        step(_config(dsn), revision)
    except CommandError as error:
        known = ", ".join(version.revision for version in history(None))
        raise SchemaVersionMismatch(f"{error}: the schema versions are base, {known}") from error
    except (OSError, PostgresError) as error:
        raise DatabaseUnavailable(f"the migration failed, and nothing was changed: {error}") from error


def _config(dsn: str) -> Config:
    from alembic.config import Config

    config = Config()
    config.set_main_option("script_location", "dagmaster.store.postgres:migrations")
    config.attributes["url"] = "postgresql+asyncpg" + dsn[dsn.find("://") :]
    return config


async def _connect(dsn: str) -> Any:
    try:
        # There may be a pooler in transaction mode: no statement is prepared by name.
        return await asyncpg.connect(
            dsn, statement_cache_size=0, timeout=ANSWER_SECONDS, command_timeout=ANSWER_SECONDS
        )
    except TimeoutError:
        raise
    except (OSError, PostgresError, InterfaceError) as error:
        raise DatabaseUnavailable(f"the database cannot be reached: {error}") from error
