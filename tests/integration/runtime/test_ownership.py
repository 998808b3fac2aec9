"""Who owns a job: orchestrators that stop, die, pause, and share."""

from __future__ import annotations

import asyncio
from collections import Counter
from itertools import pairwise
from typing import TYPE_CHECKING, Any

import pytest

from dagmaster.engine.events import CancelRequested
from dagmaster.orchestrator import service
from dagmaster.orchestrator.inbox import PendingEvents
from dagmaster.sdk.handler_context import HandlerContext
from dagmaster.sdk.handler_registry import handler
from tests.integration.runtime.runtime_world import Gate, owner_of, read
from tests.patience import PATIENCE_SECONDS

if TYPE_CHECKING:
    from collections.abc import Callable

    from dagmaster.orchestrator.service import Orchestrator
    from tests.integration.runtime.runtime_world import World

GATED = "{name: n, nodes: {a: {handler: gated, next: b}, b: {handler: echo}}}"


def gated_by(gate: Gate) -> Callable[..., Any]:
    @handler("gated", queue="q")
    async def gated() -> None:
        await gate.wait()

    return gated


async def owner(world: World, job_id: str) -> int | None:
    result: int | None = await world.value("SELECT owner_id FROM dag_jobs WHERE id = $1", int(job_id))
    return result


async def owned_by(world: World, job_id: str, service: Orchestrator) -> None:
    await world.until("SELECT owner_id = $2 FROM dag_jobs WHERE id = $1", int(job_id), owner_of(service))


async def test_an_orchestrator_that_stops_releases_its_jobs_and_another_continues_at_once(world: World):
    gate = Gate()
    world.handlers.append(gated_by(gate))
    first = await world.orchestrator()
    await world.worker()
    job = await world.submit(GATED)
    await world.until_claimed()
    second = await world.orchestrator()
    # No lease ends here: it is released.
    await world.stop(first)
    await owned_by(world, job, second)
    gate.open()
    assert (await world.finished(job)).status == "COMPLETED"
    epochs = [read(event["data"])["epoch"] for event in await world.events(job, "JobClaimed")]
    assert epochs == [1, 2]
    assert await world.attempts(job, "a") == ["COMPLETED"]


async def test_the_jobs_of_a_dead_orchestrator_are_claimed_after_its_lease_has_expired(world: World):
    gate = Gate()
    world.handlers.append(gated_by(gate))
    first = await world.orchestrator()
    await world.worker()
    job = await world.submit(GATED)
    await world.until_claimed()
    await world.kill(first)
    second = await world.orchestrator()
    gate.open()
    # Reported without an owner, and kept.
    await world.until("SELECT count(*) = 1 FROM dag_task_results")
    assert await owner(world, job) == owner_of(first)
    await world.silence(first)
    assert (await world.finished(job)).status == "COMPLETED"
    assert second.counters["jobs_claimed"] == 1
    assert await world.attempts(job, "a") == ["COMPLETED"]


async def test_a_lease_ends_by_itself(world: World):
    first = await world.orchestrator()
    job = await world.submit("{name: n, nodes: {w: {type: wait, seconds: 0.5, next: a}, a: {handler: echo}}}")
    await world.until_node(job, "w", "WAITING")
    await world.kill(first)
    await world.orchestrator(lease_seconds=1.0)
    await world.worker()
    assert (await world.finished(job)).status == "COMPLETED"


async def test_a_timer_that_was_due_while_the_job_was_unowned_fires_for_the_next_owner(world: World):
    first = await world.orchestrator()
    await world.worker()
    job = await world.submit("{name: n, nodes: {w: {type: wait, seconds: 0.3}}}")
    await world.until_node(job, "w", "WAITING")
    await world.stop(first)
    await world.until("SELECT wake_at < clock() FROM dag_node_states")
    await world.orchestrator()
    assert (await world.finished(job)).status == "COMPLETED"


