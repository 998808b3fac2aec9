"""Try for hours what `make test` tries once: rounds with new seeds until the minutes are over.

`make soak MINUTES=30`. It goes on from the last seed; what was reached so far is kept in `.soak.json`, beside this
project and not in it, and printed as the table of what is wanted. A round that fails ends the soak with exit code 1 and
says how to run it again: `python -m tests.soak ROUND SEED`.
"""

from __future__ import annotations

import asyncio
import json
import math
import os
import random
import re
import subprocess
import sys
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

if TYPE_CHECKING:
    from collections.abc import Callable, Coroutine

STATE: Final = Path(os.environ.get("DAGMASTER_SOAK_STATE", Path(__file__).parents[1] / ".soak.json"))
SCHEDULES: Final = 2_000
AT_ONCE: Final = 50
KEPT: Final = 2_000
"""Times that are kept of each row."""


class Failed(Exception):
    """A round found something."""


# ── Rounds ──────────────────────────────────────────────────────────────────────────────────────────────────────────


@dataclass(frozen=True, slots=True)
class Round:
    """Something to try with a seed, in about so many seconds. It tells what it did, or raises."""

    name: str
    run: Callable[[int, float], Done]
    seconds: float
    """How long it takes at least: it is not begun when less is left."""


def properties(seed: int, seconds: float) -> Done:
    """Every property test; hypothesis marks them for us."""
    command = [sys.executable, "-m", "pytest", "-q", "-n", "2", "-m", "hypothesis", f"--hypothesis-seed={seed}"]
    env = os.environ | {"HYPOTHESIS_PROFILE": "soak"}
    try:
        done = subprocess.run(
            command, env=env, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, check=False, timeout=seconds
        )
    except subprocess.TimeoutExpired:
        return Done()
    if done.returncode != 0:
        raise Failed(f"{done.stdout}\nAgain: HYPOTHESIS_PROFILE=soak {' '.join(command)}")
    found = re.findall(r"(\d+) passed", done.stdout)
    return Done(Counter({"properties": int(found[-1]) if found else 0}))


def storms(seed: int, seconds: float) -> Done:
    """Schedules of the simulation, in a process for each core: those of this seed, as many as there is time for."""
    began = time.monotonic()
    count = 0
    with ProcessPoolExecutor(os.cpu_count(), mp_context=get_context("spawn")) as pool:
        first = seed * SCHEDULES
        chunks = [range(start, start + AT_ONCE) for start in range(first, first + SCHEDULES, AT_ONCE)]
        for broken in pool.map(broken_in, chunks):
            if broken is not None:
                raise Failed(f"{broken[1]}\nAgain: python -m tests.simulation.schedules {broken[0]}")
            count += AT_ONCE
            if time.monotonic() - began > seconds - 10:
                pool.shutdown(cancel_futures=True)
                break
    return Done(Counter({"simulation": count}))


def played(scenario: Callable[[random.Random], Coroutine[Any, Any, Done]]) -> Callable[[int, float], Done]:
    """A scenario of chaos as a round."""
    return lambda seed, _seconds: asyncio.run(scenario(random.Random(seed)))


ROUNDS: Final = [
    Round("simulation", storms, 60.0),
    Round("kill", played(lambda chance: scenarios.kill_services(5, nodes=10_000, chance=chance)), 60.0),
    Round("postgresql", played(lambda chance: scenarios.kill_server(5, nodes=5_000, chance=chance)), 60.0),
    Round("stop", played(lambda chance: scenarios.stop_owner(6, chance=chance)), 60.0),
    Round("cut", played(lambda chance: scenarios.lose_answers(20, chance=chance)), 60.0),
    Round("owner", played(lambda _chance: scenarios.kill_owner_of_many(1_000)), 60.0),
    Round("terminate", played(lambda chance: scenarios.terminate_services(3, nodes=3_000, chance=chance)), 60.0),
    Round("keys", played(lambda _chance: scenarios.share_keys(20, clients=64)), 30.0),
    Round("properties", properties, 180.0),
]
"""In this order, again and again. What is added here is soaked: a name, what it does with a seed, how long it takes."""


# ── The table ───────────────────────────────────────────────────────────────────────────────────────────────────────


@dataclass(frozen=True, slots=True)
class Row:
    """What is wanted of one kind of fault: how often it is to have been tried, and how soon things move again."""

    name: str
    says: str
    wanted: int
    p95_seconds: float | None = None


