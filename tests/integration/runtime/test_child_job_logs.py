"""`jobs logs` of a job with child jobs: their lines have the path of their node, in a pass and while they are written."""

from __future__ import annotations

import asyncio
import contextlib
from typing import TYPE_CHECKING

import pytest

from dagmaster.cli import job_tree_logs
from dagmaster.cli.job_tree_logs import JobTreeLogs
from dagmaster.client.system import LocalSystem
from dagmaster.sdk.handler_registry import handler
from dagmaster.store.postgres.read_store import PostgresReadStore
from tests.integration.runtime.runtime_world import Gate
from tests.patience import PATIENCE_SECONDS
from tests.unit.application.world import application_on

if TYPE_CHECKING:
    from collections.abc import AsyncGenerator, AsyncIterator

    from dagmaster.cli.job_tree_logs import PathLog
    from tests.integration.runtime.runtime_world import World

INNER = "{workflow_id: inner, nodes: {say: {handler: say, params: {text: inner}}}}"
MIDDLE = "{workflow_id: middle, nodes: {say: {handler: say, params: {text: middle}, next: deep}, deep: {type: workflow, workflow_id: inner}}}"
OUTER = "{workflow_id: outer, nodes: {first: {handler: say, params: {text: first}, next: sub}, sub: {type: workflow, workflow_id: middle, next: last}, last: {handler: say, params: {text: last}}}}"
FAN_OUT = "{workflow_id: outer, nodes: {f: {type: fan_out, source: [1, 2, 3, 4], task: {type: workflow, workflow_id: inner}}}}"


@handler("say", queue="q")
async def say(text: str) -> None:
    print(text)  # noqa: T201 - what a task prints is its log


@contextlib.asynccontextmanager
async def opened(world: World) -> AsyncIterator[LocalSystem]:
    store = PostgresReadStore(world.address)
    try:
        yield LocalSystem(application_on(store))
    finally:
        await store.close()


async def lines(chunks: AsyncGenerator[PathLog]) -> list[tuple[str, str]]:
    async with contextlib.aclosing(chunks):
        return [(item.path, item.log.text.strip()) async for item in chunks]


ALL = [("first", "first"), ("sub/say", "middle"), ("sub/deep/say", "inner"), ("last", "last")]


async def test_lines_of_child_jobs_are_in_the_order_of_time_with_the_paths_of_their_nodes(world: World):
    world.handlers.append(say)
    report = await world.run(OUTER, brings=[MIDDLE, INNER])
    async with opened(world) as system:
        assert await lines(JobTreeLogs(system, report.job_id).read()) == ALL
        assert sorted(await lines(JobTreeLogs(system, report.job_id).follow())) == sorted(ALL)
        assert await lines(JobTreeLogs(system, report.job_id, node_id="sub").read()) == ALL[1:3]
        assert await lines(JobTreeLogs(system, report.job_id, node_id="last").read()) == ALL[3:]


async def test_a_follower_sees_child_jobs_that_start_later_and_ends_with_the_job(world: World):
    gates = {"first": Gate(), "inner": Gate()}

    @handler("say", queue="q")
    async def say_and_wait(text: str) -> None:
        print(text)  # noqa: T201 - as above
        if text in gates:
            await gates[text].wait()

    world.handlers.append(say_and_wait)
    await world.start()
    job_id = await world.submit(OUTER, brings=[MIDDLE, INNER])
    seen = []
    async with (
        opened(world) as system,
        asyncio.timeout(PATIENCE_SECONDS),
        contextlib.aclosing(JobTreeLogs(system, job_id).follow()) as chunks,
    ):
        async for item in chunks:
            seen.append((item.path, item.log.text.strip()))
            # The job continues only when these lines were seen.
            if seen[-1][1] in gates:
                gates[seen[-1][1]].open()
    assert sorted(seen) == sorted(ALL)
    assert (await world.finished(job_id)).status == "COMPLETED"


async def test_a_child_job_that_outlives_the_job_is_not_waited_for(
    world: World, monkeypatch: pytest.MonkeyPatch
):
    monkeypatch.setattr(job_tree_logs, "SILENT_SECONDS", 0.01)
    world.handlers.append(say)
    orchestrator = await world.orchestrator()
    await world.worker()
    report = await world.finished(await world.submit(OUTER, brings=[MIDDLE, INNER]))
    # As if its orchestrator had not yet cancelled it. A living one would claim it.
    await world.stop(orchestrator)
    sql = "UPDATE dag_jobs SET status = $2, finished_at = CASE WHEN $2 = 'COMPLETED' THEN now() END WHERE workflow_id = $1"
    await world.rows(sql, "inner", "RUNNING")
    try:
        async with opened(world) as system, asyncio.timeout(PATIENCE_SECONDS):
            assert set(await lines(JobTreeLogs(system, report.job_id).follow())) <= set(ALL)
    finally:
        await world.rows(sql, "inner", "COMPLETED")


@pytest.mark.parametrize(("limit", "count"), [(2, 2), (4, 4)])
async def test_a_bounded_number_of_child_jobs_is_read(
    world: World, monkeypatch: pytest.MonkeyPatch, limit: int, count: int
):
    monkeypatch.setattr(job_tree_logs, "MAX_CHILD_JOBS", limit)
    monkeypatch.setattr(job_tree_logs, "MAX_STREAMS", 2)
    monkeypatch.setattr(job_tree_logs, "_PAGE", 3)
    world.handlers.append(say)
    report = await world.run(FAN_OUT, brings=[INNER])
    async with opened(world) as system:
        for reads in (JobTreeLogs.read, JobTreeLogs.follow):
            tree = JobTreeLogs(system, report.job_id)
            paths = [path for path, _ in await lines(reads(tree))]
            assert len(set(paths)) == len(paths) == count
            assert set(paths) <= {f"f__{index}/say" for index in range(4)}
            assert tree.has_more == (limit < 4)
