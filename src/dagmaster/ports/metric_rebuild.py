"""Counting all finished jobs again, in calls of bounded length."""

from __future__ import annotations

from typing import NamedTuple, Protocol


class CountedJobs(NamedTuple):
    """How many jobs a call counted, how many are still queued, and whether this rebuild still counts them."""

    counted: int
    pending: int
    is_last: bool


class MetricRebuilder(Protocol):
    """Counts finished jobs again. If a rebuild is interrupted, orchestrators count the rest."""

    async def start(self) -> int:
        """Delete all sums and queue every finished job in one transaction; return this rebuild's number."""

    async def count(self, rebuild: int) -> CountedJobs:
        """Count some thousand queued jobs.

        It is the last call if none is queued, or another process counts them.
        """
