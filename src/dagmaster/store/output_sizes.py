"""The size of large outputs together. Shared by the stores."""

from __future__ import annotations

import asyncio
import contextlib
from typing import TYPE_CHECKING, Final

from dagmaster.errors import BlobNotFound

if TYPE_CHECKING:
    from collections.abc import Iterable

    from dagmaster.ports.output_blobs import OutputBlobs

MAX_CONCURRENT: Final = 4
"""How many blobs are asked for their size at a time: each costs an object store a round trip.

Each takes a thread of the default pool, which has 5 on one core: at least one is left for other reads of
blobs."""


async def sum_sizes(blobs: OutputBlobs, names: Iterable[str | None]) -> int:
    """Return how many bytes blobs have together; a missing one has none, and is reported when it is read."""
    present = [name for name in names if name is not None]
    remaining = iter(present)

    async def sum_next() -> int:
        total = 0
        # Shared by all: each takes the next name when it has the size of its last one.
        for name in remaining:
            with contextlib.suppress(BlobNotFound):
                total += await blobs.size(name)
        return total

    tasks = [asyncio.ensure_future(sum_next()) for _ in range(min(MAX_CONCURRENT, len(present)))]
    try:
        return sum(await asyncio.gather(*tasks))
    finally:
        for task in tasks:
            task.cancel()
