"""The read port: everything that can be looked up, as plain records. It writes nothing and decides nothing.

Lists are keyset-paged: `after` is the position of the last record of the page before, and a page that is
shorter than `limit` is the last one. Positions compare stored columns that never change, so a list is stable
under inserts: every record that is there while all pages are read comes exactly once. Where ids are made by
several processes (tasks), a list is newest first: what is new comes before the first page, not somewhere in
between. An id that cannot exist (no number, too large) and a text that cannot be stored (with a NUL) match
nothing. Records are in `dagmaster.records`; those in `read_records` may be imported from here.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Protocol

from dagmaster.ports.read_records import (
    ALL_LOGS,
    DiagnosisFacts,
    FootprintRecord,
    JobEvent,
    LogFilter,
    LogRecord,
    NodeFilter,
    PendingCommand,
    TaskFilter,
)
from dagmaster.records.nodes import NodeRecord, NodeValues, WaitInfo
from dagmaster.records.page import Position
from dagmaster.records.tasks import TaskRecord

if TYPE_CHECKING:
    from collections.abc import Callable, Collection, Mapping, Sequence
    from contextlib import AbstractAsyncContextManager

    from dagmaster.engine.status import JobStatus
    from dagmaster.json_types import JsonValue
    from dagmaster.ports.added_nodes import AddedNodeReader
    from dagmaster.ports.audit_events import StoredEvent
    from dagmaster.ports.finished_tasks import FinishedTaskReader
    from dagmaster.ports.job_feed import JobFeed
    from dagmaster.ports.job_filter import JobFilter
    from dagmaster.ports.metrics import MetricReader
    from dagmaster.ports.requests import RequestReader
    from dagmaster.ports.timelines import TimelineReader
    from dagmaster.records.fleet import FleetCounts, FleetRecord, QueueBacklog
    from dagmaster.records.handlers import HandlerRecord
    from dagmaster.records.jobs import JobRecord
    from dagmaster.records.nodes import ChildCounts
    from dagmaster.records.tasks import AttemptRecord
    from dagmaster.records.workflows import VersionRecord, WorkflowRecord

__all__ = [
    "ALL_LOGS",
    "DiagnosisFacts",
    "FootprintRecord",
    "JobEvent",
    "LogFilter",
    "LogRecord",
    "NodeFilter",
    "NodeRecord",
    "NodeValues",
    "PendingCommand",
    "Position",
    "ReadStore",
    "Subscription",
    "TaskFilter",
    "TaskRecord",
    "WaitInfo",
]


class Subscription(Protocol):
    """Wakes a reader when a job may have changed: it finished, or a command to it was processed."""

    @property
    def has_notifications(self) -> bool:
        """Return whether notifications arrive.

        Behind a pooler without a direct URL none do, and callers poll.
        """

    async def wait(self, timeout_seconds: float) -> bool:
        """Wait for the next wake-up; return whether one came.

        A connection that was lost and found again is one.
        """


class ReadStore(Protocol):
    """Reads.

    `lease_seconds` and `worker_lease_seconds`: how long a process may be silent before it counts as dead.
    """

    @property
    def lease_seconds(self) -> float:
        """Return the lease of orchestrators."""

    @property
    def worker_lease_seconds(self) -> float:
        """Return the lease of workers."""

    def for_tenant(self, tenant: str) -> ReadStore:
        """Return what a tenant sees, over the same connections; `ports.tenants.ALL_TENANTS`: everything."""

    @property
    def metrics(self) -> MetricReader:
        """Return the reader of metrics."""

    @property
    def added_nodes(self) -> AddedNodeReader:
        """Return the reader of nodes that were added to jobs."""

    @property
    def timelines(self) -> TimelineReader:
        """Return the reader of timelines."""

    @property
    def finished_tasks(self) -> FinishedTaskReader:
        """Return the reader of finished tasks."""

    @property
    def requests(self) -> RequestReader:
        """Return the reader of requests; without PostgreSQL there are none."""

    # Jobs: newest first; the position is (id,).

    async def jobs(
        self,
        job_filter: JobFilter,
        *,
        after: Position | None = None,
        limit: int = 20,
        oldest_first: bool = False,
    ) -> list[JobRecord]:
        """Return the newest jobs that match, or the oldest; `after`: after a page of the newest."""

    async def job(self, job_id: str) -> JobRecord | None:
        """Return one job with its inputs and result."""

    async def newest_job_id(self, *, submitted_by: str | None = None) -> str | None:
        """Return the id of the newest job that is not a child job: of all, or of one submitter."""

    async def newest_jobs(self, workflow_ids: Collection[str]) -> list[JobRecord]:
        """Return the newest job of each of these workflows that has one, newest first."""

    async def job_counts(self, job_filter: JobFilter) -> Mapping[JobStatus, int]:
        """Count jobs by displayed status."""

    async def child_jobs(self, job_id: str) -> Mapping[str, tuple[str, JobStatus]]:
        """Return the newest child job of each node: (id, status) by node id."""

    async def definition(self, content_hash: str) -> Mapping[str, Any] | None:
        """Return a stored graph."""

    # Nodes: of one job by (parent, index, node id); across jobs newest job first, by (job id, node id).

    async def nodes(self, job_id: str, node_ids: Sequence[str]) -> list[NodeRecord]:
        """Return the rows of these nodes of a job."""

    async def list_nodes(
        self, node_filter: NodeFilter, *, after: Position | None = None, limit: int = 100
    ) -> list[NodeRecord]:
        """Return nodes that match, with children of fan-outs."""

    async def child_counts(self, job_id: str, fan_outs: Sequence[str]) -> Mapping[str, ChildCounts]:
        """Count the children of fan-outs by status."""

    async def node_values(
        self, job_id: str, node_id: str, *, child_of: tuple[str, int] | None = None
    ) -> NodeValues:
        """Return the output, params and item of a node. `child_of`: its fan-out and index."""

    async def attempts(
        self, job_id: str, node_id: str, *, after: Position | None = None, limit: int = 100
    ) -> list[AttemptRecord]:
        """Return the attempts at a node, newest first, with the one in flight; the position is (attempt,)."""

    async def attempt_count(self, job_id: str) -> int:
        """Count the attempts of a job whose handlers have started, finished ones and those in flight."""

    async def tasks(
        self, task_filter: TaskFilter, *, after: Position | None = None, limit: int = 100
    ) -> list[TaskRecord]:
        """Return tasks in flight across jobs, newest first; the position is (task id,)."""

    async def waits(self, job_id: str, node_ids: Sequence[str]) -> Mapping[str, WaitInfo]:
        """Return what waiting nodes wait for."""

    async def backlog(self, job_id: str) -> list[QueueBacklog]:
        """Return the unclaimed tasks of a job by queue."""

    async def footprints(
        self, job_id: str, *, after: Position | None = None, limit: int = 1000
    ) -> list[FootprintRecord]:
        """Return the children of fan-outs that have a footprint; the position is (fan-out, index)."""

    # Commands, events, logs.

    async def pending_commands(
        self, job_id: str, *, after: Position | None = None, limit: int = 20
    ) -> list[PendingCommand]:
        """Return the commands that no owner has processed, oldest first; the position is (command id,)."""

    async def events(
        self, job_id: str, *, after: int = 0, limit: int = 1000, node_ids: Collection[str] | None = None
    ) -> list[StoredEvent]:
        """Return audit events after a number. With nodes: the job's, theirs, and every failure."""

    async def recent_events(
        self,
        *,
        types: Collection[str] = (),
        since: float | None = None,
        after: Position | None = None,
        limit: int = 100,
    ) -> list[JobEvent]:
        """Return events across jobs, newest first; the position is (at, job id, seq)."""

    async def event_counts(
        self, *, since: float | None = None, until: float | None = None
    ) -> Mapping[str, int]:
        """Count events across jobs by type."""

    async def logs(
        self,
        job_id: str,
        log_filter: LogFilter = ALL_LOGS,
        *,
        after: Position | None = None,
        limit: int = 1000,
        newest_first: bool = False,
    ) -> list[LogRecord]:
        """Return log chunks that match in the order in which they were written, or in reverse.

        The position is (at, task id, chunk).
        """

    async def log_chunk(self, task_id: str, chunk: int) -> LogRecord | None:
        """Return one chunk of the log of a task, if it was written."""

    # Workflows.

    async def workflows(
        self, *, tag: str | None = None, after: Position | None = None, limit: int = 100
    ) -> list[WorkflowRecord]:
        """Return the published workflows by id; with `tag`, those whose active (else newest) version has it.

        Of an id that several tenants have, a tenant gets its own. The position is
        ("WORKFLOW_ID TENANT",).
        """

    async def versions(
        self,
        workflow_id: str,
        *,
        after: Position | None = None,
        limit: int | None = None,
        is_own: bool = False,
    ) -> list[VersionRecord]:
        """Return a workflow's versions, oldest first, all without a limit; the position is (version,).

        The tenant's, else the installation's; `is_own`: the tenant's alone.
        """

    # Handlers: by name; the position is (name,).

    async def handlers(self, *, after: Position | None = None, limit: int = 100) -> list[HandlerRecord]:
        """Return the published handlers, each once: as live workers have it, else as published last."""

    # The fleet.

    async def fleet_counts(self) -> FleetCounts:
        """Count live orchestrators and workers."""

    async def fleet(self) -> FleetRecord:
        """Return orchestrators, workers and queues."""

    # Diagnosis.

    async def diagnosis(self, job_id: str) -> DiagnosisFacts | None:
        """Return the facts that explain why a job and its nodes are where they are."""

    async def outputs(self, job_id: str, node_ids: Sequence[str]) -> Mapping[str, JsonValue]:
        """Return the outputs of nodes that are stored in their rows."""

    # Wake-ups.

    def subscribe(self, job_id: str) -> AbstractAsyncContextManager[Subscription]:
        """Listen for changes of a job."""

    def feed(self, on_change: Callable[[str], None]) -> AbstractAsyncContextManager[JobFeed]:
        """Follow many jobs; call back with the id of one that may have changed."""
