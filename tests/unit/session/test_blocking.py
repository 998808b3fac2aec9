"""The same calls without `await`."""

from __future__ import annotations

import asyncio
import importlib
import inspect
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

import dagmaster
from dagmaster import Group, JobStatus, OrchContext, blocking, create_result_collector, create_task
from dagmaster.errors import JobNotFound, NodesRejected
from dagmaster.session import blocking as calls

if TYPE_CHECKING:
    from collections.abc import Callable

    from dagmaster import Job


def double(x: int) -> int:
    return 2 * x


def run_it() -> Any:
    with blocking.OrchContext(in_memory=True) as context:
        task = create_task(double, {"x": 21})
        job = blocking.create_job("sync", Group("g", [task]))
        context.apply(create_task(double, {"x": task}, name="again"))
        assert blocking.run_job_test(job).status is JobStatus.COMPLETED
        assert blocking.get_job(job.id).status is JobStatus.COMPLETED
        return blocking.get_task(task.id).result


def test_a_script_without_a_loop_runs_a_graph():
    assert run_it() == 42


def test_a_notebook_with_a_running_loop_runs_a_graph():
    async def cell() -> Any:
        return run_it()

    assert asyncio.run(cell()) == 42


def test_the_current_context_of_a_blocking_one_applies_without_await():
    with blocking.OrchContext(in_memory=True) as context:
        job = blocking.create_job("one", create_task(double, {"x": 1}, name="a"))
        current: Any = dagmaster.get_current_context()
        assert current is context
        late = current.apply(create_task(double, {"x": 2}, name="late"))
        assert late.job_id == job.id
        assert blocking.run_job_test(job).result == {"a": 2, "late": 4}


def test_what_a_task_that_has_not_started_waits_for_can_be_added():
    with blocking.OrchContext(in_memory=True) as context:
        first = create_task(double, {"x": 1}, name="first")
        job = blocking.create_job("one", first)
        before = create_task(double, {"x": 2}, name="before")
        before >> first
        context.apply(before)
        assert blocking.run_job_test(job).status is JobStatus.COMPLETED
        tasks = [blocking.get_task(task.id) for task in (before, first)]
    assert [task.result for task in tasks] == [4, 2]
    assert tasks[0].completed_at <= tasks[1].started_at  # type: ignore[operator]


