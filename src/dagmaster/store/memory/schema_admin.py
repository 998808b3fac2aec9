"""The schema of a store in memory: it is always current."""

from __future__ import annotations

from dagmaster.ports.schema_admin import SchemaState, SchemaVersion
from dagmaster.ports.tenants import Isolation

_CURRENT = SchemaState("memory", "memory", is_usable=True)


class MemorySchemaAdmin:
    """There is nothing to migrate."""

    async def state(self) -> SchemaState:
        return _CURRENT

    async def migrate(self) -> SchemaState:
        return _CURRENT

    async def isolation(self) -> Isolation:
        return Isolation()

    async def apply_roles(self, *, is_exact: bool) -> None:
        """Do nothing: there are no users."""

    async def history(self) -> list[SchemaVersion]:
        return [SchemaVersion("memory", "Rows in memory.", is_current=True)]
