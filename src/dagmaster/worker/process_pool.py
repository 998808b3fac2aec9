"""Warm, killable processes for handlers that block: who waits, who works, who rests.

A process serves one task at a time and is used again; one that was killed or died is replaced when it is needed. The
others wait in order. How one process is started and listened to is in `handler_process`.
"""

from __future__ import annotations

import asyncio
import sys
from collections import deque
from pathlib import Path
from typing import TYPE_CHECKING, Any

from dagmaster.ports.task_messages import Failed, Outcome
from dagmaster.worker.process_client import KILL_SECONDS, LEAVE_SECONDS, HandlerProcess
from dagmaster.worker.scratch_cleanup import forget, sweep

if TYPE_CHECKING:
    from dagmaster.worker.lazy_services import ServicesConfig
    from dagmaster.worker.process_client import Job

IDLE_SECONDS = 60.0
"""How long a process rests before it is let go. The last one stays."""


class HandlerProcesses:
    """At most `limit` processes. `modules` are those that `discover` found the handlers in."""

    def __init__(
        self,
        modules: tuple[str, ...],
        *,
        limit: int,
        memory_limit_mb: int | None = None,
        lending: ServicesConfig | None = None,
        idle_seconds: float = IDLE_SECONDS,
    ) -> None:
        if limit < 1:
            raise ValueError(f"limit is at least 1, not {limit}")
        self._modules = modules
        self.limit = limit
        self._memory_limit_mb = memory_limit_mb
        self._lending = lending
        self._scratch = None if lending is None else Path(lending.config["scratch"])
        if self._scratch is not None:
            sweep(self._scratch)
        self._idle_seconds = idle_seconds
        self._waiting: deque[Job] = deque()
        self._lives: dict[HandlerProcess, asyncio.Task[None]] = {}
        self._starting: set[HandlerProcess] = set()
        self._busy: dict[Job, HandlerProcess] = {}
        # The one that rested least is used next: the others get the chance to be let go.
        self._idle: list[HandlerProcess] = []
        self._tidying: asyncio.TimerHandle | None = None
        self._closed = False

    # ── what the executor wants ─────────────────────────────────────────────────────────────────────────────────────

    def submit(self, job: Job) -> None:
        """Run a job as soon as there is a process."""
        self._waiting.append(job)
        self._fill()

    def cancel(self, job: Job) -> None:
        """Ask the handler to stop."""
        process = self._busy.get(job)
        if process is not None:
            process.cancel()

    def kill(self, job: Job) -> None:
        """Kill the process of a job, and what that started. When all of it is dead, the job is done."""
        process = self._busy.get(job)
        if process is not None:
            process.kill()

    async def killed(self, job: Job) -> None:
        """Kill the process of a job, and wait until it is dead."""
        process = self._busy.get(job)
        if process is not None:
            process.kill()
            await asyncio.wait([self._lives[process]], timeout=KILL_SECONDS)

    async def close(self) -> None:
        """Let all processes end. Those that do not are killed."""
        self._closed = True
        if self._tidying is not None:
            self._tidying.cancel()
        lives = list(self._lives.values())
        for process in list(self._lives):
            process.leave()
        if lives:
            await asyncio.wait(lives, timeout=LEAVE_SECONDS + KILL_SECONDS)

    def pids(self) -> list[int]:
        """The processes that live."""
        return [process.pid for process in self._lives if process.pid]

    # ── what the processes say ──────────────────────────────────────────────────────────────────────────────────────

    def ready(self, process: HandlerProcess) -> None:
        """Give it something to do."""
        self._starting.discard(process)
        self._rest(process)
        self._fill()

    def finished(self, process: HandlerProcess, outcome: Outcome) -> None:
        """Tell the outcome, and give the process something else to do."""
        job, process.job = process.job, None
        if job is None:
            return
        del self._busy[job]
        if isinstance(outcome, Failed) and outcome.error.get("kind") == "out_of_memory":
            # What is left of its memory is in pieces.
            process.leave()
        else:
            self._rest(process)
        try:
            job.done(outcome)
        finally:
            self._fill()

    def gone(self, process: HandlerProcess, outcome: Outcome) -> None:
        """Its place is free. A task that was on it is over; so is one, and only one, that waited for its start."""
        if self._lives.pop(process, None) is None:
            return
        if self._scratch is not None and process.last_pid:
            forget(self._scratch, process.last_pid)
        if process in self._idle:
            self._idle.remove(process)
        job, process.job = process.job, None
        if job is not None:
            del self._busy[job]
        elif process in self._starting and not self._closed:
            job = self._next_wanted()
            if job is not None and process.early_text():
                job.heard(process.early_text())
        self._starting.discard(process)
        try:
            if job is not None:
                job.done(outcome)
        finally:
            self._fill()

    # ── who gets a process ──────────────────────────────────────────────────────────────────────────────────────────

    def _fill(self) -> None:
        # One that died while it rested is not gone before its exit code is known.
        self._idle = [process for process in self._idle if not process.ending]
        while self._idle and (job := self._next_wanted()) is not None:
            process = self._idle.pop()
            self._busy[job] = process
            process.run(job)
        if not self._closed:
            lacking = len(self._waiting) - len(self._starting)
            for _ in range(min(lacking, self.limit - len(self._lives))):
                self._start()

    def _next_wanted(self) -> Job | None:
        """The job that waited longest. Those that were stopped meanwhile do not begin."""
        while self._waiting:
            job = self._waiting.popleft()
            if job.begin():
                return job
        return None

    def _start(self) -> None:
        process = HandlerProcess(self, self._hello())
        self._starting.add(process)
        self._lives[process] = asyncio.get_running_loop().create_task(process.live())

    def _hello(self) -> dict[str, Any]:
        lending = self._lending
        return {
            "modules": self._modules,
            "path": sys.path,
            "memory_limit_mb": self._memory_limit_mb,
            "lending": None if lending is None else {"factory": lending.factory, "config": lending.config},
        }

    def _rest(self, process: HandlerProcess) -> None:
        process.idle_since = asyncio.get_running_loop().time()
        self._idle.append(process)
        if self._tidying is None and self._staying() > 1:
            self._tidy_later()

    # ── who is let go ───────────────────────────────────────────────────────────────────────────────────────────────

    def _tidy_later(self) -> None:
        self._tidying = asyncio.get_running_loop().call_later(self._idle_seconds, self._tidy)

    def _tidy(self) -> None:
        self._tidying = None
        rested_enough = asyncio.get_running_loop().time() - self._idle_seconds
        for process in list(self._idle):
            if process.idle_since <= rested_enough and self._staying() > 1:
                self._idle.remove(process)
                process.leave()
        if self._idle and self._staying() > 1:
            self._tidy_later()

    def _staying(self) -> int:
        return sum(not process.ending for process in self._lives)
