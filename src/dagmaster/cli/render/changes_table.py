"""Draw a list of changes as a table."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING

from rich.table import Table
from rich.text import Text

from dagmaster.cli.render.text import DIM
from dagmaster.text_format import format_rfc3339

if TYPE_CHECKING:
    from collections.abc import Sequence

    from dagmaster.application.views import AuditEntryView
    from dagmaster.json_types import JsonValue


def changes_table(entries: Sequence[AuditEntryView]) -> Table:
    """Draw a list of changes. The details get the rest of the line."""
    table = Table(box=None, pad_edge=False, header_style=DIM)
    for column in ("at", "actor", "key", "action", "object"):
        table.add_column(column, no_wrap=True)
    table.add_column("details", overflow="fold", style=DIM)
    for entry in entries:
        details = ", ".join(f"{name}: {_text(value)}" for name, value in entry.details.items())
        cells = (format_rfc3339(entry.at), entry.actor, entry.key_id or "", entry.action, entry.object_id, details)
        table.add_row(*map(Text, cells))
    return table


def _text(value: JsonValue) -> str:
    return value if isinstance(value, str) else json.dumps(value, ensure_ascii=False)
