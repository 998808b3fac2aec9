"""Every page for everyone: axe-core in light and dark, a narrow screen, 400 % zoom, forced colours."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pytest
from playwright.sync_api import expect

from dagmaster.sdk.handler_registry import Registry
from dagmaster.ui.site import Site
from tests.browser.elements import WCAG, run_axe
from tests.browser.visitor import Visitor
from tests.unit.http.loopback import serve

if TYPE_CHECKING:
    from playwright.sync_api import Browser, Page

COLOURS = {"type": "rule", "values": ["color-contrast", "link-in-text-block"]}
"""The rules that look at colours: all that a dark page can break and a light one does not."""
EMPTY = [
    f"/ui/{name}"
    for name in ("", "jobs", "workflows", "submit", "nodes", "tasks", "queues", "fleet", "audit")
]


@pytest.fixture(scope="module")
def paths(server) -> list[str]:
    """Return the pages to look at: of jobs that failed, wait and completed, and those without any."""
    visitor = Visitor(None, server)  # type: ignore[arg-type]
    bad = visitor.submit("tiles", count=4, fails=True)
    waiting = visitor.submit("hello", name="ada")
    visitor.until(bad, "FAILED")
    visitor.until(waiting, "WAITING")
    worker_id = visitor.api.get("/api/v1/workers").json()["items"][0]["worker_id"]
    visitor.close(None)
    tabs = [
        "",
        "/timeline",
        "/nodes?open=clip",
        "/events",
        "/values",
        "/logs",
        "/map",
        "/resume",
        "/nodes/clip__1",
    ]
    return [
        "/ui/",
        "/ui/jobs",
        "/ui/jobs?text=nothing-matches",
        "/ui/login",
        "/ui/nowhere",
        "/ui/workflows",
        *[f"/ui/workflows/tiles{tab}" for tab in ("", "/graph", "/definition", "/versions")],
        "/ui/workflows?tag=nothing-matches",
        "/ui/submit?workflow_id=tiles",
        "/ui/editor",
        "/ui/nodes",
        "/ui/nodes?workflow_id=nothing-matches",
        "/ui/tasks?state=finished",
        "/ui/tasks?worker_id=wrong",
        "/ui/queues",
        "/ui/fleet",
        f"/ui/fleet/{worker_id}/drain",
        "/ui/health",
        "/ui/keys",
        "/ui/audit",
        "/ui/audit?actor=nothing-matches",
        f"/ui/jobs/{waiting}/nodes/ask",
        f"/ui/jobs/{waiting}/cancel",
        *[f"/ui/jobs/{bad}{tab}" for tab in tabs],
    ]


SCROLLBARS = """() => [
    ...[...document.querySelectorAll(".table-wrap")].filter((wrap) => wrap.checkVisibility() && wrap.scrollWidth > wrap.clientWidth),
    ...[...document.querySelectorAll(".tabs")].filter((tabs) => tabs.scrollHeight > tabs.clientHeight),
].map((element) => `${location.pathname}: ${element.className} scrolls: ${element.innerText.slice(0, 200)}`)"""
"""All columns of a table are seen, and tabs have no scrollbar next to them."""


def violations(page: Page, rules: dict[str, Any] = WCAG) -> list[str]:
    return [
        f"{page.url} {violation['id']}: {node['target']} {node['failureSummary']}"
        for violation in run_axe(page, rules=rules)
        for node in violation["nodes"]
    ]


def test_no_page_violates_a_rule_of_wcag_in_light_and_in_dark(visitor: Visitor, paths: list[str]):
    page = visitor.page(None, reduced_motion="reduce")
    problems = []
    for path in paths:
        page.emulate_media(color_scheme="light", reduced_motion="reduce")
        page.goto(path)
        page.wait_for_load_state("load")
        problems += violations(page) + page.evaluate(SCROLLBARS)
        page.emulate_media(color_scheme="dark", reduced_motion="reduce")
        problems += violations(page, COLOURS)
    assert problems == []
    visitor.problems.clear()  # 404 is one of the pages


def test_no_page_of_an_empty_server_violates_a_rule_of_wcag(browser: Browser):
    with serve(Registry([]), Site()) as server:
        visitor = Visitor(browser, server)
        page = visitor.page(None, reduced_motion="reduce")
        problems = []
        for path in EMPTY:
            page.goto(path)
            problems += violations(page)
        visitor.close(None)
    assert problems == []


def test_dialog_drawer_and_palette_violate_no_rule(visitor: Visitor, paths: list[str]):
    page = visitor.page(paths[-1].rsplit("/nodes/", 1)[0])
    page.get_by_role("link", name="First failure").click()
    expect(page.get_by_role("dialog", name="Node").get_by_role("heading", name="clip__1")).to_be_visible()
    problems = violations(page)
    page.keyboard.press("Escape")
    page.keyboard.press("Control+k")
    expect(page.get_by_role("dialog", name="Commands")).to_be_visible()
    problems += violations(page)
    page.keyboard.press("Escape")
    page.keyboard.press("?")
    expect(page.get_by_role("dialog", name="Keys")).to_be_visible()
    assert problems + violations(page) == []


def test_nothing_is_cut_off_on_a_narrow_screen_or_at_400_percent(visitor: Visitor, paths: list[str]):
    """A window of 1280 pixels at 400 % is 320 pixels wide."""
    page = visitor.page(None)
    problems: list[str] = []
    for path in paths:
        page.set_viewport_size({"width": 360, "height": 740})
        page.goto(path)
        assert page.evaluate("document.documentElement.scrollWidth") <= 360, path
        page.set_viewport_size({"width": 320, "height": 740})
        assert page.evaluate("document.documentElement.scrollWidth") <= 320, path
        for width in (480, 520, 600, 680, 768):
            page.set_viewport_size({"width": width, "height": 1000})
            problems += [f"{width}: {problem}" for problem in page.evaluate(SCROLLBARS)]
    assert problems == []
    visitor.problems.clear()  # 404 is one of the pages


def test_nothing_moves_where_motion_is_reduced(visitor: Visitor):
    job_id = visitor.submit("hang")
    visitor.until(job_id, "RUNNING")
    moving = "document.getAnimations().filter((one) => one.effect.getComputedTiming().duration > 50).length"
    page = visitor.page(f"/ui/jobs/{job_id}", reduced_motion="reduce")
    expect(page.locator(".page-head .status")).to_have_text("running")
    assert page.evaluate(moving) == 0
    page = visitor.page(f"/ui/jobs/{job_id}", reduced_motion="no-preference")
    page.wait_for_function(f"{moving} > 0")
    visitor.api.post(f"/api/v1/jobs/{job_id}/cancel")


def test_statuses_have_words_in_forced_colours(visitor: Visitor, paths: list[str]):
    page = visitor.page("/ui/jobs", forced_colors="active")
    expect(page.locator("tr .status").first).to_be_visible()
    assert page.locator("tr .status").first.inner_text().strip() != ""
