"""Which database role serves requests: the one that sees the rows of one tenant."""

from __future__ import annotations

import contextlib
from dataclasses import replace
from typing import TYPE_CHECKING

from dagmaster.errors import (
    DatabaseUnavailable,
    SchemaVersionMismatch,
    StatementFailed,
    TenantsNotIsolated,
)
from dagmaster.ports.tenants import API_ROLE

if TYPE_CHECKING:
    from dagmaster.ports.database_config import DatabaseConfig


async def serving_config(config: DatabaseConfig) -> DatabaseConfig:
    """Return the configuration of connections that serve requests: with the role that sees one tenant.

    Raise `TenantsNotIsolated` if this user cannot take it on, and there are tenants to keep apart.
    A database that is not there yet, or has no tables, is checked when it is used.
    """
    from dagmaster.store.postgres.isolation import read_isolation

    serving = replace(config, role=API_ROLE)
    with contextlib.suppress(DatabaseUnavailable, SchemaVersionMismatch, StatementFailed):
        isolation = await read_isolation(serving)
        if not isolation.is_enforced and config.is_embedded:
            # A database of an earlier version has no roles yet.
            await make_embedded_roles(config)
            isolation = await read_isolation(serving)
        if not isolation.is_safe:
            raise TenantsNotIsolated(isolation.problem)
    return serving


async def make_embedded_roles(config: DatabaseConfig) -> None:
    """Create the roles of an embedded database, as `dagmaster migrate` does: its owner serves as one."""
    from dagmaster.store.postgres import roles

    await roles.apply_roles(config.dsn, is_exact=False)
