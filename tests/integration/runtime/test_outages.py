"""The database goes away: connections are cut, the server dies. Everything completes, and nothing is done twice."""

from __future__ import annotations

import asyncio
import contextlib
import logging
from collections import Counter
from typing import TYPE_CHECKING, Self

import asyncpg
import pytest
from asyncpg.exceptions import (
    CheckViolationError,
    InterfaceError,
    InternalClientError,
    LockNotAvailableError,
    PostgresError,
    QueryCanceledError,
    ReadOnlySQLTransactionError,
)

from dagmaster.cli.local_run import LocalRun
from dagmaster.cli.render.live import NoDisplay
from dagmaster.errors import (
    DatabaseReadOnly,
    DatabaseUnavailable,
    EmbeddedPostgresUnavailable,
    StatementFailed,
)
from dagmaster.ports.database_config import DatabaseConfig
from dagmaster.sdk.handler_context import HandlerContext
from dagmaster.sdk.handler_registry import handler
from dagmaster.settings import load_settings
from dagmaster.store.postgres.connection import Connection
from dagmaster.store.postgres.connection_errors import translate_error
from dagmaster.store.postgres.named_queries import Query
from dagmaster.store.postgres.worker_store import PostgresWorkerStore
from tests.integration.runtime.dying_world import DyingWorld
from tests.integration.runtime.runtime_world import Gate, World
from tests.patience import PATIENCE_SECONDS

if TYPE_CHECKING:
    from pathlib import Path

    from dagmaster.store.embedded.server import EmbeddedPostgres

CUT = "SELECT count(pg_terminate_backend(pid)) FROM pg_stat_activity WHERE datname = current_database() AND pid <> pg_backend_pid()"
STEPS = ", ".join(f"n{n}: {{handler: count, depends_on: n{n - 1}}}" for n in range(1, 10))
CHAIN = f"{{name: chain, nodes: {{n0: {{handler: count}}, {STEPS}}}}}"
FAN = "{name: fan, nodes: {p: {handler: make_chunks, params: {count: 200}, next: f}, f: {type: fan_out, source: '{{ nodes.p.output.chunks }}', max_parallel: 20, task: {handler: count}, next: s}, s: {type: fan_in, aggregation: collect}}, outputs: {n: '{{ nodes.s.output.count }}'}}"

LOGGED = ["with backoff", "was restored"]


class Counted:
    """A handler that counts, and stops the others for a moment when it has counted so many."""

    def __init__(self) -> None:
        self.ran: Counter[str] = Counter()
        self.at: dict[int, Gate] = {}

        @handler("count", queue="q")
        async def count(ctx: HandlerContext) -> None:
            self.ran[f"{ctx.job_id} {ctx.node_id}"] += 1
            gate = self.at.get(self.ran.total())
            if gate is not None:
                gate.open()

        self.handler = count

    def reaching(self, number: int) -> Gate:
        gate = self.at[number] = Gate()
        return gate


async def test_connections_that_are_cut_are_made_again_and_nothing_is_done_twice(world: World):
    counted = Counted()
    world.handlers.append(counted.handler)
    moments = [counted.reaching(number) for number in (3, 30, 90, 150)]
    await world.orchestrator()
    await world.worker(concurrency=4)
    jobs = [await world.submit(text) for text in (CHAIN, FAN, CHAIN)]
    for moment in moments:
        await moment.wait()
        assert await world.value(CUT) > 0
    for job in jobs:
        assert (await world.finished(job)).status == "COMPLETED"
    assert len(counted.ran) == 220
    # A report may be lost with its connection; then the task is tried again, and counts once.
    assert counted.ran.total() < 260


async def test_a_connection_that_is_cut_in_the_middle_of_a_turn(world: World):
    """The turn waits for a lock when its connection goes: nothing of it is there, and it is taken again."""
    await world.orchestrator()
    await world.worker()
    job = await world.submit("{name: n, nodes: {w: {type: wait, signal: go, next: a}, a: {handler: echo}}}")
    await world.until_node(job, "w", "WAITING")
    lock = await asyncpg.connect(world.dsn, server_settings={"search_path": "dagapp"})
    try:
        await lock.execute("BEGIN; LOCK TABLE dag_node_states IN EXCLUSIVE MODE")
        await world.send(job, "signal", name="go", payload={"n": 1})
        stuck = "FROM pg_stat_activity WHERE datname = current_database() AND wait_event_type = 'Lock' AND application_name = 'dagmaster orchestrator'"
        await world.until(f"SELECT count(*) > 0 {stuck}")
        assert await world.value(f"SELECT count(pg_terminate_backend(pid)) {stuck}") == 1
        await lock.execute("COMMIT")
    finally:
        await lock.close()
    report = await world.finished(job)
    assert (report.status, report.nodes["w"]["output"]) == ("COMPLETED", {"n": 1})
    assert len(await world.events(job, "SignalReceived")) == 1


