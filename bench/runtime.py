"""The runtime: `dagmaster dev` as it is shipped, a client beside it, and the floor of the same run.

The floor (see `floor`) is measured between ours, on the same server and disk, in a database beside ours.
"""

from __future__ import annotations

import asyncio
import statistics
import subprocess
import time
from dataclasses import dataclass
from typing import TYPE_CHECKING

from bench import floor, processes
from bench.clients import FAN_OUT, chain_of, client, jobs_in_batches, jobs_one_by_one, waits_of
from bench.rows import Row
from bench.stack import DAGMASTER, ROOT, Stack, connect, environment, folder

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

CHAIN, CHAINS = 40, 15
MB = 1_000_000
_REST = "postgres, the rest"
"""The postmaster, autovacuum, and the connections of the client: all that is over by then is the postmaster's."""


def measure() -> Iterator[Row]:
    """Measure the runtime."""
    with folder() as place:
        yield from _starts(place)
        with Stack(place / "one") as stack:
            yield Row("dagmaster dev, to ready, new data directory", stack.ready_seconds, "s")
            yield from _at_rest(stack)
            yield from _idle(stack)
            yield from _chains(stack)
        with Stack(place / "two") as stack:
            yield from _fan_outs(stack)
            yield from _jobs(stack)
        with Stack(place / "two") as stack:
            yield Row("dagmaster dev, to ready, old data directory", stack.ready_seconds, "s")


# ── Starting ──


def _starts(place: Path) -> Iterator[Row]:
    new = [_hello(place / f"new{number}") for number in range(3)]
    old = [_hello(place / "new0") for _ in range(5)]
    for name, found, most in (("new", new, 3), ("old", old, 1)):
        what = f"dagmaster run hello_world, {name} data directory"
        yield Row(f"{what}, median of {len(found)}", statistics.median(found), "s", at_most=most)
        yield Row(f"{what}, best", min(found), "s", at_most=most)


def _hello(data_dir: Path) -> float:
    command = [DAGMASTER, "run", "workflows/hello_world.yaml", "--quiet", "--data-dir", str(data_dir)]
    begun = time.perf_counter()
    subprocess.run(command, check=True, capture_output=True, cwd=ROOT, env=environment(), timeout=60)  # noqa: S603 - our own command
    return time.perf_counter() - begun


# ── Doing nothing ──


def _at_rest(stack: Stack) -> Iterator[Row]:
    time.sleep(2)
    ours = [processes.memory(stack.pids[name]) for name in ("orchestrator", "worker")]
    assert not processes.children(stack.pids["worker"])
    yield Row("memory, orchestrator + worker at rest, RSS", sum(m["Rss"] for m in ours) / MB, "MB", at_most=150)
    if all("Pss" in m for m in ours):
        yield Row("memory, orchestrator + worker at rest, PSS", sum(m["Pss"] for m in ours) / MB, "MB")
    dev = processes.memory(stack.pids["dev"])
    yield Row("memory, dagmaster dev itself, RSS", dev["Rss"] / MB, "MB")


def _idle(stack: Stack) -> Iterator[Row]:
    # A session tells its counts when it was quiet for a second, so the first of them are of before.
    time.sleep(1)
    queries, used, begun = asyncio.run(_commits(stack.dsn)), stack.fine_cpu(), time.perf_counter()
    time.sleep(10)
    used, taken = stack.fine_cpu() - used, time.perf_counter() - begun
    # Two of them are the first look itself.
    queries = asyncio.run(_commits(stack.dsn)) - queries - 2
    yield Row("idle, CPU of the whole dev stack", used / taken * 100, "% of a core", at_most=1)
    yield Row("idle, transactions", queries / taken, "/s", at_most=10)


async def _commits(dsn: str) -> int:
    connection = await connect(dsn)
    try:
        return int(
            await connection.fetchval(
                "SELECT xact_commit + xact_rollback FROM pg_stat_database WHERE datname = current_database()"
            )
        )
    finally:
        await connection.close()


# ── Chains, alone and beside many nodes that wait ──


def _chains(stack: Stack) -> Iterator[Row]:
    floor_dsn = stack.floor_dsn()
    alone = asyncio.run(_chain(stack.dsn, floor_dsn, warm_up=5))
    lowest = alone.floor * 1_000
    yield Row(
        f"chain of {CHAIN}, submit to completed, median of {CHAINS}", alone.seconds * 1_000, "ms",
        floor=lowest, at_most=2 * lowest, wanted="≤ 2 x the floor",
    )  # fmt: skip
    yield Row("chain, from dispatch to dispatch, p50", alone.hop, "ms", at_most=2, floor=lowest / CHAIN)
    yield Row("chain, from dispatch to dispatch, p90", alone.hop_90, "ms", floor=lowest / CHAIN)

    rss = processes.memory(stack.pids["orchestrator"])["Rss"]
    asyncio.run(_wait(stack.dsn, 50))
    beside = asyncio.run(_chain(stack.dsn, floor_dsn, warm_up=2))
    # Both by their floors: others may use this machine more or less than a minute ago.
    quicker = alone.floor / beside.floor
    yield Row("dispatch beside 50,000 waiting nodes, to alone", beside.hop / alone.hop * quicker, "x", at_most=1.1)
    yield Row("chain beside 50,000 waiting nodes, to alone", beside.seconds / alone.seconds * quicker, "x", at_most=1.1)
    begun = time.perf_counter()
    asyncio.run(_wait(stack.dsn, 50))
    yield Row("nodes begin to wait, in jobs of 1,000", 50_000 / (time.perf_counter() - begun), "/s")
    more = processes.memory(stack.pids["orchestrator"])["Rss"] - rss
    yield Row("memory of a live node, of 100,000, by RSS", more / 100_000, "B", at_most=1024)


