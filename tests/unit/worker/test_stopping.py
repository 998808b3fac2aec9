"""What ends a task before its own end: time, a stop, a worker that closes, a caller that leaves."""

from __future__ import annotations

import asyncio
import gc
import subprocess
import sys
import textwrap
import threading
from typing import TYPE_CHECKING

import pytest

from dagmaster.ports.task import Failed, HandedBack, Outcome, Succeeded
from tests.unit.worker.running import A_WHILE, Heard, a_task, failure, forever, run, with_executor

if TYPE_CHECKING:
    from dagmaster.ports.handler import HandlerContext
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


def test_an_async_handler_that_refuses_to_stop_is_given_up(caplog):
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
    assert "goes on after its end" in caplog.text


def test_a_plain_function_that_is_late_is_given_up_and_its_reports_are_dropped():
    release, over = threading.Event(), threading.Event()
    seen = []

    def function(ctx: HandlerContext) -> None:
        release.wait(A_WHILE)
        ctx.progress(1)
        ctx.checkpoint("late")
        seen.append(ctx.cancelled)
        over.set()

    heard = Heard()

    async def main(executor: Executor) -> Outcome:
        outcome = await executor.execute(a_task(timeout_seconds=0.01))
        release.set()
        await asyncio.to_thread(over.wait, A_WHILE)
        return outcome

    assert failure(with_executor(function, main, reports=heard))["kind"] == "timeout"
    assert seen == [True]
    assert heard.said == []


def test_time_counts_from_the_handlers_start_and_not_from_its_place_in_the_queue():
    release, started = threading.Event(), threading.Event()

    def function(wait: bool) -> dict[str, bool]:
        if wait:
            started.set()
            release.wait(A_WHILE)
        return {"waited": wait}

    async def main(executor: Executor) -> list[Outcome]:
        first = asyncio.create_task(executor.execute(a_task("1", params={"wait": True})))
        await asyncio.to_thread(started.wait, A_WHILE)
        second = asyncio.create_task(executor.execute(a_task("2", 0.01, params={"wait": False})))
        # Longer than its timeout: the second has no thread yet.
        done, _ = await asyncio.wait([second], timeout=0.05)
        assert not done
        release.set()
        return [await first, await second]

    outcomes = with_executor(function, main, threads=1)
    assert outcomes == [Succeeded({"waited": True}), Succeeded({"waited": False})]


def test_a_function_that_was_given_up_takes_no_place():
    release = threading.Event()

    def function(wait: bool) -> None:
        if wait:
            release.wait(A_WHILE)

    async def main(executor: Executor) -> list[Outcome]:
        outcomes = [
            await executor.execute(a_task("1", 0.01, params={"wait": True})),
            await executor.execute(a_task("2", params={"wait": False})),
        ]
        release.set()
        return outcomes

    late, next_one = with_executor(function, main, threads=1)
    assert failure(late)["kind"] == "timeout"
    assert next_one == Succeeded({})


def test_the_process_ends_though_a_function_hangs():
    script = """
        import asyncio, threading
        from dagmaster.authoring.handlers import Registry, handler
        from dagmaster.ports.task import TaskMessage
        from dagmaster.worker.executor import Executor

        @handler("hang")
        def hang():
            threading.Event().wait()

        task = TaskMessage("1", "1", "n", "hang", {}, 0.01)
        print(asyncio.run(Executor(Registry([hang])).execute(task)).error["kind"])
    """
    ended = subprocess.run(
        [sys.executable, "-c", textwrap.dedent(script)], capture_output=True, text=True, timeout=30, check=False
    )
    assert (ended.returncode, ended.stdout) == (0, "timeout\n"), ended.stderr


# ── stopping ────────────────────────────────────────────────────────────────────────────────────────────────────────

STOPPED = Failed({"kind": "cancelled", "message": "the task was asked to stop"}, permanent=True)


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


def test_a_handler_is_stopped_before_its_first_step():
    async def main(executor: Executor) -> Outcome:
        running = asyncio.create_task(executor.execute(a_task()))
        await asyncio.sleep(0)
        executor.stop("1")
        return await running

    assert with_executor(forever, main) == STOPPED


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
        await asyncio.to_thread(started.wait, A_WHILE)
        executor.stop("1")
        outcome = await running
        assert ended.is_set()
        return outcome

    assert with_executor(function, main, grace_seconds=A_WHILE) == STOPPED


def test_a_plain_function_that_does_not_look_is_given_up_after_the_grace():
    started, release = threading.Event(), threading.Event()

    def function() -> None:
        started.set()
        release.wait(A_WHILE)

    async def main(executor: Executor) -> Outcome:
        running = asyncio.create_task(executor.execute(a_task()))
        await asyncio.to_thread(started.wait, A_WHILE)
        executor.stop("1")
        outcome = await running
        release.set()
        return outcome

    assert with_executor(function, main, grace_seconds=0) == STOPPED


def test_a_task_that_waits_for_a_thread_is_stopped_at_once_and_never_starts():
    started, release = threading.Event(), threading.Event()
    ran = []

    def function(number: int) -> None:
        ran.append(number)
        started.set()
        release.wait(A_WHILE)

    async def main(executor: Executor) -> Outcome:
        first = asyncio.create_task(executor.execute(a_task("1", params={"number": 1})))
        await asyncio.to_thread(started.wait, A_WHILE)
        second = asyncio.create_task(executor.execute(a_task("2", params={"number": 2})))
        await asyncio.sleep(0)
        executor.stop("2")
        outcome = await second
        release.set()
        await first
        return outcome

    assert with_executor(function, main, threads=1, grace_seconds=A_WHILE) == STOPPED
    assert ran == [1]


def test_stopping_a_task_that_is_not_here_changes_nothing():
    async def main(executor: Executor) -> None:
        executor.stop("nobody")

    with_executor(forever, main)


def test_closing_hands_back_what_runs_and_what_comes_later():
    async def main(executor: Executor) -> list[Outcome]:
        running = asyncio.create_task(executor.execute(a_task()))
        await asyncio.sleep(0)
        await executor.close()
        return [await running, await executor.execute(a_task("2"))]

    assert with_executor(forever, main) == [HandedBack("the worker was closed"), HandedBack("the worker is closed")]


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
        # The same task may come again.
        again = asyncio.create_task(executor.execute(a_task()))
        await asyncio.sleep(0)
        executor.stop("1")
        assert await again == STOPPED

    with_executor(function, main)
    assert order[:3] == ["started", "cleaned up, cancelled True", "returned"]


def test_cancelling_execute_gives_a_plain_function_up():
    started, release = threading.Event(), threading.Event()

    def function() -> None:
        started.set()
        release.wait(A_WHILE)

    async def main(executor: Executor) -> Outcome:
        running = asyncio.create_task(executor.execute(a_task()))
        await asyncio.to_thread(started.wait, A_WHILE)
        running.cancel()
        with pytest.raises(asyncio.CancelledError):
            await running
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


def test_a_task_leaves_nothing_for_the_garbage_collector():
    async def function(ctx: HandlerContext) -> dict[str, int]:
        return {"a": 1}

    async def main(executor: Executor) -> int:
        await executor.execute(a_task())
        gc.collect()
        for number in range(50):
            await executor.execute(a_task(str(number)))
        return gc.collect()

    assert with_executor(function, main) < 50
