"""The pages without JavaScript: submit, find, explain, read the log, resume after a dry run, cancel, approve."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING

import pytest
from playwright.sync_api import expect

from dagmaster.worker.task_log_capture import capture

if TYPE_CHECKING:
    from playwright.sync_api import Page

    from tests.browser.visitor import Visitor


@pytest.fixture
def page(visitor: Visitor) -> Page:
    return visitor.page("/ui/", java_script_enabled=False)


def job_of(page: Page) -> str:
    match = re.search(r"/ui/jobs/(\d+)", page.url)
    assert match is not None, page.url
    return match[1]


def test_a_job_is_submitted_found_explained_and_resumed(visitor: Visitor, page: Page):
    page.get_by_role("navigation", name="Main").get_by_role("link", name="Submit").click()
    page.get_by_label("Workflow", exact=True).select_option("tiles")
    page.get_by_role("button", name="Choose").click()
    page.get_by_label(re.compile("^count")).fill("many")
    page.get_by_role("button", name="Submit", exact=True).last.click()
    expect(page.get_by_role("alert")).to_contain_text("is not a whole number")
    expect(page.get_by_label(re.compile("^count"))).to_have_value("many")
    page.get_by_label(re.compile("^count")).fill("4")
    page.get_by_label(re.compile("^fails")).select_option("true")
    page.get_by_role("button", name="Submit", exact=True).last.click()
    expect(page.get_by_role("status").first).to_contain_text("Submitted job")
    job_id = job_of(page)
    visitor.until(job_id, "FAILED")
    page.get_by_role("navigation", name="Main").get_by_role("link", name="Jobs").click()
    page.get_by_label("Search").fill(job_id)
    page.get_by_role("button", name="Filter").click()
    page.get_by_role("link", name="tiles", exact=True).click()
    expect(page.locator("[data-why]")).to_contain_text("tile 1 has no data")
    for tab in ("Timeline", "Nodes", "Events", "Inputs and outputs", "Map"):
        link = page.get_by_role("navigation", name="Views of the job").get_by_role(
            "link", name=tab, exact=True
        )
        link.click()
        expect(link).to_have_attribute("aria-current", "page")
    page.get_by_role("link", name="Resume").click()
    expect(page.get_by_text("A dry run: nothing has changed yet.")).to_be_visible()
    for outcome in ("Run again", "Reused"):
        expect(page.locator(".plan summary", has_text=outcome)).to_be_visible()
    page.get_by_role("button", name="Resume").click()
    expect(page.get_by_role("status").first).to_contain_text("run 2 starts", ignore_case=True)
    assert visitor.until(job_id, "FAILED")["run"] == 2
    visitor.problems.clear()  # 422 is the answer to the wrong input


def test_a_node_is_retried_and_its_log_is_read(visitor: Visitor, page: Page):
    with capture():
        job_id = visitor.submit("tiles", count=2, fails=True)
        visitor.until(job_id, "FAILED")
    page.goto(f"/ui/jobs/{job_id}/logs")
    expect(page.get_by_role("region", name="Log").get_by_text("tile 1 begins")).to_be_visible()
    page.get_by_role("link", name="First failure").click()
    expect(page.get_by_role("region", name="End of the log")).to_contain_text("tile 1 begins")
    expect(page.locator(".error-text")).to_contain_text("tile 1 has no data")
    page.get_by_role("link", name="Retry this node").click()
    page.get_by_role("button", name="Retry").click()
    expect(page.get_by_role("status").first).to_contain_text("Run 2 starts")


def test_a_job_is_cancelled_and_an_approval_is_answered(visitor: Visitor, page: Page):
    hanging, waiting = visitor.submit("hang"), visitor.submit("hello")
    visitor.until(hanging, "RUNNING")
    page.goto(f"/ui/jobs/{hanging}")
    page.get_by_role("link", name="Cancel").click()
    page.get_by_role("button", name="Cancel the job").click()
    expect(page.get_by_role("status").first).to_contain_text("requested cancellation")
    visitor.until(hanging, "CANCELLED")
    visitor.until(waiting, "WAITING")
    page.goto(f"/ui/jobs/{waiting}")
    page.get_by_role("treegrid").get_by_role("link", name="ask").click()
    expect(page.locator(".callout-lead")).to_have_text("publish it?")
    page.get_by_label("Comment (optional)").fill("looks good")
    page.get_by_role("button", name="Approve").click()
    expect(page.get_by_role("status").first).to_contain_text("approved ask", ignore_case=True)
    visitor.until(waiting, "COMPLETED")