async def test_a_report_that_was_stored_and_not_answered_counts_once(
    world: World, caplog: pytest.LogCaptureFixture
):
    """The commit went through, the answer was lost with the connection: the worker reports again, to no effect."""
    counted = Counted()
    world.handlers.append(counted.handler)
    await world.orchestrator()
    worker = await world.worker()
    report, calls = worker.ledger.report, 0

    async def lossy(reports: list[object]) -> set[str]:
        nonlocal calls
        accepted = await report(reports)  # type: ignore[arg-type]
        calls += 1
        if calls % 2:
            raise DatabaseUnavailable("the answer was lost")
        return accepted

    worker.ledger.report = lossy  # type: ignore[method-assign, assignment]
    job = await world.submit(CHAIN)
    with caplog.at_level(logging.INFO, "dagmaster.worker"):
        assert (await world.finished(job)).status == "COMPLETED"
    assert set(counted.ran.values()) == {1}
    # Nothing was lost, and no line suggests that it was.
    assert "1 reports arrived before the connection was lost" in caplog.text
    assert "dropped" not in caplog.text


async def test_a_turn_that_was_written_and_not_answered_counts_once(world: World):
    counted = Counted()
    world.handlers.append(counted.handler)
    orchestrator = await world.orchestrator()
    await world.worker()
    write, calls = orchestrator.store.commit_turns, 0

    async def lossy(turns: list[object], now: float) -> set[str]:
        nonlocal calls
        written = await write(turns, now)  # type: ignore[arg-type]
        calls += 1
        if calls % 3 == 0:
            raise DatabaseUnavailable("the answer was lost")
        return written

    orchestrator.store.commit_turns = lossy  # type: ignore[method-assign, assignment]
    for job in [await world.submit(CHAIN), await world.submit(FAN)]:
        assert (await world.finished(job)).status == "COMPLETED"
    assert set(counted.ran.values()) == {1}


async def test_a_submit_that_was_stored_and_not_answered_is_not_stored_twice(world: World):
    await world.start()
    first = await world.accept(CHAIN.replace("count", "echo"), idempotency_key="k")
    await world.rows(CUT)
    with contextlib.suppress(Exception):
        await world.accept(CHAIN.replace("count", "echo"), idempotency_key="k")
    again = await world.accept(CHAIN.replace("count", "echo"), idempotency_key="k")
    assert (again.job_id, again.is_new) == (first.job_id, False)
    assert (await world.finished(first.job_id)).status == "COMPLETED"


async def test_what_a_task_wrote_during_an_outage_is_in_its_log(world: World):
    before, after = Gate(), Gate()

    @handler("talks", queue="q")
    async def talks() -> None:
        for number in range(3):
            print(f"line {number}")  # noqa: T201 - that is what is tested
            if number == 0:
                before.open()
                await after.wait()

    world.handlers.append(talks)
    await world.orchestrator()
    worker = await world.worker()
    append, failed = worker.journal.append_logs, Gate()

    async def once_away(chunks: list[object]) -> None:
        if not failed.is_open:
            failed.open()
            raise DatabaseUnavailable("away")
        await append(chunks)  # type: ignore[arg-type]

    worker.journal.append_logs = once_away  # type: ignore[method-assign, assignment]
    job = await world.submit("{name: n, nodes: {a: {handler: talks}}}")
    await before.wait()
    await failed.wait()
    after.open()
    await world.finished(job)
    assert await world.log(job, "a") == "line 0\nline 1\nline 2\n"


class Listening(logging.Handler):
    """Hears what a logger says, until the connection to the database was restored."""

    def __init__(self, name: str) -> None:
        super().__init__()
        self.lines: list[str] = []
        self.is_back = Gate()
        self._logger = logging.getLogger(name)

    def __enter__(self) -> Self:
        self._logger.addHandler(self)
        return self

    def __exit__(self, *_error: object) -> None:
        self._logger.removeHandler(self)

    def emit(self, record: logging.LogRecord) -> None:
        self.lines.append(record.getMessage())
        if "was restored" in self.lines[-1]:
            self.is_back.open()


@pytest.mark.parametrize("name", ["orchestrator", "worker"])
async def test_the_loss_of_an_idle_connection_and_its_recovery_are_logged(world: World, name: str):
    await world.start()
    await world.run("{name: n, nodes: {a: {handler: echo}}}")
    session = {"orchestrator": "dagmaster orchestrator, reads", "worker": "dagmaster worker, reports"}[name]
    with Listening(f"dagmaster.{name}") as message:
        # The next call finds the server, and has nothing to complain of.
        assert await world.value(f"{CUT} AND application_name = '{session}'") == 1
        async with asyncio.timeout(PATIENCE_SECONDS):
            await message.is_back.wait()
    assert [end for line in message.lines for end in LOGGED if line.endswith(end)] == LOGGED


