"""`dagmaster migrate`: bring the schema of a database to a version."""

from __future__ import annotations

from typing import TYPE_CHECKING

import click

from dagmaster.bootstrap import database
from dagmaster.bootstrap.database_admin import (
    downgrade_schema,
    migrate_schema,
    read_schema_version,
    schema_history,
)
from dagmaster.cli.errors import command_errors
from dagmaster.cli.main import COMPLETED
from dagmaster.cli.options import data_dir_option

if TYPE_CHECKING:
    import pathlib
    from collections.abc import Callable


@click.group(invoke_without_command=True)
@data_dir_option
@click.pass_context
def migrate(ctx: click.Context, *, data_dir: pathlib.Path | None) -> int:
    """Upgrade the schema of a database to the version that this code needs.

    The database is DAGMASTER_DATABASE_URL (PostgreSQL 14 to 18), else the embedded one. All tables are in the schema
    `dagapp`. A migration is atomic, and concurrent migrations are safe: only one of them changes the schema.

    \b
    Examples:
      dagmaster migrate                        to the newest version
      dagmaster migrate current
      dagmaster migrate downgrade base         drops the tables with all their data
    """
    ctx.obj = data_dir
    return _upgrade(data_dir, "head") if ctx.invoked_subcommand is None else COMPLETED


@migrate.command()
@click.argument("revision", default="head")
@click.pass_obj
def upgrade(data_dir: pathlib.Path | None, revision: str) -> int:
    """Upgrade to a version (default: the newest)."""
    return _upgrade(data_dir, revision)


@migrate.command()
@click.argument("revision")
@click.confirmation_option(prompt="Data that only later versions can store is lost. Continue?")
@click.pass_obj
def downgrade(data_dir: pathlib.Path | None, revision: str) -> int:
    """Downgrade to a version ('base': remove the schema)."""

    def work(dsn: str) -> str:
        downgrade_schema(dsn, revision)
        return f"schema version: {_version(dsn)}"

    return _on_database(data_dir, work)


@migrate.command()
@click.pass_obj
def current(data_dir: pathlib.Path | None) -> int:
    """Print the schema version of the database, and the one that this code needs."""

    def work(dsn: str) -> str:
        version, required = read_schema_version(dsn)
        return f"{version or 'none'} (this code needs {required})"

    return _on_database(data_dir, work)


@migrate.command()
@click.pass_obj
def history(data_dir: pathlib.Path | None) -> int:
    """List all schema versions, oldest first; * marks the one of the database."""

    def work(dsn: str) -> str:
        versions = schema_history(dsn)
        return "\n".join(
            f"{'*' if version.is_current else ' '} {version.revision}  {version.description}" for version in versions
        )

    return _on_database(data_dir, work)


def _upgrade(data_dir: pathlib.Path | None, revision: str) -> int:
    def work(dsn: str) -> str:
        before = _version(dsn)
        migrate_schema(dsn, revision)
        after = _version(dsn)
        if before == after:
            return f"schema version: {after}; nothing to do"
        return f"schema version: {before} -> {after}"

    return _on_database(data_dir, work)


def _version(dsn: str) -> str:
    return read_schema_version(dsn)[0] or "none"


def _on_database(data_dir: pathlib.Path | None, work: Callable[[str], str]) -> int:
    with command_errors(), database(data_dir=data_dir) as dsn:
        message = work(dsn)
    click.echo(message)
    return COMPLETED
