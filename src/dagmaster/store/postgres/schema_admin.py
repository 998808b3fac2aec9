"""The schema of a database, for the API."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING

from dagmaster.ports.schema_admin import SchemaState, SchemaVersion
from dagmaster.store.postgres import roles, schema_version
from dagmaster.store.postgres.isolation import read_isolation

if TYPE_CHECKING:
    from dagmaster.ports.database_config import DatabaseConfig
    from dagmaster.ports.schema_admin import RoleState
    from dagmaster.ports.tenants import Isolation


class PostgresSchemaAdmin:
    """Reads the version on a dedicated connection: it works before there are tables."""

    def __init__(self, config: DatabaseConfig) -> None:
        self._dsn = config.dsn
        self._config = config

    async def state(self) -> SchemaState:
        revision, compatible_from, is_read_only = await schema_version.versions(self._dsn)
        is_usable = schema_version.is_usable(revision, compatible_from)
        return SchemaState(revision, schema_version.HEAD, is_usable, is_read_only)

    async def migrate(self) -> SchemaState:
        """Upgrade the schema, if it is older. Servers that do so at the same time wait for each other."""
        revision = await schema_version.current(self._dsn)
        if schema_version.needs_upgrade(revision):
            await asyncio.to_thread(schema_version.upgrade, self._dsn)
        # Workers of earlier versions that connect with the role keep the rights that they need.
        await self.apply_roles(is_exact=revision is None)
        return await self.state()

    async def isolation(self) -> Isolation:
        return await read_isolation(self._config)

    async def apply_roles(self, *, is_exact: bool) -> RoleState:
        """Create the roles that are missing, and grant their rights."""
        return await roles.apply_roles(self._dsn, is_exact=is_exact)

    async def history(self) -> list[SchemaVersion]:
        revision = await schema_version.current(self._dsn)
        return await asyncio.to_thread(schema_version.history, revision)
