"""The log of a task: what it prints, and what it logs.

Tasks of one process share `sys.stdout` and the loggers, so a context variable says whose text it is: it follows a
coroutine, and the threads that are started for it with its context. A thread that a handler starts by itself has none,
and its text goes where it always went. Nothing is replaced until `capture` is entered. A handler's own process needs
none of this: its output is its task's.
"""

from __future__ import annotations

import asyncio
import contextlib
import contextvars
import logging
import sys
import threading
from collections import deque
from typing import TYPE_CHECKING, Any, cast

from dagmaster.text_format import storable_text

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
    from typing import TextIO

FORMAT = "%(levelname)s %(name)s: %(message)s"
LEVEL = logging.INFO

MAX_PIECE = 64 * 1024
"""The most bytes, as UTF-8, of one piece of a log."""

_MAX_BYTES_A_CHARACTER = 4

TASK_LOG: contextvars.ContextVar[TaskLog | None] = contextvars.ContextVar("TASK_LOG", default=None)
"""The log of the task that runs here."""


@contextlib.contextmanager
def capture() -> Iterator[None]:
    """Capture the output of each task until the block ends. Nested captures have no effect.

    What a task logs goes to its log alone, where secrets are redacted: not to the log of this process.
    """
    root = logging.getLogger()
    if any(isinstance(one, _ToTaskLog) for one in root.handlers):
        yield
        return
    streams, level = (sys.stdout, sys.stderr), root.level
    proxies = tuple(cast("TextIO", _TaskStream(stream)) for stream in streams)
    listener = _ToTaskLog(LEVEL)
    listener.setFormatter(logging.Formatter(FORMAT))
    others = tuple(root.handlers)
    for other in others:
        other.addFilter(_is_outside_task)
    sys.stdout, sys.stderr = proxies
    root.addHandler(listener)
    root.setLevel(min(level, LEVEL))
    try:
        yield
    finally:
        root.removeHandler(listener)
        root.setLevel(level)
        for other in others:
            other.removeFilter(_is_outside_task)
        # Keep a stream that other code installed meanwhile.
        if sys.stdout is proxies[0]:
            sys.stdout = streams[0]
        if sys.stderr is proxies[1]:
            sys.stderr = streams[1]


def is_capturing() -> bool:
    """Return whether output of a task is captured."""
    return any(isinstance(one, _ToTaskLog) for one in logging.getLogger().handlers)


def split_text(text: str) -> Iterator[str]:
    """Split text into storable parts of at most MAX_PIECE bytes."""
    text = storable_text(text)
    step = MAX_PIECE if text.isascii() else MAX_PIECE // _MAX_BYTES_A_CHARACTER
    for start in range(0, len(text), step):
        yield text[start : start + step]


@contextlib.contextmanager
def outside_task() -> Iterator[None]:
    """Write text outside of any task: a listener that prints must not feed the log."""
    token = TASK_LOG.set(None)
    try:
        yield
    finally:
        TASK_LOG.reset(token)


def _is_outside_task(_record: logging.LogRecord) -> bool:
    return TASK_LOG.get() is None


class TaskLog:
    """Collects text on any thread and delivers it in order on the loop."""

    __slots__ = ("_deliver", "_loop", "_loop_thread", "_ringing", "_texts")

    def __init__(self, deliver: Callable[[str], None]) -> None:
        self._deliver = deliver
        self._loop = asyncio.get_running_loop()
        self._loop_thread = threading.get_ident()
        self._texts: deque[str] = deque()
        self._ringing = False

    def write(self, text: str) -> None:
        """Add text and schedule its delivery."""
        self._texts.append(text)
        # `print` writes a text and its newline: one delivery for both. The order of these lines needs no lock:
        # `flush` lowers the flag before it looks, so what is added after its look finds the flag down.
        if self._ringing:
            return
        self._ringing = True
        # A closed loop listens no more.
        with contextlib.suppress(RuntimeError):
            if threading.get_ident() == self._loop_thread:
                self._loop.call_soon(self.flush)
            else:
                self._loop.call_soon_threadsafe(self.flush)

    def flush(self) -> None:
        """Deliver the text so far, on the loop's thread, or on another if the loop is blocked."""
        self._ringing = False
        waiting: list[str] = []
        with contextlib.suppress(IndexError):
            for _ in range(len(self._texts)):
                waiting.append(self._texts.popleft())  # noqa: PERF401 - what was taken before the end is kept
        for piece in split_text("".join(waiting)):
            self._deliver(piece)


class _TaskStream:
    """Replaces `sys.stdout` or `sys.stderr`; text outside of tasks goes to the real stream."""

    def __init__(self, real: TextIO) -> None:
        self._real = real

    def write(self, text: str) -> int:
        log = TASK_LOG.get()
        if log is None:
            return self._real.write(text)
        if not isinstance(text, str):
            raise TypeError(f"write() argument must be str, not {type(text).__name__}")
        log.write(text)
        return len(text)

    def writelines(self, lines: Any) -> None:
        for line in lines:
            self.write(line)

    @property
    def buffer(self) -> Any:
        log = TASK_LOG.get()
        return self._real.buffer if log is None else _TaskBytes(log)

    def __getattr__(self, name: str) -> Any:
        return getattr(self._real, name)


class _TaskBytes:
    """Replaces `sys.stdout.buffer` while a task runs."""

    def __init__(self, log: TaskLog) -> None:
        self._log = log

    def write(self, data: Any) -> int:
        written = bytes(data)
        self._log.write(written.decode(errors="replace"))
        return len(written)

    def flush(self) -> None:
        """Nothing is held back."""


class _ToTaskLog(logging.Handler):
    """Sends a log record to the log of its task."""

    def emit(self, record: logging.LogRecord) -> None:
        log = TASK_LOG.get()
        if log is not None:
            try:
                log.write(self.format(record) + "\n")
            except Exception:  # noqa: BLE001 - as every handler of logging: a record never fails who made it
                self.handleError(record)
            return
        # Where nobody configured logging, warnings go to stderr by themselves. That this handler is there is not to
        # end that.
        last = logging.lastResort
        if last is not None and logging.getLogger().handlers == [self] and record.levelno >= last.level:
            last.handle(record)