@dataclass(frozen=True, slots=True)
class _Chains:
    """Seconds of a chain, ours and by hand; and milliseconds of a hop, median and nine in ten."""

    seconds: float
    floor: float
    hop: float
    hop_90: float


async def _chain(dsn: str, floor_dsn: str, *, warm_up: int) -> _Chains:
    """Ours and the floor by turns, so that both meet the same machine."""
    graph = chain_of(CHAIN)
    found: list[tuple[float, int]] = []
    by_hand: list[float] = []
    async with client(dsn) as one, floor.chain(floor_dsn, CHAIN) as run_by_hand:
        for _ in range(warm_up):
            await one.run(graph)
        for _ in range(CHAINS):
            by_hand.append(await run_by_hand())
            found.append(await one.run(graph))
        hop, hop_90 = await one.hops([job_id for _, job_id in found])
    return _Chains(statistics.median(taken for taken, _ in found), statistics.median(by_hand), hop, hop_90)


async def _wait(dsn: str, jobs: int) -> None:
    async with client(dsn) as one:
        await one.wait(waits_of(1_000), jobs)


# ── Fan-outs ──


def _fan_outs(stack: Stack) -> Iterator[Row]:
    floor_dsn = stack.floor_dsn()
    asyncio.run(_fan_out(stack.dsn, 1_000))
    small = _FanOuts(stack, floor_dsn, 1_000, times=5)
    yield Row("fan-out of 1,000 with a join", small.rate, "tasks/s", floor=small.floor, at_least=5_000)
    for count, times in ((10_000, 3), (100_000, 1)):
        large = _FanOuts(stack, floor_dsn, count, times=times)
        yield Row(
            f"fan-out of {count:,} with a join", large.rate, "tasks/s", floor=large.floor, at_least=large.floor / 2,
            wanted="≥ 0.5 x the floor",
        )  # fmt: skip
        if count == 100_000:
            yield Row("fan-out, a task at 100,000 to one at 1,000", small.rate / large.rate, "x", at_most=1.3)
            yield from large.details()
    for name in ("orchestrator", "worker"):
        most = processes.memory(stack.pids[name])["VmHWM"]
        yield Row(f"fan-out of 100,000, most memory of the {name}", most / MB, "MB")


class _FanOuts:
    """Fan-outs of one size: ours and the floor, one after the other."""

    def __init__(self, stack: Stack, floor_dsn: str, count: int, *, times: int) -> None:
        self.count = count
        taken: list[float] = []
        by_hand: list[floor.Measured] = []
        for _ in range(times):
            by_hand.append(floor.fan_out(floor_dsn, count))
            # Its connections are gone by then, and their CPU time is the postmaster's.
            time.sleep(0.2)
            names, before = stack.names(), stack.cpu()
            seconds, self._wal = asyncio.run(_fan_out(stack.dsn, count))
            taken.append(seconds)
            # Of the last one.
            self._cpu: dict[str, float] = {}
            for pid, after in stack.cpu().items():
                name = names.get(pid, _REST)
                self._cpu[name] = self._cpu.get(name, 0) + after - before.get(pid, 0)
        self._by_hand = by_hand[-1]
        self.rate = count / statistics.median(taken)
        self.floor = statistics.median(one.rate for one in by_hand)

    def details(self) -> Iterator[Row]:
        """CPU time of each process and bytes of WAL, a task."""
        each = MB / self.count
        floors = {f"postgres for dagmaster {name}": used for name, used in self._by_hand.cpu.items()}
        what = f"fan-out of {self.count:,}, CPU of a task"
        for name, used in sorted(self._cpu.items(), key=lambda pair: -pair[1]):
            if used * each >= 1:
                least = floors.get(name)
                yield Row(f"{what}: {name}", used * each, "µs", floor=None if least is None else least * each)
        whole = sum(self._by_hand.cpu.values()) * each
        yield Row(f"{what}: all", sum(self._cpu.values()) * each, "µs", floor=whole)
        least = self._by_hand.wal_bytes / self.count
        yield Row(f"fan-out of {self.count:,}, WAL of a task", self._wal / self.count, "B", floor=least)


async def _fan_out(dsn: str, count: int) -> tuple[float, int]:
    """Seconds, and bytes of WAL."""
    async with client(dsn) as one:
        before = await one.wal()
        taken, _ = await one.run(FAN_OUT, {"count": count})
        return taken, await one.wal() - before


# ── Many small jobs ──


def _jobs(stack: Stack) -> Iterator[Row]:
    graph, count = chain_of(1), 1_000
    asyncio.run(jobs_in_batches(stack.dsn, graph, 200, 100))
    batches = [asyncio.run(jobs_in_batches(stack.dsn, graph, count, 100)) for _ in range(3)]
    singles = [asyncio.run(jobs_one_by_one(stack.dsn, graph, count, 32)) for _ in range(3)]
    for what, found, least in (
        ("in batches of 100", batches, 3_000),
        ("one by one from 32 clients", singles, 1_000),
    ):
        completed = statistics.median(each.completed for each in found)
        yield Row(f"1,000 jobs {what}, completed", completed, "jobs/s", at_least=least)
        yield Row(f"1,000 jobs {what}, accepted", statistics.median(each.accepted for each in found), "jobs/s")
