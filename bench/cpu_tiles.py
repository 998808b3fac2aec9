"""A handler that uses CPU time and nothing else: the rest of a run's time is the overhead of running it."""

from __future__ import annotations

import time

from dagmaster import handler


@handler("burn", queue="default", retry="none", timeout_seconds=600)
def burn(seconds: float, tile: int = 0, *, asleep: bool = False) -> dict[str, float]:
    """Compute until this thread has used `seconds` of CPU time; with `asleep`, sleep that long instead."""
    started, until = time.perf_counter(), time.thread_time() + seconds
    value = float(tile)
    if asleep:
        time.sleep(seconds)
    while not asleep and time.thread_time() < until:
        for _ in range(1_000):
            value = value * 0.5 + 1
    return {"took": time.perf_counter() - started}


def burn_in_pool(arguments: tuple[float, bool]) -> float:
    """Call `burn` with one argument, as a pool's `map` needs it."""
    return burn(arguments[0], asleep=arguments[1])["took"]
