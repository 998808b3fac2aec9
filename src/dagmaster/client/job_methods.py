"""Methods of clients about jobs and their nodes: read, follow, control."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING, Final

from dagmaster.application.views.events_and_logs import EventView, LogLineView, LogView
from dagmaster.application.views.footprints import FootprintsView
from dagmaster.application.views.jobs import CountsView, JobDetailView, JobProgressReportView, JobProgressView
from dagmaster.application.views.nodes import NodeDetailView
from dagmaster.application.views.results import (
    CommandResult,
    JobSelectionView,
    ResumePlanView,
    SelectionResult,
    SubmitResult,
)
from dagmaster.application.views.why import JobWhyView, NodeWhyView
from dagmaster.client import following
from dagmaster.client.connection import DEFAULT_TIMEOUT_SECONDS
from dagmaster.client.methods import Request, get, method, post, returns, returns_page, stream, view_of
from dagmaster.client.request_bodies import (
    finished_task_query,
    job_query,
    resume_body,
    status_names,
    task_query,
    time_text,
)
from dagmaster.errors import QueryInvalid
from dagmaster.ports.read_records import NodeFilter
from dagmaster.records.jobs import JobRecord
from dagmaster.records.nodes import NodeRecord
from dagmaster.records.tasks import AttemptRecord, TaskRecord

if TYPE_CHECKING:
    from collections.abc import AsyncGenerator, Collection, Sequence

    from dagmaster.application.commands.job_selection import JobAction
    from dagmaster.application.commands.resume import ResumeRequest
    from dagmaster.application.log_levels import LogLevel
    from dagmaster.client.connection import Connection
    from dagmaster.engine.status import NodeStatus
    from dagmaster.json_types import JsonValue
    from dagmaster.ports.finished_tasks import FinishedTaskFilter
    from dagmaster.ports.job_filter import JobFilter
    from dagmaster.ports.read_records import TaskFilter

WAIT_SECONDS: Final = 5.0
"""How long a command waits for its effect, unless its caller says otherwise."""
LAST: Final = "last"


class JobMethods:
    """What can be asked about jobs."""

    connection: Connection

    # ── Jobs ──

    @returns_page(JobRecord)
    def list_jobs(
        self, job_filter: JobFilter | None = None, *, cursor: str | None = None, limit: int = 20
    ) -> Request:
        """List jobs that match a filter, newest first."""
        query = job_query(job_filter)
        return get("jobs", **query, cursor=cursor, limit=limit)

    @returns(CountsView)
    def count_jobs(self, job_filter: JobFilter | None = None) -> Request:
        """Count jobs by displayed status."""
        return get("stats", **job_query(job_filter))

    @returns(JobDetailView)
    def job_detail(
        self, job_id: str | None, *, with_children: bool = False, wait_seconds: float = 0.0
    ) -> Request:
        """Return one job with its values and nodes; `last` is the newest.

        `with_children`: also the children of fan-outs. `wait_seconds`: how long to wait until it has ended,
        at most 60.
        """
        children, seconds = with_children or None, wait_seconds or None
        request = get("jobs", job_id or LAST, children=children, wait_seconds=seconds)
        # Without a wait, the time that every request has.
        patience = wait_seconds + DEFAULT_TIMEOUT_SECONDS if wait_seconds else None
        return replace(request, timeout_seconds=patience)

    @returns(JobProgressView)
    def job_progress(self, job_id: str | None) -> Request:
        """Return how far a job is."""
        return get("jobs", job_id or LAST, "progress")

    @returns(JobProgressReportView)
    def report_progress(self, job_id: str | None) -> Request:
        """Return how far a job is, what runs, and when it may end."""
        return get("jobs", job_id or LAST, "progress")

    @returns(JobWhyView)
    def why_job(self, job_id: str | None) -> Request:
        """Explain a job: the reason that matters most, then all its nodes."""
        return get("jobs", job_id or LAST, "why")

    @returns(FootprintsView)
    def job_footprints(self, job_id: str | None, *, cursor: str | None = None, limit: int = 1_000) -> Request:
        """Return a page of the children of a job's fan-outs that have a footprint, as GeoJSON features."""
        return get("jobs", job_id or LAST, "footprints", cursor=cursor, limit=limit)

    @returns_page(EventView)
    def list_events(
        self,
        job_id: str | None,
        *,
        after: int = 0,
        cursor: str | None = None,
        limit: int = 1000,
        node_ids: Collection[str] | None = None,
        with_children: bool = True,
    ) -> Request:
        """List the events of a job after a number, oldest first.

        With nodes: the job's, theirs, and every failure.
        """
        return get(
            "jobs",
            job_id or LAST,
            "events",
            after=after,
            cursor=cursor,
            limit=limit,
            node_id=None if node_ids is None else list(node_ids),
            children=with_children,
        )

    @returns_page(LogView)
    def list_logs(
        self,
        job_id: str | None,
        *,
        node_id: str | None = None,
        attempt: int | None = None,
        since: float | None = None,
        until: float | None = None,
        cursor: str | None = None,
        limit: int = 1000,
        newest_first: bool = False,
    ) -> Request:
        """List chunks of a job's logs in the order they were written, of a time range."""
        return get(
            "jobs",
            job_id or LAST,
            "logs",
            node_id=node_id,
            attempt=attempt,
            since=time_text(since),
            until=time_text(until),
            cursor=cursor,
            limit=limit,
            newest_first=newest_first,
        )

    @returns_page(LogLineView)
    def list_log_lines(  # noqa: PLR0913 - as the function of `application`
        self,
        job_id: str | None,
        *,
        contains: str | None = None,
        level: LogLevel | None = None,
        node_id: str | None = None,
        attempt: int | None = None,
        since: float | None = None,
        until: float | None = None,
        cursor: str | None = None,
        limit: int = 200,
        newest_first: bool = False,
    ) -> Request:
        """List the lines of a job's logs that contain a text, in any case, and have at least this level."""
        return get(
            "jobs",
            job_id or LAST,
            "logs",
            "lines",
            contains=contains,
            level=level,
            node_id=node_id,
            attempt=attempt,
            since=time_text(since),
            until=time_text(until),
            cursor=cursor,
            limit=limit,
            newest_first=newest_first,
        )

    # ── Follow a job ──

    @method
    async def wait(self, job_id: str | None, *, timeout_seconds: float | None = None) -> JobDetailView:
        """Wait until a job has finished; return it, or raise `TimeoutError` with its status."""
        return await following.wait(self, job_id, timeout_seconds)

    @stream
    def watch_job(self, job_id: str | None) -> AsyncGenerator[JobDetailView, None]:
        """Yield a job's view whenever it has changed.

        The last one has its result, unless the job was removed.
        """
        return following.watch_job(self, job_id)

    @stream
    def watch_jobs(
        self, job_filter: JobFilter | None = None, *, limit: int = 100
    ) -> AsyncGenerator[tuple[JobRecord, ...], None]:
        """Yield the newest jobs that match a filter, newest first, whenever one of them has changed.

        It has no end.
        """
        return following.watch_jobs(self, job_filter, limit)

    @stream
    def follow_events(
        self, job_id: str | None, *, after: int = 0, node_id: str | None = None, follow: bool = True
    ) -> AsyncGenerator[EventView, None]:
        """Yield the events of a job in order and without gaps; with `follow`, until the job has finished."""
        return following.follow_events(self, job_id, after=after, node_id=node_id, follow=follow)

    @stream
    def follow_logs(
        self,
        job_id: str | None,
        *,
        node_id: str | None = None,
        attempt: int | None = None,
        follow: bool = True,
    ) -> AsyncGenerator[LogView, None]:
        """Yield chunks of a job's logs as they are written; with `follow`, until the job has finished."""
        return following.follow_logs(self, job_id, node_id=node_id, attempt=attempt, follow=follow)

    # ── Nodes and tasks ──

    @returns(NodeDetailView)
    def node_detail(self, job_id: str | None, node_id: str) -> Request:
        """Return one node, or one child of a fan-out, with its attempts and values."""
        return get("jobs", job_id or LAST, "nodes", node_id)

    @returns(NodeWhyView)
    def why_node(self, job_id: str | None, node_id: str) -> Request:
        """Explain a node, link by link to the root cause."""
        return get("jobs", job_id or LAST, "nodes", node_id, "why")

    @returns_page(NodeRecord)
    def list_children(
        self,
        job_id: str | None,
        fan_out: str,
        *,
        statuses: frozenset[NodeStatus] = frozenset(),
        cursor: str | None = None,
        limit: int = 100,
    ) -> Request:
        """List the children of a fan-out by index."""
        return get(
            "jobs",
            job_id or LAST,
            "nodes",
            fan_out,
            "children",
            status=status_names(statuses),
            cursor=cursor,
            limit=limit,
        )

    @returns_page(NodeRecord)
    def list_nodes(
        self, node_filter: NodeFilter | None = None, *, cursor: str | None = None, limit: int = 100
    ) -> Request:
        """List nodes that have started, across jobs (newest job first) or of one job."""
        node_filter = node_filter or NodeFilter()
        path = ["nodes"] if node_filter.job_id is None else ["jobs", node_filter.job_id, "nodes"]
        if node_filter.parent_node_id is not None:
            if node_filter.job_id is None:
                raise QueryInvalid("parent_node_id is a fan-out of one job: also name its job_id")
            path += [node_filter.parent_node_id, "children"]
        query = {
            "status": status_names(node_filter.statuses),
            "workflow_id": node_filter.workflow_id,
            "top_level": node_filter.top_level or None,
        }
        return get(*path, **query, cursor=cursor, limit=limit)

    @returns_page(TaskRecord)
    def list_tasks(
        self, task_filter: TaskFilter | None = None, *, cursor: str | None = None, limit: int = 100
    ) -> Request:
        """List tasks in flight across jobs, newest first."""
        query = task_query(task_filter)
        return get("tasks", **query, cursor=cursor, limit=limit)

    @returns_page(AttemptRecord)
    def list_finished_tasks(
        self, task_filter: FinishedTaskFilter | None = None, *, cursor: str | None = None, limit: int = 100
    ) -> Request:
        """List finished tasks across jobs, newest first. A page that has a cursor may be short, or empty."""
        query = finished_task_query(task_filter)
        return get("tasks", "finished", **query, cursor=cursor, limit=limit)

    # ── Control ──

    @returns(CommandResult)
    def cancel_job(
        self, job_id: str | None, *, comment: str = "", wait_seconds: float = WAIT_SECONDS
    ) -> Request:
        """Ask a job to stop: nothing new starts, and running tasks are asked to stop. `comment`: why."""
        body = {"comment": comment} if comment else None
        return post("jobs", job_id or LAST, "cancel", body=body, wait_seconds=wait_seconds)

    @returns(JobSelectionView)
    def select_jobs(
        self,
        action: JobAction,
        job_filter: JobFilter,
        *,
        cursor: str | None = None,
        limit: int = 100,
    ) -> Request:
        """Return the jobs that match and can be cancelled or resumed, with a token; change nothing."""
        query = job_query(job_filter)
        path = ("jobs", str(action))
        return post(*path, **query, cursor=cursor, limit=limit, dry_run=True, is_repeatable=True)

    @returns(SelectionResult)
    def change_selected_jobs(self, token: str, *, comment: str = "") -> Request:
        """Cancel or resume the jobs of a dry run; return the outcome of each."""
        from dagmaster.application.commands.job_selection import action_of

        return post("jobs", str(action_of(token)), body={"token": token, "comment": comment})

    @returns(CommandResult)
    def cancel_node(self, job_id: str | None, node_id: str, *, wait_seconds: float = WAIT_SECONDS) -> Request:
        """Cancel one node: it fails with the reason `cancelled`, and its job goes on as after any failure."""
        path = ("jobs", job_id or LAST, "nodes", node_id, "cancel")
        return post(*path, wait_seconds=wait_seconds)

    @returns(CommandResult)
    def cancel_nodes(
        self, job_id: str | None, node_ids: Sequence[str], *, wait_seconds: float = WAIT_SECONDS
    ) -> Request:
        """Cancel at most 1,000 nodes: each fails with the reason `cancelled`. Finished ones are skipped."""
        path, body = ("jobs", job_id or LAST, "nodes", "cancel"), {"nodes": list(node_ids)}
        return post(*path, body=body, wait_seconds=wait_seconds)

    @returns(CommandResult)
    def approve_node(
        self, job_id: str | None, node_id: str, *, comment: str = "", wait_seconds: float = WAIT_SECONDS
    ) -> Request:
        """Approve a waiting approval: the job continues."""
        path, body = ("jobs", job_id or LAST, "nodes", node_id, "approve"), {"comment": comment}
        return post(*path, body=body, wait_seconds=wait_seconds)

    @returns(CommandResult)
    def reject_node(
        self, job_id: str | None, node_id: str, *, comment: str = "", wait_seconds: float = WAIT_SECONDS
    ) -> Request:
        """Reject a waiting approval: its node fails."""
        path, body = ("jobs", job_id or LAST, "nodes", node_id, "reject"), {"comment": comment}
        return post(*path, body=body, wait_seconds=wait_seconds)

    @returns(CommandResult)
    def send_signal(
        self, job_id: str | None, name: str, payload: JsonValue = None, *, wait_seconds: float = WAIT_SECONDS
    ) -> Request:
        """Send a signal with a payload to the nodes of a job that wait for it, now or later."""
        path = ("jobs", job_id or LAST, "signals", name)
        return post(*path, body={"payload": payload}, wait_seconds=wait_seconds)

    @returns(CommandResult)
    def retry_node(self, job_id: str | None, node_id: str, *, wait_seconds: float = WAIT_SECONDS) -> Request:
        """Run one node again: one that failed or was cancelled; or at once one that waits for a retry."""
        path = ("jobs", job_id or LAST, "nodes", node_id, "retry")
        return post(*path, wait_seconds=wait_seconds)

    @returns(CommandResult)
    def retry_nodes(
        self, job_id: str | None, node_ids: Sequence[str], *, wait_seconds: float = WAIT_SECONDS
    ) -> Request:
        """Run at most 1,000 nodes again, all in one new run. Those that cannot be retried are skipped."""
        path, body = ("jobs", job_id or LAST, "nodes", "retry"), {"nodes": list(node_ids)}
        return post(*path, body=body, wait_seconds=wait_seconds)

    @returns(ResumePlanView)
    def plan_retry_nodes(self, job_id: str | None, node_ids: Sequence[str]) -> Request:
        """Return what a retry of nodes would do, and change nothing."""
        path, body = ("jobs", job_id or LAST, "nodes", "retry"), {"nodes": list(node_ids)}
        return post(*path, body=body, dry_run=True, is_repeatable=True)

    @returns(ResumePlanView)
    def plan_retry(self, job_id: str | None, node_id: str) -> Request:
        """Return what a retry of a node would do, and change nothing."""
        path = ("jobs", job_id or LAST, "nodes", node_id, "retry")
        return post(*path, dry_run=True, is_repeatable=True)

    @method
    async def resume_job(
        self, job_id: str | None, request: ResumeRequest, *, wait_seconds: float = WAIT_SECONDS
    ) -> CommandResult | SubmitResult:
        """Resume a finished job; return the result of the command, or of the submission for a new job."""
        path = ("jobs", job_id or LAST, "resume")
        resume = post(*path, body=resume_body(request), wait_seconds=wait_seconds)
        answer = await self.connection.send(resume)
        if "command_id" in answer.document:
            return view_of(CommandResult, answer)
        return view_of(SubmitResult, answer)

    @returns(ResumePlanView)
    def plan_resume(self, job_id: str | None, request: ResumeRequest) -> Request:
        """Return what a resume would do, and change nothing."""
        path, body = ("jobs", job_id or LAST, "resume"), resume_body(request)
        return post(*path, body=body, dry_run=True, is_repeatable=True)
