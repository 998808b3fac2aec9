"""Chromium on a running stack, and the jobs that its pages show."""

from __future__ import annotations

import json
import os
import shutil
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any

from playwright.sync_api import sync_playwright

from bench.clients import HANDLERS, client
from dagmaster.application.submission import JobRequest
from dagmaster.authoring.compiler.compile import compile_text
from dagmaster.http.auth import SESSION_COOKIE

if TYPE_CHECKING:
    from collections.abc import Iterator

    from playwright.sync_api import Page

    from bench.dev_stack import Stack
    from dagmaster.engine.graph import Graph

MB = 1_000_000
HEAP = "() => { gc(); return performance.memory.usedJSHeapSize; }"


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


async def submit(stack: Stack, graph: Graph) -> str:
    """Submit a job; return its id."""
    async with client(stack.dsn) as submitting:
        (accepted,) = await submitting.submitter.submit(graph, JobRequest())
        return str(accepted.job_id)


async def run(stack: Stack, graph: Graph, inputs: dict[str, Any]) -> str:
    """Run a job until it has finished; return its id."""
    async with client(stack.dsn) as submitting:
        _, job_id = await submitting.run(graph, inputs)
        return str(job_id)


@contextmanager
def open_page(stack: Stack) -> Iterator[Page]:
    """Open a page of the server with a session, for one element of it.

    Each has a browser of its own: while one runs, its event loop is that of the thread, and no other can run.
    """
    path = shutil.which("chromium") or shutil.which("chromium-headless-shell")
    assert path is not None, "no Chromium on PATH: `make browser` installs it"
    arguments = ["--enable-precise-memory-info", "--js-flags=--expose-gc"]
    arguments += ["--no-sandbox"] if os.geteuid() == 0 else []
    with sync_playwright() as playwright:
        browser = playwright.chromium.launch(executable_path=path, args=arguments)
        context = browser.new_context(viewport={"width": 1280, "height": 900})
        context.set_default_timeout(120_000)
        context.add_cookies(
            [{"name": SESSION_COOKIE, "value": stack.key, "url": stack.api, "sameSite": "Strict"}]
        )
        page = context.new_page()
        page.goto(f"{stack.api}/ui/workflows")
        try:
            yield page
        finally:
            browser.close()


def p95(values: list[float]) -> float:
    """Return the 95th percentile."""
    return sorted(values)[len(values) * 95 // 100]
