"""A pool of warm, killable processes for handlers that block.

A process runs one task at a time and is reused; one that was killed or died is replaced when it is needed.
Further tasks wait in order. `process_client` is one process.
"""

from __future__ import annotations

import asyncio
import os
import subprocess
import sys
import uuid
from collections import deque
from pathlib import Path
from typing import TYPE_CHECKING, Any

from dagmaster.ports.task_messages import Failed, Outcome
from dagmaster.telemetry import traces
from dagmaster.worker import process_sweeper
from dagmaster.worker.process_client import KILL_SECONDS, SHUTDOWN_SECONDS, HandlerProcess
from dagmaster.worker.scratch_cleanup import remove_process_dir, remove_stale_dirs

if TYPE_CHECKING:
    from dagmaster.json_types import JsonObject
    from dagmaster.worker.lazy_services import ServicesConfig
    from dagmaster.worker.process_client import Job

IDLE_SECONDS = 60.0
"""How long a process is idle before it is ended. The last one stays."""


class HandlerProcesses:
    """At most `limit` processes. `modules` are those that `discover` found the handlers in."""

    def __init__(
        self,
        modules: tuple[str, ...],
        *,
        limit: int,
        memory_limit_mb: int | None = None,
        services: ServicesConfig | None = None,
        idle_seconds: float = IDLE_SECONDS,
    ) -> None:
        if limit < 1:
            raise ValueError(f"limit is at least 1, not {limit}")
        self._modules = modules
        self.limit = limit
        self._memory_limit_mb = memory_limit_mb
        self._services = services
        self._scratch = None if services is None else Path(services.config["scratch"])
        if self._scratch is not None:
            remove_stale_dirs(self._scratch)
        self._idle_seconds = idle_seconds
        self._waiting: deque[Job] = deque()
        self._processes: dict[HandlerProcess, asyncio.Task[None]] = {}
        self._starting: set[HandlerProcess] = set()
        self._busy: dict[Job, HandlerProcess] = {}
        # The most recently used one is used next, so that the others become idle long enough to be ended.
        self._idle: list[HandlerProcess] = []
        self._reap_timer: asyncio.TimerHandle | None = None
        self._closed = False
        self._mark = uuid.uuid4().hex
        self._started = 0
        self._sweeper: subprocess.Popen[bytes] | None = None

    # ── Requests of the executor ────────────────────────────────────────────────────────────────────────────

    def submit(self, job: Job) -> None:
        self._waiting.append(job)
        self._assign()

    def cancel(self, job: Job) -> None:
        process = self._busy.get(job)
        if process is not None:
            process.cancel()

    def answer(self, job: Job, message: JsonObject) -> None:
        """Answer a request of a handler, if it still runs."""
        process = self._busy.get(job)
        if process is not None:
            process.answer(message)

    def kill(self, job: Job) -> None:
        """Kill the process group of a job. When it is dead, the job is done."""
        process = self._busy.get(job)
        if process is not None:
            process.kill()

    async def kill_and_wait(self, job: Job) -> None:
        """Kill the process of a job, and wait until it is dead."""
        process = self._busy.get(job)
        if process is not None:
            process.kill()
            await asyncio.wait([self._processes[process]], timeout=KILL_SECONDS)

    def end_for_memory(self, pid: int, used_mb: int, limit_mb: int) -> None:
        """Kill the process that uses up the memory of the worker; its task fails."""
        for process in self._processes:
            if process.pid == pid:
                process.end_for_memory(used_mb, limit_mb)

    async def close(self) -> None:
        """Let all processes end. Those that do not are killed."""
        self._closed = True
        if self._reap_timer is not None:
            self._reap_timer.cancel()
        supervisors = list(self._processes.values())
        for process in list(self._processes):
            process.shut_down()
        if supervisors:
            await asyncio.wait(supervisors, timeout=SHUTDOWN_SECONDS + KILL_SECONDS)
        if self._sweeper is not None:
            await asyncio.to_thread(_end_sweeper, self._sweeper)

    def pids(self) -> list[int]:
        return [process.pid for process in self._processes if process.pid]

    # ── Events of processes ─────────────────────────────────────────────────────────────────────────────────

    def on_ready(self, process: HandlerProcess) -> None:
        """Assign a waiting job to a new process."""
        self._starting.discard(process)
        self._set_idle(process)
        self._assign()

    def on_finished(self, process: HandlerProcess, outcome: Outcome) -> None:
        """Report the outcome, and assign the next job."""
        job, process.job = process.job, None
        if job is None:
            return
        del self._busy[job]
        if isinstance(outcome, Failed) and outcome.error.get("kind") == "out_of_memory":
            # Its memory is fragmented.
            process.shut_down()
        else:
            self._set_idle(process)
        try:
            job.on_done(outcome)
        finally:
            self._assign()

    def on_exit(self, process: HandlerProcess, outcome: Outcome) -> None:
        if self._processes.pop(process, None) is None:
            return
        if self._scratch is not None and process.last_pid:
            remove_process_dir(self._scratch, process.last_pid)
        if process in self._idle:
            self._idle.remove(process)
        job, process.job = process.job, None
        if job is not None:
            del self._busy[job]
        elif process in self._starting and not self._closed:
            job = self._next_job()
            if job is not None and process.early_text():
                job.on_report(process.early_text())
        self._starting.discard(process)
        try:
            if job is not None:
                job.on_done(outcome)
        finally:
            self._assign()

    # ── Assignment ──────────────────────────────────────────────────────────────────────────────────────────

    def _assign(self) -> None:
        # One that died while it was idle is removed only when its exit code is known.
        self._idle = [process for process in self._idle if not process.is_ending]
        while self._idle and (job := self._next_job()) is not None:
            process = self._idle.pop()
            self._busy[job] = process
            process.run(job)
        if not self._closed:
            missing = len(self._waiting) - len(self._starting)
            for _ in range(min(missing, self.limit - len(self._processes))):
                self._start()

    def _next_job(self) -> Job | None:
        """Return the job that waited longest. Jobs that were stopped meanwhile are skipped."""
        while self._waiting:
            job = self._waiting.popleft()
            if job.begin():
                return job
        return None

    def _start(self) -> None:
        if self._sweeper is None:
            self._sweeper = _start_sweeper(self._mark)
        self._started += 1
        process = HandlerProcess(self, self._start_message(), f"{self._mark}.{self._started}")
        self._starting.add(process)
        self._processes[process] = asyncio.get_running_loop().create_task(process.supervise())

    def _start_message(self) -> dict[str, Any]:
        services = self._services
        return {
            "modules": self._modules,
            "path": sys.path,
            "memory_limit_mb": self._memory_limit_mb,
            "services": None
            if services is None
            else {"factory": services.factory, "config": services.config},
            "tracing": traces.config_of_children(),
        }

    def _set_idle(self, process: HandlerProcess) -> None:
        process.idle_since = asyncio.get_running_loop().time()
        self._idle.append(process)
        if self._reap_timer is None and self._active_count() > 1:
            self._reap_idle_later()

    # ── Idle processes ──────────────────────────────────────────────────────────────────────────────────────

    def _reap_idle_later(self) -> None:
        self._reap_timer = asyncio.get_running_loop().call_later(self._idle_seconds, self._reap_idle)

    def _reap_idle(self) -> None:
        self._reap_timer = None
        idle_before = asyncio.get_running_loop().time() - self._idle_seconds
        for process in list(self._idle):
            if process.idle_since <= idle_before and self._active_count() > 1:
                self._idle.remove(process)
                process.shut_down()
        if self._idle and self._active_count() > 1:
            self._reap_idle_later()

    def _active_count(self) -> int:
        return sum(not process.is_ending for process in self._processes)


def _start_sweeper(mark: str) -> subprocess.Popen[bytes]:
    """Start the process that ends what handlers started when this process has died."""
    command = [sys.executable, "-I", "-S", process_sweeper.__file__, mark, str(os.getpid())]
    null = subprocess.DEVNULL
    # In a new session: a signal to the process group of the worker must not end it first.
    return subprocess.Popen(  # noqa: S603 - our own program
        command, stdin=subprocess.PIPE, stdout=null, stderr=null, start_new_session=True
    )


def _end_sweeper(sweeper: subprocess.Popen[bytes]) -> None:
    try:
        sweeper.communicate(timeout=SHUTDOWN_SECONDS)
    except subprocess.TimeoutExpired:
        # A process that a handler of this process forked holds the pipe open.
        sweeper.kill()
        sweeper.wait()
