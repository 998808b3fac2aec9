"""The web page in Chromium: large graphs, the way of a change from its commit to the screen, timelines, logs, heaps."""

from __future__ import annotations

import asyncio
import statistics
from typing import TYPE_CHECKING, Any

from bench import ui_log, ui_tab
from bench.clients import FAN_OUT
from bench.dev_stack import Stack, folder
from bench.rows import Row
from bench.ui_browser import HEAP, MB, chains_of_timers, open_page, p95, run, submit

if TYPE_CHECKING:
    from collections.abc import Iterator

NODES, LARGEST = 5_000, 10_000
# Each second a timer of every chain ends, and the next one begins: two changes.
CHAINS = 50
ROWS = 10_000
WINDOW_SECONDS = 15

_MOUNT = """async ([tag, attributes, ready]) => {
    const assets = document.documentElement.dataset.assets;
    const began = performance.now();
    await import(`${assets}/elements/${tag}.js`);
    const element = document.createElement(tag);
    for (const [name, value] of Object.entries(attributes)) element.setAttribute(name, value);
    const isReady = new Promise((resolve) => element.addEventListener(ready, resolve));
    document.querySelector("main").replaceChildren(element);
    await isReady;
    await new Promise((resolve) => requestAnimationFrame(() => requestAnimationFrame(resolve)));
    return performance.now() - began;
}"""
_LAYOUT = """async (source) => {
    const assets = document.documentElement.dataset.assets;
    const { layoutGraph } = await import(`${assets}/graph/layout.js`);
    const { GraphModel } = await import(`${assets}/graph/model.js`);
    const model = new GraphModel(await (await fetch(source)).json());
    const times = [];
    for (let round = 0; round < 5; round++) {
        const began = performance.now();
        layoutGraph(model);
        times.push(performance.now() - began);
    }
    return times;
}"""
# From the time of an event, when its turn was decided, to the frame after the one that painted it.
_FOLLOW = """async ([job, seconds]) => {
    const { connectJob } = await import(`${document.documentElement.dataset.assets}/live.js`);
    const [delays, frames] = [[], []];
    let changes = 0;
    let isMeasured = false;
    document.addEventListener("job-delta", ({ detail }) => {
        if (!isMeasured) return;
        changes += detail.events.length;
        const times = detail.events.map((event) => Date.parse(event.at));
        const keep = () => delays.push(...times.map((time) => Date.now() - time));
        requestAnimationFrame(() => requestAnimationFrame(keep));
    });
    const began = performance.now();
    const snapshot = new Promise((resolve) => document.addEventListener("job-snapshot", resolve, { once: true }));
    const connection = connectJob(job);
    await snapshot;
    await new Promise((resolve) => requestAnimationFrame(() => requestAnimationFrame(resolve)));
    const shown = performance.now() - began;
    await new Promise((resolve) => setTimeout(resolve, 2000));
    isMeasured = true;
    const until = performance.now() + seconds * 1000;
    let last = performance.now();
    await new Promise((resolve) => requestAnimationFrame(function frame(now) {
        frames.push(now - last);
        last = now;
        now < until ? requestAnimationFrame(frame) : resolve();
    }));
    connection.close();
    return { delays, frames, shown, changes };
}"""
_SCROLL = """async (by) => {
    const timeline = document.querySelector("job-timeline");
    timeline.showLanes(by);
    const frames = [];
    let last = null;
    await new Promise((resolve) => requestAnimationFrame(function frame(now) {
        if (last !== null) frames.push(now - last);
        last = now;
        timeline.body.scrollTop += 97;
        const wheel = { deltaY: frames.length % 60 < 30 ? -20 : 20, ctrlKey: true, clientX: 700, clientY: 300 };
        timeline.body.dispatchEvent(new WheelEvent("wheel", { ...wheel, cancelable: true }));
        frames.length < 180 ? requestAnimationFrame(frame) : resolve();
    }));
    return frames;
}"""


def measure() -> Iterator[Row]:
    """Measure graphs, the live path, timelines, logs and a tab that stays open."""
    with folder() as place, Stack(place / "ui") as stack:
        yield from _measure_graph(stack)
        yield from _measure_largest(stack)
        yield from _measure_timeline(stack)
        yield from ui_log.measure_log(stack)
        yield from ui_tab.measure_tab(stack)


def _measure_graph(stack: Stack) -> Iterator[Row]:
    job_id = asyncio.run(submit(stack, chains_of_timers(CHAINS, NODES // CHAINS)))
    with open_page(stack) as page:
        source = f"/api/v1/jobs/{job_id}/graph"
        shown = page.evaluate(_MOUNT, ["dag-graph", {"src": source, "job-id": job_id}, "graph-ready"])
        yield Row(f"graph of {NODES:,} nodes: shown and interactive", shown, "ms", at_most=1_000)
        live: dict[str, Any] = page.evaluate(_FOLLOW, [job_id, WINDOW_SECONDS])
        rate = live["changes"] / WINDOW_SECONDS
        name = f"graph of {NODES:,} nodes, {rate:.0f} changes/s"
        yield Row(f"{name}: frame, p95", p95(live["frames"]), "ms", at_most=50)
        yield Row(f"{name}: commit to pixels, p95", p95(live["delays"]), "ms", at_most=200)
        yield Row(f"{name}: commit to pixels, median", statistics.median(live["delays"]), "ms")
        yield Row(f"graph of {NODES:,} nodes: all statuses shown after connecting", live["shown"], "ms")
        yield Row(f"graph of {NODES:,} nodes: heap", page.evaluate(HEAP) / MB, "MB", at_most=150)
        times = page.evaluate(_LAYOUT, source)
        yield Row(f"graph of {NODES:,} nodes: layout", statistics.median(times), "ms", at_most=100)


def _measure_largest(stack: Stack) -> Iterator[Row]:
    job_id = asyncio.run(submit(stack, chains_of_timers(CHAINS, LARGEST // CHAINS)))
    with open_page(stack) as page:
        attributes = {"src": f"/api/v1/jobs/{job_id}/graph", "job-id": job_id}
        yield Row(
            f"graph of {LARGEST:,} nodes: shown and interactive",
            page.evaluate(_MOUNT, ["dag-graph", attributes, "graph-ready"]),
            "ms",
        )


def _measure_timeline(stack: Stack) -> Iterator[Row]:
    job_id = asyncio.run(run(stack, FAN_OUT, {"count": ROWS}))
    with open_page(stack) as page:
        attributes = {"src": f"/api/v1/jobs/{job_id}/timeline"}
        shown = page.evaluate(_MOUNT, ["job-timeline", attributes, "timeline-ready"])
        yield Row(f"timeline of {ROWS:,} attempts: shown", shown, "ms", at_most=1_000)
        for by in ("node", "worker"):
            frames = page.evaluate(_SCROLL, by)
            rate = 1_000 * len(frames) / sum(frames)
            yield Row(
                f"timeline of {ROWS:,} attempts: scroll and zoom by {by}", rate, "frames/s", at_least=30
            )
