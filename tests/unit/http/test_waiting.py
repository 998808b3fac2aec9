"""GET /jobs/{id}?wait_seconds: the answer comes when the job has ended, and costs nothing until then."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, Any, TypeVar

import httpx
import pytest

from dagmaster.application.job_wait import RECHECK_SECONDS
from dagmaster.client.async_client import AsyncClient
from dagmaster.errors import ServerUnavailable
from dagmaster.store.memory.subscription import MemorySubscription
from tests.patience import PATIENCE_SECONDS
from tests.unit.http.api_client import opened_api

if TYPE_CHECKING:
    from collections.abc import AsyncGenerator, Awaitable, Callable, Coroutine

    from tests.unit.http.api_client import Api

T = TypeVar("T")


def with_api(work: Callable[[Api], Awaitable[None]], **options: Any) -> None:
    async def main() -> None:
        async with opened_api(**options) as api:
            await api.publish()
            await work(api)

    asyncio.run(main())


async def waiting_job(api: Api) -> str:
    job_id: str = (await api.post("/api/v1/jobs", {"workflow_id": "hello"})).json()["job_id"]
    await api.until(job_id, "WAITING")
    return job_id


class Waits:
    """The waits of subscriptions, as they begin."""

    def __init__(self) -> None:
        self._begun: asyncio.Queue[None] = asyncio.Queue()
        self.seconds: list[float] = []

    def note(self, timeout_seconds: float) -> None:
        self.seconds.append(timeout_seconds)
        self._begun.put_nowait(None)

    async def begin(self, work: Coroutine[Any, Any, T]) -> asyncio.Task[T]:
        """Start something; return when it waits."""
        while not self._begun.empty():
            self._begun.get_nowait()
        self.seconds.clear()
        task = asyncio.create_task(work)
        async with asyncio.timeout(PATIENCE_SECONDS):
            await self._begun.get()
        return task


@pytest.fixture
def waits(monkeypatch: pytest.MonkeyPatch) -> Waits:
    noted, wait = Waits(), MemorySubscription.wait

    async def noted_wait(self: MemorySubscription, timeout_seconds: float) -> bool:
        noted.note(timeout_seconds)
        return await wait(self, timeout_seconds)

    monkeypatch.setattr(MemorySubscription, "wait", noted_wait)
    return noted


def test_the_answer_comes_when_the_job_has_ended(waits: Waits):
    async def work(api: Api) -> None:
        job_id = await waiting_job(api)
        held = await waits.begin(api.get(f"/api/v1/jobs/{job_id}", wait_seconds=60))
        assert not held.done()
        await api.post(f"/api/v1/jobs/{job_id}/nodes/ask/approve")
        async with asyncio.timeout(PATIENCE_SECONDS):
            answer = await held
        assert (answer.status_code, answer.json()["status"]) == (200, "COMPLETED")
        again = await api.get(f"/api/v1/jobs/{job_id}", wait_seconds=60)
        assert again.json()["status"] == "COMPLETED"
        assert len(api.services.live.sessions) == 0

    with_api(work)


def test_a_job_that_goes_on_is_answered_as_it_is_when_the_time_is_over():
    async def work(api: Api) -> None:
        job_id = await waiting_job(api)
        answer = await api.get(f"/api/v1/jobs/{job_id}", wait_seconds=0.01)
        assert (answer.status_code, answer.json()["status"]) == (200, "WAITING")
        for seconds in (-1, 61, "nan"):
            refused = await api.get(f"/api/v1/jobs/{job_id}", wait_seconds=seconds)
            assert refused.status_code == 422, seconds
        assert (await api.get("/api/v1/jobs/1", wait_seconds=1)).json()["code"] == "job_not_found"

    with_api(work)


def test_a_request_waits_for_a_notification_and_does_not_poll(waits: Waits):
    async def work(api: Api) -> None:
        job_id = await waiting_job(api)
        held = await waits.begin(api.get(f"/api/v1/jobs/{job_id}", wait_seconds=60))
        assert waits.seconds == [RECHECK_SECONDS]
        await api.post(f"/api/v1/jobs/{job_id}/cancel", params={"wait_seconds": 0})
        async with asyncio.timeout(PATIENCE_SECONDS):
            assert (await held).json()["status"] == "CANCELLED"

    with_api(work)


def test_requests_that_wait_count_as_streams_of_their_caller(waits: Waits):
    async def work(api: Api) -> None:
        job_id = await waiting_job(api)
        held = [await waits.begin(api.get(f"/api/v1/jobs/{job_id}", wait_seconds=60)) for _ in range(2)]
        refused = await api.get(f"/api/v1/jobs/{job_id}", wait_seconds=60)
        assert (refused.status_code, refused.json()["code"]) == (429, "stream_limit_exceeded")
        assert int(refused.headers["retry-after"]) > 0
        assert (await api.get(f"/api/v1/jobs/{job_id}")).status_code == 200, "one that does not wait"
        for task in held:
            task.cancel()
        await asyncio.gather(*held, return_exceptions=True)
        assert len(api.services.live.sessions) == 0

    with_api(work, streams_per_key=2)


def test_a_server_that_stops_answers_the_requests_that_wait(waits: Waits):
    async def work(api: Api) -> None:
        job_id = await waiting_job(api)
        held = await waits.begin(api.get(f"/api/v1/jobs/{job_id}", wait_seconds=60))
        await api.services.live.sessions.close()
        async with asyncio.timeout(PATIENCE_SECONDS):
            assert (await held).json()["status"] == "WAITING"

    with_api(work)


def test_a_client_without_streams_lets_the_server_wait(waits: Waits, monkeypatch: pytest.MonkeyPatch):
    def no_stream(*_: Any, **__: Any) -> AsyncGenerator[Any]:
        raise ServerUnavailable("a proxy allows no streams")

    monkeypatch.setattr("dagmaster.client.following.read_stream", no_stream)

    async def work(api: Api) -> None:
        job_id = await waiting_job(api)
        key = api.headers["Authorization"].removeprefix("Bearer ")
        asked: list[str] = []
        transport = httpx.ASGITransport(api.app)
        async with AsyncClient("http://test", key, transport=transport) as client:
            client.connection.http.event_hooks["request"] = [note(asked)]
            ending = await waits.begin(client.wait(job_id))
            await api.post(f"/api/v1/jobs/{job_id}/nodes/ask/approve")
            async with asyncio.timeout(PATIENCE_SECONDS):
                assert (await ending).status == "COMPLETED"
        assert len([path for path in asked if "wait_seconds=20" in path]) == 1

    with_api(work)


def note(asked: list[str]) -> Callable[[httpx.Request], Awaitable[None]]:
    async def keep(request: httpx.Request) -> None:
        asked.append(str(request.url))

    return keep
