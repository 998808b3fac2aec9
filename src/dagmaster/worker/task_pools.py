"""Lanes: where claimed tasks wait and run, a limited number at a time.

Async handlers have a pool on a loop of its own, in a thread: one that blocks holds up its neighbours there, and not the
heartbeat; and it can be left behind (see `blocking`). Everything else has a pool on the service's loop.
"""

from __future__ import annotations

import asyncio
import contextlib
import json
import logging
import threading
from collections import OrderedDict, deque
from typing import TYPE_CHECKING, Final

from dagmaster.clocks import loop_time
from dagmaster.engine.status import AttemptStatus
from dagmaster.ports.task_ledger import TaskReport
from dagmaster.worker.executor import GRACE_SECONDS

if TYPE_CHECKING:
    from collections.abc import Callable, Coroutine, Sequence
    from typing import Any

    from dagmaster.ports.task_messages import TaskMessage
    from dagmaster.ports.task_source import ClaimedTask
    from dagmaster.worker.task_log_capture import TaskLog
    from dagmaster.worker.task_runner import TaskRunner

STALL_SECONDS: Final = 1.0
"""What waits for a slot is handed back when none became free in this time: others may have one."""

MORE_SECONDS: Final = 0.5
"""How long a loop may take to end after the last of its tasks was given up."""

_LOGGER = logging.getLogger("dagmaster.worker")


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
        self._moved_at = 0.0
        self.executor = runner.executor
        self._waiting: OrderedDict[str, ClaimedTask] = OrderedDict()
        self._slots: set[asyncio.Task[None]] = set()
        # Those that still look for tasks. A slot that has seen that there are none ends a moment later.
        self._open = 0

    def begun(self) -> dict[str, float]:
        """The tasks that run, each with the seconds since it began. What waits is not among them."""
        return self._runner.executor.begun()

    def add(self, tasks: Sequence[ClaimedTask]) -> None:
        """Run these, in order."""
        self._waiting.update((task.task_id, task) for task in tasks)
        for _ in range(min(len(tasks), self._limit - self._open)):
            self._open += 1
            slot = asyncio.get_running_loop().create_task(self._serve())
            self._slots.add(slot)
            slot.add_done_callback(self._slots.discard)
        if self._stall_timer is None:
            self._moved_at = loop_time()
            self._check_stall_later()

    def stop(self, task_id: str) -> None:
        """Ask a task to stop, wherever it is."""
        waiting = self._waiting.pop(task_id, None)
        if waiting is not None:
            self._done(_released(waiting))
        else:
            self.executor.stop(task_id)

    def release_waiting(self) -> None:
        """Hand back what has not started."""
        while self._waiting:
            task = self._waiting.popitem(last=False)[1]
            self._done(TaskReport(task.task_id, task.token, AttemptStatus.RELEASED, begun=False))

    def _check_stall_later(self) -> None:
        loop = asyncio.get_running_loop()
        self._stall_timer = loop.call_at(self._moved_at + self._stall_seconds, self._check_stall)

    def _check_stall(self) -> None:
        """What ran lately was short, and what runs now is long: what waits behind it is better left to others."""
        self._stall_timer = None
        if not self._waiting:
            return
        # The same sum as above: a difference may be a little short of it, for ever where time stands still.
        if loop_time() >= self._moved_at + self._stall_seconds:
            self.release_waiting()
        else:
            self._check_stall_later()

    async def close(self, grace_seconds: float | None = None) -> None:
        """Hand back everything, and end. What runs is asked to stop, and given up after the grace."""
        if self._stall_timer is not None:
            self._stall_timer.cancel()
        self.release_waiting()
        await self.executor.close(grace_seconds)
        if self._slots:
            await asyncio.wait(self._slots)

    async def _serve(self) -> None:
        while self._waiting:
            _, task = self._waiting.popitem(last=False)
            self._moved_at = loop_time()
            try:
                report = await self._runner.run(task)
            except Exception as error:
                # A mistake of ours. Without a report the task would be held for ever.
                _LOGGER.exception("task %s could not be run", task.task_id)
                problem = {"kind": "internal", "message": f"the worker failed: {type(error).__name__}: {error}"}
                report = TaskReport(task.task_id, task.token, AttemptStatus.FAILED, error=json.dumps(problem))
            self._done(report)
        self._open -= 1


