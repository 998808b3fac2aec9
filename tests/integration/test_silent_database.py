"""A database that accepts connections and never answers, or whose tables are locked: an operator is told so soon."""

from __future__ import annotations

import asyncio
import socket
from dataclasses import replace
from typing import TYPE_CHECKING

import asyncpg
import pytest
from click.testing import CliRunner

from dagmaster.application.context import Application
from dagmaster.application.fleet_monitor import FleetMonitor
from dagmaster.cli.commands import fleet as fleet_command
from dagmaster.cli.main import cli, main
from dagmaster.errors import DatabaseUnavailable
from dagmaster.ports.api_keys import Caller, Scope
from dagmaster.ports.database_config import DatabaseConfig
from dagmaster.store.postgres.read_store import PostgresReadStore
from tests.conformance.server import dsn_of, release_database, take_database
from tests.patience import PATIENCE_SECONDS

if TYPE_CHECKING:
    from collections.abc import Iterator


@pytest.fixture
def silent_port() -> Iterator[int]:
    """Listen, and accept nothing: the kernel completes connections."""
    with socket.create_server(("127.0.0.1", 0)) as listener:
        yield listener.getsockname()[1]


@pytest.mark.parametrize(
    ("variable", "url"),
    [
        ("DAGMASTER_DATABASE_URL", "postgresql://ada@127.0.0.1:{}/db"),
        ("DAGMASTER_URL", "http://127.0.0.1:{}"),
    ],
)
def test_the_fleet_of_what_never_answers_is_an_error(monkeypatch, capsys, silent_port, variable, url):
    monkeypatch.setattr(fleet_command, "ANSWER_SECONDS", 0.3)
    monkeypatch.setenv(variable, url.format(silent_port))
    with pytest.raises(SystemExit) as exited:
        main(["fleet"])
    assert exited.value.code == 3
    assert "did not answer within" in capsys.readouterr().err


def test_tables_that_are_locked_do_not_stop_the_fleet_from_being_shown(postgres, monkeypatch):
    async def work() -> None:
        name = await take_database(postgres)
        dsn = dsn_of(postgres, name)
        monkeypatch.setenv("DAGMASTER_DATABASE_URL", dsn)
        read = PostgresReadStore(DatabaseConfig(dsn=dsn))
        locker = await asyncpg.connect(dsn)
        app = Application(read=read, client=None, results=None, blobs=None)  # type: ignore[arg-type]
        monitor, late = (
            FleetMonitor(app, answer_seconds=PATIENCE_SECONDS),
            FleetMonitor(app, answer_seconds=0.05),
        )
        try:
            assert (await monitor.snapshot()).stale_seconds == 0.0
            await locker.execute("BEGIN; LOCK TABLE dagapp.dag_workers IN ACCESS EXCLUSIVE MODE")
            monkeypatch.setattr(monitor, "_answer_seconds", 0.05)
            snapshot = await monitor.snapshot()
            assert snapshot.stale_seconds > 0
            assert snapshot.record.read_at is not None
            with pytest.raises(DatabaseUnavailable, match=r"did not answer within 0\.05 seconds"):
                await late.snapshot()
            # What the installation saw is nothing for a tenant.
            caller = Caller(key_id="1", name="p", scopes=frozenset({Scope.READ}), tenant="partner")
            with pytest.raises(DatabaseUnavailable):
                await monitor.snapshot(replace(app, caller=caller, read=read.for_tenant(caller.sees)))
            monkeypatch.setattr(fleet_command, "ANSWER_SECONDS", 0.3)
            result = await asyncio.to_thread(CliRunner().invoke, cli, ["fleet"])
            assert result.exit_code != 0
            assert "check its address, its load and its locks" in result.output
        finally:
            await locker.close()
            await read.close()
            await release_database(postgres, name)

    asyncio.run(work())
