"""The runtime: `dagmaster dev` as it is shipped, a client beside it, and the floor of the same run.

The floor (see `bench.floor`) is measured in alternation with the runtime, on the same server and disk, in a
second database. `measure` yields the full table. `measure_round` yields the shorter one that `bench.compare`
repeats.
"""

from __future__ import annotations

import asyncio
import statistics
import subprocess
import time
from dataclasses import dataclass
from typing import TYPE_CHECKING

from bench import floor, process_usage
from bench.clients import FAN_OUT, chain_of, client, jobs_in_batches, jobs_one_by_one, waits_of
from bench.dev_stack import DAGMASTER, ROOT, Stack, connect, environment, folder
from bench.rows import Row

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence
    from pathlib import Path

CHAIN, CHAINS, WARM_UP_CHAINS = 40, 40, 15
"""Nodes of a chain, measured chains, and chains before: a second of them varies by a tenth."""
SETTLE_SECONDS = 8.0
"""By then the services have opened their last connections."""
MB = 1_000_000
ROUND_PARTS = ("memory", "idle", "chain", "fan_outs", "jobs")
"""The parts of a round, in this order."""
WARM_UP_JOBS = 5

_REST = "postgres, the rest"
"""The postmaster, autovacuum, and the client's connections: finished server processes count for the
postmaster."""


def measure() -> Iterator[Row]:
    """Measure the runtime."""
    with folder() as place:
        yield from _start_times(place)
        with Stack(place / "one") as stack:
            yield Row("dagmaster dev, to ready, new data directory", stack.ready_seconds, "s")
            yield from _memory_at_rest(stack)
            yield from _idle(stack, seconds=10)
            yield from _chains(stack)
        with Stack(place / "two") as stack:
            yield from _fan_outs(stack)
            yield from _jobs(stack, repeats=3)
        with Stack(place / "three") as stack:
            yield _fan_out_after_analyze(stack)
        with Stack(place / "two") as stack:
            yield Row("dagmaster dev, to ready, old data directory", stack.ready_seconds, "s")


def measure_round(parts: Sequence[str]) -> Iterator[Row]:
    """Measure the named parts once, on one new stack, in about 50 s."""
    with folder() as place, Stack(place / "data") as stack:
        if "memory" in parts:
            yield from _memory_at_rest(stack)
        if "idle" in parts:
            yield from _idle(stack, seconds=10)
        if "chain" in parts:
            chains = asyncio.run(_chain(stack.dsn, stack.floor_dsn(), warm_up=WARM_UP_CHAINS))
            yield from _chain_rows(chains)
        if "memory" in parts:
            yield _memory_of_nodes(stack, jobs=60)
        if "fan_outs" in parts:
            yield from _fan_out_round(stack)
        if "jobs" in parts:
            yield from _jobs(stack, repeats=3)


# ── Start ──


def _start_times(place: Path) -> Iterator[Row]:
    new = [_run_hello_world(place / f"new{number}") for number in range(3)]
    old = [_run_hello_world(place / "new0") for _ in range(5)]
    for name, durations, limit in (("new", new, 3), ("old", old, 1)):
        workload = f"dagmaster run hello_world, {name} data directory"
        yield Row(f"{workload}, median of {len(durations)}", statistics.median(durations), "s", at_most=limit)
        yield Row(f"{workload}, best", min(durations), "s", at_most=limit)


def _run_hello_world(data_dir: Path) -> float:
    command = [DAGMASTER, "run", "workflows/hello_world.yaml", "--quiet", "--data-dir", str(data_dir)]
    started = time.perf_counter()
    subprocess.run(command, check=True, capture_output=True, cwd=ROOT, env=environment(), timeout=60)  # noqa: S603 - our own command
    return time.perf_counter() - started


# ── Idle ──


