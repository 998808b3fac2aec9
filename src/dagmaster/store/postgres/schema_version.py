"""The version of the schema: what a database has, what this code wants, and how it gets from one to the other."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final

import asyncpg
from asyncpg.exceptions import InterfaceError, PostgresError

from dagmaster.errors import DatabaseUnavailable, SchemaVersionMismatch

if TYPE_CHECKING:
    from alembic.config import Config

# The newest version. A test compares it with the files.
HEAD: Final = "0002"
# Those before it, which are brought to it.
OLDER: Final[tuple[str, ...]] = ("0001",)


@dataclass(frozen=True, slots=True)
class Version:
    """One version of the schema."""

    revision: str
    what: str
    is_current: bool


async def current(dsn: str) -> str | None:
    """Give the version that a database has; None where there is none yet."""
    connection = await _connect(dsn)
    try:
        if await connection.fetchval("SELECT to_regclass('dagapp.alembic_version')") is None:
            return None
        revision: str | None = await connection.fetchval("SELECT version_num FROM dagapp.alembic_version")
        return revision
    finally:
        await connection.close()


async def require_current(dsn: str) -> None:
    """Refuse a database that this code does not fit, with what to do about it."""
    found = await current(dsn)
    if found is None:
        raise SchemaVersionMismatch("the database has no dagmaster schema yet: run `dagmaster migrate`")
    if found < HEAD:
        raise SchemaVersionMismatch(
            f"the schema is of version {found}, this code wants {HEAD}: run `dagmaster migrate`"
        )
    if found > HEAD:
        raise SchemaVersionMismatch(
            f"the schema is of version {found}, this code knows {HEAD}: upgrade dagmaster, or run "
            f"`dagmaster migrate downgrade {HEAD}` with the newer one"
        )


def upgrade(dsn: str, revision: str = "head") -> None:
    """Bring a database to a version; the newest unless one is named."""
    from alembic import command

    _run(command.upgrade, dsn, revision)


def downgrade(dsn: str, revision: str) -> None:
    """Bring a database back to an earlier version. What only the later ones had is lost."""
    from alembic import command

    _run(command.downgrade, dsn, revision)


def history(found: str | None) -> list[Version]:
    """Give every version, oldest first; `found` is the one that a database has."""
    from alembic.script import ScriptDirectory

    scripts = ScriptDirectory.from_config(_config("")).walk_revisions()
    versions = [Version(each.revision, (each.doc or "").split("\n")[0], each.revision == found) for each in scripts]
    return versions[::-1]


def _run(step: Any, dsn: str, revision: str) -> None:
    from alembic.util import CommandError

    try:
        step(_config(dsn), revision)
    except CommandError as error:
        known = ", ".join(version.revision for version in history(None))
        raise SchemaVersionMismatch(f"{error}: the versions of the schema are base, {known}") from error
    except (OSError, PostgresError) as error:
        raise DatabaseUnavailable(f"the migration did not work, and nothing was changed: {error}") from error


def _config(dsn: str) -> Config:
    from alembic.config import Config

    config = Config()
    config.set_main_option("script_location", "dagmaster.store.postgres:migrations")
    config.attributes["url"] = "postgresql+asyncpg" + dsn[dsn.find("://") :]
    return config


async def _connect(dsn: str) -> Any:
    try:
        # A pooler in transaction mode may be between: nothing is prepared under a name.
        return await asyncpg.connect(dsn, statement_cache_size=0)
    except (OSError, PostgresError, InterfaceError) as error:
        raise DatabaseUnavailable(f"the database cannot be reached: {error}") from error
