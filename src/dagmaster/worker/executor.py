"""Runs one task: resolve the handler, open a context, call, describe the outcome.

This executor works in one process, for `run` and for tests: async handlers run on the loop, plain functions on daemon
threads. A thread cannot be killed: a plain function that outlives its timeout is given up and goes on unseen until it
returns or the process ends. Killable child processes for plain functions come with the next version.
"""

from __future__ import annotations

import asyncio
import contextlib
import inspect
import logging
import threading
from typing import TYPE_CHECKING, Any, Protocol

from dagmaster.authoring.handlers import HandlerSpec, HandlerStyle, Registry
from dagmaster.engine.graph import DEFAULT_TIMEOUT_SECONDS
from dagmaster.errors import HandlerUnknown
from dagmaster.ports.handler import Checkpoint, HandlerContext, Progress
from dagmaster.ports.task import HandedBack, Outcome, TaskMessage
from dagmaster.worker.deadlines import Deadlines
from dagmaster.worker.json_copy import json_copy
from dagmaster.worker.outcomes import (
    NOTHING,
    absorb,
    checkpoint_copy,
    failed,
    failure_of,
    outcome_of,
    readable_progress,
    undescribed,
)
from dagmaster.worker.threads import DaemonThreads

if TYPE_CHECKING:
    from collections.abc import AsyncGenerator, Callable, Generator

GRACE_SECONDS = 2.0
"""How long a handler that was asked to stop has to end by itself. Then it is given up."""

_LOGGER = logging.getLogger("dagmaster.worker")


class TaskReports(Protocol):
    """What a task says while it runs. Called on the loop's thread, in order, and never after the outcome."""

    def progress(self, task: TaskMessage, progress: Progress) -> None:
        """The task got this far."""

    def checkpoint(self, task: TaskMessage, checkpoint: Checkpoint) -> None:
        """The task can go on from here."""


class NoReports:
    """Nobody listens."""

    def progress(self, task: TaskMessage, progress: Progress) -> None:
        """Do nothing."""

    def checkpoint(self, task: TaskMessage, checkpoint: Checkpoint) -> None:
        """Do nothing."""


class Executor:
    """Executes tasks. All its methods are called on the loop's thread."""

    def __init__(
        self,
        registry: Registry,
        *,
        reports: TaskReports | None = None,
        threads: int = 32,
        grace_seconds: float = GRACE_SECONDS,
    ) -> None:
        self._registry = registry
        self.reports: TaskReports = NoReports() if reports is None else reports
        self.grace_seconds = grace_seconds
        self.threads = DaemonThreads(threads)
        self.deadlines = Deadlines()
        self._running: dict[str, _Run] = {}
        self._closed = False

    async def execute(self, message: TaskMessage) -> Outcome:
        """Run a task to its outcome. The same task twice at once is a ValueError; nothing else raises."""
        if self._closed:
            return HandedBack("the worker is closed")
        spec = self._registry.find(message.handler)
        if spec is None:
            return self._unknown(message.handler)
        if message.task_id in self._running:
            raise ValueError(f"task {message.task_id} is running here already")
        run = _Run(message, spec, self)
        self._running[message.task_id] = run
        try:
            run.start()
            return await run.finished
        except asyncio.CancelledError:
            await run.drop()
            raise
        finally:
            del self._running[message.task_id]

    def stop(self, task_id: str) -> None:
        """Ask a task to stop. Its outcome is a failure of kind `cancelled`, whatever it still does."""
        run = self._running.get(task_id)
        if run is not None:
            run.end(failed("cancelled", "the task was asked to stop", permanent=True))

    async def close(self) -> None:
        """Hand back what runs, and let the threads end."""
        self._closed = True
        runs = list(self._running.values())
        for run in runs:
            run.end(HandedBack("the worker was closed"))
        if runs:
            await asyncio.wait([run.finished for run in runs])
        self.deadlines.close()
        self.threads.close()

    def _unknown(self, name: str) -> Outcome:
        try:
            self._registry.get(name)
        except HandlerUnknown as error:
            return failed("unknown_handler", str(error), permanent=True)
        raise AssertionError(name)


