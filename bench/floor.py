"""The floor: the rows that dagmaster's runtime writes, written by hand-written SQL.

*Chain*: two synchronous commits a task, one small upsert each, on one connection.

*Fan-out*: the rows of n tasks, in dagmaster's own tables with all their indexes, by set-based statements over arrays:
dispatched 5,000 at a time, claimed and reported 2,000 at a time, committed to the node states 4,000 at a time: the
runtime's own maxima. One connection plays the orchestrator (synchronous commits) and one the worker (asynchronous
commits, as in the runtime); both run concurrently. No engine, no handlers, no NOTIFY, no second process; expressions,
scopes and the join's reading of outputs are left out.
"""

from __future__ import annotations

import asyncio
import contextlib
import json
import statistics
import time
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from bench import process_usage
from bench.dev_stack import connect, create_database, dsn_of, folder
from bench.rows import Row
from dagmaster.store.embedded.server import EmbeddedPostgres

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Awaitable, Callable, Iterator

    import asyncpg

DISPATCH, CLAIM, COMMIT = 5_000, 2_000, 4_000

# The planner settings of the runtime's sessions.
_PLANS = {
    "plan_cache_mode": "force_generic_plan",
    "enable_seqscan": "off",
    "enable_mergejoin": "off",
    "jit": "off",
}
_OWNER, _WORKER = 115_605_956_909_760_512, 115_605_957_998_776_320
_BY = f"orchestrator {_OWNER}"

_UPSERT = """
INSERT INTO public.chain (id, status, at) VALUES ($1, $2, clock_timestamp())
ON CONFLICT (id) DO UPDATE SET status = excluded.status, at = excluded.at
"""

_BEGIN = """
WITH job AS (
    INSERT INTO dag_jobs (id, name, workflow_id, version, content_hash, status, inputs, owner_id, owner_epoch,
                          event_seq, created_at, started_at)
    VALUES ($1, 'fan_out', 'fan_out', 1, 'floor', 'RUNNING', '{}', $2, 1, 1, now(), now())
)
INSERT INTO dag_node_states (job_id, node_id, status, source, source_count)
VALUES ($1, 'work', 'RUNNING', $3::json, $4)
"""
_DISPATCH = f"""
WITH n AS (
    SELECT * FROM unnest($3::text[], $4::bigint[], $5::integer[], $6::text[], $7::integer[])
                  AS n (node_id, task_id, fan_out_index, params, seq)
),
job AS (UPDATE dag_jobs SET event_seq = $2 WHERE id = $1 AND owner_id = {_OWNER} AND owner_epoch = 1),
fan AS (UPDATE dag_node_states SET expanded_count = $8 WHERE job_id = $1 AND node_id = 'work'),
nodes AS (
    INSERT INTO dag_node_states (job_id, node_id, status, attempt, task_id, parent_node_id, fan_out_index)
    SELECT $1, node_id, 'DISPATCHED', 1, task_id, 'work', fan_out_index FROM n
),
queued AS (
    INSERT INTO dag_task_queue (task_id, job_id, node_id, attempt, queue, priority, handler, params, timeout_seconds,
                                dispatched_at)
    SELECT task_id, $1, node_id, 1, 'default', 5, 'chunk_processor', params::json, 3600, now() FROM n
)
INSERT INTO dag_job_events (job_id, seq, type, at, by, node_id, attempt)
SELECT $1, seq, 'NodeDispatched', now(), '{_BY}', node_id, 1 FROM n
"""  # noqa: S608 - our own constants
_CLAIM = f"""
UPDATE dag_task_queue q SET worker_id = {_WORKER}, lease_token = $1, claimed_at = clock_timestamp()
FROM (SELECT task_id FROM dag_task_queue
      WHERE queue = 'default' AND worker_id IS NULL AND stop_requested_at IS NULL
      ORDER BY priority DESC, task_id LIMIT $2 FOR UPDATE SKIP LOCKED) AS ready
WHERE q.task_id = ready.task_id
RETURNING q.task_id, q.job_id, q.node_id, q.attempt, q.handler, q.params, q.timeout_seconds, q.dispatched_at
"""  # noqa: S608 - likewise
_REPORT = f"""
WITH gone AS (
    DELETE FROM dag_task_queue q USING unnest($1::bigint[], $2::text[]) AS n (task_id, output)
    WHERE q.task_id = n.task_id AND q.lease_token = $3 AND q.worker_id = {_WORKER}
    RETURNING q.task_id, q.job_id, q.node_id, q.attempt, q.queue, q.dispatched_at, q.claimed_at, n.output
)
INSERT INTO dag_task_results (job_id, node_id, attempt, task_id, queue, worker_id, status, output, dispatched_at,
                              claimed_at, reported_at)
SELECT job_id, node_id, attempt, task_id, queue, {_WORKER}, 'COMPLETED', output::json, dispatched_at, claimed_at,
       clock_timestamp()
FROM gone
"""  # noqa: S608 - likewise
_RESULTS = "SELECT id, node_id, output, claimed_at FROM dag_task_results ORDER BY id LIMIT $1"
_COMMIT = f"""
WITH job AS (UPDATE dag_jobs SET event_seq = $2 WHERE id = $1 AND owner_id = {_OWNER} AND owner_epoch = 1),
taken AS (DELETE FROM dag_task_results r USING unnest($3::bigint[]) AS n (id) WHERE r.id = n.id RETURNING r.*),
attempts AS (
    INSERT INTO dag_task_attempts (job_id, node_id, attempt, task_id, queue, worker_id, status, error, metrics,
                                   progress, dispatched_at, claimed_at, completed_at)
    SELECT job_id, node_id, attempt, task_id, queue, worker_id, status, error, metrics, progress, dispatched_at,
           claimed_at, reported_at
    FROM taken
),
n AS (
    SELECT * FROM unnest($4::text[], $5::text[], $6::integer[], $7::timestamptz[], $8::integer[])
                  AS n (node_id, output, finished_seq, started_at, seq)
),
nodes AS (
    UPDATE dag_node_states s
    SET status = 'COMPLETED', output = n.output::json, finished_seq = n.finished_seq, started_at = n.started_at,
        finished_at = now()
    FROM n WHERE s.job_id = $1 AND s.node_id = n.node_id
)
INSERT INTO dag_job_events (job_id, seq, type, at, by, node_id, attempt)
SELECT $1, seq, 'NodeCompleted', now(), '{_BY}', node_id, 1 FROM n
"""  # noqa: S608 - likewise
_END = """
WITH fan AS (
    UPDATE dag_node_states SET status = 'COMPLETED', finished_seq = $2, finished_at = now(), output = '{}'
    WHERE job_id = $1 AND node_id = 'work'
)
UPDATE dag_jobs SET status = 'COMPLETED', event_seq = $2, finished_at = now(), owner_id = NULL WHERE id = $1
"""


