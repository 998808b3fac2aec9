"""Chores of orchestrators, which must never stop the jobs."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, Any

import pytest

from dagmaster.errors import DatabaseUnavailable, StatementFailed
from dagmaster.orchestrator import chores
from dagmaster.testing import FakeClock

if TYPE_CHECKING:
    from dagmaster.errors import DagmasterError


@pytest.mark.parametrize("error", [StatementFailed("no such table"), DatabaseUnavailable("it took too long")])
def test_metrics_that_cannot_be_counted_stop_nothing(error: DagmasterError, caplog):
    class Store:
        async def roll_up_metrics(self) -> int:
            raise error

    store: Any = Store()
    asyncio.run(chores.MetricRollup(store).run_once())
    assert "are counted in the metrics later" in caplog.text


def test_old_metrics_are_pruned_once_an_hour_in_batches():
    pruned: list[float] = []

    class Store:
        clock = FakeClock()
        batches = iter([2, 1, 0, 0])

        async def roll_up_metrics(self) -> int:
            return 0

        async def prune_metrics(self, retention_seconds: float) -> int:
            pruned.append(retention_seconds)
            return next(self.batches)

    store: Any = Store()

    async def main() -> None:
        for metrics in (chores.MetricRollup(store), chores.MetricRollup(store, 60.0)):
            for _ in range(3):
                await metrics.run_once()
        assert pruned == [60.0] * 3, "all batches, once; nothing without a retention"
        store.clock.move(chores.PRUNE_SECONDS)
        await metrics.run_once()
        assert len(pruned) == 4

    asyncio.run(main())
