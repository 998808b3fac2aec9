"""Metrics over HTTP with a million finished jobs, made by set-based SQL in a database of their own.

The jobs are of 20 workflows and finished evenly over the last 7 days; their durations are log-normal, and one
of 20 failed with a message of its own. `measure` yields how long the roll-up takes, and each route, through
the real application without a socket.
"""

from __future__ import annotations

import asyncio
import statistics
import time
from typing import TYPE_CHECKING

import httpx

from bench.dev_stack import connect, folder
from bench.rows import Row
from dagmaster.application.api_keys import create_key
from dagmaster.application.callbacks import Callbacks
from dagmaster.application.database_admin import rebuild_metrics
from dagmaster.application.remote_tasks import RemoteTasks
from dagmaster.bootstrap import open_application
from dagmaster.bootstrap.database_admin import open_database_admin
from dagmaster.http.app import create_app
from dagmaster.http.services import HttpServices
from dagmaster.ports.api_keys import Scope
from dagmaster.ports.audit_trail import ChangeOrigin
from dagmaster.ports.database_config import DatabaseConfig
from dagmaster.ports.ids import EPOCH_MS
from dagmaster.settings import Settings
from dagmaster.store.embedded.server import EmbeddedPostgres
from dagmaster.store.memory.api_key_store import MemoryApiKeyStore
from dagmaster.store.memory.callback_store import MemoryCallbackStore
from dagmaster.store.memory.database import MemoryDatabase
from dagmaster.store.memory.remote_workers import MemoryRemoteWorkers
from dagmaster.store.memory.tenant_store import MemoryTenantStore
from dagmaster.store.postgres import schema_version

if TYPE_CHECKING:
    from collections.abc import Iterator

JOBS = 1_000_000
FEW_JOBS = 100_000
"""Percentiles of these are exact: of more they are not, so no exact ones take longer."""
DAYS = 7
REPEATS = 20
LIMIT_MS = 500
ROUTES = (
    "workflows?days=7",
    "workflows/w03/nodes?days=7",
    "failures?days=7&limit=20",
    "throughput?hours=168&bucket_minutes=60",
)

_GENERATE = """
WITH graph AS (
    INSERT INTO dag_graphs (content_hash, definition) VALUES ('bench', '{}') ON CONFLICT DO NOTHING
),
jobs AS (
    INSERT INTO dag_jobs (id, workflow_id, version, content_hash, inputs, status, error, event_seq, created_at,
                          started_at, finished_at, updated_at)
    SELECT ((extract(epoch FROM f.at - f.duration) * 1000)::bigint - $2) << 22 | (n & 4194303),
           'w' || lpad((n % 20)::text, 2, '0'), 1, 'bench', '{}',
           CASE WHEN n % 20 = 0 OR n % 41 = 0 THEN 'FAILED' ELSE 'COMPLETED' END,
           CASE WHEN n % 20 = 0 OR n % 41 = 0 THEN json_build_object('kind', 'node_failed', 'node', 'load',
                'message', 'node load failed', 'cause', json_build_object('message',
                format('cannot read s3://bucket/%s.tif after %s s: code %s', n, n % 60, chr(65 + n % 26)))) END,
           9, f.at - f.duration, f.at - f.duration, f.at, f.at
    FROM generate_series(1, $1) AS n
    CROSS JOIN LATERAL (SELECT now() - make_interval(secs => 60 + ($1 - n) * ($3 * 86400.0 - 7200) / $1) AS at,
                               make_interval(secs => least(exp(random_normal() * 1.5 + n % 5), 3600)) AS duration) f
    RETURNING id, started_at, finished_at, status
)
INSERT INTO dag_node_states (job_id, node_id, status, attempt, finished_seq, started_at, finished_at, updated_at)
SELECT id, node, CASE WHEN node = 'load' THEN status ELSE 'COMPLETED' END, 1, 1, started_at, finished_at, finished_at
FROM jobs CROSS JOIN (VALUES ('plan'), ('load')) AS n (node)
"""


def measure() -> Iterator[Row]:
    """Measure the routes with few and with a million jobs."""
    with folder() as place, EmbeddedPostgres(place / "data") as server:
        for jobs in (FEW_JOBS, JOBS):
            yield from asyncio.run(_measure(server.dsn, jobs))


async def _measure(dsn: str, jobs: int) -> list[Row]:
    config = DatabaseConfig(dsn=dsn)
    if schema_version.needs_upgrade(await schema_version.current(dsn)):
        await asyncio.to_thread(schema_version.upgrade, dsn)
    connection = await connect(dsn)
    await connection.execute("TRUNCATE dag_jobs, dag_node_states, dag_metric_pending CASCADE")
    await connection.execute(_GENERATE, jobs, EPOCH_MS, DAYS, timeout=600)
    await connection.execute("VACUUM ANALYZE", timeout=600)
    settings = Settings()
    async with open_database_admin(config, settings) as admin:
        durations, counted, cursor = [], 0, None
        while cursor is not None or not durations:
            started = time.perf_counter()
            part = await rebuild_metrics(admin, origin=ChangeOrigin(actor="bench"), cursor=cursor)
            durations.append(time.perf_counter() - started)
            counted, cursor = counted + part.counted_jobs, part.next_cursor
    await connection.execute("ANALYZE")
    await connection.close()
    workload = f"metrics, {jobs:,} jobs"
    rows = [
        Row(f"{workload}: counted by the roll-up", counted / sum(durations), "jobs/s"),
        Row(f"{workload}: first call of a rebuild, which queues them all", durations[0], "s"),
        Row(f"{workload}: longest of its other calls", max(durations[1:]), "s"),
    ]
    async with (
        open_application(config, settings) as application,
        open_database_admin(config, settings) as admin,
    ):
        # Keys and workers in memory: only the reads of metrics count.
        services = HttpServices(
            application=application,
            keys=MemoryApiKeyStore(),
            callbacks=Callbacks(MemoryCallbackStore(), application.vault),
            admin=admin,
            tenants=MemoryTenantStore(),
            remote_tasks=RemoteTasks(
                MemoryRemoteWorkers(MemoryDatabase()), application.blobs, lambda _name: None, 6.0
            ),
        )
        origin = ChangeOrigin(actor="bench")
        key = await create_key(services.keys, "bench", [Scope.READ], origin=origin, now=0.0)
        headers = {"Authorization": f"Bearer {key.key}"}
        transport = httpx.ASGITransport(create_app(services))
        async with httpx.AsyncClient(transport=transport, base_url="http://bench", headers=headers) as http:
            for route in ROUTES:
                times = [await _elapsed_ms(http, f"/api/v1/metrics/{route}") for _ in range(REPEATS)]
                p95 = statistics.quantiles(times, n=20)[-1]
                rows.append(Row(f"metrics, {jobs:,} jobs: GET {route}, p95", p95, "ms", at_most=LIMIT_MS))
    return rows


async def _elapsed_ms(http: httpx.AsyncClient, path: str) -> float:
    started = time.perf_counter()
    answer = await http.get(path)
    elapsed = time.perf_counter() - started
    answer.raise_for_status()
    return elapsed * 1000
