"""Another task source takes the place of the store's, and ledger and journal stay what they are."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING

from dagmaster.application.submission import JobRequest, JobSubmitter
from dagmaster.authoring.compiler.compile import compile_text
from dagmaster.engine.status import JobStatus
from dagmaster.orchestrator.poll_schedule import Timing
from dagmaster.orchestrator.service import Orchestrator
from dagmaster.sdk.handler_context import HandlerContext
from dagmaster.sdk.handler_registry import Registry, handler
from dagmaster.store.memory.client_store import MemoryClientStore
from dagmaster.store.memory.database import MemoryDatabase
from dagmaster.store.memory.orchestrator_store import MemoryOrchestratorStore
from dagmaster.store.memory.worker_store import MemoryWorkerStore
from dagmaster.worker.options import WorkerOptions, WorkerPorts
from dagmaster.worker.service import Worker
from tests.patience import PATIENCE_SECONDS

if TYPE_CHECKING:
    from collections.abc import Collection

    from dagmaster.ports.task_source import ClaimedTask

FLOW = """
name: flow
nodes:
  first: {handler: writing, params: {word: one}, next: second}
  second: {handler: writing, params: {word: "{{ nodes.first.output.word }} two"}}
"""


@handler("writing", queue="q")
async def writing(ctx: HandlerContext, word: str) -> dict[str, str]:
    ctx.checkpoint("written", {"word": word})
    ctx.progress(1, 1)
    return {"word": word}


class ListSource:
    """Delivers tasks from a list, as a broker's consumer does. The claim that fences each of them is the store's."""

    def __init__(self, store: MemoryWorkerStore) -> None:
        self.wakeup = asyncio.Event()
        self.messages: list[ClaimedTask] = []
        self.delivered: list[str] = []
        self._store = store

    async def relay(self) -> None:
        """Take what is dispatched and put it into the list: the part that a broker plays."""
        while True:
            claimed = await self._store.claim(100)
            if claimed:
                self.messages += claimed
                self.wakeup.set()
            await asyncio.sleep(0.005)

    async def claim(
        self, limit: int, process_bound: Collection[str] = (), process_slots: int | None = None
    ) -> list[ClaimedTask]:
        tasks, self.messages = self.messages[:limit], self.messages[limit:]
        self.delivered += [task.node_id for task in tasks]
        return tasks

    async def claim_exclusive(self) -> ClaimedTask | None:
        return None

    def rescan_queues(self) -> None:
        pass


def test_a_worker_runs_what_another_source_delivers_and_reports_to_the_store():
    async def main() -> tuple[MemoryDatabase, str, list[str]]:
        database = MemoryDatabase()
        registry = Registry([writing])
        client, ledger = MemoryClientStore(database), MemoryWorkerStore(database)
        source = ListSource(ledger)
        ports = WorkerPorts(
            source=source,
            ledger=ledger,
            journal=ledger,
            blobs=database.blobs,
            secrets=lambda _name: None,
        )
        worker = Worker(ports, registry, options=WorkerOptions(shares_loop=True))
        timing = Timing(poll_seconds=0.05, heartbeat_seconds=1.0, scan_seconds=1.0, worker_scan_seconds=1.0)
        orchestrator = Orchestrator(MemoryOrchestratorStore(database), blobs=database.blobs, timing=timing)
        services = [asyncio.create_task(worker.run()), asyncio.create_task(orchestrator.run())]
        await worker.ready.wait()
        relay = asyncio.create_task(source.relay())
        graph = compile_text(FLOW, handlers=registry).graph
        submitter = JobSubmitter(client, client.ids)
        (accepted,) = await submitter.submit(graph, JobRequest())
        async with asyncio.timeout(PATIENCE_SECONDS):
            while database.jobs[accepted.job_id].is_open:  # noqa: ASYNC110 - the memory store tells no test
                await asyncio.sleep(0.01)
        relay.cancel()
        worker.stop()
        orchestrator.stop()
        await asyncio.gather(*services)
        return database, accepted.job_id, source.delivered

    database, job_id, delivered = asyncio.run(main())
    job = database.jobs[job_id]
    assert job.row.status is JobStatus.COMPLETED
    assert delivered == ["first", "second"]
    assert not database.queue
    assert {node_id for _, node_id in database.checkpoints} == {"first", "second"}
