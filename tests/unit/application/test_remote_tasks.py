"""What a request for tasks does for its worker while it waits."""

from __future__ import annotations

import asyncio
import contextlib
from typing import TYPE_CHECKING, Any

import pytest

from dagmaster.application.remote_tasks import ClaimRequest, RemoteTasks
from dagmaster.ports.task_ledger import HeartbeatAnswer
from dagmaster.store.memory.database import MemoryDatabase

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence


class RecordedWorker:
    """A worker without tasks that records what is called."""

    id = "7"

    def __init__(self, *, has_exclusive: bool = False) -> None:
        self.calls: list[str] = []
        self._answer = HeartbeatAnswer(set(), has_exclusive)

    async def find(self, _worker_id: str, _caller: str) -> RecordedWorker:
        return self

    @contextlib.contextmanager
    def waiting(self) -> Iterator[asyncio.Event]:
        yield asyncio.Event()

    def rescan_queues(self) -> None:
        pass

    async def heartbeat(self, held: Sequence[str], _counters: Any) -> HeartbeatAnswer:
        self.calls.append(f"heartbeat {','.join(held)}")
        return self._answer

    async def refresh_handlers(self) -> None:
        """Have what it has."""

    def count(self, counter: str, number: int = 1) -> None:
        """Count nothing."""

    async def renew(self, _held: Sequence[str]) -> HeartbeatAnswer:
        self.calls.append("renew")
        return self._answer

    async def overdue_tasks(self, _task_ids: Sequence[str], _grace_seconds: float) -> list[Any]:
        return []

    async def claim_exclusive(self) -> None:
        self.calls.append("claim exclusive")

    async def claim_handled(self, _limit: int) -> list[Any]:
        self.calls.append("claim")
        return []


async def claim(worker: Any, request: ClaimRequest, *, rounds: int = 1) -> None:
    """Claim for a worker that disconnects after some rounds of waiting."""
    # The lease is so short that each round renews it.
    tasks = RemoteTasks(worker, MemoryDatabase().blobs, lambda _name: None, lease_seconds=0.0)
    answers = iter([True] * rounds + [False])

    async def is_connected() -> bool:
        return next(answers)

    await tasks.claim(request, "ci", is_connected)


def test_a_request_that_waits_uses_its_list_of_tasks_for_one_heartbeat_and_then_only_renews_the_lease():
    worker = RecordedWorker()
    request = ClaimRequest(worker_id="7", task_ids=("1", "2"), wait_seconds=30.0)
    asyncio.run(claim(worker, request, rounds=3))
    assert worker.calls == ["heartbeat 1,2", "claim", *["renew", "claim"] * 3]


@pytest.mark.parametrize("task_ids", [(), ("1",)])
def test_the_store_decides_whether_a_worker_may_claim_an_exclusive_task(task_ids):
    worker = RecordedWorker(has_exclusive=True)
    asyncio.run(claim(worker, ClaimRequest(worker_id="7", task_ids=task_ids)))
    assert worker.calls[-2:] == ["claim exclusive", "claim"]
