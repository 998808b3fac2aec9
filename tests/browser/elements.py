"""Puts single elements on a page, with graphs and timelines of a test, as the server would send them."""

from __future__ import annotations

import random
from itertools import pairwise
from typing import TYPE_CHECKING, Any, Final

from axe_playwright_python.base import AXE_SCRIPT

if TYPE_CHECKING:
    from playwright.sync_api import Page

    from tests.browser.visitor import Visitor

GRAPH = "/api/v1/jobs/7/graph"
TIMELINE = "/api/v1/jobs/7/timeline"
MOUNT = """async ([tag, attributes, ready]) => {
    await import(`${document.documentElement.dataset.assets}/elements/${tag}.js`);
    const element = document.createElement(tag);
    for (const [name, value] of Object.entries(attributes)) element.setAttribute(name, value);
    window.opened = [];
    element.addEventListener("node-open", (event) => window.opened.push(event.detail.nodeId));
    const isReady = new Promise((resolve) => element.addEventListener(ready, resolve));
    document.querySelector("main").replaceChildren(element);
    if (ready) await isReady;
    await new Promise((resolve) => requestAnimationFrame(() => requestAnimationFrame(resolve)));
}"""


def a_graph(
    edges: dict[str, str],
    *,
    kinds: dict[str, str] | None = None,
    groups: dict[str, str] | None = None,
    name: str = "flow",
) -> dict[str, Any]:
    """Return a graph as the API does: nodes with the nodes before them, as `{"b": "a", "c": "a b"}`.

    `groups`: the members of each group, as `{"g": "a b"}`; they are before it.
    """
    group_of = {member: group for group, members in (groups or {}).items() for member in members.split()}
    kinds = dict.fromkeys(groups or {}, "group") | (kinds or {})
    edges = {**edges, **(groups or {})}
    return {
        "workflow_id": name,
        "version": 1,
        "name": name,
        "content_hash": f"{name}-{len(edges)}",
        "nodes": [
            {
                "node_id": node_id,
                "kind": kinds.get(node_id, "task"),
                "action": "raster.clip",
                "handler": "raster.clip",
                "description": "",
                "group": group_of.get(node_id),
            }
            for node_id in edges
        ],
        "edges": [
            {"source": source, "target": target, "branches": [], "is_alternative": False}
            for target, sources in edges.items()
            for source in sources.split()
        ],
    }


def a_large_graph(count: int, width: int) -> dict[str, Any]:
    """Return a graph of `count` nodes, `width` in a layer, each after one to three of the layer before."""
    chance = random.Random(count)
    edges = {}
    for number in range(count):
        layer, place = divmod(number, width)
        near = {min(width - 1, max(0, place + chance.randint(-2, 2))) for _ in range(chance.randint(1, 3))}
        edges[f"step_{number:05d}"] = (
            ""
            if layer == 0
            else " ".join(f"step_{(layer - 1) * width + place:05d}" for place in sorted(near))
        )
    return a_graph(edges, name=f"large{width}")


def mount_graph(visitor: Visitor, graph: dict[str, Any], **options: Any) -> Page:
    """Show a graph as that of job 7."""
    page = visitor.page("/ui/workflows", **options)
    page.route(f"**{GRAPH}", lambda route: route.fulfill(json=graph))
    page.evaluate(MOUNT, ["dag-graph", {"src": GRAPH, "job-id": "7"}, "graph-ready"])
    return page


def mount_timeline(visitor: Visitor, *pages: dict[str, Any], **options: Any) -> Page:
    """Show a timeline as that of job 7."""
    page = visitor.page("/ui/workflows", **options)
    by_cursor = {"": pages[0]} | {before["next_cursor"]: page for before, page in pairwise(pages)}
    page.route(
        f"**{TIMELINE}*",
        lambda route: route.fulfill(json=by_cursor[route.request.url.partition("cursor=")[2]]),
    )
    page.evaluate(MOUNT, ["job-timeline", {"src": TIMELINE}, "timeline-ready"])
    return page


