"""`Client`: the methods of `AsyncClient` for programs without an event loop.

The requests run on a loop in a thread of its own: a `Client` works in a notebook, too, which has a loop
already. A program that does not close its client ends nevertheless.
"""

from __future__ import annotations

import asyncio
import sys
import threading
from typing import TYPE_CHECKING, Any, Concatenate, Generic, ParamSpec, Self, TypeVar, overload

from dagmaster.client.async_client import AsyncClient
from dagmaster.client.connection import DEFAULT_TIMEOUT_SECONDS

if TYPE_CHECKING:
    from collections.abc import AsyncGenerator, Awaitable, Callable, Coroutine, Iterator

    from dagmaster.client.retries import Retries

P = ParamSpec("P")
T = TypeVar("T")


class _LoopThread:
    """An event loop in a thread of its own, which does not keep the process alive."""

    def __init__(self) -> None:
        self._loop = asyncio.new_event_loop()
        self._thread = threading.Thread(target=self._loop.run_forever, name="dagmaster-client", daemon=True)
        self._thread.start()

    def run(self, work: Coroutine[Any, Any, T]) -> T:
        """Run something on the loop, with the context variables of the caller, and wait for it."""
        future = asyncio.run_coroutine_threadsafe(work, self._loop)
        try:
            return future.result()
        except BaseException:
            # The caller was interrupted: nothing waits for the answer any more.
            future.cancel()
            raise

    def is_current(self) -> bool:
        """Return whether the caller is on the thread of the loop."""
        return threading.current_thread() is self._thread

    def stop(self) -> None:
        """End the loop and its thread."""
        if not self._loop.is_closed():
            self._loop.call_soon_threadsafe(self._loop.stop)
            self._thread.join()
            self._loop.close()


class _Blocking(Generic[P, T]):
    """A method of `AsyncClient` that is awaited on the client's loop."""

    def __init__(self, method: Callable[Concatenate[AsyncClient, P], Awaitable[T]]) -> None:
        self._method = method
        self.__doc__ = method.__doc__

    @overload
    def __get__(self, client: None, owner: type[Client]) -> Self: ...
    @overload
    def __get__(self, client: Client, owner: type[Client]) -> Callable[P, T]: ...
    def __get__(self, client: Client | None, owner: type[Client]) -> Any:
        if client is None:
            return self

        def call(*args: P.args, **kwargs: P.kwargs) -> T:
            async def run() -> T:
                return await self._method(client.asynchronous, *args, **kwargs)

            return client.loop.run(run())

        call.__doc__ = self.__doc__
        return call


class _Iterating(Generic[P, T]):
    """A method of `AsyncClient` that yields, as an ordinary iterator."""

    def __init__(self, method: Callable[Concatenate[AsyncClient, P], AsyncGenerator[T, None]]) -> None:
        self._method = method
        self.__doc__ = method.__doc__

    @overload
    def __get__(self, client: None, owner: type[Client]) -> Self: ...
    @overload
    def __get__(self, client: Client, owner: type[Client]) -> Callable[P, Iterator[T]]: ...
    def __get__(self, client: Client | None, owner: type[Client]) -> Any:
        if client is None:
            return self

        def iterate(*args: P.args, **kwargs: P.kwargs) -> Iterator[T]:
            items = self._method(client.asynchronous, *args, **kwargs)

            async def read_next() -> tuple[T] | None:
                async for item in items:
                    return (item,)
                return None

            try:
                while (item := client.loop.run(read_next())) is not None:
                    yield item[0]
            finally:
                # At the end of the program the loop is frozen, and on its own thread nothing can wait for it.
                if not sys.is_finalizing() and not client.loop.is_current():
                    client.loop.run(items.aclose())

        iterate.__doc__ = self.__doc__
        return iterate