async def test_an_orchestrator_that_was_paused_past_its_lease_writes_nothing_and_registers_again(
    world: World,
):
    gate = Gate()
    world.handlers.append(gated_by(gate))
    # It takes turns, and its heart stands still.
    paused = await world.orchestrator(beats=False)
    await world.worker()
    job = await world.submit(GATED)
    await world.until_claimed()
    epoch = paused.jobs[job].epoch
    before = owner_of(paused)
    await world.silence(paused)
    second = await world.orchestrator()
    await owned_by(world, job, second)
    # It still believes that the job is its own.
    assert paused.jobs[job].epoch == epoch
    gate.open()
    assert (await world.finished(job)).status == "COMPLETED"
    # Now its heart beats again: others may have taken over, and it learns so.
    with pytest.raises(Exception, match="lease expired"):
        await paused._heartbeat()
    assert f"orchestrator {before}" not in {
        event["by"] for event in await world.events(job, "NodeCompleted", "JobFinished")
    }


async def test_a_turn_with_an_old_epoch_changes_nothing(world: World):
    """The fence itself: the paused one has a turn in its hands when it wakes up."""
    gate = Gate()
    world.handlers.append(gated_by(gate))
    paused = await world.orchestrator(beats=False)
    await world.worker()
    job = await world.submit(GATED)
    # The worker has told that the handler runs, and writes nothing more.
    await world.until("SELECT started_at IS NOT NULL FROM dag_task_queue")
    held = paused.jobs[job]
    await world.silence(paused)
    second = await world.orchestrator()
    await owned_by(world, job, second)
    async with asyncio.timeout(PATIENCE_SECONDS):
        # Its first turn writes the time of the last change.
        while not second.counters["turns"]:  # noqa: ASYNC110 - a counter cannot be awaited
            await asyncio.sleep(0.005)
    before = await world.everything()
    # What it would do to cancel the job.
    await paused._run_turns({job: _cancelling()})
    after = await world.everything()
    changed = {line for line in after.splitlines() if line not in before.splitlines()}
    assert not [
        line for line in changed if not line.startswith(("dag_orchestrators", "dag_workers", "dag_leases"))
    ]
    assert job not in paused.jobs
    assert held.job.cancel_requested
    gate.open()
    assert (await world.finished(job)).status == "COMPLETED"


def _cancelling() -> Any:
    pending = PendingEvents()
    pending.events.append(CancelRequested())
    return pending


async def test_an_owner_without_heartbeats_registers_again_under_a_new_id(world: World):
    first = await world.orchestrator()
    before = owner_of(first)
    await world.rows("UPDATE dag_orchestrators SET stopped_at = clock()")
    job = await world.submit("{name: n, nodes: {a: {handler: echo}}}")
    await world.worker()
    await world.until("SELECT count(*) = 1 FROM dag_orchestrators WHERE stopped_at IS NULL")
    assert (await world.finished(job)).status == "COMPLETED"
    assert owner_of(first) != before


async def test_two_share_fifty_jobs_and_each_completes_once(world: World):
    ran: Counter[str] = Counter()

    @handler("count", queue="q")
    async def count(ctx: HandlerContext) -> None:
        ran[f"{ctx.job_id} {ctx.node_id}"] += 1

    world.handlers.append(count)
    text = "{name: n, nodes: {a: {handler: count, next: f}, f: {type: fan_out, source: [1, 2, 3], task: {handler: count}, next: c}, c: {handler: count}}}"
    await world.worker()
    first, second = await world.orchestrator(), await world.orchestrator()
    jobs = await asyncio.gather(*(world.submit(text) for _ in range(50)))
    await world.until("SELECT count(*) = 50 FROM dag_jobs WHERE finished_at IS NOT NULL AND owner_id IS NULL")
    for job in jobs:
        assert (await world.report(job)).status == "COMPLETED"
    assert len(ran) == 250
    assert set(ran.values()) == {1}
    assert first.counters["jobs_claimed"] + second.counters["jobs_claimed"] == 50
    assert await world.value("SELECT count(*) FROM dag_job_events WHERE type = 'JobFinished'") == 50


async def test_jobs_move_from_one_to_the_next_again_and_again(world: World):
    """A rolling restart: at no time is a job lost, or done twice."""
    ran: Counter[str] = Counter()

    @handler("count", queue="q")
    async def count(ctx: HandlerContext) -> None:
        ran[f"{ctx.job_id} {ctx.node_id}"] += 1

    world.handlers.append(count)
    steps = ", ".join(f"n{n}: {{handler: count, depends_on: n{n - 1}}}" for n in range(1, 25))
    text = f"{{name: n, nodes: {{n0: {{handler: count}}, {steps}}}}}"
    await world.worker()
    last = await world.orchestrator()
    jobs = [await world.submit(text) for _ in range(4)]
    for _ in range(4):
        following = await world.orchestrator()
        await world.stop(last)
        last = following
    for job in jobs:
        assert (await world.finished(job)).status == "COMPLETED"
    assert set(ran.values()) == {1}


