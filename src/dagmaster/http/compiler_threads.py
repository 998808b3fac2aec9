"""Compiles, validates and draws workflows in dedicated threads.

A workflow file of 1 MB takes seconds. On the event loop it would delay every other request, and so the
heartbeats of workers that speak HTTP and of an orchestrator that serves the API.
"""

from __future__ import annotations

import asyncio
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from typing import TYPE_CHECKING, Final, ParamSpec, TypeVar

if TYPE_CHECKING:
    from collections.abc import Callable

P = ParamSpec("P")
T = TypeVar("T")
MAX_THREADS: Final = 2


class CompilerThreads:
    """A few threads of a server; further work waits for one of them.

    Not `asyncio.to_thread` behind a semaphore: a cancelled request would release it while its thread still
    works.
    """

    def __init__(self) -> None:
        self._pool = ThreadPoolExecutor(MAX_THREADS, "dagmaster-compiler")

    async def run(self, work: Callable[P, T], *args: P.args, **options: P.kwargs) -> T:
        return await asyncio.get_running_loop().run_in_executor(self._pool, partial(work, *args, **options))
