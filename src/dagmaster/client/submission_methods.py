"""Methods of clients that submit jobs, add nodes to them, and register workers."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from dagmaster.application.queries.graph_tasks import MAX_LISTED
from dagmaster.application.views.graph_tasks import (
    AddedNodesView,
    GraphDependencyView,
    GraphTaskView,
    ReleasedHoldView,
)
from dagmaster.application.views.health import HealthView
from dagmaster.application.views.remote_tasks import (
    ClaimedTasksView,
    HeartbeatView,
    RegistrationView,
    TaskResultView,
)
from dagmaster.application.views.results import SubmitResult
from dagmaster.client.job_methods import WAIT_SECONDS
from dagmaster.client.methods import (
    Request,
    get,
    method,
    post,
    returns,
    returns_nothing,
    returns_page,
    view_of,
    views_of,
)
from dagmaster.client.problems import error_of_document
from dagmaster.client.request_bodies import (
    definition_body,
    graph_lines,
    job_body,
    options_body,
    outcome_body,
    own_result,
)

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from dagmaster.application.graph_jobs import GraphJobRequest
    from dagmaster.application.submission import JobRequest
    from dagmaster.authoring.graph_parts import GraphPart
    from dagmaster.client.connection import Connection
    from dagmaster.json_types import JsonValue
    from dagmaster.ports.remote_workers import NewWorker
    from dagmaster.ports.task_messages import Failed, Released, Succeeded


class SubmissionMethods:
    """Jobs that are submitted, nodes that are added, workers that are registered."""

    connection: Connection

    @method
    async def submit(  # noqa: PLR0913 - the options of a submit
        self,
        workflow_id: str,
        inputs: Mapping[str, JsonValue] | None = None,
        *,
        version: int | None = None,
        name: str = "",
        priority: int = 5,
        idempotency_key: str | None = None,
        correlation_id: str | None = None,
        submitter_label: str | None = None,
        callback_url: str | None = None,
    ) -> SubmitResult:
        """Submit a job of a published workflow."""
        from dagmaster.application.submission import JobRequest

        return await self.submit_job(
            JobRequest(
                workflow_id=workflow_id,
                version=version,
                inputs=inputs or {},
                name=name,
                priority=priority,
                idempotency_key=idempotency_key,
                correlation_id=correlation_id,
                submitter_label=submitter_label,
                callback_url=callback_url,
            )
        )

    @method
    async def submit_job(self, request: JobRequest) -> SubmitResult:
        """Submit a job; return the existing one if its key was used for the same request before."""
        if request.graph is not None:
            (result,) = await self.submit_jobs([request])
            if result.error is not None:
                raise error_of_document(result.error)
            return result
        answer = await self.connection.send(post("jobs", body=job_body(request), is_repeatable=True))
        return own_result(request, view_of(SubmitResult, answer))

    @returns(SubmitResult)
    def submit_graph(self, request: GraphJobRequest) -> Request:
        """Submit a job with a graph that was built in code: all of it is stored, or nothing."""
        job = options_body(request)
        return _lines("graph", content=graph_lines(request.part, job), is_repeatable=True)

    @returns(ReleasedHoldView)
    def release_hold(self, job_id: str, signal: str, *, wait_seconds: float = 0.0) -> Request:
        """Let a job complete that the code which made it kept open."""
        return post("jobs", job_id, "holds", signal, "release", wait_seconds=wait_seconds or None)

    @returns(AddedNodesView)
    def add_nodes(self, job_id: str, part: GraphPart, *, wait_seconds: float = WAIT_SECONDS) -> Request:
        """Add nodes to a job that has not finished, all or none, and wait until its owner accepted them."""
        return _lines(
            job_id, "tasks", content=graph_lines(part), is_repeatable=False, wait_seconds=wait_seconds
        )

    @returns(GraphTaskView)
    def find_task(self, task_id: str) -> Request:
        """Return a task that was made in Python, by its own id."""
        return get("tasks", task_id)

    @returns_page(GraphTaskView)
    def list_graph_tasks(
        self, job_id: str, *, node_id: str | None = None, cursor: str | None = None, limit: int = MAX_LISTED
    ) -> Request:
        """List the tasks of a job that were made in Python, without their results and attempts."""
        return get("jobs", job_id, "graph", "tasks", node_id=node_id, cursor=cursor, limit=limit)

    @returns_page(GraphDependencyView)
    def list_dependencies(
        self, job_id: str, *, cursor: str | None = None, limit: int = MAX_LISTED
    ) -> Request:
        """List the dependencies of a job between tasks and groups that were made in Python."""
        return get("jobs", job_id, "graph", "dependencies", cursor=cursor, limit=limit)

    @returns(RegistrationView)
    def register_worker(self, worker: NewWorker) -> Request:
        """Register a worker that this code runs itself. It gets no tasks if it names no handlers."""
        handlers = [{"name": name, "version": version} for name, version in worker.handlers.items()]
        body = {"host": worker.host, "pid": worker.pid, "version": worker.version, "handlers": handlers}
        return post("workers", body={**body, "queues": list(worker.queues)})

    @returns(HeartbeatView)
    def renew_worker(self, worker_id: str, task_ids: Sequence[str] = ()) -> Request:
        """Renew the lease of a registered worker, and of the tasks that it holds."""
        body = {"worker_id": worker_id, "task_ids": list(task_ids)}
        return post("callbacks", "task-heartbeat", body=body, is_repeatable=True)

    @returns(ClaimedTasksView)
    def claim_task(self, worker_id: str, task_ids: Sequence[str] = (), wait_seconds: float = 0.0) -> Request:
        """Claim a task of the handlers of a registered worker. `task_ids`: what it holds already."""
        body = {"worker_id": worker_id, "task_ids": list(task_ids), "wait_seconds": wait_seconds}
        return post("tasks", "claim", body=body)

    @returns(TaskResultView)
    def report_task(
        self, worker_id: str, task_id: str, lease_token: int, outcome: Succeeded | Failed | Released
    ) -> Request:
        """Report the outcome of a task that a registered worker holds."""
        body = {"worker_id": worker_id, "task_id": task_id, "lease_token": str(lease_token)}
        path = ("callbacks", "task-result")
        return post(*path, body={**body, **outcome_body(outcome)}, is_repeatable=True)

    @returns_nothing
    def deregister_worker(self, worker_id: str) -> Request:
        """Deregister a worker."""
        return post("workers", worker_id, "deregister")

    @method
    async def check_health(self) -> HealthView:
        """Return the state of each part of the system."""
        return view_of(HealthView, await self.connection.check_health())

    @method
    async def submit_jobs(self, requests: Sequence[JobRequest]) -> list[SubmitResult]:
        """Submit up to 100 jobs, and return an outcome for each; an invalid one does not stop the others."""
        path, body = "batch", {"jobs": [job_body(request) for request in requests]}
        if requests and requests[0].graph is not None:
            path, body = "definition", definition_body(requests)
        answer = await self.connection.send(post("jobs", path, body=body, is_repeatable=True))
        results = views_of(SubmitResult, answer)
        return [own_result(request, result) for request, result in zip(requests, results, strict=True)]


def _lines(*path: str, content: bytes, is_repeatable: bool, **params: Any) -> Request:
    return Request(
        path=("jobs", *path, "lines"),
        params=params,
        content=content,
        headers={"Content-Type": "application/x-ndjson", "Content-Encoding": "gzip"},
        is_repeatable=is_repeatable,
    )
