"""Draw a node for `jobs show JOB NODE`: its head, its attempts, its error, its values."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any, Final

from rich.padding import Padding
from rich.table import Table
from rich.text import Text

from dagmaster.application.views import AttemptStatus
from dagmaster.cli.render.job import ICONS
from dagmaster.cli.render.text import DIM, duration, local_time, value_lines
from dagmaster.text_format import format_count, format_error

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping, Sequence

    from rich.console import RenderableType

    from dagmaster.application.views import AttemptRecord, NodeDetailView

_MAX_VALUE_LENGTH: Final = 2_000
_MAX_ATTEMPTS: Final = 20
_COLOURS: Final[dict[str, str]] = {
    AttemptStatus.COMPLETED: "green",
    AttemptStatus.FAILED: "red",
    AttemptStatus.LOST: "red",
}


def node_page(node: NodeDetailView) -> Iterator[RenderableType]:
    yield _head(node)
    if node.attempts:
        yield Text("\nattempts", style=DIM)
        yield Padding(_attempts(node.attempts[-_MAX_ATTEMPTS:], node.read_at), (0, 0, 0, 2), expand=False)
    if len(node.attempts) > _MAX_ATTEMPTS:
        yield Text(f"  and {len(node.attempts) - _MAX_ATTEMPTS:,} earlier ones: --json shows all", style=DIM)
    if node.error is not None:
        yield Text("\nerror", style=DIM)
        yield Padding(Text(_full_error(node.error), style="red"), (0, 0, 0, 2), expand=False)
    if node.has_item:
        yield from value_lines("item", node.item, _MAX_VALUE_LENGTH)
    if node.params is not None:
        yield from value_lines("params", node.params, _MAX_VALUE_LENGTH)
    if node.output is not None:
        yield from value_lines("output", node.output, _MAX_VALUE_LENGTH)


def _head(node: NodeDetailView) -> Table:
    table = Table.grid(padding=(0, 2))
    table.add_column(style=DIM, no_wrap=True)
    table.add_column(overflow="fold")
    icon, style = ICONS[node.status]
    status = Text(f"{icon} {node.status.lower()}", style=style)
    if node.skip_reason is not None:
        status.append(f"  {node.skip_reason.replace('_', ' ')}", style=DIM)
    if node.branch is not None:
        status.append(f"  → {node.branch}", style="cyan")
    table.add_row("node", Text(node.node_id, style="bold"))
    table.add_row("job", f"{node.job_id}, {node.workflow_id} v{node.version}")
    if node.action:
        version = f" version {node.handler_version}" if node.handler_version else ""
        table.add_row("action", f"{node.action}{version}")
    table.add_row("status", status)
    if node.parent_node_id is not None:
        table.add_row("child of", f"{node.parent_node_id}, index {node.fan_out_index}")
    if node.children is not None:
        counts = ", ".join(
            f"{count:,} {name.lower()}" for name, count in sorted(node.children.counts.items())
        )
        children = format_count(node.children.total, "child", "children")
        table.add_row("children", f"{children}: {counts}" if counts else children)
    if node.finished_at is not None:
        table.add_row("finished", local_time(node.finished_at))
    if node.wake_at is not None:
        table.add_row("wakes", local_time(node.wake_at))
    return table


def _attempts(attempts: Sequence[AttemptRecord], now: float) -> Table:
    table = Table.grid(padding=(0, 2, 0, 0))
    for _ in range(4):
        table.add_column(no_wrap=True)
    table.add_column(overflow="fold")
    for attempt in attempts:
        took = ""
        if attempt.started_at is not None:
            took = duration(max((attempt.finished_at or now) - attempt.started_at, 0.0))
        location = (
            f"worker {attempt.worker or attempt.worker_id}" if attempt.worker_id else f"queue {attempt.queue}"
        )
        rest = Text(location, style=DIM)
        if attempt.error is not None:
            rest.append(f"  {format_error(attempt.error)}", style="red")
        table.add_row(
            str(attempt.attempt),
            Text(attempt.status.lower().replace("_", " "), style=_COLOURS.get(attempt.status, "cyan")),
            Text(local_time(attempt.started_at or attempt.claimed_at or attempt.dispatched_at), style=DIM),
            took,
            rest,
        )
    return table


def _full_error(error: Mapping[str, Any]) -> str:
    """Format an error with all lines of its message, its details and its traceback."""
    known = {"kind", "message", "type", "traceback"}
    name = error.get("type") or error.get("kind", "error")
    lines = [f"{name}: {error.get('message', '')}"]
    lines += [
        f"{key}: {json.dumps(value, ensure_ascii=False)}" for key, value in error.items() if key not in known
    ]
    return "\n".join([*lines, *([str(error["traceback"])] if error.get("traceback") else [])])
