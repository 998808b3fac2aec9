"""What ends a task before its own end: time, a stop, a worker that closes, a caller that leaves."""

from __future__ import annotations

import asyncio
import threading
from typing import TYPE_CHECKING, Any

import pytest

from dagmaster.ports.handler_reports import Progress
from dagmaster.ports.task_messages import Failed, Outcome, Released, Succeeded
from tests.patience import PATIENCE_SECONDS
from tests.unit.worker.executor_fixtures import (
    RecordedReports,
    a_task,
    failure,
    forever,
    objects_left_by_tasks,
    run,
    with_executor,
)

if TYPE_CHECKING:
    from collections.abc import Callable

    from dagmaster.sdk.handler_context import HandlerContext
    from dagmaster.worker.executor import Executor

# ── time ────────────────────────────────────────────────────────────────────────────────────────────────────────────


def test_an_async_handler_that_is_late_is_cancelled_and_may_clean_up():
    cleaned = []

    async def function(ctx: HandlerContext) -> None:
        try:
            await asyncio.Event().wait()
        finally:
            cleaned.append(ctx.cancelled)

    outcome = run(function, a_task(timeout_seconds=0.01))
    expected = {"kind": "timeout", "message": "the handler did not finish within 0.01 seconds"}
    assert outcome == Failed(expected, permanent=False)
    assert cleaned == [True]


def test_what_a_late_handler_returns_does_not_count():
    async def function() -> dict[str, int]:
        try:
            await asyncio.Event().wait()
        except asyncio.CancelledError:
            return {"late": 1}
        return {}

    assert failure(run(function, a_task(timeout_seconds=0.01)))["kind"] == "timeout"


def test_an_async_handler_that_refuses_to_stop_is_abandoned(caplog):
    release = asyncio.Event()

    async def function() -> None:
        while not release.is_set():
            try:
                await release.wait()
            except asyncio.CancelledError:
                continue

    async def main(executor: Executor) -> Outcome:
        outcome = await executor.execute(a_task(timeout_seconds=0.01))
        release.set()
        return outcome

    assert failure(with_executor(function, main, grace_seconds=0))["kind"] == "timeout"
    assert "is abandoned and continues" in caplog.text


def test_a_plain_function_that_is_late_is_abandoned_and_its_reports_are_dropped():
    release, over = threading.Event(), threading.Event()
    seen = []

    def function(ctx: HandlerContext) -> None:
        release.wait(PATIENCE_SECONDS)
        ctx.progress(1)
        ctx.checkpoint("late")
        seen.append(ctx.cancelled)
        over.set()

    reports = RecordedReports()

    async def main(executor: Executor) -> Outcome:
        outcome = await executor.execute(a_task(timeout_seconds=0.01))
        release.set()
        await asyncio.to_thread(over.wait, PATIENCE_SECONDS)
        return outcome

    # No grace for a thread, however long that is.
    assert failure(with_executor(function, main, reports=reports, grace_seconds=60))["kind"] == "timeout"
    assert seen == [True]
    assert reports.entries == []


def test_an_interrupted_function_that_does_not_end_is_abandoned_and_never_retried():
    end = threading.Event()

    def function() -> None:
        end.wait()

    async def main(executor: Executor) -> Outcome:
        return await executor.execute(a_task(timeout_seconds=0.01))

    try:
        outcome = with_executor(function, main, interrupt_seconds=0.01, abandons_threads=False)
    finally:
        end.set()
    assert isinstance(outcome, Failed)
    assert outcome.permanent
    assert outcome.error["kind"] == "timeout"
    assert outcome.error["abandoned"]


# ── stopping ────────────────────────────────────────────────────────────────────────────────────────────────────────

STOPPED = Failed({"kind": "cancelled", "message": "the task was asked to stop"}, permanent=True)
RELEASED = Released("the task was asked to stop before it started")
ABANDONED = Failed(
    {
        "kind": "cancelled",
        "message": "the task was asked to stop; it was abandoned and may still run",
        "abandoned": True,
    },
    permanent=True,
)


def test_an_async_handler_is_stopped_by_cancelling_it():
    started = asyncio.Event()

    async def function(ctx: HandlerContext) -> None:
        started.set()
        await asyncio.Event().wait()

    async def main(executor: Executor) -> Outcome:
        running = asyncio.create_task(executor.execute(a_task()))
        await started.wait()
        executor.stop("1")
        executor.stop("1")
        return await running

    assert with_executor(function, main) == STOPPED


