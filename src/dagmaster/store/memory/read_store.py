"""The read port over a `MemoryDatabase`; it passes the same `tests/conformance` as on PostgreSQL."""

from __future__ import annotations

import json
from contextlib import asynccontextmanager
from typing import TYPE_CHECKING, Any, Final

from dagmaster.engine.expressions.secret_parts import hide_secrets
from dagmaster.engine.status import Isolation, JobStatus, NodeStatus
from dagmaster.ports.audit_events import EventType
from dagmaster.ports.command_kinds import CommandKind
from dagmaster.ports.read_store import ALL_LOGS, JobEvent, LogRecord, PendingCommand
from dagmaster.records.fleet import FleetCounts, QueueBacklog
from dagmaster.records.nodes import ChildCounts, NodeValues, WaitInfo
from dagmaster.store.fleet_state import queue_state
from dagmaster.store.json_columns import from_json
from dagmaster.store.memory import fleet_reader
from dagmaster.store.memory.added_nodes import MemoryAddedNodeReader
from dagmaster.store.memory.finished_task_reader import MemoryFinishedTaskReader
from dagmaster.store.memory.job_feed import MemoryJobFeed
from dagmaster.store.memory.log_selection import is_log_selected
from dagmaster.store.memory.metrics import MemoryMetricReader
from dagmaster.store.memory.no_requests import NoRequests
from dagmaster.store.memory.read_rows import (
    attempt_records,
    count_attempts,
    current_nodes,
    displayed_job_status,
    footprint_records,
    job_record,
    matches,
    node_matches,
    node_record,
    task_in_flight,
    task_matches,
    task_record,
    versions_of,
    workflow_record,
)
from dagmaster.store.memory.subscription import MemorySubscription
from dagmaster.store.memory.timelines import MemoryTimelineReader

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Callable, Collection, Mapping, Sequence

    from dagmaster.json_types import JsonValue
    from dagmaster.ports.audit_events import StoredEvent
    from dagmaster.ports.job_filter import JobFilter
    from dagmaster.ports.read_store import (
        DiagnosisFacts,
        FootprintRecord,
        LogFilter,
        NodeFilter,
        Subscription,
        TaskFilter,
    )
    from dagmaster.records.fleet import FleetRecord
    from dagmaster.records.handlers import HandlerRecord
    from dagmaster.records.jobs import JobRecord
    from dagmaster.records.nodes import NodeRecord
    from dagmaster.records.page import Position
    from dagmaster.records.tasks import AttemptRecord, TaskRecord
    from dagmaster.records.workflows import VersionRecord, WorkflowRecord
    from dagmaster.store.memory.database import MemoryDatabase, StoredJob, StoredNode

_FAILURES: Final = frozenset(
    {EventType.ATTEMPT_FAILED, EventType.ATTEMPT_LOST, EventType.NODE_FAILED, EventType.COMMAND_REJECTED}
)
_WAITS: Final = frozenset({EventType.APPROVAL_REQUESTED, EventType.NODE_WAITING})


