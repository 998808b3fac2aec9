"""The records of the read port: plain values of jobs, nodes, attempts, events and workflows.

Times are seconds since the epoch by the store's clock; `now` is that clock when the record was read.
Secret inputs are *not* hidden here: `application` redacts before anything leaves it.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final, NamedTuple

from dagmaster.engine.diagnosis.context import JobSurroundings

if TYPE_CHECKING:
    from collections.abc import Sequence

    from dagmaster.engine.status import (
        NodeStatus,
    )
    from dagmaster.engine.stored_rows import JobRow, NodeRow
    from dagmaster.ports.audit_events import StoredEvent
    from dagmaster.records.nodes import NodeRecord
    from dagmaster.records.page import Position

# ── Nodes, attempts, tasks ──────────────────────────────────────────────────────────────────────────────────


@dataclass(frozen=True, slots=True, kw_only=True)
class NodeFilter:
    """A filter of nodes, across jobs or of one job."""

    job_id: str | None = None
    statuses: frozenset[NodeStatus] = frozenset()
    workflow_id: str | None = None
    parent_node_id: str | None = None
    """Children of this fan-out; needs `job_id`."""
    top_level: bool = False
    """No children of fan-outs."""


@dataclass(frozen=True, slots=True, kw_only=True)
class TaskFilter:
    """A filter of tasks in flight."""

    queue: str | None = None
    worker_id: str | None = None
    job_id: str | None = None
    handler: str | None = None
    is_claimed: bool | None = None


class FootprintRecord(NamedTuple):
    """A child of a fan-out, with the footprint of its item or output."""

    child: NodeRecord
    footprint: Any

    @property
    def position(self) -> Position:
        return (self.child.parent_node_id or "", self.child.fan_out_index or 0)


# ── Commands, events, logs ──────────────────────────────────────────────────────────────────────────────────


class PendingCommand(NamedTuple):
    """A command that no owner has processed yet."""

    command_id: str
    kind: str
    sent_by: str
    age_seconds: float


class JobEvent(NamedTuple):
    """An audit event and the job it is of."""

    job_id: str
    event: StoredEvent


@dataclass(frozen=True, slots=True, kw_only=True)
class LogFilter:
    """Which log chunks of a job. Without nodes: of all. `since` and `until` are times, both included.

    `contains`: a text, whose ASCII letters match in either case. `words`: at least one of them, as it is
    written. Either may begin at the end of the chunk. With both, a chunk that begins within a line needs no
    word.
    """

    node_ids: tuple[str, ...] = ()
    attempt: int | None = None
    since: float | None = None
    until: float | None = None
    contains: str | None = None
    words: tuple[str, ...] = ()


ALL_LOGS: Final = LogFilter()


class LogRecord(NamedTuple):
    """A chunk of a task's log."""

    node_id: str
    attempt: int
    at: float
    text: str
    position: Position


# ── Diagnosis ───────────────────────────────────────────────────────────────────────────────────────────────


@dataclass(frozen=True, slots=True, kw_only=True)
class DiagnosisFacts(JobSurroundings):
    """A job as its owner would load it, and the facts around it that `engine.diagnosis` explains it with.

    Values are not among them: inputs are read with `job`, outputs with `outputs`; `application` redacts both.
    """

    job: JobRow
    nodes: Sequence[NodeRow]
