"""`Client`: the methods of `AsyncClient` for programs without an event loop.

The requests run on a loop in a separate thread: a `Client` also works in a notebook, which has a loop
already. A program that does not close its client ends nevertheless.
"""

from __future__ import annotations

import functools
import inspect
from typing import TYPE_CHECKING, Any, Self

from dagmaster.client.async_client import AsyncClient
from dagmaster.client.connection import DEFAULT_TIMEOUT_SECONDS
from dagmaster.client.job_methods import JobMethods
from dagmaster.client.request_methods import RequestMethods
from dagmaster.client.submission_methods import SubmissionMethods
from dagmaster.client.system_methods import SystemMethods
from dagmaster.host.event_loops import LoopThread

if TYPE_CHECKING:
    from collections.abc import Callable

    from dagmaster.client.retries import Retries


class Client(SubmissionMethods, RequestMethods, JobMethods, SystemMethods):
    """A client of a server.

    The address and the key default to DAGMASTER_URL and DAGMASTER_KEY.
    """

    def __init__(
        self,
        url: str | None = None,
        key: str | None = None,
        *,
        retries: Retries | None = None,
        timeout_seconds: float = DEFAULT_TIMEOUT_SECONDS,
    ) -> None:
        self.asynchronous = AsyncClient(url, key, retries=retries, timeout_seconds=timeout_seconds)
        self.loop = LoopThread("dagmaster-client")

    def __repr__(self) -> str:
        """Return the address, without the key."""
        return f"{type(self).__name__}({self.asynchronous.connection.url!r})"

    def __enter__(self) -> Self:
        """Return the client."""
        return self

    def __exit__(self, *_exception: object) -> None:
        """Close the connections, and end the thread."""
        self.close()

    def close(self) -> None:
        """Close the connections, and end the thread."""
        try:
            self.loop.run(self.asynchronous.close())
        finally:
            self.loop.stop()


def _blocking(method: Callable[..., Any]) -> Callable[..., Any]:
    @functools.wraps(method)
    def call(self: Client, *args: Any, **kwargs: Any) -> Any:
        answer: Any = method(self.asynchronous, *args, **kwargs)
        return self.loop.run(answer) if inspect.iscoroutine(answer) else self.loop.iterate(answer)

    return call


for _name, _method in inspect.getmembers(AsyncClient, inspect.isfunction):
    if not _name.startswith("_") and _name not in vars(Client):
        setattr(Client, _name, _blocking(_method))
