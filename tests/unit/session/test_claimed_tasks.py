"""What the second source calls: tasks that code claims and reports, lists of tasks and dependencies, statuses."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest

from dagmaster import (
    Client,
    Dependency,
    Group,
    OrchContext,
    Task,
    TaskStatus,
    add_task_to_job,
    blocking,
    claim_next_task,
    create_job,
    create_task,
    deregister_worker,
    get_task,
    handler_task,
    list_dependencies,
    list_tasks,
    register_worker,
    run_job_test_async,
    update_task_status,
    worker_heartbeat,
)
from dagmaster.errors import CommandInvalid, LeaseLost, NodesRejected, QueryInvalid
from dagmaster.ports.api_keys import Scope
from dagmaster.sdk.handler_registry import Registry
from tests.unit.http.loopback import serve

DOUBLE = "outside.double"


def plain(value: Any = None) -> Any:
    return value


def fail() -> None:
    raise ValueError("broken")


async def claimed(worker_id: int) -> Task:
    """Claim a task: the job's owner has to dispatch it first."""
    task = await claim_next_task(worker_id, wait_seconds=30)
    assert task is not None
    return task


def test_the_status_of_a_task_is_pending_until_it_is_read():
    async def story() -> None:
        first = create_task(plain, {"value": 1})
        second, broken = (
            create_task(plain, {"value": first}),
            create_task(fail, retry="none", allow_failure=True),
        )
        assert {first.status, second.status, broken.status} == {TaskStatus.PENDING}
        async with OrchContext(in_memory=True):
            job = await create_job("job", [second, broken])
            assert first.status is TaskStatus.PENDING
            await run_job_test_async(job)
            assert [one.status for one in (first, second, broken)] == ["COMPLETED", "COMPLETED", "FAILED"]
            broken.status = TaskStatus.PENDING
            await list_tasks(job.id)
            assert broken.status is TaskStatus.FAILED
            broken.status = TaskStatus.PENDING
            await get_task(broken.id)
            assert broken.status is TaskStatus.FAILED

    asyncio.run(story())


def test_a_group_may_have_an_id_that_was_made_before():
    group = Group(id=4711, name="g")
    assert (group.id, Group("h").id > 4711) == (4711, True)
    for wrong in (0, -1, 2**63, "7", True):
        with pytest.raises(NodesRejected, match="group g: its id is a whole number"):
            Group("g", id=wrong)  # type: ignore[arg-type]


@pytest.mark.parametrize("name", ["double", "_x", "", "a b"])
def test_a_name_without_a_module_is_a_value_error_where_it_is_written(name: str):
    for make in (create_task, Task):
        with pytest.raises(ValueError, match=r"is not an entrypoint: .*'module\.function'"):
            make(name)


def test_a_handler_without_a_module_is_named_as_one_even_after_its_function_was_used():
    named = handler_task("double")
    assert create_task(named).entrypoint == "double"
    with pytest.raises(ValueError, match=r"handler_task\('double'\)"):
        create_task("double")


def test_tasks_and_dependencies_of_a_job_are_listed():
    async def story() -> None:
        first = create_task(plain, name="first")
        group = Group("g", [create_task(plain, {"value": first}, name="inner")])
        last = create_task(plain, name="last")
        group >> last
        async with OrchContext(in_memory=True):
            job = await create_job("job", [first, group, last])
            # Nobody has accepted it yet.
            added = await add_task_to_job(job.id, plain, name="added")
            tasks = await list_tasks(job.id)
            assert [(one.id, one.node_id, one.group_id) for one in tasks] == [
                (first.id, "first", None),
                (group.tasks[0].id, "inner", group.id),
                (last.id, "last", None),
                (added.id, added.node_id, None),
            ]
            assert {one.status for one in tasks} == {TaskStatus.PENDING}
            assert sorted(await list_dependencies(job.id)) == sorted(
                [
                    Dependency(first.id, "task", group.tasks[0].id, "task"),
                    Dependency(group.id, "group", last.id, "task"),
                ]
            )
            await run_job_test_async(job)
            assert [one.status for one in await list_tasks(job.id)] == ["COMPLETED"] * 4

    asyncio.run(story())


