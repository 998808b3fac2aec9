"""An executor with child processes: what the tests of processes share."""

from __future__ import annotations

import asyncio
import os
import select
from functools import cache
from pathlib import Path
from typing import TYPE_CHECKING, Any

from dagmaster.ports.task_messages import Outcome, Succeeded, TaskMessage
from dagmaster.sdk.handler_registry import Registry, discover
from dagmaster.worker.executor import Executor
from dagmaster.worker.options import ExecutorLimits
from dagmaster.worker.process_pool import HandlerProcesses
from tests.patience import PATIENCE_SECONDS
from tests.unit.worker.executor_fixtures import RecordedReports

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable

    from dagmaster.ports.handler_reports import Progress

HANDLERS = "tests.unit.worker.process_handlers"


class Watched(RecordedReports):
    """Reports, and when each task first made one."""

    def __init__(self) -> None:
        super().__init__()
        self._first: dict[str, asyncio.Future[Progress]] = {}

    def first(self, task_id: str = "1") -> asyncio.Future[Progress]:
        if task_id not in self._first:
            self._first[task_id] = asyncio.get_running_loop().create_future()
        return self._first[task_id]

    def progress(self, task: TaskMessage, progress: Progress) -> None:
        super().progress(task, progress)
        if not self.first(task.task_id).done():
            self.first(task.task_id).set_result(progress)

    def text(self, task_id: str = "1") -> str:
        return "".join(
            message for one, message in self.entries if one == task_id and isinstance(message, str)
        )


@cache
def registry() -> Registry:
    return discover([HANDLERS], entry_points=False)


def task(
    handler: str, task_id: str = "1", timeout_seconds: float | None = None, **params: Any
) -> TaskMessage:
    return TaskMessage(task_id, "7", "node", handler, params, timeout_seconds)


def with_processes(
    main: Callable[[Executor, Watched], Awaitable[Any]],
    *,
    limit: int = 2,
    grace_seconds: float = 2.0,
    modules: tuple[str, ...] = (HANDLERS,),
    **options: Any,
) -> Any:
    async def bounded() -> Any:
        processes = HandlerProcesses(modules, limit=limit, **options)
        watched = Watched()
        executor = Executor(
            registry(),
            processes=processes,
            reports=watched,
            limits=ExecutorLimits(grace_seconds=grace_seconds),
        )
        try:
            return await asyncio.wait_for(main(executor, watched), PATIENCE_SECONDS)
        finally:
            await executor.close()
            assert processes.pids() == []

    return asyncio.run(bounded())


def outcome_of(message: TaskMessage, **options: Any) -> tuple[Outcome, Watched]:
    """Return the outcome of one task, and its reports."""

    async def main(executor: Executor, watched: Watched) -> tuple[Outcome, Watched]:
        return await executor.execute(message), watched

    result: tuple[Outcome, Watched] = with_processes(main, **options)
    return result


def output(outcome: Outcome) -> dict[str, Any]:
    assert isinstance(outcome, Succeeded), outcome
    output: dict[str, Any] = outcome.output
    return output


def lives(pid: float | None) -> bool:
    """Whether a process runs. One that is dead and waits for its parent to notice does not."""
    try:
        stat = Path(f"/proc/{int(pid or 0)}/stat").read_text()
    except (FileNotFoundError, ProcessLookupError):
        return False
    return stat.rpartition(")")[2].split()[0] not in {"Z", "X"}


def ends(pid: float | None) -> bool:
    """Wait for the end of a process that is not our child: there is no signal when it has ended."""
    try:
        pidfd = os.pidfd_open(int(pid or 0))
    except ProcessLookupError:
        return True
    try:
        # A pidfd is readable when its process has ended.
        readable, _, _ = select.select([pidfd], [], [], PATIENCE_SECONDS)
        return bool(readable)
    finally:
        os.close(pidfd)
