"""Jobs in a browser: filter, follow, find the failure, resume, cancel, approve; with keys."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING

import pytest
from playwright.sync_api import expect

from dagmaster.ports.api_keys import Scope

if TYPE_CHECKING:
    from playwright.sync_api import Locator, Page

    from tests.browser.visitor import Visitor


@pytest.fixture
def broken(visitor: Visitor) -> str:
    """Return a job of which some children failed."""
    job_id = visitor.submit("tiles", count=4, fails=True)
    visitor.until(job_id, "FAILED")
    return job_id


def tab_to(page: Page, target: Locator) -> None:
    """Press Tab until an element has the focus."""
    for _ in range(60):
        if target.evaluate("(element) => element === document.activeElement"):
            return
        page.keyboard.press("Tab")
    raise AssertionError(f"Tab does not reach {target}")


def choose(page: Page, select: Locator, value: str) -> None:
    """Choose an option by typing it. Letters that follow each other slowly, on a loaded machine, are choices of their own."""
    for _ in range(5):
        tab_to(page, select)
        page.keyboard.type(value)
        if select.input_value() == value:
            return
    raise AssertionError(f"{value} is not chosen by typing it")


def submit_by_keyboard(page: Page) -> str:
    """Submit a job that will fail; return its id."""
    page.keyboard.press("g")
    page.keyboard.press("s")
    expect(page).to_have_url(re.compile("/ui/submit$"))
    choose(page, page.get_by_label("Workflow", exact=True), "tiles")
    expect(page.get_by_role("heading", name="Submit tiles")).to_be_visible()
    tab_to(page, page.get_by_label(re.compile("^count")))
    page.keyboard.type("4")
    choose(page, page.get_by_label(re.compile("^fails")), "true")
    tab_to(page, page.locator("button.button-primary", has_text="Submit"))
    page.keyboard.press("Enter")
    expect(page).to_have_url(re.compile(r"/ui/jobs/\d+$"))
    return page.url.rsplit("/", 1)[1]


def test_a_job_is_submitted_and_its_failure_found_and_resumed_by_keyboard(visitor: Visitor):
    page = visitor.page("/ui/")
    broken = submit_by_keyboard(page)
    visitor.until(broken, "FAILED")
    page.keyboard.press("g")
    page.keyboard.press("j")
    expect(page).to_have_url(re.compile("/ui/jobs$"))
    page.keyboard.press("/")
    page.keyboard.type(broken)
    page.keyboard.press("Enter")
    expect(page).to_have_url(re.compile(f"text={broken}"))
    expect(page.locator("tr[data-job]")).to_have_count(1)
    page.locator("body").press("j")
    expect(page.locator("tr[data-job] a.title")).to_be_focused()
    page.keyboard.press("Enter")
    expect(page.locator("[data-why]")).to_contain_text("tile 1 has no data")
    page.keyboard.press("Control+k")
    page.keyboard.type("first failure")
    page.keyboard.press("Enter")
    drawer = page.get_by_role("dialog", name="Node")
    expect(drawer.get_by_role("heading", name="clip__1")).to_be_visible()
    page.keyboard.press("Escape")
    expect(drawer).not_to_be_visible()
    page.keyboard.press("Control+k")
    page.keyboard.type("resume")
    page.keyboard.press("Enter")
    dialog = page.get_by_role("dialog", name="Resume tiles")
    expect(dialog.get_by_text("Run again", exact=True)).to_be_visible()
    page.keyboard.press("Enter")
    expect(page.get_by_role("status").filter(has_text="run 2 starts")).to_be_visible()
    assert visitor.until(broken, "FAILED")["run"] == 2


def test_several_jobs_are_cancelled_at_once(visitor: Visitor):
    jobs = [visitor.submit("hang") for _ in range(2)]
    for job_id in jobs:
        visitor.until(job_id, "RUNNING")
    page = visitor.page("/ui/jobs?workflow_id=hang&status=running")
    cancel = page.get_by_role("button", name="Cancel selected")
    expect(cancel).to_be_disabled()
    for job_id in jobs:
        page.get_by_role("checkbox", name=f"Select hang {job_id}").check()
    expect(page.get_by_text("2 selected")).to_be_visible()
    cancel.click()
    page.get_by_role("dialog").get_by_role("button", name="Cancel 2 jobs").click()
    expect(page.get_by_role("status").filter(has_text="Cancelling 2 jobs")).to_be_visible()
    for job_id in jobs:
        visitor.until(job_id, "CANCELLED")


def test_an_approval_is_answered_in_the_drawer(visitor: Visitor):
    job_id = visitor.submit("hello")
    visitor.until(job_id, "WAITING")
    page = visitor.page(f"/ui/jobs/{job_id}")
    page.get_by_role("treegrid").get_by_role("link", name="ask").click()
    drawer = page.get_by_role("dialog", name="Node")
    drawer.get_by_label("Comment (optional)").fill("looks good")
    drawer.get_by_role("button", name="Approve").click()
    expect(page.get_by_role("status").filter(has_text="approved ask")).to_be_visible()
    visitor.until(job_id, "COMPLETED")


def test_a_row_opens_the_node_and_esc_returns_to_it(visitor: Visitor, broken: str):
    page = visitor.page(f"/ui/jobs/{broken}/nodes?open=clip")
    link = page.get_by_role("link", name="clip__3", exact=True)
    link.focus()
    page.keyboard.press("Enter")
    expect(page.get_by_role("dialog", name="Node").get_by_role("heading", name="clip__3")).to_be_visible()
    page.keyboard.press("Escape")
    expect(link).to_be_focused()
    assert page.url.endswith("?open=clip")


def test_single_keys_can_be_turned_off(visitor: Visitor):
    page = visitor.page("/ui/")
    page.keyboard.press("?")
    page.get_by_role("checkbox", name=re.compile("Single keys")).uncheck()
    page.keyboard.press("Escape")
    page.keyboard.press("g")
    page.keyboard.press("j")
    page.keyboard.press("?")
    expect(page.get_by_role("dialog")).to_have_count(0)
    expect(page).to_have_url(f"{visitor.server.url}/ui/")
    page.keyboard.press("Control+k")
    expect(page.get_by_role("dialog", name="Commands")).to_be_visible()


def test_a_reader_sees_no_buttons_that_change_something(visitor: Visitor, broken: str):
    page = visitor.page(f"/ui/jobs/{broken}", scopes=(Scope.READ,))
    expect(page.get_by_role("link", name="First failure")).to_be_visible()
    expect(page.get_by_role("link", name="Resume")).to_have_count(0)


def test_times_are_relative_with_the_exact_one_on_hover_and_durations_tick(visitor: Visitor):
    job_id = visitor.submit("hang")
    visitor.until(job_id, "RUNNING")
    page = visitor.page(f"/ui/jobs/{job_id}")
    submitted = page.locator("dl.facts time").first
    expect(submitted).to_have_attribute("title", re.compile(r"^\d{4}-\d\d-\d\d \d\d:\d\d:\d\d UTC$"))
    duration = page.locator("dl.facts [data-since]").first
    first = duration.inner_text()
    expect(duration).not_to_have_text(first)
    visitor.api.post(f"/api/v1/jobs/{job_id}/cancel")
    visitor.until(job_id, "CANCELLED")
