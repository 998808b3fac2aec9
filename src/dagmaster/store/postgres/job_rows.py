"""Rows of jobs and nodes as the engine and the orchestrator keep them."""

from __future__ import annotations

import json
from operator import itemgetter
from typing import TYPE_CHECKING, Any, Final

from dagmaster.engine.status import JobStatus, NodeStatus, SkipReason
from dagmaster.engine.stored_rows import JobRow, NodeRow
from dagmaster.ports.job_columns import Use, columns_with
from dagmaster.ports.job_records import ClaimedJob, NewJob, ParentNode

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping, Sequence

    import asyncpg

    from dagmaster.ports.added_nodes import StoredBatch


_COPIED: Final = tuple(
    column for column in columns_with(Use.CLAIM) if column.name in NewJob.__dataclass_fields__
)
_NAMES: Final = tuple(column.name for column in _COPIED)
_IDS: Final = tuple(column.name for column in _COPIED if column.type == "bigint")
_copied_values = itemgetter(*_NAMES)


def claimed_job(
    row: asyncpg.Record,
    nodes: Iterable[NodeRow],
    tasks: Mapping[str, str],
    batches: Sequence[StoredBatch] = (),
) -> ClaimedJob:
    parent = None
    if row["parent_job_id"] is not None:
        parent = ParentNode(str(row["parent_job_id"]), row["parent_node_id"], row["parent_attempt"])
    fields = dict(zip(_NAMES, _copied_values(row), strict=True))
    for name in _IDS:
        fields[name] = None if fields[name] is None else str(fields[name])
    fields["redo"] = tuple(_load(fields["redo"]))
    return ClaimedJob(
        new=NewJob(**fields, parent=parent),
        row=job_row(row),
        epoch=row["owner_epoch"],
        event_seq=row["event_seq"],
        nodes=tuple(nodes),
        tasks=tasks,
        batches=batches,
    )


def job_row(row: asyncpg.Record) -> JobRow:
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