def _memory_at_rest(stack: Stack) -> Iterator[Row]:
    time.sleep(2)
    services = [process_usage.memory(stack.pids[name]) for name in ("orchestrator", "worker")]
    assert not process_usage.children(stack.pids["worker"])
    rss = sum(sizes["Rss"] for sizes in services) / MB
    yield Row("memory, orchestrator + worker at rest, RSS", rss, "MB", at_most=150)
    if all("Pss" in sizes for sizes in services):
        yield Row(
            "memory, orchestrator + worker at rest, PSS", sum(sizes["Pss"] for sizes in services) / MB, "MB"
        )
    dev = process_usage.memory(stack.pids["dev"])
    yield Row("memory, dagmaster dev itself, RSS", dev["Rss"] / MB, "MB")


def _idle(stack: Stack, *, seconds: float) -> Iterator[Row]:
    # The start is over by then, and a session publishes its counters after a second of silence.
    time.sleep(SETTLE_SECONDS)
    queries, started = asyncio.run(_transactions(stack.dsn)), time.perf_counter()
    before = stack.fine_cpu_by_pid()
    time.sleep(seconds)
    after, elapsed = stack.fine_cpu_by_pid(), time.perf_counter() - started
    # Two of them are the first count itself.
    queries = asyncio.run(_transactions(stack.dsn)) - queries - 2
    used = {pid: cpu - before.get(pid, 0) for pid, cpu in after.items()}
    whole, of_server = sum(used.values()), used.get(stack.pids.get("server", -1), 0)
    yield Row("idle, CPU of the whole dev stack", whole / elapsed * 100, "% of a core", at_most=1.3)
    yield Row(
        "idle, CPU of it without the HTTP server",
        (whole - of_server) / elapsed * 100,
        "% of a core",
        at_most=1,
    )
    yield Row("idle, transactions", queries / elapsed, "/s", at_most=10)


async def _transactions(dsn: str) -> int:
    connection = await connect(dsn)
    try:
        return int(
            await connection.fetchval(
                "SELECT xact_commit + xact_rollback FROM pg_stat_database WHERE datname = current_database()"
            )
        )
    finally:
        await connection.close()


# ── Chains, alone and beside many waiting nodes ──


def _chains(stack: Stack) -> Iterator[Row]:
    floor_dsn = stack.floor_dsn()
    alone = asyncio.run(_chain(stack.dsn, floor_dsn, warm_up=WARM_UP_CHAINS))
    yield from _chain_rows(alone)

    asyncio.run(_start_waiting_jobs(stack.dsn, WARM_UP_JOBS))
    rss = process_usage.memory(stack.pids["orchestrator"])["Rss"]
    asyncio.run(_start_waiting_jobs(stack.dsn, 50))
    loaded = asyncio.run(_chain(stack.dsn, floor_dsn, warm_up=2))
    # Both relative to their floors: the load of a shared machine changes within a minute.
    quicker = alone.floor / loaded.floor
    yield Row(
        "dispatch beside 50,000 waiting nodes, relative to alone",
        loaded.hop / alone.hop * quicker,
        "x",
        at_most=1.1,
    )
    yield Row(
        "chain beside 50,000 waiting nodes, relative to alone",
        loaded.seconds / alone.seconds * quicker,
        "x",
        at_most=1.1,
    )
    started = time.perf_counter()
    asyncio.run(_start_waiting_jobs(stack.dsn, 50))
    yield Row("nodes begin to wait, in jobs of 1,000", 50_000 / (time.perf_counter() - started), "/s")
    growth = process_usage.memory(stack.pids["orchestrator"])["Rss"] - rss
    yield Row("memory of a live node, of 100,000, by RSS", growth / 100_000, "B", at_most=1024)


def _chain_rows(chains: _Chains) -> Iterator[Row]:
    floor_ms = chains.floor * 1_000
    yield Row(
        f"chain of {CHAIN}, submit to completed, median of {CHAINS}", chains.seconds * 1_000, "ms",
        floor=floor_ms, at_most=2 * floor_ms, target="≤ 2 x the floor",
    )  # fmt: skip
    yield Row("chain, from dispatch to dispatch, p50", chains.hop, "ms", at_most=2, floor=floor_ms / CHAIN)
    yield Row("chain, from dispatch to dispatch, p90", chains.hop_90, "ms", floor=floor_ms / CHAIN)


