"""The main program of a handler process: runs tasks one by one on the main thread and sends the outcomes.

Started by `process_client` as `python -m dagmaster.worker.process_main`. Every import here delays its start.
It ends with its worker: otherwise it would continue a task that another worker has claimed.
"""

from __future__ import annotations

import asyncio
import contextlib
import ctypes
import errno
import faulthandler
import fcntl
import logging
import os
import resource
import signal
import socket
import sys
import threading
from concurrent.futures import Future
from pathlib import Path
from queue import SimpleQueue
from typing import TYPE_CHECKING, Any, NoReturn, TextIO

from dagmaster.errors import DagmasterError
from dagmaster.ports.handler_reports import Checkpoint
from dagmaster.ports.task_messages import Failed, Outcome
from dagmaster.sdk.handler_context import HandlerContext
from dagmaster.sdk.handler_registry import Registry, discover
from dagmaster.telemetry import traces
from dagmaster.telemetry.logs import silence_numexpr
from dagmaster.worker.handler_call import is_blocking, run_on_loop, run_on_thread
from dagmaster.worker.lazy_services import LazyServices, ServicesConfig
from dagmaster.worker.process_protocol import (
    encode_checkpoint,
    encode_outcome,
    encode_progress,
    frame,
    receive,
)
from dagmaster.worker.process_sweeper import adopt_orphans, child_pids, end_children
from dagmaster.worker.task_log_capture import FORMAT, LEVEL
from dagmaster.worker.task_outcomes import checkpoint_copy, failed, readable_progress

if TYPE_CHECKING:
    from collections.abc import Callable

    from dagmaster.json_types import JsonObject
    from dagmaster.ports.handler_reports import Progress
    from dagmaster.ports.handler_services import WorkerServices

_LOGGER = logging.getLogger("dagmaster.worker")

STDOUT, STDERR = 1, 2

_LINE_BUFFERED = 1
"""glibc's _IOLBF."""


def main() -> None:
    """Serve the worker at the other end of the socket.

    Arguments: descriptors of socket, lifeline and dump pipe.
    """
    connection_fd, lifeline_fd, dump_fd = map(int, sys.argv[1:])
    for fd in (connection_fd, lifeline_fd, dump_fd):
        # A process that a handler starts must not inherit them: the worker would not see the end of this
        # process.
        os.set_inheritable(fd, False)  # noqa: FBT003 - os takes it by position only
    die_with(lifeline_fd)
    adopt_orphans()
    output = Output()
    # Separate from the handler's output: it goes to the log only, not to a terminal.
    faulthandler.enable(dump_fd, all_threads=False)
    # When the machine runs out of memory, the kernel should kill this process and not the worker.
    with contextlib.suppress(OSError):
        Path("/proc/self/oom_score_adj").write_text("500")
    Child(socket.socket(fileno=connection_fd), output).serve()


def die_with(lifeline_fd: int) -> None:
    """Let the kernel kill this process and its children when the worker's end of this pipe closes.

    The reader sees the end of the socket too, but not while native code holds the interpreter.
    PR_SET_PDEATHSIG kills this process alone, and before the reader can kill its group: 16 of 20
    grandchildren survived (2026-11, Linux 6.18).
    """
    if hasattr(fcntl, "F_SETSIG") and os.getpgrp() == os.getpid():
        fcntl.fcntl(lifeline_fd, fcntl.F_SETOWN, -os.getpgrp())
        fcntl.fcntl(lifeline_fd, fcntl.F_SETSIG, signal.SIGKILL)
        fcntl.fcntl(lifeline_fd, fcntl.F_SETFL, fcntl.fcntl(lifeline_fd, fcntl.F_GETFL) | os.O_ASYNC)


