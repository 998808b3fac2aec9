"""The schema of a database, for the API."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING

from dagmaster.ports.schema_admin import SchemaState, SchemaVersion
from dagmaster.store.postgres import schema_version

if TYPE_CHECKING:
    from dagmaster.ports.database_config import DatabaseConfig


class PostgresSchemaAdmin:
    """Reads the version on a dedicated connection: it works before there are tables."""

    def __init__(self, config: DatabaseConfig) -> None:
        self._dsn = config.dsn

    async def state(self) -> SchemaState:
        revision, compatible_from = await schema_version.versions(self._dsn)
        return SchemaState(revision, schema_version.HEAD, schema_version.is_usable(revision, compatible_from))

    async def migrate(self) -> SchemaState:
        """Upgrade the schema, if it is older. Servers that do so at the same time wait for each other."""
        if schema_version.needs_upgrade(await schema_version.current(self._dsn)):
            await asyncio.to_thread(schema_version.upgrade, self._dsn)
        return await self.state()

    async def history(self) -> list[SchemaVersion]:
        revision = await schema_version.current(self._dsn)
        return await asyncio.to_thread(schema_version.history, revision)
