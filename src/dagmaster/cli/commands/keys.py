"""`dagmaster keys`: the keys of callers of the HTTP API."""

from __future__ import annotations

import asyncio
import time
from typing import TYPE_CHECKING, TypeVar

import click
from rich.table import Table

from dagmaster.application.api_keys import MAX_OVERLAP_HOURS, create_key, list_keys, revoke_key, rotate_key
from dagmaster.application.browser_sessions import list_sessions, revoke_session
from dagmaster.application.cursors import MAX_LIMIT
from dagmaster.cli.commands.jobs_control import sender
from dagmaster.cli.http_address import PORT
from dagmaster.cli.main import COMPLETED
from dagmaster.cli.render.text import local_time
from dagmaster.cli.system import DatabaseSession, Part, database_session, open_session
from dagmaster.ports.api_keys import KeyLimits, Scope
from dagmaster.ports.audit_trail import ChangeOrigin
from dagmaster.ports.tenants import DEFAULT_TENANT
from dagmaster.sdk.command_line import data_dir_option, json_option
from dagmaster.sdk.terminal import echo, echo_json, open_console
from dagmaster.text_format import age

if TYPE_CHECKING:
    import pathlib
    from collections.abc import Awaitable, Callable

    from dagmaster.application.views import ApiKeyView, NewApiKeyView
    from dagmaster.client.system import System

T = TypeVar("T")
_DATE, _MINUTE = len("2026-11-17"), len("2026-11-17 18:00")


@click.group()
def keys() -> None:
    """Manage the keys of callers of the HTTP API."""


@keys.command()
@click.argument("name")
@click.option(
    "--scope",
    "scopes",
    multiple=True,
    required=True,
    type=click.Choice([scope.value for scope in Scope]),
    help="What the caller may do (repeatable). admin includes all but work.",
)
@click.option("--days", type=float, help="How long the key is valid.  [default: until it is revoked]")
@click.option("--queue", "queues", multiple=True, help="For work: claim from this queue only (repeatable).")
@click.option(
    "--handler", "handlers", multiple=True, help="For work: claim tasks of this handler only (repeatable)."
)
@click.option(
    "--workflow", "workflows", multiple=True, help="For submit: submit this workflow only (repeatable)."
)
@click.option("--own", "is_own", is_flag=True, help="Reach only jobs that this key submitted.")
@click.option(
    "--sandbox", "is_sandbox", is_flag=True, help="Play the outcomes of its requests: nothing is started."
)
@click.option(
    "--tenant",
    default=DEFAULT_TENANT,
    show_default=True,
    metavar="NAME",
    help="Whose jobs the key submits and sees (dagmaster tenants create).",
)
@json_option
@data_dir_option
def create(
    name: str,
    *,
    scopes: tuple[str, ...],
    days: float | None,
    queues: tuple[str, ...],
    handlers: tuple[str, ...],
    workflows: tuple[str, ...],
    is_own: bool,
    is_sandbox: bool,
    tenant: str,
    as_json: bool,
    data_dir: pathlib.Path | None,
) -> int:
    """Create a key for the caller NAME. It is shown once: only its digest is stored.

    A key can be narrowed. With --handler, its workers may have these handlers even if their contract is
    another's. Jobs of a key with --own are those that keys of the same name submitted. With the scope submit,
    a key reads the jobs that it submitted, without the scope read.

    \b
    Examples:
      dagmaster keys create ops --scope admin
      export DAGMASTER_KEY=$(dagmaster keys create ci --scope submit --scope read --days 90)
      dagmaster keys create gpu --scope work --queue gpu --handler thumbnail
      dagmaster keys create acme-test --scope submit --sandbox
      dagmaster keys create portal --scope submit --tenant acme
    """
    chosen = [Scope(scope) for scope in scopes]
    limits = KeyLimits(queues=queues, handlers=handlers, workflows=workflows, is_own=is_own)
    view = _run(
        data_dir,
        lambda system: system.call(
            create_key,
            name,
            chosen,
            origin=_origin(),
            now=time.time(),
            days=days,
            limits=limits,
            is_sandbox=is_sandbox,
            tenant=tenant,
        ),
        migrate=True,
    )
    return _print_new(view, as_json=as_json)


@keys.command("list")
@json_option
@data_dir_option
def list_command(*, as_json: bool, data_dir: pathlib.Path | None) -> int:
    """List all keys, without their secrets."""
    views = _run(data_dir, _list_all)
    if as_json:
        echo_json([view.to_dict() for view in views])
        return COMPLETED
    if not views:
        echo("no keys yet: dagmaster keys create NAME --scope read", err=True)
        return COMPLETED
    table, now = Table(box=None, pad_edge=False), time.time()
    for column in ("key", "name", "scopes", "created", "last used", "state"):
        table.add_column(column, no_wrap=column not in ("name", "scopes"))
    for view in views:
        used = "never" if view.last_used_at is None else f"{age(now - view.last_used_at)} ago"
        created = local_time(view.created_at)[:_DATE]
        table.add_row(view.key_id, view.name, format_rights(view), created, used, _state(view, now))
    open_console().print(table)
    return COMPLETED


