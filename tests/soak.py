"""Repeat the randomised tests of `make test` with new seeds for hours: `make soak MINUTES=30`.

A soak continues from the last seed. The counts accumulate in `.soak.json`, which is not part of the repository, and are
printed next to their targets. A round that fails ends the soak with exit code 1 and prints how to repeat it:
`python -m tests.soak ROUND SEED`.
"""

from __future__ import annotations

import asyncio
import itertools
import json
import math
import os
import random
import re
import subprocess
import sys
import tempfile
import time
import traceback
from collections import Counter
from concurrent.futures import ProcessPoolExecutor
from dataclasses import dataclass, field
from multiprocessing import get_context
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

from tests.acceptance.chaos import scenarios
from tests.acceptance.chaos.scenarios import Done
from tests.simulation.schedules import broken_in
from tests.unit.geo.formats import fuzzing

if TYPE_CHECKING:
    from collections.abc import Callable, Coroutine

STATE: Final = Path(os.environ.get("DAGMASTER_SOAK_STATE", Path(__file__).parents[1] / ".soak.json"))
SCHEDULES: Final = 2_000
BATCH: Final = 50
RASTER_BATCHES: Final = 20
RASTERS: Final = 25
"""Rasters of a batch."""
KEPT_TIMES: Final = 2_000
"""Times that are kept of every row."""
FUZZ_SECONDS: Final = 300.0
FUZZ_SEEDS: Final = 1_000
FUZZ_FIRST_SEED: Final = 1_000_000
"""Far from the seeds of `make test`."""


class RoundFailed(Exception):
    """A round found a violation."""


# ── Rounds ──────────────────────────────────────────────────────────────────────────────────────────────────────────


@dataclass(frozen=True, slots=True)
class Round:
    """A test that takes a seed and a time limit; it returns its counts, or raises."""

    name: str
    run: Callable[[int, float], Done]
    seconds: float
    """Its shortest duration: it does not start when less time is left."""


def properties(seed: int, seconds: float) -> Done:
    """Run every property test; hypothesis marks them."""
    command = [
        sys.executable,
        "-m",
        "pytest",
        "-q",
        "-n",
        "2",
        "-m",
        "hypothesis",
        f"--hypothesis-seed={seed}",
    ]
    env = os.environ | {"HYPOTHESIS_PROFILE": "soak"}
    try:
        completed = subprocess.run(
            command,
            env=env,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
            check=False,
            timeout=seconds,
        )
    except subprocess.TimeoutExpired:
        return Done()
    if completed.returncode != 0:
        raise RoundFailed(f"{completed.stdout}\nRepeat: HYPOTHESIS_PROFILE=soak {' '.join(command)}")
    passed = re.findall(r"(\d+) passed", completed.stdout)
    return Done(Counter({"properties": int(passed[-1]) if passed else 0}))


def simulation(seed: int, seconds: float) -> Done:
    """Run schedules of the simulation in one process per core: those of this seed, until the time is up."""
    started = time.monotonic()
    count = 0
    with ProcessPoolExecutor(os.cpu_count(), mp_context=get_context("spawn")) as pool:
        first = seed * SCHEDULES
        chunks = [range(start, start + BATCH) for start in range(first, first + SCHEDULES, BATCH)]
        for broken in pool.map(broken_in, chunks):
            if broken is not None:
                raise RoundFailed(f"{broken[1]}\nRepeat: python -m tests.simulation.schedules {broken[0]}")
            count += BATCH
            if time.monotonic() - started > seconds - 10:
                pool.shutdown(cancel_futures=True)
                break
    return Done(Counter({"simulation": count}))


def fuzz(seed: int, seconds: float) -> Done:
    """Read damaged files of every format in a child process, until the time is up. A crash of the child is counted."""
    counts: Counter[str] = Counter()
    deadline = time.monotonic() + min(seconds, FUZZ_SECONDS)
    with tempfile.TemporaryDirectory(prefix="dagmaster-fuzz-") as folder:
        samples = list(fuzzing.originals(Path(folder)))
        for number in range(FUZZ_SEEDS):
            first = FUZZ_FIRST_SEED + seed * FUZZ_SEEDS + number
            outcomes = fuzzing.fuzz(samples, range(first, first + 1))
            counts["fuzz"] += sum(outcomes[outcome] for outcome in ("read", "refused", "crashed", "hung"))
            counts.update(
                {name: count for name, count in outcomes.items() if name.startswith(("crashed ", "hung "))}
            )
            if time.monotonic() > deadline:
                break
    return Done(counts)


def rasters(seed: int, seconds: float) -> Done:
    """Compare COGs of random rasters with those of GDAL's driver."""
    from tests.unit.geo.raster.cog_comparison import first_broken_case

    return Done(Counter({"rasters": compare_with_gdal(first_broken_case, seed, seconds)}))


def warps(seed: int, seconds: float) -> Done:
    """Compare warps of random rasters with GDAL's."""
    from tests.unit.geo.raster.warp_comparison import first_broken_warp

    return Done(Counter({"warps": compare_with_gdal(first_broken_warp, seed, seconds)}))


