"""The one way from a command to the terminal: `echo`, `echo_json`, consoles of rich, errors of click.

Logs, errors, names and outputs come from handlers, files and other people. A terminal obeys what is in them:
it sets titles, clears the screen, writes the clipboard. Here such characters become visible escapes; only
colours and movements that the program adds itself pass. A test refuses any other way to print.
"""

from __future__ import annotations

import json
import os
import sys
from functools import cache
from typing import IO, TYPE_CHECKING, Any, Final, TextIO, cast

import click

from dagmaster.sdk.command_line import is_json_requested
from dagmaster.text_format import visible_json, visible_text

if TYPE_CHECKING:
    from collections.abc import Iterable

    from rich.console import Console, ConsoleOptions, RenderableType
    from rich.segment import Segment
    from rich.table import Table

_ESCAPE: Final = "\x1b"
_UNLIMITED: Final = 100_000
_OWN_ESCAPE: Final = f"<{os.urandom(12).hex()}>"
"""Stands for the escape character of `style` until `echo` has made the others visible. It is random."""


def echo(
    message: object = "",
    *,
    err: bool = False,
    nl: bool = True,
    file: IO[Any] | None = None,
    is_raw: bool = False,
) -> None:
    """Print a line. `is_raw`: as it is; only for content that the user asked for in this form."""
    is_json = is_json_requested() and not err
    text = str(message) if is_raw else printable(message, is_json=is_json)
    # Into a pipe, click would remove what looks like a colour.
    click.echo(text, err=err, nl=nl, file=file, color=True if is_raw else None)


def printable(message: object, *, is_json: bool = False) -> str:
    """Return what `echo` prints: control characters are visible, and colours of `style` are colours."""
    make_visible = visible_json if is_json else visible_text
    return make_visible(str(message)).replace(_OWN_ESCAPE, _ESCAPE)


def echo_json(
    document: object, *, indent: int | None = None, err: bool = False, file: IO[Any] | None = None
) -> None:
    """Print a JSON document, in which control characters are escapes of JSON."""
    click.echo(visible_json(json.dumps(document, ensure_ascii=False, indent=indent)), err=err, file=file)


def style(text: object, **options: Any) -> str:
    """Return text with a colour or weight, for `echo` only."""
    return click.style(visible_text(str(text)), **options).replace(_ESCAPE, _OWN_ESCAPE)


def confirm(question: str) -> bool:
    """Ask on the error stream."""
    return click.confirm(visible_text(question), err=True)


def visible_stderr() -> IO[Any]:
    """Return the error stream for errors of click, which print themselves."""
    return cast("IO[Any]", _VisibleStream(sys.stderr))


def open_console(file: TextIO | None = None, *, stderr: bool = False, width: int | None = None) -> Console:
    """Return a console that prints text as it is: data may look like rich's markup (`[/x]`) or emoji."""
    return _console_class()(file=file, stderr=stderr, width=width, markup=False, emoji=False, highlight=True)


def print_table(table: Table) -> None:
    """Print a table. What does not wrap is whole on any screen: the next command needs it."""
    from rich.cells import cell_len
    from rich.measure import Measurement

    console = open_console()
    for column in table.columns:
        if column.no_wrap:
            column.min_width = max(
                cell_len(visible_text(str(cell))) for cell in (column.header, *column.cells)
            )
    unlimited = console.options.update_width(_UNLIMITED)
    needed = Measurement.get(console, unlimited, table).minimum
    (console if needed <= console.width else open_console(width=needed)).print(table)


def print_page(page: Iterable[RenderableType]) -> None:
    """Print what a command shows."""
    from rich.console import Group

    open_console().print(Group(*page))


@cache
def _console_class() -> type[Console]:
    from rich.console import Console
    from rich.segment import Segment

    class VisibleConsole(Console):
        """Makes the text of every renderable visible. What controls the terminal is from rich itself."""

        def render(
            self, renderable: RenderableType, options: ConsoleOptions | None = None
        ) -> Iterable[Segment]:
            """Return the segments of a renderable, or of a part of a table, panel or live view."""
            for segment in super().render(renderable, options):
                if segment.control is None:
                    yield Segment(visible_text(segment.text), segment.style)
                else:
                    yield segment

    return VisibleConsole


class _VisibleStream:
    """A text stream that makes visible what is written to it."""

    def __init__(self, stream: TextIO) -> None:
        self._stream = stream

    def write(self, text: str) -> int:
        self._stream.write(visible_text(text))
        return len(text)

    def __getattr__(self, name: str) -> Any:
        return getattr(self._stream, name)
