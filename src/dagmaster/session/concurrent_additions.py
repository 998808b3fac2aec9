"""Calls that add to jobs at the same time in one context: if two share a task, one waits for the other."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import Callable, Coroutine

    from dagmaster.authoring.python.graph_collection import Collected


class ConcurrentAdditions:
    """What a context is adding to jobs now."""

    def __init__(self) -> None:
        # The ids of what each call adds or changes, in the order of the calls. A future is done when its call
        # is.
        self._calls: dict[asyncio.Future[None], set[int]] = {}

    async def add(
        self, read: Callable[[], Collected], store: Callable[[Collected], Coroutine[Any, Any, None]]
    ) -> None:
        """Read items and store them, after the earlier calls that add some of them to the job.

        A call that is cancelled while it stores is finished in the background: what it stored is known to the
        next one.
        """
        collected = read()
        affected = collected.affected_ids()
        earlier = [call for call, ids in self._calls.items() if not ids.isdisjoint(affected)]
        call = asyncio.get_running_loop().create_future()
        self._calls[call] = collected.changed_ids()
        try:
            if earlier:
                await asyncio.wait(earlier)
                collected = read()
            storing = asyncio.create_task(store(collected))
        except BaseException:
            self._end(call)
            raise
        storing.add_done_callback(lambda _: self._end(call))
        await asyncio.shield(storing)

    def _end(self, call: asyncio.Future[None]) -> None:
        del self._calls[call]
        call.set_result(None)

    async def finish(self) -> None:
        """Wait for the calls that were cancelled."""
        if self._calls:
            await asyncio.wait(self._calls)
