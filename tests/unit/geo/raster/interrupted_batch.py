"""A batch of tiles that stops at the thirteenth, the first time: for a test that kills its process there."""

from __future__ import annotations

import threading
from typing import TYPE_CHECKING

from dagmaster.geo.raster.tile_handlers import TileBatch, TileBatchParams, process_tile_batch
from dagmaster.sdk.handler_context import HandlerContext
from dagmaster.sdk.handler_registry import handler

if TYPE_CHECKING:
    from dagmaster.ports.handler_reports import Checkpoint, Progress, Reporter


class Holding:
    """Passes reports on, and holds the handler once it is at a tile."""

    def __init__(self, inner: Reporter, at: int) -> None:
        self._inner, self._at = inner, at

    def progress(self, progress: Progress) -> None:
        self._inner.progress(progress)
        if progress.message == f"tile {self._at} of 20":
            threading.Event().wait()

    def checkpoint(self, checkpoint: Checkpoint) -> Checkpoint:
        return self._inner.checkpoint(checkpoint)


@handler("held_tiles")
def held_tiles(ctx: HandlerContext, params: TileBatchParams) -> TileBatch:
    """As `raster.process_tile_batch`."""
    if ctx.attempt == 1 and ctx.reporter is not None:
        ctx.reporter = Holding(ctx.reporter, 13)
    return process_tile_batch(ctx, params)
