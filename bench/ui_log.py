"""The log of a job on its page: 100 MB, from the click to the first lines, and the heap while it is read."""

from __future__ import annotations

import asyncio
import statistics
from typing import TYPE_CHECKING

from bench.clients import FAN_OUT
from bench.dev_stack import connect
from bench.rows import Row
from bench.ui_browser import HEAP, MB, open_page, run

if TYPE_CHECKING:
    from collections.abc import Iterator

    from bench.dev_stack import Stack

CHUNKS, LINES = 1_600, 570
"""64 KB each, as a worker writes them."""
SCROLLS = 100
_WRITE = """
INSERT INTO dag_task_logs (task_id, chunk, job_id, node_id, attempt, at, text)
SELECT a.task_id, c, a.job_id, a.node_id, a.attempt, a.completed_at + c * interval '1 ms',
       (SELECT string_agg('INFO raster.clip: tile ' || c * $3::int + n || ' of the large log, '
                          || md5((c * $3 + n)::text) || md5(n::text), E'\\n') || E'\\n'
        FROM generate_series(1, $3) AS n)
FROM (SELECT * FROM dag_task_attempts WHERE job_id = $1 LIMIT 1) AS a, generate_series(1, $2) AS c
"""
_SIZE = "SELECT sum(length(text)) FROM dag_task_logs WHERE job_id = $1"
# From the request of the page to the frame after the one that painted the first lines.
_FIRST_LINES = """() => new Promise((resolve) => {
    const look = () => {
        const line = document.querySelector(".log-line");
        if (!line) return requestAnimationFrame(look);
        requestAnimationFrame(() => requestAnimationFrame(() => resolve(performance.now())));
    };
    look();
})"""
_READ = """async (scrolls) => {
    const box = document.querySelector(".log-lines");
    for (let n = 0; n < scrolls; n++) {
        box.scrollTop = 0;
        await new Promise((resolve) => setTimeout(resolve, 50));
    }
    return document.querySelectorAll(".log-line").length;
}"""
_SEARCH = """() => new Promise((resolve) => {
    const began = performance.now();
    const search = document.querySelector(".log-search");
    search.value = "tile 500000 of";
    search.dispatchEvent(new Event("input"));
    const state = document.querySelector(".log-state");
    const look = () => {
        if (/matching line/.test(state.textContent)) resolve(performance.now() - began);
        else requestAnimationFrame(look);
    };
    look();
})"""


def measure_log(stack: Stack) -> Iterator[Row]:
    """Measure the log of one task."""
    job_id = asyncio.run(run(stack, FAN_OUT, {"count": 1}))
    size = asyncio.run(_write(stack, job_id))
    with open_page(stack) as page:
        times = []
        for _ in range(5):
            page.goto(f"{stack.api}/ui/jobs/{job_id}/logs", wait_until="commit")
            times.append(page.evaluate(_FIRST_LINES))
        name = f"log of {size / MB:.0f} MB"
        yield Row(
            f"{name}: first lines on the page, median of 5", statistics.median(times), "ms", at_most=300
        )
        page.evaluate(_READ, SCROLLS)
        yield Row(f"{name}: heap after reading back", page.evaluate(HEAP) / MB, "MB", at_most=100)
        yield Row(f"{name}: one line found", page.evaluate(_SEARCH), "ms")


async def _write(stack: Stack, job_id: str) -> int:
    connection = await connect(stack.dsn)
    try:
        await connection.execute(_WRITE, int(job_id), CHUNKS, LINES)
        return int(await connection.fetchval(_SIZE, int(job_id)))
    finally:
        await connection.close()
