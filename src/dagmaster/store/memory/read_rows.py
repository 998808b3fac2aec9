"""Turns what a `MemoryDatabase` holds into the records of the read port."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any, Final

from dagmaster.engine.status import (
    TERMINAL_JOB,
    TERMINAL_NODE,
    AttemptStatus,
    JobStatus,
    NodeStatus,
    SkipReason,
    displayed_status,
)
from dagmaster.ports.audit_events import EventType
from dagmaster.ports.footprints import footprint_of, footprint_of_output
from dagmaster.ports.job_columns import Use, column_names
from dagmaster.ports.job_filter import Match, active_fields
from dagmaster.ports.read_store import FootprintRecord
from dagmaster.ports.tenants import DEFAULT_TENANT
from dagmaster.records.jobs import JobRecord, OwnerRecord
from dagmaster.records.nodes import NodeRecord, progress_record
from dagmaster.records.tasks import AttemptRecord, TaskRecord
from dagmaster.records.workflows import VersionRecord, WorkflowRecord
from dagmaster.store.fleet_state import heartbeat_age, is_over
from dagmaster.store.json_columns import from_json
from dagmaster.store.memory.added_nodes import stored_batches
from dagmaster.store.memory.fleet_reader import PLACE, worker_place

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

    from dagmaster.ports.job_filter import FilterField, JobFilter
    from dagmaster.ports.read_store import NodeFilter, TaskFilter
    from dagmaster.store.memory.database import (
        MemoryDatabase,
        StoredJob,
        StoredNode,
        StoredResult,
        StoredTask,
    )

_ACTIVE: Final = (NodeStatus.READY, NodeStatus.DISPATCHED, NodeStatus.RUNNING)


# ── Workflows ──


def workflow_record(
    versions: list[VersionRecord], definition: Mapping[str, Any], now: float
) -> WorkflowRecord:
    """Return the record of a published workflow from its versions, oldest first, and one definition."""
    return WorkflowRecord(
        workflow_id=versions[0].workflow_id,
        tenant=DEFAULT_TENANT,
        name=definition.get("name"),
        tags=tuple(definition.get("tags", ())),
        versions_total=len(versions),
        newest_version=versions[-1].version,
        active_version=next((version.version for version in versions if version.is_active), None),
        published_at=max(version.published_at for version in versions),
        read_at=now,
    )


# ── Jobs ──


def displayed_job_status(job: StoredJob) -> JobStatus:
    rows = [node.row for node in job.nodes.values()]
    return displayed_status(
        job.row.status,
        waiting=sum(row.status is NodeStatus.WAITING for row in rows),
        active=sum(row.status in _ACTIVE and row.total is None for row in rows),
    )


def job_name(job: StoredJob) -> str:
    """Return the name of a job: by default that of its workflow."""
    return job.new.name or job.new.workflow_id


def matches(job: StoredJob, job_filter: JobFilter) -> bool:
    return not job.new.is_hidden and all(
        _passes(job, declared, value) for _, declared, value in active_fields(job_filter)
    )


def _passes(job: StoredJob, declared: FilterField, expected: Any) -> bool:
    if declared.match is Match.STATUS:
        return displayed_job_status(job) in expected
    if declared.match is Match.PREFIX:
        return _has_prefix(job, expected)
    value = _column(job, declared.column)
    if declared.match is Match.IDS:
        return value in expected
    if declared.match is Match.AFTER:
        return value is not None and value >= expected
    if declared.match is Match.BEFORE:
        return value is not None and value < expected
    return bool(value == expected)


def _column(job: StoredJob, name: str) -> Any:
    if name == "name":
        return job_name(job)
    if name == "parent_job_id":
        return None if job.new.parent is None else job.new.parent.job_id
    return getattr(job if name in ("created_at", "finished_at") else job.new, name)


def node_matches(database: MemoryDatabase, job: StoredJob, node: StoredNode, node_filter: NodeFilter) -> bool:
    return (
        node_filter.job_id in (None, job.new.id)
        and node_filter.workflow_id in (None, job.new.workflow_id)
        and node_filter.parent_node_id in (None, node.row.parent)
        and not (node_filter.top_level and node.row.parent is not None)
        and (not node_filter.statuses or displayed_node_status(database, node) in node_filter.statuses)
    )


def _has_prefix(job: StoredJob, text: str) -> bool:
    values = (job.new.id, job_name(job), job.new.submitted_by, job.new.correlation_id or "")
    return any(value.startswith(text) for value in values)


def job_record(database: MemoryDatabase, job: StoredJob, *, with_values: bool = False) -> JobRecord:
    """Return a job; `with_values`: with its inputs and result."""
    new, row = job.new, job.row
    total = _nodes_total(database, job)
    resumed = [event.at for event in job.events if event.type == EventType.JOB_RESUMED] if row.run > 1 else []
    status = displayed_job_status(job)
    return JobRecord(
        **{name: getattr(new, name) for name in column_names(Use.SHOW, Use.SUBMIT)},
        job_id=new.id,
        name=job_name(job),
        status=status,
        run=row.run,
        parent_job_id=None if new.parent is None else new.parent.job_id,
        parent_node_id=None if new.parent is None else new.parent.node_id,
        event_seq=len(job.events),
        is_cancelling=row.cancel_requested and status not in TERMINAL_JOB,
        is_ending=row.ending,
        error=job.error,
        nodes_total=total,
        nodes_finished=_nodes_finished(job, total),
        created_at=job.created_at,
        updated_at=job.updated_at,
        started_at=job.started_at,
        resumed_at=resumed[-1] if resumed else None,
        finished_at=job.finished_at,
        deadline_at=row.deadline_at,
        read_at=database.clock.now(),
        owner=_owner(database, job.owner_id),
        inputs=json.loads(new.inputs) if with_values else {},
        result=job.result.value() if with_values and job.result is not None else None,
        result_ref=job.result.ref if with_values and job.result is not None else None,
    )


def _nodes_total(database: MemoryDatabase, job: StoredJob) -> int:
    specs = json.loads(database.graphs[job.new.content_hash]).get("nodes", {})
    children = sum(
        job.nodes[node_id].row.total or 0
        for node_id, spec in specs.items()
        if spec.get("type") == "fan_out" and node_id in job.nodes
    )
    live = [
        batch.number
        for batch in job.batches.values()
        if batch.accepted_order is not None and not batch.is_superseded
    ]
    added = sum(len(batch.nodes) + len(batch.groups) for batch in stored_batches(job, live))
    return len(specs) + children + added


def _nodes_finished(job: StoredJob, total: int) -> int:
    if job.row.status is not JobStatus.RUNNING:
        return 0 if job.finished_at is None else total
    rows = [node.row for node in job.nodes.values()]
    # Children of inner fan-outs are counted as finished, but not in the total.
    return min(
        sum(row.status in TERMINAL_NODE and not _is_superseded(row.skip_reason) for row in rows), total
    )


def _owner(database: MemoryDatabase, owner_id: str | None) -> OwnerRecord | None:
    owner = database.orchestrators.get(owner_id or "")
    if owner is None or owner_id is None:
        return None
    return OwnerRecord(
        orchestrator_id=owner_id,
        host=PLACE[0],
        pid=PLACE[1],
        silent_seconds=heartbeat_age(database.clock.now(), owner.heartbeat_at, None),
        is_over=is_over(None, has_stopped=owner.stopped_at is not None),
    )


# ── Nodes ──


def task_in_flight(database: MemoryDatabase, node: StoredNode) -> StoredTask | None:
    return database.queue.get(node.task_id or "") if node.row.status is NodeStatus.DISPATCHED else None


def displayed_node_status(database: MemoryDatabase, node: StoredNode) -> NodeStatus:
    task = task_in_flight(database, node)
    return node.row.status if task is None else task.status


def current_nodes(job: StoredJob) -> Iterator[StoredNode]:
    """Give the nodes of a job without children that are left over from an earlier run."""
    rows = job.nodes.values()
    return (node for node in rows if node.row.parent is None or not _is_superseded(node.row.skip_reason))


def _is_superseded(skip_reason: SkipReason | None) -> bool:
    return skip_reason is SkipReason.SUPERSEDED


def node_record(database: MemoryDatabase, job: StoredJob, node: StoredNode) -> NodeRecord:
    """Return a node, with its task while that is in flight."""
    row, task = node.row, task_in_flight(database, node)
    started_at = node.started_at
    if started_at is None and task is not None:
        started_at = task.started_at
    return NodeRecord(
        node_id=row.id,
        status=displayed_node_status(database, node),
        job_id=job.new.id,
        workflow_id=job.new.workflow_id,
        skip_reason=row.skip_reason,
        attempt=row.attempt,
        failed_attempts=row.failed_attempts,
        lost_attempts=row.lost_attempts,
        shared_losses=row.shared_losses,
        stopped=row.stopped,
        branch=row.branch,
        parent_node_id=row.parent,
        fan_out_index=None if row.parent is None else row.fan_out_index,
        source_count=row.total,
        expanded_count=row.expanded,
        error=row.error,
        output_ref=None if node.output is None else node.output.ref,
        wake_at=row.wake_at,
        started_at=started_at,
        finished_at=node.finished_at,
        updated_at=node.updated_at,
        handler_version=row.handler_version,
        task_id=None if task is None else task.task_id,
        queue=None if task is None else task.queue,
        worker_id=None if task is None else task.worker_id,
        dispatched_at=None if task is None else task.dispatched_at,
        progress=None if task is None else progress_record(from_json(task.progress)),
    )


def attempt_records(database: MemoryDatabase, job_id: str, node_id: str) -> list[AttemptRecord]:
    """Return the attempts at a node, newest first: the finished ones, and the one in flight."""
    records = [
        AttemptRecord(
            job_id=job_id,
            node_id=node_id,
            attempt=attempt,
            task_id=stored.task.task_id,
            status=AttemptStatus(stored.result.status),
            queue=stored.task.queue,
            worker_id=stored.task.worker_id,
            worker=worker_place(database, stored.task.worker_id),
            dispatched_at=stored.task.dispatched_at,
            claimed_at=stored.task.claimed_at,
            started_at=stored.result.started_at,
            finished_at=stored.result.reported_at,
            error=from_json(stored.result.error),
            metrics=from_json(stored.metrics),
            progress=progress_record(from_json(stored.task.progress)),
        )
        for (job, node, attempt), stored in sorted(database.attempts.items(), key=lambda item: item[0])
        if (job, node) == (job_id, node_id)
    ]
    stored_job = database.jobs.get(job_id)
    node = None if stored_job is None else stored_job.nodes.get(node_id)
    task = None if node is None else task_in_flight(database, node)
    if task is not None:
        records.append(_attempt_in_flight(database, task))
    return sorted(records, key=lambda record: -record.attempt)


def _attempt_in_flight(database: MemoryDatabase, task: StoredTask) -> AttemptRecord:
    return AttemptRecord(
        job_id=task.job_id,
        node_id=task.node_id,
        attempt=task.attempt,
        task_id=task.task_id,
        status=task.status,
        queue=task.queue,
        worker_id=task.worker_id,
        worker=worker_place(database, task.worker_id),
        dispatched_at=task.dispatched_at,
        claimed_at=task.claimed_at,
        started_at=task.started_at,
        progress=progress_record(from_json(task.progress)),
    )


def count_attempts(database: MemoryDatabase, job_id: str) -> int:
    """Count the attempts of a job that have started: finished ones, reported ones and those in flight."""
    job = database.jobs.get(job_id)
    finished = [*database.attempts.values(), *database.results.values()]
    in_flight = [] if job is None else [task_in_flight(database, node) for node in job.nodes.values()]
    return sum(stored.result.job_id == job_id and has_started(stored) for stored in finished) + sum(
        task is not None and task.started_at is not None for task in in_flight
    )


def has_started(stored: StoredResult) -> bool:
    """Return whether a handler started; as in SQL, where versions before 0003 did not store that."""
    if stored.result.started_at is not None:
        return True
    return stored.task.claimed_at is not None and stored.result.status in (
        AttemptStatus.COMPLETED,
        AttemptStatus.FAILED,
    )


def footprint_records(database: MemoryDatabase, job: StoredJob) -> list[FootprintRecord]:
    """Return the children of fan-outs that have a footprint in their item or output, by fan-out and index."""
    items = {
        node_id: from_json(node.source) for node_id, node in job.nodes.items() if node.source is not None
    }
    records = []
    for node in current_nodes(job):
        if node.row.parent is None or node.row.parent not in items:
            continue
        output = None if node.output is None else node.output.value()
        footprint = footprint_of(items[node.row.parent][node.row.fan_out_index]) or footprint_of_output(
            output
        )
        if footprint is not None:
            records.append(
                FootprintRecord(
                    NodeRecord(
                        node_id=node.row.id,
                        parent_node_id=node.row.parent,
                        fan_out_index=node.row.fan_out_index,
                        status=displayed_node_status(database, node),
                        attempt=node.row.attempt,
                        error=node.row.error,
                    ),
                    footprint,
                )
            )
    return sorted(records, key=lambda record: record.position)


# ── Tasks ──


def task_matches(task: StoredTask, task_filter: TaskFilter) -> bool:
    return (
        task_filter.queue in (None, task.queue)
        and task_filter.worker_id in (None, task.worker_id)
        and task_filter.job_id in (None, task.job_id)
        and task_filter.handler in (None, task.handler)
        and task_filter.is_claimed in (None, task.worker_id is not None)
    )


def task_record(task: StoredTask) -> TaskRecord:
    return TaskRecord(
        task_id=task.task_id,
        job_id=task.job_id,
        node_id=task.node_id,
        attempt=task.attempt,
        queue=task.queue,
        priority=task.priority,
        handler=task.handler,
        isolation=task.isolation,
        dispatched_at=task.dispatched_at,
        status=task.status,
        worker_id=task.worker_id,
        claimed_at=task.claimed_at,
        started_at=task.started_at,
        stop_requested_at=task.stop_requested_at,
        progress=progress_record(from_json(task.progress)),
    )


def versions_of(database: MemoryDatabase, workflow_id: str) -> list[VersionRecord]:
    """Return the versions of a workflow, oldest first."""
    return [
        VersionRecord(
            workflow_id=workflow_id,
            version=workflow.version,
            content_hash=workflow.content_hash,
            is_active=database.active.get(workflow_id) == workflow.version,
            published_at=database.published_at[key],
        )
        for key, workflow in sorted(database.workflows.items())
        if workflow.workflow_id == workflow_id
    ]