def a_timeline(rows: list[tuple[Any, ...]], **changes: Any) -> dict[str, Any]:
    """Return a timeline as the API does. A row: node, attempt, status, worker, queued, started, finished."""
    columns = list(zip(*sorted(rows), strict=True)) if rows else [()] * 7
    workers = sorted({worker for worker in columns[3] if worker is not None})
    return {
        "job_id": "7",
        "status": "RUNNING",
        "origin_at": "2026-11-17T10:00:00Z",
        "now_seconds": 60.0,
        "finished_seconds": None,
        "worker_names": workers,
        "node_ids": columns[0],
        "attempts": columns[1],
        "statuses": columns[2],
        "workers": [None if worker is None else workers.index(worker) for worker in columns[3]],
        "queued": columns[4],
        "started": columns[5],
        "finished": columns[6],
        "critical_path": [],
        "next_cursor": None,
        **changes,
    }


KEEP_TEXTS = """() => {
    window.texts = [];
    const { fillText } = CanvasRenderingContext2D.prototype;
    CanvasRenderingContext2D.prototype.fillText = function (text, x, y, ...rest) {
        const { width } = this.measureText(text);
        const { b, e, f } = this.getTransform();
        // What is rotated goes down.
        const [left, top] = b ? [e - 6, f + x] : [e + x, f + y - 5];
        window.texts.push({ text, left, top, right: left + (b ? 12 : width), bottom: top + (b ? width : 10) });
        return fillText.call(this, text, x, y, ...rest);
    };
}"""
OVERLAPS = """() => window.texts.flatMap((a, i) => window.texts.slice(i + 1)
    .filter((b) => a.left < b.right && b.left < a.right && a.top < b.bottom && b.top < a.bottom)
    .map((b) => `${a.text} and ${b.text}`))"""


def keep_texts(page: Page) -> None:
    """Keep what is written on canvases from now on, in `texts`."""
    page.evaluate(KEEP_TEXTS)


def overlapping_texts(page: Page) -> list[str]:
    """Return the texts that overlap in the last picture of the only canvas with texts."""
    overlaps: list[str] = page.evaluate(OVERLAPS)
    return overlaps


def next_frame(page: Page) -> None:
    """Wait until what was changed is painted."""
    page.evaluate(
        "() => new Promise((resolve) => requestAnimationFrame(() => requestAnimationFrame(resolve)))"
    )


_MOUNT_WITH_TEXT = """async ([tag, attributes, content]) => {
  await import(`${document.documentElement.dataset.assets}/elements/${tag}.js`);
  const element = document.createElement(tag);
  for (const [name, value] of Object.entries(attributes)) element.setAttribute(name, value);
  if (content !== null) {
    const area = document.createElement("textarea");
    area.value = content;
    area.setAttribute("aria-label", "Text");
    element.append(area);
  }
  document.querySelector("main").replaceChildren(element);
}"""


def mount(page: Page, tag: str, content: str | None = None, **attributes: str) -> None:
    """Replace the content of a page by an element; `content`: the text of a textarea inside of it."""
    page.evaluate(_MOUNT_WITH_TEXT, [tag, attributes, content])


WCAG: Final = {"type": "tag", "values": ["wcag2a", "wcag2aa", "wcag21a", "wcag21aa", "wcag22aa"]}
_RUN_AXE = """([selector, rules]) =>
    axe.run(selector ?? document, { runOnly: rules, resultTypes: ["violations"] }).then((results) => results.violations)"""


def run_axe(page: Page, selector: str | None = None, rules: dict[str, Any] = WCAG) -> list[dict[str, Any]]:
    """Return the violations that axe-core reports for a page, or for one of its elements.

    The script is loaded once per document. Passed checks are neither described nor sent: there are a hundred of them.
    """
    if not page.evaluate("'axe' in window"):
        page.evaluate(AXE_SCRIPT)
    violations: list[dict[str, Any]] = page.evaluate(_RUN_AXE, [selector, rules])
    return violations


def axe_violations(page: Page, selector: str) -> list[str]:
    """Return what axe-core finds wrong in an element, by the rules of WCAG 2.2 AA."""
    return [
        f"{violation['id']}: {node['html'][:200]}"
        for violation in run_axe(page, selector)
        for node in violation["nodes"]
    ]