def format_rights(view: ApiKeyView) -> str:
    """Format the scopes of a key, and what it is narrowed to."""
    narrowed = (("queue", view.queues), ("handler", view.handlers), ("workflow", view.workflows))
    words = [f"{noun} {name}" for noun, names in narrowed for name in names]
    return ", ".join(
        (
            *view.scopes,
            *words,
            *(("own jobs",) if view.is_own else ()),
            *(("sandbox",) if view.is_sandbox else ()),
            *((f"tenant {view.tenant}",) if view.tenant != DEFAULT_TENANT else ()),
        )
    )


def _state(view: ApiKeyView, now: float) -> str:
    if view.revoked_at is not None:
        return "revoked"
    if view.expires_at is None:
        return "valid"
    # A rotated key has some hours left.
    text = local_time(view.expires_at)[: _DATE if view.expires_at > now + 2 * 86_400 else _MINUTE]
    return f"until {text}" if now < view.expires_at else "expired"


async def _list_all(system: System) -> list[ApiKeyView]:
    page = await system.call(list_keys, limit=MAX_LIMIT)
    views = list(page.items)
    while page.next_cursor is not None:
        page = await system.call(list_keys, cursor=page.next_cursor, limit=MAX_LIMIT)
        views += page.items
    return views


@keys.command()
@click.argument("key_id")
@json_option
@data_dir_option
def revoke(key_id: str, *, as_json: bool, data_dir: pathlib.Path | None) -> int:
    """Revoke a key. Requests with it are rejected within 5 seconds."""
    view = _run(data_dir, lambda system: system.call(revoke_key, key_id, origin=_origin()))
    if as_json:
        echo_json(view.to_dict())
    else:
        echo(f"revoked key {view.key_id} of {view.name}", err=True)
    return COMPLETED


@keys.command()
@click.argument("key_id")
@click.option(
    "--overlap-hours",
    type=click.FloatRange(0, MAX_OVERLAP_HOURS),
    default=24.0,
    show_default=True,
    help="How long the old key stays valid.",
)
@json_option
@data_dir_option
def rotate(key_id: str, *, overlap_hours: float, as_json: bool, data_dir: pathlib.Path | None) -> int:
    """Replace a key by a new one with the same name, scopes and life. It is shown once.

    \b
    Example:
      dagmaster keys rotate 3f1c2a9b7d10 --overlap-hours 1
    """
    view = _run(
        data_dir,
        lambda system: system.call(
            rotate_key, key_id, origin=_origin(), now=time.time(), overlap_hours=overlap_hours
        ),
    )
    return _print_new(view, as_json=as_json)


@keys.command("login-link")
@click.option(
    "--server",
    "address",
    default=f"http://127.0.0.1:{PORT}",
    show_default=True,
    metavar="ADDRESS",
    help="Where the browser reaches the web page.",
)
@data_dir_option
def login_link(address: str, *, data_dir: pathlib.Path | None) -> int:
    """Print a link that logs a browser in once, within 15 minutes, as the user of this machine.

    It needs the database, and the key that `dagmaster dev` made next to the data directory.
    """
    from dagmaster.bootstrap.http_server import ensure_local_key, make_login_link

    async def make(session: DatabaseSession) -> str:
        key_file = await ensure_local_key(session.config, session.settings, data_dir)
        return await make_login_link(session.config, key_file)

    with database_session(data_dir) as session:
        echo(login_address(address.rstrip("/"), asyncio.run(make(session))))
    return COMPLETED


def login_address(address: str, code: str) -> str:
    """Return the link with a code: after the #, so that no browser sends it and no proxy logs it."""
    return f"{address}/ui/#login={code}"


@keys.command("sessions")
@json_option
@data_dir_option
def sessions_command(*, as_json: bool, data_dir: pathlib.Path | None) -> int:
    """List the sessions of browsers that have not ended."""
    views = _run(data_dir, lambda system: system.call(list_sessions))
    if as_json:
        echo_json([view.to_dict() for view in views])
        return COMPLETED
    if not views:
        echo("no browser is logged in", err=True)
        return COMPLETED
    table = Table(box=None, pad_edge=False)
    for column in ("session", "caller", "key", "since", "until"):
        table.add_column(column, no_wrap=column != "caller")
    for view in views:
        since, until = (local_time(at)[:_MINUTE] for at in (view.created_at, view.expires_at))
        table.add_row(view.session_id, view.caller, view.key_id, since, until)
    open_console().print(table)
    return COMPLETED


@keys.command("revoke-session")
@click.argument("session_id")
@json_option
@data_dir_option
def revoke_session_command(session_id: str, *, as_json: bool, data_dir: pathlib.Path | None) -> int:
    """End a session of a browser. Its requests are rejected within 5 seconds."""
    view = _run(data_dir, lambda system: system.call(revoke_session, session_id, origin=_origin()))
    if as_json:
        echo_json(view.to_dict())
    else:
        echo(f"ended session {view.session_id} of {view.caller}", err=True)
    return COMPLETED


def _print_new(view: NewApiKeyView, *, as_json: bool) -> int:
    if as_json:
        echo_json(view.to_dict())
    else:
        echo(f"key {view.key_id} of {view.name}: {format_rights(view)}. It is not shown again:", err=True)
        echo(view.key)
    return COMPLETED


def _origin() -> ChangeOrigin:
    return ChangeOrigin(actor=sender())


def _run(
    data_dir: pathlib.Path | None, work: Callable[[System], Awaitable[T]], *, migrate: bool = False
) -> T:
    with open_session(data_dir) as session:
        return session.run(work, migrate=migrate, part=Part.KEYS)
