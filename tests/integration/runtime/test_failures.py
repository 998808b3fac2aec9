"""What goes wrong with a task, and what becomes of it: retries, permanent errors, timeouts, deadlines."""

from __future__ import annotations

import asyncio
import os
import socket
from typing import TYPE_CHECKING, Any

import pytest

from dagmaster.sdk.handler_context import HandlerContext
from dagmaster.sdk.handler_registry import handler
from tests.integration.runtime.runtime_world import Gate, read

if TYPE_CHECKING:
    from tests.integration.runtime.runtime_world import World

FAST = "{max_attempts: 3, initial_delay_seconds: 0.02, max_delay_seconds: 0.05, jitter: false}"


async def test_a_failed_attempt_is_tried_again_after_its_delay(world: World):
    report = await world.run(
        f"{{name: n, nodes: {{a: {{handler: flaky, params: {{fail_times: 2}}, retry: {FAST}}}}}}}"
    )
    assert (report.status, report.nodes["a"]["output"]) == ("COMPLETED", {"attempt": 3})
    assert await world.attempts(report.job_id, "a") == ["FAILED", "FAILED", "COMPLETED"]
    # All times here are of the orchestrator's clock. The worker's report has the time of the database, which may differ.
    due = await world.rows(
        "SELECT (e.data ->> 'retry_at')::timestamptz - e.at >= make_interval(secs => 0.019) AS is_delayed,"
        " b.dispatched_at - (e.data ->> 'retry_at')::timestamptz >= make_interval(secs => -0.001) AS is_kept FROM dag_job_events e"
        " JOIN dag_task_attempts b ON b.job_id = e.job_id AND b.node_id = e.node_id AND b.attempt = e.attempt + 1"
        " WHERE e.type = 'AttemptFailed'"
    )
    assert [tuple(row) for row in due] == [(True, True), (True, True)]


async def test_a_node_fails_when_its_attempts_are_used_up(world: World):
    report = await world.run(
        f"{{name: n, nodes: {{a: {{handler: fail, params: {{message: tile 47}}, retry: {FAST}}}}}}}"
    )
    assert report.status == "FAILED"
    assert await world.attempts(report.job_id, "a") == ["FAILED"] * 3
    assert "tile 47" in report.nodes["a"]["error"]["message"]
    assert "tile 47" in (report.error or {})["message"]


async def test_a_permanent_error_is_not_tried_again(world: World):
    report = await world.run(
        f"{{name: n, nodes: {{a: {{handler: fail, params: {{permanent: true}}, retry: {FAST}}}}}}}"
    )
    assert report.status == "FAILED"
    assert await world.attempts(report.job_id, "a") == ["FAILED"]


async def test_an_unclaimed_task_fails_after_its_dispatch_timeout(world: World):
    await world.orchestrator()
    await world.worker("elsewhere")
    report = await world.run(
        "{name: n, nodes: {a: {handler: echo, queue: nobodys, dispatch_timeout_seconds: 0.1, retry: none}}}"
    )
    assert report.status == "FAILED"
    assert report.nodes["a"]["error"]["kind"] == "dispatch_timeout"
    assert await world.attempts(report.job_id, "a") == ["FAILED"]


async def test_an_unknown_handler_fails_the_node_at_once_with_the_reason(world: World):
    @handler("only_here", queue="q")
    async def only_here() -> None: ...

    await world.orchestrator()
    await world.worker()
    world.handlers.append(only_here)
    report = await world.run("{name: n, nodes: {a: {handler: only_here}}}")
    error = report.nodes["a"]["error"]
    assert error["kind"] == "unknown_handler"
    assert (
        f"Worker {socket.gethostname()}:{os.getpid()} serves its queue without it, and no other"
        in error["details"]
    )
    assert await world.attempts(report.job_id, "a") == ["FAILED"]


