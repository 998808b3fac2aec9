"""Draw a list of changes as a table."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING

from rich.table import Table
from rich.text import Text

from dagmaster.cli.render.text import DIM, local_time

if TYPE_CHECKING:
    from collections.abc import Sequence

    from dagmaster.application.views import AuditEntryView
    from dagmaster.json_types import JsonValue


def changes_table(entries: Sequence[AuditEntryView]) -> Table:
    """Draw a list of changes. The details get the rest of the line."""
    table = Table(box=None, pad_edge=False, header_style=DIM)
    for column in ("at", "actor", "action"):
        table.add_column(column, no_wrap=True)
    # An id that is cut off is of no use.
    table.add_column("object", no_wrap=True, min_width=max((len(entry.object_id) for entry in entries), default=0))
    table.add_column("details", overflow="fold", style=DIM)
    for entry in entries:
        known = {"key": entry.key_id, **entry.details}
        details = ", ".join(f"{name}: {_text(value)}" for name, value in known.items() if value is not None)
        cells = (local_time(entry.at), entry.actor, entry.action, entry.object_id, details)
        table.add_row(*map(Text, cells))
    return table


def _text(value: JsonValue) -> str:
    return value if isinstance(value, str) else json.dumps(value, ensure_ascii=False)