async def test_a_job_whose_rows_make_no_sense_stops_no_other(world: World):
    await world.orchestrator()
    await world.worker()
    bad = await world.submit("{name: bad, nodes: {w: {type: wait, signal: go}}}")
    await world.until_node(bad, "w", "WAITING")
    await world.stop(world.orchestrators[0])
    await world.rows("UPDATE dag_node_states SET node_id = 'nowhere' WHERE job_id = $1", int(bad))
    await world.orchestrator()
    try:
        assert (await world.run("{name: good, nodes: {a: {handler: echo}}}")).status == "COMPLETED"
    finally:
        await world.rows("UPDATE dag_node_states SET node_id = 'w' WHERE job_id = $1", int(bad))


async def test_a_job_that_cannot_be_written_stops_no_other(world: World):
    """A statement that the database refuses is our mistake, and one job's: the others go on."""
    await world.rows(
        "ALTER TABLE dag_node_states ADD CONSTRAINT for_this_test CHECK (branch IS DISTINCT FROM 'cursed')"
    )
    try:
        await world.start()
        text = "{name: bad, nodes: {c: {type: conditional, condition_field: '{{ 1 }}', branches: [{name: cursed, default: true, next: END}]}}}"
        await world.submit(text)
        job = await world.submit("{name: good, nodes: {a: {handler: echo}}}")
        assert (await world.finished(job)).status == "COMPLETED"
    finally:
        await world.rows("ALTER TABLE dag_node_states DROP CONSTRAINT for_this_test")


async def test_a_job_that_is_owned_and_not_known_is_loaded(world: World):
    """The answer to a claim may be lost after it was committed: no other orchestrator may claim the job, and its owner must load it."""
    owner = await world.orchestrator()
    await world.worker()
    job = await world.submit("{name: n, nodes: {w: {type: wait, signal: go}}}")
    await world.until_node(job, "w", "WAITING")
    owner.jobs.clear()
    await world.send(job, "signal", name="go")
    assert (await world.finished(job)).status == "COMPLETED"


async def test_a_job_that_cannot_be_advanced_stays_quarantined_when_a_timer_is_due(
    world: World, monkeypatch: pytest.MonkeyPatch
):
    monkeypatch.setattr(service, "QUARANTINE_SECONDS", 0.3)
    owner = await world.orchestrator()
    job = await world.submit("{name: n, nodes: {w: {type: wait, seconds: 0.1}}}")
    await world.until_node(job, "w", "WAITING")
    advance, tries = owner._advancer.advance, list[float]()

    async def fails(*arguments: Any) -> Any:
        tries.append(asyncio.get_running_loop().time())
        if len(tries) < 3:
            raise RuntimeError("on purpose")
        return await advance(*arguments)

    monkeypatch.setattr(owner._advancer, "advance", fails)
    assert (await world.finished(job)).status == "COMPLETED"
    # The clock of the orchestrator follows the database's and may jump a little.
    assert [after - before >= 0.15 for before, after in pairwise(tries[:3])] == [True, True]


# ── Priorities ──


async def test_the_most_urgent_goes_first_and_of_equals_the_oldest(world: World):
    order: list[str] = []
    gate = Gate()

    @handler("note", queue="q")
    async def note(ctx: HandlerContext) -> None:
        await gate.wait()
        order.append(ctx.job_id)

    world.handlers.append(note)
    text = "{name: n, nodes: {f: {type: fan_out, source: [1, 2], task: {handler: note}}}}"
    await world.orchestrator()
    jobs = [await world.submit(text, priority=priority) for priority in (5, 0, 10, 5)]
    await world.until("SELECT count(*) = 8 FROM dag_task_queue")
    await world.worker(concurrency=1)
    gate.open()
    for job in jobs:
        await world.finished(job)
    middle, low, high, later = jobs
    assert order == [high, high, middle, middle, later, later, low, low]
