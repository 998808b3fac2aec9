"""The web page in Chromium: the graph of a large job, the way of a change from its commit to the screen, timelines."""

from __future__ import annotations

import asyncio
import json
import os
import shutil
import statistics
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any

from playwright.sync_api import sync_playwright

from bench.clients import FAN_OUT, HANDLERS, client
from bench.dev_stack import Stack, folder
from bench.rows import Row
from dagmaster.application.submission import Submission
from dagmaster.authoring.compiler.compile import compile_text
from dagmaster.http.auth import SESSION_COOKIE

if TYPE_CHECKING:
    from collections.abc import Iterator

    from playwright.sync_api import Page

    from dagmaster.engine.graph import Graph

NODES, LARGEST = 5_000, 10_000
# Each second a timer of every chain ends, and the next one begins: two changes.
CHAINS = 50
ROWS = 10_000
WINDOW_SECONDS = 15
MB = 1_000_000

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
_HEAP = "() => { gc(); return performance.memory.usedJSHeapSize; }"


def measure() -> Iterator[Row]:
    """Measure graphs, the live path and timelines."""
    with folder() as place, Stack(place / "ui") as stack:
        yield from _measure_graph(stack)
        yield from _measure_largest(stack)
        yield from _measure_timeline(stack)


def _measure_graph(stack: Stack) -> Iterator[Row]:
    job_id = asyncio.run(_submit(stack, chains_of_timers(CHAINS, NODES // CHAINS)))
    with _page(stack) as page:
        source = f"/api/v1/jobs/{job_id}/graph"
        shown = page.evaluate(_MOUNT, ["dag-graph", {"src": source, "job-id": job_id}, "graph-ready"])
        yield Row(f"graph of {NODES:,} nodes: shown and interactive", shown, "ms", at_most=1_000)
        live: dict[str, Any] = page.evaluate(_FOLLOW, [job_id, WINDOW_SECONDS])
        rate = live["changes"] / WINDOW_SECONDS
        name = f"graph of {NODES:,} nodes, {rate:.0f} changes/s"
        yield Row(f"{name}: frame, p95", _p95(live["frames"]), "ms", at_most=50)
        yield Row(f"{name}: commit to pixels, p95", _p95(live["delays"]), "ms", at_most=200)
        yield Row(f"{name}: commit to pixels, median", statistics.median(live["delays"]), "ms")
        yield Row(f"graph of {NODES:,} nodes: all statuses shown after connecting", live["shown"], "ms")
        yield Row(f"graph of {NODES:,} nodes: heap", page.evaluate(_HEAP) / MB, "MB", at_most=150)
        times = page.evaluate(_LAYOUT, source)
        yield Row(f"graph of {NODES:,} nodes: layout", statistics.median(times), "ms", at_most=100)


def _measure_largest(stack: Stack) -> Iterator[Row]:
    job_id = asyncio.run(_submit(stack, chains_of_timers(CHAINS, LARGEST // CHAINS)))
    with _page(stack) as page:
        attributes = {"src": f"/api/v1/jobs/{job_id}/graph", "job-id": job_id}
        yield Row(
            f"graph of {LARGEST:,} nodes: shown and interactive",
            page.evaluate(_MOUNT, ["dag-graph", attributes, "graph-ready"]),
            "ms",
        )


def _measure_timeline(stack: Stack) -> Iterator[Row]:
    job_id = asyncio.run(_run(stack, FAN_OUT, {"count": ROWS}))
    with _page(stack) as page:
        attributes = {"src": f"/api/v1/jobs/{job_id}/timeline"}
        shown = page.evaluate(_MOUNT, ["job-timeline", attributes, "timeline-ready"])
        yield Row(f"timeline of {ROWS:,} attempts: shown", shown, "ms", at_most=1_000)
        for by in ("node", "worker"):
            frames = page.evaluate(_SCROLL, by)
            rate = 1_000 * len(frames) / sum(frames)
            yield Row(f"timeline of {ROWS:,} attempts: scroll and zoom by {by}", rate, "frames/s", at_least=30)


def chains_of_timers(chains: int, length: int) -> Graph:
    """Return a graph of parallel chains of timers of one second."""
    nodes: dict[str, Any] = {}
    for chain in range(chains):
        for step in range(length):
            node: dict[str, Any] = {"type": "wait", "seconds": 1}
            if step:
                node["depends_on"] = [f"c{chain}_{step - 1}"]
            nodes[f"c{chain}_{step}"] = node
    text = json.dumps({"workflow_id": f"timers_{chains * length}", "version": 1, "nodes": nodes})
    return compile_text(text, handlers=HANDLERS).graph


async def _submit(stack: Stack, graph: Graph) -> str:
    async with client(stack.dsn) as submitting:
        (accepted,) = await submitting.submitter.submit([Submission(graph=graph, inputs={})])
        return str(accepted.job_id)


async def _run(stack: Stack, graph: Graph, inputs: dict[str, Any]) -> str:
    async with client(stack.dsn) as submitting:
        _, job_id = await submitting.run(graph, inputs)
        return str(job_id)


@contextmanager
def _page(stack: Stack) -> Iterator[Page]:
    """Open a page of the server with a session, for one element of it.

    Each has a browser of its own: while one runs, its event loop is that of the thread, and no other can run.
    """
    path = shutil.which("chromium")
    assert path is not None, "no chromium on PATH: `make browser` installs it"
    arguments = ["--enable-precise-memory-info", "--js-flags=--expose-gc"]
    arguments += ["--no-sandbox"] if os.geteuid() == 0 else []
    with sync_playwright() as playwright:
        browser = playwright.chromium.launch(executable_path=path, args=arguments)
        context = browser.new_context(viewport={"width": 1280, "height": 900})
        context.set_default_timeout(120_000)
        context.add_cookies([{"name": SESSION_COOKIE, "value": stack.key, "url": stack.api, "sameSite": "Strict"}])
        page = context.new_page()
        page.goto(f"{stack.api}/ui/workflows")
        try:
            yield page
        finally:
            browser.close()


def _p95(values: list[float]) -> float:
    return sorted(values)[len(values) * 95 // 100]
