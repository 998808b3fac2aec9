"""Runs one task: resolve the handler, open a context, call, describe the outcome.

Async handlers run on the loop. Plain functions, and handlers that are classes, run in killable child
processes if the executor is given some. Without them, for tests, and for `isolation="thread"`, plain
functions run on daemon threads. A thread cannot be killed: a plain function that outlives its timeout is
abandoned and continues unseen until it returns or the process ends. With `abandons_threads=False` an
exception is raised in its thread, and the task ends when the function does, so that a retry never overlaps
with it. A function that does not end then is also abandoned, and its failure is permanent: there is no retry
that could overlap.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
import threading
from dataclasses import replace
from functools import partial
from typing import TYPE_CHECKING, Any

from dagmaster.engine.graph import DEFAULT_TIMEOUT_SECONDS
from dagmaster.engine.status import Isolation
from dagmaster.errors import PermanentError
from dagmaster.ports.handler_reports import Checkpoint, Progress
from dagmaster.ports.task_messages import Failed, Outcome, Released, Succeeded, TaskMessage, add_ending
from dagmaster.sdk.handler_context import HandlerContext
from dagmaster.text_format import format_seconds
from dagmaster.worker.deadlines import Deadlines
from dagmaster.worker.execution_mode import ExecutionMode, execution_mode
from dagmaster.worker.handler_call import run_on_loop, run_on_thread
from dagmaster.worker.loop_threads import until_calls_end
from dagmaster.worker.options import ExecutorLimits
from dagmaster.worker.process_protocol import AddNodesRequest, encode_task, frame
from dagmaster.worker.task_lines import log_task
from dagmaster.worker.task_log_capture import TASK_LOG, TaskLog, is_capturing, outside_task, split_text
from dagmaster.worker.task_outcomes import (
    checkpoint_copy,
    failed,
    failure_of,
    readable_progress,
    unknown_failure,
    unknown_handler,
    unstoppable,
)
from dagmaster.worker.task_reports import NoReports, TaskReports
from dagmaster.worker.thread_pool import DaemonThreads, HandlerInterrupted

if TYPE_CHECKING:
    from collections.abc import Callable

    from dagmaster.ports.handler_services import WorkerServices
    from dagmaster.sdk.handler_registry import HandlerSpec, Registry
    from dagmaster.worker.node_adder import NodeAdder
    from dagmaster.worker.process_pool import HandlerProcesses


class Executor:
    """Executes tasks. Its methods are called on the loop's thread. It owns the process pool and closes it.

    `on_abandon`: called with a handler that ignored for so long that it should stop. The process ends then.
    """

    def __init__(
        self,
        registry: Registry,
        *,
        limits: ExecutorLimits | None = None,
        processes: HandlerProcesses | None = None,
        reports: TaskReports | None = None,
        services: WorkerServices | None = None,
        adder: NodeAdder | None = None,
        on_abandon: Callable[[TaskMessage, float], object] | None = None,
    ) -> None:
        self.registry = registry
        self.limits = limits or ExecutorLimits()
        self.adder = adder
        self.on_abandon = on_abandon
        self.reports: TaskReports = NoReports() if reports is None else reports  # An empty buffer is false.
        self.processes = processes
        self.services = services
        self.threads = DaemonThreads(self.limits.threads)
        self.deadlines = Deadlines()
        self._running: dict[str, _Run] = {}
        # Of tasks that are not isolated, by handler.
        self._modes: dict[str, ExecutionMode] = {}
        self._closing: asyncio.Task[None] | None = None

    async def execute(self, message: TaskMessage) -> Outcome:
        """Run a task and return its outcome; raise ValueError if the task runs already, and nothing else."""
        if self._closing is not None:
            return Released("the worker is closed")
        spec = self.registry.find(message.handler)
        if spec is None:
            return unknown_handler(self.registry, message.handler)
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

    def find(self, log: TaskLog) -> tuple[TaskMessage, float, float] | None:
        """Return the task with this log, its deadline and its clean-up time. Thread-safe."""
        for run in list(self._running.values()):
            if run.owns_log(log):
                return run.message, self.deadlines.at(run), self.limits.grace_seconds
        return None

    def running_seconds(self) -> dict[str, float]:
        """Return the tasks whose handlers run, with their seconds; others wait for a thread or a process."""
        # A copy, in one step of the interpreter: this may be asked from another thread.
        seconds = [(task_id, run.running_seconds()) for task_id, run in list(self._running.items())]
        return {task_id: running for task_id, running in seconds if running is not None}

    def version_of(self, handler: str) -> str | None:
        spec = self.registry.find(handler)
        return None if spec is None else spec.version

    def stop(self, task_id: str, *, releases: bool = False) -> None:
        """Ask a task to stop.

        Its outcome is a failure of kind `cancelled`, or a release if it has not started.

        `releases`: because the lease expired or the worker drains. This is always a release: its job was not
        cancelled, and the worker may have claimed the task again by the time its handler ends.
        """
        run = self._running.get(task_id)
        if run is not None:
            run.stop(releases=releases)

    async def close(self, grace_seconds: float | None = None) -> None:
        """Release what runs, and end threads and processes. A second call waits for the first."""
        if self._closing is None:
            self._closing = asyncio.get_running_loop().create_task(self._close(grace_seconds))
        await asyncio.shield(self._closing)

    async def _close(self, grace_seconds: float | None) -> None:
        runs = list(self._running.values())
        for run in runs:
            run.close(grace_seconds)
        if runs:
            await asyncio.wait([run.finished for run in runs])
        self.deadlines.close()
        self.threads.close()
        if self.services is not None:
            await self.services.close_on_loop()
            await asyncio.to_thread(self.services.close)
        if self.processes is not None:
            await self.processes.close()

    def execution_mode(self, spec: HandlerSpec, isolation: Isolation = Isolation.SHARED) -> ExecutionMode:
        mode = None if isolation else self._modes.get(spec.name)
        if mode is None:
            mode = execution_mode(spec, isolation, has_processes=self.processes is not None)
            if not isolation:
                self._modes[spec.name] = mode
        return mode


class _Run:
    """One task while it runs.

    `work`, `progress` and `checkpoint` are called on any thread, all else on the loop's.
    """

    __slots__ = (
        "_adder", "_asked_at", "_begun_at", "_context", "_deadlines", "_ending", "_grace", "_is_overdue",
        "_limits", "_log", "_loop", "_loop_thread", "_mode", "_on_abandon", "_processes", "_reports",
        "_request", "_spec", "_task", "_threads", "finished", "message",
    )  # fmt: skip

    def __init__(self, message: TaskMessage, spec: HandlerSpec, executor: Executor) -> None:
        self.message = message
        self._spec = spec
        self._reports = executor.reports
        self._threads = executor.threads
        self._mode = executor.execution_mode(spec, message.isolation)
        # The process pool, if it runs in a process.
        self._processes = executor.processes if self._mode is ExecutionMode.PROCESS else None
        self._deadlines = executor.deadlines
        self._limits = executor.limits
        self._on_abandon = executor.on_abandon
        self._asked_at = 0.0
        self._loop = asyncio.get_running_loop()
        self._loop_thread = threading.get_ident()
        self._context = HandlerContext(
            message.task_id, message.job_id, message.node_id, message.attempt, {}, message.checkpoint, self,
            executor.services, workflow=message.workflow, fencing_token=message.fencing_token,
            trace_parent=message.trace_parent, queue=message.queue,
        )  # fmt: skip
        self._adder = executor.adder
        if self._adder is not None:
            self._context.node_adder = partial(self._adder.add, message)
        # An outcome that was decided before the handler ended: its own end does not count then. A complete
        # result of a task that was to be released does: the work need not be repeated.
        self._ending: Outcome | None = None
        self._is_overdue = False
        self._begun_at: float | None = None
        self._request = b""
        captures = self._processes is None and is_capturing()
        self._log = TaskLog(self._log_written, self._loop, self._loop_thread) if captures else None
        self._grace: asyncio.TimerHandle | None = None
        self._task: asyncio.Task[Outcome] | None = None
        self.finished: asyncio.Future[Outcome] = self._loop.create_future()

    # ── Start and end ───────────────────────────────────────────────────────────────────────────────────────

    def start(self) -> None:
        """Start on the loop, or wait for a thread or a process."""
        if self._processes is not None:
            try:
                self._request = frame(encode_task(self.message, self._spec.name))
            except PermanentError as error:
                self.on_done(failure_of(error))
            else:
                self._processes.submit(self)
        elif self._mode is ExecutionMode.THREAD:
            self._threads.submit(self)
        else:
            self.begin()
            # In a separate asyncio task, which can be abandoned if it refuses to be cancelled.
            self._task = self._loop.create_task(self._work_on_loop())
            self._task.add_done_callback(self._task_done)

    def owns_log(self, log: TaskLog) -> bool:
        return self._log is log

    def request(self) -> bytes:
        """Return the request to a process. It is built once and not kept: it may be large."""
        request, self._request = self._request, b""
        return request

    def begin(self) -> bool:
        """Mark the handler as started; return False if the task has ended already."""
        if self.finished.done():
            return False
        self._begun_at = now = self._loop.time()
        self._deadlines.add(self, now + self._timeout_seconds())
        return True

    def running_seconds(self) -> float | None:
        return None if self._begun_at is None else self._loop.time() - self._begun_at

    def _timeout_seconds(self) -> float:
        return self.message.timeout_seconds or self._spec.timeout_seconds or DEFAULT_TIMEOUT_SECONDS

    async def _work_on_loop(self) -> Outcome:
        token = TASK_LOG.set(log := self._log)
        try:
            outcome = await run_on_loop(
                self._spec, self._context, self.message.params, own=self.message.own_params
            )
            if self._ending is not None and self._on_abandon is not None and log is not None:
                await until_calls_end(log)
            return outcome
        finally:
            TASK_LOG.reset(token)

    def work(self) -> Outcome:
        token = TASK_LOG.set(self._log)
        try:
            return run_on_thread(self._spec, self._context, self.message.params, own=self.message.own_params)
        finally:
            TASK_LOG.reset(token)

    def _task_done(self, task: asyncio.Task[Outcome]) -> None:
        # Cancelled before its first step, the coroutine never ran and has no outcome.
        try:
            outcome = failure_of(asyncio.CancelledError()) if task.cancelled() else task.result()
        except BaseException as error:  # noqa: BLE001 - whatever it is, the task must end
            self.on_error(error)
        else:
            self.on_done(outcome)

    def on_error(self, error: BaseException) -> None:
        """End the task although its handler reported no outcome, which is a bug."""
        self.on_done(unknown_failure(error))
        if not isinstance(error, HandlerInterrupted):
            log_task(logging.ERROR, "ended without an outcome", self.message)

    def on_done(self, outcome: Outcome) -> None:
        """Set the outcome; the first one counts."""
        self._deadlines.remove(self)
        if self._grace is not None:
            self._grace.cancel()
        # Late reports are dropped; and the run and its context are freed at once.
        self._context.reporter = None
        if self._log is not None:
            self._log.flush()
            self._log = None
        if not self.finished.done():
            ending = self._ending
            if ending is not None and not (isinstance(outcome, Succeeded) and isinstance(ending, Released)):
                outcome = ending
            outcome.running_seconds = self.running_seconds()
            self.finished.set_result(outcome)

    # ── Cancellation and timeouts ───────────────────────────────────────────────────────────────────────────

    def stop(self, *, releases: bool) -> None:
        """End the task, because it was asked to stop."""
        if releases:
            self.end(Released("the worker lost its lease or drains"))
        elif self._begun_at is None:
            self.end(Released("the task was asked to stop before it started"))
        else:
            self.end(failed("cancelled", "the task was asked to stop", permanent=True))

    def end(self, outcome: Outcome, *, grace_seconds: float | None = None) -> None:
        """Set the outcome of the task, and wait some time for its handler to end."""
        if self._ending is not None or self.finished.done():
            return
        self._ending = outcome
        self._asked_at = self._loop.time()
        self._context.cancel()
        if self._begun_at is None:
            self.on_done(outcome)
            return
        if self._task is not None:
            self._task.cancel()
        if self._processes is not None and grace_seconds != 0:
            self._processes.cancel(self)
        grace = self._limits.grace_seconds if grace_seconds is None else grace_seconds
        self._grace = self._loop.call_later(grace, self._give_up)

    def expire(self) -> None:
        """End a handler whose time is up. A coroutine, or what costs the worker, has a grace period."""
        limit = format_seconds(self._timeout_seconds())
        outcome = failed("timeout", f"the handler did not finish within {limit}")
        is_killable = self._task is None and (self._processes is not None or self._on_abandon is None)
        self.end(outcome, grace_seconds=0 if is_killable else None)

    def _give_up(self) -> None:
        if self._processes is not None:
            # It is done when its process is dead: attempts must not overlap.
            log_task(logging.WARNING, "did not stop in time and is killed", self.message)
            self._ending = add_ending(self._ending, "its process was killed", signal="SIGKILL")
            self._processes.kill(self)
        elif self._task is None and not self._limits.abandons_threads:
            self._threads.interrupt(self)
            # A retry after a timeout must not overlap with this attempt.
            self._is_overdue = isinstance(self._ending, Failed) and self._ending.error["kind"] == "timeout"
            if self._is_overdue:
                self._grace = self._loop.call_later(self._limits.interrupt_seconds, self._abandon_overdue)
            else:
                self._abandon()
        else:
            self._abandon()

    def _abandon_overdue(self) -> None:
        """Abandon a function that did not end when it was interrupted. A retry would overlap with it."""
        if isinstance(self._ending, Failed):
            self._ending = replace(self._ending, permanent=True)
        self._abandon()

    def close(self, grace_seconds: float | None) -> None:
        self.end(Released("the worker was closed"), grace_seconds=grace_seconds)
        if self._is_overdue:
            self._abandon()

    def _abandon(self) -> None:
        log_task(logging.WARNING, "is abandoned and continues; its result will be dropped", self.message)
        if self._on_abandon is None:
            self._ending = add_ending(self._ending, "it was abandoned and may still run", abandoned=True)
        else:
            seconds = self._loop.time() - self._asked_at
            self._ending = unstoppable(self._ending, seconds)
            self._on_abandon(self.message, seconds)
        self._threads.abandon(self)
        if self._task is not None:
            _ABANDONED.add(self._task)
            self._task.add_done_callback(_ABANDONED.discard)
        self.on_done(Released("abandoned"))

    async def drop(self) -> None:
        """End the handler: its outcome is not needed any more."""
        self._context.cancel()
        self.on_done(Released("the caller was cancelled"))
        self._threads.abandon(self)
        if self._processes is not None:
            await self._processes.kill_and_wait(self)
        if self._task is not None:
            self._task.cancel()
            await asyncio.wait([self._task], timeout=self._limits.grace_seconds)

    # ── Reports of the handler ──────────────────────────────────────────────────────────────────────────────

    def progress(self, progress: Progress) -> None:
        """Report progress, unless it is invalid."""
        readable = readable_progress(progress, self._context)
        if readable is not None:
            self._report(self._reports.progress, readable)

    def checkpoint(self, checkpoint: Checkpoint) -> Checkpoint:
        """Report a copy: the handler may change the original."""
        saved = checkpoint_copy(checkpoint)
        self._report(self._reports.checkpoint, saved)
        return saved

    def on_report(self, report: Progress | Checkpoint | AddNodesRequest | str) -> None:
        """Report what the process sent, already validated, or wrote."""
        if isinstance(report, AddNodesRequest):
            if self._adder is not None and self._processes is not None:
                self._adder.add_for_process(self.message, report, partial(self._processes.answer, self))
        elif isinstance(report, Progress):
            self._deliver(self._reports.progress, report)
        elif isinstance(report, Checkpoint):
            self._deliver(self._reports.checkpoint, report)
        else:
            for piece in split_text(report):
                self._log_written(piece)

    def on_crash_dump(self, text: str) -> None:
        self._deliver(self._reports.dump, text)

    def _log_written(self, piece: str) -> None:
        self._deliver(self._reports.log, piece)

    def _report(self, report: Callable[[TaskMessage, Any], None], value: Any) -> None:
        if threading.get_ident() == self._loop_thread:
            if self._log is not None:
                self._log.flush()
            self._deliver(report, value)
        else:
            # In order on the loop: before the outcome. A closed loop accepts nothing.
            with contextlib.suppress(RuntimeError):
                self._loop.call_soon_threadsafe(self._deliver, report, value)

    def _deliver(self, report: Callable[[TaskMessage, Any], None], value: Any) -> None:
        if self.finished.done():
            return
        # A listener may print: that is not the task's output.
        with outside_task():
            try:
                report(self.message, value)
            except Exception:  # noqa: BLE001 - logged; a listener must not fail a task
                log_task(
                    logging.ERROR, "sent a report that could not be delivered", self.message, has_error=True
                )


# The loop holds only weak references to its tasks.
_ABANDONED: set[asyncio.Task[Outcome]] = set()
