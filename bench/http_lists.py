"""Lists of jobs over HTTP: of a table of a million jobs beside one of a thousand, with each filter."""

from __future__ import annotations

import asyncio
import contextlib
import statistics
import time
from dataclasses import dataclass
from typing import TYPE_CHECKING

from bench.dev_stack import create_database, dsn_of, folder
from bench.http_connection import HttpConnection
from bench.http_server import Server
from bench.job_table import fill_jobs
from bench.rows import Row
from dagmaster.store.embedded.server import EmbeddedPostgres

if TYPE_CHECKING:
    from collections.abc import Iterator

FEW, MANY = 1_000, 1_000_000
REQUESTS = 60
"""Requests of each list, of both tables in alternation."""
KEY = "the-admin-key-of-a-benchmark-0123456789"
FILTERS = {
    "no filter": "",
    "a cursor": "cursor={cursor}",
    "status completed": "status=completed",
    "status failed": "status=failed",
    "status cancelled": "status=cancelled",
    "status running": "status=running",
    "status waiting": "status=waiting",
    "status pending": "status=pending",
    "workflow_id": "workflow_id=flow_3",
    "version": "workflow_id=flow_3&version=1",
    "name": "name=nightly_1",
    "submitted_by": "submitted_by=user_3",
    "correlation_id": "correlation_id=request-7",
    "idempotency_key": "idempotency_key=key-500",
    "parent_job_id": "parent_job_id={parent}",
    "since": "since=3d",
    "until": "until=20d",
    "finished_since": "finished_since=3d",
    "finished_until": "finished_until=20d",
    "text": "text=user_1",
    "text, of no job": "text=zzz",
    "submitted_by, of no job": "submitted_by=zzz",
    "workflow_id and status failed": "workflow_id=flow_5&status=failed",
}
"""The query of each filter. Those of old jobs are far from the newest one, where a list begins."""


def measure() -> Iterator[Row]:
    """Measure each filter on both tables, request by request in alternation."""
    with folder() as place, EmbeddedPostgres(place / "lists") as postgres, contextlib.ExitStack() as servers:
        urls = []
        for count in (FEW, MANY):
            create_database(postgres.dsn, f"jobs_{count}")
            dsn = dsn_of(place / "lists", f"jobs_{count}")
            fill_jobs(dsn, count)
            urls.append(
                servers.enter_context(Server(DAGMASTER_DATABASE_URL=dsn, DAGMASTER_ADMIN_KEY=KEY)).url
            )
        yield from asyncio.run(_list_rows(urls))


@dataclass(frozen=True, slots=True)
class _Table:
    """A server on a table of jobs, and the queries of its filters."""

    connection: HttpConnection
    queries: dict[str, str]


async def _list_rows(urls: list[str]) -> list[Row]:
    rows = []
    async with contextlib.AsyncExitStack() as opened:
        few, many = [
            await _open_table(await opened.enter_async_context(HttpConnection(url, KEY))) for url in urls
        ]
        for name in FILTERS:
            durations: dict[int, list[float]] = {FEW: [], MANY: []}
            for _ in range(REQUESTS):
                for count, table in ((FEW, few), (MANY, many)):
                    started = time.perf_counter()
                    await table.connection.get(table.queries[name])
                    durations[count].append((time.perf_counter() - started) * 1_000)
            # The first requests plan their queries, and connect.
            floor, p95 = (statistics.quantiles(durations[count][5:], n=20)[-1] for count in (FEW, MANY))
            rows.append(
                Row(
                    f"GET /jobs of 1,000,000, {name}, p95; floor: of 1,000", p95, "ms",
                    floor=floor, at_most=3 * floor, target="≤ 3 x of 1,000",
                )
            )  # fmt: skip
    return rows


async def _open_table(connection: HttpConnection) -> _Table:
    path = "/api/v1/jobs?limit=20"
    page = await connection.get("/api/v1/jobs?limit=500")
    parent = next(job["parent_job_id"] for job in page["items"] if job["parent_job_id"])
    values = {"cursor": page["next_cursor"], "parent": parent}
    return _Table(connection, {name: f"{path}&{query.format(**values)}" for name, query in FILTERS.items()})
