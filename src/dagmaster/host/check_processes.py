"""Processes for work on what a caller sent: killed when it takes too much time or memory, and replaced.

A thread cannot be killed, and native code in it holds the interpreter's lock. A process is started when it
is needed, does one call at a time, and is kept for the next. It has no settings and no secrets of the server:
its environment is a short list of names.
"""

from __future__ import annotations

import asyncio
import contextlib
import json
import os
import signal
import subprocess
import sys
import threading
from collections import Counter, deque
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import dataclass, field
from functools import partial
from typing import IO, TYPE_CHECKING, Any, Final

from dagmaster.errors import CheckLimitExceeded, ChecksBusy
from dagmaster.host.length_frames import read_frame, write_frame

if TYPE_CHECKING:
    from collections.abc import Callable

    from dagmaster.json_types import JsonValue

MAX_PROCESSES: Final = 2
MAX_WAITING: Final = 16
"""Calls that wait for a process. A further one is refused, and may be sent again."""
CPU_SECONDS: Final = 10.0
"""CPU time of one call. The kernel counts it, and kills the process."""
MEMORY_MB: Final = 512
WALL_SECONDS: Final = 60.0
"""The time of one call on a clock: on a machine with other work, or of one that waits for nothing."""
EXIT_SECONDS: Final = 1.0
_ENVIRONMENT: Final = ("PATH", "HOME", "LANG", "LC_ALL", "TMPDIR", "VIRTUAL_ENV", "LD_LIBRARY_PATH")


@dataclass(slots=True, eq=False)
class _Call:
    """A call that waits or runs."""

    caller: str | None
    name: str
    arguments: dict[str, JsonValue]
    answer: Future[JsonValue] = field(default_factory=Future)