def measure() -> Iterator[Row]:
    """Measure the floor alone; `bench.runtime` measures it beside the runtime."""
    with folder() as place, EmbeddedPostgres(place / "data"):
        create_database(dsn_of(place / "data"))
        dsn = dsn_of(place / "data", "floor")
        yield Row("floor, chain of 40", asyncio.run(_chains(dsn, 40, 9)) * 1_000, "ms")
        for count, repeats in ((1_000, 5), (10_000, 3), (100_000, 1)):
            runs = [fan_out(dsn, count) for _ in range(repeats)]
            yield Row(f"floor, fan-out of {count:,}", statistics.median(run.rate for run in runs), "tasks/s")
        yield Row(
            "floor, fan-out of 100,000, one role after the other",
            fan_out(dsn, 100_000, sequential=True).rate,
            "/s",
        )


@contextlib.asynccontextmanager
async def chain(dsn: str, length: int) -> AsyncIterator[Callable[[], Awaitable[float]]]:
    """Provide a function that runs a chain as two commits a task and returns the seconds."""
    connection = await connect(dsn, **_PLANS)

    async def run() -> float:
        started = time.perf_counter()
        for number in range(length):
            await upsert.fetch(number, "DISPATCHED")
            await upsert.fetch(number, "COMPLETED")
        return time.perf_counter() - started

    try:
        await connection.execute(
            "CREATE TABLE IF NOT EXISTS public.chain (id bigint PRIMARY KEY, status text, at timestamptz)"
        )
        upsert = await connection.prepare(_UPSERT)
        await run()
        yield run
    finally:
        await connection.close()


async def _chains(dsn: str, length: int, repeats: int) -> float:
    async with chain(dsn, length) as run:
        return statistics.median([await run() for _ in range(repeats)])


@dataclass(frozen=True, slots=True)
class FloorRun:
    """One fan-out in hand-written SQL."""

    count: int
    seconds: float
    wal_bytes: int
    cpu: dict[str, float]
    """CPU seconds of the two server processes, and of the client that plays both roles."""

    @property
    def rate(self) -> float:
        """Return tasks per second."""
        return self.count / self.seconds


def fan_out(dsn: str, count: int, *, sequential: bool = False) -> FloorRun:
    """Write the rows of a fan-out; with `sequential`, one role after the other instead of concurrently."""
    return asyncio.run(_fan_out(dsn, count, sequential=sequential))


