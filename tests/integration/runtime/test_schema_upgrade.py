"""The services continue the open jobs of a database that was upgraded from the first schema, whatever state they are in."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING

from dagmaster.sdk.handler_context import HandlerContext
from dagmaster.sdk.handler_registry import handler
from dagmaster.store.postgres import roles, schema_version
from tests.integration.runtime.runtime_world import Gate

if TYPE_CHECKING:
    from tests.integration.runtime.runtime_world import World

JOBS = {
    "claimed": "{name: claimed, nodes: {a: {handler: gated}}}",
    "retry": "{name: retry, nodes: {a: {handler: second_time, retry: {max_attempts: 2, initial_delay_seconds: 5}}}}",
    "fan_out": "{name: fan_out, nodes: {f: {type: fan_out, source: [0, 1, 2], task: {handler: part, params: {item: '{{ item }}'}}, next: all}, all: {type: fan_in}}, outputs: {items: '{{ nodes.all.output.results }}'}}",
    "command": "{name: command, nodes: {w: {type: wait, signal: go}}, outputs: {n: '{{ nodes.w.output.n }}'}}",
    "approval": "{name: approval, nodes: {ok: {type: approval, message: 'Release?'}}}",
}
OPEN = {"claimed": ("a", "DISPATCHED"), "retry": ("a", "READY"), "fan_out": ("f__0", "COMPLETED")}
OPEN |= {"command": ("w", "WAITING"), "approval": ("ok", "WAITING")}


async def test_open_jobs_of_the_first_schema_are_completed_by_the_services(world: World):
    gate = Gate()

    @handler("gated", queue="q")
    async def gated() -> None:
        await gate.wait()

    @handler("second_time", queue="q")
    async def second_time(ctx: HandlerContext) -> None:
        if ctx.attempt == 1:
            raise ConnectionError("not yet")

    @handler("part", queue="q")
    async def part(item: int) -> dict[str, int]:
        if item:
            await gate.wait()
        return {"item": item}

    world.handlers += [gated, second_time, part]
    orchestrator, worker = await world.orchestrator(), await world.worker(processes=None)
    jobs = {name: await world.submit(text) for name, text in JOBS.items()}
    for name, (node, status) in OPEN.items():
        await world.until_node(jobs[name], node, status)
    await world.until_claimed(3)
    await world.kill(worker)
    await world.kill(orchestrator)
    await world.silence(worker)
    await world.silence(orchestrator)
    await world.send(jobs["command"], "signal", name="go", payload={"n": 7})

    await asyncio.to_thread(schema_version.downgrade, world.dsn, "0001")
    assert await world.value("SELECT sum(tries_used) FROM dag_node_states") == 1, "the first schema's name"
    assert await world.value("SELECT count(*) FROM dag_task_queue WHERE worker_id IS NOT NULL") == 3
    assert await world.value("SELECT count(*) FROM dag_inbox") == 1
    await asyncio.to_thread(schema_version.upgrade, world.dsn)
    # The database serves other tests afterwards: the rights went with the tables.
    await roles.apply_roles(world.dsn, is_exact=True)

    gate.open()
    await world.orchestrator()
    # Without child processes: they do not have the handlers of a test.
    await world.worker(processes=None)
    await world.send(jobs["approval"], "approve", node="ok")
    reports = {name: await world.finished(job_id) for name, job_id in jobs.items()}
    assert {name: report.status for name, report in reports.items()} == dict.fromkeys(JOBS, "COMPLETED")
    assert await world.attempts(jobs["claimed"], "a") == ["LOST", "COMPLETED"]
    assert await world.attempts(jobs["retry"], "a") == ["FAILED", "COMPLETED"]
    assert [await world.attempts(jobs["fan_out"], f"f__{n}") for n in range(2)] == [
        ["COMPLETED"],
        ["LOST", "COMPLETED"],
    ]
    assert reports["fan_out"].result == {"items": [{"item": item} for item in range(3)]}
    assert reports["command"].result == {"n": 7}
