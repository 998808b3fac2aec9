"""The page of a node, which is also the drawer beside the graph."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

from dagmaster.application.views import TERMINAL_NODE, Kind, NodeStatus
from dagmaster.text_format import format_error
from dagmaster.ui.pages.addresses import with_query
from dagmaster.ui.pages.job import Link, Value, json_value
from dagmaster.ui.pages.job_rows import job_path
from dagmaster.ui.pages.node_rows import NodeRow, node_path
from dagmaster.ui.pages.times import Duration, Moment, duration, moment

if TYPE_CHECKING:
    from collections.abc import Sequence

    from dagmaster.application.views import AttemptRecord, LinkView, LogView, NodeDetailView, NodeWhyView

_RETRIABLE: Final = frozenset({NodeStatus.FAILED, NodeStatus.CANCELLED})
_ACTIVE: Final = frozenset({NodeStatus.DISPATCHED, NodeStatus.CLAIMED, NodeStatus.RUNNING})
MAX_LOG: Final = 8_000
"""How many characters of the end of a log are shown."""


@dataclass(frozen=True, slots=True, kw_only=True)
class AttemptRow:
    """One attempt. `queued`: from its dispatch to its start."""

    number: int
    status: str
    worker: str
    dispatched: Moment | None
    queued: Duration | None
    duration: Duration | None
    error: str
    traceback: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Cause:
    """A link of the chain from a node to its root cause."""

    node: Link | None
    status: str
    sentence: str


@dataclass(frozen=True, slots=True, kw_only=True)
class NodePage:
    """A node with its attempts and values.

    Buttons are shown for what it allows, if the viewer may operate.
    """

    row: NodeRow
    job: Link
    workflow: str
    causes: tuple[Cause, ...]
    attempts: tuple[AttemptRow, ...]
    item: Value | None
    params: Value | None
    output: Value | None
    error: str
    traceback: str
    log: str
    log_href: str
    log_src: str
    children_href: str
    child_job: Link | None
    handler_version: str
    retry_href: str
    retry_from_href: str
    cancel_href: str
    is_cancelling: bool
    """Whether it, or its job, was asked to stop."""
    approve_path: str
    reject_path: str
    signal: str
    signal_path: str
    message: str
    is_open: bool
    """Whether the job may change it still."""
    is_active: bool
    """Whether a worker may write its log."""
    title: str


def node_page(node: NodeDetailView, why: NodeWhyView, log: Sequence[LogView]) -> NodePage:
    """Return the page of a node. `log`: the end of its log, newest chunk first."""
    job_id, node_id, job_finished = node.job_id, node.node_id, why.job.is_finished
    download = f"/api/v1/jobs/{job_id}/nodes/{node_id}"
    is_waiting = node.status is NodeStatus.WAITING and not job_finished
    is_approval = node.kind is Kind.APPROVAL
    waits_for_retry = node.status is NodeStatus.READY and node.wake_at is not None
    can_retry = node.status in _RETRIABLE or waits_for_retry
    is_open = node.status not in TERMINAL_NODE and not job_finished
    is_cancelling = is_open and (node.is_cancelling or why.job.is_cancelling)
    signal = (node.action or "").removeprefix("waits for signal ") if node.kind is Kind.WAIT else ""
    has_signal = is_waiting and signal != (node.action or "")
    error = node.error or next((attempt.error for attempt in reversed(node.attempts) if attempt.error), None)
    return NodePage(
        row=NodeRow(node, node.read_at),
        job=Link(why.job.name, job_path(job_id)),
        workflow=f"{node.workflow_id} v{node.version}",
        causes=tuple(_cause(job_id, link) for link in why.chain),
        attempts=tuple(_attempt(attempt, node.read_at) for attempt in reversed(node.attempts)),
        item=json_value(node.item, download) if node.has_item else None,
        params=None if node.params is None else json_value(node.params, download),
        output=None if node.output is None else json_value(node.output, f"{download}/output"),
        error="" if error is None else format_error(error),
        traceback="" if error is None else str(error.get("traceback") or ""),
        log="".join(chunk.text for chunk in reversed(log))[-MAX_LOG:],
        log_href=with_query(job_path(job_id, "logs"), node_id=node_id),
        log_src=f"/api/v1/jobs/{job_id}/nodes/{node_id}/logs",
        children_href=with_query(job_path(job_id, "nodes"), open=node_id)
        if node.children is not None
        else "",
        child_job=None if node.child_job_id is None else Link(node.child_job_id, job_path(node.child_job_id)),
        handler_version=node.handler_version or "",
        retry_href=node_path(job_id, node_id, "retry") if can_retry else "",
        retry_from_href=with_query(job_path(job_id, "resume"), from_node=node_id) if job_finished else "",
        cancel_href=with_query(job_path(job_id, "cancel-nodes"), node_id=node_id)
        if is_open and not is_cancelling
        else "",
        is_cancelling=is_cancelling,
        approve_path=node_path(job_id, node_id, "approve") if is_waiting and is_approval else "",
        reject_path=node_path(job_id, node_id, "reject") if is_waiting and is_approval else "",
        signal=signal if has_signal else "",
        signal_path=job_path(job_id, "signals", signal) if has_signal else "",
        message=node.message or "",
        is_open=not job_finished,
        is_active=node.status in _ACTIVE and not job_finished,
        title=f"{node_id} · {why.job.name}",
    )


def _cause(job_id: str, link: LinkView) -> Cause:
    node = None if link.node_id is None else Link(link.node_id, node_path(job_id, link.node_id))
    return Cause(node=node, status="" if link.status is None else link.status.value, sentence=link.sentence)


def _attempt(attempt: AttemptRecord, now: float) -> AttemptRow:
    is_over = attempt.finished_at is not None
    return AttemptRow(
        number=attempt.attempt,
        status=attempt.status.value,
        worker=attempt.worker or "",
        dispatched=moment(attempt.dispatched_at, now),
        queued=duration(attempt.dispatched_at, attempt.started_at or attempt.finished_at, now),
        duration=duration(attempt.started_at, attempt.finished_at if is_over else None, now),
        error="" if attempt.error is None else format_error(attempt.error),
        traceback="" if attempt.error is None else str(attempt.error.get("traceback") or ""),
    )