async def _fan_out(dsn: str, count: int, *, sequential: bool) -> FloorRun:
    turns = await connect(dsn, **_PLANS)
    tasks = await connect(dsn, **_PLANS, synchronous_commit="off")
    try:
        await turns.execute("INSERT INTO dag_graphs VALUES ('floor', '{}') ON CONFLICT DO NOTHING")
        pids = {"orchestrator": turns.get_server_pid(), "worker": tasks.get_server_pid()}
        # The runtime has prepared its statements by this point, too.
        await _FanOut(turns, tasks, 10).run(sequential=sequential)
        before = await _usage(turns, pids)
        started, client = time.perf_counter(), time.process_time()
        work = _FanOut(turns, tasks, count)
        await work.run(sequential=sequential)
        seconds, client = time.perf_counter() - started, time.process_time() - client
        after = await _usage(turns, pids)
        completed = await turns.fetchval(
            "SELECT count(*) FROM dag_node_states WHERE job_id = $1 AND status = 'COMPLETED'", work.job_id
        )
        assert completed == count + 1
        cpu = {name: after[name] - before[name] for name in pids} | {"client": client}
        return FloorRun(count, seconds, int(after["wal"] - before["wal"]), cpu)
    finally:
        await turns.close()
        await tasks.close()


async def _usage(connection: asyncpg.Connection[Any], pids: dict[str, int]) -> dict[str, float]:
    wal = await connection.fetchval("SELECT pg_current_wal_lsn() - '0/0'")
    return {name: process_usage.cpu_seconds(pid) for name, pid in pids.items()} | {"wal": float(wal)}


class _FanOut:
    """One fan-out in hand-written SQL. The roles wake each other by events in memory."""

    def __init__(self, turns: asyncpg.Connection[Any], tasks: asyncpg.Connection[Any], count: int) -> None:
        self.turns, self.tasks, self.count = turns, tasks, count
        # As large as a real id, and increasing.
        self.job_id = time.time_ns() // 16
        self.dispatched = self.committed = self.seq = 0
        self._queued, self._reported = asyncio.Event(), asyncio.Event()

    async def run(self, *, sequential: bool) -> None:
        """Run the job from its first row to its completion."""
        await self.begin()
        if sequential:
            while self.dispatched < self.count:
                await self.dispatch()
            while await self.claim():
                pass
            while self.committed < self.count:
                await self.commit_results()
        else:
            async with asyncio.TaskGroup() as group:
                group.create_task(self.orchestrate())
                group.create_task(self.work())
        await self.end()

    async def begin(self) -> None:
        """Insert the job, and the fan-out node with its source list."""
        source = json.dumps([[number] for number in range(self.count)])
        await self.turns.execute(_BEGIN, self.job_id, _OWNER, source, self.count)

    async def end(self) -> None:
        """Mark the job completed."""
        await self.turns.execute(_END, self.job_id, self.seq + 1)

    async def orchestrate(self) -> None:
        """Dispatch tasks and commit reported results until all are completed."""
        while self.committed < self.count:
            self._reported.clear()
            if self.dispatched < self.count:
                await self.dispatch()
                self._queued.set()
            if not await self.commit_results() and self.dispatched == self.count:
                await self._reported.wait()

    async def work(self) -> None:
        """Claim and report until every task is done."""
        done = 0
        while done < self.count:
            self._queued.clear()
            claimed = await self.claim()
            done += claimed
            if claimed:
                self._reported.set()
            else:
                await self._queued.wait()

    async def dispatch(self) -> None:
        """Insert one batch of children into the queue."""
        first = self.dispatched
        indexes = range(first, min(first + DISPATCH, self.count))
        size = len(indexes)
        await self.turns.execute(
            _DISPATCH,
            self.job_id,
            self.seq + size,
            [f"work__{index}" for index in indexes],
            [self.job_id + 1 + index for index in indexes],
            list(indexes),
            [f'{{"chunk": [{index}]}}' for index in indexes],
            list(range(self.seq + 1, self.seq + 1 + size)),
            first + size,
        )
        self.seq += size
        self.dispatched += size

    async def claim(self) -> int:
        """Claim one batch and report it; return its size."""
        token = time.time_ns()
        rows = await self.tasks.fetch(_CLAIM, token, CLAIM)
        if rows:
            outputs = [f'{{"processed": 1, "sum": {row["task_id"] - self.job_id - 1}}}' for row in rows]
            await self.tasks.execute(_REPORT, [row["task_id"] for row in rows], outputs, token)
        return len(rows)

    async def commit_results(self) -> int:
        """Commit one batch of results to the node states; return its size."""
        rows = await self.turns.fetch(_RESULTS, COMMIT)
        if rows:
            size = len(rows)
            ids, nodes, outputs, starts = (list(column) for column in zip(*rows, strict=True))
            finishes = list(range(self.committed + 1, self.committed + 1 + size))
            events = list(range(self.seq + 1, self.seq + 1 + size))
            self.seq += size
            await self.turns.execute(
                _COMMIT, self.job_id, self.seq, ids, nodes, outputs, finishes, starts, events
            )
            self.committed += size
        return len(rows)
