"""One job as it was read at one moment: its row, its graph, its nodes, and what surrounds it."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Final

from dagmaster.application.node_lookup import describe_action, spec_of
from dagmaster.application.secret_inputs import redactor_of
from dagmaster.engine.graph import ApprovalSpec, Kind, TaskSpec, WorkflowSpec
from dagmaster.engine.groups import begun_groups, shown_status
from dagmaster.engine.shown_graph import shown_graph
from dagmaster.engine.status import TERMINAL_NODE, NodeStatus, SkipReason
from dagmaster.records.fleet import FleetCounts
from dagmaster.records.nodes import ChildCounts, ChildrenRecord, NodeRecord
from dagmaster.records.redacted import redacted

if TYPE_CHECKING:
    from dagmaster.application.context import Application
    from dagmaster.application.secret_inputs import JobRedactor
    from dagmaster.engine.graph import Graph
    from dagmaster.engine.status import JobStatus
    from dagmaster.ports.read_store import PendingCommand, ReadStore
    from dagmaster.records.fleet import QueueBacklog
    from dagmaster.records.jobs import JobRecord
    from dagmaster.records.nodes import WaitInfo


_NO_FLEET: Final = FleetCounts(0, 0)


@dataclass(frozen=True, slots=True, kw_only=True)
class JobSnapshot:
    """A job and everything that its views are made of."""

    job: JobRecord
    graph: Graph
    redact: JobRedactor
    lease_seconds: float
    nodes: Mapping[str, NodeRecord]
    children: Mapping[str, ChildCounts] = field(default_factory=dict)
    waits: Mapping[str, WaitInfo] = field(default_factory=dict)
    backlog: tuple[QueueBacklog, ...] = ()
    commands: tuple[PendingCommand, ...] = ()
    fleet: FleetCounts = _NO_FLEET
    child_jobs: Mapping[str, tuple[str, JobStatus]] = field(default_factory=dict)
    begun_groups: frozenset[str] = field(init=False, compare=False, repr=False)
    """The groups with a member that has begun; none in a job that has finished."""

    def __post_init__(self) -> None:
        rows = () if self.job.is_finished else self.nodes.values()
        begun = begun_groups(self.graph.specs, ((row.node_id, row.status) for row in rows))
        object.__setattr__(self, "begun_groups", begun)

    def node(self, node_id: str) -> NodeRecord:
        """Return the row of a node; a PENDING one if it has none."""
        return self.nodes.get(node_id) or NodeRecord(
            node_id=node_id,
            status=NodeStatus.PENDING,
            job_id=self.job.job_id,
            workflow_id=self.job.workflow_id,
        )

    def counts(self) -> dict[str, int]:
        """Count the nodes by status, with children of fan-outs; children without a row are PENDING."""
        return self._count(self.status_of)

    def stored_counts(self) -> dict[str, int]:
        """Count the nodes by stored status: a group does no work itself and stays PENDING."""
        return self._count(lambda record: record.status)

    def _count(self, status_of: Callable[[NodeRecord], NodeStatus]) -> dict[str, int]:
        counts: dict[str, int] = {}
        for node_id in self.graph.specs:
            record = self.node(node_id)
            if record.skip_reason is SkipReason.SUPERSEDED:
                continue
            status = status_of(record).value
            counts[status] = counts.get(status, 0) + 1
            children = self.children_of(node_id)
            if children is not None:
                for name, count in children.counts.items():
                    counts[name] = counts.get(name, 0) + count
        return counts

    def children_of(self, node_id: str) -> ChildrenRecord | None:
        """Return the children of a fan-out by status; None if it has none."""
        children = self.children.get(node_id)
        if children is None:
            return None
        return children_view(self.node(node_id).source_count or 0, children)

    def status_of(self, record: NodeRecord) -> NodeStatus:
        return shown_status(record.node_id, record.status, self.begun_groups)

    def statuses(self) -> dict[str, NodeStatus]:
        """Return the status to show of each node that has a row, and of each group that is RUNNING."""
        statuses = dict.fromkeys(self.begun_groups, NodeStatus.RUNNING)
        return statuses | {node_id: self.status_of(record) for node_id, record in self.nodes.items()}

    def started_at(self, record: NodeRecord) -> float | None:
        """Return when a node started in the last run, if known: an earlier run's start does not count."""
        children, began = self.children.get(record.node_id), record.started_at
        first = None if children is None else children.first_started_at
        if began is None:
            waiting = self.waits.get(record.node_id)
            return first if first is not None or waiting is None else waiting.since
        resumed = self.job.resumed_at
        is_of_this_run = resumed is not None and (record.finished_at is None or record.finished_at >= resumed)
        if resumed is None or not is_of_this_run or began >= resumed:
            return began
        # A fan-out that a resume reopens starts at once, unless it waits for nodes before it.
        return None if children is None else max(resumed, first or resumed)

    def node_view(self, record: NodeRecord) -> NodeRecord:
        return redacted(self.describe(record), self.redact)

    def describe(self, record: NodeRecord) -> NodeRecord:
        """Return a node with what graph, wait and child job say about it; it is not redacted."""
        spec = spec_of(self.graph, record.node_id)
        wait = self.waits.get(record.node_id)
        child_job_id, child_job_status = self.child_jobs.get(record.node_id, (None, None))
        is_reused = (
            record.status is NodeStatus.COMPLETED
            and not record.attempt
            and isinstance(spec, TaskSpec | WorkflowSpec)
        )
        message = wait.message if wait is not None and isinstance(spec, ApprovalSpec) else None
        return replace(
            record,
            started_at=self.started_at(record),
            job_id=self.job.job_id,
            kind=None if spec is None else spec.kind,
            action=None if spec is None else describe_action(spec),
            status=self.status_of(record),
            is_reused=is_reused,
            message=message,
            children=self.children_of(record.node_id),
            child_job_id=child_job_id,
            child_job_status=child_job_status,
        )


