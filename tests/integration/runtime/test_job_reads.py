"""What a reader sees of jobs: where their children lie, what was asked of them, how long they took."""

from __future__ import annotations

import contextlib
from typing import TYPE_CHECKING, Any

import asyncpg
import pytest

from dagmaster.application.queries.jobs import list_jobs
from dagmaster.application.queries.nodes import node_detail
from dagmaster.bootstrap import open_application
from dagmaster.engine.diagnosis.reasons import ReasonCode
from dagmaster.errors import Category, DatabaseUnavailable
from dagmaster.ports.job_filter import JobFilter
from dagmaster.sdk.handler_registry import handler
from dagmaster.settings import Settings
from dagmaster.store.postgres.read_store import PostgresReadStore
from tests.integration.runtime.runtime_world import Gate
from tests.unit.application.world import application_on

if TYPE_CHECKING:
    from collections.abc import AsyncIterator

    from tests.integration.runtime.runtime_world import World


@contextlib.asynccontextmanager
async def reading(world: World) -> AsyncIterator[PostgresReadStore]:
    store = PostgresReadStore(world.address)
    try:
        yield store
    finally:
        await store.close()


@handler("look", queue="q")
async def look(file: str) -> dict[str, Any]:
    """Give a place, in one of the ways in which handlers do."""
    ways: dict[str, dict[str, Any]] = {
        "a": {"bbox": [0, 0, 1, 1]},
        "b": {"item": {"bbox": [2, 2, 3, 3]}},
        "c": {"bbox": [5e5, 0, 6e5, 1]},
    }
    return ways.get(file, {})


async def test_a_fan_out_over_names_has_a_map_once_its_children_are_done(world: World):
    async with reading(world) as store:
        world.handlers.append(look)
        await world.start()
        flow = """
name: n
nodes:
  f: {type: fan_out, source: [a, b, c, d, {bbox: [7, 7, 8, 8]}, [1]], task: {handler: %s, params: {file: "{{ item }}"}}}
"""
        job = await world.submit(flow.replace("%s", "look").replace(", {bbox: [7, 7, 8, 8]}, [1]", ""))
        assert (await world.finished(job)).status == "COMPLETED"
        placed = await store.footprints(job)
        assert [(one.child.node_id, one.footprint) for one in placed] == [
            ("f__0", [0, 0, 1, 1]),
            ("f__1", [2, 2, 3, 3]),
        ]
        job = await world.submit(flow.replace("%s", "echo"))
        await world.finished(job)
        assert [(one.child.node_id, one.footprint) for one in await store.footprints(job)] == [
            ("f__4", [7, 7, 8, 8])
        ]


async def test_a_read_that_takes_too_long_is_cancelled_and_names_the_setting(world: World):
    settings = Settings(read_timeout_seconds=0.2)
    locker = await asyncpg.connect(world.dsn)
    try:
        async with open_application(world.address, settings) as app, locker.transaction():
            await locker.execute("LOCK TABLE dagapp.dag_jobs IN ACCESS EXCLUSIVE MODE")
            with pytest.raises(
                DatabaseUnavailable, match=r"longer than 0\.2 s.* DAGMASTER_READ_TIMEOUT_SECONDS"
            ) as error:
                await list_jobs(app)
            assert error.value.category is Category.UNAVAILABLE
    finally:
        await locker.close()


async def test_a_command_waits_until_an_orchestrator_processes_it(world: World):
    async with reading(world) as store:
        job = await world.submit("{name: n, nodes: {a: {handler: echo}}}")
        await world.send(job, "cancel")
        (waiting,) = await store.pending_commands(job)
        assert (waiting.kind, waiting.sent_by) == ("cancel", "ada")
        await world.orchestrator()
        await world.finished(job)
        assert await store.pending_commands(job) == []


async def test_a_run_begins_when_the_job_was_resumed(world: World):
    async with reading(world) as store:
        await world.start()
        job = await world.submit("{name: n, nodes: {a: {handler: fail, retry: none}}}")
        assert (await world.finished(job)).status == "FAILED"
        head = await store.job(job)
        assert head is not None
        assert head.resumed_at is None
        await world.rows(
            "UPDATE dag_jobs SET started_at = started_at - interval '1 h' WHERE id = $1", int(job)
        )
        await world.send(job, "resume", nodes=[])
        assert (await world.finished(job, run=2)).status == "FAILED"
        head = await store.job(job)
        (line,) = await store.jobs(JobFilter())
        assert head is not None
        assert head.resumed_at is not None
        assert head.duration_seconds == line.duration_seconds
        assert (head.duration_seconds or 0) < 3600


async def test_a_node_has_its_params_while_its_task_is_out_and_no_secrets(world: World):
    async with reading(world) as store:
        gate = Gate()

        @handler("held", queue="q")
        async def held(text: str) -> dict[str, Any]:
            await gate.wait()
            return {"said": len(text)}

        world.handlers.append(held)
        await world.start()
        flow = """
name: n
inputs: {token: {type: string, secret: true}}
nodes:
  f: {type: fan_out, source: [{by: me}], task: {handler: held, params: {text: "it is {{ inputs.token }}"}}}
"""
        job = await world.submit(flow, {"token": "hunter2"})
        await world.until("SELECT started_at IS NOT NULL FROM dag_task_queue")

        async def read() -> Any:
            return await node_detail(application_on(store), job, "f__0")

        node = await read()
        assert (node.params, node.item) == ({"text": "it is ***"}, {"by": "me"})
        assert [(each.attempt, each.status) for each in node.attempts] == [(1, "RUNNING")]
        gate.open()
        await world.finished(job)
        node = await read()
        assert (node.params, [each.status for each in node.attempts]) == (None, ["COMPLETED"])


async def test_the_queue_of_a_finished_run_is_served_by_workers_of_all_queues(world: World):
    await world.orchestrator()
    job = await world.submit("{name: n, nodes: {a: {handler: echo}}}", queue="run:7")
    await world.until_node(job, "a", "DISPATCHED")
    async with reading(world) as store:
        assert [wait.state.workers for wait in await store.backlog(job)] == [0]
        # Rows of workers: a real one would take the task.
        insert = """
INSERT INTO dag_workers (worker_id, host, pid, version, queues, concurrency, started_at, heartbeat_at)
VALUES ($1, 'h', 1, '1', $2, 4, clock(), clock())
"""
        await world.rows(insert, 1, [])
        assert [wait.state.workers for wait in await store.backlog(job)] == [1]
        assert (await world.why(job)).reason_for("a").code is ReasonCode.QUEUED
        await world.rows(insert, 2, ["run:7"])
        await world.rows(insert, 3, ["other"])
        assert [wait.state.workers for wait in await store.backlog(job)] == [1]
    await world.rows("DELETE FROM dag_workers")
    await world.worker()
    await world.finished(job)
