"""How far a job or a node is, and when it may end."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from dagmaster.application.job_lookup import find_job
from dagmaster.application.job_snapshot import load_snapshot
from dagmaster.application.queries.nodes import list_tasks, node_detail
from dagmaster.application.views.jobs import (
    CurrentTaskView,
    EstimateView,
    JobProgressReportView,
    NodeProgressReportView,
)
from dagmaster.engine.status import TERMINAL_NODE, NodeStatus
from dagmaster.ports.read_store import TaskFilter
from dagmaster.records.nodes import NodeCountsRecord

if TYPE_CHECKING:
    from collections.abc import Mapping

    from dagmaster.application.context import Application
    from dagmaster.records.nodes import ProgressRecord
    from dagmaster.records.tasks import TaskRecord

CURRENT_TASKS: Final = 20
_RUNNING: Final = (NodeStatus.DISPATCHED, NodeStatus.CLAIMED, NodeStatus.RUNNING)


async def report_progress(app: Application, job_id: str | None) -> JobProgressReportView:
    """Return how far a job is. A node that runs counts with the share that its handler reported."""
    record = await find_job(app, job_id)
    snapshot = await load_snapshot(app, record, await app.graphs.of_job(record))
    tasks = [] if record.is_finished else await _current_tasks(app, record.job_id)
    counts = _node_counts(snapshot.stored_counts())
    finished = counts.total - counts.running - counts.pending
    shares = sum((task.progress_percent or 0.0) / 100 for task in tasks)
    done = 1.0 if record.is_finished else min((finished + shares) / max(counts.total, 1), 1.0)
    is_moving = not record.is_finished and counts.running > 0
    return JobProgressReportView.of(
        record,
        overall_percent=round(done * 100, 1),
        nodes=counts,
        current_tasks=tuple(tasks),
        estimate=_estimate(done, record.duration_seconds, record.read_at) if is_moving else None,
    )


async def report_node_progress(app: Application, job_id: str | None, node_id: str) -> NodeProgressReportView:
    """Return how far a node is: by its children, else by what its handler reported."""
    node = await node_detail(app, job_id, node_id)
    done = 1.0 if node.status in TERMINAL_NODE else _share(node.progress)
    if node.children is not None and node.children.total:
        done = node.children.finished / node.children.total
    elapsed = None if node.started_at is None else node.read_at - node.started_at
    is_open = node.status not in TERMINAL_NODE
    return NodeProgressReportView(
        job_id=node.job_id,
        node_id=node_id,
        status=node.status,
        attempt=node.attempt,
        percent=None if done is None else round(done * 100, 1),
        message="" if node.progress is None else node.progress.message,
        children=node.children,
        estimate=_estimate(done, elapsed, node.read_at) if is_open else None,
    )


async def _current_tasks(app: Application, job_id: str) -> list[CurrentTaskView]:
    page = await list_tasks(app, TaskFilter(job_id=job_id, is_claimed=True), limit=CURRENT_TASKS)
    return [_current_task(task) for task in page.items]


def _current_task(task: TaskRecord) -> CurrentTaskView:
    share = _share(task.progress)
    return CurrentTaskView(
        node_id=task.node_id,
        task_id=task.task_id,
        attempt=task.attempt,
        progress_percent=None if share is None else round(share * 100, 1),
        progress_message="" if task.progress is None else task.progress.message,
    )


def _share(progress: ProgressRecord | None) -> float | None:
    if progress is None or not progress.total or progress.total <= 0:
        return None
    return min(max(progress.current / progress.total, 0.0), 1.0)


def _node_counts(counts: Mapping[str, int]) -> NodeCountsRecord:
    total = sum(counts.values())
    ended = {status: counts.get(status, 0) for status in TERMINAL_NODE}
    running = sum(counts.get(status, 0) for status in _RUNNING)
    return NodeCountsRecord(
        total=total,
        completed=ended[NodeStatus.COMPLETED],
        running=running,
        pending=total - running - sum(ended.values()),
        failed=ended[NodeStatus.FAILED],
        skipped=ended[NodeStatus.SKIPPED],
        cancelled=ended[NodeStatus.CANCELLED],
    )


def _estimate(done: float | None, elapsed_seconds: float | None, now: float) -> EstimateView | None:
    """Return when it ends at the pace so far; None before anything is done."""
    if not done or elapsed_seconds is None:
        return None
    remaining = elapsed_seconds * (1 - done) / done
    return EstimateView(remaining_seconds=round(remaining, 1), finishes_at=now + remaining)
