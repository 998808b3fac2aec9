"""A tile's worth of time and nothing else: what is left of a run's time is the price of running it."""

from __future__ import annotations

import time

from dagmaster import handler


@handler("burn", queue="default", retry="none", timeout_seconds=600)
def burn(seconds: float, tile: int = 0, *, asleep: bool = False) -> dict[str, float]:
    """Compute until this thread has used so many seconds of CPU time; or sleep so long."""
    begun, until = time.perf_counter(), time.thread_time() + seconds
    value = float(tile)
    if asleep:
        time.sleep(seconds)
    while not asleep and time.thread_time() < until:
        for _ in range(1_000):
            value = value * 0.5 + 1
    return {"took": time.perf_counter() - begun}


def burn_one(given: tuple[float, bool]) -> float:
    """The same, for a pool."""
    return burn(given[0], asleep=given[1])["took"]