async def test_closing_a_connection_is_not_reported_as_a_loss(world: World):
    lost = 0

    def count() -> None:
        nonlocal lost
        lost += 1

    session = Connection(DatabaseConfig(dsn=world.dsn), "test", on_disconnect=count)
    slow = asyncio.create_task(session.fetch(Query("slow", "Wait.", "SELECT pg_sleep(60)", ()), {}))
    await world.until("SELECT count(*) = 1 FROM pg_stat_activity WHERE wait_event = 'PgSleep'")
    slow.cancel()
    with pytest.raises(asyncio.CancelledError):
        await slow
    await session.open()
    await session.close()
    await asyncio.sleep(0)
    assert lost == 0


# ── A server that dies ──


class TestAServerThatDies:
    @pytest.fixture
    def world(self, own_server: EmbeddedPostgres, place: Path) -> DyingWorld:
        return DyingWorld(own_server, place)

    async def test_it_is_started_again_and_everything_completes(self, world: DyingWorld):
        counted = Counted()
        world.handlers.append(counted.handler)
        moments = [counted.reaching(number) for number in (20, 120)]
        await world.orchestrator()
        await world.worker(concurrency=4)
        jobs = [await world.submit(text) for text in (CHAIN, FAN)]
        sql = "SELECT job_id, node_id, output::text FROM dag_node_states WHERE status = 'COMPLETED'"
        for moment in moments:
            await moment.wait()
            seen = {tuple(row) for row in await world.rows(sql)}
            world.kill_server()
            # A state that was seen is never taken back.
            assert seen <= {tuple(row) for row in await world.rows(sql)}
        for job in jobs:
            report = await world.finished(job)
            assert report.status == "COMPLETED"
            assert all(node["status"] == "COMPLETED" for node in report.nodes.values())
        assert len(counted.ran) == 210

    async def test_a_server_that_does_not_start_at_once_is_tried_again(self, world: DyingWorld):
        orchestrator, worker = await world.orchestrator(), await world.worker()
        world.refuse = [EmbeddedPostgresUnavailable("another process is starting it") for _ in range(4)]
        world.kill_server()
        await world.until("SELECT true")
        job = await world.submit("{name: n, nodes: {a: {handler: echo}}}")
        assert (await world.finished(job)).status == "COMPLETED"
        assert world.is_alive(orchestrator)
        assert world.is_alive(worker)

    async def test_lost_connections_and_their_recovery_are_logged_once(self, world: DyingWorld):
        await world.orchestrator()
        await world.worker()
        with Listening("dagmaster.orchestrator") as owners, Listening("dagmaster.worker") as workers:
            world.kill_server()
            # No call is under way when it dies: the next call of each service reaches a server again.
            for message in (owners, workers):
                async with asyncio.timeout(PATIENCE_SECONDS):
                    await message.is_back.wait()
        for message in (owners, workers):
            assert [end for line in message.lines for end in LOGGED if line.endswith(end)] == LOGGED


# ── What a refusal of the database means ──


@pytest.mark.parametrize(
    ("error", "means"),
    [
        (LockNotAvailableError("locked"), DatabaseUnavailable),
        (QueryCanceledError("took too long"), DatabaseUnavailable),
        (ReadOnlySQLTransactionError("read only"), DatabaseReadOnly),
        (CheckViolationError("does not fit\nDETAIL:  Failing row contains (canary)"), StatementFailed),
    ],
)
def test_what_passes_by_itself_is_waited_for_and_no_row_is_shown(
    error: PostgresError, means: type[Exception]
):
    translated = Connection(DatabaseConfig(dsn=""), "test")._translate(error, "turn")
    assert type(translated) is means
    assert "canary" not in str(translated)


@pytest.mark.parametrize(
    "error",
    [
        InternalClientError("cannot switch to state 12; another operation (2) is in progress"),
        InterfaceError("cannot perform operation: another operation is in progress"),
    ],
)
def test_internal_messages_of_the_driver_are_not_shown(error: Exception):
    assert str(translate_error(error, "turn")) == "the connection to the database was lost"


async def test_a_run_whose_worker_cannot_start_ends_with_the_reason(
    world: World, monkeypatch: pytest.MonkeyPatch
):
    async def refused(*_given: object) -> None:
        raise StatementFailed("permission denied for table dag_workers")

    monkeypatch.setattr(PostgresWorkerStore, "register", refused)
    graph = world.graph("{name: n, nodes: {a: {handler: echo}}}")
    run = LocalRun(
        [graph],
        registry=world.registry(),
        modules=(),
        display=NoDisplay(),
        concurrency=1,
        settings=load_settings(),
    )
    with pytest.raises(StatementFailed, match="permission denied"):
        async with asyncio.timeout(PATIENCE_SECONDS):
            await run.run_stored(DatabaseConfig(dsn=world.dsn), world.blobs.root, {}, {})
