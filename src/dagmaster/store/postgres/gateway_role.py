"""The role dagmaster_gateway: it selects the columns that a gateway shows, and finds a key by its digest.

Keys are found by a function with the rights of the owner. Who has taken over a gateway can neither list keys
nor change anything.
"""

from __future__ import annotations

import hashlib
from functools import cache
from typing import TYPE_CHECKING, Final

from dagmaster.ports.tenants import GATEWAY_ROLE
from dagmaster.store.postgres.named_queries import Query, queries
from dagmaster.store.postgres.worker_role import DEFINITION, RoleFunction

if TYPE_CHECKING:
    from collections.abc import Mapping

PREFIX: Final = "dag_gateway_"


def find_key_query() -> Query:
    """Return the call of the function that finds a key."""
    return gateway_functions()["find_key"].call


@cache
def gateway_functions() -> Mapping[str, RoleFunction]:
    """Return every function of the role. Its name has a digest of its text: each version calls its own."""
    statement = queries("api_keys")["find"]
    digest = hashlib.sha256(f"{DEFINITION}{statement.sql}".encode()).hexdigest()[:8]
    name = f"{PREFIX}find_key_{digest}"
    text = f"SELECT * FROM dagapp.{name}($1)"  # noqa: S608 - our own names
    call = Query("gateway.find_key", "", text, statement.parameters)
    return {"find_key": RoleFunction(name, call, (statement,), (statement.sql,), GATEWAY_ROLE)}
