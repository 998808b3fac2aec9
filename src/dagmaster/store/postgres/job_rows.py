"""Rows of jobs and nodes as the engine and the orchestrator keep them."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any

from dagmaster.engine.model import JobRow, NodeRow
from dagmaster.engine.status import JobStatus, NodeStatus, SkipReason
from dagmaster.ports.job_records import ClaimedJob, ParentNode

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping, Sequence

    import asyncpg

    from dagmaster.ports.added_nodes import StoredBatch


def claimed_job(
    row: asyncpg.Record,
    nodes: Iterable[NodeRow],
    tasks: Mapping[str, str],
    batches: Sequence[StoredBatch] = (),
) -> ClaimedJob:
    """Return a job with its nodes and the ids of its tasks in flight."""
    parent = None
    if row["parent_job_id"] is not None:
        parent = ParentNode(str(row["parent_job_id"]), row["parent_node_id"], row["parent_attempt"])
    return ClaimedJob(
        row=job_row(row),
        workflow_id=row["workflow_id"],
        version=row["version"],
        content_hash=row["content_hash"],
        inputs=_load(row["inputs"]),
        env=_load(row["env"]),
        priority=row["priority"],
        epoch=row["owner_epoch"],
        event_seq=row["event_seq"],
        depth=row["depth"],
        queue=row["queue"],
        workflows=_load(row["workflows"]),
        parent=parent,
        nodes=tuple(nodes),
        tasks=tasks,
        resumed_from=None if row["resumed_from"] is None else str(row["resumed_from"]),
        redo=tuple(_load(row["redo"])),
        trace_parent=row["trace_parent"],
        batches=batches,
    )


def job_row(row: asyncpg.Record) -> JobRow:
    """Return a job as the engine keeps it."""
    return JobRow(
        id=str(row["id"]),
        status=JobStatus(row["status"]),
        run=row["run"],
        cancel_requested=row["cancel_requested"],
        deadline_at=row["deadline_at"],
        deadline_passed=row["deadline_passed"],
        ending=row["ending"],
        stopping=row["stopping"],
        signals=_load(row["signals"]),
    )


def _load(text: str) -> Any:
    """Return a JSON value. Most of these are empty, and the decoder takes a microsecond for nothing."""
    if text == "{}":
        return {}
    return [] if text == "[]" else json.loads(text)


def node_row(row: asyncpg.Record) -> NodeRow:
    """Return a node as the engine keeps it."""
    return NodeRow(
        row["node_id"],
        NodeStatus(row["status"]),
        row["parent_node_id"],
        row["fan_out_index"],
        None if row["skip_reason"] is None else SkipReason(row["skip_reason"]),
        row["attempt"],
        row["failed_attempts"],
        row["lost_attempts"],
        row["shared_losses"] or 0,
        row["upstream_node_id"],
        row["branch"],
        row["wake_at"],
        row["finished_seq"],
        None if row["error"] is None else json.loads(row["error"]),
        row["source_count"],
        row["expanded_count"],
        row["stopped"],
        row["fingerprint"],
        row["handler_version"],
    )
