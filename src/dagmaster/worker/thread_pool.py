"""Daemon threads for blocking work, which can be interrupted but not killed.

`concurrent.futures` waits at exit for every thread it ever started, so one function that hangs would hang the
process. These threads are daemons, and an abandoned one uses no slot. Everything but `work` happens on the
loop's thread.
"""

from __future__ import annotations

import asyncio
import contextlib
import contextvars
import ctypes
import threading
from collections import deque
from functools import partial
from queue import SimpleQueue
from typing import TYPE_CHECKING, Any, Protocol

if TYPE_CHECKING:
    from collections.abc import Callable


class HandlerInterrupted(BaseException):
    """Raised in a thread whose job timed out. Not an `Exception`, which handlers may catch."""


class Job(Protocol):
    """A piece of blocking work."""

    def begin(self) -> bool:
        """Start the work on a free thread; return False if it is not needed any more."""

    def work(self) -> Any:
        """Do the work on the thread. It should not raise."""

    def on_done(self, result: Any) -> None:
        """Handle the end of a job that was not abandoned."""

    def on_error(self, error: BaseException) -> None:
        """Handle an exception of `work`, instead of `on_done`."""


class DaemonThreads:
    """At most `limit` jobs at a time; the others wait in order."""

    def __init__(self, limit: int) -> None:
        self._limit = limit
        self._waiting: deque[tuple[Job, contextvars.Context]] = deque()
        self._threads: dict[Job, _Thread] = {}
        self._idle: list[_Thread] = []
        self._closed = False

    def submit(self, job: Job) -> None:
        self._waiting.append((job, contextvars.copy_context()))
        self._assign()

    def abandon(self, job: Job) -> None:
        """Abandon a job. Its thread ends with it, if ever; its slot is free at once."""
        if self._threads.pop(job, None) is not None:
            self._assign()

    def interrupt(self, job: Job) -> None:
        """Raise `HandlerInterrupted` in the thread of a job, once. The thread is not used again."""
        thread = self._threads.get(job)
        if thread is not None:
            thread.interrupt()

    def close(self) -> None:
        self._closed = True
        while self._idle:
            self._idle.pop().shut_down()

    def _assign(self) -> None:
        loop = asyncio.get_running_loop()
        while self._waiting and len(self._threads) < self._limit:
            thread = self._idle.pop() if self._idle else _Thread()
            job, context = self._waiting.popleft()
            if job.begin():
                self._threads[job] = thread
                thread.take(_Assignment(job, context, loop, self._on_returned))
            else:
                self._idle.append(thread)

    def _on_returned(self, job: Job, thread: _Thread, deliver: Callable[[], None]) -> None:
        abandoned = self._threads.pop(job, None) is None
        if abandoned or self._closed or thread.is_interrupted:
            thread.shut_down()
        else:
            self._idle.append(thread)
        if not abandoned:
            try:
                deliver()
            finally:
                self._assign()


class _Assignment:
    """A job with its context and the loop to which its end is delivered."""

    __slots__ = ("_context", "_job", "_loop", "_on_returned")

    def __init__(
        self,
        job: Job,
        context: contextvars.Context,
        loop: asyncio.AbstractEventLoop,
        on_returned: Callable[[Job, _Thread, Callable[[], None]], None],
    ) -> None:
        self._job = job
        self._context = context
        self._loop = loop
        self._on_returned = on_returned

    def run(self, thread: _Thread) -> None:
        try:
            self._send(thread, self._work())
        except HandlerInterrupted as error:
            # The interrupt came after the job's own code. It comes only once.
            self._send(thread, partial(self._job.on_error, error))

    def _work(self) -> Callable[[], None]:
        try:
            return partial(self._job.on_done, self._context.run(self._job.work))
        except BaseException as error:  # noqa: BLE001 - a thread that dies here would lose the job's end
            return partial(self._job.on_error, error)

    def _send(self, thread: _Thread, deliver: Callable[[], None]) -> None:
        # A closed loop accepts nothing: the job was abandoned.
        with contextlib.suppress(RuntimeError):
            self._loop.call_soon_threadsafe(self._on_returned, self._job, thread, deliver)


class _Thread:
    """One thread."""

    __slots__ = ("_assignments", "_thread", "is_interrupted")

    def __init__(self) -> None:
        self._assignments: SimpleQueue[_Assignment | None] = SimpleQueue()
        self.is_interrupted = False
        self._thread = threading.Thread(target=self._serve, name="dagmaster-handler", daemon=True)
        self._thread.start()

    def take(self, assignment: _Assignment) -> None:
        self._assignments.put(assignment)

    def shut_down(self) -> None:
        self._assignments.put(None)

    def interrupt(self) -> None:
        thread_id = self._thread.ident
        if thread_id is not None and not self.is_interrupted:
            self.is_interrupted = True
            ctypes.pythonapi.PyThreadState_SetAsyncExc(
                ctypes.c_ulong(thread_id), ctypes.py_object(HandlerInterrupted)
            )

    def _serve(self) -> None:
        # An interrupt may arrive when the assignment is done.
        with contextlib.suppress(HandlerInterrupted):
            while (assignment := self._assignments.get()) is not None:
                assignment.run(self)
                # Do not keep the finished job alive until the next one.
                del assignment
