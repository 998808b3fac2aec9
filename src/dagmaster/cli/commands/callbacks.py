"""`dagmaster callbacks`: what became of callbacks, their endpoints, and what they are signed with."""

from __future__ import annotations

import time
from dataclasses import replace
from typing import TYPE_CHECKING, Any, TypeVar

import click
from rich.table import Table

from dagmaster.application.callbacks import (
    list_callbacks,
    list_endpoints,
    pause_endpoint,
    replay_callback,
    replay_callbacks,
    resume_endpoint,
    show_callback,
)
from dagmaster.application.cursors import MAX_LIMIT
from dagmaster.application.time_points import parse_time
from dagmaster.cli.commands.callback_secrets import secrets
from dagmaster.cli.commands.jobs_control import sender
from dagmaster.cli.main import COMPLETED
from dagmaster.cli.render.text import local_time
from dagmaster.cli.system import Part, open_session
from dagmaster.ports.audit_trail import ChangeOrigin
from dagmaster.ports.callbacks import CallbackFilter
from dagmaster.records.callbacks import DeliveryStatus
from dagmaster.sdk.command_line import data_dir_option, json_option
from dagmaster.sdk.terminal import echo, echo_json, print_table
from dagmaster.text_format import age

if TYPE_CHECKING:
    import pathlib
    from collections.abc import Awaitable, Callable

    from dagmaster.application.views import CallbackChangeResult, CallbackRecord, EndpointRecord
    from dagmaster.client.system import System

T = TypeVar("T")


@click.group()
def callbacks() -> None:
    """Show callbacks, send them again, and pause endpoints.

    A job that is submitted with --callback-url notifies that address when it starts and when it ends. A
    relay, which runs in every orchestrator, delivers it: signed, at least once, in order, eight times over a
    day.
    """


def filter_options(command: Callable[..., Any]) -> Callable[..., Any]:
    for option in (
        click.option("--endpoint", metavar="ORIGIN", help="To this endpoint, as https://host."),
        click.option("--of", "subject", metavar="ID", help="Of this job, or of this request of a partner."),
        click.option("--tenant", metavar="TENANT", help="Of this tenant."),
        click.option("--since", metavar="TIME", help="Stored since then: an age (2h, 1d) or a time."),
        click.option("--until", metavar="TIME", help="Stored before then."),
    ):
        command = option(command)
    return command


@callbacks.command("list")
@click.option(
    "--status", type=click.Choice([status.value for status in DeliveryStatus]), help="With this status."
)
@filter_options
@click.option("--endpoints", is_flag=True, help="List the endpoints with their health instead.")
@click.option("--paused", is_flag=True, help="List the endpoints that are paused instead.")
@click.option(
    "--limit", type=click.IntRange(1, MAX_LIMIT), default=50, show_default=True, help="At most so many."
)
@json_option
@data_dir_option
def list_command(
    *,
    status: str | None,
    endpoints: bool,
    paused: bool,
    limit: int,
    as_json: bool,
    data_dir: pathlib.Path | None,
    **words: str | None,
) -> int:
    """List callbacks, newest first, or the endpoints that they go to.

    \b
    Examples:
      dagmaster callbacks list --status dead
      dagmaster callbacks list --paused
      dagmaster callbacks list --endpoint https://partner.example.com --since 1d
    """
    if endpoints or paused:
        records = _run(
            data_dir, lambda system: system.call(list_endpoints, is_paused=True if paused else None)
        )
        if as_json:
            echo_json([record.to_dict() for record in records])
        else:
            _print_endpoints(records, paused=paused)
        return COMPLETED
    matching = _filter(status, words)
    page = _run(data_dir, lambda system: system.call(list_callbacks, matching, limit=limit))
    if as_json:
        echo_json(page.to_dict())
        return COMPLETED
    if not page.items:
        is_filtered = status is not None or any(word is not None for word in words.values())
        nothing = "no callbacks: submit a job with --callback-url https://…"
        echo("no callbacks match" if is_filtered else nothing, err=True)
        return COMPLETED
    _print_callbacks(page.items)
    if page.next_cursor is not None:
        echo(f"these are the newest {limit}; narrow the list, or raise --limit", err=True)
    return COMPLETED


@callbacks.command()
@click.argument("callback_id", metavar="CALLBACK")
@json_option
@data_dir_option
def show(callback_id: str, *, as_json: bool, data_dir: pathlib.Path | None) -> int:
    """Show a callback, and what became of it."""
    record = _run(data_dir, lambda system: system.call(show_callback, callback_id))
    if as_json:
        echo_json(record.to_dict())
        return COMPLETED
    for name, value in record.to_dict().items():
        if value is not None:
            echo(f"{name.replace('_', ' '):16} {value}")
    return COMPLETED


