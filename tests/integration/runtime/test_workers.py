"""Workers that share, stop, die and pause."""

from __future__ import annotations

import asyncio
import contextlib
import time
from collections import Counter
from typing import TYPE_CHECKING, Any

from dagmaster.sdk.handler_context import HandlerContext
from dagmaster.sdk.handler_registry import handler
from tests.integration.runtime.runtime_world import Gate, worker_of
from tests.patience import PATIENCE_SECONDS

if TYPE_CHECKING:
    from dagmaster.worker.service import Worker
    from tests.integration.runtime.runtime_world import World


class Held:
    """A handler that waits, except on the attempts it is told not to."""

    def __init__(self, *free: int) -> None:
        self.gate = Gate()
        self.started = Gate()
        self.began: Counter[int] = Counter()
        self.ended: Counter[int] = Counter()

        @handler("held", queue="q")
        async def held(ctx: HandlerContext) -> dict[str, Any]:
            self.began[ctx.attempt] += 1
            self.started.open()
            if ctx.attempt not in free:
                await self.gate.wait()
            self.ended[ctx.attempt] += 1
            return {"attempt": ctx.attempt}

        self.handler = held


ONE = "{name: n, nodes: {a: {handler: held, next: b}, b: {handler: echo}}}"
NO_RETRY = "{name: n, nodes: {a: {handler: held, retry: none}}}"


async def test_two_share_a_queue_and_each_task_runs_once(world: World):
    ran: Counter[str] = Counter()

    @handler("count", queue="q")
    async def count(ctx: HandlerContext) -> None:
        await asyncio.sleep(0)
        ran[ctx.task_id] += 1

    world.handlers.append(count)
    await world.orchestrator()
    first, second = await world.worker(concurrency=4), await world.worker(concurrency=4)
    report = await world.run(
        "{name: n, nodes: {p: {handler: make_chunks, params: {count: 400}, next: f}, f: {type: fan_out, source: '{{ nodes.p.output.chunks }}', task: {handler: count}}}}"
    )
    assert report.status == "COMPLETED"
    assert (len(ran), set(ran.values())) == (400, {1})
    assert first.counters["completed"] + second.counters["completed"] == 401
    assert first.counters["dropped"] + second.counters["dropped"] == 0


async def test_a_worker_serves_its_own_queues_only(world: World):
    await world.orchestrator()
    light, heavy = await world.worker("light"), await world.worker("heavy", "other")
    text = "{name: n, nodes: {a: {handler: echo, queue: light, next: [b, c]}, b: {handler: echo, queue: heavy}, c: {handler: echo, queue: other}}}"
    assert (await world.run(text)).status == "COMPLETED"
    assert (light.counters["completed"], heavy.counters["completed"]) == (1, 2)


async def test_a_worker_of_every_queue_finds_the_new_ones(world: World):
    await world.start()
    for name in ("one", "two", "three"):
        assert (
            await world.run(f"{{name: n, nodes: {{a: {{handler: echo, queue: {name}}}}}}}")
        ).status == "COMPLETED"


async def test_the_tasks_of_a_worker_that_died_are_tried_again_and_no_retry_is_used_up(world: World):
    held = Held(2)
    world.handlers.append(held.handler)
    await world.orchestrator()
    dead = await world.worker()
    job = await world.submit(NO_RETRY)
    await world.until_claimed()
    await world.kill(dead)
    await world.worker()
    await world.silence(dead)
    report = await world.finished(job)
    assert (report.status, report.nodes["a"]["output"]) == ("COMPLETED", {"attempt": 2})
    assert await world.attempts(job, "a") == ["LOST", "COMPLETED"]
    assert [event["attempt"] for event in await world.events(job, "AttemptLost")] == [1]


async def test_a_node_whose_workers_die_too_often_fails_with_the_reason(world: World):
    held = Held()
    world.handlers.append(held.handler)
    await world.orchestrator()
    job = await world.submit(NO_RETRY)
    died = 0
    while await world.value("SELECT status = 'RUNNING' OR status = 'PENDING' FROM dag_jobs"):
        worker = await world.worker()
        await world.until(
            "SELECT status NOT IN ('PENDING', 'RUNNING') OR EXISTS (SELECT FROM dag_task_queue WHERE worker_id IS NOT NULL) FROM dag_jobs"
        )
        await world.kill(worker)
        await world.silence(worker)
        died += 1
        await world.until(
            "SELECT status NOT IN ('PENDING', 'RUNNING') OR EXISTS (SELECT FROM dag_task_queue WHERE worker_id IS NULL) FROM dag_jobs"
        )
        assert died < 10
    report = await world.finished(job)
    assert (report.status, report.nodes["a"]["error"]["kind"]) == ("FAILED", "lost")
    lost = await world.attempts(job, "a")
    assert set(lost) == {"LOST"}
    # The first, and max_lost of them tried again.
    assert len(lost) in (3, 4)


