"""Reports that are pushed: a wake-up that is forged, repeated or lost changes at most how long a job takes."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any, Self

from dagmaster.sdk.handler_context import HandlerContext
from dagmaster.sdk.handler_registry import handler
from dagmaster.store.postgres.orchestrator_store import PostgresOrchestratorStore
from dagmaster.store.result_notifications import FORMAT
from tests.integration.runtime.runtime_world import Gate, World, owner_of

if TYPE_CHECKING:
    from dagmaster.ports.turn_records import TaskResult

CHAIN = "{name: n, nodes: {a: {handler: held, queue: q, next: b}, b: {handler: held, queue: q}}, outputs: {a: '{{ nodes.a.output }}', b: '{{ nodes.b.output }}'}}"
EPOCH = "SELECT owner_epoch FROM dag_jobs WHERE id = $1"


class Held:
    """A handler that waits at its node's gate."""

    def __init__(self, world: World) -> None:
        self.gates = {"a": Gate(), "b": Gate()}
        self.ran: list[str] = []

        @handler("held", queue="q")
        async def held(ctx: HandlerContext) -> dict[str, Any]:
            self.ran.append(ctx.node_id)
            await self.gates[ctx.node_id].wait()
            return {"of": ctx.node_id}

        world.handlers.append(held)

    def open(self) -> None:
        for gate in self.gates.values():
            gate.open()


class Deaf(list["TaskResult"]):
    """Nothing that is pushed arrives."""

    def __iadd__(self, _: object) -> Self:  # type: ignore[override,misc]
        return self


async def say(world: World, text: str) -> None:
    channel = f"dagmaster_owner_{owner_of(world.orchestrators[0])}"
    await world.rows("SELECT pg_notify($1, $2)", channel, text)


async def test_a_job_completes_although_no_notification_arrives(world):
    held = Held(world)
    held.open()
    await world.start()
    store = world.orchestrators[0].store
    assert isinstance(store, PostgresOrchestratorStore)
    store.notified_results = Deaf()
    report = await world.run(CHAIN)
    assert report.result == {"a": {"of": "a"}, "b": {"of": "b"}}
    assert held.ran == ["a", "b"]


async def test_a_forged_report_makes_the_job_be_loaded_again_and_nothing_else(world):
    held = Held(world)
    await world.start()
    job_id = await world.submit(CHAIN)
    await world.until_claimed()
    forged = [10**12, int(job_id), "a", 1, "COMPLETED", False, '{"of": "nobody"}', None, None, 1.0, 2.0, None]
    await say(world, f"results {FORMAT} {json.dumps([forged])}")
    await world.until("SELECT owner_epoch = 2 FROM dag_jobs WHERE id = $1", int(job_id))
    held.open()
    report = await world.finished(job_id)
    assert report.result == {"a": {"of": "a"}, "b": {"of": "b"}}
    assert held.ran == ["a", "b"]


async def test_a_notified_result_of_an_unknown_node_is_ignored(world):
    held = Held(world)
    await world.start()
    job_id = await world.submit(CHAIN)
    await world.until_claimed()
    await say(
        world,
        f"results {FORMAT} {json.dumps([[1, int(job_id), 'c', 1, 'LOST', False, None, None, None, 1, 2]])}",
    )
    held.open()
    assert (await world.finished(job_id)).result == {"a": {"of": "a"}, "b": {"of": "b"}}
    assert await world.value(EPOCH, int(job_id)) == 1


async def test_a_repeated_notification_is_applied_once(world):
    held = Held(world)
    await world.start()
    store = world.orchestrators[0].store
    assert isinstance(store, PostgresOrchestratorStore)
    collected: list[str] = []
    await store._side.listen(f"dagmaster_owner_{store.owner_id}", collected.append)
    held.gates["a"].open()
    job_id = await world.submit(CHAIN)
    await world.until_node(job_id, "b", "DISPATCHED")
    for text in tuple(collected):
        await say(world, text)
    held.open()
    assert (await world.finished(job_id)).result == {"a": {"of": "a"}, "b": {"of": "b"}}
    assert held.ran == ["a", "b"]
    assert await world.value(EPOCH, int(job_id)) == 1
    details = [
        row["type"]
        for row in await world.rows("SELECT type FROM dag_job_events WHERE job_id = $1", int(job_id))
    ]
    assert "StaleReportIgnored" not in details
