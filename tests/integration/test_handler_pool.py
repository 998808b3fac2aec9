"""`ctx.pool` on a real PostgreSQL, in every execution mode."""

from __future__ import annotations

import asyncio
import importlib
import re
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Any

import asyncpg
import pytest

from dagmaster.adapters import handler_pool
from dagmaster.bootstrap.services_config import handler_services_config
from dagmaster.errors import PermanentError
from dagmaster.ports.task_messages import Failed, Outcome, Succeeded, TaskMessage
from dagmaster.sdk.handler_context import HandlerContext
from dagmaster.sdk.handler_registry import discover
from dagmaster.settings import Settings
from dagmaster.testing import local_services
from dagmaster.worker.executor import Executor
from dagmaster.worker.lazy_services import LazyServices
from dagmaster.worker.process_pool import HandlerProcesses
from tests.conformance.server import dsn_of, release_database, take_database
from tests.patience import PATIENCE_SECONDS

if TYPE_CHECKING:
    from collections.abc import Iterator

    from dagmaster.worker.lazy_services import ServicesConfig

HANDLERS = "tests.integration.pool_handlers"
MODES = ("in_a_process", "on_a_thread", "on_the_loop", "on_a_loop_in_a_process")


@pytest.fixture
def database(postgres: str) -> Iterator[str]:
    """Provide the URL of a database with two tables of the operator's."""
    name = asyncio.run(take_database(postgres))
    url = dsn_of(postgres, name)
    query(url, "CREATE TABLE public.written (mode text)")
    query(
        url, "CREATE TABLE public.bookings (key text PRIMARY KEY, fence bigint, account text, amount float8)"
    )
    yield f"{url}&options=-csearch_path%3Dpublic"
    query(url, "DROP TABLE public.written, public.bookings")
    asyncio.run(release_database(postgres, name))


def query(url: str, sql: str) -> list[Any]:
    async def main() -> list[Any]:
        connection = await asyncpg.connect(url)
        try:
            return [tuple(row) for row in await connection.fetch(sql)]
        finally:
            await connection.close()

    return asyncio.run(main())


def services_on(url: str | None, folder: Path) -> ServicesConfig:
    changes: Any = {} if url is None else {"handler_pool_url": url}
    return handler_services_config(Settings(scratch_dir=folder / "scratch", blob_dir=folder, **changes))


def execute(services: ServicesConfig, *tasks: tuple[str, dict[str, Any]]) -> list[Outcome]:
    """Execute tasks one after the other, on one executor with one child process."""

    async def main() -> list[Outcome]:
        processes = HandlerProcesses((HANDLERS,), limit=1, services=services)
        executor = Executor(discover([HANDLERS]), processes=processes, services=LazyServices(services))
        try:
            async with asyncio.timeout(PATIENCE_SECONDS):
                return [
                    await executor.execute(TaskMessage(str(number), "1", "a", name, params))
                    for number, (name, params) in enumerate(tasks)
                ]
        finally:
            await executor.close()

    return asyncio.run(main())


def outputs(outcomes: list[Outcome]) -> list[dict[str, Any]]:
    assert all(isinstance(outcome, Succeeded) for outcome in outcomes), outcomes
    return [outcome.output for outcome in outcomes if isinstance(outcome, Succeeded)]


def test_every_mode_writes_in_a_transaction_and_no_connection_is_left(database: str, tmp_path: Path):
    services = services_on(database, tmp_path)
    done = outputs(execute(services, *[(mode, {}) for mode in MODES for _ in range(2)]))
    assert [each["mode"] for each in done] == [mode for mode in MODES for _ in range(2)]
    # A connection is kept for the next task, except on the loop of one task in a process.
    backends = [each["backend"] for each in done]
    assert [backends[at] == backends[at + 1] for at in range(0, 8, 2)] == [True, True, True, False]
    failed = execute(services, *[(mode, {"fails": True}) for mode in MODES])
    assert [outcome.error["message"] for outcome in failed if isinstance(outcome, Failed)] == [
        "after the insert"
    ] * 4
    assert query(database, "SELECT count(*) FROM public.written") == [(8,)]
    # The server ends a session a moment after its client has closed it.
    sql = "SELECT count(*) FROM pg_stat_activity WHERE application_name = 'dagmaster handler' AND datname = current_database()"
    assert any(query(database, sql) == [(0,)] for _ in range(200))


def test_without_the_operators_consent_the_error_names_the_setting(tmp_path: Path):
    for outcome in execute(services_on(None, tmp_path), ("in_a_process", {}), ("on_the_loop", {})):
        assert isinstance(outcome, Failed)
        assert (outcome.error["kind"], outcome.permanent) == ("services_missing", True)
        assert "set DAGMASTER_HANDLER_POOL_URL where the worker runs" in outcome.error["message"]


def test_a_server_that_does_not_answer_is_an_error_that_may_pass(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
):
    monkeypatch.setattr(handler_pool, "WAIT_SECONDS", 0.2)
    url = f"postgresql:///none?host={tmp_path}&user=ada&password=s3cret"
    for outcome in execute(services_on(url, tmp_path), ("on_a_thread", {}), ("on_the_loop", {})):
        assert isinstance(outcome, Failed)
        assert not outcome.permanent
        assert "the server of DAGMASTER_HANDLER_POOL_URL does not answer" in outcome.error["message"]
        assert "s3cret" not in str(outcome.error)


def test_without_psycopg_the_error_names_the_extra(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setitem(sys.modules, "psycopg_pool", None)
    services = local_services(tmp_path, pool_url="postgresql://host/db", pool_size=1)
    with pytest.raises(Exception, match=r"pip install 'dagmaster\[pool\]'"), services.pool.connection():
        pass


def test_the_documented_booking_is_one_row_and_an_execution_that_comes_late_changes_nothing(
    database: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
):
    page = Path(__file__).parents[2] / "docs" / "howto" / "handlers.md"
    blocks = re.findall(r"```python\n(.*?)```", page.read_text(encoding="utf-8"), flags=re.DOTALL)
    (tmp_path / "documented.py").write_text("\n".join(blocks), encoding="utf-8")
    monkeypatch.syspath_prepend(str(tmp_path))
    book = importlib.import_module("documented").book
    services = local_services(tmp_path, pool_url=database, pool_size=1)

    def execute_book(token: int, amount: float) -> Any:
        ctx = HandlerContext(job_id="7", node_id="pay", fencing_token=token, services=services)
        return book(ctx, account="ada", amount=amount)

    try:
        for token, amount in ((10, 1.0), (10, 1.0), (11, 2.0)):
            assert execute_book(token, amount) == {"booked": amount}
        with pytest.raises(PermanentError, match="a later execution has booked"):
            execute_book(10, 1.0)
    finally:
        services.close()
    assert query(database, "SELECT * FROM public.bookings") == [("7:pay", 11, "ada", 2.0)]