async def claim_and_report() -> None:
    worker = await register_worker("worker-01", handlers=[DOUBLE], queues=["outside"])
    first = create_task(
        DOUBLE, {"x": 1}, queue="outside", retry={"max_attempts": 2, "initial_delay_seconds": 0}
    )
    last = create_task(DOUBLE, {"x": first}, queue="outside")
    job = await create_job("claimed", last)
    task = await claimed(worker.id)
    assert (task.id, task.job_id, task.entrypoint) == (first.id, job.id, DOUBLE)
    assert (dict(task.kwargs), task.status) == ({"x": 1}, TaskStatus.CLAIMED)
    assert await update_task_status(task.id, "running") is TaskStatus.RUNNING
    assert await worker_heartbeat(worker.id)
    # Released, then failed, then completed: each report is accepted once.
    for status, reported in (
        ("pending", {}),
        ("failed", {"error": "once"}),
        (TaskStatus.COMPLETED, {"result": {"x": 2}}),
    ):
        await update_task_status(task.id, status, **reported)
        with pytest.raises(LeaseLost, match="is not held in this process"):
            await update_task_status(task.id, status)
        if status is not TaskStatus.COMPLETED:
            task = await claimed(worker.id)
            assert task.id == first.id
    task = await claimed(worker.id)
    assert (task.id, dict(task.kwargs)) == (last.id, {"x": {"x": 2}})
    # Its worker is gone: what it reports now is refused by the store, and another one gets the task.
    assert await deregister_worker(worker.id)
    other = await register_worker("worker-02", handlers=[DOUBLE], queues=["outside"])
    task = await claimed(other.id)
    assert task.id == last.id
    await update_task_status(task.id, "completed", result={"x": 4})
    await deregister_worker(other.id)


@pytest.mark.process
def test_code_claims_and_reports_tasks_of_a_server_as_workers_do():
    """`serve` runs an orchestrator and a worker, which does not serve this queue."""

    async def story(url: str, key: str) -> None:
        async with OrchContext(url=url, key=key):
            await claim_and_report()
            worker = await register_worker(handlers=[DOUBLE], queues=["outside"])
            await create_job("list", create_task(DOUBLE, queue="outside"))
            task = await claimed(worker.id)
            with pytest.raises(CommandInvalid, match=r"a server takes a result that is a dict, not \[1\]"):
                await update_task_status(task.id, "completed", [1])
            await update_task_status(task.id, "completed", {"x": 1})

    with serve(Registry([])) as server, Client(server.url, server.key) as client:
        key = client.create_key("code", [Scope.ADMIN, Scope.WORK]).key
        asyncio.run(story(server.url, key))


def test_what_cannot_be_claimed_or_reported_is_said():
    async def story() -> None:
        async with OrchContext(in_memory=True):
            worker = await register_worker()
            with pytest.raises(CommandInvalid, match="registered without handlers"):
                await claim_next_task(worker.id)
            with pytest.raises(QueryInvalid, match="'skipped' is not a status that is reported: running, "):
                await update_task_status(1, "skipped")
            with pytest.raises(LeaseLost):
                await update_task_status("none", "completed")

    asyncio.run(story())


def test_each_call_has_a_blocking_twin():
    with blocking.OrchContext(in_memory=True):
        worker = blocking.register_worker(handlers=[DOUBLE])
        assert blocking.claim_next_task(worker.id) is None
        job = blocking.create_job("job", create_task(plain))
        assert len(blocking.list_tasks(job.id)) == 1
        assert blocking.list_dependencies(job.id) == []
        with pytest.raises(LeaseLost):
            blocking.update_task_status(1, "failed")
        assert blocking.deregister_worker(worker.id)
        assert not blocking.worker_heartbeat(worker.id)
