"""What counts as a start: with a worker that claims more than it runs, and jobs that are cancelled before."""

from __future__ import annotations

from typing import TYPE_CHECKING

from dagmaster.engine.status import NodeStatus
from dagmaster.ports.read_store import NodeFilter
from dagmaster.store.postgres.read_store import PostgresReadStore
from tests.integration.runtime.runtime_world import Gate
from tests.integration.runtime.test_diagnosis import hurry
from tests.integration.runtime.test_ownership import gated_by

if TYPE_CHECKING:
    from tests.integration.runtime.runtime_world import World

MANY = """
name: n
inputs: {items: {type: array}}
nodes: {f: {type: fan_out, source: "{{ inputs.items }}", task: {handler: %s, queue: q}}}
"""
STARTED = "SELECT count(*) = $1 FROM dag_task_queue WHERE started_at IS NOT NULL"


async def attempts_of(world: World, job: str) -> int:
    store = PostgresReadStore(world.address)
    try:
        return await store.attempt_count(job)
    finally:
        await store.close()


async def nodes_with(world: World, job: str, status: NodeStatus) -> list[str]:
    store = PostgresReadStore(world.address)
    try:
        records = await store.list_nodes(
            NodeFilter(job_id=job, parent_node_id="f", statuses=frozenset({status})), limit=500
        )
        return [record.node_id for record in records]
    finally:
        await store.close()


async def test_a_cancelled_fan_out_counts_only_the_handlers_that_started(world: World):
    gate = Gate()
    world.handlers.append(gated_by(gate))
    await world.orchestrator()
    worker = await world.worker("q", concurrency=2)
    hurry(worker.held._budget)
    job = await world.submit(MANY % "gated", {"items": list(range(300))})
    await world.until(STARTED, 2)
    assert len(await nodes_with(world, job, NodeStatus.RUNNING)) == 2
    assert len(await nodes_with(world, job, NodeStatus.CLAIMED)) > 0
    assert await attempts_of(world, job) == 2
    await world.send(job, "cancel")
    assert (await world.finished(job)).status == "CANCELLED"
    assert await attempts_of(world, job) == 2
    finished = await world.rows(
        "SELECT status, count(*) AS attempts, count(started_at) AS started FROM dag_task_attempts GROUP BY 1 ORDER BY 1"
    )
    assert [tuple(row) for row in finished] == [("FAILED", 2, 2), ("RELEASED", 298, 0)]
    assert await world.value("SELECT count(started_at) FROM dag_node_states WHERE parent_node_id = 'f'") == 2


async def test_a_cancelled_fan_out_of_plain_functions_counts_only_those_that_had_a_process(world: World):
    await world.orchestrator()
    worker = await world.worker("q", processes=1)
    hurry(worker.held._process_budget)
    job = await world.submit(MANY % "listening", {"items": list(range(20))})
    await world.until(STARTED, 1)
    await world.send(job, "cancel")
    assert (await world.finished(job)).status == "CANCELLED"
    assert await attempts_of(world, job) == 1


async def test_a_job_that_no_worker_touched_has_no_attempts(world: World):
    await world.orchestrator()
    job = await world.submit("{name: n, nodes: {a: {handler: echo, queue: nowhere}}}")
    await world.until_node(job, "a", "DISPATCHED")
    assert await attempts_of(world, job) == 0
    await world.send(job, "cancel")
    assert (await world.finished(job)).status == "CANCELLED"
    assert await attempts_of(world, job) == 0
    assert await world.attempts(job, "a") == ["RELEASED"]


async def test_a_node_that_is_dispatched_again_has_not_started(world: World):
    gate = Gate()
    world.handlers.append(gated_by(gate))
    await world.orchestrator()
    worker = await world.worker("q", drain_seconds=0.1)
    job = await world.submit("{name: n, nodes: {a: {handler: gated, queue: q}}}")
    await world.until(STARTED, 1)
    await world.stop(worker)
    await world.until("SELECT attempt = 2 FROM dag_node_states WHERE node_id = 'a'")
    assert await world.value("SELECT started_at IS NULL FROM dag_node_states WHERE node_id = 'a'")
    assert await world.value("SELECT started_at IS NOT NULL FROM dag_task_attempts WHERE attempt = 1")
    gate.open()
    await world.worker("q")
    assert (await world.finished(job)).status == "COMPLETED"
    assert await attempts_of(world, job) == 2
    assert await world.value("SELECT started_at IS NOT NULL FROM dag_node_states WHERE node_id = 'a'")
