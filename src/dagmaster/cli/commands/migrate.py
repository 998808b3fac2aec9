"""`dagmaster migrate`: the version of a database's schema."""

from __future__ import annotations

import asyncio
import pathlib
from typing import TYPE_CHECKING

import click

from dagmaster.bootstrap import database
from dagmaster.cli.errors import CommandError
from dagmaster.cli.main import COMPLETED
from dagmaster.errors import DagmasterError
from dagmaster.store.postgres import schema_version as schema

if TYPE_CHECKING:
    from collections.abc import Callable


@click.group(invoke_without_command=True)
@click.option(
    "--data-dir",
    type=click.Path(path_type=pathlib.Path, file_okay=False),
    help="The embedded PostgreSQL's data. Default: DAGMASTER_DATA_DIR, else one for each user.",
)
@click.pass_context
def migrate(ctx: click.Context, *, data_dir: pathlib.Path | None) -> int:
    """Bring a database's schema to the version of this code.

    The database is DAGMASTER_DATABASE_URL (PostgreSQL 14 to 18), else the embedded one. Everything stands in the schema
    `dagapp`. A migration works as a whole or changes nothing, and two that start at once do it once.

    \b
    Examples:
      dagmaster migrate                        the newest version
      dagmaster migrate current
      dagmaster migrate downgrade base         removes the tables, and all that is in them
    """
    ctx.obj = data_dir
    return _upgrade(data_dir, "head") if ctx.invoked_subcommand is None else COMPLETED


@migrate.command()
@click.argument("revision", default="head")
@click.pass_obj
def upgrade(data_dir: pathlib.Path | None, revision: str) -> int:
    """Go to a version; the newest unless one is named."""
    return _upgrade(data_dir, revision)


@migrate.command()
@click.argument("revision")
@click.confirmation_option(prompt="What only the later versions have is lost. Go on?")
@click.pass_obj
def downgrade(data_dir: pathlib.Path | None, revision: str) -> int:
    """Go back to a version ('base': before the first one)."""

    def work(dsn: str) -> str:
        schema.downgrade(dsn, revision)
        return f"the schema is of version {asyncio.run(schema.current(dsn)) or 'none'}"

    return _on_database(data_dir, work)


@migrate.command()
@click.pass_obj
def current(data_dir: pathlib.Path | None) -> int:
    """Tell the version that the database has, and the one that this code wants."""

    def work(dsn: str) -> str:
        found = asyncio.run(schema.current(dsn))
        return f"{found or 'none'} (this code wants {schema.HEAD})"

    return _on_database(data_dir, work)


@migrate.command()
@click.pass_obj
def history(data_dir: pathlib.Path | None) -> int:
    """List the versions, oldest first; the database's own is marked."""

    def work(dsn: str) -> str:
        versions = schema.history(asyncio.run(schema.current(dsn)))
        return "\n".join(f"{'*' if each.is_current else ' '} {each.revision}  {each.what}" for each in versions)

    return _on_database(data_dir, work)


def _upgrade(data_dir: pathlib.Path | None, revision: str) -> int:
    def work(dsn: str) -> str:
        before = asyncio.run(schema.current(dsn))
        schema.upgrade(dsn, revision)
        after = asyncio.run(schema.current(dsn))
        if before == after:
            return f"the schema is of version {after}: nothing to do"
        return f"the schema went from version {before or 'none'} to {after}"

    return _on_database(data_dir, work)


def _on_database(data_dir: pathlib.Path | None, work: Callable[[str], str]) -> int:
    try:
        with database(data_dir=data_dir) as dsn:
            said = work(dsn)
    except DagmasterError as error:
        raise CommandError(error) from error
    click.echo(said)
    return COMPLETED
