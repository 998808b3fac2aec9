"""The schema of the database: its version, and the upgrade to the version of this code."""

from __future__ import annotations

from typing import NamedTuple, Protocol


class SchemaState(NamedTuple):
    """The version of the database (None: it has no schema yet), that of this code, and whether this code can use it."""

    version: str | None
    newest_version: str
    is_usable: bool


class SchemaAdmin(Protocol):
    """Reads the version, and migrates. Both raise `DatabaseUnavailable`."""

    async def state(self) -> SchemaState:
        """Return the version of the schema."""

    async def migrate(self) -> SchemaState:
        """Upgrade the schema to the version of this code, if it is older; return the new state."""
