"""`dagmaster platforms`: the systems whose identifiers partners send."""

from __future__ import annotations

from typing import TYPE_CHECKING

import click
from rich.table import Table

from dagmaster.cli.main import COMPLETED
from dagmaster.cli.system import on_system
from dagmaster.records.requests import PlatformRecord
from dagmaster.sdk.command_line import data_dir_option, json_option
from dagmaster.sdk.terminal import echo, echo_json, open_console

if TYPE_CHECKING:
    import pathlib


@click.group()
def platforms() -> None:
    """Declare whose identifiers partners send, and where their fields belong."""


@platforms.command("list")
@json_option
@data_dir_option
def list_command(*, as_json: bool, data_dir: pathlib.Path | None) -> int:
    """List the platforms, by id."""
    from dagmaster.application.platforms import list_platforms

    records = on_system(data_dir, lambda system: system.call(list_platforms))
    if as_json:
        echo_json([record.to_dict() for record in records])
        return COMPLETED
    if not records:
        echo("no platforms yet: dagmaster platforms set ID --id-field NAME", err=True)
        return COMPLETED
    table = Table(box=None, pad_edge=False)
    for column in ("platform", "title", "id fields", "optional", "other fields"):
        table.add_column(column, no_wrap=column == "platform")
    for record in records:
        table.add_row(
            *(record.platform_id, record.title, ", ".join(record.id_fields)),
            *(", ".join(record.optional_id_fields), ", ".join(record.field_map)),
        )
    open_console().print(table)
    return COMPLETED


@platforms.command(epilog="Exit codes: 0 shown, 2 no such platform, 3 no database.")
@click.argument("platform_id", metavar="PLATFORM")
@json_option
@data_dir_option
def show(platform_id: str, *, as_json: bool, data_dir: pathlib.Path | None) -> int:
    """Show a platform."""
    from dagmaster.application.platforms import show_platform

    _print(on_system(data_dir, lambda system: system.call(show_platform, platform_id)), as_json=as_json)
    return COMPLETED


@platforms.command("set", epilog="Exit codes: 0 stored, 2 the declaration is not valid, 3 no database.")
@click.argument("platform_id", metavar="PLATFORM")
@click.option("--title", default="", help="Its name for people.")
@click.option(
    "--id-field",
    "id_fields",
    multiple=True,
    required=True,
    metavar="NAME",
    help="A field that identifies a dataset there, with the others (repeatable).",
)
@click.option(
    "--optional", "optional_id_fields", multiple=True, metavar="NAME", help="One that may be left out."
)
@click.option(
    "--integer", "integers", multiple=True, metavar="NAME", help="An id field that is a number, and no text."
)
@click.option(
    "--map",
    "mapped",
    multiple=True,
    metavar="FIELD=PLACE",
    help="Where another field belongs: platform_refs.NAME, inputs.NAME, or a field of a submit.",
)
@json_option
@data_dir_option
def set_command(
    platform_id: str,
    *,
    title: str,
    id_fields: tuple[str, ...],
    optional_id_fields: tuple[str, ...],
    integers: tuple[str, ...],
    mapped: tuple[str, ...],
    as_json: bool,
    data_dir: pathlib.Path | None,
) -> int:
    """Declare a platform, or replace its declaration. Requests that are stored stay as they are.

    \b
    Example:
      dagmaster platforms set ddh --title DDH --id-field dataset_id --id-field resource_id \\
        --optional version_id --map datasetTitle=inputs.title
    """
    from dagmaster.application.platforms import set_platform

    pairs = [text.partition("=") for text in mapped]
    if any(not place for _, _, place in pairs):
        raise click.UsageError("--map: write FIELD=PLACE, such as datasetTitle=inputs.title")
    platform = PlatformRecord(
        platform_id=platform_id,
        title=title,
        id_fields=id_fields,
        optional_id_fields=optional_id_fields,
        field_types=dict.fromkeys(integers, "integer"),
        field_map={name: place for name, _, place in pairs},
    )
    _print(on_system(data_dir, lambda system: system.call(set_platform, platform)), as_json=as_json)
    return COMPLETED


def _print(record: PlatformRecord, *, as_json: bool) -> None:
    if as_json:
        echo_json(record.to_dict())
        return
    echo(f"platform   {record.platform_id}  {record.title}".rstrip())
    for noun, names in (("id fields", record.id_fields), ("optional", record.optional_id_fields)):
        if names:
            typed = (f"{name} ({record.field_types.get(name, 'text')})" for name in names)
            echo(f"{noun:<10} {', '.join(typed)}")
    for name, place in record.field_map.items():
        echo(f"{name} → {place}")
