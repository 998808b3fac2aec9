"""The drain of an orchestrator: it claims no jobs, and other orchestrators get the jobs it owns.

It stays registered: a supervisor that starts it again would only undo the drain (ADR 0033).
"""

from __future__ import annotations

import logging
from typing import TYPE_CHECKING

from dagmaster.text_format import format_count

if TYPE_CHECKING:
    from collections.abc import Collection

    from dagmaster.ports.orchestrator_store import OrchestratorStore

_LOGGER = logging.getLogger("dagmaster.orchestrator")


class Drain:
    """Follows the requests that heartbeats bring."""

    def __init__(self, store: OrchestratorStore) -> None:
        self._store = store
        self.is_requested = False
        self._is_new = False

    def follow(self, *, is_requested: bool) -> bool:
        """Take the answer of a heartbeat; return whether the request changed."""
        if is_requested == self.is_requested:
            return False
        self.is_requested = self._is_new = is_requested
        if not is_requested:
            _LOGGER.info("the drain of this orchestrator was withdrawn; it claims jobs again")
        return True

    async def release_jobs(self, jobs: Collection[str]) -> bool:
        """Release every job if there is a request; return whether the loaded ones have to be dropped.

        Once, also those that are not loaded; and later what a claim brought that was in flight at the time,
        whether it is loaded or quarantined.
        """
        if not self.is_requested or not (jobs or self._is_new):
            return False
        released = await self._store.release_jobs()
        self._is_new = False
        _LOGGER.info(
            "an operator asked this orchestrator to drain; it released %s and claims none",
            format_count(released, "job"),
        )
        return True
