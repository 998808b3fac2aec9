"""The same calls without `await`."""

from __future__ import annotations

import asyncio
import inspect
from typing import Any

import pytest

import dagmaster
from dagmaster import Group, JobStatus, blocking, create_task


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


@pytest.mark.parametrize("name", sorted(set(blocking.__all__) - {"OrchContext", "run_job_test"}))
def test_a_blocking_call_has_the_arguments_of_the_asynchronous_one(name: str):
    asynchronous, here = getattr(dagmaster, name), getattr(blocking, name)
    assert inspect.iscoroutinefunction(asynchronous)
    assert not inspect.iscoroutinefunction(here)
    assert inspect.signature(here) == inspect.signature(asynchronous)