class Child:
    """Serves the worker. A thread reads messages; the main thread runs handlers."""

    def __init__(self, connection: socket.socket, output: Output) -> None:
        self._connection = connection
        self._output = output
        self._home = Path.cwd()
        self._sending = threading.Lock()
        self._tasks: SimpleQueue[Attempt | None] = SimpleQueue()
        self._attempt: Attempt | None = None
        self._services: WorkerServices | None = None

    def serve(self) -> None:
        """Import the handlers, then run one task after the other."""
        stream = self._connection.makefile("rb")
        start_message = receive(stream)
        if start_message["services"] is not None:
            self._services = LazyServices(ServicesConfig(**start_message["services"]))
        threading.Thread(target=self._read, args=(stream,), name="dagmaster-worker", daemon=True).start()
        limit_mb = start_message["memory_limit_mb"]
        if limit_mb is not None:
            limit_memory(limit_mb)
        log_to_stderr()
        sys.path[:] = start_message["path"]
        if start_message["tracing"] is not None:
            traces.start_tracing(traces.TraceConfig(**start_message["tracing"]))
        try:
            registry = discover(start_message["modules"])
        except (DagmasterError, MemoryError) as error:
            self.send({"unavailable": str(error) or type(error).__name__})
            return
        self.send({"ready": True})
        while (attempt := self._tasks.get()) is not None:
            self._run(attempt, registry, limit_mb)
            del attempt
        if self._services is not None:
            self._services.close()

    def send(self, message: dict[str, Any]) -> None:
        """Send a message to the worker. Handlers report from any thread, and frames must not be mixed."""
        data = frame(message)
        with self._sending:
            self._connection.sendall(data)

    def _run(self, attempt: Attempt, registry: Registry, limit_mb: int | None) -> None:
        spared = child_pids()
        outcome = attempt.run(registry)
        # Before the outcome: the next attempt must not run next to them.
        ended = end_children(spared)
        if ended:
            _LOGGER.warning("ended %d child processes that the handler left running", ended)
        if isinstance(outcome, Failed) and outcome.error["kind"] == "out_of_memory" and limit_mb is not None:
            outcome.error["message"] += f" (its process may use {limit_mb} MB)"
        self._attempt = None
        # All output is in the pipe before the worker receives the outcome.
        self._output.flush()
        attempt.end(outcome)
        self._output.restore()
        # A handler may have changed to a directory that does not exist any more.
        with contextlib.suppress(OSError):
            os.chdir(self._home)

    def _read(self, stream: Any) -> None:
        try:
            while True:
                message = receive(stream)
                if "task" in message:
                    # Created here, so that a cancel that follows at once finds it.
                    self._attempt = Attempt(message["task"], self.send, self._services)
                    self._tasks.put(self._attempt)
                elif "cancel" in message:
                    attempt = self._attempt
                    if attempt is not None:
                        attempt.cancel()
                elif "added" in message:
                    attempt = self._attempt
                    if attempt is not None:
                        attempt.on_added(message["added"])
                else:
                    self._tasks.put(None)
                    return
        except EOFError:
            end_all()
        except OSError as error:
            # A handler that closed our socket ends with its exit code, or the worker notices it.
            if error.errno != errno.EBADF:
                end_all()


class Attempt:
    """One task.

    Reports of its handler are sent to the worker until its outcome is, and dropped after that.
    """

    def __init__(
        self, task: dict[str, Any], send: Callable[[dict[str, Any]], None], services: WorkerServices | None
    ) -> None:
        saved = task["checkpoint"] and Checkpoint.from_json(task["checkpoint"])
        self._handler: str = task["handler"]
        self._params = task["params"]
        self._context = HandlerContext(
            task["task_id"],
            task["job_id"],
            task["node_id"],
            task["attempt"],
            {},
            saved,
            self,
            services,
            workflow=task["workflow"],
            fencing_token=task["fencing_token"],
            trace_parent=task["trace_parent"],
            queue=task["queue"],
        )
        self._context.node_adder = self.add_nodes
        self._services = services
        self._send = send
        # Reports come from any thread: without the lock, one could follow the outcome.
        self._send_lock = threading.RLock()
        self._is_finished = False
        self._wake: Callable[[], object] | None = None
        self._calls: dict[int, Future[JsonObject]] = {}

    def run(self, registry: Registry) -> Outcome:
        spec = registry.find(self._handler)
        if spec is None:
            text = (
                f"the worker has the handler {self._handler!r}, but its process does not: was its module"
                " changed?"
            )
            return failed("handlers_unavailable", f"{text} Start the worker again.")
        if is_blocking(spec):
            return run_on_thread(spec, self._context, self._params, own=True)

        async def on_loop() -> Outcome:
            task, loop = asyncio.current_task(), asyncio.get_running_loop()
            if task is not None:
                self._wake = lambda: loop.call_soon_threadsafe(task.cancel)
                if self._context.cancelled:
                    task.cancel()
            try:
                return await run_on_loop(spec, self._context, self._params, own=True)
            finally:
                if self._services is not None:
                    await self._services.close_on_loop()

        return asyncio.run(on_loop())

    def cancel(self) -> None:
        self._context.cancel()
        # Its loop may be closed already.
        with contextlib.suppress(RuntimeError):
            if self._wake is not None:
                self._wake()

    def end(self, outcome: Outcome) -> None:
        self._context.reporter = None
        with self._send_lock:
            self._send_report(encode_outcome(outcome))
            self._is_finished = True

    def progress(self, progress: Progress) -> None:
        """Report progress, unless it is invalid."""
        readable = readable_progress(progress, self._context)
        if readable is not None:
            self._send_report(encode_progress(readable))

    def checkpoint(self, checkpoint: Checkpoint) -> Checkpoint:
        """Report a copy: the handler may change the original."""
        saved = checkpoint_copy(checkpoint)
        self._send_report(encode_checkpoint(saved))
        return saved

    def add_nodes(self, call: int, part: JsonObject) -> Future[JsonObject]:
        """Add nodes to the job at once; return the future of the worker's answer."""
        answer: Future[JsonObject] = Future()
        self._calls[call] = answer
        self._send_report({"add_nodes": part, "call": call})
        return answer

    def on_added(self, answer: JsonObject) -> None:
        waiting = self._calls.pop(int(str(answer["call"])), None)
        if waiting is not None:
            waiting.set_result(answer)

    def _send_report(self, report: dict[str, Any]) -> None:
        with self._send_lock:
            if not self._is_finished:
                self._send(report)


