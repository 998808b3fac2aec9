"""Turns rows of PostgreSQL into the records of the read port."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from dagmaster.engine.status import TERMINAL_JOB, AttemptStatus, Isolation, JobStatus, NodeStatus, SkipReason
from dagmaster.ports.audit_events import StoredEvent
from dagmaster.ports.footprints import footprint_of, footprint_of_output
from dagmaster.ports.read_store import FootprintRecord, LogRecord
from dagmaster.records.jobs import JobRecord, OwnerRecord
from dagmaster.records.nodes import NodeRecord, progress_record
from dagmaster.records.tasks import AttemptRecord, TaskRecord
from dagmaster.store.fleet_state import heartbeat_age, is_over
from dagmaster.store.json_columns import from_json

if TYPE_CHECKING:
    from asyncpg import Record

_OWNER = (
    "owner_id", "owner_host", "owner_pid", "owner_heartbeat_at", "owner_has_stopped",
    "owner_last_heartbeat_at",
)  # fmt: skip


def job_record(row: Record) -> JobRecord:
    fields = dict(row)
    owner_id, host, pid, heartbeat_at, has_stopped, last_heartbeat_at = (fields.pop(name) for name in _OWNER)
    if owner_id is not None:
        fields["owner"] = OwnerRecord(
            orchestrator_id=str(owner_id),
            host=host,
            pid=pid,
            silent_seconds=heartbeat_age(fields["read_at"], heartbeat_at, last_heartbeat_at),
            is_over=is_over(last_heartbeat_at, has_stopped=has_stopped),
        )
    for name in ("job_id", "parent_job_id", "resumed_from"):
        fields[name] = _id(fields[name])
    for name in ("error", "inputs", "result"):
        if name in fields:
            fields[name] = from_json(fields[name])
    status = fields["status"] = JobStatus(fields["status"])
    fields["is_cancelling"] = fields["is_cancelling"] and status not in TERMINAL_JOB
    total = fields["nodes_total"] = int(fields["nodes_total"])
    finished = fields["nodes_finished"]
    if finished is None:
        finished = 0 if fields["finished_at"] is None else total
    # Children of inner fan-outs are counted as finished, but not in the total.
    fields["nodes_finished"] = min(finished, total)
    return JobRecord(**fields)


def node_record(row: Record) -> NodeRecord:
    fields = dict(row)
    fields["error"] = from_json(fields["error"])
    fields["progress"] = progress_record(from_json(fields["progress"]))
    for name in ("job_id", "task_id", "worker_id"):
        fields[name] = _id(fields[name])
    fields["status"] = NodeStatus(fields["status"])
    if fields.get("skip_reason") is not None:
        fields["skip_reason"] = SkipReason(fields["skip_reason"])
    return NodeRecord(**fields)


def attempt_record(row: Record | dict[str, Any]) -> AttemptRecord:
    fields = dict(row)
    for name in ("error", "metrics"):
        fields[name] = from_json(fields[name])
    fields["progress"] = progress_record(from_json(fields["progress"]))
    for name in ("job_id", "task_id", "worker_id"):
        fields[name] = _id(fields[name])
    status = NodeStatus if fields["finished_at"] is None else AttemptStatus
    fields["status"] = status(fields["status"])
    return AttemptRecord(**fields)


def footprint_record(row: Record) -> FootprintRecord | None:
    """Return a child of a fan-out with the footprint of its item or output; None if it has none."""
    footprint = footprint_of(from_json(row["item"])) or footprint_of_output(from_json(row["output"]))
    if footprint is None:
        return None
    child = NodeRecord(
        node_id=row["node_id"],
        parent_node_id=row["fan_out"],
        fan_out_index=row["number"],
        status=NodeStatus(row["status"]),
        attempt=row["attempt"],
        error=from_json(row["error"]),
    )
    return FootprintRecord(child, footprint)


def task_record(row: Record) -> TaskRecord:
    fields = dict(row)
    for name in ("task_id", "job_id", "worker_id"):
        fields[name] = _id(fields[name])
    fields["progress"] = progress_record(from_json(fields["progress"]))
    fields["status"], fields["isolation"] = NodeStatus(fields["status"]), Isolation(fields["isolation"])
    return TaskRecord(**fields)


def stored_event(row: Record) -> StoredEvent:
    return StoredEvent(
        seq=row["seq"],
        type=row["type"],
        at=row["at"],
        by=row["by"],
        node_id=row["node_id"],
        attempt=row["attempt"],
        data=from_json(row["data"]) or {},
    )


def log_record(row: Record) -> LogRecord:
    position = (row["at"], str(row["task_id"]), row["chunk"])
    return LogRecord(row["node_id"], row["attempt"], row["at"], row["text"], position)


def _id(number: int | None) -> str | None:
    return None if number is None else str(number)
