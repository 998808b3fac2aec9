"""`dagmaster keys`: the keys of callers of the HTTP API."""

from __future__ import annotations

import time
from typing import TYPE_CHECKING, TypeVar

import click
from rich.table import Table

from dagmaster.application.api_keys import MAX_OVERLAP_HOURS, create_key, list_keys, revoke_key, rotate_key
from dagmaster.application.cursors import MAX_LIMIT
from dagmaster.cli.commands.jobs_control import sender
from dagmaster.cli.main import COMPLETED
from dagmaster.cli.render.text import local_time
from dagmaster.cli.system import Part, open_session
from dagmaster.ports.api_keys import Scope
from dagmaster.ports.audit_trail import ChangeOrigin
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
@json_option
@data_dir_option
def create(
    name: str, *, scopes: tuple[str, ...], days: float | None, as_json: bool, data_dir: pathlib.Path | None
) -> int:
    """Create a key for the caller NAME. It is shown once: only its digest is stored.

    \b
    Examples:
      dagmaster keys create ops --scope admin
      export DAGMASTER_KEY=$(dagmaster keys create ci --scope submit --scope read --days 90)
    """
    chosen = [Scope(scope) for scope in scopes]
    view = _run(
        data_dir,
        lambda system: system.call(create_key, name, chosen, origin=_origin(), now=time.time(), days=days),
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
        table.add_row(view.key_id, view.name, ", ".join(view.scopes), created, used, _state(view, now))
    open_console().print(table)
    return COMPLETED


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


def _print_new(view: NewApiKeyView, *, as_json: bool) -> int:
    if as_json:
        echo_json(view.to_dict())
    else:
        echo(f"key {view.key_id} of {view.name}: {', '.join(view.scopes)}. It is not shown again:", err=True)
        echo(view.key)
    return COMPLETED


def _origin() -> ChangeOrigin:
    return ChangeOrigin(actor=sender())


def _run(
    data_dir: pathlib.Path | None, work: Callable[[System], Awaitable[T]], *, migrate: bool = False
) -> T:
    with open_session(data_dir) as session:
        return session.run(work, migrate=migrate, part=Part.KEYS)
