"""The schema of a store in memory: it is always current."""

from __future__ import annotations

from dagmaster.ports.schema_admin import SchemaState, SchemaVersion

_CURRENT = SchemaState("memory", "memory", is_usable=True)


class MemorySchemaAdmin:
    """There is nothing to migrate."""

    async def state(self) -> SchemaState:
        """Return the version of the schema."""
        return _CURRENT

    async def migrate(self) -> SchemaState:
        """Do nothing."""
        return _CURRENT

    async def history(self) -> list[SchemaVersion]:
        """Return the only version."""
        return [SchemaVersion("memory", "Rows in memory.", is_current=True)]
