"""The calls of a worker as statements of the owner, and as functions of the role dagmaster_worker.

Both workers are on one server and one database. Rounds alternate, and so does which of them is first. `floor`: the
statement of the owner in the same rounds. Compare the ratios.
"""

from __future__ import annotations

import asyncio
import statistics
import time
from collections import defaultdict
from typing import TYPE_CHECKING, Final, TypeVar

import asyncpg

from bench.dev_stack import folder
from bench.rows import Row
from dagmaster.engine.status import AttemptStatus
from dagmaster.ports.database_config import DatabaseConfig
from dagmaster.ports.json_text import JsonText
from dagmaster.ports.task_ledger import TaskReport
from dagmaster.store.embedded.server import EmbeddedPostgres
from dagmaster.store.postgres import roles, schema_version
from dagmaster.store.postgres.worker_store import PostgresWorkerStore

if TYPE_CHECKING:
    from collections.abc import Awaitable, Iterable

T = TypeVar("T")
ROUNDS: Final = 60
SIZES: Final = (1, 50)
LOGIN: Final = "bench_worker"
FILL: Final = """
INSERT INTO dagapp.dag_task_queue (task_id, job_id, node_id, attempt, queue, priority, handler, params, timeout_seconds,
                                   dispatched_at)
SELECT n, 1, 'n' || n, 1, 'q', 5, 'h', '{"chunk": 1}', 60, now() FROM generate_series(1, $1::bigint) AS n
"""


def measure() -> Iterable[Row]:
    """Measure claims, reports and renewals."""
    with folder() as place, EmbeddedPostgres(place / "data") as server:
        schema_version.upgrade(server.dsn)
        yield from asyncio.run(_measure(server.dsn))


async def _measure(dsn: str) -> list[Row]:
    await roles.apply_roles(dsn, is_exact=True)
    admin = await asyncpg.connect(dsn)
    await admin.execute(f"CREATE ROLE {LOGIN} LOGIN IN ROLE dagmaster_worker")
    await admin.execute(FILL, 2 * (ROUNDS + 5) * sum(SIZES))
    plain = PostgresWorkerStore(DatabaseConfig(dsn=dsn))
    limited = PostgresWorkerStore(DatabaseConfig(dsn=dsn.replace("user=dagmaster", f"user={LOGIN}")))
    seconds: dict[tuple[str, bool], list[float]] = defaultdict(list)
    try:
        for store in (plain, limited):
            await store.register(["q"], 100, {"h": "1"})
        for number in range(ROUNDS + 5):
            order = (plain, limited) if number % 2 else (limited, plain)
            for store in order:
                for name, spent in await _round(store):
                    # The first rounds prepare the statements.
                    if number >= 5:
                        seconds[name, store is limited].append(spent)
    finally:
        for store in (plain, limited):
            await store.deregister()
        await admin.close()
    return [
        Row(
            f"{name}, by a function",
            statistics.median(seconds[name, True]) * 1e6,
            "µs",
            floor=statistics.median(seconds[name, False]) * 1e6,
        )
        for name, is_limited in seconds
        if is_limited
    ]


async def _round(store: PostgresWorkerStore) -> list[tuple[str, float]]:
    measured = []
    for size in SIZES:
        tasks, spent = await _timed(store.claim(size))
        measured.append((f"claim of {size}", spent))
        reports = [
            TaskReport(task.task_id, task.token, AttemptStatus.COMPLETED, output=JsonText('{"sum": 3}'))
            for task in tasks
        ]
        accepted, spent = await _timed(store.report(reports))
        assert len(accepted) == size
        measured.append((f"report of {size}", spent))
    _, spent = await _timed(store.heartbeat([], {}))
    measured.append(("renewal", spent))
    return measured


async def _timed(work: Awaitable[T]) -> tuple[T, float]:
    started = time.perf_counter()
    result = await work
    return result, time.perf_counter() - started
