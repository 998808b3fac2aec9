"""`AsyncClient`: everything that can be asked of dagmaster, over HTTP.

A method has the name, the arguments and the answer of the function of `application` that its route calls, without the
application and without the sender, who is the owner of the key. A test compares them.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Self

from dagmaster.application.views.results import SubmitResult
from dagmaster.client.answers import view_of, views_of
from dagmaster.client.connection import DEFAULT_TIMEOUT_SECONDS, Connection
from dagmaster.client.job_methods import JobMethods
from dagmaster.client.problems import error_of_document
from dagmaster.client.request_bodies import definition_body, job_body, own_result
from dagmaster.client.system_methods import SystemMethods

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    import httpx

    from dagmaster.application.submission import JobRequest
    from dagmaster.client.retries import Retries
    from dagmaster.json_types import JsonValue


class AsyncClient(JobMethods, SystemMethods):
    """A client of a server. The address and the key are those of DAGMASTER_URL and DAGMASTER_KEY by default.

    Requests that may be repeated (reads, and whatever carries an idempotency key, as every submission does) are
    repeated if the server is unreachable, overloaded or unavailable. Errors are those of `dagmaster.errors`.
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
        self.connection = Connection(url, key, retries=retries, timeout_seconds=timeout_seconds, transport=transport)

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

    async def submit_jobs(self, requests: Sequence[JobRequest]) -> list[SubmitResult]:
        """Submit up to 100 jobs, and return an outcome for each; an invalid one does not stop the others."""
        path, body = "batch", {"jobs": [job_body(request) for request in requests]}
        if requests and requests[0].graph is not None:
            path, body = "definition", definition_body(requests)
        answer = await self.connection.post("jobs", path, body=body, is_repeatable=True)
        results = views_of(SubmitResult, answer)
        return [own_result(request, result) for request, result in zip(requests, results, strict=True)]
