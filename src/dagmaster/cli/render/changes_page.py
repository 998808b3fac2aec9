"""Draw a list of changes for `dagmaster changes`."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Final

from rich.padding import Padding
from rich.text import Text

from dagmaster.cli.render.text import DIM, local_time

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from rich.console import RenderableType

    from dagmaster.application.views import AuditRecord
    from dagmaster.json_types import JsonValue

_HEADER: Final = ("at", "actor", "action", "object")
_INDENT: Final = 4


def changes_page(entries: Sequence[AuditRecord]) -> Iterator[RenderableType]:
    """Draw a line for each change, and its details below it: next to it, 80 columns have no room for them."""
    rows = [(local_time(entry.at), entry.actor, entry.action, entry.object_id) for entry in entries]
    widths = [max(map(len, column)) for column in zip(_HEADER, *rows, strict=True)]
    yield Text(_line(_HEADER, widths), style=DIM)
    for entry, row in zip(entries, rows, strict=True):
        yield Text(_line(row, widths), overflow="fold")
        details = _details(entry)
        if details:
            yield Padding(Text(details, style=DIM, overflow="fold"), (0, 0, 0, _INDENT))


def _line(cells: Sequence[str], widths: Sequence[int]) -> str:
    return "  ".join(cell.ljust(width) for cell, width in zip(cells, widths, strict=True)).rstrip()


def _details(entry: AuditRecord) -> str:
    known = {"key": entry.key_id, **entry.details}
    return ", ".join(f"{name}: {_text(value)}" for name, value in known.items() if value is not None)


def _text(value: JsonValue) -> str:
    return value if isinstance(value, str) else json.dumps(value, ensure_ascii=False)