class Client:
    """A client of a server.

    The address and the key are those of DAGMASTER_URL and DAGMASTER_KEY by default.
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
        self.loop = _LoopThread()

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

    submit = _Blocking(AsyncClient.submit)
    submit_job = _Blocking(AsyncClient.submit_job)
    submit_jobs = _Blocking(AsyncClient.submit_jobs)
    submit_graph = _Blocking(AsyncClient.submit_graph)
    add_nodes = _Blocking(AsyncClient.add_nodes)
    release_hold = _Blocking(AsyncClient.release_hold)
    find_task = _Blocking(AsyncClient.find_task)
    register_worker = _Blocking(AsyncClient.register_worker)
    renew_worker = _Blocking(AsyncClient.renew_worker)
    deregister_worker = _Blocking(AsyncClient.deregister_worker)
    check_health = _Blocking(AsyncClient.check_health)
    list_jobs = _Blocking(AsyncClient.list_jobs)
    count_jobs = _Blocking(AsyncClient.count_jobs)
    job_detail = _Blocking(AsyncClient.job_detail)
    job_progress = _Blocking(AsyncClient.job_progress)
    report_progress = _Blocking(AsyncClient.report_progress)
    why_job = _Blocking(AsyncClient.why_job)
    job_footprints = _Blocking(AsyncClient.job_footprints)
    list_events = _Blocking(AsyncClient.list_events)
    list_logs = _Blocking(AsyncClient.list_logs)
    list_log_lines = _Blocking(AsyncClient.list_log_lines)
    wait = _Blocking(AsyncClient.wait)
    watch_job = _Iterating(AsyncClient.watch_job)
    watch_jobs = _Iterating(AsyncClient.watch_jobs)
    follow_events = _Iterating(AsyncClient.follow_events)
    follow_logs = _Iterating(AsyncClient.follow_logs)
    node_detail = _Blocking(AsyncClient.node_detail)
    why_node = _Blocking(AsyncClient.why_node)
    list_children = _Blocking(AsyncClient.list_children)
    list_nodes = _Blocking(AsyncClient.list_nodes)
    list_tasks = _Blocking(AsyncClient.list_tasks)
    list_finished_tasks = _Blocking(AsyncClient.list_finished_tasks)
    cancel_job = _Blocking(AsyncClient.cancel_job)
    cancel_node = _Blocking(AsyncClient.cancel_node)
    cancel_nodes = _Blocking(AsyncClient.cancel_nodes)
    approve_node = _Blocking(AsyncClient.approve_node)
    reject_node = _Blocking(AsyncClient.reject_node)
    send_signal = _Blocking(AsyncClient.send_signal)
    retry_node = _Blocking(AsyncClient.retry_node)
    retry_nodes = _Blocking(AsyncClient.retry_nodes)
    plan_retry_nodes = _Blocking(AsyncClient.plan_retry_nodes)
    plan_retry = _Blocking(AsyncClient.plan_retry)
    resume_job = _Blocking(AsyncClient.resume_job)
    plan_resume = _Blocking(AsyncClient.plan_resume)
    list_workflows = _Blocking(AsyncClient.list_workflows)
    list_versions = _Blocking(AsyncClient.list_versions)
    workflow_detail = _Blocking(AsyncClient.workflow_detail)
    publish_workflows = _Blocking(AsyncClient.publish_workflows)
    activate_version = _Blocking(AsyncClient.activate_version)
    list_handlers = _Blocking(AsyncClient.list_handlers)
    find_handler = _Blocking(AsyncClient.find_handler)
    run_handler = _Blocking(AsyncClient.run_handler)
    fleet = _Blocking(AsyncClient.fleet)
    drain_service = _Blocking(AsyncClient.drain_service)
    undrain_service = _Blocking(AsyncClient.undrain_service)
    list_orchestrators = _Blocking(AsyncClient.list_orchestrators)
    list_workers = _Blocking(AsyncClient.list_workers)
    list_queues = _Blocking(AsyncClient.list_queues)
    workflow_metrics = _Blocking(AsyncClient.workflow_metrics)
    node_metrics = _Blocking(AsyncClient.node_metrics)
    failure_metrics = _Blocking(AsyncClient.failure_metrics)
    throughput = _Blocking(AsyncClient.throughput)
    create_key = _Blocking(AsyncClient.create_key)
    list_keys = _Blocking(AsyncClient.list_keys)
    revoke_key = _Blocking(AsyncClient.revoke_key)
    rotate_key = _Blocking(AsyncClient.rotate_key)
    schema_state = _Blocking(AsyncClient.schema_state)
    schema_history = _Blocking(AsyncClient.schema_history)
    migrate_schema = _Blocking(AsyncClient.migrate_schema)
    audit_batch = _Blocking(AsyncClient.audit_batch)
    rebuild_metrics = _Blocking(AsyncClient.rebuild_metrics)
    list_changes = _Blocking(AsyncClient.list_changes)
