"""Where inputs are checked: small ones at once, large ones away from the loop and from the jobs of others."""

from __future__ import annotations

import asyncio
from dataclasses import replace
from typing import Any

import pytest

from dagmaster.application.checks import accept_inputs_apart
from dagmaster.application.submission import JobRequest, submit_jobs
from dagmaster.application.submission_queue import SubmissionQueue
from dagmaster.authoring.check_budget import QUICK_STEPS
from dagmaster.authoring.compiler.compile import compile_definition
from dagmaster.errors import InputsInvalid
from dagmaster.ports.audit_trail import ChangeOrigin
from tests.patience import PATIENCE_SECONDS
from tests.unit.application.memory_application import memory_application

LIST = {"type": "array", "items": {"type": "integer"}}
DEFINITION: Any = {
    "workflow_id": "w",
    "version": 1,
    "inputs": {"x": LIST},
    "nodes": {"a": {"handler": "h", "queue": "q"}},
}
GRAPH = compile_definition(DEFINITION)
LARGE: Any = list(range(QUICK_STEPS))


class HeldChecks:
    """Checks that wait until they are released."""

    def __init__(self) -> None:
        self.calls: list[str] = []
        self.actors: list[str] = []
        self.started = asyncio.Event()
        self.released = asyncio.Event()

    def on_behalf_of(self, actor: str) -> HeldChecks:
        self.actors.append(actor)
        return self

    async def check(self, function: Any, /, **arguments: Any) -> Any:
        self.calls.append(function.__name__)
        self.started.set()
        await self.released.wait()
        return function(**arguments)

    async def run(self, work: Any, *args: Any, **options: Any) -> Any:
        return work(*args, **options)


def test_the_checks_of_a_request_are_those_of_its_caller():
    checks = HeldChecks()
    app = replace(memory_application(), checks=checks)
    assert app.on_behalf_of(ChangeOrigin(actor="key:ada")).checks is checks
    assert checks.actors == ["key:ada"]


def test_only_a_large_check_leaves_the_event_loop():
    async def main() -> None:
        checks = HeldChecks()
        checks.released.set()
        assert await accept_inputs_apart(checks, GRAPH, {"x": [1, 2]}) == {"x": [1, 2]}
        assert checks.calls == []
        assert await accept_inputs_apart(checks, GRAPH, {"x": LARGE}) == {"x": LARGE}
        with pytest.raises(InputsInvalid, match='"a" is not a whole number'):
            await accept_inputs_apart(checks, GRAPH, {"x": [*LARGE, "a"]})
        with pytest.raises(InputsInvalid, match="unknown input 'y'"):
            await accept_inputs_apart(checks, GRAPH, {"y": LARGE})
        assert checks.calls == ["check_inputs"] * 3

    asyncio.run(main())


def test_the_large_inputs_of_one_caller_do_not_delay_the_jobs_of_others():
    async def main() -> None:
        app = memory_application()
        checks = HeldChecks()
        object.__setattr__(app, "checks", checks)
        queue = SubmissionQueue(app)
        large = asyncio.create_task(queue.submit(JobRequest(graph=GRAPH, inputs={"x": LARGE})))
        small = asyncio.create_task(queue.submit(JobRequest(graph=GRAPH, inputs={"x": [1]})))
        await asyncio.wait_for(checks.started.wait(), PATIENCE_SECONDS)
        assert (await asyncio.wait_for(small, PATIENCE_SECONDS)).is_new
        assert not large.done()
        checks.released.set()
        assert (await large).is_new

    asyncio.run(main())


def test_a_batch_has_an_outcome_for_each_job_however_large_its_inputs_are():
    async def main() -> None:
        app = memory_application()
        inputs: list[Any] = [{"x": [1]}, {"x": LARGE}, {"x": [*LARGE, "a"]}, {"x": ["a"]}]
        results = await submit_jobs(app, [JobRequest(graph=GRAPH, inputs=values) for values in inputs])
        assert [result.job_id is not None for result in results] == [True, True, False, False]
        assert results[2].error is not None
        assert results[2].error["code"] == "inputs_invalid"

    asyncio.run(main())