def _memory_of_nodes(stack: Stack, jobs: int) -> Row:
    # The first jobs load code and fill caches: 3 to 7 MB, however many nodes follow.
    asyncio.run(_start_waiting_jobs(stack.dsn, WARM_UP_JOBS))
    rss = process_usage.memory(stack.pids["orchestrator"])["Rss"]
    asyncio.run(_start_waiting_jobs(stack.dsn, jobs))
    growth = process_usage.memory(stack.pids["orchestrator"])["Rss"] - rss
    return Row(f"memory of a live node, of {jobs},000, by RSS", growth / (jobs * 1_000), "B", at_most=1024)


@dataclass(frozen=True, slots=True)
class _Chains:
    """Seconds of a chain, of the runtime and of the floor; milliseconds of a hop, median and 90th percentile."""

    seconds: float
    floor: float
    hop: float
    hop_90: float


async def _chain(dsn: str, floor_dsn: str, *, warm_up: int) -> _Chains:
    """Run chains and floors in alternation, so that both meet the same machine."""
    graph = chain_of(CHAIN)
    runs: list[tuple[float, int]] = []
    floors: list[float] = []
    async with client(dsn) as submitter, floor.chain(floor_dsn, CHAIN) as run_floor:
        for _ in range(warm_up):
            await submitter.run(graph)
        for _ in range(CHAINS):
            floors.append(await run_floor())
            runs.append(await submitter.run(graph))
        hop, hop_90 = await submitter.hops([job_id for _, job_id in runs])
    return _Chains(statistics.median(seconds for seconds, _ in runs), statistics.median(floors), hop, hop_90)


async def _start_waiting_jobs(dsn: str, jobs: int) -> None:
    async with client(dsn) as submitter:
        await submitter.start_waiting_jobs(waits_of(1_000), jobs)


# ── Fan-outs ──


def _fan_outs(stack: Stack) -> Iterator[Row]:
    floor_dsn = stack.floor_dsn()
    asyncio.run(_fan_out(stack.dsn, 1_000))
    small = _FanOuts(stack, floor_dsn, 1_000, repeats=5)
    yield Row("fan-out of 1,000 with a join", small.rate, "tasks/s", floor=small.floor, at_least=5_000)
    for count, repeats in ((10_000, 3), (100_000, 1)):
        large = _FanOuts(stack, floor_dsn, count, repeats=repeats)
        yield Row(
            f"fan-out of {count:,} with a join", large.rate, "tasks/s", floor=large.floor, at_least=large.floor / 2,
            target="≥ 0.5 x the floor",
        )  # fmt: skip
        if count == 100_000:
            yield Row("fan-out, a task at 100,000 to one at 1,000", small.rate / large.rate, "x", at_most=1.3)
            yield from large.details()
    for name in ("orchestrator", "worker"):
        peak = process_usage.memory(stack.pids[name])["VmHWM"]
        yield Row(f"fan-out of 100,000, peak memory of the {name}", peak / MB, "MB")


def _fan_out_after_analyze(stack: Stack) -> Row:
    """Measure fan-outs before and after the queue is analyzed while it is empty: then its estimated rows are 0."""
    count, repeats = 20_000, 3
    asyncio.run(_fan_out(stack.dsn, 1_000))
    fresh = _FanOuts(stack, None, count, repeats=repeats)
    asyncio.run(_analyze_empty_queue(stack.dsn))
    analyzed = _FanOuts(stack, None, count, repeats=repeats)
    return Row(
        f"fan-out of {count:,} after analyze while empty, to fresh",
        fresh.rate / analyzed.rate,
        "x",
        at_most=1.2,
    )


async def _analyze_empty_queue(dsn: str) -> None:
    connection = await connect(dsn)
    try:
        await connection.execute("ANALYZE dag_task_queue")
        statistics = "SELECT relpages > 0 AND reltuples = 0 FROM pg_class WHERE relname = 'dag_task_queue'"
        assert await connection.fetchval(statistics), "the queue is not empty, or was truncated"
    finally:
        await connection.close()


