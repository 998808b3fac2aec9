"""What policies cost: lists of jobs of 50 tenants on a server with the role dagmaster_api, and on one without.

Both servers are on one database; `floor` is the server whose user owns the tables and cannot take on the role. Requests
alternate. Compare the ratios.
"""

from __future__ import annotations

import asyncio
import contextlib
import os
import statistics
import time
from typing import TYPE_CHECKING, Final

import asyncpg

from bench.dev_stack import folder
from bench.http_connection import HttpConnection
from bench.http_server import Server
from bench.job_table import fill_jobs
from bench.rows import Row
from dagmaster.application.api_keys import create_key
from dagmaster.ports.api_keys import Scope
from dagmaster.ports.audit_trail import ChangeOrigin
from dagmaster.ports.database_config import DatabaseConfig
from dagmaster.store.embedded.server import EmbeddedPostgres
from dagmaster.store.postgres import roles, schema_version
from dagmaster.store.postgres.api_key_store import PostgresApiKeyStore

if TYPE_CHECKING:
    from collections.abc import Iterator

JOBS: Final = int(os.environ.get("BENCH_JOBS", "1000000"))
TENANTS: Final = 50
REQUESTS: Final = 100
KEY: Final = "the-admin-key-of-a-benchmark-0123456789"
LOGIN: Final = "bench_owner"
LISTS: Final = {
    "newest": "/api/v1/jobs?limit=20",
    "running": "/api/v1/jobs?limit=20&status=running",
    "failed of a workflow": "/api/v1/jobs?limit=20&workflow_id=flow_5&status=failed",
    "counts": "/api/v1/stats",
    "events": "/api/v1/events?limit=50",
    "workflows": "/api/v1/workflows",
}
SPREAD: Final = f"""
INSERT INTO dagapp.dag_tenants (name) SELECT 't' || n FROM generate_series(1, {TENANTS - 1}) AS n;
UPDATE dagapp.dag_jobs SET tenant = 't' || abs(hashtext(id::text)) % {TENANTS} WHERE hashtext(id::text) % {TENANTS} <> 0;
"""  # noqa: S608 - our own numbers


def measure() -> Iterator[Row]:
    """Measure each list for an administrator with and without the role, and for a tenant."""
    with folder() as place, EmbeddedPostgres(place / "tenants") as postgres, contextlib.ExitStack() as opened:
        schema_version.upgrade(postgres.dsn)
        fill_jobs(postgres.dsn, JOBS)
        asyncio.run(roles.apply_roles(postgres.dsn, is_exact=True))
        # A user with all rights of the orchestrator's role, and not with that of servers.
        asyncio.run(_execute(postgres.dsn, f"CREATE ROLE {LOGIN} LOGIN IN ROLE dagmaster_orchestrator"))
        plain = postgres.dsn.replace("user=dagmaster", f"user={LOGIN}")
        urls = [
            opened.enter_context(Server(DAGMASTER_DATABASE_URL=dsn, DAGMASTER_ADMIN_KEY=KEY)).url
            for dsn in (plain, postgres.dsn)
        ]
        yield from asyncio.run(_rows(urls, [KEY, KEY], "with the role; floor: without"))
        asyncio.run(_execute(postgres.dsn, SPREAD))
        asyncio.run(_execute(postgres.dsn, "VACUUM ANALYZE dagapp.dag_jobs"))
        key = asyncio.run(_make_key(postgres.dsn))
        yield from asyncio.run(
            _rows([urls[1]] * 2, [KEY, key], f"of one of {TENANTS} tenants; floor: of the installation")
        )


async def _execute(dsn: str, statement: str) -> None:
    connection = await asyncpg.connect(dsn)
    try:
        await connection.execute(statement)
    finally:
        await connection.close()


async def _make_key(dsn: str) -> str:
    keys = PostgresApiKeyStore(DatabaseConfig(dsn=dsn))
    try:
        origin = ChangeOrigin(actor="bench")
        view = await create_key(keys, "bench", [Scope.READ], origin=origin, now=time.time(), tenant="t7")
        return str(view.key)
    finally:
        await keys.close()


async def _rows(urls: list[str], keys: list[str], what: str) -> list[Row]:
    rows = []
    async with contextlib.AsyncExitStack() as opened:
        first, second = [
            await opened.enter_async_context(HttpConnection(url, key))
            for url, key in zip(urls, keys, strict=True)
        ]
        for name, path in LISTS.items():
            durations: tuple[list[float], list[float]] = ([], [])
            for number in range(REQUESTS):
                pairs = list(zip((first, second), durations, strict=True))
                for connection, times in pairs if number % 2 else reversed(pairs):
                    started = time.perf_counter()
                    await connection.get(path)
                    times.append((time.perf_counter() - started) * 1_000)
            floor, measured = (statistics.median(times[5:]) for times in durations)
            rows.append(Row(f"{name}, {JOBS:,} jobs, {what}", measured, "ms", floor=floor))
    return rows
