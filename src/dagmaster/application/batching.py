"""Work that is cheaper together: one statement for the items of many callers."""

from __future__ import annotations

import asyncio
import contextvars
from collections import OrderedDict
from typing import TYPE_CHECKING, Final, Generic, TypeVar

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable, Sequence

T = TypeVar("T")
R = TypeVar("R")
MAX_KEYS: Final = 1_000


class Batcher(Generic[T, R]):
    """Processes items in batches: those that arrive while a batch is processed are in the next one.

    An item that arrives alone is processed at once. `process` returns a result for each item, in their order;
    an error that it raises is raised to each caller of the batch.
    """

    def __init__(self, process: Callable[[Sequence[T]], Awaitable[Sequence[R]]], *, max_size: int) -> None:
        self._process = process
        self._max_size = max_size
        self._pending: list[tuple[T, asyncio.Future[R]]] = []
        self._worker: asyncio.Task[None] | None = None

    async def run(self, item: T) -> R:
        """Process an item, with others; return its result."""
        result: asyncio.Future[R] = asyncio.get_running_loop().create_future()
        self._pending.append((item, result))
        if self._worker is None:
            # In a separate context: a batch is part of no caller's trace.
            self._worker = asyncio.create_task(self._run(), context=contextvars.Context())
        # A caller that is cancelled leaves its item in the batch.
        return await asyncio.shield(result)

    async def _run(self) -> None:
        batch: list[tuple[T, asyncio.Future[R]]] = []
        try:
            while self._pending:
                batch, self._pending = self._pending[: self._max_size], self._pending[self._max_size :]
                try:
                    results = await self._process([item for item, _ in batch])
                    for (_, result), value in zip(batch, results, strict=True):
                        result.set_result(value)
                except Exception as error:  # noqa: BLE001 - it is raised to the callers
                    _fail(batch, error)
        except BaseException:
            # This task was cancelled, or the process ends: no caller may wait for ever.
            _fail(batch, RuntimeError("the batch was interrupted: whether it took effect is not known"))
            _fail(
                self._pending, RuntimeError("the batch before was interrupted: this item was not processed")
            )
            self._pending = []
            raise
        finally:
            self._worker = None


class KeyedBatcher(Generic[T, R]):
    """Processes the items of each key as a `Batcher` does: the items of one key wait for no other key."""

    def __init__(self, process: Callable[[Sequence[T]], Awaitable[Sequence[R]]], *, max_size: int) -> None:
        self._process = process
        self._max_size = max_size
        self._batchers: OrderedDict[str, Batcher[T, R]] = OrderedDict()

    async def run(self, key: str, item: T) -> R:
        """Process an item, with others of its key; return its result."""
        batcher = self._batchers.pop(key, None) or Batcher(self._process, max_size=self._max_size)
        self._batchers[key] = batcher
        if len(self._batchers) > MAX_KEYS:
            # The one that was silent for longest.
            self._batchers.popitem(last=False)
        return await batcher.run(item)


def _fail(batch: Sequence[tuple[T, asyncio.Future[R]]], error: Exception) -> None:
    for _, result in batch:
        if not result.done():
            result.set_exception(error)
            # A caller that was cancelled does not read it, and asyncio would log that.
            result.exception()