async def test_a_worker_that_drains_lets_what_is_nearly_done_end(world: World):
    held = Held()
    world.handlers.append(held.handler)
    await world.orchestrator()
    worker = await world.worker(drain_seconds=30)
    job = await world.submit(ONE)
    # Held in the database is not yet begun: that would be handed back.
    await held.started.wait()
    stopping = asyncio.create_task(world.stop(worker))
    await asyncio.sleep(0)
    held.gate.open()
    await stopping
    await world.worker()
    assert (await world.finished(job)).status == "COMPLETED"
    assert await world.attempts(job, "a") == ["COMPLETED"]


async def test_a_draining_worker_releases_the_rest_and_no_retry_is_used_up(world: World):
    held = Held(2)
    world.handlers.append(held.handler)
    await world.orchestrator()
    worker = await world.worker(drain_seconds=0.1)
    job = await world.submit(NO_RETRY)
    await held.started.wait()
    await world.stop(worker)
    await world.worker()
    report = await world.finished(job)
    assert (report.status, report.nodes["a"]["output"]) == ("COMPLETED", {"attempt": 2})
    assert await world.attempts(job, "a") == ["RELEASED", "COMPLETED"]
    assert await world.types(job, "AttemptReleased", "AttemptLost", "AttemptFailed") == ["AttemptReleased"]


async def test_a_result_that_comes_while_a_worker_drains_is_reported_and_no_work_is_done_twice(world: World):
    began = Gate()

    @handler("long", queue="q", isolation="thread")
    def long(ctx: HandlerContext) -> dict[str, Any]:
        began.open()
        while not ctx._cancelled:
            # Where no handler looks: it ends after it was asked to stop, and without knowing.
            time.sleep(0.01)
        return {"attempt": ctx.attempt}

    world.handlers.append(long)
    await world.orchestrator()
    worker = await world.worker(drain_seconds=6)
    job = await world.submit("{name: n, nodes: {a: {handler: long, retry: none}}}")
    await began.wait()
    await world.stop(worker)
    report = await world.finished(job)
    assert (report.status, report.nodes["a"]["output"]) == ("COMPLETED", {"attempt": 1})
    assert await world.attempts(job, "a") == ["COMPLETED"]


async def test_a_task_that_is_asked_to_stop_saves_a_checkpoint_and_continues_on_another_worker(world: World):
    began = Gate()

    @handler("saves", queue="q")
    async def saves(ctx: HandlerContext) -> dict[str, Any]:
        if ctx.attempt > 1:
            return {"data": ctx.checkpoint_data}
        began.open()
        try:
            await asyncio.Event().wait()
        finally:
            ctx.checkpoint("asked", {"row": 13})
        return {}

    world.handlers.append(saves)
    await world.orchestrator()
    worker = await world.worker(drain_seconds=1)
    job = await world.submit("{name: n, nodes: {a: {handler: saves, retry: none}}}")
    await began.wait()
    await world.stop(worker)
    await world.worker()
    report = await world.finished(job)
    assert report.nodes["a"]["output"] == {"data": {"row": 13}}
    assert await world.attempts(job, "a") == ["RELEASED", "COMPLETED"]


async def test_a_database_that_does_not_answer_keeps_no_worker_from_leaving(world: World):
    await world.orchestrator()
    worker = await world.worker(drain_seconds=1)
    await world.rows("BEGIN")
    await world.rows("LOCK TABLE dag_task_queue IN ACCESS EXCLUSIVE MODE")
    # It claims just now. An answer would come when the lock is gone, or after a minute.
    worker.source.wakeup.set()
    blocked = "SELECT count(*) > 0 FROM pg_stat_activity WHERE wait_event_type = 'Lock' AND query LIKE '%dag_task_queue%'"
    await world.until(f"{blocked} AND datname = current_database()")
    await world.stop(worker)
    await world.rows("ROLLBACK")


async def test_a_task_that_is_released_repeatedly_is_tried_repeatedly(world: World):
    held = Held(6)
    world.handlers.append(held.handler)
    await world.orchestrator()
    job = await world.submit(NO_RETRY)
    for _ in range(5):
        held.started = Gate()
        worker = await world.worker(drain_seconds=0.01)
        # One that has not begun is only let go.
        await held.started.wait()
        await world.stop(worker)
    await world.worker()
    assert (await world.finished(job)).status == "COMPLETED"
    assert await world.attempts(job, "a") == ["RELEASED"] * 5 + ["COMPLETED"]


