"""`AsyncClient`: everything that can be asked of dagmaster, over HTTP.

A method has the name, the arguments and the answer of the function of `application` that its route calls,
without the application and without the sender, who is the owner of the key. A test compares them.
"""

from __future__ import annotations

import uuid
from typing import TYPE_CHECKING, Any, Self

from dagmaster.application.views.graph_tasks import AddedNodesView, GraphTaskView, ReleasedHoldView
from dagmaster.application.views.health import HealthView
from dagmaster.application.views.remote_tasks import RegistrationView
from dagmaster.application.views.results import SubmitResult
from dagmaster.client.answers import view_of, views_of
from dagmaster.client.connection import DEFAULT_TIMEOUT_SECONDS, Connection
from dagmaster.client.job_methods import WAIT_SECONDS, JobMethods
from dagmaster.client.problems import error_of_document
from dagmaster.client.request_bodies import definition_body, graph_lines, job_body, own_result
from dagmaster.client.system_methods import SystemMethods

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    import httpx

    from dagmaster.application.graph_jobs import GraphJobRequest
    from dagmaster.application.submission import JobRequest
    from dagmaster.authoring.graph_parts import GraphPart
    from dagmaster.client.connection import Answer
    from dagmaster.client.retries import Retries
    from dagmaster.json_types import JsonValue
    from dagmaster.ports.remote_workers import NewWorker


class AsyncClient(JobMethods, SystemMethods):
    """A client of a server. The address and the key are those of DAGMASTER_URL and DAGMASTER_KEY by default.

    Requests that may be repeated (reads, and whatever carries an idempotency key, as every submission does)
    are repeated if the server is unreachable, overloaded or unavailable. Errors are those of
    `dagmaster.errors`.
    """

    def __init__(
        self,
        url: str | None = None,
        key: str | None = None,
        *,
        retries: Retries | None = None,
        timeout_seconds: float = DEFAULT_TIMEOUT_SECONDS,
        transport: httpx.AsyncBaseTransport | None = None,
    ) -> None:
        self.connection = Connection(
            url, key, retries=retries, timeout_seconds=timeout_seconds, transport=transport
        )

    def __repr__(self) -> str:
        """Return the address, without the key."""
        return f"{type(self).__name__}({self.connection.url!r})"

    async def __aenter__(self) -> Self:
        """Return the client."""
        return self

    async def __aexit__(self, *_exception: object) -> None:
        """Close the connections."""
        await self.close()

    async def close(self) -> None:
        """Close the connections."""
        await self.connection.close()

    async def submit(
        self,
        workflow_id: str,
        inputs: Mapping[str, JsonValue] | None = None,
        *,
        version: int | None = None,
        name: str = "",
        priority: int = 5,
        idempotency_key: str | None = None,
        correlation_id: str | None = None,
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
            )
        )

    async def submit_job(self, request: JobRequest) -> SubmitResult:
        """Submit a job; return the existing one if its idempotency key was used for the same request before."""
        if request.graph is not None:
            (result,) = await self.submit_jobs([request])
            if result.error is not None:
                raise error_of_document(result.error)
            return result
        answer = await self.connection.post("jobs", body=job_body(request), is_repeatable=True)
        return own_result(request, view_of(SubmitResult, answer))

    async def submit_graph(self, request: GraphJobRequest) -> SubmitResult:
        """Submit a job with a graph that was built in code: all of it is stored, or nothing."""
        job = {"name": request.name, "priority": request.priority, "correlation_id": request.correlation_id}
        job["idempotency_key"] = request.idempotency_key or uuid.uuid4().hex
        answer = await self._post_lines("graph", content=graph_lines(request.part, job), is_repeatable=True)
        return view_of(SubmitResult, answer)

    async def release_hold(self, job_id: str, signal: str) -> ReleasedHoldView:
        """Let a job complete that the code which made it kept open."""
        return view_of(
            ReleasedHoldView, await self.connection.post("jobs", job_id, "holds", signal, "release")
        )

    async def add_nodes(
        self, job_id: str, part: GraphPart, *, wait_seconds: float = WAIT_SECONDS
    ) -> AddedNodesView:
        """Add nodes to a job that has not finished, all or none, and wait until its owner accepted them."""
        answer = await self._post_lines(
            job_id, "tasks", content=graph_lines(part), is_repeatable=False, wait_seconds=wait_seconds
        )
        return view_of(AddedNodesView, answer)

    async def find_task(self, task_id: str) -> GraphTaskView:
        """Return a task that was made in Python, by its own id."""
        return view_of(GraphTaskView, await self.connection.get("tasks", task_id))

    async def _post_lines(self, *path: str, content: bytes, is_repeatable: bool, **params: Any) -> Answer:
        return await self.connection.request(
            "POST",
            ("jobs", *path, "lines"),
            params=params,
            content=content,
            headers={"Content-Type": "application/x-ndjson", "Content-Encoding": "gzip"},
            is_repeatable=is_repeatable,
        )

    async def register_worker(self, worker: NewWorker) -> RegistrationView:
        """Register a worker that this code runs itself. It gets no tasks if it names no handlers."""
        handlers = [{"name": name, "version": version} for name, version in worker.handlers.items()]
        body = {"host": worker.host, "pid": worker.pid, "version": worker.version, "handlers": handlers}
        answer = await self.connection.post("workers", body={**body, "queues": list(worker.queues)})
        return view_of(RegistrationView, answer)

    async def renew_worker(self, worker_id: str) -> None:
        """Renew the lease of a registered worker."""
        await self.connection.post(
            "callbacks", "task-heartbeat", body={"worker_id": worker_id}, is_repeatable=True
        )

    async def deregister_worker(self, worker_id: str) -> None:
        """Deregister a worker."""
        await self.connection.post("workers", worker_id, "deregister")

    async def check_health(self) -> HealthView:
        """Return the state of each part of the system."""
        return view_of(HealthView, await self.connection.check_health())

    async def submit_jobs(self, requests: Sequence[JobRequest]) -> list[SubmitResult]:
        """Submit up to 100 jobs, and return an outcome for each; an invalid one does not stop the others."""
        path, body = "batch", {"jobs": [job_body(request) for request in requests]}
        if requests and requests[0].graph is not None:
            path, body = "definition", definition_body(requests)
        answer = await self.connection.post("jobs", path, body=body, is_repeatable=True)
        results = views_of(SubmitResult, answer)
        return [own_result(request, result) for request, result in zip(requests, results, strict=True)]