def compare_with_gdal(first_broken: Callable[[int, int], str | None], seed: int, seconds: float) -> int:
    """Compare batches in one process per core, as GDAL does not survive a fork; return the number of rasters."""
    started = time.monotonic()
    count = 0
    with ProcessPoolExecutor(os.cpu_count(), mp_context=get_context("spawn")) as pool:
        seeds = range(seed * RASTER_BATCHES, (seed + 1) * RASTER_BATCHES)
        for broken in pool.map(first_broken, seeds, itertools.repeat(RASTERS)):
            if broken is not None:
                raise RoundFailed(broken)
            count += RASTERS
            if time.monotonic() - started > seconds - 10:
                pool.shutdown(cancel_futures=True)
                break
    return count


def http(seed: int, seconds: float) -> Done:
    """Send requests that are made from the OpenAPI document; none may be answered with a server error, or slowly."""
    from tests.unit.http.api_fuzzing import SLOWEST_SECONDS, run_fuzz

    report = run_fuzz(seed, 20, seconds=min(seconds, FUZZ_SECONDS) - 10)
    if report.failures:
        raise RoundFailed("\n".join(report.failures[:10]))
    if report.slowest[0] > SLOWEST_SECONDS:
        raise RoundFailed(f"{report.slowest[0]:.1f} s: {report.slowest[1]}")
    return Done(Counter({"http": sum(report.statuses.values())}))


def as_round(scenario: Callable[[random.Random], Coroutine[Any, Any, Done]]) -> Callable[[int, float], Done]:
    """Return a chaos scenario as a round."""
    return lambda seed, _seconds: asyncio.run(scenario(random.Random(seed)))


ROUNDS: Final = [
    Round("simulation", simulation, 60.0),
    Round("kill", as_round(lambda chance: scenarios.kill_services(5, nodes=10_000, chance=chance)), 60.0),
    Round("grow", as_round(lambda chance: scenarios.kill_growing_jobs(3, tasks=100, chance=chance)), 30.0),
    Round(
        "poison", as_round(lambda chance: scenarios.poison_workers(kills_worker=chance.random() < 0.5)), 30.0
    ),
    Round("postgresql", as_round(lambda chance: scenarios.kill_server(5, nodes=5_000, chance=chance)), 60.0),
    Round("stop", as_round(lambda chance: scenarios.stop_owner(6, chance=chance)), 60.0),
    Round("pause", as_round(lambda chance: scenarios.stop_worker(6, chance=chance)), 60.0),
    Round("quiet", as_round(lambda _chance: scenarios.no_fault(5, nodes=10_000)), 60.0),
    Round("cut", as_round(lambda chance: scenarios.lose_answers(20, chance=chance)), 60.0),
    Round("owner", as_round(lambda _chance: scenarios.kill_owner_of_many(1_000)), 60.0),
    Round(
        "terminate",
        as_round(lambda chance: scenarios.terminate_services(3, nodes=3_000, chance=chance)),
        60.0,
    ),
    Round("keys", as_round(lambda _chance: scenarios.share_keys(20, clients=64)), 30.0),
    Round("fuzz", fuzz, 60.0),
    Round("http", http, 60.0),
    Round("rasters", rasters, 60.0),
    Round("warps", warps, 60.0),
    Round("properties", properties, 180.0),
]
"""The rounds, in this order, repeated until the time is up."""


# ── The table ───────────────────────────────────────────────────────────────────────────────────────────────────────


@dataclass(frozen=True, slots=True)
class Row:
    """The target of one kind of fault: how often it was tried, and how soon jobs make progress again."""

    name: str
    description: str
    target: int
    p95_seconds: float | None = None


TABLE: Final = [
    Row("fuzz", "cut and bit-flipped files of every format, read in a child process", 100_000),
    Row("http", "requests to the API that are made from its OpenAPI document, valid and invalid", 100_000),
    Row("properties", "runs of a property with new examples", 100_000),
    Row("simulation", "schedules of the deterministic simulation", 1_000_000),
    Row("rasters", "COGs of random rasters, compared with those of GDAL's driver", 20_000),
    Row("warps", "warps of random rasters, compared with GDAL's", 5_000),
    Row(
        "kill orchestrator",
        "kill -9 of the owner of a job of 10,000 nodes, until the job makes progress",
        200,
        5.0,
    ),
    Row("kill worker", "kill -9 of a worker that holds tasks, until they are marked lost", 200, 5.0),
    Row("kill PostgreSQL", "kill -9 of PostgreSQL, until jobs make progress", 50, 10.0),
    Row("stop owner", "an owner paused past its lease, until it wakes and notices", 200),
    Row("stop worker", "a worker paused past its lease, until it wakes and notices", 200),
    Row("no fault", "jobs of 10,000 nodes while nothing happens", 100),
    Row("cut connection", "connections cut and commit answers lost, until a job is finished", 500, 30.0),
    Row("same key", "one idempotency key from 64 clients", 20),
    Row("owner of many jobs", "jobs of a dead owner, until all are owned again", 1_000, 10.0),
    Row("SIGTERM", "services stopped under load, until they have exited", 3, 10.0),
    Row("release", "jobs of a stopped owner, until they make progress", 3, 1.0),
]


