"""`AsyncClient`: everything that can be asked of dagmaster, over HTTP.

A method has the name, the arguments and the answer of the function of `application` that its route calls,
without the application and without the sender, who is the owner of the key. A test compares them.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Self

from dagmaster.client.connection import DEFAULT_TIMEOUT_SECONDS, Connection
from dagmaster.client.job_methods import JobMethods
from dagmaster.client.request_methods import RequestMethods
from dagmaster.client.submission_methods import SubmissionMethods
from dagmaster.client.system_methods import SystemMethods

if TYPE_CHECKING:
    import httpx

    from dagmaster.client.retries import Retries


class AsyncClient(SubmissionMethods, RequestMethods, JobMethods, SystemMethods):
    """A client of a server. The address and the key default to DAGMASTER_URL and DAGMASTER_KEY.

    Requests that may be repeated (reads, and whatever carries an idempotency key, as every submission does)
    are repeated if the server is unreachable, overloaded or unavailable. They raise the errors of
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
