"""Readiness: anyone may ask, so that it costs little, however many ask and however slow the database is."""

from __future__ import annotations

import asyncio
import logging
import threading
from dataclasses import replace
from typing import Any

import pytest

from dagmaster.application import health
from dagmaster.application.health import HealthMonitor, describe_conditions
from dagmaster.application.views import HealthState
from dagmaster.errors import DatabaseDiskFull, DatabaseUnavailable, SecretsKeyMissing, SecretsKeyWrong
from dagmaster.host import system_load
from dagmaster.host.connection_backoff import QUIET_SECONDS, ConnectionBackoff
from dagmaster.host.system_load import SystemProbe
from dagmaster.ports.secret_vault import ClosedVault
from dagmaster.records.fleet import FleetCounts, FleetRecord
from dagmaster.records.system import SystemRecord
from dagmaster.store.memory.schema_admin import MemorySchemaAdmin
from dagmaster.store.postgres import schema_version
from dagmaster.ui.pages.fleet import fleet_page
from tests.unit.application.memory_application import memory_application
from tests.unit.ui.test_fleet_pages import a_fleet, a_worker


class CountedReads:
    """A fleet with an orchestrator that only counts can be read of."""

    added_nodes = None

    def __init__(self) -> None:
        self.reads = 0
        self.counts = FleetCounts(1, 0)

    async def fleet_counts(self) -> FleetCounts:
        self.reads += 1
        return self.counts


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


ROOMY = SystemRecord(
    cpu_count=4,
    load_average=1.5,
    memory_bytes=8_000_000_000,
    memory_free_bytes=4_000_000_000,
    disk_bytes=100_000_000_000,
    disk_free_bytes=40_000_000_000,
)


@pytest.mark.parametrize(
    ("load", "state", "detail"),
    [
        (
            ROOMY,
            HealthState.HEALTHY,
            "load 1.50 on 4 processors, 4.0 GB of 8.0 GB of memory free, 40.0 GB of",
        ),
        (replace(ROOMY, load_average=400.0), HealthState.HEALTHY, "load 400.00"),
        (replace(ROOMY, disk_free_bytes=1_000_000), HealthState.UNHEALTHY, "1.0 MB of 100.0 GB free"),
        (replace(ROOMY, memory_free_bytes=10_000_000), HealthState.UNHEALTHY, "10.0 MB of 8.0 GB of memory"),
        (replace(ROOMY, disk_bytes=None, disk_free_bytes=None), HealthState.HEALTHY, "of memory free"),
        (None, HealthState.UNKNOWN, "did not answer in time"),
    ],
)
def test_the_machine_of_a_server_is_a_part_of_its_health(load, state, detail):
    class FixedProbe(SystemProbe):
        async def measure(self) -> SystemRecord | None:
            return load  # type: ignore[no-any-return]

    async def main() -> None:
        view = await HealthMonitor(memory_application(), MemorySchemaAdmin(), FixedProbe()).check()
        assert view.parts["system"].state is state
        assert detail in view.parts["system"].detail
        assert view.system == load

    asyncio.run(main())


def test_the_disk_of_the_data_is_measured_before_the_directory_exists(tmp_path):
    load = asyncio.run(SystemProbe(tmp_path / "not" / "yet").measure())
    assert load is not None
    assert load.disk_bytes
    assert load.memory_bytes > load.memory_free_bytes > 0
    assert load.cpu_count >= 1


def test_a_disk_that_does_not_answer_holds_one_thread_and_no_answer(monkeypatch):
    released, calls = threading.Event(), []

    def hang(directory: Any) -> SystemRecord:
        calls.append(directory)
        released.wait()
        return ROOMY

    monkeypatch.setattr(system_load, "measure", hang)

    async def main() -> None:
        probe = SystemProbe(answer_seconds=0.01)
        assert [await probe.measure(), await probe.measure()] == [None, None]
        released.set()
        probe = SystemProbe()
        assert await probe.measure() == ROOMY

    asyncio.run(main())
    assert len(calls) == 2


@pytest.mark.parametrize(
    ("counts", "error", "failing"),
    [
        (FleetCounts(1, 0), None, ()),
        (FleetCounts(0, 0, draining_orchestrators=1), None, ("orchestrators",)),
        (FleetCounts(1, 0, hindered_orchestrators=1), None, ("database",)),
        (FleetCounts(1, 0), SecretsKeyMissing(), ("secrets_key",)),
        (FleetCounts(1, 0), SecretsKeyWrong(), ("secrets_key",)),
        (FleetCounts(0, 0), SecretsKeyWrong(), ("secrets_key", "orchestrators")),
    ],
)
def test_readiness_names_every_part_that_fails(monkeypatch, counts, error, failing):
    class Vault(ClosedVault):
        async def check(self) -> None:
            if error is not None:
                raise error

    async def main() -> None:
        monitor, schema, reads, _ = a_monitor(monkeypatch)
        monitor._app = replace(monitor._app, vault=Vault())
        reads.counts = counts
        schema.gate.set()
        view = await monitor.check_readiness()
        assert (view.is_ready, view.failing) == (not failing, failing)

    asyncio.run(main())


def test_a_database_that_does_not_say_what_services_there_are_is_not_ready(monkeypatch):
    monkeypatch.setattr(health, "ANSWER_SECONDS", 0.01)

    async def main() -> None:
        monitor, schema, reads, _ = a_monitor(monkeypatch)
        schema.gate.set()
        reads.fleet_counts = asyncio.Event().wait
        assert (await monitor.check_readiness()).failing == (
            "database",
            "tenants",
            "secrets_key",
            "orchestrators",
        )

    asyncio.run(main())


def test_a_full_disk_that_a_service_meets_is_shown_by_health_and_fleet():
    now = [0.0]
    backoff = ConnectionBackoff(logging.getLogger("test"), clock=lambda: now[0])
    backoff.on_failure(DatabaseDiskFull("the disk of the database is full: free some space"))
    backoff.on_success()
    full = a_worker(counters={**backoff.counters()})
    sentence = "the disk of the database is full (as met by h:7)"
    assert describe_conditions([full, a_worker()]) == sentence
    assert fleet_page(a_fleet(full)).warning == sentence
    assert fleet_page(a_fleet(a_worker())).warning == ""

    class Reads(CountedReads):
        async def fleet(self) -> FleetRecord:
            return a_fleet(full)

    async def main() -> None:
        app: Any = replace(memory_application(), read=Reads())  # type: ignore[arg-type]
        part = (await HealthMonitor(app, MemorySchemaAdmin()).check()).parts["database"]
        assert (part.state, part.detail) == (HealthState.UNHEALTHY, sentence)

    asyncio.run(main())
    now[0] += QUIET_SECONDS
    assert backoff.counters() == {}
