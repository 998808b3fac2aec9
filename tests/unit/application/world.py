"""Jobs as a read store might return them, and a fake store, for tests of queries and views."""

from __future__ import annotations

import asyncio
import contextlib
from dataclasses import dataclass, field, fields, replace
from typing import TYPE_CHECKING, Any, ClassVar

from dagmaster.application.checks import LocalChecks
from dagmaster.application.context import Application
from dagmaster.application.job_snapshot import JobSnapshot
from dagmaster.application.secret_inputs import JobRedactor
from dagmaster.authoring.compiler.compile import compile_definition
from dagmaster.engine.status import JobStatus, NodeStatus
from dagmaster.ports.audit_events import StoredEvent
from dagmaster.ports.read_store import ALL_LOGS, JobEvent
from dagmaster.records.fleet import FleetCounts, FleetRecord
from dagmaster.records.jobs import JobRecord, OwnerRecord
from dagmaster.records.metrics import (
    DurationBin,
    Durations,
    FailureRecord,
    MetricWindow,
    NodeMetricsRecord,
    PeriodRecord,
    ThroughputBucketRecord,
    WorkflowMetricsRecord,
)
from dagmaster.records.nodes import ChildCounts, NodeRecord, NodeValues
from tests.secret_vaults import VAULT

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Coroutine

    from dagmaster.engine.graph import Graph

SECRET = "hunter2-canary"
NO_FLEET = FleetRecord(orchestrators=(), workers=(), queues=(), unowned_jobs=0)

FLOW: dict[str, Any] = {
    "workflow_id": "flow",
    "version": 2,
    "inputs": {"token": {"type": "string", "secret": True}, "size": {"type": "integer"}},
    "nodes": {
        "fetch": {"handler": "echo", "queue": "default", "next": ["tiles", "release"]},
        "tiles": {
            "type": "fan_out",
            "source": "{{ nodes.fetch.output.items }}",
            "task": {"handler": "echo", "queue": "default"},
        },
        "release": {"type": "approval", "message": "Release?", "approvers": ["ada"], "next": "after"},
        "after": {"type": "wait", "signal": "go"},
    },
}

DONE = NodeRecord(
    node_id="fetch", status=NodeStatus.COMPLETED, job_id="7", attempt=1, started_at=101.0, finished_at=102.0
)
ASKED = NodeRecord(node_id="release", status=NodeStatus.WAITING, job_id="7")
TILES = NodeRecord(node_id="tiles", status=NodeStatus.RUNNING, job_id="7", source_count=10, expanded_count=10)


def graph(definition: dict[str, Any] | None = None) -> Graph:
    return compile_definition(definition or FLOW)


def a_record(**changes: Any) -> JobRecord:
    values: dict[str, Any] = {
        "job_id": "7", "name": "flow", "workflow_id": "flow", "version": 2, "content_hash": "x",
        "status": JobStatus.RUNNING, "run": 1, "priority": 5, "submitted_by": "ada", "submitter_label": None, "tenant": "default",
        "correlation_id": None,
        "idempotency_key": None, "queue": None, "parent_job_id": None, "parent_node_id": None, "resumed_from": None,
        "event_seq": 9, "is_cancelling": False, "is_ending": False, "error": None, "nodes_total": 4,
        "nodes_finished": 1, "created_at": 100.0, "updated_at": 110.0, "started_at": 101.0, "resumed_at": None,
        "finished_at": None, "deadline_at": None, "read_at": 111.0,
        "owner": OwnerRecord(orchestrator_id="1", host="h", pid=4, silent_seconds=1.0),
        "inputs": {"token": SECRET, "size": 3},
    }  # fmt: skip
    return JobRecord(**(values | changes))


def a_snapshot(*nodes: NodeRecord, around: dict[str, Any] | None = None, **changes: Any) -> JobSnapshot:
    job, flow = a_record(**changes), graph()
    values: dict[str, Any] = {"fleet": FleetCounts(1, 1)} | (around or {})
    return JobSnapshot(
        job=job,
        graph=flow,
        redact=JobRedactor(flow.inputs, job.inputs),
        lease_seconds=15.0,
        nodes={node.node_id: node for node in nodes},
        **values,
    )