@callbacks.command()
@click.argument("callback_id", metavar="[CALLBACK]", required=False)
@filter_options
@click.option("--delivered", is_flag=True, help="Those that were delivered, instead of dead ones.")
@json_option
@data_dir_option
def replay(
    callback_id: str | None,
    *,
    delivered: bool,
    as_json: bool,
    data_dir: pathlib.Path | None,
    **words: str | None,
) -> int:
    """Send a callback again, or all dead ones that match. The ids stay: receivers see that it is the same.

    \b
    Examples:
      dagmaster callbacks replay msg_3202875d1f8f489ab7b0aeed3d3ab9d6
      dagmaster callbacks replay --endpoint https://partner.example.com
      dagmaster callbacks replay --since 2026-11-16T08:00:00Z --until 2026-11-16T09:00:00Z --delivered
    """
    matching = _filter(DeliveryStatus.DELIVERED if delivered else DeliveryStatus.DEAD, words)
    if callback_id is not None:
        if delivered or any(words.values()):
            raise click.UsageError("name a callback, or say which ones: not both")
        key = callback_id
        result = _run(data_dir, lambda system: system.call(replay_callback, key, origin=_origin()))
    elif not delivered and not any(words.values()):
        raise click.UsageError("name a callback, or say which ones: --endpoint, --of, --since")
    else:
        result = _run_in_batches(
            data_dir,
            lambda system, cursor: system.call(replay_callbacks, matching, cursor=cursor, origin=_origin()),
        )
    return _print_result(result, as_json=as_json)


@callbacks.command()
@click.argument("endpoint")
@click.option("--tenant", help="Of this tenant only.")
@json_option
@data_dir_option
def pause(endpoint: str, *, tenant: str | None, as_json: bool, data_dir: pathlib.Path | None) -> int:
    """Send nothing more to ENDPOINT, as https://partner.example.com. Its callbacks wait."""
    result = _run(
        data_dir, lambda system: system.call(pause_endpoint, endpoint, origin=_origin(), tenant=tenant)
    )
    return _print_result(result, as_json=as_json)


@callbacks.command()
@click.argument("endpoint")
@click.option("--tenant", help="Of this tenant only.")
@json_option
@data_dir_option
def resume(endpoint: str, *, tenant: str | None, as_json: bool, data_dir: pathlib.Path | None) -> int:
    """Send to ENDPOINT again: what waits, and what died since it began to fail, in order."""
    result = _run_in_batches(
        data_dir,
        lambda system, _cursor: system.call(resume_endpoint, endpoint, origin=_origin(), tenant=tenant),
    )
    return _print_result(result, as_json=as_json)


def _filter(status: str | None, words: dict[str, str | None]) -> CallbackFilter:
    now = time.time()
    times = {}
    for name in ("since", "until"):
        try:
            text = words[name]
            times[name] = None if text is None else parse_time(text, now)
        except ValueError as error:
            raise click.UsageError(f"--{name}: {error}") from None
    endpoint = words["endpoint"]
    return CallbackFilter(
        status=None if status is None else DeliveryStatus(status),
        endpoint=None if endpoint is None else endpoint.rstrip("/").lower(),
        tenant=words["tenant"],
        subject=words["subject"],
        **times,
    )


def _print_callbacks(records: tuple[CallbackRecord, ...]) -> None:
    table, now = Table(box=None, pad_edge=False), time.time()
    for column in ("callback", "of", "state", "status", "tries", "endpoint", "last error"):
        table.add_column(column, no_wrap=column in {"callback", "of", "endpoint"}, overflow="fold")
    for record in records:
        subject = f"job {record.job_id}" if record.request_id is None else f"request {record.request_id}"
        status = record.status.value
        if record.next_attempt_at is not None and record.next_attempt_at > now:
            status = f"in {age(record.next_attempt_at - now)}"
        error = record.last_error or ""
        table.add_row(
            record.callback_id,
            subject,
            record.state.value,
            status,
            str(record.attempts),
            record.endpoint,
            error,
        )
    print_table(table)


def _print_endpoints(records: list[EndpointRecord], *, paused: bool) -> None:
    if not records:
        echo("no endpoint is paused" if paused else "no endpoints: no callback was stored yet", err=True)
        return
    table = Table(box=None, pad_edge=False)
    for column in ("endpoint", "tenant", "state", "waiting", "dead", "last error"):
        table.add_column(column, no_wrap=column not in {"state", "last error"}, overflow="fold")
    for record in records:
        state = "healthy"
        if record.paused_at is not None:
            state = f"paused ({record.pause_reason}) since {local_time(record.paused_at)}"
        elif record.failing_since is not None:
            state = f"failing since {local_time(record.failing_since)}"
        row = (record.endpoint, record.tenant, state, str(record.waiting), str(record.dead))
        table.add_row(*row, record.last_error or "")
    print_table(table)


def _print_result(result: CallbackChangeResult, *, as_json: bool) -> int:
    if as_json:
        echo_json(result.to_dict())
    else:
        echo(result.sentence, err=True)
    return COMPLETED


def _origin() -> ChangeOrigin:
    return ChangeOrigin(actor=sender())


def _run(data_dir: pathlib.Path | None, work: Callable[[System], Awaitable[T]]) -> T:
    with open_session(data_dir) as session:
        return session.run(work, migrate=True, part=Part.CALLBACKS)


def _run_in_batches(
    data_dir: pathlib.Path | None,
    work: Callable[[System, str | None], Awaitable[CallbackChangeResult]],
) -> CallbackChangeResult:
    """Change callbacks until none is left; print what was done after each batch. The counts are added up."""

    async def run(system: System) -> CallbackChangeResult:
        result = await work(system, None)
        total = result.count
        while result.left:
            echo(f"… {result.left:,} are left", err=True)
            result = await work(system, result.next_cursor)
            total += result.count
        if total != result.count:
            result = replace(result, count=total, sentence=f"In all {total:,}. {result.sentence}")
        return result

    return _run(data_dir, run)


callbacks.add_command(secrets)
