"""Submitting a job from the page: with scripts and without, and nothing that was typed is lost."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING

import pytest
from playwright.sync_api import expect

if TYPE_CHECKING:
    from tests.browser.visitor import Visitor


@pytest.mark.parametrize("scripts", [True, False])
def test_a_job_is_submitted_from_the_form(visitor: Visitor, *, scripts: bool):
    page = visitor.page("/ui/submit", java_script_enabled=scripts)
    page.get_by_label("Workflow", exact=True).select_option("tiles")
    if not scripts:
        page.get_by_role("button", name="Choose").click()
    expect(page.get_by_role("heading", name="Submit tiles")).to_be_visible()
    page.get_by_label("count").fill("many")
    page.get_by_label("Name", exact=True).fill("from <the> page")
    page.get_by_role("button", name="Submit", exact=True).click()
    expect(page.get_by_label("count")).to_have_value("many")
    expect(page.get_by_label("count")).to_have_attribute("aria-invalid", "true")
    expect(page.locator("#input-count-problem")).to_have_text('"many" is not a whole number')
    expect(page.get_by_label("Name", exact=True)).to_have_value("from <the> page")
    page.get_by_label("count").fill("3")
    page.get_by_role("button", name="Submit", exact=True).click()
    expect(page).to_have_url(re.compile(r"/ui/jobs/\d+$"))
    job = visitor.until(page.url.rpartition("/")[2], "COMPLETED")
    assert (job["name"], job["inputs"]["count"]) == ("from <the> page", 3)
    visitor.problems.clear()  # 422 is the answer to the wrong input


def test_the_same_inputs_are_edited_as_text_with_problems_at_the_line(visitor: Visitor):
    page = visitor.page("/ui/submit?workflow_id=tiles")
    page.get_by_label("count").fill("4")
    page.get_by_role("button", name="Edit as YAML or JSON").click()
    text = page.get_by_label("Inputs as YAML or JSON")
    expect(text).to_have_value(re.compile("count: 4"))
    text.fill("count: 4\nfails: perhaps\n")
    page.get_by_role("button", name="Check only").click()
    expect(page.locator(".code-number.is-error")).to_have_text("2")
    expect(page.locator(".code-problems")).to_contain_text("is not true or false")
    expect(text).to_have_value("count: 4\nfails: perhaps\n")
    text.fill("count: 4\n")
    page.get_by_role("button", name="Check only").click()
    expect(page.get_by_role("status").filter(has_text="The inputs are valid")).to_be_visible()
    page.get_by_role("button", name="Edit as a form").click()
    expect(page.get_by_label("count")).to_have_value("4")
    visitor.problems.clear()  # 422 is the answer to the wrong input
