"""`dagmaster tenants`: teams and partners on one installation that do not see each other."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final, TypeVar

import click
from rich.table import Table

from dagmaster.application.tenants import TenantChanges, create_tenant, list_tenants, set_tenant, show_tenant
from dagmaster.cli.commands.jobs_control import sender
from dagmaster.cli.main import COMPLETED
from dagmaster.cli.render.text import DIM, local_time
from dagmaster.cli.system import Part, open_session
from dagmaster.ports.audit_trail import ChangeOrigin
from dagmaster.ports.tenants import TENANT_FIELDS
from dagmaster.sdk.command_line import data_dir_option, json_option
from dagmaster.sdk.terminal import echo, echo_json, open_console

if TYPE_CHECKING:
    import pathlib
    from collections.abc import Awaitable, Callable

    from dagmaster.application.views import TenantRecord
    from dagmaster.client.system import System

T = TypeVar("T")
F = TypeVar("F", bound="Callable[..., Any]")
NONE: Final = "none"
"""What stands for no limit, and for an empty list."""


class Limit(click.ParamType[Any]):
    """A number, or `none`."""

    name = "limit"

    def __init__(self, number: type[int | float]) -> None:
        self._number = number

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> Any:
        if value == NONE:
            return NONE
        try:
            return self._number(value)
        except ValueError:
            self.fail(f"{value!r} is neither a number nor {NONE}", param, ctx)


def _options(command: F) -> F:
    """Add the options that set something of a tenant."""
    for name, field in reversed(tuple(TENANT_FIELDS.items())):
        is_list = field.type is list
        option = click.option(
            field.option,
            name,
            multiple=is_list,
            type=None if field.type in (list, str) else Limit(field.type),
            metavar=field.metavar,
            help=f"{field.help}{' Repeatable; replaces the list.' if is_list else ''}",
        )
        command = option(command)
    return command


@click.group()
def tenants() -> None:
    """Manage tenants: teams and partners on one installation that do not see each other.

    A tenant has its own jobs, keys and workflows. Without any, everything belongs to `default`, the
    installation itself, whose administrators see all.
    """


@tenants.command()
@click.argument("name")
@_options
@json_option
@data_dir_option
def create(name: str, *, as_json: bool, data_dir: pathlib.Path | None, **options: Any) -> int:
    """Create the tenant NAME. Make keys for it afterwards.

    \b
    Examples:
      dagmaster tenants create acme --title "Acme Inc." --workflow '*' --max-open-jobs 100
      dagmaster keys create portal --scope submit --tenant acme
    """
    changes = TenantChanges(fields=_fields(options))
    record = _run(
        data_dir, lambda system: system.call(create_tenant, name, changes, origin=_origin()), migrate=True
    )
    if as_json:
        echo_json(record.to_dict())
    else:
        echo(
            f"created the tenant {name}: dagmaster keys create NAME --scope submit --tenant {name}", err=True
        )
    _print_warnings(record)
    return COMPLETED


@tenants.command("list")
@json_option
@data_dir_option
def list_command(*, as_json: bool, data_dir: pathlib.Path | None) -> int:
    """List all tenants. `default` is the installation itself."""
    records = _run(data_dir, lambda system: system.call(list_tenants))
    if as_json:
        echo_json([record.to_dict() for record in records])
        return COMPLETED
    table = Table(box=None, pad_edge=False)
    for column in ("tenant", "title", "workflows", "platforms", "limits", "state"):
        table.add_column(column, no_wrap=column in ("tenant", "state"))
    for record in records:
        state = "active" if record.disabled_at is None else "disabled"
        names = (_names(record.workflows), _names(record.platforms))
        table.add_row(record.name, record.title, *names, ", ".join(_limits(record)), state)
    open_console().print(table)
    return COMPLETED


@tenants.command()
@click.argument("name")
@json_option
@data_dir_option
def show(name: str, *, as_json: bool, data_dir: pathlib.Path | None) -> int:
    """Show a tenant."""
    record = _run(data_dir, lambda system: system.call(show_tenant, name))
    if as_json:
        echo_json(record.to_dict())
        return COMPLETED
    _print(record)
    return COMPLETED


@tenants.command("set")
@click.argument("name")
@_options
@click.option(
    "--disable/--enable", "is_disabled", default=None, help="Reject its keys, or accept them again."
)
@json_option
@data_dir_option
def set_command(
    name: str, *, is_disabled: bool | None, as_json: bool, data_dir: pathlib.Path | None, **options: Any
) -> int:
    """Change a tenant: what is named, and nothing else; `none` removes a limit.

    Servers follow within 5 seconds. Jobs of a disabled tenant continue.

    \b
    Examples:
      dagmaster tenants set acme --max-open-jobs none --rate 20 --burst 50
      dagmaster tenants set acme --disable
    """
    changes = TenantChanges(fields=_fields(options), is_disabled=is_disabled)
    if not changes.fields and is_disabled is None:
        raise click.UsageError("say what changes, such as --max-open-jobs 100")
    record = _run(data_dir, lambda system: system.call(set_tenant, name, changes, origin=_origin()))
    if as_json:
        echo_json(record.to_dict())
    else:
        _print(record)
    _print_warnings(record)
    return COMPLETED


def _print_warnings(record: TenantRecord) -> None:
    for warning in record.warnings:
        echo(f"warning: {warning}", err=True)


def _fields(options: dict[str, Any]) -> dict[str, Any]:
    """Return what was named on the command line: `none` is no limit, or nothing."""
    fields = {name: value for name, value in options.items() if value not in (None, ())}
    for name, value in fields.items():
        if isinstance(value, tuple):
            fields[name] = [] if value == (NONE,) else list(value)
        elif value == NONE:
            fields[name] = None
    return fields


def _limits(record: TenantRecord) -> list[str]:
    rate = record.rate_per_second
    limits = (
        (record.max_open_jobs, "open jobs"),
        (record.requests_per_day, "requests a day"),
        (None if rate is None else f"{rate:g}", "requests a second"),
    )
    return [f"{number} {noun}" for number, noun in limits if number is not None]


def _names(names: tuple[str, ...]) -> str:
    return "all" if "*" in names else ", ".join(names) or "none"


def _print(record: TenantRecord) -> None:
    table = Table.grid(padding=(0, 2))
    table.add_column(style=DIM, no_wrap=True)
    table.add_column(overflow="fold")
    disabled = record.disabled_at
    rows = {
        "tenant": record.name,
        "title": record.title,
        "state": "active" if disabled is None else f"disabled since {local_time(disabled)}",
        "workflows": f"its own; of the installation: {_names(record.workflows)}",
        "platforms": _names(record.platforms),
        "limits": ", ".join(_limits(record)) or "none",
        "callbacks": record.callback_url or "",
        "created": local_time(record.created_at),
        "by": record.created_by,
    }
    for noun, text in rows.items():
        if text:
            table.add_row(noun, text)
    open_console().print(table)


def _origin() -> ChangeOrigin:
    return ChangeOrigin(actor=sender())


def _run(
    data_dir: pathlib.Path | None, work: Callable[[System], Awaitable[T]], *, migrate: bool = False
) -> T:
    with open_session(data_dir) as session:
        return session.run(work, migrate=migrate, part=Part.TENANTS)
