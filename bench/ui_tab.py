"""A tab that stays open on the page of a job that runs: how fast its heap grows."""

from __future__ import annotations

import asyncio
import os
import statistics
from typing import TYPE_CHECKING

from bench.rows import Row
from bench.ui_browser import HEAP, MB, chains_of_timers, open_page, submit

if TYPE_CHECKING:
    from collections.abc import Iterator

    from bench.dev_stack import Stack

MINUTES = float(os.environ.get("BENCH_TAB_MINUTES", "4"))
"""How long the tab is measured; BENCH_TAB_MINUTES changes it."""
WARM_UP_SECONDS, STEP_SECONDS = 45, 5
CHAINS = 5
# What the page of a job does while it is open: nodes are opened and closed beside it.
_OPEN_NODE = """(node) => {
    document.dispatchEvent(new CustomEvent("node-open", { detail: { nodeId: node } }));
    return new Promise((resolve) => setTimeout(() => {
        document.querySelector("dialog[open] [data-close], dialog[open] button")?.click();
        resolve(document.querySelectorAll("*").length);
    }, 1000));
}"""


def measure_tab(stack: Stack) -> Iterator[Row]:
    """Measure the growth of the heap of a live page, and of its elements."""
    seconds = int(MINUTES * 60)
    length = seconds + 2 * WARM_UP_SECONDS
    job_id = asyncio.run(submit(stack, chains_of_timers(CHAINS, length)))
    with open_page(stack) as page:
        page.goto(f"{stack.api}/ui/jobs/{job_id}")
        page.wait_for_timeout(WARM_UP_SECONDS * 1_000)
        heaps, elements = [], []
        for step in range(seconds // STEP_SECONDS):
            elements.append(page.evaluate(_OPEN_NODE, f"c{step % CHAINS}_{step}"))
            page.wait_for_timeout(STEP_SECONDS * 1_000 - 1_000)
            heaps.append(page.evaluate(HEAP) / MB)
        growth = statistics.linear_regression(range(len(heaps)), heaps).slope * 3_600 / STEP_SECONDS
        name = f"tab on a job with {2 * CHAINS} changes/s, over {MINUTES:g} min"
        yield Row(f"{name}: growth of the heap in an hour", growth, "MB", at_most=5)
        yield Row(f"{name}: heap at the end", heaps[-1], "MB")
        yield Row(f"{name}: elements, last to first", elements[-1] / elements[0], "x", at_most=1.5)