class NodeViews(Mapping[str, NodeRecord]):
    """A job's nodes as they are shown, each made when it is asked for: a screen shows a few of 100,000."""

    __slots__ = ("_more", "_snapshot")

    def __init__(self, snapshot: JobSnapshot, more: Mapping[str, NodeRecord] | None = None) -> None:
        self._snapshot = snapshot
        self._more = more or {}

    def __getitem__(self, node_id: str) -> NodeRecord:
        record = self._more.get(node_id)
        if record is None and node_id not in self._snapshot.graph.specs:
            raise KeyError(node_id)
        return self._snapshot.node_view(record or self._snapshot.node(node_id))

    def __iter__(self) -> Iterator[str]:
        yield from self._snapshot.graph.specs
        yield from self._more

    def __len__(self) -> int:
        return len(self._snapshot.graph.specs) + len(self._more)


async def load_snapshot(
    app: Application, job: JobRecord, graph: Graph, *, before: JobSnapshot | None = None
) -> JobSnapshot:
    """Read a job. Children of fan-outs that had ended in the snapshot `before` are not counted again."""
    read, graph = app.read, shown_graph(graph)
    nodes = {record.node_id: record for record in await read.nodes(job.job_id, list(graph.specs))}
    children = await _load_children(read, job.job_id, nodes, before)
    commands = tuple(await read.pending_commands(job.job_id))
    fleet = await read.fleet_counts() if commands or not job.is_finished else _NO_FLEET
    waits: dict[str, WaitInfo] = {}
    backlog: tuple[QueueBacklog, ...] = ()
    if not job.is_finished:
        waits = await _load_waits(read, job.job_id, nodes, before)
        backlog = tuple(await read.backlog(job.job_id))
    has_child_jobs = any(spec.kind is Kind.WORKFLOW for spec in graph.specs.values())
    return JobSnapshot(
        job=job,
        graph=graph,
        redact=redactor_of(graph.inputs, job),
        lease_seconds=read.lease_seconds,
        nodes=nodes,
        children=children,
        waits=waits,
        backlog=backlog,
        commands=commands,
        fleet=fleet,
        child_jobs=await read.child_jobs(job.job_id) if has_child_jobs else {},
    )


async def _load_children(
    read: ReadStore, job_id: str, nodes: Mapping[str, NodeRecord], before: JobSnapshot | None
) -> dict[str, ChildCounts]:
    children: dict[str, ChildCounts] = {}
    fan_outs: list[str] = []
    for node_id, record in nodes.items():
        settled = _settled_children(record, before)
        if settled is not None:
            children[node_id] = settled
        elif record.source_count is not None:
            fan_outs.append(node_id)
    if fan_outs:
        children |= await read.child_counts(job_id, fan_outs)
    return children


async def _load_waits(
    read: ReadStore, job_id: str, nodes: Mapping[str, NodeRecord], before: JobSnapshot | None
) -> dict[str, WaitInfo]:
    waiting = [node_id for node_id, record in nodes.items() if record.status is NodeStatus.WAITING]
    known = before.waits if before else {}
    waits = {node_id: known[node_id] for node_id in waiting if node_id in known}
    unknown = [node_id for node_id in waiting if node_id not in known]
    if unknown:
        waits |= await read.waits(job_id, unknown)
    return waits


def _settled_children(record: NodeRecord, before: JobSnapshot | None) -> ChildCounts | None:
    """Return the children of a fan-out that had ended in an earlier snapshot, as they are there."""
    if before is None or record.source_count is None or record.status not in TERMINAL_NODE:
        return None
    earlier = before.nodes.get(record.node_id)
    is_same = earlier is not None and earlier.status is record.status
    return before.children.get(record.node_id) if is_same else None


# ── Records → views ─────────────────────────────────────────────────────────────────────────────────────────


def children_view(total: int, children: ChildCounts) -> ChildrenRecord:
    """Return the counts of children; those without a row yet are PENDING."""
    counts = {status.value: count for status, count in children.counts.items()}
    missing = total - sum(counts.values())
    if missing > 0:
        counts[NodeStatus.PENDING.value] = counts.get(NodeStatus.PENDING.value, 0) + missing
    return ChildrenRecord(total=total, counts=counts)
