"""How a handler is executed: on the loop, in a thread, or in a child process."""

from __future__ import annotations

from enum import Enum
from typing import TYPE_CHECKING

from dagmaster.sdk.handler_decorator import HandlerStyle
from dagmaster.worker.handler_call import is_blocking

if TYPE_CHECKING:
    from dagmaster.engine.status import Isolation
    from dagmaster.sdk.handler_decorator import HandlerSpec


class ExecutionMode(Enum):
    """How a handler is executed."""

    LOOP = "loop"
    THREAD = "thread"
    PROCESS = "process"


def execution_mode(spec: HandlerSpec, isolation: Isolation, *, has_processes: bool) -> ExecutionMode:
    """Return the execution mode of a handler. Async handlers run on the loop unless they ask for a process.

    A task that may have killed its last worker runs in a process, whatever its handler asks for.
    """
    if has_processes:
        is_default = is_blocking(spec) or spec.style is HandlerStyle.CLASS
        if isolation or spec.isolation == "process" or (spec.isolation is None and is_default):
            return ExecutionMode.PROCESS
    return ExecutionMode.THREAD if is_blocking(spec) else ExecutionMode.LOOP
