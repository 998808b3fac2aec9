"""The detail of one job: its values, its nodes and what it waits for."""

from __future__ import annotations

from typing import TYPE_CHECKING

from dagmaster.application.blocking_reasons import blocking_reasons
from dagmaster.application.job_lookup import find_job, load_value
from dagmaster.application.job_snapshot import NodeViews, load_snapshot
from dagmaster.application.job_wait import wait_for_end
from dagmaster.application.node_lookup import dependencies_of
from dagmaster.application.queries.jobs import command_view
from dagmaster.application.views.jobs import JobDetailView
from dagmaster.ports.read_store import NodeFilter
from dagmaster.records.redacted import redacted

if TYPE_CHECKING:
    from collections.abc import Mapping

    from dagmaster.application.context import Application
    from dagmaster.application.job_snapshot import JobSnapshot
    from dagmaster.json_types import JsonValue
    from dagmaster.records.nodes import NodeRecord

_ALL_NODES_BATCH = 5_000


async def job_detail(
    app: Application,
    job_id: str | None,
    *,
    with_children: bool = False,
    wait_seconds: float = 0.0,
    max_bytes: int | None = None,
) -> JobDetailView:
    """Return one job with its values and nodes; `last` is the newest.

    `with_children`: also the children of fan-outs. `wait_seconds`: how long to wait until it has ended.

    `max_bytes`: a larger result is not read.
    """
    if wait_seconds > 0:
        await wait_for_end(app, job_id, wait_seconds=wait_seconds)
    record = await find_job(app, job_id)
    snapshot = await load_snapshot(app, record, await app.outlines.of_job(record))
    return await detail_view(app, snapshot, with_children=with_children, max_bytes=max_bytes)


async def detail_view(
    app: Application, snapshot: JobSnapshot, *, with_children: bool = False, max_bytes: int | None = None
) -> JobDetailView:
    job = snapshot.job
    result = await load_value(app, job.result, job.result_ref, max_bytes=max_bytes)
    children = await _load_children(app, job.job_id) if with_children else {}
    attempts = await app.read.attempt_count(job.job_id)
    return snapshot_view(snapshot, result=result, attempts=attempts, children=children)


def snapshot_view(
    snapshot: JobSnapshot,
    *,
    result: JsonValue = None,
    attempts: int = 0,
    children: Mapping[str, NodeRecord] | None = None,
) -> JobDetailView:
    job = snapshot.job
    detail = JobDetailView.of(
        job,
        result=result,
        attempts=attempts,
        counts=snapshot.counts(),
        blocking_reasons=tuple(blocking_reasons(snapshot)),
        pending_commands=tuple(map(command_view, snapshot.commands)),
        nodes=NodeViews(snapshot, children),
        dependencies=dependencies_of(snapshot.graph),
        statuses=snapshot.statuses(),
        fan_outs=tuple(snapshot.children),
    )
    return redacted(detail, snapshot.redact)


async def _load_children(app: Application, job_id: str) -> dict[str, NodeRecord]:
    """Read all children of a job's fan-outs, page by page."""
    children: dict[str, NodeRecord] = {}
    after = None
    while True:
        records = await app.read.list_nodes(NodeFilter(job_id=job_id), after=after, limit=_ALL_NODES_BATCH)
        children |= {record.node_id: record for record in records if record.parent_node_id is not None}
        if len(records) < _ALL_NODES_BATCH:
            return children
        after = records[-1].place_in_job