async def test_a_missing_entrypoint_is_not_compared_with_names_without_a_module(world: World):
    @handler("fail.gp", queue="q")
    async def entrypoint() -> None: ...

    @handler("fial", queue="q")
    async def misspelt() -> None: ...

    await world.orchestrator()
    await world.worker()
    world.handlers += [entrypoint, misspelt]
    text = "{name: n, on_failure: continue, nodes: {a: {handler: fail.gp}, b: {handler: fial}}}"
    report = await world.run(text)
    near, far = report.nodes["b"]["error"], report.nodes["a"]["error"]
    assert "did you mean" not in f"{far}"
    assert "did you mean 'fail'? Worker" in near["details"]


async def test_a_task_is_left_to_the_worker_that_has_its_handler(world: World):
    """In a deploy some workers know new handlers already. The others fail none of their jobs, and use no retry up."""

    @handler("only_there", queue="q")
    async def only_there() -> None: ...

    await world.orchestrator()
    await world.worker()
    world.handlers.append(only_there)
    new, may_claim = await world.worker(), Gate()
    claim = new.source.claim

    async def later(*arguments: Any) -> Any:
        return await claim(*arguments) if may_claim.is_open else []

    new.source.claim = later  # type: ignore[assignment, method-assign]
    job = await world.submit("{name: n, nodes: {a: {handler: only_there, retry: none}}}")
    await world.until("SELECT count(*) > 0 FROM dag_job_events WHERE type = 'AttemptReleased'")
    may_claim.open()
    assert (await world.finished(job)).status == "COMPLETED"
    attempts = await world.attempts(job, "a")
    assert (attempts[0], attempts[-1], "FAILED" in attempts) == ("RELEASED", "COMPLETED", False)


async def test_an_async_handler_that_takes_too_long_is_stopped_and_tried_again(world: World):
    cleaned = Gate()

    @handler("slow_at_first", queue="q")
    async def slow_at_first(ctx: HandlerContext) -> dict[str, Any]:
        if ctx.attempt == 1:
            try:
                await asyncio.Event().wait()
            finally:
                cleaned.open()
        return {"attempt": ctx.attempt}

    world.handlers.append(slow_at_first)
    report = await world.run(
        f"{{name: n, nodes: {{a: {{handler: slow_at_first, timeout_seconds: 1, retry: {FAST}}}}}}}"
    )
    assert report.nodes["a"]["output"] == {"attempt": 2}
    assert cleaned.is_open
    (failure,) = await world.events(report.job_id, "AttemptFailed")
    assert read(failure["data"])["error"]["kind"] == "timeout"


@pytest.mark.parametrize("name", ["deaf", "endless"])
async def test_a_plain_handler_that_takes_too_long_is_killed(world: World, name: str):
    await world.start()
    job = await world.submit(
        f"{{name: n, nodes: {{a: {{handler: {name}, timeout_seconds: 1, retry: none}}}}}}"
    )
    report = await world.finished(job)
    assert report.nodes["a"]["error"]["kind"] == "timeout"
    pid = await world.value(
        "SELECT (progress->>'current')::int FROM dag_task_attempts WHERE job_id = $1", int(job)
    )
    assert pid is not None
    with pytest.raises(ProcessLookupError):
        os.kill(pid, 0)


async def test_a_job_that_is_not_over_by_its_deadline_is_stopped(world: World):
    await world.start()
    report = await world.run(
        "{name: n, deadline_seconds: 1, nodes: {a: {handler: multi_phase, params: {seconds_per_phase: 3600}}, b: {type: wait, seconds: 3600}}}"
    )
    assert report.status == "FAILED"
    assert (report.error or {})["kind"] == "deadline"
    assert await world.attempts(report.job_id, "a") == ["FAILED"]


async def test_a_deadline_is_kept_by_the_next_owner(world: World):
    first = await world.orchestrator()
    job = await world.submit("{name: n, deadline_seconds: 1, nodes: {b: {type: wait, seconds: 3600}}}")
    await world.until_node(job, "b", "WAITING")
    await world.stop(first)
    await world.orchestrator()
    assert ((await world.finished(job)).error or {})["kind"] == "deadline"
