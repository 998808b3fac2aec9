"""The editor of workflows, and the element that edits its text."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING

from playwright.sync_api import expect

from tests.browser.elements import mount

if TYPE_CHECKING:
    from playwright.sync_api import Page, Route

    from tests.browser.visitor import Visitor

FLOW = """\
workflow_id: drawn   # by a test
version: 1
nodes:
  first: {handler: echo} # keep me
"""


def open_editor(visitor: Visitor) -> Page:
    page = visitor.page("/ui/editor")
    expect(page.locator("[data-draft-state]")).to_have_text(re.compile("Valid|problem"))
    page.get_by_label("Workflow as YAML").fill(FLOW)
    expect(page.get_by_role("button", name=re.compile("first"))).to_be_visible()
    return page


def test_nodes_are_added_connected_and_renamed_on_the_graph_and_the_text_keeps_its_comments(visitor: Visitor):
    page = open_editor(visitor)
    text = page.get_by_label("Workflow as YAML")
    page.get_by_role("button", name="Add node").click()
    page.locator("#new-id").fill("second")
    page.locator("#new-handler").fill("echo")
    page.locator("#new-after").select_option("first")
    page.get_by_role("button", name="Add", exact=True).click()
    expect(text).to_have_value(FLOW + "  second:\n    handler: echo\n    depends_on: first\n")
    page.locator("#node-id").fill("last")
    page.keyboard.press("Tab")
    expect(text).to_have_value(FLOW + "  last:\n    handler: echo\n    depends_on: first\n")
    page.get_by_role("button", name="Do not come after first").click()
    expect(text).to_have_value(FLOW + "  last:\n    handler: echo\n")
    page.get_by_role("button", name="Remove", exact=True).click()
    expect(text).to_have_value(FLOW)


def test_what_is_typed_while_the_graph_is_edited_is_kept(visitor: Visitor):
    page = open_editor(visitor)
    text = page.get_by_label("Workflow as YAML")
    held: list[Route] = []
    page.route("**/ui/editor/edit", lambda route: held.append(route))  # noqa: PLW0108 - not a builtin: the driver sets an attribute
    page.get_by_role("button", name="Add node").click()
    page.locator("#new-id").fill("second")
    page.locator("#new-handler").fill("echo")
    with page.expect_request("**/ui/editor/edit"):
        page.get_by_role("button", name="Add", exact=True).click()
    text.fill(FLOW + "# typed\n")
    held[0].continue_()
    expect(page.get_by_text("The text was edited in the meantime")).to_be_visible()
    expect(text).to_have_value(FLOW + "# typed\n")
    with page.expect_request("**/ui/editor/edit"):
        page.get_by_role("button", name="Add", exact=True).click()
    held[1].continue_()
    expect(text).to_have_value(FLOW + "  second:\n    handler: echo\n# typed\n")


def test_problems_are_shown_at_their_line_while_the_text_is_typed(visitor: Visitor):
    page = open_editor(visitor)
    page.get_by_label("Workflow as YAML").fill(FLOW.replace("handler", "handlr"))
    expect(page.locator(".code-number.is-error")).to_have_text("4")
    expect(page.locator(".code-problems li").first).to_contain_text("handlr")
    page.locator(".code-problems button").first.click()
    expect(page.get_by_label("Workflow as YAML")).to_be_focused()


def test_a_workflow_is_published_as_the_next_version(visitor: Visitor):
    page = open_editor(visitor)
    page.get_by_role("button", name="Publish").click()
    expect(page).to_have_url(re.compile("workflow_id=drawn&version=1"))
    text = page.get_by_label("Workflow as YAML")
    text.fill(text.input_value() + "  more: {handler: echo}\n")
    page.get_by_role("button", name="Publish").click()
    expect(page).to_have_url(re.compile("workflow_id=drawn&version=2"))


def test_without_scripts_a_text_is_checked_and_published(visitor: Visitor):
    page = visitor.page("/ui/editor", java_script_enabled=False)
    page.get_by_label("Workflow as YAML").fill(FLOW.replace("drawn", "plain").replace("handler", "handlr"))
    page.get_by_role("button", name="Check").click()
    expect(page.get_by_role("alert")).to_contain_text("workflow.yaml:4")
    page.get_by_label("Workflow as YAML").fill(FLOW.replace("drawn", "plain"))
    page.get_by_role("button", name="Publish").click()
    expect(page).to_have_url(re.compile("workflow_id=plain&version=1"))
    visitor.problems.clear()  # 422 is the answer to the wrong text


# ── The element ──


def edit_text(visitor: Visitor, text: str) -> Page:
    page = visitor.page("/ui/jobs")
    mount(page, "code-editor", text, language="yaml")
    page.get_by_label("Text").click()
    return page


def value(page: Page) -> str:
    return page.get_by_label("Text").input_value()


def test_tab_indents_and_after_escape_it_leaves(visitor: Visitor):
    page = edit_text(visitor, "a:\nb: 1\nc: 2")
    page.keyboard.press("Control+a")
    page.keyboard.press("Tab")
    assert value(page) == "  a:\n  b: 1\n  c: 2"
    page.keyboard.press("Shift+Tab")
    assert value(page) == "a:\nb: 1\nc: 2"
    page.keyboard.press("Control+z")
    assert value(page) == "  a:\n  b: 1\n  c: 2", "the browser can undo it"
    page.keyboard.press("Escape")
    page.keyboard.press("Tab")
    expect(page.get_by_label("Text")).not_to_be_focused()


def test_enter_keeps_the_indentation_and_goes_deeper_after_a_colon(visitor: Visitor):
    page = edit_text(visitor, "nodes:")
    page.keyboard.press("Control+End")
    page.keyboard.press("Enter")
    page.keyboard.type("a:")
    page.keyboard.press("Enter")
    page.keyboard.type("x")
    assert value(page) == "nodes:\n  a:\n    x"


def test_completions_fit_the_place_and_are_accepted_with_the_keyboard(visitor: Visitor):
    page = edit_text(visitor, "")
    page.evaluate(
        """document.querySelector("code-editor").completions = [
          {label: "handler", kind: "key"}, {label: "raster.clip", kind: "handler", detail: "Clips"},
          {label: "nodes.a.output", kind: "expression"}, {label: "retry", kind: "value", after: "next"}]"""
    )
    page.keyboard.type("han")
    expect(page.get_by_role("option")).to_have_text(["handler"])
    page.keyboard.press("Enter")
    page.keyboard.type("cl")
    expect(page.get_by_role("option")).to_have_text(["raster.clipClips"])
    page.keyboard.press("Tab")
    page.keyboard.press("Enter")
    page.keyboard.type('value: "{{ no')
    page.keyboard.press("Enter")
    assert value(page) == 'handler: raster.clip\nvalue: "{{ nodes.a.output'
    expect(page.get_by_role("listbox")).to_be_hidden()


def test_five_thousand_lines_are_drawn_only_where_they_are_seen(visitor: Visitor):
    page = edit_text(visitor, "\n".join(f"key_{number}: {number}" for number in range(5_000)))
    page.keyboard.press("Control+End")
    expect(page.locator(".code-number").last).to_have_text("5000")
    assert page.locator(".code-line").count() < 100
    expect(page.locator(".code-line .code-key").last).to_have_text("key_4999")
