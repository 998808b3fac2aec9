"""A gateway: submits through it beside submits to the API in the same run, and the status of a million requests."""

from __future__ import annotations

import asyncio
import contextlib
import json
import statistics
import time
from typing import TYPE_CHECKING

from bench.dev_stack import connect, create_database, dsn_of, folder
from bench.http_connection import HttpConnection
from bench.http_server import Gateway, Server
from bench.job_table import fill_jobs
from bench.rows import Row
from dagmaster.store.embedded.server import EmbeddedPostgres
from dagmaster.store.postgres import roles

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

FEW, MANY, TENANTS = 1_000, 1_000_000, 50
SUBMITS, CLIENTS, REPEATS = 1_000, 32, 5
REQUESTS = 300
"""Requests of the status, of both tables in alternation."""
KEY = "the-admin-key-of-a-benchmark-0123456789"
FLOW = {
    "workflow_id": "one",
    "version": 1,
    "nodes": {"a": {"handler": "echo", "queue": "q", "params": {"i": 1}}},
}
_TENANTS = """
INSERT INTO dag_tenants (name, workflows) SELECT 'tenant-' || n, '{*}' FROM generate_series(0, $1 - 1) AS n
"""
_OWNERS = "UPDATE dag_jobs SET tenant = 'tenant-' || abs(hashtext(id::text)) % $1"
_ASKED = """
INSERT INTO dag_api_requests (request_id, tenant, actor, workflow_id, payload, body_hash, state, job_id, created_at)
SELECT gen_random_uuid(), tenant, tenant || '/key:portal', workflow_id, '{}', 'x', 'accepted', id, created_at FROM dag_jobs
"""
_SAMPLE = (
    "SELECT request_id::text AS id FROM dag_api_requests WHERE tenant = $1 ORDER BY request_id LIMIT 200"
)


def measure() -> Iterator[Row]:
    """Measure a server and a gateway, each a process of its own, on one database."""
    with folder() as place, EmbeddedPostgres(place / "gateway") as postgres:
        yield from _submits(_database(place / "gateway", postgres.dsn, "submits"))
        urls = []
        with contextlib.ExitStack() as services:
            for count in (FEW, MANY):
                dsn = _database(place / "gateway", postgres.dsn, f"requests_{count}")
                fill_jobs(dsn, count)
                urls.append((asyncio.run(_fill(dsn)), *services.enter_context(_services(dsn))))
            yield asyncio.run(_status(urls))


def _database(data_dir: Path, server: str, name: str) -> str:
    create_database(server, name)
    dsn = dsn_of(data_dir, name)
    asyncio.run(roles.apply_roles(dsn, is_exact=True))
    return dsn


@contextlib.contextmanager
def _services(dsn: str) -> Iterator[tuple[str, str, str]]:
    """Start a server and a gateway; provide their addresses, and a key of one partner."""
    settings = {"DAGMASTER_DATABASE_URL": dsn, "DAGMASTER_RATE_LIMIT": "0"}
    with Server(**settings, DAGMASTER_ADMIN_KEY=KEY) as server:
        key = asyncio.run(_make_key(dsn, server.url))
        with Gateway(**settings, DAGMASTER_ORCHESTRATOR_URL=server.url.removesuffix("/ui/")) as gateway:
            asyncio.run(_until_ready(gateway.url))
            yield server.url, gateway.url, key


async def _make_key(dsn: str, url: str) -> str:
    async with HttpConnection(url, KEY) as connection:
        await connection.post("/api/v1/workflows", json.dumps({"text": json.dumps(FLOW)}).encode())
        body = {"name": "portal", "scopes": ["submit", "read"]}
        key: str = (await connection.post("/api/v1/keys", json.dumps(body).encode()))["key"]
    database = await connect(dsn)
    tenant = await database.fetchval("SELECT name FROM dag_tenants WHERE name = 'tenant-7'")
    await database.execute("UPDATE dag_api_keys SET tenant = $1", tenant or "default")
    await database.close()
    return key


async def _until_ready(url: str) -> None:
    while True:
        try:
            async with HttpConnection(url, "") as connection:
                await connection.get("/readyz")
        except AssertionError:
            await asyncio.sleep(0.5)
        else:
            return


# ── Submits ──


def _submits(dsn: str) -> Iterator[Row]:
    paths = {
        "server": ("/api/v1/jobs", {"workflow_id": "one"}),
        "gateway": ("/platform/submit", {"workflow_id": "one", "submitted_by": "portal"}),
        "api": ("/api/v1/submit", {"workflow_id": "one", "submitted_by": "portal"}),
    }
    with _services(dsn) as (server, gateway, key):
        rates: dict[str, list[float]] = {name: [] for name in paths}
        for number in range(REPEATS + 1):
            for name, (path, body) in paths.items():
                url = gateway if name == "gateway" else server
                rate = asyncio.run(_rate(url, key, path, json.dumps(body).encode()))
                # The first round connects and plans.
                rates[name] += [rate] if number else []
    floor = statistics.median(rates["server"])
    yield Row(
        "1,000 submits through a gateway from 32 clients; floor: POST /api/v1/jobs",
        statistics.median(rates["gateway"]),
        "submits/s",
        floor=floor,
        at_least=0.6 * floor,
        target="≥ 0.6 x POST /api/v1/jobs",
    )
    yield Row(
        "1,000 submits to POST /api/v1/submit from 32 clients; floor: POST /api/v1/jobs",
        statistics.median(rates["api"]),
        "submits/s",
        floor=floor,
    )


async def _rate(url: str, key: str, path: str, body: bytes) -> float:
    """Return how many submits a second are answered; each client awaits its answer."""
    async with contextlib.AsyncExitStack() as opened:
        connections = [await opened.enter_async_context(HttpConnection(url, key)) for _ in range(CLIENTS)]
        for connection in connections:
            await connection.get("/livez")
        remaining = iter(range(SUBMITS))

        async def submit(connection: HttpConnection) -> None:
            for _ in remaining:
                await connection.post(path, body)

        started = time.perf_counter()
        await asyncio.gather(*map(submit, connections))
        return SUBMITS / (time.perf_counter() - started)


# ── Status ──


async def _fill(dsn: str) -> list[str]:
    """Give the jobs to tenants, and a request to each; return some requests of one tenant."""
    connection = await connect(dsn)
    try:
        await connection.execute(_TENANTS, TENANTS)
        await connection.execute(_OWNERS, TENANTS, timeout=900)
        await connection.execute(_ASKED, timeout=900)
        await connection.execute("VACUUM ANALYZE", timeout=900)
        return [row["id"] for row in await connection.fetch(_SAMPLE, "tenant-7")]
    finally:
        await connection.close()


async def _status(tables: list[tuple[list[str], str, str, str]]) -> Row:
    durations: list[list[float]] = [[], []]
    async with contextlib.AsyncExitStack() as opened:
        connections = [
            await opened.enter_async_context(HttpConnection(gateway, key)) for _, _, gateway, key in tables
        ]
        for number in range(REQUESTS):
            for (ids, *_), connection, times in zip(tables, connections, durations, strict=True):
                started = time.perf_counter()
                await connection.get(f"/platform/status/{ids[number % len(ids)]}")
                times.append((time.perf_counter() - started) * 1_000)
    # The first requests plan their queries, and connect.
    floor, p95 = (statistics.quantiles(times[5:], n=20)[-1] for times in durations)
    return Row(
        "GET /platform/status with 1,000,000 requests of 50 tenants, p95; floor: 1,000",
        p95,
        "ms",
        floor=floor,
        at_most=3 * floor,
        target="≤ 3 x of 1,000",
    )
