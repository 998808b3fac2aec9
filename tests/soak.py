"""Run every property test again and again, each round with a new seed, until the minutes are over.

`make soak MINUTES=30`. A round that fails ends the soak with exit code 1 and prints how to run it again.
"""

from __future__ import annotations

import os
import random
import re
import subprocess
import sys
import time

NOTHING_COLLECTED = 5


def main() -> int:
    """Soak, and say what was done."""
    minutes = float(os.environ.get("DAGMASTER_SOAK_MINUTES", "30"))
    deadline = time.monotonic() + minutes * 60
    rounds = properties = 0
    print(f"soak: property tests for {minutes:g} minutes", flush=True)
    while (left := deadline - time.monotonic()) > 0:
        seed = random.randrange(2**32)
        started = time.monotonic()
        try:
            done = run_round(seed, left)
        except subprocess.TimeoutExpired:
            print(f"soak: time is over inside a round: seed {seed} has no result")
            break
        if done.returncode == NOTHING_COLLECTED:
            print("soak: there are no property tests")
            return 1
        if done.returncode != 0:
            print(done.stdout)
            print(f"soak: FAILED in round {rounds + 1}. Again: HYPOTHESIS_PROFILE=soak {' '.join(command(seed))}")
            return 1
        rounds += 1
        passed = count_passed(done.stdout)
        properties += passed
        took = time.monotonic() - started
        print(f"soak: round {rounds}: seed {seed}, {passed} properties held, {took:.1f} s", flush=True)
    print(f"soak: {rounds} rounds, {properties} runs of a property, none failed")
    return 0


def run_round(seed: int, seconds: float) -> subprocess.CompletedProcess[str]:
    """One run of all property tests; hypothesis marks them for us."""
    return subprocess.run(
        command(seed),
        env=os.environ | {"HYPOTHESIS_PROFILE": "soak"},
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        check=False,
        timeout=seconds,
    )


def command(seed: int) -> list[str]:
    """The pytest command of one round."""
    return [sys.executable, "-m", "pytest", "-q", "-n", "2", "-m", "hypothesis", f"--hypothesis-seed={seed}"]


def count_passed(output: str) -> int:
    """The number of tests that passed, from the last line of pytest."""
    found = re.findall(r"(\d+) passed", output)
    return int(found[-1]) if found else 0


if __name__ == "__main__":
    sys.exit(main())