def test_what_the_owner_of_the_job_rejects_is_an_error_of_the_run(monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr("dagmaster.orchestrator.service.MAX_COMMANDS", 1)
    with blocking.OrchContext(in_memory=True) as context:
        first = create_task(double, {"x": 1}, name="first")
        job = blocking.create_job("one", first)
        context.apply(create_task(double, {"x": 1}, name="other"))
        # It is read in the second turn, when `first` is dispatched.
        before = create_task(double, {"x": 2}, name="before")
        before >> first
        context.apply(before)
        with pytest.raises(
            NodesRejected, match=rf"job {job.id}: .* are not part of it: 'first' is [A-Z]+: a depend"
        ):
            blocking.run_job_test(job)
        assert job.status is JobStatus.COMPLETED


def test_an_apply_in_a_context_with_several_jobs_names_one():
    with blocking.OrchContext(in_memory=True) as context:
        one, two = (blocking.create_job(name, create_task(double, {"x": 1})) for name in ("one", "two"))
        task = create_task(double, {"x": 2}, name="late")
        listed = rf"2 jobs .*: one \({one.id}\), two \({two.id}\)\. Name .*job_id=job\.id"
        with pytest.raises(NodesRejected, match=listed):
            context.apply(task)
        assert context.apply(task, job_id=two.id).job_id == two.id


def measure() -> dict[str, Any]:
    return {"size": 3, "sides": [{"a b": 4}, {"a b": 5}]}


def test_a_part_of_a_result_is_an_argument():
    with blocking.OrchContext(in_memory=True):
        source = create_task(measure)
        size = create_task(double, {"x": source["size"]}, name="size")
        last = create_task(double, {"x": source["sides"][-1]["a b"]}, name="last")
        collected = create_task(double, {"x": create_result_collector([source])[0]["size"]}, name="collected")
        job = blocking.run_job_test(blocking.create_job("parts", [size, last, collected]))
        assert job.result == {"size": 6, "last": 10, "collected": 6}
        assert blocking.get_task(last.id).kwargs == {"x": '{{ nodes.measure.output.sides[-1]["a b"] }}'}
        missing = create_task(double, {"x": create_task(measure)["sise"]}, retry="none")
        failed = blocking.run_job_test(blocking.create_job("missing", missing))
        assert "`nodes.measure.output.sise` is missing; keys: size, sides" in (failed.error or "")


async def read_own_job() -> str:
    job = await dagmaster.get_job(dagmaster.get_current_context().job_id or 0)
    return str(job.status)


def test_a_task_reads_its_job_in_the_memory_of_a_run_inside_a_loop():
    async def cell() -> Any:
        with blocking.OrchContext(in_memory=True):
            job = blocking.run_job_test(
                blocking.create_job("reading", create_task(read_own_job, retry="none"))
            )
            return job.result

    assert asyncio.run(cell()) == "RUNNING"


async def add_without_await() -> None:
    blocking.add_task_to_job(dagmaster.get_current_context().job_id or 0, double, {"x": 1})


def add_from_a_plain_function() -> None:
    blocking.add_task_to_job(dagmaster.get_current_context().job_id or 0, double, {"x": 1})


def test_a_blocking_call_that_waits_for_the_loop_that_it_blocks_says_to_await():
    with blocking.OrchContext(in_memory=True):
        job = blocking.run_job_test(
            blocking.create_job("adding", create_task(add_without_await, retry="none"))
        )
        assert job.status is JobStatus.FAILED
        assert "Await it: `await dagmaster.add_task_to_job(…)`" in (job.error or "")
        plain = blocking.create_job("plain", create_task(add_from_a_plain_function, retry="none"))
        assert blocking.run_job_test(plain).status is JobStatus.COMPLETED


def fail_first(path: str) -> str:
    if not Path(path).exists():
        Path(path).touch()
        raise ValueError("boom")
    return "done"


def test_a_job_that_is_retried_runs_in_the_same_memory(tmp_path: Path):
    with blocking.OrchContext(in_memory=True):
        once = create_task(fail_first, {"path": str(tmp_path / "once")}, retry=1)
        job = blocking.run_job_test(blocking.create_job("b", once))
        assert job.status is JobStatus.FAILED
        retried = blocking.run_job_test(blocking.retry_failed_tasks(job.id))
        assert (retried.status, retried.result) == (JobStatus.COMPLETED, "done")


@pytest.mark.parametrize(
    "read",
    [blocking.get_job, lambda _: blocking.list_jobs()[0], blocking.cancel_job],
    ids=["get_job", "list_jobs", "cancel_job"],
)
def test_a_job_that_is_read_again_runs_in_the_same_memory(read: Callable[[int], Job]):
    with blocking.OrchContext(in_memory=True):
        job = blocking.create_job("b", create_task(double, {"x": 1}))
        assert blocking.run_job_test(read(job.id)).is_finished


def test_a_job_whose_memory_is_closed_is_not_looked_for_in_the_database_of_the_settings(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
):
    monkeypatch.setenv("DAGMASTER_DATA_DIR", str(tmp_path / "data"))
    with blocking.OrchContext(in_memory=True):
        job = blocking.create_job("b", create_task(double, {"x": 1}))
    with pytest.raises(
        JobNotFound, match=rf"job {job.id} was made in an OrchContext\(in_memory=True\) that is closed"
    ):
        blocking.run_job_test(job)
    assert not (tmp_path / "data").exists()


def test_the_calls_without_await_are_a_module():
    module = importlib.import_module("dagmaster.blocking")
    assert module is dagmaster.blocking
    assert all(getattr(module, name) is getattr(calls, name) for name in calls.__all__)


@pytest.mark.parametrize("name", sorted(set(calls.__all__) - {"OrchContext", "run_job_test"}))
def test_a_blocking_call_has_the_arguments_of_the_asynchronous_one(name: str):
    asynchronous, here = getattr(dagmaster, name), getattr(blocking, name)
    assert inspect.iscoroutinefunction(asynchronous)
    assert not inspect.iscoroutinefunction(here)
    assert inspect.signature(here) == inspect.signature(asynchronous)


def test_the_package_has_the_public_names_of_its_modules():
    from dagmaster import orchestration

    modules = {
        name: getattr(getattr(dagmaster, name), "__module__", "")
        for name in dagmaster.lazy_names("dagmaster")[0]
    }
    names = {name for name, module in modules.items() if module.startswith("dagmaster.session")}
    assert names | {"TaskStatus", "Task", "Group", "create_task"} <= set(orchestration.__all__)
    assert all(getattr(orchestration, name) is getattr(dagmaster, name) for name in orchestration.__all__)
    with pytest.raises(AttributeError, match="nope"):
        _ = orchestration.nope


def test_a_context_that_is_entered_in_the_wrong_way_or_not_at_all_says_how():
    def enter_plainly(context: Any) -> None:
        with context:
            pass

    async def enter_blocking() -> None:
        async with blocking.OrchContext(in_memory=True):  # type: ignore[attr-defined]
            pass

    with pytest.raises(TypeError, match=r"from dagmaster\.blocking import OrchContext"):
        enter_plainly(OrchContext(in_memory=True))
    with pytest.raises(TypeError, match="needs `with`; with await: from dagmaster import OrchContext"):
        asyncio.run(enter_blocking())
    with pytest.raises(RuntimeError, match="not entered: write `with OrchContext"):
        blocking.OrchContext(in_memory=True).create_job("j", "m.f")
    with pytest.raises(RuntimeError, match="not entered: write `async with OrchContext"):
        asyncio.run(OrchContext(in_memory=True).create_job("j", "m.f"))
