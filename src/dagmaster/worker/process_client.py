"""The worker's side of one handler process: start it, send it tasks one at a time, receive reports, kill it.

It is spawned, never forked: a fork of a worker with threads and connections would copy locks that are never
released. It leads a separate process group, so that what a handler starts is killed with it;
`process_sweeper` finds what has left the group. `process_pool` decides which task gets a process. Everything
happens on the loop's thread.
"""

from __future__ import annotations

import asyncio
import codecs
import contextlib
import fcntl
import logging
import os
import signal
import socket
import struct
import sys
import termios
from typing import TYPE_CHECKING, Any, Protocol, cast

from dagmaster.ports.task_messages import Failed, Outcome, Released, Succeeded
from dagmaster.telemetry.logs import task_fields
from dagmaster.text_format import format_seconds
from dagmaster.worker.process_protocol import AddNodesRequest, Frames, Ready, decode, frame
from dagmaster.worker.process_sweeper import MARK_VARIABLE, kill_marked
from dagmaster.worker.task_lines import log_task
from dagmaster.worker.task_outcomes import crash_of, failed

if TYPE_CHECKING:
    from dagmaster.json_types import JsonObject
    from dagmaster.ports.handler_reports import Checkpoint, Progress
    from dagmaster.ports.task_messages import TaskMessage

START_SECONDS = 120.0
"""How long a process has to import the handlers."""

SHUTDOWN_SECONDS = 1.0
"""How long a process that is no longer needed has to end by itself. Then it is killed."""

KILL_SECONDS = 5.0
"""How long to wait for a process after SIGKILL: it may hang in the kernel."""

HANG_UP_SECONDS = 1.0
"""A process that dies closes its socket first. How long the one may follow the other, in both orders."""

MAX_READ = 64 * 1024
MAX_EARLY_TEXT = 8 * 1024

_LOGGER = logging.getLogger("dagmaster.worker")


class Job(Protocol):
    """A task for a process."""

    message: TaskMessage

    def begin(self) -> bool:
        """Start the task, because a process is free; return False if it has ended already."""

    def request(self) -> bytes:
        """Return the frame with the task."""

    def on_report(self, report: Progress | Checkpoint | AddNodesRequest | str) -> None:
        """Handle a report or output of the handler."""

    def on_crash_dump(self, text: str) -> None:
        """Handle the traceback of a process that native code killed."""

    def on_done(self, outcome: Outcome) -> None:
        """Handle the end."""


class Owner(Protocol):
    """The pool of the processes."""

    def on_ready(self, process: HandlerProcess) -> None:
        """Handle that a process is ready for a task."""

    def on_finished(self, process: HandlerProcess, outcome: Outcome) -> None:
        """Handle the outcome of a process's task. The process is free, unless it is ending."""

    def on_exit(self, process: HandlerProcess, outcome: Outcome) -> None:
        """Handle the end of a process, with the outcome of its task, or of one that waited for its start."""


