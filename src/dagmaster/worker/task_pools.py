"""Task pools: claimed tasks wait and run here, a limited number at a time.

Async handlers have a pool on an own loop in a thread: a handler that blocks delays its neighbours there, not
the heartbeat, and the loop can be abandoned (see `loop_watchdog`). Everything else has a pool on the
service's loop.
"""

from __future__ import annotations

import asyncio
import contextlib
import json
import logging
import threading
from collections import OrderedDict, deque
from typing import TYPE_CHECKING, Final

from dagmaster.engine.status import AttemptStatus
from dagmaster.host.clocks import loop_time
from dagmaster.ports.task_ledger import TaskReport
from dagmaster.worker.loop_threads import LoopThreads
from dagmaster.worker.options import GRACE_SECONDS, STALL_SECONDS
from dagmaster.worker.task_lines import log_task

if TYPE_CHECKING:
    from collections.abc import Callable, Coroutine, Sequence
    from typing import Any

    from dagmaster.ports.task_messages import TaskMessage
    from dagmaster.ports.task_source import ClaimedTask
    from dagmaster.worker.task_log_capture import TaskLog
    from dagmaster.worker.task_runner import TaskRunner

END_SECONDS: Final = 0.5
"""How long a loop may take to end after its last task was abandoned."""


class TaskPool:
    """Runs tasks on the running loop. `done` is called there with each report."""

    def __init__(
        self,
        runner: TaskRunner,
        limit: int,
        done: Callable[[TaskReport], None],
        stall_seconds: float = STALL_SECONDS,
    ) -> None:
        self._runner = runner
        self._limit = limit
        self._done = done
        self._stall_seconds = stall_seconds
        self._stall_timer: asyncio.TimerHandle | None = None
        self._last_start_at = 0.0
        self.executor = runner.executor
        self._waiting: OrderedDict[str, ClaimedTask] = OrderedDict()
        self._slots: set[asyncio.Task[None]] = set()
        # Slots that may take another task. A slot without one ends a moment later.
        self._open = 0

    def running_seconds(self) -> dict[str, float]:
        return self._runner.executor.running_seconds()

    def add(self, tasks: Sequence[ClaimedTask]) -> None:
        self._waiting.update((task.task_id, task) for task in tasks)
        # Once: to find the running loop is a system call in CPython 3.11.
        loop = asyncio.get_running_loop()
        for _ in range(min(len(tasks), self._limit - self._open)):
            self._open += 1
            slot = loop.create_task(self._serve(loop))
            self._slots.add(slot)
            slot.add_done_callback(self._slots.discard)
        if self._stall_timer is None:
            self._last_start_at = loop_time()
            self._check_stall_later()

    def stop(
        self,
        task_ids: Sequence[str],
        releases: bool = False,  # noqa: FBT001, FBT002 - as `Executor.stop`
    ) -> None:
        """Ask tasks to stop, waiting or running. All at once: the end of one does not start another."""
        for task_id in task_ids:
            waiting = self._waiting.pop(task_id, None)
            if waiting is not None:
                # Reported, not returned to the queue: it has to end.
                self._done(TaskReport(waiting.task_id, waiting.token, AttemptStatus.RELEASED))
            else:
                self.executor.stop(task_id, releases=releases)

    def release_waiting(self) -> None:
        while self._waiting:
            task = self._waiting.popitem(last=False)[1]
            self._done(TaskReport(task.task_id, task.token, AttemptStatus.RELEASED, returns_to_queue=True))

    def _check_stall_later(self) -> None:
        loop = asyncio.get_running_loop()
        self._stall_timer = loop.call_at(self._last_start_at + self._stall_seconds, self._check_stall)

    def _check_stall(self) -> None:
        """Release waiting tasks when the running ones take long: other workers may be idle."""
        self._stall_timer = None
        if not self._waiting:
            return
        # The same sum as above: a difference may round below it, forever with a virtual clock.
        if loop_time() >= self._last_start_at + self._stall_seconds:
            self.release_waiting()
        else:
            self._check_stall_later()

    async def close(self, grace_seconds: float | None = None) -> None:
        """Release everything and end.

        Running tasks are asked to stop, and abandoned after the grace period.
        """
        if self._stall_timer is not None:
            self._stall_timer.cancel()
        self.release_waiting()
        await self.executor.close(grace_seconds)
        if self._slots:
            await asyncio.wait(self._slots)

    async def _serve(self, loop: asyncio.AbstractEventLoop) -> None:
        while self._waiting:
            _, task = self._waiting.popitem(last=False)
            self._last_start_at = loop.time()
            try:
                report = await self._runner.run(task)
            except Exception as error:  # noqa: BLE001 - reported and logged
                # A bug of ours. Without a report the task would be held forever.
                log_task(logging.ERROR, "could not be run", task, has_error=True)
                problem = {
                    "kind": "internal",
                    "message": f"the worker failed: {type(error).__name__}: {error}",
                }
                report = TaskReport(task.task_id, task.token, AttemptStatus.FAILED, error=json.dumps(problem))
            self._done(report)
        self._open -= 1


