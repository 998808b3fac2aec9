"""`dagmaster config`: what the settings are, and where each came from."""

from __future__ import annotations

import json
import shutil
import textwrap
from dataclasses import asdict
from typing import TYPE_CHECKING, Any

import click

from dagmaster.cli.main import BAD_INPUT, COMPLETED
from dagmaster.cli.options import json_option
from dagmaster.settings import SECRET_PREFIX, read_settings, show_settings

if TYPE_CHECKING:
    from dagmaster.settings import Reading, Shown


@click.group()
def config() -> None:
    """Tell the settings, and where each came from."""


@config.command(epilog="Exit codes: 0 all settings fit, 2 one does not.")
@json_option
@click.option("--services", is_flag=True, help="As orchestrators and workers read them: DATABASE_URL and others count.")
def show(*, as_json: bool, services: bool) -> int:
    """Show each setting: its value, where it came from, and what it is for.

    Secrets are masked, also a password inside a URL. A variable DAGMASTER_… that is no setting is told, with the
    nearest name.

    \b
    Examples:
      dagmaster config show
      DAGMASTER_CONCURRENCY=8 dagmaster config show
      dagmaster config show --services --json
    """
    reading = read_settings(services=services)
    rows = show_settings(reading)
    if as_json:
        click.echo(json.dumps(_document(reading, rows), ensure_ascii=False, indent=2))
    else:
        for line in table(rows, min(shutil.get_terminal_size().columns, 160)):
            click.echo(line)
        _say_notes(reading)
    return BAD_INPUT if reading.problems else COMPLETED


def table(rows: list[Shown], width: int) -> list[str]:
    """Return the settings as lines of text: name, value and source, and below them what it is."""
    name_width = max(len(row.name) for row in rows)
    values = [_spelled(row.value) for row in rows]
    # A long value or source leaves its column, and the others stay where they are.
    value_width = min(max(map(len, values)), 24)
    lines = [click.style(f"{'setting':<{name_width}}  {'value':<{value_width}}  source", bold=True)]
    for row, value in zip(rows, values, strict=True):
        is_set = row.source != "default"
        name = click.style(f"{row.name:<{name_width}}", fg="red" if row.problem else None, bold=is_set)
        source = click.style(row.source, fg="cyan" if is_set else None, dim=not is_set)
        begins = f"{name}  {value:<{value_width}}"
        if name_width + max(len(value), value_width) + len(row.source) + 4 <= width:
            lines.append(f"{begins}  {source}")
        else:
            lines.append(begins.rstrip())
            lines += [f"    {click.style(each, fg='cyan')}" for each in textwrap.wrap(f"from {row.source}", width - 4)]
        lines += [f"    {click.style(each, dim=True)}" for each in textwrap.wrap(row.description, width - 4)]
    return lines


def _say_notes(reading: Reading) -> None:
    if reading.secrets:
        click.echo(f"\nsecrets, whose values are not shown: {', '.join(reading.secrets)}  ({SECRET_PREFIX}…)")
    for colour, sentences in (
        ("red", tuple(reading.problems.values())),
        ("yellow", reading.typos),
        ("yellow", reading.unused),
    ):
        if sentences:
            click.echo("", err=True)
        for sentence in sentences:
            click.echo(click.style(sentence, fg=colour), err=True)


def _document(reading: Reading, rows: list[Shown]) -> dict[str, Any]:
    return {
        "settings": [asdict(row) for row in rows],
        "secrets": list(reading.secrets),
        "problems": list(reading.problems.values()),
        "typos": list(reading.typos),
        "unused": list(reading.unused),
    }


def _spelled(value: Any) -> str:
    if value is None or value == []:
        return "–"  # noqa: RUF001 - a dash is what nothing looks like
    if isinstance(value, bool):
        return "true" if value else "false"
    return ", ".join(value) if isinstance(value, list) else f"{value:g}" if isinstance(value, float) else str(value)