def _fan_out_round(stack: Stack) -> Iterator[Row]:
    asyncio.run(_fan_out(stack.dsn, 1_000))
    for count, repeats in ((1_000, 5), (10_000, 2), (100_000, 1)):
        runs = _FanOuts(stack, None, count, repeats=repeats)
        yield Row(f"fan-out of {count:,} with a join", runs.rate, "tasks/s")
        if count > 1_000:
            yield Row(f"fan-out of {count:,}, CPU of a task: all", runs.cpu_micros, "µs")


class _FanOuts:
    """Fan-outs of one size; with `floor_dsn`, the floor before each of them."""

    def __init__(self, stack: Stack, floor_dsn: str | None, count: int, *, repeats: int) -> None:
        self.count = count
        durations: list[float] = []
        floors: list[floor.FloorRun] = []
        for _ in range(repeats):
            if floor_dsn is not None:
                floors.append(floor.fan_out(floor_dsn, count))
            # By then its connections are closed, and their CPU time counts for the postmaster.
            time.sleep(0.2)
            names, before = stack.names(), stack.cpu()
            seconds, self._wal = asyncio.run(_fan_out(stack.dsn, count))
            durations.append(seconds)
            # Of the last run.
            self._cpu: dict[str, float] = {}
            for pid, after in stack.cpu().items():
                name = names.get(pid, _REST)
                self._cpu[name] = self._cpu.get(name, 0) + after - before.get(pid, 0)
        self._floors = floors
        self.rate = count / statistics.median(durations)

    @property
    def floor(self) -> float:
        """Return the floor's tasks per second."""
        return statistics.median(run.rate for run in self._floors)

    @property
    def cpu_micros(self) -> float:
        """Return microseconds of CPU time a task, of all processes together."""
        return sum(self._cpu.values()) * MB / self.count

    def details(self) -> Iterator[Row]:
        """Yield CPU time of each process and bytes of WAL, a task."""
        scale = MB / self.count
        last = self._floors[-1]
        floors = {f"postgres for dagmaster {name}": cpu for name, cpu in last.cpu.items()}
        workload = f"fan-out of {self.count:,}, CPU of a task"
        for name, cpu in sorted(self._cpu.items(), key=lambda pair: -pair[1]):
            if cpu * scale >= 1:
                lowest = floors.get(name)
                yield Row(
                    f"{workload}: {name}", cpu * scale, "µs", floor=None if lowest is None else lowest * scale
                )
        yield Row(f"{workload}: all", self.cpu_micros, "µs", floor=sum(last.cpu.values()) * scale)
        lowest_wal = last.wal_bytes / self.count
        yield Row(f"fan-out of {self.count:,}, WAL of a task", self._wal / self.count, "B", floor=lowest_wal)


async def _fan_out(dsn: str, count: int) -> tuple[float, int]:
    """Run one fan-out; return its seconds and its bytes of WAL."""
    async with client(dsn) as submitter:
        before = await submitter.wal_bytes()
        seconds, _ = await submitter.run(FAN_OUT, {"count": count})
        return seconds, await submitter.wal_bytes() - before


# ── Many small jobs ──


def _jobs(stack: Stack, *, repeats: int) -> Iterator[Row]:
    graph, count = chain_of(1), 1_000
    asyncio.run(jobs_in_batches(stack.dsn, graph, 200, 100))
    batches = [asyncio.run(jobs_in_batches(stack.dsn, graph, count, 100)) for _ in range(repeats)]
    singles = [asyncio.run(jobs_one_by_one(stack.dsn, graph, count, 32)) for _ in range(repeats)]
    for method, runs, target in (
        ("in batches of 100", batches, 3_000),
        ("one by one from 32 clients", singles, 1_000),
    ):
        completed = statistics.median(run.completed for run in runs)
        yield Row(f"1,000 jobs {method}, completed", completed, "jobs/s", at_least=target)
        yield Row(f"1,000 jobs {method}, accepted", statistics.median(run.accepted for run in runs), "jobs/s")