async def test_plain_functions_are_also_released_and_their_processes_end(world: World):
    await world.orchestrator()
    worker = await world.worker(drain_seconds=0.1)
    job = await world.submit("{name: n, nodes: {a: {handler: deaf, retry: none}}}")
    await world.until("SELECT progress IS NOT NULL FROM dag_task_queue")
    await world.stop(worker)
    assert worker._processes is not None
    assert worker._processes.pids() == []
    await world.until("SELECT count(*) = 1 FROM dag_task_attempts WHERE status = 'RELEASED'")
    await world.send(job, "cancel")
    assert (await world.finished(job)).status == "CANCELLED"


async def test_an_expired_worker_drops_its_report_and_registers_again(world: World):
    """It was paused past its lease: another may have done the task meanwhile. Only one report counts."""
    held = Held(2)
    world.handlers.append(held.handler)
    await world.orchestrator()
    # It runs its tasks, and its heart stands still.
    paused = await world.worker(heartbeat_seconds=3600)
    before = worker_of(paused)
    job = await world.submit(ONE)
    await world.until_claimed()
    await world.silence(paused)
    await world.until_event(job, "AttemptLost")
    await world.until("SELECT count(*) = 0 FROM dag_task_queue WHERE worker_id = $1", before)
    # A worker that was given up claims nothing.
    await world.until_node(job, "a", "DISPATCHED")
    assert await paused.source.claim(10) == []
    held.gate.open()
    await _until_dropped(world, paused)
    # Its heart beats again.
    paused.ledger.stops.set()
    report = await world.finished(job)
    assert (report.status, report.nodes["a"]["output"]) == ("COMPLETED", {"attempt": 2})
    assert await world.attempts(job, "a") == ["LOST", "COMPLETED"]
    assert worker_of(paused) != before
    assert held.ended == Counter({1: 1, 2: 1})


async def _until_dropped(world: World, worker: Worker) -> None:
    async with asyncio.timeout(PATIENCE_SECONDS):
        while not worker.counters["dropped"]:  # noqa: ASYNC110 - a counter has no event
            await asyncio.sleep(0.005)


async def test_a_running_task_of_an_expired_worker_is_stopped(world: World):
    held = Held(2)
    world.handlers.append(held.handler)
    await world.orchestrator()
    paused = await world.worker(heartbeat_seconds=3600)
    job = await world.submit(ONE)
    await world.until_claimed()
    await world.silence(paused)
    await world.until_event(job, "AttemptLost")
    paused.ledger.stops.set()
    report = await world.finished(job)
    assert report.nodes["a"]["output"] == {"attempt": 2}
    assert held.ended == Counter({2: 1})


async def test_a_task_whose_claim_is_stale_is_stopped_and_its_output_is_dropped(world: World):
    """The database lost the claim in a crash, and another worker was quicker."""
    began, cleaned = Gate(), Gate()

    @handler("large", queue="q")
    async def large(ctx: HandlerContext) -> dict[str, Any]:
        if not began.is_open:
            began.open()
            try:
                await asyncio.Event().wait()
            except asyncio.CancelledError:
                cleaned.open()
                return {"by": "the first", "text": "x" * 100_000}
        return {"by": "the second", "text": "x" * 100_000}

    world.handlers.append(large)
    await world.orchestrator()
    first = await world.worker()
    job = await world.submit("{name: n, nodes: {a: {handler: large, retry: none}}}")
    await began.wait()
    second = await world.worker("elsewhere")
    await world.rows(
        "UPDATE dag_task_queue SET worker_id = NULL, lease_token = NULL, claimed_at = NULL, started_at = NULL,"
        " queue = 'elsewhere'"
    )
    second.source.wakeup.set()
    report = await world.finished(job)
    assert report.nodes["a"]["output"]["by"] == "the second"
    await cleaned.wait()
    assert await world.attempts(job, "a") == ["COMPLETED"]
    async with asyncio.timeout(PATIENCE_SECONDS):
        while first.held:  # noqa: ASYNC110 - a dict has no event
            await asyncio.sleep(0.005)
    assert first.counters["completed"] == 0


async def test_a_handler_that_blocks_the_loop_does_not_look_dead(world: World):
    import threading

    release, began = threading.Event(), Gate()

    @handler("blocks", queue="q")
    async def blocks() -> None:
        began.open()
        release.wait()

    world.handlers.append(blocks)
    await world.orchestrator()
    worker = await world.worker()
    job = await world.submit("{name: n, nodes: {a: {handler: blocks}, b: {handler: pid}}}")
    await began.wait()
    seen = await world.value("SELECT heartbeat_at FROM dag_workers")
    with contextlib.closing(_Released(release)):
        # Its heart beats on, and plain functions are served.
        await world.until("SELECT heartbeat_at > $1 FROM dag_workers", seen)
        await world.until_node(job, "b", "COMPLETED")
    assert (await world.finished(job)).status == "COMPLETED"
    assert world.is_alive(worker)


class _Released:
    def __init__(self, event: Any) -> None:
        self._event = event

    def close(self) -> None:
        self._event.set()