def test_a_handler_whose_worker_lost_its_lease_is_released_because_its_job_was_not_cancelled():
    async def main(executor: Executor) -> Outcome:
        running = asyncio.create_task(executor.execute(a_task()))
        await asyncio.sleep(0)
        executor.stop("1", releases=True)
        return await running

    assert with_executor(forever, main) == Released("the worker lost its lease or drains")


def test_a_handler_is_stopped_before_its_first_step():
    async def main(executor: Executor) -> Outcome:
        running = asyncio.create_task(executor.execute(a_task()))
        await asyncio.sleep(0)
        executor.stop("1")
        return await running

    # Without waiting for the grace to end.
    assert with_executor(forever, main, grace_seconds=60) == STOPPED


def test_a_plain_function_sees_that_it_was_asked_to_stop():
    started = threading.Event()
    ended = threading.Event()

    def function(ctx: HandlerContext) -> None:
        started.set()
        try:
            while True:
                ctx.raise_if_cancelled()
        finally:
            ended.set()

    async def main(executor: Executor) -> Outcome:
        running = asyncio.create_task(executor.execute(a_task()))
        await asyncio.to_thread(started.wait, PATIENCE_SECONDS)
        executor.stop("1")
        outcome = await running
        assert ended.is_set()
        return outcome

    assert with_executor(function, main, grace_seconds=PATIENCE_SECONDS) == STOPPED


def test_a_plain_function_that_ignores_a_stop_is_abandoned_after_the_grace_period():
    started, release = threading.Event(), threading.Event()

    def function() -> None:
        started.set()
        release.wait(PATIENCE_SECONDS)

    async def main(executor: Executor) -> Outcome:
        running = asyncio.create_task(executor.execute(a_task()))
        await asyncio.to_thread(started.wait, PATIENCE_SECONDS)
        executor.stop("1")
        outcome = await running
        release.set()
        return outcome

    assert with_executor(function, main, grace_seconds=0) == ABANDONED


def test_a_task_that_waits_for_a_thread_is_stopped_at_once_and_never_starts():
    started, release = threading.Event(), threading.Event()
    ran = []

    def function(number: int) -> None:
        ran.append(number)
        started.set()
        release.wait(PATIENCE_SECONDS)

    async def main(executor: Executor) -> Outcome:
        first = asyncio.create_task(executor.execute(a_task("1", params={"number": 1})))
        await asyncio.to_thread(started.wait, PATIENCE_SECONDS)
        second = asyncio.create_task(executor.execute(a_task("2", params={"number": 2})))
        await asyncio.sleep(0)
        executor.stop("2")
        outcome = await second
        release.set()
        await first
        return outcome

    assert with_executor(function, main, threads=1, grace_seconds=PATIENCE_SECONDS) == RELEASED
    assert ran == [1]


def test_the_first_reason_to_end_counts():
    async def main(executor: Executor) -> Outcome:
        running = asyncio.create_task(executor.execute(a_task()))
        await asyncio.sleep(0)
        executor.stop("1")
        await executor.close()
        return await running

    assert with_executor(forever, main) == STOPPED


def test_stopping_a_task_that_is_not_here_changes_nothing():
    async def main(executor: Executor) -> None:
        executor.stop("nobody")

    with_executor(forever, main)


def test_closing_releases_running_and_later_tasks():
    async def main(executor: Executor) -> list[Outcome]:
        running = asyncio.create_task(executor.execute(a_task()))
        await asyncio.sleep(0)
        await executor.close()
        return [await running, await executor.execute(a_task("2"))]

    assert with_executor(forever, main) == [
        Released("the worker was closed"),
        Released("the worker is closed"),
    ]


def closed_while_it_runs(ending: Callable[[HandlerContext], dict[str, Any]]) -> Outcome:
    started, release = threading.Event(), threading.Event()

    def function(ctx: HandlerContext) -> dict[str, Any]:
        started.set()
        release.wait(PATIENCE_SECONDS)
        return ending(ctx)

    async def main(executor: Executor) -> Outcome:
        running = asyncio.create_task(executor.execute(a_task()))
        await asyncio.to_thread(started.wait, PATIENCE_SECONDS)
        closing = asyncio.create_task(executor.close(PATIENCE_SECONDS))
        (run,) = executor._running.values()
        while not run._context._cancelled:  # noqa: ASYNC110 - there is no event for it
            await asyncio.sleep(0)
        release.set()
        await closing
        return await running

    outcome: Outcome = with_executor(function, main)
    return outcome


