"""Chores of orchestrators, which must never stop the jobs."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, Any

import pytest

from dagmaster.errors import DatabaseUnavailable, StatementFailed
from dagmaster.orchestrator import chores

if TYPE_CHECKING:
    from dagmaster.errors import DagmasterError


@pytest.mark.parametrize("error", [StatementFailed("no such table"), DatabaseUnavailable("it took too long")])
def test_metrics_that_cannot_be_counted_stop_nothing(error: DagmasterError, caplog):
    class Store:
        async def roll_up_metrics(self) -> int:
            raise error

    store: Any = Store()
    asyncio.run(chores.roll_up_metrics(store))
    assert "are counted in the metrics later" in caplog.text