TABLE: Final = [
    Row("properties", "runs of a property with new examples", 100_000),
    Row("simulation", "schedules of the deterministic simulation", 1_000_000),
    Row("kill orchestrator", "kill -9 of the owner of a job of 10,000 nodes, until the job moves", 200, 5.0),
    Row("kill worker", "kill -9 of a worker that holds its tasks, until they are given up", 200, 5.0),
    Row("kill PostgreSQL", "kill -9 of PostgreSQL, until jobs move", 50, 10.0),
    Row("stop owner", "an owner sleeps past its lease, until it woke and knows", 200),
    Row("cut connection", "connections cut and answers of commits lost, until a job is done", 500, 30.0),
    Row("same key", "one idempotency key from 64 clients", 20),
    Row("owner of many jobs", "jobs of an owner that died, until all are owned", 1_000, 10.0),
    Row("SIGTERM", "services told to stop under load, until they are gone", 3, 10.0),
    Row("hand over", "jobs of an owner that was told to stop, until they move", 3, 1.0),
]


@dataclass(slots=True)
class Soaked:
    """What was reached so far, in all soaks."""

    seed: int = 1
    counts: Counter[str] = field(default_factory=Counter)
    seconds: dict[str, list[float]] = field(default_factory=dict)
    violations: Counter[str] = field(default_factory=Counter)
    failed: list[dict[str, Any]] = field(default_factory=list)

    @classmethod
    def load(cls, path: Path) -> Soaked:
        """Go on from a file, if there is one."""
        if not path.exists():
            return cls()
        read = json.loads(path.read_text())
        return cls(
            read["seed"], Counter(read["counts"]), read["seconds"], Counter(read["violations"]), read["failed"]
        )  # fmt: skip

    def save(self, path: Path) -> None:
        """Write the file anew, whole or not at all."""
        beside = path.with_suffix(".new")
        known = {
            "seed": self.seed, "counts": self.counts, "seconds": self.seconds, "violations": self.violations,
            "failed": self.failed,
        }  # fmt: skip
        beside.write_text(json.dumps(known, indent=1))
        beside.replace(path)

    def add(self, done: Done) -> None:
        """A round held."""
        self.counts.update(done.counts)
        for name, times in done.seconds.items():
            self.seconds[name] = [*self.seconds.get(name, ()), *times][-KEPT:]

    def fail(self, name: str, seed: int) -> None:
        """A round did not hold."""
        self.violations[name] += 1
        self.failed.append({"round": name, "seed": seed})

    def table(self) -> list[str]:
        """What was reached, and what is wanted."""
        lines = [f"{'':20} {'done':>10} {'wanted':>10} {'p95':>8} {'wanted':>8}"]
        for row in TABLE:
            times = self.seconds.get(row.name)
            p95 = f"{percentile(times, 0.95):.1f} s" if times else "-"
            limit = f"{row.p95_seconds:g} s" if row.p95_seconds is not None else "-"
            lines.append(
                f"{row.name:20} {self.counts[row.name]:>10,} {row.wanted:>10,} {p95:>8} {limit:>8}  {row.says}"
            )
        failed = ", ".join(f"{name} {count}" for name, count in self.violations.items())
        return [*lines, f"rounds that found something: {failed or 'none'}"]


def percentile(times: list[float], part: float) -> float:
    """The time that this part of all times does not exceed."""
    ordered = sorted(times)
    return ordered[math.ceil(len(ordered) * part) - 1]


# ── Soaking ─────────────────────────────────────────────────────────────────────────────────────────────────────────


def main(arguments: list[str]) -> int:
    """Soak, and say what was done. With a round and a seed: that round alone, once."""
    if arguments:
        name, seed = arguments
        wanted = next(each for each in ROUNDS if each.name == name)
        print(wanted.run(int(seed), 3600.0))
        return 0
    minutes = float(os.environ.get("DAGMASTER_SOAK_MINUTES", "30"))
    soaked = Soaked.load(STATE)
    print(f"soak: {minutes:g} minutes from seed {soaked.seed} on; what is reached is kept in {STATE.name}", flush=True)
    code = soak(soaked, time.monotonic() + minutes * 60)
    print("\n".join(soaked.table()))
    return code


def soak(soaked: Soaked, deadline: float) -> int:
    """Play rounds until the time is over or one of them fails."""
    while any(each.seconds < deadline - time.monotonic() for each in ROUNDS):
        for each in ROUNDS:
            left = deadline - time.monotonic()
            if each.seconds >= left:
                continue
            seed, soaked.seed = soaked.seed, soaked.seed + 1
            began = time.monotonic()
            try:
                done = each.run(seed, left)
            except Exception:  # noqa: BLE001 - whatever it is, it was found
                traceback.print_exc()
                soaked.fail(each.name, seed)
                soaked.save(STATE)
                print(f"soak: FAILED. Again: python -m tests.soak {each.name} {seed}")
                return 1
            soaked.add(done)
            soaked.save(STATE)
            said = ", ".join(f"{count} {name}" for name, count in done.counts.items()) or "no result in time"
            print(f"soak: {each.name}, seed {seed}: {said}, {time.monotonic() - began:.1f} s", flush=True)
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
