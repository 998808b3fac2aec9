"""An executor around one function: what the tests of the executor share."""

from __future__ import annotations

import asyncio
import gc
import threading
from typing import TYPE_CHECKING, Any

from dagmaster.ports.task_messages import Failed, Outcome, TaskMessage
from dagmaster.sdk.handler_context import HandlerContext
from dagmaster.sdk.handler_registry import Registry, handler
from dagmaster.worker.executor import Executor
from dagmaster.worker.options import ExecutorLimits
from tests.patience import PATIENCE_SECONDS

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable

    from dagmaster.ports.handler_reports import Checkpoint, Progress


class RecordedReports:
    """Reports that were made, in order."""

    def __init__(self) -> None:
        self.entries: list[Any] = []
        self.threads: set[int] = set()

    def progress(self, task: TaskMessage, progress: Progress) -> None:
        self.threads.add(threading.get_ident())
        self.entries.append((task.task_id, progress))

    def checkpoint(self, task: TaskMessage, checkpoint: Checkpoint) -> None:
        self.threads.add(threading.get_ident())
        self.entries.append((task.task_id, checkpoint))

    def log(self, task: TaskMessage, text: str) -> None:
        self.threads.add(threading.get_ident())
        self.entries.append((task.task_id, text))

    def dump(self, task: TaskMessage, text: str) -> None:
        self.entries.append((task.task_id, ("dump", text)))


def a_task(task_id: str = "1", timeout_seconds: float | None = None, **rest: Any) -> TaskMessage:
    return TaskMessage(task_id, "7", "node", "it", rest.pop("params", {}), timeout_seconds, **rest)


def run(function: Any, message: TaskMessage | None = None, reports: RecordedReports | None = None) -> Outcome:
    """Return the outcome of one task."""

    async def main(executor: Executor) -> Outcome:
        return await executor.execute(message or a_task())

    outcome: Outcome = with_executor(function, main, reports=reports)
    return outcome


def with_executor(
    function: Any,
    main: Callable[[Executor], Awaitable[Any]],
    *,
    reports: RecordedReports | None = None,
    **limits: Any,
) -> Any:
    async def bounded() -> Any:
        one = function if function is forever else handler("it")(function)
        executor = Executor(Registry([one]), reports=reports, limits=ExecutorLimits(**limits))
        try:
            return await asyncio.wait_for(main(executor), PATIENCE_SECONDS)
        finally:
            await executor.close()

    return asyncio.run(bounded())


async def objects_left_by_tasks(executor: Executor) -> list[object]:
    """Execute tasks; return their messages and contexts that only the garbage collector would free.

    Other garbage does not count: servers of other tests run in threads of this process and leave theirs meanwhile.
    """
    gc.disable()
    try:
        for number in range(50):
            await executor.execute(a_task(f"left {number}"))
        return [each for each in gc.get_objects() if _is_of_task(each, "left ")]
    finally:
        gc.enable()


def _is_of_task(each: object, prefix: str) -> bool:
    return type(each) in (HandlerContext, TaskMessage) and each.task_id.startswith(prefix)  # type: ignore[attr-defined]


def failure(outcome: Outcome) -> dict[str, Any]:
    assert isinstance(outcome, Failed), outcome
    return outcome.error


@handler("it")
async def forever(ctx: HandlerContext) -> None:
    await asyncio.Event().wait()
