"""The schema of the database: its version, and the upgrade to the version of this code."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, NamedTuple, Protocol

if TYPE_CHECKING:
    from collections.abc import Sequence


class SchemaState(NamedTuple):
    """The version of the database (None: no schema yet), that of this code, and whether they fit."""

    version: str | None
    newest_version: str
    is_usable: bool


@dataclass(frozen=True, slots=True)
class SchemaVersion:
    """One version of the schema."""

    revision: str
    description: str
    is_current: bool


class SchemaAdmin(Protocol):
    """Reads the version, and migrates. Its methods raise `DatabaseUnavailable`."""

    async def state(self) -> SchemaState:
        """Return the version of the schema."""

    async def migrate(self) -> SchemaState:
        """Upgrade the schema to the version of this code, if it is older; return the new state."""

    async def history(self) -> Sequence[SchemaVersion]:
        """Return all versions that this code knows, oldest first; the database's is marked as current."""
