"""An orchestrator that runs while a block of code does, for one job."""

from __future__ import annotations

import asyncio
import contextlib
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import AsyncIterator

    from dagmaster.orchestrator.service import Orchestrator


@contextlib.asynccontextmanager
async def running(orchestrator: Orchestrator) -> AsyncIterator[None]:
    """Run an orchestrator until the block ends; it releases its job then."""
    task = asyncio.create_task(orchestrator.run())
    try:
        yield
    finally:
        orchestrator.stop()
        await asyncio.gather(task, return_exceptions=True)
