"""The page of a node, which is also the drawer next to the graph."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final

from dagmaster.application.views import TERMINAL_NODE, Kind, NodeStatus
from dagmaster.text_format import format_error
from dagmaster.ui.pages.addresses import with_query
from dagmaster.ui.pages.job import Link, Value, job_link, json_value, node_link, optional_value
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
    can_retry: bool
    retry_href: str
    retry_from_href: str
    can_cancel: bool
    cancel_href: str
    is_cancelling: bool
    """Whether it, or its job, was asked to stop."""
    awaits_approval: bool
    approve_path: str
    reject_path: str
    signal: str
    """The signal that it waits for; empty if it waits for none."""
    signal_path: str
    message: str
    is_open: bool
    """Whether the job may change it still."""
    is_active: bool
    """Whether a worker may write its log."""
    title: str


def node_page(node: NodeDetailView, why: NodeWhyView, log: Sequence[LogView]) -> NodePage:
    """Return the page of a node. `log`: the end of its log, newest chunk first."""
    job_id, node_id, job = node.job_id, node.node_id, why.job
    download = f"/api/v1/jobs/{job_id}/nodes/{node_id}"
    is_open = not job.is_finished
    error = _last_error(node)
    can_stop = is_open and node.status not in TERMINAL_NODE
    is_cancelling = can_stop and (node.is_cancelling or job.is_cancelling)
    signal = _awaited_signal(node) if is_open else ""
    return NodePage(
        row=NodeRow(node, node.read_at),
        job=Link(job.name, job_path(job_id)),
        workflow=f"{node.workflow_id} v{node.version}",
        causes=tuple(_cause(job_id, link) for link in why.chain),
        attempts=tuple(_attempt(attempt, node.read_at) for attempt in reversed(node.attempts)),
        item=json_value(node.item, download) if node.has_item else None,
        params=optional_value(node.params, download),
        output=optional_value(node.output, f"{download}/output"),
        error=format_error(error),
        traceback=_traceback(error),
        log="".join(chunk.text for chunk in reversed(log))[-MAX_LOG:],
        log_href=with_query(job_path(job_id, "logs"), node_id=node_id),
        log_src=f"/api/v1/jobs/{job_id}/nodes/{node_id}/logs",
        children_href=with_query(job_path(job_id, "nodes"), open=node_id),
        child_job=job_link(node.child_job_id),
        handler_version=node.handler_version or "",
        can_retry=node.status in _RETRIABLE or _waits_for_retry(node),
        retry_href=node_path(job_id, node_id, "retry"),
        retry_from_href=with_query(job_path(job_id, "resume"), from_node=node_id),
        can_cancel=can_stop and not is_cancelling,
        cancel_href=with_query(job_path(job_id, "cancel-nodes"), node_id=node_id),
        is_cancelling=is_cancelling,
        awaits_approval=is_open and _awaits_approval(node),
        approve_path=node_path(job_id, node_id, "approve"),
        reject_path=node_path(job_id, node_id, "reject"),
        signal=signal,
        signal_path=job_path(job_id, "signals", signal),
        message=node.message or "",
        is_open=is_open,
        is_active=is_open and node.status in _ACTIVE,
        title=f"{node_id} · {job.name}",
    )


def _waits_for_retry(node: NodeDetailView) -> bool:
    return node.status is NodeStatus.READY and node.wake_at is not None


def _awaits_approval(node: NodeDetailView) -> bool:
    return node.status is NodeStatus.WAITING and node.kind is Kind.APPROVAL


def _awaited_signal(node: NodeDetailView) -> str:
    before, _, signal = (node.action or "").partition("waits for signal ")
    is_signal = node.kind is Kind.WAIT and node.status is NodeStatus.WAITING and not before
    return signal if is_signal else ""


def _cause(job_id: str, link: LinkView) -> Cause:
    status = "" if link.status is None else link.status.value
    return Cause(node=node_link(job_id, link.node_id), status=status, sentence=link.sentence)


def _last_error(node: NodeDetailView) -> dict[str, Any]:
    """Return the error of a node, else that of its last attempt which failed; empty if none did."""
    return node.error or next((attempt.error for attempt in reversed(node.attempts) if attempt.error), {})


def _traceback(error: dict[str, Any]) -> str:
    return str(error.get("traceback") or "")


def _attempt(attempt: AttemptRecord, now: float) -> AttemptRow:
    error = attempt.error or {}
    return AttemptRow(
        number=attempt.attempt,
        status=attempt.status.value,
        worker=attempt.worker or "",
        dispatched=moment(attempt.dispatched_at, now),
        queued=duration(attempt.dispatched_at, attempt.started_at or attempt.finished_at, now),
        duration=duration(attempt.started_at, attempt.finished_at, now),
        error=format_error(error),
        traceback=_traceback(error),
    )
