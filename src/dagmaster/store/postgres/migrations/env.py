"""The environment of Alembic: it connects to the configured database and migrates the schema `dagapp`."""

from __future__ import annotations

import asyncio
import uuid
from typing import TYPE_CHECKING

from alembic import context
from sqlalchemy import pool, text
from sqlalchemy.ext.asyncio import create_async_engine

if TYPE_CHECKING:
    from sqlalchemy import Connection

SCHEMA = "dagapp"


def migrate(connection: Connection) -> None:
    """Run the migrations on one connection, one at a time on one database."""
    with connection.begin():
        # If two services start at once, the second one waits for the lock, and has nothing to do then.
        connection.execute(text("SELECT pg_advisory_xact_lock(hashtext('dagmaster.migrate'))"))
        connection.execute(text(f"CREATE SCHEMA IF NOT EXISTS {SCHEMA}"))
        connection.execute(text(f"SET LOCAL search_path = {SCHEMA}"))
        context.configure(
            connection=connection,
            version_table="alembic_version",
            version_table_schema=SCHEMA,
            target_metadata=None,
        )
        context.run_migrations()


async def connect_and_migrate() -> None:
    """Connect with asyncpg, the driver of the stores."""
    # A pooler in transaction mode shares its connections: prepared statements need unique names.
    unshared = {
        "statement_cache_size": 0,
        "prepared_statement_name_func": lambda: f"dagmaster_{uuid.uuid4()}",
    }
    engine = create_async_engine(
        context.config.attributes["url"], poolclass=pool.NullPool, connect_args=unshared
    )
    async with engine.connect() as connection:
        await connection.run_sync(migrate)
    await engine.dispose()


asyncio.run(connect_and_migrate())
