"""`dagmaster migrate`: bring the schema of a database to a version."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, Final, TypeVar

import click

from dagmaster.cli.commands.jobs_control import sender
from dagmaster.cli.errors import command_errors
from dagmaster.cli.main import COMPLETED, FAILED
from dagmaster.cli.system import Part, find_server, open_session
from dagmaster.ports.audit_trail import ChangeOrigin
from dagmaster.ports.schema_admin import ROLES
from dagmaster.sdk.command_line import data_dir_option
from dagmaster.sdk.terminal import echo

if TYPE_CHECKING:
    import pathlib
    from collections.abc import Awaitable, Callable

    from dagmaster.client.system import System
    from dagmaster.ports.schema_admin import RoleState

T = TypeVar("T")
HEAD: Final = "head"


force_option = click.option(
    "--force", is_flag=True, help="Go on although services are alive that cannot use the schema then."
)


@click.group(invoke_without_command=True)
@data_dir_option
@click.option(
    "--roles", is_flag=True, help="Also create the database roles that are missing, and set their rights."
)
@force_option
@click.pass_context
def migrate(ctx: click.Context, *, data_dir: pathlib.Path | None, roles: bool, force: bool) -> int:
    """Upgrade the schema of a database to the version that this code needs.

    The database is DAGMASTER_DATABASE_URL (PostgreSQL 14 to 18), else the embedded one. All tables are in the
    schema `dagapp`. A migration is atomic, and concurrent migrations are safe: only one of them changes the
    schema. With --url or DAGMASTER_URL, a server upgrades its own database to the version of its code; the
    key needs the scope admin.

    The roles dagmaster_orchestrator, dagmaster_worker and dagmaster_gateway are for services that do not
    connect as the owner of the tables. If this user may not create them, the SQL for an administrator is
    printed. With --roles they get exactly the rights that services of this version need: workers of an
    earlier version can no longer connect as dagmaster_worker.

    \b
    Examples:
      dagmaster migrate                        to the newest version
      dagmaster migrate --roles                and set the rights of the roles
      dagmaster migrate current
      dagmaster migrate downgrade base         drops the tables with all their data
    """
    ctx.obj = data_dir
    if ctx.invoked_subcommand is not None:
        if roles:
            raise click.UsageError("--roles needs no subcommand: it sets the rights of the newest version")
        return COMPLETED
    return _upgrade(data_dir, roles=roles, force=force)


@migrate.command()
@click.argument("revision", default=HEAD)
@force_option
@click.pass_obj
def upgrade(data_dir: pathlib.Path | None, revision: str, *, force: bool) -> int:
    """Upgrade to a version (default: the newest)."""
    if revision == HEAD:
        return _upgrade(data_dir, force=force)
    _refuse_server(
        data_dir, "a server cannot use a version that is older than its code: leave out the version"
    )
    from dagmaster.bootstrap.database_admin import upgrade_schema

    return _on_database(data_dir, upgrade_schema, revision, force=force)


@migrate.command()
@click.argument("revision")
@click.confirmation_option(prompt="Data that only later versions can store is lost. Continue?")
@force_option
@click.pass_obj
def downgrade(data_dir: pathlib.Path | None, revision: str, *, force: bool) -> int:
    """Downgrade to a version ('base': remove the schema). Refused while services are alive."""
    _refuse_server(
        data_dir,
        "a downgrade drops what the server itself works with, its keys included: stop all services, and run"
        " it without --url and DAGMASTER_URL, with DAGMASTER_DATABASE_URL",
    )
    from dagmaster.bootstrap.database_admin import downgrade_schema

    return _on_database(data_dir, downgrade_schema, revision, force=force)


@migrate.command()
@click.pass_obj
def current(data_dir: pathlib.Path | None) -> int:
    """Print the schema version of the database, and the one that this code (with --url the server) needs."""
    from dagmaster.application.database_admin import schema_state

    view = _run(data_dir, lambda system: system.call(schema_state))
    code = "this code" if find_server(data_dir) is None else "the server"
    echo(f"{view.version or 'none'} ({code} needs {view.newest_version})")
    return COMPLETED


@migrate.command()
@click.pass_obj
def history(data_dir: pathlib.Path | None) -> int:
    """List all schema versions, oldest first; * marks the one of the database."""
    from dagmaster.application.database_admin import schema_history

    for version in _run(data_dir, lambda system: system.call(schema_history)):
        echo(f"{'*' if version.is_current else ' '} {version.revision}  {version.description}")
    return COMPLETED


def _upgrade(data_dir: pathlib.Path | None, *, force: bool, roles: bool = False) -> int:
    is_local = find_server(data_dir) is None
    if roles:
        _refuse_server(data_dir, "--roles needs the owner of the schema: run it with DAGMASTER_DATABASE_URL")
    if is_local and not force:
        _check_services(data_dir, HEAD)

    async def work(system: System) -> tuple[str | None, str | None, RoleState | None]:
        from dagmaster.application.database_admin import grant_roles, migrate_schema, schema_state

        before = await system.call(schema_state)
        origin = ChangeOrigin(actor=sender())
        after = await system.call(migrate_schema, origin=origin)
        state = await system.call(grant_roles, is_exact=roles, origin=origin) if is_local else None
        return before.version, after.version, state

    before, after, state = _run(data_dir, work)
    _print_change(before, after)
    return COMPLETED if state is None else _print_roles(state, is_asked=roles)


def _print_roles(state: RoleState, *, is_asked: bool) -> int:
    """Print what is to do about the roles; with --roles also what was done."""
    if not state.is_owner:
        if is_asked:
            echo(f"The schema belongs to {state.owner}: set the rights of the roles as that user.", err=True)
        return FAILED if is_asked else COMPLETED
    if state.missing:
        create = "".join(f"    CREATE ROLE {role} NOLOGIN;\n" for role in state.missing)
        echo(
            f"roles: {', '.join(state.missing)} do not exist, and {state.user} may not create roles. Services"
            f" can connect as {state.user}.\n"
            f"For separate rights, run this as an administrator of the server:\n\n{create}\n"
            f"then `dagmaster migrate --roles` as {state.user}."
        )
        return FAILED if is_asked else COMPLETED
    if state.created:
        echo(f"roles: created {', '.join(state.created)}")
    if is_asked:
        echo(f"roles: {', '.join(ROLES)} have the rights of this version")
    elif state.worker_has_table_rights:
        echo(
            "roles: dagmaster_worker still has the rights on tables that earlier workers need. When all"
            " workers are replaced, run `dagmaster migrate --roles`."
        )
    return COMPLETED


def _print_change(before: str | None, after: str | None) -> None:
    if before == after:
        echo(f"schema version: {after or 'none'}; nothing to do")
    else:
        echo(f"schema version: {before or 'none'} -> {after or 'none'}")


def _run(data_dir: pathlib.Path | None, work: Callable[[System], Awaitable[T]]) -> T:
    with open_session(data_dir) as session:
        return session.run(work, part=Part.DATABASE)


def _refuse_server(data_dir: pathlib.Path | None, reason: str) -> None:
    with command_errors():
        if find_server(data_dir) is not None:
            raise click.UsageError(reason)


def _check_services(data_dir: pathlib.Path | None, revision: str) -> None:
    """Raise if services are alive that could not use the schema of a version."""
    from dagmaster.bootstrap.database_admin import check_live_services
    from dagmaster.cli.system import database_session

    with database_session(data_dir) as session:
        asyncio.run(check_live_services(session.config, session.settings, revision))


def _on_database(
    data_dir: pathlib.Path | None, change: Callable[[str, str], None], revision: str, *, force: bool
) -> int:
    """Change the schema of a database to any version."""
    if not force:
        _check_services(data_dir, revision)
    from dagmaster.application.database_admin import schema_state
    from dagmaster.cli.system import database_session

    with database_session(data_dir) as session:
        before = session.run(lambda system: system.call(schema_state), part=Part.DATABASE)
        change(session.config.dsn, revision)
        after = session.run(lambda system: system.call(schema_state), part=Part.DATABASE)
    _print_change(before.version, after.version)
    return COMPLETED