class HandlerProcess(asyncio.Protocol):
    """A process: it starts, is ready, runs tasks and is idle in turn, and ends."""

    def __init__(self, owner: Owner, start_message: JsonObject, mark: str) -> None:
        self._owner = owner
        self._mark = mark
        self._start_message = start_message
        self._loop = asyncio.get_running_loop()
        self._frames = Frames()
        self._decoder = codecs.getincrementaldecoder("utf-8")("replace")
        self._early_text = ""
        self._transport: asyncio.Transport | None = None
        self._lifeline_fd = -1
        self._log_fd = -1
        self._dump_fd = -1
        self._hung_up = self._loop.create_future()
        # The reason why we ended it, if we did: later messages are ignored.
        self._ending: Outcome | None = None
        self._timer: asyncio.TimerHandle | None = None
        self._started = False
        self.pid = 0
        # Its process id while it was alive.
        self.last_pid = 0
        self.job: Job | None = None
        self.idle_since = 0.0

    # ── Lifecycle ───────────────────────────────────────────────────────────────────────────────────────────

    async def supervise(self) -> None:
        """Start the process, and wait until it has ended."""
        outcome: Outcome = Released("the worker was closed")
        try:
            process = await self._start()
            returncode = await process.wait()
            # Once, and at once: its process id may be reused soon.
            self._kill_group()
            self.last_pid, self.pid = self.pid, 0
            if self.job is not None:
                # What left its group. A task that ended by itself has ended its children.
                await asyncio.to_thread(kill_marked, self._mark)
            # What it sent before it died is still to be read. Children that inherited the socket were killed
            # just now.
            await asyncio.wait([self._hung_up], timeout=HANG_UP_SECONDS)
            outcome = self._ending or self._death(returncode)
        except OSError as error:
            outcome = unavailable(f"a process for the handler could not be started: {error}")
        finally:
            self._kill_group()
            self._read_rest_of_log()
            self._end_text()
            self._read_dump()
            self._close()
            self._owner.on_exit(self, outcome)

    async def _start(self) -> asyncio.subprocess.Process:
        with contextlib.ExitStack() as theirs:
            ours, connection = socket.socketpair()
            theirs.enter_context(connection)
            try:
                self._log_fd, log_fd = os.pipe()
                theirs.callback(os.close, log_fd)
                lifeline_fd, self._lifeline_fd = os.pipe()
                theirs.callback(os.close, lifeline_fd)
                self._dump_fd, dump_fd = os.pipe()
                theirs.callback(os.close, dump_fd)
                fds = (connection.fileno(), lifeline_fd, dump_fd)
                # -P: the current directory is on the path only if it is on the worker's.
                command = (sys.executable, "-P", "-m", "dagmaster.worker.process_main", *map(str, fds))
                process = await asyncio.create_subprocess_exec(
                    *command,
                    stdin=asyncio.subprocess.DEVNULL,
                    stdout=log_fd,
                    stderr=log_fd,
                    pass_fds=fds,
                    start_new_session=True,
                    env=os.environ | {MARK_VARIABLE: self._mark},
                )
            except BaseException:
                ours.close()
                raise
        self.pid = process.pid
        os.set_blocking(self._log_fd, False)
        os.set_blocking(self._dump_fd, False)
        self._loop.add_reader(self._log_fd, self._read_log)
        self._set_timer(START_SECONDS, self._is_late)
        await self._loop.create_unix_connection(lambda: self, sock=ours)
        self._send(frame(self._start_message))
        if self._ending is not None:
            # It was ended before there was a process to kill.
            self._kill_and_wait()
        return process

    def _is_late(self) -> None:
        self._end(unavailable(f"the handlers were not imported within {format_seconds(START_SECONDS)}"))

    def _death(self, returncode: int) -> Failed:
        if self._started:
            return crash_of(returncode)
        return unavailable(f"the import of the handlers failed: {crash_of(returncode).error['message']}")

    # ── Requests of the worker ──────────────────────────────────────────────────────────────────────────────

    def run(self, job: Job) -> None:
        """Send it a task."""
        self.job = job
        self._decoder.reset()
        self._send(job.request())

    def cancel(self) -> None:
        """Ask its handler to stop."""
        self._send(frame({"cancel": True}))

    def answer(self, message: JsonObject) -> None:
        self._send(frame(message))

    def kill(self) -> None:
        """Kill it. It has ended when `supervise` returns."""
        self._end(Released("its process was killed"))

    def end_for_memory(self, used_mb: int, limit_mb: int) -> None:
        """Kill it, because it uses up the memory of the worker; its task fails."""
        used = f"the handler's process used {used_mb} MB"
        if self.job is not None:
            sentence = f"is killed: its process used {used_mb} MB, and the worker may use {limit_mb} MB"
            log_task(logging.WARNING, sentence, self.job.message)
        self._end(failed("out_of_memory", f"{used}, and its worker reached its memory limit ({limit_mb} MB)"))

    def shut_down(self) -> None:
        """Let it end by itself; kill it after a while."""
        if self.job is None and self._started and self._ending is None:
            self._ending = Released("the worker was closed")
            self._send(frame({"shutdown": True}))
            self._set_timer(SHUTDOWN_SECONDS, self._kill_and_wait)
        else:
            self.kill()

    @property
    def is_ending(self) -> bool:
        """Return whether it takes no more tasks."""
        return self._ending is not None

    def _end(self, outcome: Outcome) -> None:
        if self._ending is None:
            self._ending = outcome
        self._kill_and_wait()

    def _kill_and_wait(self) -> None:
        self._kill_group()
        self._set_timer(KILL_SECONDS, self._give_up)

    def _give_up(self) -> None:
        _LOGGER.error(
            "handler process %d did not exit after SIGKILL (uninterruptible sleep); its task is released",
            self.pid, extra={} if self.job is None else task_fields(self.job.message),
        )  # fmt: skip
        self._owner.on_exit(self, self._ending or Released("its process hangs"))

    def _kill_group(self) -> None:
        if self.pid:
            # The last of the group may have ended already; macOS reports a permission error then.
            with contextlib.suppress(ProcessLookupError, PermissionError):
                os.killpg(self.pid, signal.SIGKILL)

    def _set_timer(self, seconds: float, then: Any) -> None:
        if self._timer is not None:
            self._timer.cancel()
        self._timer = self._loop.call_later(seconds, then)

    def _close(self) -> None:
        if self._timer is not None:
            self._timer.cancel()
        if self._transport is not None:
            self._transport.abort()
        if self._log_fd >= 0:
            self._loop.remove_reader(self._log_fd)
        for fd in (self._log_fd, self._lifeline_fd, self._dump_fd):
            if fd >= 0:
                os.close(fd)
        self._log_fd = self._lifeline_fd = self._dump_fd = -1

    # ── Messages ────────────────────────────────────────────────────────────────────────────────────────────

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        """Handle that the socket is open."""
        self._transport = cast("asyncio.Transport", transport)

    def data_received(self, data: bytes) -> None:
        try:
            messages = [decode(message) for message in self._frames.take(data)]
        except (ValueError, TypeError, KeyError) as error:
            # A handler wrote into our socket, or native code broke the memory.
            self._end(failed("crashed", f"the handler's process sent an invalid message: {error!r}"))
            return
        for message in messages:
            if self._ending is None:
                self._handle(message)

    def connection_lost(self, exc: Exception | None) -> None:  # noqa: ARG002 - asyncio passes it
        """Handle a dead process, or one whose handler closed our pipes."""
        if not self._hung_up.done():
            self._hung_up.set_result(None)
        if self._ending is not None or self._log_fd < 0:
            return
        if self._started and self.job is None:
            # It died while it was idle: it must not get a task before its exit code is known.
            self.kill()
        else:
            text = "the handler's process closed its connection to the worker and continued"
            self._set_timer(HANG_UP_SECONDS, lambda: self._end(failed("crashed", text)))

    def _send(self, data: bytes) -> None:
        if self._transport is not None and not self._transport.is_closing():
            self._transport.write(data)

    def _on_ready(self, message: Ready) -> None:
        if message.error is not None:
            self._end(unavailable(message.error))
        if self._started or self._ending is not None:
            return
        self._started = True
        if self._timer is not None:
            self._timer.cancel()
        if self._early_text.strip():
            _LOGGER.info("output while importing handlers: %s", self._early_text.strip())
        self._early_text = ""
        self._owner.on_ready(self)

    def _handle(self, message: Progress | Checkpoint | AddNodesRequest | Succeeded | Failed | Ready) -> None:
        # Earlier output of the handler is in the pipe by now: the order is kept.
        self._read_rest_of_log()
        if isinstance(message, Ready):
            self._on_ready(message)
        elif isinstance(message, Succeeded | Failed):
            self._end_text()
            self._owner.on_finished(self, message)
        elif self.job is not None:
            self.job.on_report(message)

    # ── Output ──────────────────────────────────────────────────────────────────────────────────────────────

    def _read_log(self) -> None:
        data = _read(self._log_fd, MAX_READ)
        if data:
            self._written(data)
        elif data is not None:
            self._loop.remove_reader(self._log_fd)

    def _read_rest_of_log(self) -> None:
        """Read what is in the pipe now. A process that the handler started may write for ever."""
        if self._log_fd < 0:
            return
        (left,) = struct.unpack("i", fcntl.ioctl(self._log_fd, termios.FIONREAD, bytes(4)))
        while left > 0:
            data = _read(self._log_fd, min(left, MAX_READ))
            if not data:
                return
            left -= len(data)
            self._written(data)

    def _read_dump(self) -> None:
        text = (_read(self._dump_fd, MAX_READ) or b"") if self._dump_fd >= 0 else b""
        if text and self.job is not None:
            self.job.on_crash_dump(text.decode(errors="replace"))

    def _written(self, data: bytes) -> None:
        text = self._decoder.decode(data)
        if self.job is not None:
            self.job.on_report(text)
        elif not self._started:
            self._early_text = (self._early_text + text)[-MAX_EARLY_TEXT:]

    def _end_text(self) -> None:
        rest = self._decoder.decode(b"", final=True)
        if rest and self.job is not None:
            self.job.on_report(rest)

    def early_text(self) -> str:
        """Return the output before it was ready, which may explain why it never was."""
        return self._early_text


def _read(fd: int, limit: int) -> bytes | None:
    try:
        return os.read(fd, limit)
    except BlockingIOError:
        return None


def unavailable(reason: str) -> Failed:
    """Return the outcome of a task that got no process. Another worker may have what is missing here."""
    return failed("handlers_unavailable", reason)