class CheckProcesses:
    """A few processes of a server; further calls wait for one of them, in order.

    One caller never has all of them: a process is left for others, however long its calls take. A call runs
    in a thread that waits for its process, so that a request that is cancelled does not free a process that
    works.
    """

    def __init__(
        self, *, limit: int = MAX_PROCESSES, cpu_seconds: float = CPU_SECONDS, memory_mb: int = MEMORY_MB
    ) -> None:
        self._limit = limit
        self._cpu_seconds = cpu_seconds
        self._memory_mb = memory_mb
        self._threads = ThreadPoolExecutor(limit, "dagmaster-check")
        self._calls: Counter[str | None] = Counter()
        self._running: Counter[str | None] = Counter()
        self._waiting: deque[_Call] = deque()
        self._lock = threading.Lock()
        self._idle: list[_CheckProcess] = []
        self._all: set[_CheckProcess] = set()
        self._is_closed = False

    async def run(
        self, function: Callable[..., JsonValue], caller: str | None = None, /, **arguments: JsonValue
    ) -> Any:
        """Call a function of a module in a process; its arguments and its result are JSON.

        Raise `CheckLimitExceeded` if it took too much, and `ChecksBusy` if too many calls wait, or half as
        many of one caller.
        """
        self._check_places(caller)
        self._calls[caller] += 1
        call = _Call(caller, f"{function.__module__}:{function.__qualname__}", arguments)
        loop = asyncio.get_running_loop()
        call.answer.add_done_callback(partial(_tell, loop, partial(self._on_done, caller)))
        with self._lock:
            self._waiting.append(call)
        self._start_waiting()
        return await asyncio.wrap_future(call.answer)

    def close(self) -> None:
        """Kill the processes, and end the threads."""
        with self._lock:
            self._is_closed = True
            processes, waiting = list(self._all), list(self._waiting)
            self._waiting.clear()
        for call in waiting:
            call.answer.cancel()
        for process in processes:
            process.kill()
        self._threads.shutdown(wait=False, cancel_futures=True)

    def pids(self) -> list[int]:
        with self._lock:
            return [process.pid for process in self._all]

    def _check_places(self, caller: str | None) -> None:
        places = self._limit + MAX_WAITING
        if self._calls.total() >= places:
            raise ChecksBusy(
                f"{places} checks run or wait, which is the limit of this server: send the request again"
            )
        share = max(1, places // 2)
        if caller is not None and self._calls[caller] >= share:
            raise ChecksBusy(
                f"{share} checks of {caller} run or wait, which is the limit of a caller:"
                " send the request again"
            )

    def _on_done(self, caller: str | None) -> None:
        self._calls[caller] -= 1
        if not self._calls[caller]:
            del self._calls[caller]

    def _start_waiting(self) -> None:
        """Give free processes to the calls that have waited longest, of callers that may have one more."""
        with self._lock:
            waiting = [call for call in self._waiting if not call.answer.cancelled()]
            self._waiting = deque(waiting)
            for call in waiting:
                if self._is_closed or self._running.total() >= self._limit:
                    return
                if call.caller is None or self._running[call.caller] < max(1, self._limit - 1):
                    self._waiting.remove(call)
                    self._running[call.caller] += 1
                    self._threads.submit(self._work, call)

    def _work(self, call: _Call) -> None:
        try:
            if call.answer.set_running_or_notify_cancel():
                call.answer.set_result(self._run(call.name, call.arguments))
        except BaseException as error:  # noqa: BLE001 - for who waits for the answer
            call.answer.set_exception(error)
        finally:
            with self._lock:
                self._running[call.caller] -= 1
            self._start_waiting()

    def _run(self, name: str, arguments: dict[str, JsonValue]) -> JsonValue:
        process = self._take()
        is_reusable = False
        try:
            answer = process.call(name, arguments)
            is_reusable = not answer.get("is_last")
        finally:
            self._give_back(process, is_reusable=is_reusable)
        if "stopped" in answer:
            raise CheckLimitExceeded(
                f"the check was stopped: it needed more than {self._memory_mb:,} MB of memory"
            )
        if "error" in answer:
            raise RuntimeError(f"{name} failed in its process:\n{answer['error']}")
        result: JsonValue = answer["result"]
        return result

    def _take(self) -> _CheckProcess:
        with self._lock:
            while self._idle:
                process = self._idle.pop()
                if process.is_alive:
                    return process
                self._all.discard(process)
            process = _CheckProcess(self._cpu_seconds, self._memory_mb)
            self._all.add(process)
        if self._is_closed:
            process.kill()
        return process

    def _give_back(self, process: _CheckProcess, *, is_reusable: bool) -> None:
        with self._lock:
            if is_reusable and not self._is_closed:
                self._idle.append(process)
                return
            self._all.discard(process)
        process.kill()


def _tell(loop: asyncio.AbstractEventLoop, on_done: Callable[[], None], _: object) -> None:
    # The loop of a server that has ended is closed.
    with contextlib.suppress(RuntimeError):
        loop.call_soon_threadsafe(on_done)


class _CheckProcess:
    """One process, which does one call at a time."""

    def __init__(self, cpu_seconds: float, memory_mb: int) -> None:
        self._cpu_seconds = cpu_seconds
        self._memory_mb = memory_mb
        environment = {name: os.environ[name] for name in _ENVIRONMENT if name in os.environ}
        environment["PYTHONPATH"] = os.pathsep.join(path for path in sys.path if path)
        command = [
            sys.executable,
            "-P",
            "-m",
            "dagmaster.host.check_process_main",
            str(cpu_seconds),
            str(memory_mb),
        ]
        self._process = subprocess.Popen(  # noqa: S603 - a module of ours
            command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, env=environment, start_new_session=True
        )
        self.pid = self._process.pid
        self._is_late = False

    @property
    def is_alive(self) -> bool:
        return self._process.poll() is None

    def call(self, name: str, arguments: dict[str, JsonValue]) -> dict[str, Any]:
        """Send a call and return its answer; raise `CheckLimitExceeded` if the process was killed over it."""
        timer = threading.Timer(WALL_SECONDS, self._on_late)
        timer.daemon = True
        timer.start()
        try:
            write_frame(_pipe(self._process.stdin), json.dumps([name, arguments]).encode())
            answer: dict[str, Any] = json.loads(read_frame(_pipe(self._process.stdout)))
        except (OSError, EOFError):
            raise self._death() from None
        finally:
            timer.cancel()
        return answer

    def kill(self) -> None:
        """Kill the process, and wait for its end."""
        self._process.kill()
        with contextlib.suppress(subprocess.TimeoutExpired):
            self._process.wait(EXIT_SECONDS)
        for pipe in (self._process.stdin, self._process.stdout):
            # What was not sent to it is lost.
            with contextlib.suppress(OSError):
                _pipe(pipe).close()

    def _on_late(self) -> None:
        self._is_late = True
        self._process.kill()

    def _death(self) -> CheckLimitExceeded:
        with contextlib.suppress(subprocess.TimeoutExpired):
            # It has closed its pipe, and ends by what the kernel or it itself decided.
            self._process.wait(EXIT_SECONDS)
        self._process.kill()
        code = self._process.wait()
        if code == -signal.SIGPROF:
            reason = f"it took more than {self._cpu_seconds:g} s of CPU time"
        elif self._is_late:
            reason = f"it did not end within {WALL_SECONDS:g} s"
        else:
            reason = (
                f"its process ended with code {code}, perhaps for lack of memory ({self._memory_mb:,} MB)"
            )
        return CheckLimitExceeded(f"the check was stopped: {reason}. Send less, or something simpler")


def _pipe(pipe: IO[bytes] | None) -> IO[bytes]:
    assert pipe is not None  # noqa: S101 - for mypy
    return pipe