@dataclass(slots=True)
class SoakState:
    """The accumulated counts and times of all soaks."""

    seed: int = 1
    counts: Counter[str] = field(default_factory=Counter)
    seconds: dict[str, list[float]] = field(default_factory=dict)
    violations: Counter[str] = field(default_factory=Counter)
    failed: list[dict[str, Any]] = field(default_factory=list)
    work: dict[str, Counter[str]] = field(default_factory=dict)
    """By round: how often handlers were executed, and how many of these executions were repeated."""

    @classmethod
    def load(cls, path: Path) -> SoakState:
        """Read the state from a file, or start with an empty one."""
        if not path.exists():
            return cls()
        state = json.loads(path.read_text())
        return cls(
            state["seed"], Counter(state["counts"]), state["seconds"], Counter(state["violations"]), state["failed"],
            {name: Counter(counts) for name, counts in state.get("work", {}).items()},
        )  # fmt: skip

    def save(self, path: Path) -> None:
        """Replace the file atomically."""
        temporary = path.with_suffix(".new")
        state = {
            "seed": self.seed, "counts": self.counts, "seconds": self.seconds, "violations": self.violations,
            "failed": self.failed, "work": self.work,
        }  # fmt: skip
        temporary.write_text(json.dumps(state, indent=1))
        temporary.replace(path)

    def add(self, name: str, done: Done) -> None:
        """Add the counts of a round that held."""
        self.counts.update(done.counts)
        self.work.setdefault(name, Counter()).update(done.work)
        for fault, times in done.seconds.items():
            self.seconds[fault] = [*self.seconds.get(fault, ()), *times][-KEPT_TIMES:]

    def fail(self, name: str, seed: int) -> None:
        """Record a round that failed."""
        self.violations[name] += 1
        self.failed.append({"round": name, "seed": seed})

    def table(self) -> list[str]:
        """Return the lines of the table: counts and targets."""
        lines = [f"{'':20} {'done':>10} {'target':>10} {'p95':>8} {'target':>8}"]
        for row in TABLE:
            times = self.seconds.get(row.name)
            p95 = f"{percentile(times, 0.95):.1f} s" if times else "-"
            limit = f"{row.p95_seconds:g} s" if row.p95_seconds is not None else "-"
            lines.append(
                f"{row.name:20} {self.counts[row.name]:>10,} {row.target:>10,} {p95:>8} {limit:>8}  {row.description}"
            )
        for name, work in self.work.items():
            if work["executions"]:
                lines.append(
                    f"{name}: {work['executions']:,} executions of {work['nodes']:,} nodes;"
                    f" {work['repeated']:,} repeated, {work['repeated_in_one_attempt']:,} of them in one attempt"
                )
        failed = ", ".join(f"{name} {count}" for name, count in self.violations.items())
        return [*lines, f"failed rounds: {failed or 'none'}"]


def percentile(times: list[float], part: float) -> float:
    """Return the time that this fraction of all times does not exceed."""
    ordered = sorted(times)
    return ordered[math.ceil(len(ordered) * part) - 1]


# ── Soaking ─────────────────────────────────────────────────────────────────────────────────────────────────────────


def main(arguments: list[str]) -> int:
    """Run the soak and print its table; with a round and a seed, repeat only that round."""
    if arguments:
        name, seed = arguments
        selected = next(round_ for round_ in ROUNDS if round_.name == name)
        print(selected.run(int(seed), 3600.0))
        return 0
    minutes = float(os.environ.get("DAGMASTER_SOAK_MINUTES", "30"))
    state = SoakState.load(STATE)
    print(f"soak: {minutes:g} minutes from seed {state.seed}; counts accumulate in {STATE.name}", flush=True)
    code = soak(state, time.monotonic() + minutes * 60)
    print("\n".join(state.table()))
    return code


def soak(state: SoakState, deadline: float) -> int:
    """Run rounds until the deadline, or until one of them fails; return the exit code."""
    while any(round_.seconds < deadline - time.monotonic() for round_ in ROUNDS):
        for round_ in ROUNDS:
            left = deadline - time.monotonic()
            if round_.seconds >= left:
                continue
            seed, state.seed = state.seed, state.seed + 1
            started = time.monotonic()
            try:
                done = round_.run(seed, left)
            except Exception:  # noqa: BLE001 - any exception is a violation
                traceback.print_exc()
                state.fail(round_.name, seed)
                state.save(STATE)
                print(f"soak: FAILED. Repeat: python -m tests.soak {round_.name} {seed}")
                return 1
            state.add(round_.name, done)
            state.save(STATE)
            counts = (
                ", ".join(f"{count} {name}" for name, count in done.counts.items()) or "no result in time"
            )
            print(
                f"soak: {round_.name}, seed {seed}: {counts}, {time.monotonic() - started:.1f} s", flush=True
            )
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
