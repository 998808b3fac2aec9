"""`dagmaster secrets-key`: the key that encrypts secret inputs."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING

import click

from dagmaster.cli.main import COMPLETED, FAILED
from dagmaster.cli.system import database_session
from dagmaster.sdk.command_line import data_dir_option, json_option
from dagmaster.sdk.terminal import echo, echo_json
from dagmaster.text_format import format_count

if TYPE_CHECKING:
    import pathlib
    from collections.abc import Awaitable, Callable

    from dagmaster.application.secret_keys import SecretKeys
    from dagmaster.application.views.secret_keys import SecretKeysView
    from dagmaster.cli.system import DatabaseSession


@click.group("secrets-key")
def secrets_key() -> None:
    """Make, check and rotate the key that encrypts secret inputs.

    The key is in DAGMASTER_SECRETS_KEY or in the file DAGMASTER_SECRETS_KEY_FILE, never in the database.
    With the embedded PostgreSQL it is made by itself, next to the data directory. Keep a copy where the
    backups of the database are not: without it, secret inputs of stored jobs cannot be read.
    """


@secrets_key.command()
def create() -> int:
    """Print a new key. Nothing is stored.

    \b
    Examples:
      (umask 077; dagmaster secrets-key create > /etc/dagmaster/secrets-key)
      export DAGMASTER_SECRETS_KEY=$(dagmaster secrets-key create)
    """
    from dagmaster.bootstrap.secret_keys import new_key

    echo(new_key())
    return COMPLETED


@secrets_key.command()
@json_option
@data_dir_option
def check(*, as_json: bool, data_dir: pathlib.Path | None) -> int:
    """Show how many jobs, queued tasks and signing secrets need which key, and which keys are here.

    The exit code is 1 if a row needs a key that is not here.

    \b
    Example:
      dagmaster secrets-key check
    """
    from dagmaster.application.secret_keys import check_keys

    return _print(_run(data_dir, check_keys), as_json=as_json)


@secrets_key.command()
@click.option("--lost", is_flag=True, help="The current key is lost: give up what only it can read.")
@json_option
@data_dir_option
def rotate(*, lost: bool, as_json: bool, data_dir: pathlib.Path | None) -> int:
    """Encrypt all secret inputs with the newest key, the first one of DAGMASTER_SECRETS_KEY.

    Give every process both keys first: NEW,OLD. Jobs run on meanwhile. Values that an earlier version
    stored as they are, are encrypted. It may be stopped at any point, and run again: it goes on with what
    is left. When `check` shows no row of the old key, take the key from the orchestrators; then `check`
    again, and take it from the others.

    With --lost a new key replaces one that nobody has. Jobs whose secret inputs only that key could read
    fail where they use them; submit them again.

    \b
    Examples:
      DAGMASTER_SECRETS_KEY=NEW,OLD dagmaster secrets-key rotate
      DAGMASTER_SECRETS_KEY=NEW dagmaster secrets-key rotate --lost
    """
    from dagmaster.application.secret_keys import rotate_keys

    return _print(_run(data_dir, lambda keys: rotate_keys(keys, is_lost=lost)), as_json=as_json)


def _run(
    data_dir: pathlib.Path | None, work: Callable[[SecretKeys], Awaitable[SecretKeysView]]
) -> SecretKeysView:
    from dagmaster.bootstrap.secret_keys import open_secret_keys

    async def run(session: DatabaseSession) -> SecretKeysView:
        async with open_secret_keys(session.config, session.settings) as keys:
            return await work(keys)

    with database_session(data_dir) as session:
        return asyncio.run(run(session))


def _print(view: SecretKeysView, *, as_json: bool) -> int:
    if as_json:
        echo_json(view.to_dict())
    else:
        if not view.keys:
            echo("no key is registered: no job has had a secret input", err=True)
        for key in view.keys:
            rows = f"{format_count(key.jobs, 'job')}, {format_count(key.tasks, 'queued task')}"
            if key.signing_secrets:
                rows += f", {format_count(key.signing_secrets, 'signing secret')}"
            place = "here" if key.is_here else "not here"
            echo(f"{key.key_id}  {rows}  {place}{', current' if key.is_current else ''}")
        if view.clear_jobs or view.clear_tasks:
            rows = f"{format_count(view.clear_jobs, 'job')}, {format_count(view.clear_tasks, 'queued task')}"
            echo(f"not encrypted  {rows}  `dagmaster secrets-key rotate` encrypts them")
    return FAILED if any(key.is_needed and not key.is_here for key in view.keys) else COMPLETED
