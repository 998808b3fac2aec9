"""The drain of a worker: while an operator wants it, the worker claims nothing and lets go of what it holds.

It stays registered: a supervisor that starts it again would only undo the drain (ADR 0033).
"""

from __future__ import annotations

import logging
from typing import TYPE_CHECKING

from dagmaster.text_format import format_count

if TYPE_CHECKING:
    from collections.abc import Collection, Iterable

    from dagmaster.ports.task_ledger import DrainRequest
    from dagmaster.worker.task_pools import TaskPool, ThreadedTaskPool

_LOGGER = logging.getLogger("dagmaster.worker")


class Drain:
    """Follows the requests that heartbeats bring."""

    def __init__(self) -> None:
        self.is_requested = False
        self._is_drained = False
        self._seconds_left: float | None = None

    def limit_wait(self, heartbeat_seconds: float) -> float:
        """Return how long to wait for the next heartbeat: no longer than the rest of the grace period."""
        left = self._seconds_left
        return heartbeat_seconds if left is None or left <= 0 else min(heartbeat_seconds, left)

    def follow(
        self,
        request: DrainRequest | None,
        held: Collection[str],
        pools: Iterable[TaskPool | ThreadedTaskPool],
    ) -> bool:
        """Release what has not started, and what runs after the grace period; tell if the request changed."""
        was_requested, self.is_requested = self.is_requested, request is not None
        self._seconds_left = None if request is None else request.seconds_left
        if request is not None:
            for pool in pools:
                pool.release_waiting()
                if request.seconds_left is not None and request.seconds_left <= 0:
                    pool.stop(list(held), releases=True)
        self._log(was_requested=was_requested, held=len(held))
        return self.is_requested != was_requested

    def _log(self, *, was_requested: bool, held: int) -> None:
        was_drained, self._is_drained = self._is_drained, self.is_requested and not held
        if self.is_requested and not was_requested:
            _LOGGER.info(
                "an operator asked this worker to drain; it claims nothing more and holds %s",
                format_count(held, "task"),
            )
        elif was_requested and not self.is_requested:
            _LOGGER.info("the drain of this worker was withdrawn; it claims again")
        if self._is_drained and not was_drained:
            _LOGGER.info("this worker is drained; it holds nothing and waits to be stopped or undrained")