class ThreadedTaskPool:
    """A pool on its own loop in a thread. Its methods and `done` are called on the service's loop."""

    def __init__(
        self,
        make_runner: Callable[[], TaskRunner],
        limit: int,
        done: Callable[[list[TaskReport]], None],
        stall_seconds: float = STALL_SECONDS,
    ) -> None:
        self._stall_seconds = stall_seconds
        self._make_runner = make_runner
        self._limit = limit
        self._done = done
        self._service_loop = asyncio.get_running_loop()
        self._loop = asyncio.new_event_loop()
        self._loop.set_default_executor(LoopThreads(thread_name_prefix="dagmaster-async"))
        self._pool: TaskPool | None = None
        self._reports: deque[TaskReport] = deque()
        self._is_delivery_scheduled = False
        self._tasks: dict[str, ClaimedTask] = {}
        self._stop_requested: set[str] = set()
        self._is_abandoned = False
        self.answered = True
        self._thread = threading.Thread(target=self._run_loop, name="dagmaster-handlers", daemon=True)
        self._thread.start()

    def running_seconds(self) -> dict[str, float]:
        return {} if self._pool is None else self._pool.running_seconds()

    def add(self, tasks: Sequence[ClaimedTask]) -> None:
        self._tasks.update((task.task_id, task) for task in tasks)
        self._loop.call_soon_threadsafe(self._on_loop, "add", tasks)

    def stop(
        self,
        task_ids: Sequence[str],
        releases: bool = False,  # noqa: FBT001, FBT002 - as `Executor.stop`
    ) -> None:
        stopped = [task_id for task_id in task_ids if task_id in self._tasks]
        if stopped:
            self._stop_requested.update(stopped)
            self._loop.call_soon_threadsafe(self._on_loop, "stop", stopped, releases)

    def release_waiting(self) -> None:
        self._loop.call_soon_threadsafe(self._on_loop, "release_waiting")

    @property
    def is_idle(self) -> bool:
        return not self._tasks or not self._thread.is_alive()

    @property
    def thread_id(self) -> int | None:
        return self._thread.ident

    def ping(self) -> None:
        """Ping the loop: `answered` becomes true when it responds."""
        self.answered = False
        with contextlib.suppress(RuntimeError):
            self._loop.call_soon_threadsafe(self._answer)

    def find(self, log: TaskLog) -> tuple[TaskMessage, float, float] | None:
        return None if self._pool is None else self._pool.executor.find(log)

    def is_stop_requested(self, task_id: str) -> bool:
        return task_id in self._stop_requested

    def abandon(self) -> list[ClaimedTask]:
        """Abandon the thread with its blocked loop; return its tasks.

        Its reports are dropped. If the loop ever continues, its handlers are ended, and so is it.
        """
        self._deliver()
        self._is_abandoned = True
        with contextlib.suppress(RuntimeError):
            asyncio.run_coroutine_threadsafe(self._end(), self._loop)
        return list(self._tasks.values())

    async def close(self, grace_seconds: float = GRACE_SECONDS) -> None:
        """Close the pool; abandon a blocked loop."""
        with contextlib.suppress(TimeoutError, RuntimeError):
            closing = asyncio.run_coroutine_threadsafe(self._close(grace_seconds), self._loop)
            await asyncio.wait_for(asyncio.wrap_future(closing), grace_seconds + END_SECONDS)
        with contextlib.suppress(RuntimeError):
            self._loop.call_soon_threadsafe(self._loop.stop)
        await asyncio.to_thread(self._thread.join, END_SECONDS)
        self._deliver()

    def _run_loop(self) -> None:
        asyncio.set_event_loop(self._loop)
        self._pool = TaskPool(self._make_runner(), self._limit, self._on_report, self._stall_seconds)
        try:
            self._loop.run_forever()
        finally:
            self._loop.close()

    def _on_loop(self, method: str, *arguments: Any) -> None:
        getattr(self._pool, method)(*arguments)

    def _answer(self) -> None:
        self.answered = True

    async def _end(self) -> None:
        await self._close(GRACE_SECONDS)
        self._loop.stop()

    def _close(self, grace_seconds: float) -> Coroutine[Any, Any, None]:
        assert self._pool is not None  # noqa: S101 - for mypy; the loop runs
        return self._pool.close(grace_seconds)

    def _on_report(self, report: TaskReport) -> None:
        # Many reports, one wake-up: crossing threads costs more than a small task.
        self._reports.append(report)
        if not self._is_delivery_scheduled:
            self._is_delivery_scheduled = True
            self._service_loop.call_soon_threadsafe(self._deliver)

    def _deliver(self) -> None:
        self._is_delivery_scheduled = False
        reports: list[TaskReport] = []
        while self._reports:
            reports.append(self._reports.popleft())
        for report in reports:
            self._tasks.pop(report.task_id, None)
            self._stop_requested.discard(report.task_id)
        if reports and not self._is_abandoned:
            self._done(reports)
