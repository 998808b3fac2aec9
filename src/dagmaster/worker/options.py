"""What a worker is made of, and how it works: the outside world it reaches, and its times and limits."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Final

from dagmaster.engine.graph import DEFAULT_TIMEOUT_SECONDS
from dagmaster.ports.default_settings import (
    BLOCKED_SECONDS,
    CONCURRENCY,
    DRAIN_SECONDS,
    POLL_SECONDS,
    WORKER_LEASE_SECONDS,
)
from dagmaster.ports.secret_vault import ClosedVault

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence
    from pathlib import Path

    from dagmaster.ports.output_blobs import OutputBlobs
    from dagmaster.ports.secret_vault import SecretVault
    from dagmaster.ports.task_journal import TaskJournal
    from dagmaster.ports.task_ledger import TaskLedger
    from dagmaster.ports.task_source import TaskSource

GRACE_SECONDS: Final = 2.0
"""How long a handler that was asked to stop has to end by itself. Then it is killed or abandoned."""

INTERRUPT_SECONDS: Final = 10.0
"""How long an interrupted function may take to end: a system call cannot be interrupted, and may return."""

STALL_SECONDS: Final = 1.0
"""Tasks that wait for a slot are released if none becomes free in this time: other workers may have one."""


@dataclass(frozen=True, slots=True, kw_only=True)
class WorkerPorts:
    """The outside world of a worker. `secrets` returns a secret by its name, `vault` reads secret inputs."""

    source: TaskSource
    ledger: TaskLedger
    journal: TaskJournal
    blobs: OutputBlobs
    secrets: Callable[[str], str | None]
    vault: SecretVault = field(default_factory=ClosedVault)


@dataclass(frozen=True, slots=True, kw_only=True)
class WorkerOptions:
    """What a worker serves, and its times and limits. No queues: it serves every queue.

    `shares_loop`: async handlers run on the loop of the service, their output is captured only for files, and
    a plain function that timed out is waited for, not abandoned. For tests and simulations, which have no
    other worker. `recycles`: a supervisor restarts this worker when it exits, so it does once it has
    abandoned a thread, or uses `memory_limit_mb` of memory with its child processes (0: no limit). `echoes`:
    what handlers of this process print is captured and printed. `logs_silent_tasks`: an attempt that printed
    nothing and did not fail has a file in `log_dir` as well.
    """

    queues: Sequence[str] = ()
    concurrency: int = CONCURRENCY
    poll_seconds: float = POLL_SECONDS
    heartbeat_seconds: float = WORKER_LEASE_SECONDS / 3
    drain_seconds: float = DRAIN_SECONDS
    blocked_seconds: float = BLOCKED_SECONDS
    task_timeout_seconds: float = DEFAULT_TIMEOUT_SECONDS
    stall_seconds: float = STALL_SECONDS
    shares_loop: bool = False
    recycles: bool = False
    memory_limit_mb: int = 0
    publishes_handlers: bool = False
    log_dir: Path | None = None
    logs_silent_tasks: bool = True
    echoes: bool = False

    @property
    def captures(self) -> bool:
        return self.echoes or not self.shares_loop or self.log_dir is not None


@dataclass(frozen=True, slots=True, kw_only=True)
class ExecutorLimits:
    """The threads of an executor, and how long it waits for handlers that should have ended."""

    threads: int = CONCURRENCY
    grace_seconds: float = GRACE_SECONDS
    interrupt_seconds: float = INTERRUPT_SECONDS
    abandons_threads: bool = True
