"""The roles of a database: create them, grant their rights, and make the functions of dagmaster_worker."""

from __future__ import annotations

import contextlib
from importlib import resources
from typing import TYPE_CHECKING, Any, Final

import asyncpg
from asyncpg.exceptions import (
    DuplicateObjectError,
    InsufficientPrivilegeError,
    PostgresError,
    UniqueViolationError,
)

from dagmaster.errors import DatabaseUnavailable, SchemaVersionMismatch
from dagmaster.ports.schema_admin import ROLES, RoleState
from dagmaster.ports.tenants import API_ROLE, GATEWAY_ROLE
from dagmaster.store.postgres import gateway_role, worker_role
from dagmaster.store.postgres.tenant_policies import apply_policies
from dagmaster.store.postgres.worker_role import DEFINITION

if TYPE_CHECKING:
    from collections.abc import Mapping

    from dagmaster.store.postgres.worker_role import RoleFunction

_WORKER: Final = "dagmaster_worker"
_SCHEMA: Final = """
SELECT pg_has_role(nspowner, 'USAGE') AS is_owner, nspowner::regrole::text AS owner,
       current_user::text AS user_name
FROM pg_namespace WHERE nspname = 'dagapp'
"""
_HAS_MEMBERS: Final = """
SELECT EXISTS (SELECT FROM pg_auth_members m, pg_namespace n
               WHERE m.roleid = 'dagmaster_worker'::regrole AND n.nspname = 'dagapp'
                 AND m.member <> n.nspowner)
"""
# Since PostgreSQL 16, who creates a role is a member that cannot take it on.
_CAN_SERVE: Final = """
SELECT CASE WHEN current_setting('server_version_num')::integer >= 160000
            THEN pg_has_role($1, 'SET') ELSE pg_has_role($1, 'MEMBER') END
"""
_HAS_TABLE_RIGHTS: Final = "SELECT has_table_privilege($1, 'dagapp.dag_task_queue', 'DELETE')"
_EXISTING: Final = """
SELECT proname, oid::regprocedure::text AS signature FROM pg_proc
WHERE pronamespace = 'dagapp'::regnamespace AND starts_with(proname, $1)
"""


async def apply_roles(dsn: str, *, is_exact: bool) -> RoleState:
    """Create the roles that are missing, if this user may, and grant their rights.

    `is_exact`: take every other right from dagmaster_worker, and drop functions of other versions. Workers of
    these versions that connect with the role can do nothing any more. A role that nobody has needs no such
    care.
    """
    try:
        # There may be a pooler in transaction mode: no statement is prepared by name.
        connection = await asyncpg.connect(dsn, statement_cache_size=0)
    except (OSError, PostgresError) as error:
        raise DatabaseUnavailable(f"the database cannot be reached: {error}") from error
    try:
        async with connection.transaction():
            return await _apply(connection, is_exact=is_exact)
    except PostgresError as error:
        raise DatabaseUnavailable(f"the roles were not changed: {error}") from error
    finally:
        await connection.close()


async def _apply(connection: Any, *, is_exact: bool) -> RoleState:
    await connection.execute("SELECT pg_advisory_xact_lock(hashtext('dagmaster.migrate'))")
    schema = await connection.fetchrow(_SCHEMA)
    if schema is None:
        raise SchemaVersionMismatch("the database has no dagmaster schema yet: run `dagmaster migrate`")
    owner, user = schema["owner"], schema["user_name"]
    if not schema["is_owner"]:
        return RoleState(owner=owner, user=user, is_owner=False)
    created = tuple([role for role in ROLES if await _create(connection, role)])
    known = await connection.fetch("SELECT rolname FROM pg_roles WHERE rolname = ANY($1)", list(ROLES))
    missing = tuple(role for role in ROLES if role not in {row["rolname"] for row in known})
    if missing:
        return RoleState(owner=owner, user=user, created=created, missing=missing)
    grants = resources.files("dagmaster.store.postgres.migrations") / "roles.sql"
    await connection.execute(grants.read_text(encoding="utf-8"))
    await apply_policies(connection)
    # The owner serves requests as well, as `dagmaster dev` does: then as these roles, which see one tenant.
    for role in (API_ROLE, GATEWAY_ROLE):
        if not await connection.fetchval(_CAN_SERVE, role):
            with contextlib.suppress(InsufficientPrivilegeError):
                async with connection.transaction():
                    await connection.execute(f"GRANT {role} TO CURRENT_USER")
    gateway_functions = gateway_role.gateway_functions()
    await _make_functions(connection, gateway_role.PREFIX, gateway_functions, is_exact=is_exact)
    is_exact = is_exact or not await connection.fetchval(_HAS_MEMBERS)
    await _make_functions(connection, worker_role.PREFIX, worker_role.functions(), is_exact=is_exact)
    if is_exact:
        await connection.execute(
            f"REVOKE ALL ON ALL TABLES IN SCHEMA dagapp FROM {_WORKER};"
            f"REVOKE ALL ON FUNCTION dagapp.dag_send_batch FROM {_WORKER};"
            f"GRANT SELECT ON dagapp.alembic_version TO {_WORKER}"
        )
    has_table_rights = await connection.fetchval(_HAS_TABLE_RIGHTS, _WORKER)
    return RoleState(owner=owner, user=user, created=created, worker_has_table_rights=has_table_rights)


async def _create(connection: Any, role: str) -> bool:
    """Create a role; return False if it exists, or if this user may not."""
    if await connection.fetchval("SELECT true FROM pg_roles WHERE rolname = $1", role):
        return False
    try:
        # The roles of a server are shared by its databases: another one may create it at the same moment.
        async with connection.transaction():
            await connection.execute(f"CREATE ROLE {role} NOLOGIN")
    except (InsufficientPrivilegeError, DuplicateObjectError, UniqueViolationError):
        return False
    return True


async def _make_functions(
    connection: Any, prefix: str, functions: Mapping[str, RoleFunction], *, is_exact: bool
) -> None:
    existing = {row["proname"]: row["signature"] for row in await connection.fetch(_EXISTING, prefix)}
    needed = {function.name: function for function in functions.values()}
    for name, function in needed.items():
        if name not in existing:
            await connection.execute(await _definition(connection, function))
    for name, signature in existing.items():
        if is_exact and name not in needed:
            await connection.execute(f"DROP FUNCTION {signature}")


async def _definition(connection: Any, function: RoleFunction) -> str:
    """Return the SQL that makes a function, with the types that the server infers for its statements."""
    types: dict[str, str] = {}
    columns = ""
    for part in function.parts:
        prepared = await connection.prepare(part.sql)
        types |= zip(part.parameters, (type_.name for type_ in prepared.get_parameters()), strict=True)
        columns = ", ".join(f'"{column.name}" {column.type.name}' for column in prepared.get_attributes())
    arguments = ", ".join(types[name] for name in function.call.parameters)
    *conditions, statement = function.bodies
    guards = "".join(f"    IF NOT EXISTS ({condition}) THEN RETURN; END IF;\n" for condition in conditions)
    return DEFINITION.format(
        signature=f"dagapp.{function.name}({arguments})",
        result=f"TABLE ({columns})" if columns else "void",
        role=function.role,
        guards=guards,
        statement=f"{'RETURN QUERY ' if columns else ''}{statement}",
    )
