"""A node as a row of a table."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from dagmaster.application.views import TERMINAL_NODE, NodeStatus
from dagmaster.text_format import format_error
from dagmaster.ui.pages.job_rows import job_path
from dagmaster.ui.pages.times import Duration, Moment, duration, moment

if TYPE_CHECKING:
    from collections.abc import Sequence

    from dagmaster.application.views import ChildrenRecord, NodeRecord


@dataclass(frozen=True, slots=True, kw_only=True)
class NodeRow:
    """A node of a table. `children`: those of a fan-out by status; `needs`: the nodes that it waits for."""

    job_id: str
    node_id: str
    href: str
    status: str
    kind: str
    action: str
    attempt: int
    started: Moment | None
    duration: Duration | None
    percent: int | None
    detail: str
    error: str
    children: tuple[tuple[str, str], ...]
    has_children: bool
    needs: tuple[str, ...]
    is_reused: bool


def node_path(job_id: str, node_id: str, *parts: str) -> str:
    """Return the path of a node's page, or of what is below it."""
    return job_path(job_id, "nodes", node_id, *parts)


def node_row(node: NodeRecord, now: float, *, needs: Sequence[str] = ()) -> NodeRow:
    is_over = node.status in TERMINAL_NODE
    return NodeRow(
        job_id=node.job_id,
        node_id=node.node_id,
        href=node_path(node.job_id, node.node_id),
        status=node.status.value,
        kind="" if node.kind is None else node.kind.value,
        action=node.action or "",
        attempt=node.attempt,
        started=moment(node.started_at, now),
        duration=None
        if node.status is NodeStatus.SKIPPED
        else duration(node.started_at, node.finished_at if is_over else None, now),
        percent=_percent(node),
        detail=_detail(node, now),
        error="" if node.error is None else format_error(node.error),
        children=() if node.children is None else count_children(node.children),
        has_children=node.children is not None and node.children.total > 0,
        needs=tuple(needs),
        is_reused=node.is_reused,
    )


def count_children(children: ChildrenRecord) -> tuple[tuple[str, str], ...]:
    """Return the children of a fan-out by status, those that exist."""
    return tuple(
        (status.value, f"{children.counts[status]:,}") for status in NodeStatus if children.counts.get(status)
    )


def _percent(node: NodeRecord) -> int | None:
    if node.children is not None and node.children.total:
        return node.children.finished * 100 // node.children.total
    if node.progress is not None and node.progress.total and node.status not in TERMINAL_NODE:
        return max(0, min(100, int(node.progress.current * 100 / node.progress.total)))
    return None


def _detail(node: NodeRecord, now: float) -> str:
    """Return what is special about a node, in a few words."""
    if node.skip_reason is not None:
        return node.skip_reason.value.replace("_", " ")
    if node.is_reused:
        return "result of another job"
    if node.message:
        return node.message
    if node.progress is not None and node.progress.message and node.status not in TERMINAL_NODE:
        return node.progress.message
    if node.status is NodeStatus.READY and node.wake_at is not None:
        next_attempt = moment(node.wake_at, now)
        return "" if next_attempt is None else f"next attempt {next_attempt.relative}"
    return f"took branch {node.branch}" if node.branch else ""