def test_a_plain_function_that_ends_while_the_executor_closes_has_its_result():
    def saves(ctx: HandlerContext) -> dict[str, Any]:
        ctx.checkpoint("sixty", {"of": 60})
        return {"all": "of it"}

    assert closed_while_it_runs(lambda _: {"all": "of it"}) == Succeeded({"all": "of it"})
    assert closed_while_it_runs(saves) == Succeeded({"all": "of it"})


def test_a_plain_function_that_noticed_a_stop_is_released():
    # It may have stopped half way.
    assert closed_while_it_runs(lambda ctx: {"cut": ctx.cancelled}) == Released("the worker was closed")


def test_a_plain_function_that_fails_while_the_executor_closes_is_released():
    assert closed_while_it_runs(lambda _: {"no": 1 / 0}) == Released("the worker was closed")


def test_a_coroutine_that_returns_when_it_is_cancelled_is_released():
    async def function() -> dict[str, Any]:
        try:
            await asyncio.Event().wait()
        except asyncio.CancelledError:
            return {"half": True}
        return {}

    async def main(executor: Executor) -> Outcome:
        running = asyncio.create_task(executor.execute(a_task()))
        await asyncio.sleep(0)
        await asyncio.sleep(0)
        await executor.close()
        return await running

    assert with_executor(function, main) == Released("the worker was closed")


def test_cancelling_execute_cancels_the_handler_and_waits_for_its_end():
    order = []
    started = asyncio.Event()

    async def function(ctx: HandlerContext) -> None:
        order.append("started")
        started.set()
        try:
            await asyncio.Event().wait()
        finally:
            await asyncio.sleep(0)
            order.append(f"cleaned up, cancelled {ctx.cancelled}")

    async def main(executor: Executor) -> None:
        running = asyncio.create_task(executor.execute(a_task()))
        await started.wait()
        running.cancel()
        with pytest.raises(asyncio.CancelledError):
            await running
        order.append("returned")
        assert executor.deadlines._waiting == {}
        # The same task may come again.
        again = asyncio.create_task(executor.execute(a_task()))
        await asyncio.sleep(0)
        executor.stop("1")
        assert await again == STOPPED

    with_executor(function, main)
    assert order[:3] == ["started", "cleaned up, cancelled True", "returned"]


def test_cancelling_execute_abandons_a_plain_function():
    started, release = threading.Event(), threading.Event()

    def function() -> None:
        started.set()
        release.wait(PATIENCE_SECONDS)

    async def main(executor: Executor) -> Outcome:
        running = asyncio.create_task(executor.execute(a_task()))
        await asyncio.to_thread(started.wait, PATIENCE_SECONDS)
        running.cancel()
        with pytest.raises(asyncio.CancelledError):
            await running
        assert executor.deadlines._waiting == {}
        release.set()
        return await executor.execute(a_task("2"))

    assert with_executor(function, main, threads=1) == Succeeded({})


def test_the_same_task_does_not_run_twice_at_once():
    async def main(executor: Executor) -> Outcome:
        running = asyncio.create_task(executor.execute(a_task()))
        await asyncio.sleep(0)
        with pytest.raises(ValueError, match="running here already"):
            await executor.execute(a_task())
        executor.stop("1")
        return await running

    assert with_executor(forever, main) == STOPPED


def test_a_report_after_the_outcome_is_dropped():
    contexts: list[HandlerContext] = []
    reporters: list[Any] = []

    async def function(ctx: HandlerContext) -> None:
        contexts.append(ctx)
        reporters.append(ctx.reporter)

    reports = RecordedReports()
    run(function, reports=reports)
    contexts[0].progress(1)
    reporters[0].progress(Progress(1))
    assert reports.entries == []


def test_a_finished_task_leaves_no_deadline():
    async def function() -> None: ...

    async def main(executor: Executor) -> Executor:
        await executor.execute(a_task())
        assert executor.deadlines._waiting == {}
        assert executor.deadlines._timer is not None
        return executor

    assert with_executor(function, main).deadlines._timer is None


def test_a_task_leaves_nothing_for_the_garbage_collector():
    async def function(ctx: HandlerContext) -> dict[str, int]:
        return {"a": 1}

    assert with_executor(function, objects_left_by_tasks) == []