class _Run:
    """One task while it runs. `work`, `progress` and `checkpoint` are called on any thread, all else on the loop's."""

    __slots__ = (
        "_begun",
        "_context",
        "_deadlines",
        "_ending",
        "_grace",
        "_grace_seconds",
        "_loop",
        "_loop_thread",
        "_message",
        "_reports",
        "_spec",
        "_task",
        "_threads",
        "finished",
    )

    def __init__(self, message: TaskMessage, spec: HandlerSpec, executor: Executor) -> None:
        self._message = message
        self._spec = spec
        self._reports = executor.reports
        self._threads = executor.threads
        self._deadlines = executor.deadlines
        self._grace_seconds = executor.grace_seconds
        self._loop = asyncio.get_running_loop()
        self._loop_thread = threading.get_ident()
        self._context = HandlerContext(
            message.task_id, message.job_id, message.node_id, message.attempt, {}, message.checkpoint, self
        )
        # What was decided before the handler came to its end: then its own end does not count.
        self._ending: Outcome | None = None
        self._begun = False
        self._grace: asyncio.TimerHandle | None = None
        self._task: asyncio.Task[Outcome] | None = None
        self.finished: asyncio.Future[Outcome] = self._loop.create_future()

    # ── from start to end ───────────────────────────────────────────────────────────────────────────────────────────

    def start(self) -> None:
        """Start on the loop, or wait for a thread."""
        style = self._spec.style
        if style is HandlerStyle.PLAIN or (
            style is HandlerStyle.GENERATOR and not inspect.isasyncgenfunction(self._spec.function)
        ):
            self._threads.submit(self)
        else:
            self.begin()
            # A task of its own: one that refuses to be cancelled can be given up without hanging the caller.
            self._task = self._loop.create_task(self._work_on_loop())
            self._task.add_done_callback(self._task_done)

    def begin(self) -> bool:
        """The handler starts now, and so does its time. False if the task is over before it began."""
        if self.finished.done():
            return False
        self._begun = True
        self._deadlines.add(self, self._loop.time() + self._timeout_seconds())
        return True

    def _timeout_seconds(self) -> float:
        return self._message.timeout_seconds or self._spec.timeout_seconds or DEFAULT_TIMEOUT_SECONDS

    async def _work_on_loop(self) -> Outcome:
        context = self._context
        try:
            context.params = json_copy(self._message.params, kind="invalid_params", what="the params")
            produced = self._spec.call(context)
            value = await (produced if self._spec.style is HandlerStyle.ASYNC else _drained(produced, context))
            return outcome_of(value, self._spec)
        except BaseException as error:  # noqa: BLE001 - SystemExit in a handler fails an attempt, not the process
            return failure_of(error)

    def work(self) -> Outcome:
        """Run the handler on this thread."""
        context = self._context
        try:
            context.params = json_copy(self._message.params, kind="invalid_params", what="the params")
            produced = self._spec.call(context)
            value = _exhausted(produced, context) if self._spec.style is HandlerStyle.GENERATOR else produced
            return outcome_of(value, self._spec)
        except BaseException as error:  # noqa: BLE001 - as above
            return failure_of(error)

    def _task_done(self, task: asyncio.Task[Outcome]) -> None:
        # Cancelled before its first step, the coroutine never ran and has no outcome.
        try:
            outcome = failure_of(asyncio.CancelledError()) if task.cancelled() else task.result()
        except BaseException as error:  # noqa: BLE001 - whatever it is: nobody else ends this task
            self.lost(error)
        else:
            self.done(outcome)

    def lost(self, error: BaseException) -> None:
        """The handler's end was not told as an outcome, which is our mistake. The task ends nevertheless."""
        self.done(undescribed(error))
        _LOGGER.error("task %s of handler %s was lost", self._message.task_id, self._message.handler)

    def done(self, outcome: Outcome) -> None:
        """The first outcome counts."""
        self._deadlines.remove(self)
        if self._grace is not None:
            self._grace.cancel()
        # A late report goes nowhere; and without this the run and its context would wait for the garbage collector.
        self._context.reporter = None
        if not self.finished.done():
            self.finished.set_result(outcome if self._ending is None else self._ending)

    # ── before the end ──────────────────────────────────────────────────────────────────────────────────────────────

    def end(self, outcome: Outcome, *, grace_seconds: float | None = None) -> None:
        """Give the task this outcome, and its handler some time to end by itself."""
        if self._ending is not None or self.finished.done():
            return
        self._ending = outcome
        self._context.cancel()
        if not self._begun:
            self.done(outcome)
            return
        if self._task is not None:
            self._task.cancel()
        grace = self._grace_seconds if grace_seconds is None else grace_seconds
        self._grace = self._loop.call_later(grace, self._give_up)

    def expire(self) -> None:
        """Its time is up. A coroutine may clean up; a thread does not notice, so there is nothing to wait for."""
        outcome = failed("timeout", f"the handler did not finish within {self._timeout_seconds():g} seconds")
        self.end(outcome, grace_seconds=0 if self._task is None else None)

    def _give_up(self) -> None:
        name, task_id = self._message.handler, self._message.task_id
        _LOGGER.warning("handler %s goes on after its end (task %s); its result will be dropped", name, task_id)
        self._threads.abandon(self)
        if self._task is not None:
            _GIVEN_UP.add(self._task)
            self._task.add_done_callback(_GIVEN_UP.discard)
        self.done(HandedBack("given up"))

    async def drop(self) -> None:
        """Nobody wants the outcome any more: end the handler."""
        self._context.cancel()
        self.done(HandedBack("nobody waits"))
        self._threads.abandon(self)
        if self._task is not None:
            self._task.cancel()
            await asyncio.wait([self._task], timeout=self._grace_seconds)

    # ── what the handler says ───────────────────────────────────────────────────────────────────────────────────────

    def progress(self, progress: Progress) -> None:
        """Pass it on. Progress never fails a task: what is no number is dropped, with a warning."""
        said = readable_progress(progress)
        if said is None:
            self._context.logger.warning("progress is no number: %r of %r", progress.current, progress.total)
        else:
            self._report(self._reports.progress, said)

    def checkpoint(self, checkpoint: Checkpoint) -> Checkpoint:
        """Pass on a copy: the handler may go on changing what it gave."""
        saved = checkpoint_copy(checkpoint)
        self._report(self._reports.checkpoint, saved)
        return saved

    def _report(self, report: Callable[[TaskMessage, Any], None], said: Any) -> None:
        if threading.get_ident() == self._loop_thread:
            self._deliver(report, said)
        else:
            # In the loop's order: before the outcome, which comes the same way. A closed loop listens no more.
            with contextlib.suppress(RuntimeError):
                self._loop.call_soon_threadsafe(self._deliver, report, said)

    def _deliver(self, report: Callable[[TaskMessage, Any], None], said: Any) -> None:
        if self.finished.done():
            return
        try:
            report(self._message, said)
        except Exception:
            _LOGGER.exception("a report of task %s could not be delivered", self._message.task_id)


# The loop knows its tasks only weakly, and these have nobody else.
_GIVEN_UP: set[asyncio.Task[Outcome]] = set()


async def _drained(generator: AsyncGenerator[Any, None], context: HandlerContext) -> Any:
    """Run an async generator to its end; its last result is the result."""
    result = None
    async with contextlib.aclosing(generator):
        async for item in generator:
            taken = absorb(item, context)
            if taken is not NOTHING:
                result = taken
    return result


def _exhausted(generator: Generator[Any, None, Any], context: HandlerContext) -> Any:
    """Run a plain generator to its end; what it returns, else its last result, is the result."""
    result = None
    with contextlib.closing(generator):
        while True:
            try:
                item = next(generator)
            except StopIteration as end:
                return result if end.value is None else end.value
            taken = absorb(item, context)
            if taken is not NOTHING:
                result = taken