class Output:
    """Both output streams of this process, in one pipe that the worker reads, so that their order is kept."""

    def __init__(self) -> None:
        # A duplicate: a handler may close or redirect the others.
        self.fd = os.dup(STDOUT)
        self._streams = (_text(STDOUT), _text(STDERR))
        sys.stdout, sys.stderr = self._streams
        self._libc = None
        with contextlib.suppress(OSError, ValueError, AttributeError):
            self._libc = ctypes.CDLL(None)
            # In a pipe, printf of native code would buffer 4 KiB, which would be seen late, and lost in a
            # crash.
            self._libc.setvbuf(ctypes.c_void_p.in_dll(self._libc, "stdout"), None, _LINE_BUFFERED, 0)

    def flush(self) -> None:
        """Flush the buffers of Python and of native code."""
        for stream in (sys.stdout, sys.stderr, *self._streams):
            # A handler may have replaced or closed it.
            with contextlib.suppress(Exception):
                stream.flush()
        if self._libc is not None:
            self._libc.fflush(None)

    def restore(self) -> None:
        """Undo what a handler did to the streams, for the next one."""
        for fd in (STDOUT, STDERR):
            os.dup2(self.fd, fd)
        if any(stream.closed for stream in self._streams):
            self._streams = (_text(STDOUT), _text(STDERR))
        sys.stdout, sys.stderr = self._streams


def _text(fd: int) -> TextIO:
    # Line buffered: the output of a task is seen while it runs.
    return open(fd, "w", buffering=1, encoding="utf-8", errors="backslashreplace", closefd=False)


def log_to_stderr() -> None:
    """Send log records to the task's output."""
    handler = _ToStderr(LEVEL)
    handler.setFormatter(logging.Formatter(FORMAT))
    root = logging.getLogger()
    root.addHandler(handler)
    root.setLevel(LEVEL)
    silence_numexpr()


class _ToStderr(logging.StreamHandler[TextIO]):
    """Writes to the current `sys.stderr`: a handler may replace it for a while."""

    def __init__(self, level: int) -> None:
        logging.Handler.__init__(self, level)

    @property
    def stream(self) -> TextIO:
        return sys.stderr

    @stream.setter
    def stream(self, value: TextIO) -> None:
        """Do nothing: the stream is looked up."""


def limit_memory(limit_mb: int) -> None:
    """Limit the memory of handlers: a MemoryError fails one attempt, and the machine keeps its memory."""
    limit = limit_mb * 1024 * 1024
    _, hard = resource.getrlimit(resource.RLIMIT_AS)
    resource.setrlimit(
        resource.RLIMIT_AS, (limit if hard == resource.RLIM_INFINITY else min(limit, hard), hard)
    )


def end_all() -> NoReturn:
    """End this process and its group. Started by hand it is in the caller's group, which is left alone."""
    if os.getpgrp() == os.getpid():
        os.killpg(0, signal.SIGKILL)
    os._exit(1)


if __name__ == "__main__":
    main()
