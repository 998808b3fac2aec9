"""`dagmaster config`: the settings, and the origin of each."""

from __future__ import annotations

import shutil
import textwrap
from dataclasses import asdict
from typing import TYPE_CHECKING

import click

from dagmaster.cli.main import BAD_INPUT, COMPLETED
from dagmaster.sdk.command_line import json_option
from dagmaster.sdk.terminal import echo, echo_json, style
from dagmaster.settings import SECRET_PREFIX, aliases_set, read_settings, show_settings

if TYPE_CHECKING:
    from dagmaster.json_types import JsonObject, JsonValue
    from dagmaster.settings import SettingsReport, SettingView


@click.group()
def config() -> None:
    """Show the settings, and the origin of each."""


@config.command(epilog="Exit codes: 0 all settings are valid, 2 one is not.")
@json_option
@click.option(
    "--services",
    is_flag=True,
    help="Read the settings as orchestrators and workers do: DATABASE_URL and other names count.",
)
def show(*, as_json: bool, services: bool) -> int:
    """Show each setting: its value, its origin, and its purpose.

    Secrets are masked, including passwords in URLs. An unknown variable DAGMASTER_… is reported, with the
    most similar name. With --services, a name of other systems that is set and not used is reported, with
    what to use instead.

    \b
    Examples:
      dagmaster config show
      DAGMASTER_CONCURRENCY=8 dagmaster config show
      dagmaster config show --services --json
    """
    reading = read_settings(services=services)
    rows = show_settings(reading)
    if as_json:
        echo_json(_document(reading, rows), indent=2)
    else:
        for line in table(rows, min(shutil.get_terminal_size().columns, 160)):
            echo(line)
        _print_notes(reading)
        if not services:
            _print_alias_hint()
    return BAD_INPUT if reading.problems else COMPLETED


def table(rows: list[SettingView], width: int) -> list[str]:
    """Return the settings as lines of text: name, value and source, and below them the description."""
    name_width = max(len(row.name) for row in rows)
    values = [_format(row.value) for row in rows]
    # A long value or source exceeds its column; the other rows stay aligned.
    value_width = min(max(map(len, values)), 24)
    lines = [style(f"{'setting':<{name_width}}  {'value':<{value_width}}  source", bold=True)]
    group = ""
    for row, value in zip(rows, values, strict=True):
        if row.group != group:
            group = row.group
            lines += ["", style(group, fg="blue", bold=True)]
        is_set = row.source != "default"
        name = style(f"{row.name:<{name_width}}", fg="red" if row.problem else None, bold=is_set)
        source = style(row.source, fg="cyan" if is_set else None, dim=not is_set)
        start = f"{name}  {value:<{value_width}}"
        if name_width + max(len(value), value_width) + len(row.source) + 4 <= width:
            lines.append(f"{start}  {source}")
        else:
            lines.append(start.rstrip())
            lines += [
                f"    {style(line, fg='cyan')}" for line in textwrap.wrap(f"from {row.source}", width - 4)
            ]
        lines += [f"    {style(line, dim=True)}" for line in textwrap.wrap(row.description, width - 4)]
    return lines


def _print_notes(reading: SettingsReport) -> None:
    if reading.secrets:
        echo(f"\nsecrets (values are not shown): {', '.join(reading.secrets)}  ({SECRET_PREFIX}…)")
    for colour, sentences in (
        ("red", tuple(reading.problems.values())),
        ("yellow", reading.typos),
        ("yellow", reading.unused),
    ):
        if sentences:
            echo("", err=True)
        for sentence in sentences:
            echo(style(sentence, fg=colour), err=True)


def _print_alias_hint() -> None:
    names = aliases_set()
    if names:
        echo(
            f"\nRead by orchestrators and workers only: {', '.join(names)} (dagmaster config show --services)"
        )


def _document(reading: SettingsReport, rows: list[SettingView]) -> JsonObject:
    return {
        "settings": [asdict(row) for row in rows],
        "secrets": list(reading.secrets),
        "problems": list(reading.problems.values()),
        "typos": list(reading.typos),
        "unused": list(reading.unused),
    }


def _format(value: JsonValue) -> str:
    if value is None or value == []:
        return "–"  # noqa: RUF001 - a dash stands for no value
    if isinstance(value, bool):
        return "true" if value else "false"
    if isinstance(value, list):
        return ", ".join(map(_format, value))
    return f"{value:g}" if isinstance(value, float) else str(value)
