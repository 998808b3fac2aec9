"""Compiles and draws workflows in dedicated threads, and checks what callers send in processes.

A workflow file of 1 MB takes seconds. On the event loop it would delay every other request, and so the
heartbeats of workers that speak HTTP and of an orchestrator that serves the API.
"""

from __future__ import annotations

import asyncio
import copy
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from typing import TYPE_CHECKING, Any, Final, ParamSpec, TypeVar

if TYPE_CHECKING:
    from collections.abc import Callable

    from dagmaster.host.check_processes import CheckProcesses
    from dagmaster.json_types import JsonValue

P = ParamSpec("P")
T = TypeVar("T")
MAX_THREADS: Final = 2


class CompilerThreads:
    """A few threads of a server, for what is stored or checked; further work waits for one of them.

    Not `asyncio.to_thread` behind a semaphore: a cancelled request would release it while its thread still
    works.
    """

    def __init__(self, processes: CheckProcesses | None = None) -> None:
        self._pool = ThreadPoolExecutor(MAX_THREADS, "dagmaster-compiler")
        self._processes = processes
        self._actor: str | None = None

    def on_behalf_of(self, actor: str) -> CompilerThreads:
        """Return the same threads and processes, for the requests of one caller."""
        same = copy.copy(self)
        same._actor = actor  # noqa: SLF001 - a copy of this object
        return same

    async def run(self, work: Callable[P, T], *args: P.args, **options: P.kwargs) -> T:
        loop = asyncio.get_running_loop()
        return await loop.run_in_executor(self._pool, partial(work, *args, **options))

    async def check(self, function: Callable[..., JsonValue], /, **arguments: Any) -> Any:
        """Call a function of a module in a process that can be killed; its arguments and its answer are JSON.

        Without processes, as in tests, in a thread. Raise `CheckLimitExceeded` or `ChecksBusy`.
        """
        if self._processes is None:
            return await self.run(function, **arguments)
        return await self._processes.run(function, self._actor, **arguments)
