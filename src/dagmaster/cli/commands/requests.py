"""`dagmaster requests`: what partners asked for."""

from __future__ import annotations

import time
from typing import TYPE_CHECKING

import click
from rich.table import Table

from dagmaster.cli.main import COMPLETED
from dagmaster.cli.options import page_options
from dagmaster.cli.render.text import local_time
from dagmaster.cli.system import on_system
from dagmaster.ports.requests import RequestFilter
from dagmaster.records.requests import RequestStatus
from dagmaster.sdk.command_line import data_dir_option, json_option
from dagmaster.sdk.terminal import echo, echo_json, print_table
from dagmaster.text_format import age

if TYPE_CHECKING:
    import pathlib
    from collections.abc import Iterator

    from dagmaster.application.views import RequestRecord


@click.group()
def requests() -> None:
    """List what partners asked for, and the jobs that it led to."""


@requests.command("list", epilog="Exit codes: 0 listed, 2 the cursor is not valid, 3 no database.")
@click.option(
    "--status",
    "statuses",
    multiple=True,
    type=click.Choice([status.value for status in RequestStatus]),
    help="Only requests with this status (repeatable).",
)
@click.option("--platform", "platform_id", metavar="ID", help="Only requests with ids of this platform.")
@click.option("--workflow", "workflow_id", metavar="ID", help="Only requests for this workflow.")
@click.option("--tenant", metavar="NAME", help="Only requests of this tenant.")
@click.option("--actor", metavar="NAME", help="Only requests that this key or user sent.")
@click.option("--idempotency-key", metavar="KEY", help="Only the request that was sent with this key.")
@page_options(default_limit=20)
@json_option
@data_dir_option
def list_command(
    *,
    statuses: tuple[str, ...],
    platform_id: str | None,
    workflow_id: str | None,
    tenant: str | None,
    actor: str | None,
    idempotency_key: str | None,
    limit: int,
    cursor: str | None,
    as_json: bool,
    data_dir: pathlib.Path | None,
) -> int:
    """List requests, newest first.

    \b
    Examples:
      dagmaster requests list --status failed
      dagmaster requests list --tenant acme --platform ddh
    """
    from dagmaster.application.queries.requests import list_requests

    request_filter = RequestFilter(
        statuses=frozenset(map(RequestStatus, statuses)),
        tenant=tenant,
        workflow_id=workflow_id,
        platform_id=platform_id,
        actor=actor,
        idempotency_key=idempotency_key,
    )
    page = on_system(
        data_dir, lambda system: system.call(list_requests, request_filter, cursor=cursor, limit=limit)
    )
    if as_json:
        echo_json(page.to_dict())
        return COMPLETED
    if page.items:
        print_table(_table(page.items))
    else:
        echo("no more requests" if cursor is not None else "no request matches", err=True)
    if page.next_cursor is not None:
        echo(f"there are more: add --cursor {page.next_cursor}", err=True)
    return COMPLETED


@requests.command(epilog="Exit codes: 0 shown, 2 no such request, 3 no database.")
@click.argument("request_id", metavar="REQUEST")
@json_option
@data_dir_option
def show(request_id: str, *, as_json: bool, data_dir: pathlib.Path | None) -> int:
    """Show a request: what was asked, its job, or why no job could start.

    \b
    Example:
      dagmaster requests show 0b8e6a1c-4f7d-4f0e-9d55-3a5a0c1f2b3d
    """
    from dagmaster.application.queries.requests import show_request

    record = on_system(data_dir, lambda system: system.call(show_request, request_id))
    if as_json:
        echo_json(record.to_dict())
        return COMPLETED
    for name, text in _lines(record):
        echo(f"{name:<12} {text}")
    if record.job_id is not None:
        echo(f"\ndagmaster jobs show {record.job_id}", err=True)
    return COMPLETED


def _table(records: tuple[RequestRecord, ...]) -> Table:
    table, now = Table(box=None, pad_edge=False), time.time()
    has_tenants = len({record.tenant for record in records}) > 1
    tenant_column = ("tenant",) if has_tenants else ()
    for column in ("request", "status", *tenant_column, "workflow", "platform", "job", "age"):
        table.add_column(column, no_wrap=column != "workflow", overflow="fold")
    for record in records:
        tenant = (record.tenant,) if has_tenants else ()
        table.add_row(
            *(record.request_id, record.status.value, *tenant, record.workflow_id),
            *(record.platform_id or "-", record.job_id or "-", age(now - record.submitted_at)),
        )
    return table


def _lines(record: RequestRecord) -> Iterator[tuple[str, str]]:
    yield "request", record.request_id
    yield "status", record.status.value + (" (sandbox)" if record.is_sandbox else "")
    yield "tenant", record.tenant
    yield "workflow", record.workflow_id
    if record.platform_id is not None:
        refs = ", ".join(f"{name}={value}" for name, value in (record.platform_refs or {}).items())
        yield "platform", f"{record.platform_id} {refs}".strip()
    yield "sent by", record.actor + (f", for {record.submitted_by}" if record.submitted_by else "")
    yield "submitted", local_time(record.submitted_at)
    if record.completed_at is not None:
        yield "ended", local_time(record.completed_at)
    if record.job_id is not None:
        yield "job", record.job_id
    if record.rejection is not None:
        yield "rejected", f"{record.rejection['message']} ({record.rejection['code']})"
    if record.callback_url is not None:
        yield "callback", record.callback_url