class MemoryReadStore:
    """Reads."""

    def __init__(
        self, database: MemoryDatabase, lease_seconds: float = 15, worker_lease_seconds: float = 6
    ) -> None:
        self._database = database
        self.metrics = MemoryMetricReader(database)
        self.timelines = MemoryTimelineReader(database)
        self.finished_tasks = MemoryFinishedTaskReader(database)
        self.added_nodes = MemoryAddedNodeReader(database)
        self.requests = NoRequests()
        # The leases of orchestrators and of workers.
        self.lease_seconds = lease_seconds
        self.worker_lease_seconds = worker_lease_seconds

    # ── Jobs ──

    def for_tenant(self, tenant: str) -> MemoryReadStore:
        """Return the same store: one in memory is of one process, and has one tenant."""
        del tenant
        return self

    async def jobs(
        self,
        job_filter: JobFilter,
        *,
        after: Position | None = None,
        limit: int = 20,
        oldest_first: bool = False,
    ) -> list[JobRecord]:
        before = None if after is None else _number(after[0])
        newest = self._newest_first()
        jobs = [
            job for job in newest if (before is None or int(job.new.id) < before) and matches(job, job_filter)
        ]
        return [job_record(self._database, job) for job in (jobs[::-1] if oldest_first else jobs)[:limit]]

    async def job(self, job_id: str) -> JobRecord | None:
        job = self._database.jobs.get(job_id)
        return None if job is None else job_record(self._database, job, with_values=True)

    async def newest_job_id(self, *, submitted_by: str | None = None) -> str | None:
        jobs = (job.new for job in self._visible_jobs() if job.new.parent is None)
        return next((job.id for job in jobs if submitted_by in (None, job.submitted_by)), None)

    async def newest_jobs(self, workflow_ids: Collection[str]) -> list[JobRecord]:
        newest: dict[str, StoredJob] = {}
        for job in self._visible_jobs():
            if job.new.workflow_id in workflow_ids:
                newest.setdefault(job.new.workflow_id, job)
        return [job_record(self._database, job) for job in newest.values()]

    async def job_counts(self, job_filter: JobFilter) -> Mapping[JobStatus, int]:
        counts: dict[JobStatus, int] = {}
        for job in self._database.jobs.values():
            if matches(job, job_filter):
                status = displayed_job_status(job)
                counts[status] = counts.get(status, 0) + 1
        return counts

    async def child_jobs(self, job_id: str) -> Mapping[str, tuple[str, JobStatus]]:
        return {
            job.new.parent.node_id: (job.new.id, displayed_job_status(job))
            for job in reversed(self._newest_first())
            if job.new.parent is not None and job.new.parent.job_id == job_id
        }

    async def definition(self, content_hash: str) -> Mapping[str, Any] | None:
        text = self._database.graphs.get(content_hash)
        return None if text is None else json.loads(text)

    def _newest_first(self) -> list[StoredJob]:
        return sorted(self._database.jobs.values(), key=lambda job: -int(job.new.id))

    def _visible_jobs(self) -> list[StoredJob]:
        return [job for job in self._newest_first() if not job.new.is_hidden]

    # ── Nodes ──

    async def nodes(self, job_id: str, node_ids: Sequence[str]) -> list[NodeRecord]:
        job = self._database.jobs.get(job_id)
        if job is None:
            return []
        return [
            node_record(self._database, job, job.nodes[node_id])
            for node_id in sorted(set(node_ids))
            if node_id in job.nodes
        ]

    async def list_nodes(
        self, node_filter: NodeFilter, *, after: Position | None = None, limit: int = 100
    ) -> list[NodeRecord]:
        is_of_job = node_filter.job_id is not None
        rows = [
            (_node_key(job, node, is_of_job=is_of_job), job, node)
            for job in (self._database.jobs.values() if is_of_job else self._visible_jobs())
            for node in current_nodes(job)
            if node_matches(self._database, job, node, node_filter)
        ]
        last = None if after is None else (tuple(after) if is_of_job else (-_number(after[0]), after[1]))
        pages = sorted((row for row in rows if last is None or row[0] > last), key=lambda row: row[0])
        return [node_record(self._database, job, node) for _, job, node in pages[:limit]]

    async def child_counts(self, job_id: str, fan_outs: Sequence[str]) -> Mapping[str, ChildCounts]:
        job = self._database.jobs.get(job_id)
        records = (
            [] if job is None else [node_record(self._database, job, node) for node in current_nodes(job)]
        )
        result: dict[str, ChildCounts] = {}
        for fan_out in fan_outs:
            children = [record for record in records if record.parent_node_id == fan_out]
            statuses = [record.status for record in children]
            started = [record.started_at for record in children if record.started_at is not None]
            counts = {status: statuses.count(status) for status in dict.fromkeys(statuses)}
            result[fan_out] = ChildCounts(counts, min(started, default=None))
        return result

    async def node_values(
        self, job_id: str, node_id: str, *, child_of: tuple[str, int] | None = None
    ) -> NodeValues:
        job = self._database.jobs.get(job_id)
        nodes = {} if job is None else job.nodes
        node = nodes.get(node_id)
        task = None if node is None else task_in_flight(self._database, node)
        secrets = from_json(task.secrets) or {} if task is not None else {}
        fan_out, index = child_of or ("", -1)
        items: list[JsonValue] = (from_json(nodes[fan_out].source) if fan_out in nodes else None) or []
        has_item = 0 <= index < len(items)
        output = None if node is None else node.output
        return NodeValues(
            output=None if output is None else output.value(),
            output_ref=None if output is None else output.ref,
            params=None if task is None else hide_secrets(from_json(task.params), secrets.get("places", ())),
            hidden=tuple(secrets.get("hide", ())),
            has_item=has_item,
            item=items[index] if has_item else None,
        )

    async def attempts(
        self, job_id: str, node_id: str, *, after: Position | None = None, limit: int = 100
    ) -> list[AttemptRecord]:
        records = attempt_records(self._database, job_id, node_id)
        return [record for record in records if after is None or record.attempt < int(after[0])][:limit]

    async def attempt_count(self, job_id: str) -> int:
        return count_attempts(self._database, job_id)

    async def tasks(
        self, task_filter: TaskFilter, *, after: Position | None = None, limit: int = 100
    ) -> list[TaskRecord]:
        tasks = [task for task in self._database.queue.values() if task_matches(task, task_filter)]
        page = [task for task in tasks if after is None or int(task.task_id) < _number(after[0])]
        return [task_record(task) for task in sorted(page, key=lambda task: -int(task.task_id))[:limit]]

    async def waits(self, job_id: str, node_ids: Sequence[str]) -> Mapping[str, WaitInfo]:
        job = self._database.jobs.get(job_id)
        return {
            event.node_id: WaitInfo(event.at, str(event.data.get("message", "")), event.data.get("until"))
            for event in (() if job is None else job.events)
            if event.type in _WAITS and event.node_id is not None and event.node_id in node_ids
        }

    async def backlog(self, job_id: str) -> list[QueueBacklog]:
        job, now = self._database.jobs.get(job_id), self._database.clock.now()
        dispatched: dict[tuple[str, bool], list[float]] = {}
        for node in () if job is None else job.nodes.values():
            task = task_in_flight(self._database, node)
            if task is not None and task.worker_id is None and task.stop_requested_at is None:
                is_exclusive = task.isolation is Isolation.EXCLUSIVE
                dispatched.setdefault((task.queue, is_exclusive), []).append(task.dispatched_at)
        workers = fleet_reader.workers(self._database, self.worker_lease_seconds).values()
        states = {queue: queue_state(workers, queue) for queue, _ in dispatched}
        return [
            QueueBacklog(queue, len(times), now - min(times), states[queue], is_exclusive)
            for (queue, is_exclusive), times in sorted(dispatched.items())
        ]

    async def footprints(
        self, job_id: str, *, after: Position | None = None, limit: int = 1000
    ) -> list[FootprintRecord]:
        job = self._database.jobs.get(job_id)
        records = [] if job is None else footprint_records(self._database, job)
        last = ("", -1) if after is None else (str(after[0]), int(after[1]))
        return [record for record in records if record.position > last][:limit]

    # ── Commands, events, logs ──

    async def pending_commands(
        self, job_id: str, *, after: Position | None = None, limit: int = 20
    ) -> list[PendingCommand]:
        now, last = self._database.clock.now(), 0 if after is None else _number(after[0])
        commands = [
            PendingCommand(str(number), command.kind, command.sent_by, now - command.at)
            for number, command in sorted(self._database.inbox.items())
            if number > last and command.job_id == job_id and command.kind != CommandKind.CHILD_FINISHED
        ]
        return commands[:limit]

    async def events(
        self, job_id: str, *, after: int = 0, limit: int = 1000, node_ids: Collection[str] | None = None
    ) -> list[StoredEvent]:
        job = self._database.jobs.get(job_id)
        events = [
            event
            for event in (() if job is None else job.events)
            if event.seq > after
            and (
                node_ids is None
                or event.node_id is None
                or event.node_id in node_ids
                or event.type in _FAILURES
            )
        ]
        return events[:limit]

    async def recent_events(
        self,
        *,
        types: Collection[str] = (),
        since: float | None = None,
        after: Position | None = None,
        limit: int = 100,
    ) -> list[JobEvent]:
        last = None if after is None else (float(after[0]), _number(after[1]), int(after[2]))
        events = [
            (key, JobEvent(job.new.id, event))
            for job in self._visible_jobs()
            for event in job.events
            for key in [(event.at, int(job.new.id), event.seq)]
            if (last is None or key < last)
            and (not types or event.type in types)
            and (since is None or event.at >= since)
        ]
        return [event for _, event in sorted(events, key=lambda item: item[0], reverse=True)[:limit]]

    async def event_counts(
        self, *, since: float | None = None, until: float | None = None
    ) -> Mapping[str, int]:
        counts: dict[str, int] = {}
        for job in self._visible_jobs():
            for event in job.events:
                if (since is None or event.at >= since) and (until is None or event.at < until):
                    counts[event.type] = counts.get(event.type, 0) + 1
        return counts

    async def logs(
        self,
        job_id: str,
        log_filter: LogFilter = ALL_LOGS,
        *,
        after: Position | None = None,
        limit: int = 1000,
        newest_first: bool = False,
    ) -> list[LogRecord]:
        last = None if after is None else (float(after[0]), _number(after[1]), int(after[2]))
        chunks = [
            (key, log.record)
            for (task_id, chunk), log in self._database.logs.items()
            for key in [(log.record.at, int(task_id), chunk)]
            if (last is None or (key < last if newest_first else key > last))
            and log.job_id == job_id
            and is_log_selected(self._database.logs, (task_id, chunk), log_filter)
        ]
        return [
            record for _, record in sorted(chunks, key=lambda item: item[0], reverse=newest_first)[:limit]
        ]

    async def log_chunk(self, task_id: str, chunk: int) -> LogRecord | None:
        log = self._database.logs.get((task_id, chunk))
        return None if log is None else log.record

    # ── Workflows ──

    async def workflows(
        self, *, tag: str | None = None, after: Position | None = None, limit: int = 100
    ) -> list[WorkflowRecord]:
        last = "" if after is None else str(after[0]).partition(" ")[0]
        workflow_ids = sorted(
            {workflow_id for workflow_id, _ in self._database.workflows if workflow_id > last}
        )
        records = [await self._workflow_record(workflow_id) for workflow_id in workflow_ids]
        return [record for record in records if tag is None or tag in record.tags][:limit]

    async def _workflow_record(self, workflow_id: str) -> WorkflowRecord:
        versions = await self.versions(workflow_id)
        shown = next((version for version in versions if version.is_active), versions[-1])
        definition = await self.definition(shown.content_hash) or {}
        return workflow_record(versions, definition, self._database.clock.now())

    async def versions(
        self,
        workflow_id: str,
        *,
        after: Position | None = None,
        limit: int | None = None,
        is_own: bool = False,
    ) -> list[VersionRecord]:
        del is_own  # One process, one tenant.
        last = 0 if after is None else int(after[0])
        return [one for one in versions_of(self._database, workflow_id) if one.version > last][:limit]

    # ── Handlers, the fleet ──

    async def handlers(self, *, after: Position | None = None, limit: int = 100) -> list[HandlerRecord]:
        return fleet_reader.read_handlers(self._database, after, limit, self.worker_lease_seconds)

    async def fleet_counts(self) -> FleetCounts:
        return fleet_reader.count_services(
            self._database, lease_seconds=self.lease_seconds, worker_lease_seconds=self.worker_lease_seconds
        )

    async def fleet(self) -> FleetRecord:
        return fleet_reader.read_fleet(
            self._database, lease_seconds=self.lease_seconds, worker_lease_seconds=self.worker_lease_seconds
        )

    # ── Diagnosis ──

    async def diagnosis(self, job_id: str) -> DiagnosisFacts | None:
        job = self._database.jobs.get(job_id)
        if job is None:
            return None
        return fleet_reader.read_diagnosis(
            self._database,
            job,
            lease_seconds=self.lease_seconds,
            worker_lease_seconds=self.worker_lease_seconds,
        )

    async def outputs(self, job_id: str, node_ids: Sequence[str]) -> Mapping[str, JsonValue]:
        job = self._database.jobs.get(job_id)
        return {
            node_id: node.output.value()
            for node_id, node in ({} if job is None else job.nodes).items()
            if node_id in node_ids
            and node.row.status is NodeStatus.COMPLETED
            and node.output is not None
            and node.output.text is not None
        }

    # ── Wake-ups ──

    @asynccontextmanager
    async def subscribe(self, job_id: str) -> AsyncIterator[Subscription]:
        subscription = MemorySubscription()

        def wake(_payload: str) -> None:
            subscription.notified.set()

        self._database.listen(f"job {job_id}", wake)
        try:
            yield subscription
        finally:
            self._database.unlisten([wake])

    def feed(self, on_change: Callable[[str], None]) -> MemoryJobFeed:
        return MemoryJobFeed(self._database, self, on_change)


def _number(text: float | str) -> int:
    """Return an id of a position as the number that it is ordered by."""
    return int(text) if str(text).isdecimal() else -1


def _node_key(job: StoredJob, node: StoredNode, *, is_of_job: bool) -> tuple[int | float | str, ...]:
    row = node.row
    return (row.parent or "", row.fan_out_index, row.id) if is_of_job else (-int(job.new.id), row.id)
