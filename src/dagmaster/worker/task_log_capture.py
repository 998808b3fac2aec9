"""Capture the log of a task: what it prints, and what it logs.

Tasks of one process share `sys.stdout` and the loggers, so a context variable names the task of a text: it
follows a coroutine, and threads that are started with its context. A thread that a handler starts by itself
has none, and its output is not captured. Nothing is replaced until `capture` is entered. A handler process
needs none of this: all its output is its task's.
"""

from __future__ import annotations

import contextlib
import contextvars
import logging
import sys
import threading
from collections import deque
from functools import partial
from typing import TYPE_CHECKING, Any, cast

from dagmaster.telemetry.logs import silence_numexpr
from dagmaster.text_format import storable_text, visible_text

if TYPE_CHECKING:
    import asyncio
    from collections.abc import Callable, Iterator
    from concurrent.futures import Future
    from typing import TextIO

FORMAT = "%(levelname)s %(name)s: %(message)s"
LEVEL = logging.INFO

MAX_PIECE = 64 * 1024
"""The most bytes, as UTF-8, of one piece of a log."""

_MAX_BYTES_A_CHARACTER = 4

TASK_LOG: contextvars.ContextVar[TaskLog | None] = contextvars.ContextVar("TASK_LOG", default=None)
"""The log of the task that runs here."""


class _Capture:
    """The capture of this process.

    Each task asks for it: the handlers of the root logger take longer to check.
    """

    listener: _ToTaskLog | None = None


@contextlib.contextmanager
def capture(*, echoes: bool = False) -> Iterator[None]:
    """Capture the output of each task until the block ends. Nested captures have no effect.

    What a task logs goes to its log alone, where secrets are redacted: not to the log of this process.
    `echoes`: what it prints and logs also goes where it would go without a capture.
    """
    root = logging.getLogger()
    if is_capturing():
        yield
        return
    numexpr = logging.getLogger("numexpr")
    streams, level, numexpr_level = (sys.stdout, sys.stderr), root.level, numexpr.level
    proxies = tuple(cast("TextIO", _TaskStream(stream, echoes=echoes)) for stream in streams)
    listener = _ToTaskLog(LEVEL, echoes=echoes)
    listener.setFormatter(logging.Formatter(FORMAT))
    others = tuple(root.handlers)
    hides = partial(_passes_level, root_level=level) if echoes else _is_outside_task
    for other in others:
        other.addFilter(hides)
    sys.stdout, sys.stderr = proxies
    root.addHandler(listener)
    _Capture.listener = listener
    root.setLevel(min(level, LEVEL))
    silence_numexpr()
    try:
        yield
    finally:
        _Capture.listener = None
        root.removeHandler(listener)
        root.setLevel(level)
        numexpr.setLevel(numexpr_level)
        for other in others:
            other.removeFilter(hides)
        # Keep a stream that other code installed meanwhile.
        if sys.stdout is proxies[0]:
            sys.stdout = streams[0]
        if sys.stderr is proxies[1]:
            sys.stderr = streams[1]


def is_capturing() -> bool:
    return _Capture.listener is not None


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


def _passes_level(record: logging.LogRecord, *, root_level: int) -> bool:
    """Return whether a record passes the levels of its loggers: a capture lowers that of the root logger."""
    logger = logging.getLogger(record.name)
    while logger.parent is not None and not logger.level:
        logger = logger.parent
    return record.levelno >= (root_level if logger.parent is None else logger.level)


class TaskLog:
    """Collects text on any thread and delivers it in order on the loop."""

    __slots__ = ("_deliver", "_is_scheduled", "_loop", "_loop_thread", "_texts", "calls")

    def __init__(
        self, deliver: Callable[[str], None], loop: asyncio.AbstractEventLoop, loop_thread: int
    ) -> None:
        self._deliver = deliver
        self._loop = loop
        self._loop_thread = loop_thread
        self._texts: deque[str] = deque()
        self._is_scheduled = False
        # What the task runs on other threads.
        self.calls: set[Future[Any]] = set()

    def write(self, text: str) -> None:
        self._texts.append(text)
        # `print` writes a text and its newline: one delivery for both. No lock is needed: `flush` clears the
        # flag before it takes the texts, so that a text which is added later schedules another delivery.
        if self._is_scheduled:
            return
        self._is_scheduled = True
        # A closed loop accepts nothing.
        with contextlib.suppress(RuntimeError):
            if threading.get_ident() == self._loop_thread:
                self._loop.call_soon(self.flush)
            else:
                self._loop.call_soon_threadsafe(self.flush)

    def flush(self) -> None:
        """Deliver the text so far, on the loop's thread, or on another if the loop is blocked."""
        self._is_scheduled = False
        if not self._texts:
            # Most tasks write nothing.
            return
        waiting: list[str] = []
        with contextlib.suppress(IndexError):
            for _ in range(len(self._texts)):
                waiting.append(self._texts.popleft())  # noqa: PERF401 - an IndexError keeps them
        for piece in split_text("".join(waiting)):
            self._deliver(piece)


class _TaskStream:
    """Replaces `sys.stdout` or `sys.stderr`; text outside of tasks goes to the real stream.

    If it `echoes`, the text of tasks goes there as well.
    """

    def __init__(self, real: TextIO, *, echoes: bool) -> None:
        self._real = real
        self._echoes = echoes

    def write(self, text: str) -> int:
        log = TASK_LOG.get()
        if log is None:
            return self._real.write(text)
        if not isinstance(text, str):
            raise TypeError(f"write() argument must be str, not {type(text).__name__}")
        log.write(text)
        if self._echoes:
            self._real.write(visible_text(text))
        return len(text)

    def writelines(self, lines: Any) -> None:
        for line in lines:
            self.write(line)

    @property
    def buffer(self) -> Any:
        log = TASK_LOG.get()
        if log is None:
            return self._real.buffer
        return _TaskBytes(log, self._real if self._echoes else None)

    def __getattr__(self, name: str) -> Any:
        return getattr(self._real, name)


class _TaskBytes:
    """Replaces `sys.stdout.buffer` while a task runs."""

    def __init__(self, log: TaskLog, echo: TextIO | None) -> None:
        self._log = log
        self._echo = echo

    def write(self, data: Any) -> int:
        written = bytes(data)
        text = written.decode(errors="replace")
        self._log.write(text)
        if self._echo is not None:
            self._echo.write(visible_text(text))
        return len(written)

    def flush(self) -> None:
        """Do nothing: there is no buffer."""


class _ToTaskLog(logging.Handler):
    """Sends a log record to the log of its task, and to standard error if it `echoes`."""

    def __init__(self, level: int, *, echoes: bool) -> None:
        super().__init__(level)
        self._echoes = echoes

    def emit(self, record: logging.LogRecord) -> None:
        log = TASK_LOG.get()
        if log is not None:
            try:
                log.write(self.format(record) + "\n")
            except Exception:  # noqa: BLE001 - like every logging handler: a record must not fail its caller
                self.handleError(record)
            if not self._echoes:
                return
        # Without configured logging, Python writes warnings to stderr. This handler must not change that.
        last = logging.lastResort
        if last is not None and logging.getLogger().handlers == [self] and record.levelno >= last.level:
            # Its stream is that of tasks.
            with outside_task():
                last.handle(record)