def an_event(seq: int, kind: str, node: str | None = None, at: float = 103.0, **data: Any) -> StoredEvent:
    return StoredEvent(seq=seq, type=kind, at=at, by="ada", node_id=node, attempt=None, data=data)


class FakeSubscription:
    has_notifications = False

    async def wait(self, timeout_seconds: float) -> bool:
        await asyncio.sleep(0)
        return False


class FakeMetrics:
    """Metrics of one workflow with one failure."""

    durations: ClassVar[Durations] = {"avg_duration": 2.0, "p50_duration": 1.5, "p95_duration": 4.0}

    async def window(self, seconds: float, step_seconds: float) -> MetricWindow:
        return MetricWindow(0.0, seconds, 1)

    async def workflows(self, since: float, *, workflow_id: str | None = None) -> list[WorkflowMetricsRecord]:
        return [
            WorkflowMetricsRecord(workflow_id="flow", completed=3, failed=1, cancelled=0, **self.durations)
        ]

    async def nodes(self, workflow_id: str, since: float) -> list[NodeMetricsRecord]:
        counts: dict[str, Any] = {
            "completed": 3, "failed": 1, "skipped": 0, "cancelled": 0, "total_retries": 2,
        }  # fmt: skip
        return [NodeMetricsRecord(node_id="fetch", **counts, **self.durations)]

    async def history(self, workflow_id: str, since: float) -> list[PeriodRecord]:
        return [PeriodRecord(at=since, completed=3, failed=1, cancelled=0, **self.durations)]

    async def node_durations(self, since: float, *, workflow_id: str | None = None) -> list[DurationBin]:
        return [
            DurationBin(seconds=0.02, completed=2, failed=0),
            DurationBin(seconds=9_000.0, completed=1, failed=1),
        ]

    async def failures(
        self, since: float, *, workflow_id: str | None = None, per_workflow: int | None = None, limit: int
    ) -> list[FailureRecord]:
        group = {
            "workflow_id": "flow",
            "node_id": "fetch",
            "message": "no",
            "job_id": "7",
            "content_hash": "x",
        }
        return [FailureRecord(**group, count=1, last_at=100.0)]

    async def throughput(
        self, since: float, until: float, step_seconds: float
    ) -> list[ThroughputBucketRecord]:
        return [
            ThroughputBucketRecord(
                at=since, submitted=4, completed=3, failed=1, cancelled=0, avg_duration=2.0
            )
        ]


@dataclass
class FakeTimelines:
    """The timeline of one job."""

    records: list[Any] = field(default_factory=list)
    last: dict[str, str] = field(default_factory=dict)

    async def rows(self, job_id: str, *, after: Any = None, limit: int = 1000) -> list[Any]:
        last = after or ("", -1)
        return [row for row in self.records if (row.node_id, row.attempt) > last][:limit]

    async def last_children(self, job_id: str, fan_outs: Any) -> dict[str, str]:
        return {fan_out: self.last[fan_out] for fan_out in fan_outs if fan_out in self.last}


