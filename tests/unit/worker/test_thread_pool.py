"""Plain functions on daemon threads: their places, their time, their end."""

from __future__ import annotations

import asyncio
import contextvars
import subprocess
import sys
import textwrap
import threading
from typing import TYPE_CHECKING, Any

import pytest

from dagmaster.ports.task_messages import Outcome, Succeeded
from dagmaster.worker.thread_pool import DaemonThreads
from tests.patience import PATIENCE_SECONDS
from tests.unit.worker.executor_fixtures import a_task, failure, with_executor

if TYPE_CHECKING:
    from dagmaster.worker.executor import Executor


def test_time_counts_from_the_handlers_start_and_not_from_its_place_in_the_queue():
    release, started = threading.Event(), threading.Event()

    def function(wait: bool) -> dict[str, bool]:
        if wait:
            started.set()
            release.wait(PATIENCE_SECONDS)
        return {"waited": wait}

    async def main(executor: Executor) -> list[Outcome]:
        first = asyncio.create_task(executor.execute(a_task("1", params={"wait": True})))
        await asyncio.to_thread(started.wait, PATIENCE_SECONDS)
        second = asyncio.create_task(executor.execute(a_task("2", PATIENCE_SECONDS, params={"wait": False})))
        while not executor.threads._waiting:  # noqa: ASYNC110 - a queue has no event
            await asyncio.sleep(0)
        # The second has no thread yet, and therefore no deadline.
        assert executor._running["2"] not in executor.deadlines._waiting
        release.set()
        return [await first, await second]

    outcomes = with_executor(function, main, threads=1)
    assert outcomes == [Succeeded({"waited": True}), Succeeded({"waited": False})]


def test_an_abandoned_function_uses_no_slot():
    release = threading.Event()

    def function(wait: bool) -> None:
        if wait:
            release.wait(PATIENCE_SECONDS)

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


@pytest.mark.process
def test_the_process_ends_though_a_function_hangs():
    script = """
        import asyncio, threading
        from dagmaster.sdk.handler_registry import Registry, handler
        from dagmaster.ports.task_messages import TaskMessage
        from dagmaster.worker.executor import Executor

        @handler("hang")
        def hang():
            threading.Event().wait()

        task = TaskMessage("1", "1", "n", "hang", {}, 0.01)
        print(asyncio.run(Executor(Registry([hang])).execute(task)).error["kind"])
    """
    ended = subprocess.run(
        [sys.executable, "-c", textwrap.dedent(script)],
        capture_output=True,
        text=True,
        timeout=PATIENCE_SECONDS,
        check=False,
    )
    assert (ended.returncode, ended.stdout) == (0, "timeout\n"), ended.stderr


def test_a_waiting_job_gets_the_slot_of_an_abandoned_function():
    release = threading.Event()

    def function(wait: bool) -> None:
        if wait:
            release.wait(PATIENCE_SECONDS)

    async def main(executor: Executor) -> list[Outcome]:
        late = asyncio.create_task(executor.execute(a_task("1", 0.01, params={"wait": True})))
        await asyncio.sleep(0)
        waiting = asyncio.create_task(executor.execute(a_task("2", params={"wait": False})))
        outcomes = [await late, await waiting]
        release.set()
        return outcomes

    late, waiting = with_executor(function, main, threads=1)
    assert failure(late)["kind"] == "timeout"
    assert waiting == Succeeded({})


def test_threads_end_when_the_worker_closes_and_when_a_lost_function_returns():
    release = threading.Event()
    used: list[threading.Thread] = []

    def function(wait: bool) -> None:
        used.append(threading.current_thread())
        if wait:
            release.wait(PATIENCE_SECONDS)

    async def main(executor: Executor) -> None:
        await executor.execute(a_task("1", 0.01, params={"wait": True}))
        release.set()
        await asyncio.to_thread(used[0].join, PATIENCE_SECONDS)
        assert not used[0].is_alive()
        await executor.execute(a_task("2", params={"wait": False}))
        await executor.execute(a_task("3", params={"wait": False}))
        assert used[1] is used[2]
        assert used[1].is_alive()
        await executor.close()
        await asyncio.to_thread(used[1].join, PATIENCE_SECONDS)
        assert not used[1].is_alive()

    with_executor(function, main)


def test_a_plain_function_sees_the_context_variables_of_its_caller():
    trace = contextvars.ContextVar("trace", default="none")

    def function() -> dict[str, str]:
        return {"trace": trace.get()}

    async def main(executor: Executor) -> Outcome:
        trace.set("here")
        return await executor.execute(a_task())

    assert with_executor(function, main) == Succeeded({"trace": "here"})


def test_a_job_that_raises_gets_the_error_and_its_thread_and_the_queue_continue():
    class Raising:
        def __init__(self, ended: asyncio.Future[tuple[BaseException, int]]) -> None:
            self.ended = ended
            self.thread = 0

        def begin(self) -> bool:
            return True

        def work(self) -> None:
            self.thread = threading.get_ident()
            raise SystemExit(3)

        def on_done(self, result: Any) -> None:
            raise AssertionError(result)

        def on_error(self, error: BaseException) -> None:
            self.ended.set_result((error, self.thread))
            raise RuntimeError("a failing end")

    async def main() -> None:
        loop = asyncio.get_running_loop()
        complaints: list[Any] = []
        loop.set_exception_handler(lambda _, context: complaints.append(context["exception"]))
        threads = DaemonThreads(1)
        jobs = [Raising(loop.create_future()) for _ in range(2)]
        for job in jobs:
            threads.submit(job)
        (first, one), (second, other) = await asyncio.wait_for(
            asyncio.gather(*(job.ended for job in jobs)), PATIENCE_SECONDS
        )
        threads.close()
        assert isinstance(first, SystemExit)
        assert isinstance(second, SystemExit)
        assert one == other
        assert [str(complaint) for complaint in complaints] == ["a failing end"] * 2

    asyncio.run(main())
