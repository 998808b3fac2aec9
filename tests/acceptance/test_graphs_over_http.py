"""Graphs in code against `dagmaster dev`, by the address and a key of its server: stored, filled, run and managed."""

from __future__ import annotations

import asyncio
import re
from typing import TYPE_CHECKING

import pytest

from dagmaster import (
    AsyncClient,
    Group,
    JobStatus,
    OrchContext,
    TaskStatus,
    add_task_to_job,
    cancel_job,
    create_job,
    create_result_collector,
    create_task,
    get_job,
    get_task,
    health_check,
    list_jobs,
    list_workers,
    register_worker,
    retry_failed_tasks,
    worker_heartbeat,
)
from dagmaster.errors import DagmasterError, JobFinished, NodesRejected
from dagmaster.session import blocking

# The fixture, too.
from tests.acceptance.test_services import new_sandbox, sandbox  # noqa: F401

if TYPE_CHECKING:
    from pathlib import Path

    from tests.acceptance.test_services import Sandbox

pytestmark = pytest.mark.process

STEPS = """
import asyncio
import pathlib

from dagmaster import PermanentError, create_task, get_current_context, map_values


async def double(x):
    return 2 * x


def halve(chunk):
    return [value / 2 for value in chunk]


def total(parts):
    return sum(map(sum, parts))


async def split(count):
    parts = map_values("steps.halve", range(count), chunk=4)
    await get_current_context().apply(create_task("steps.total", {"parts": parts}, name="total"))
    return count


async def check(flag):
    if not pathlib.Path(flag).exists():
        raise PermanentError("the flag is not there")
    return True


def crash():
    return 1 // 0


async def stay():
    await asyncio.Event().wait()
"""


def test_a_graph_is_stored_filled_run_and_managed_over_http(
    sandbox: Sandbox,  # noqa: F811 - the fixture
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
):
    (sandbox.folder / "steps.py").write_text(STEPS)
    (sandbox.folder / "empty").mkdir()
    sandbox.env["DAGMASTER_HANDLERS"] = str(sandbox.folder / "steps.py")
    dev = sandbox.start("dev", "--port=0", "--workflows", str(sandbox.folder / "empty"))
    address = re.search(r"http://[\d.:]+", dev.until("  API"))
    assert address is not None
    dev.until("ready in")
    key = sandbox.run("keys", "create", "graphs", "--scope", "admin", "--scope", "work").stdout.strip()
    # The submitter has another version of one function.
    (tmp_path / "steps.py").write_text(STEPS.replace("return 2 * x", "return x + x"))
    monkeypatch.syspath_prepend(str(tmp_path))
    monkeypatch.setenv("DAGMASTER_PYTHON_QUEUE", "default")
    asyncio.run(use_graphs(address[0], key, tmp_path / "flag"))
    monkeypatch.setenv("DAGMASTER_URL", address[0])
    monkeypatch.setenv("DAGMASTER_KEY", key)
    with blocking.OrchContext():
        last = create_task("steps.double", {"x": create_task("steps.double", {"x": 3})}, name="last")
        job = blocking.create_job("of the settings", last)
    assert job.watch().wait().result == 12
    crash = create_task("steps.crash", retry="none")
    failed = blocking.create_job("crashing", crash).watch().wait()
    traceback = blocking.get_task(crash.id).traceback
    assert traceback is not None
    assert "in crash\n    return 1 // 0" in traceback
    assert failed.traceback == traceback


async def use_graphs(url: str, key: str, flag: Path) -> None:
    async with AsyncClient(url, key) as client:
        async with OrchContext(url=url, key=key) as context:
            numbers = Group("numbers", [create_task("steps.double", {"x": number}) for number in range(3)])
            check = create_task("steps.check", {"flag": str(flag)}, name="check")
            job = await create_job("nightly", numbers >> check)
            await context.apply(create_task("steps.split", {"count": 10}, name="split"))
            numbers.add(create_task("steps.double", {"x": 50}))
            doubled = create_result_collector(numbers.tasks, name="doubled")
            await context.apply([numbers, doubled])
            with pytest.raises(NodesRejected, match="has a node 'check' already"):
                await context.apply(
                    [create_task("steps.double", {"x": 1}, name=name) for name in (None, "check")]
                )
            assert [one.id for one in await list_jobs(name="nightly")] == [job.id]
        # The context has exited, and what it held completes: one task fails.
        detail = await client.wait(str(job.id), timeout_seconds=60)
        assert (detail.status, detail.nodes["check"].status) == (JobStatus.FAILED, TaskStatus.FAILED)
        assert "the flag is not there" in str((await get_task(check.id, url=url, key=key)).error)
        with pytest.raises(JobFinished, match=f"job {job.id} is FAILED"):
            await add_task_to_job(job.id, "steps.double", {"x": 1}, url=url, key=key)

        await asyncio.to_thread(flag.touch)
        await retry_failed_tasks(job.id, url=url, key=key)
        await client.wait(str(job.id), timeout_seconds=60)
        done = await get_job(job.id, url=url, key=key)
        results = {"results": [0, 2, 4, 100], "count": 4}
        assert done.result == {"check": True, "split": 10, "total": 22.5, "doubled": results}
        # The worker has other code of one function than the submitter, and the same of another.
        attempts = {
            node_id: (await client.node_detail(str(job.id), node_id)).attempts[0]
            for node_id in ("double", "split")
        }
        assert (attempts["double"].metrics or {}).keys() == {"code_fingerprint"}
        assert not attempts["split"].metrics
        await manage(client, url, key)


async def manage(client: AsyncClient, url: str, key: str) -> None:
    waiting = await create_job("never", "steps.stay", url=url, key=key)
    added = await add_task_to_job(waiting.id, "steps.double", {"x": 2}, url=url, key=key, name="added")
    assert (await get_task(added.id, url=url, key=key)).node_id == "added"
    tasks = [create_task("steps.double", {"x": 1}, name="only") for _ in range(2)]
    jobs = [await create_job("once", task, idempotency_key="once", url=url, key=key) for task in tasks]
    assert (jobs[0].id, tasks[0].id) == (jobs[1].id, tasks[1].id)
    assert (await get_task(tasks[1].id, url=url, key=key)).node_id == "only"
    await add_task_to_job(waiting.id, "steps.check", {"flag": "/no/such/flag"}, url=url, key=key, name="bad")
    async for view in client.watch_job(str(waiting.id)):
        if "bad" in view.statuses and view.statuses["bad"] is TaskStatus.FAILED:
            break
    # The job ends when its running task does: its owner accepts nothing more.
    with pytest.raises(NodesRejected, match=f"job {waiting.id}: .*ending"):
        await add_task_to_job(waiting.id, "steps.double", {"x": 2}, url=url, key=key)
    await cancel_job(waiting.id, url=url, key=key)
    assert (await client.wait(str(waiting.id), timeout_seconds=60)).status is JobStatus.CANCELLED

    worker = await register_worker("worker-01", 12345, url=url, key=key)
    await worker_heartbeat(worker.id, url=url, key=key)
    assert {one.hostname for one in await list_workers(url=url, key=key)} >= {"worker-01"}
    assert (await health_check(url=url, key=key))["database"]
    with pytest.raises(DagmasterError, match="key"):
        await create_job("no key", "steps.stay", url=url, key="dm_wrong")
