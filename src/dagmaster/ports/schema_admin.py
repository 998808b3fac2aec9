"""The schema of the database: its version, and the upgrade to the version of this code."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Final, NamedTuple, Protocol

if TYPE_CHECKING:
    from collections.abc import Sequence

    from dagmaster.ports.tenants import Isolation


ROLES: Final = ("dagmaster_orchestrator", "dagmaster_worker", "dagmaster_api", "dagmaster_gateway")
"""The roles of a database that several users share: see docs/howto/database-roles.md."""


class SchemaState(NamedTuple):
    """The version of the database (None: no schema yet), that of this code, and whether they fit.

    `is_read_only`: the database accepts no changes: a standby, or a server that is set to read-only.
    """

    version: str | None
    newest_version: str
    is_usable: bool
    is_read_only: bool = False


@dataclass(frozen=True, slots=True)
class SchemaVersion:
    """One version of the schema."""

    revision: str
    description: str
    is_current: bool


@dataclass(frozen=True, slots=True, kw_only=True)
class RoleState:
    """The roles of a database after their rights were granted.

    `missing` could not be created by this user, and nothing was granted then. `worker_has_table_rights`:
    dagmaster_worker still has the rights on tables that workers of earlier versions need.
    """

    owner: str
    user: str
    is_owner: bool = True
    created: tuple[str, ...] = ()
    missing: tuple[str, ...] = ()
    worker_has_table_rights: bool = False


class SchemaAdmin(Protocol):
    """Reads the version, and migrates. Its methods raise `DatabaseUnavailable`."""

    async def state(self) -> SchemaState:
        """Return the version of the schema."""

    async def migrate(self) -> SchemaState:
        """Upgrade the schema to the version of this code, if it is older; return the new state."""

    async def history(self) -> Sequence[SchemaVersion]:
        """Return all versions that this code knows, oldest first; the database's is marked as current."""

    async def isolation(self) -> Isolation:
        """Return whether tenants are kept apart on the connections that serve requests."""

    async def apply_roles(self, *, is_exact: bool) -> RoleState | None:
        """Create the roles that are missing and grant their rights; None if this store has no roles.

        `is_exact`: take every other right from dagmaster_worker.
        """