class ThreadedTaskPool:
    """A pool on a loop of its own. Its methods are called on the service's loop, and so is `done`, with a batch."""

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
        self._home = asyncio.get_running_loop()
        self._loop = asyncio.new_event_loop()
        self._pool: TaskPool | None = None
        self._reports: deque[TaskReport] = deque()
        self._is_told = False
        self._tasks: dict[str, ClaimedTask] = {}
        self._asked: set[str] = set()
        self._is_left = False
        self.answered = True
        self._thread = threading.Thread(target=self._live, name="dagmaster-handlers", daemon=True)
        self._thread.start()

    def begun(self) -> dict[str, float]:
        """The tasks that run, each with the seconds since it began."""
        return {} if self._pool is None else self._pool.begun()

    def add(self, tasks: Sequence[ClaimedTask]) -> None:
        """Run these, in order."""
        self._tasks.update((task.task_id, task) for task in tasks)
        self._loop.call_soon_threadsafe(self._on_loop, "add", tasks)

    def stop(self, task_id: str) -> None:
        """Ask a task to stop, if it is there: to wake the loop for each that is not would cost."""
        if task_id in self._tasks:
            self._asked.add(task_id)
            self._loop.call_soon_threadsafe(self._on_loop, "stop", task_id)

    def release_waiting(self) -> None:
        """Hand back what has not started."""
        self._loop.call_soon_threadsafe(self._on_loop, "release_waiting")

    @property
    def is_idle(self) -> bool:
        """Whether nobody waits for this loop: it has no tasks, or has come to its end."""
        return not self._tasks or not self._thread.is_alive()

    @property
    def thread_id(self) -> int | None:
        """The thread of the loop."""
        return self._thread.ident

    def ping(self) -> None:
        """Ask for a sign of life: `answered` is true when the loop came to it."""
        self.answered = False
        with contextlib.suppress(RuntimeError):
            self._loop.call_soon_threadsafe(self._answer)

    def find(self, log: TaskLog) -> tuple[TaskMessage, float, float] | None:
        """The task with this log: see `Executor.find`."""
        return None if self._pool is None else self._pool.executor.find(log)

    def is_stop_requested(self, task_id: str) -> bool:
        """Whether a task was asked to stop, and goes on."""
        return task_id in self._asked

    def abandon(self) -> list[ClaimedTask]:
        """Leave the thread behind, with a loop that is blocked, and give the tasks that are there.

        What it still says goes nowhere. If it ever comes to itself, its handlers are ended, and so is it.
        """
        self._deliver()
        self._is_left = True
        with contextlib.suppress(RuntimeError):
            asyncio.run_coroutine_threadsafe(self._end(), self._loop)
        return list(self._tasks.values())

    async def close(self, grace_seconds: float = GRACE_SECONDS) -> None:
        """Likewise; a loop that is blocked is left behind."""
        with contextlib.suppress(TimeoutError, RuntimeError):
            closing = asyncio.run_coroutine_threadsafe(self._close(grace_seconds), self._loop)
            await asyncio.wait_for(asyncio.wrap_future(closing), grace_seconds + MORE_SECONDS)
        with contextlib.suppress(RuntimeError):
            self._loop.call_soon_threadsafe(self._loop.stop)
        await asyncio.to_thread(self._thread.join, MORE_SECONDS)
        self._deliver()

    def _live(self) -> None:
        asyncio.set_event_loop(self._loop)
        self._pool = TaskPool(self._make_runner(), self._limit, self._reported, self._stall_seconds)
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

    def _reported(self, report: TaskReport) -> None:
        # Many reports, one wake-up: crossing threads costs more than a small task.
        self._reports.append(report)
        if not self._is_told:
            self._is_told = True
            self._home.call_soon_threadsafe(self._deliver)

    def _deliver(self) -> None:
        self._is_told = False
        reports: list[TaskReport] = []
        while self._reports:
            reports.append(self._reports.popleft())
        for report in reports:
            self._tasks.pop(report.task_id, None)
            self._asked.discard(report.task_id)
        if reports and not self._is_left:
            self._done(reports)


def _released(task: ClaimedTask) -> TaskReport:
    return TaskReport(task.task_id, task.token, AttemptStatus.RELEASED)