@dataclass
class FakeReadStore:
    """A read store of plain lists. It pages and filters as far as the tests here need it."""

    records: list[JobRecord] = field(default_factory=list)
    definitions: dict[str, dict[str, Any]] = field(default_factory=lambda: {"x": FLOW})
    node_records: list[NodeRecord] = field(default_factory=list)
    counts: dict[str, ChildCounts] = field(default_factory=dict)
    values: dict[str, NodeValues] = field(default_factory=dict)
    attempt_records: list[Any] = field(default_factory=list)
    task_records: list[Any] = field(default_factory=list)
    timelines: FakeTimelines = field(default_factory=FakeTimelines)
    added_nodes: None = None
    wait_infos: dict[str, Any] = field(default_factory=dict)
    backlogs: list[Any] = field(default_factory=list)
    footprint_records: list[Any] = field(default_factory=list)
    commands: list[Any] = field(default_factory=list)
    stored_events: list[StoredEvent] = field(default_factory=list)
    log_records: list[Any] = field(default_factory=list)
    workflow_records: list[Any] = field(default_factory=list)
    handler_records: list[Any] = field(default_factory=list)
    version_records: list[Any] = field(default_factory=list)
    fleet_record: FleetRecord = NO_FLEET
    facts: Any = None
    metrics: FakeMetrics = field(default_factory=FakeMetrics)
    filters: list[Any] = field(default_factory=list)
    reads: list[str] = field(default_factory=list)
    lease_seconds: float = 15.0
    worker_lease_seconds: float = 6.0

    async def jobs(self, job_filter: Any, *, after: Any = None, limit: int = 20) -> list[JobRecord]:
        self.filters.append(job_filter)
        records = [replace(job, inputs={}, result=None) for job in self.records]
        newest = sorted(records, key=lambda job: -int(job.job_id))
        return [job for job in newest if after is None or int(job.job_id) < int(after[0])][:limit]

    async def job(self, job_id: str) -> JobRecord | None:
        self.reads.append(f"job {job_id}")
        return next((job for job in self.records if job.job_id == job_id), None)

    async def newest_job_id(self, *, submitted_by: str | None = None) -> str | None:
        jobs = (job for job in self.records if submitted_by in (None, job.submitted_by))
        return max((job.job_id for job in jobs if job.parent_job_id is None), key=int, default=None)

    async def job_counts(self, job_filter: Any) -> dict[JobStatus, int]:
        self.filters.append(job_filter)
        counts: dict[JobStatus, int] = {}
        for job in self.records:
            counts[job.status] = counts.get(job.status, 0) + 1
        return counts

    async def child_jobs(self, job_id: str) -> dict[str, tuple[str, JobStatus]]:
        children = [job for job in self.records if job.parent_job_id == job_id]
        return {str(job.parent_node_id): (job.job_id, job.status) for job in children}

    async def definition(self, content_hash: str) -> dict[str, Any] | None:
        self.reads.append(f"definition {content_hash}")
        return self.definitions.get(content_hash)

    async def nodes(self, job_id: str, node_ids: Any) -> list[NodeRecord]:
        return [node for node in self.node_records if node.job_id == job_id and node.node_id in set(node_ids)]

    async def list_nodes(self, node_filter: Any, *, after: Any = None, limit: int = 100) -> list[NodeRecord]:
        self.filters.append(node_filter)

        def position(node: NodeRecord) -> Any:
            if node_filter.job_id is None:
                return (-int(node.job_id), node.node_id)
            return node.place_in_job

        if after is not None and node_filter.job_id is None:
            after = (-int(after[0]), after[1])
        matching = [
            node
            for node in self.node_records
            if node_filter.job_id in (None, node.job_id)
            and node_filter.parent_node_id in (None, node.parent_node_id)
            and (not node_filter.statuses or node.status in node_filter.statuses)
        ]
        return [node for node in sorted(matching, key=position) if after is None or position(node) > after][
            :limit
        ]

    async def child_counts(self, job_id: str, fan_outs: Any) -> dict[str, ChildCounts]:
        self.reads.append(f"child_counts {','.join(fan_outs)}")
        return {fan_out: self.counts.get(fan_out, ChildCounts()) for fan_out in fan_outs}

    async def node_values(self, job_id: str, node_id: str, *, child_of: Any = None) -> NodeValues:
        return self.values.get(node_id, NodeValues())

    async def attempts(self, job_id: str, node_id: str, *, after: Any = None, limit: int = 100) -> list[Any]:
        attempts = [attempt for attempt in self.attempt_records if attempt.node_id == node_id]
        newest = sorted(attempts, key=lambda attempt: -attempt.attempt)
        return [attempt for attempt in newest if after is None or attempt.attempt < after[0]][:limit]

    async def attempt_count(self, job_id: str) -> int:
        return len(self.attempt_records)

    async def tasks(self, task_filter: Any, *, after: Any = None, limit: int = 100) -> list[Any]:
        newest = sorted(self.task_records, key=lambda task: -int(task.task_id))
        return [task for task in newest if after is None or int(task.task_id) < int(after[0])][:limit]

    async def waits(self, job_id: str, node_ids: Any) -> dict[str, Any]:
        return {node_id: self.wait_infos[node_id] for node_id in node_ids if node_id in self.wait_infos}

    async def backlog(self, job_id: str) -> list[Any]:
        return self.backlogs

    async def footprints(self, job_id: str, *, after: Any = None, limit: int = 1000) -> list[Any]:
        last = after or ("", -1)
        return [one for one in self.footprint_records if one.position > last][:limit]

    async def pending_commands(self, job_id: str, *, after: Any = None, limit: int = 20) -> list[Any]:
        return [one for one in self.commands if after is None or int(one.command_id) > int(after[0])][:limit]

    async def events(
        self, job_id: str, *, after: int = 0, limit: int = 1000, node_ids: Any = None
    ) -> list[Any]:
        return [event for event in self.stored_events if event.seq > after][:limit]

    async def recent_events(
        self, *, types: Any = (), since: Any = None, after: Any = None, limit: int = 100
    ) -> Any:
        newest = sorted(self.stored_events, key=lambda event: (-event.at, -event.seq))
        events = [JobEvent("7", event) for event in newest if not types or event.type in types]
        return [
            each for each in events if after is None or (each.event.at, each.event.seq) < (after[0], after[2])
        ][:limit]

    async def event_counts(self, *, since: Any = None, until: Any = None) -> dict[str, int]:
        counts: dict[str, int] = {}
        for event in self.stored_events:
            counts[event.type] = counts.get(event.type, 0) + 1
        return counts

    async def logs(
        self, job_id: str, log_filter: Any = ALL_LOGS, *, after: Any = None, limit: int = 1000,
        newest_first: bool = False,
    ) -> list[Any]:  # fmt: skip
        until, contains, words = log_filter.until, log_filter.contains, log_filter.words
        written = [log for log in self.log_records if until is None or log.at <= until]
        # A store returns at least these: it also looks for what begins in one chunk and goes on in the next.
        is_split = len(written) > 1 and any(not log.text.endswith("\n") for log in written)
        if not is_split:
            written = [log for log in written if contains is None or contains.lower() in log.text.lower()]
            written = [log for log in written if not words or any(word in log.text for word in words)]
        if newest_first:
            return [log for log in reversed(written) if after is None or log.position < after][:limit]
        return [log for log in written if after is None or log.position > after][:limit]

    async def log_chunk(self, task_id: str, chunk: int) -> Any:
        return next((log for log in self.log_records if log.position[1:] == (task_id, chunk)), None)

    async def workflows(self, *, tag: str | None = None, after: Any = None, limit: int = 100) -> list[Any]:
        return [each for each in self.workflow_records if after is None or each.workflow_id > after[0]][
            :limit
        ]

    async def handlers(self, *, after: Any = None, limit: int = 100) -> list[Any]:
        return [each for each in self.handler_records if after is None or each.name > after[0]][:limit]

    async def versions(
        self, workflow_id: str, *, after: Any = None, limit: int | None = None, is_own: bool = False
    ) -> list[Any]:
        versions = [version for version in self.version_records if version.workflow_id == workflow_id]
        return [version for version in versions if after is None or version.version > after[0]][:limit]

    async def fleet_counts(self) -> FleetCounts:
        return FleetCounts(1, 1)

    async def fleet(self) -> FleetRecord:
        return self.fleet_record

    async def diagnosis(self, job_id: str) -> Any:
        return self.facts.get(job_id) if isinstance(self.facts, dict) else self.facts

    async def outputs(self, job_id: str, node_ids: Any) -> dict[str, Any]:
        return {}

    @contextlib.asynccontextmanager
    async def subscribe(self, job_id: str) -> AsyncIterator[FakeSubscription]:
        yield FakeSubscription()


class FakeBlobs:
    """Blobs by name."""

    def __init__(self, **blobs: bytes) -> None:
        self.blobs = blobs

    async def read(self, ref: str) -> bytes:
        from dagmaster.errors import BlobNotFound

        if ref not in self.blobs:
            raise BlobNotFound(f"there is no blob {ref}")
        return self.blobs[ref]


def an_application(store: FakeReadStore, **blobs: bytes) -> Application:
    return application_on(store, blobs=FakeBlobs(**blobs))


def application_on(store: Any, **ports: Any) -> Application:
    """Return an application that can read; ports that are not named are None."""
    values: dict[str, Any] = {each.name: None for each in fields(Application) if each.init}
    own = {"read": store, "vault": VAULT, "checks": LocalChecks()}
    return Application(**(values | own | ports))


def run(work: Coroutine[Any, Any, Any]) -> Any:
    return asyncio.run(work)
