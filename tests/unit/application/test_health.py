"""Readiness: anyone may ask, so that it costs little, however many ask and however slow the database is."""

from __future__ import annotations

import asyncio
from dataclasses import replace
from typing import Any

import pytest

from dagmaster.application import health
from dagmaster.application.health import HealthMonitor
from dagmaster.errors import DatabaseUnavailable
from dagmaster.records.fleet import FleetCounts
from dagmaster.store.memory.schema_admin import MemorySchemaAdmin
from dagmaster.store.postgres import schema_version
from tests.unit.application.memory_application import memory_application


class CountedReads:
    """A fleet with an orchestrator that only counts can be read of."""

    added_nodes = None

    def __init__(self) -> None:
        self.reads = 0

    async def fleet_counts(self) -> FleetCounts:
        self.reads += 1
        return FleetCounts(1, 0)


class SlowSchema(MemorySchemaAdmin):
    """A schema whose state is read when a test allows it; meanwhile seconds pass."""

    def __init__(self, clock: Clock) -> None:
        self.gate = asyncio.Event()
        self._clock = clock

    async def state(self) -> Any:
        await self.gate.wait()
        self._clock.seconds += 10.0
        return await super().state()


class Clock:
    """The times of the monitor."""

    seconds = 1000.0

    def monotonic(self) -> float:
        return self.seconds

    time = monotonic


def a_monitor(monkeypatch: pytest.MonkeyPatch) -> tuple[HealthMonitor, SlowSchema, Any, Clock]:
    clock, reads = Clock(), CountedReads()
    monkeypatch.setattr(health, "time", clock)
    schema = SlowSchema(clock)
    app: Any = replace(memory_application(), read=reads)  # type: ignore[arg-type]
    return HealthMonitor(app, schema), schema, reads, clock


def test_all_who_ask_for_readiness_at_once_share_one_check_that_only_counts(monkeypatch):
    async def main() -> None:
        monitor, schema, reads, _ = a_monitor(monkeypatch)
        asked = [asyncio.create_task(monitor.check_readiness()) for _ in range(50)]
        await asyncio.sleep(0)
        # One that goes away does not end the check of the others.
        asked.pop(0).cancel()
        schema.gate.set()
        assert all(view.is_ready for view in await asyncio.gather(*asked))
        assert reads.reads == 1

    asyncio.run(main())


def test_an_answer_about_readiness_is_used_for_a_second_after_a_slow_check(monkeypatch):
    async def main() -> None:
        monitor, schema, reads, clock = a_monitor(monkeypatch)
        schema.gate.set()
        for _ in range(3):
            await monitor.check_readiness()
        assert reads.reads == 1
        clock.seconds += health.READY_SECONDS + 0.1
        await monitor.check_readiness()
        assert reads.reads == 2

    asyncio.run(main())


def test_a_database_that_accepts_no_connection_in_time_is_unavailable(monkeypatch):
    monkeypatch.setattr(schema_version, "ANSWER_SECONDS", 0.01)

    async def main() -> None:
        closed = asyncio.Event()

        async def keep_silent(_reader: Any, writer: asyncio.StreamWriter) -> None:
            await closed.wait()
            writer.close()

        server = await asyncio.start_server(keep_silent, "127.0.0.1", 0)
        port = server.sockets[0].getsockname()[1]
        with pytest.raises(DatabaseUnavailable, match="did not answer within"):
            await schema_version.versions(f"postgresql://ada@127.0.0.1:{port}/db")
        closed.set()
        server.close()

    asyncio.run(main())
