"""The pages of workflows, nodes, tasks, queues, the fleet and keys in a browser, also without scripts."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING

import pytest
from playwright.sync_api import expect

from dagmaster.ports.api_keys import Scope
from dagmaster.sdk.handler_registry import Registry
from dagmaster.store.memory.metrics import roll_up
from dagmaster.ui.site import Site
from tests.browser.visitor import Visitor
from tests.browser.workflows import TILES
from tests.unit.http.loopback import serve

if TYPE_CHECKING:
    from playwright.sync_api import Browser

PAGES = [
    "workflows",
    "workflows/tiles",
    "workflows/tiles/graph",
    "nodes",
    "tasks",
    "queues",
    "fleet",
    "health",
]


@pytest.fixture
def counted(visitor: Visitor) -> str:
    """Return a job that finished and is counted."""
    job_id = visitor.submit("tiles", count=4)
    visitor.until(job_id, "COMPLETED")

    async def count() -> None:
        roll_up(visitor.server.services.application.read._database, 1_000)  # type: ignore[attr-defined]

    visitor.server.run(count())
    return job_id


def test_two_versions_are_compared_and_one_is_activated_without_scripts(visitor: Visitor):
    text = TILES.replace("workflow_id: tiles", "workflow_id: mosaic")
    for version in (1, 2):
        body = {"text": text.replace("version: 1", f"version: {version}"), "activate": version == 1}
        assert visitor.api.post("/api/v1/workflows", json=body).status_code == 201
    page = visitor.page("/ui/workflows", java_script_enabled=False)
    page.get_by_role("link", name="mosaic").click()
    expect(page.get_by_text("v1 active")).to_be_visible()
    page.get_by_role("link", name="Versions").click()
    expect(page.get_by_text("1 change", exact=True)).to_be_visible()
    page.get_by_role("button", name="Activate version 2").click()
    expect(page.get_by_role("status")).to_contain_text("New jobs of mosaic get version 2.")
    expect(page.get_by_text("v2 active", exact=True)).to_be_visible()
    page.get_by_role("link", name="Graph").click()
    expect(page.get_by_role("img", name=re.compile("The graph of mosaic"))).to_be_visible()


def test_a_chart_has_a_name_and_a_table(visitor: Visitor, counted: str):
    page = visitor.page("/ui/workflows/tiles")
    expect(page.get_by_role("img", name="Finished jobs over time")).to_be_visible()
    table = page.get_by_role("region", name="Duration of completed jobs over time")
    expect(table).not_to_be_visible()
    page.get_by_text("Show as a table").nth(1).click()
    expect(table.get_by_role("columnheader", name="p95")).to_be_visible()
    expect(
        page.get_by_role("link", name=re.compile(counted)).or_(page.get_by_text(counted)).first
    ).to_be_visible()


def test_the_graph_of_a_workflow_is_drawn_and_listed(visitor: Visitor):
    page = visitor.page("/ui/workflows/tiles/graph")
    expect(page.locator("dag-graph").get_by_text("clip").first).to_be_visible()
    expect(page.get_by_role("row", name=re.compile("merge fan in .* clip"))).to_be_visible()


def test_queues_are_refreshed_while_the_page_is_open_and_say_when_they_are_not(visitor: Visitor):
    page = visitor.page("/ui/queues")
    claimed = page.locator(".figure", has_text="Claimed").locator("dd")
    before = int(claimed.inner_text())
    visitor.submit("hang")
    expect(claimed).to_have_text(str(before + 1))
    page.context.set_offline(offline=True)
    expect(page.get_by_role("alert")).to_contain_text("The server cannot be reached")
    page.context.set_offline(offline=False)
    expect(page.get_by_role("alert")).to_be_hidden()
    visitor.problems.clear()  # requests failed while the browser was offline


def test_a_worker_is_drained_and_undrained_from_the_fleet_page(browser: Browser):
    with serve(Registry([]), Site()) as server:
        visitor = Visitor(browser, server)
        page = visitor.page("/ui/fleet")
        workers = page.get_by_role("region", name="Workers")
        workers.get_by_role("link", name=re.compile("^Drain ")).click()
        dialog = page.get_by_role("dialog")
        expect(dialog.get_by_text("No other worker claims: tasks wait until one starts.")).to_be_visible()
        dialog.get_by_role("button", name="Drain").click()
        expect(page.get_by_text("drains: it claims no more tasks")).to_be_visible()
        expect(workers.get_by_text("drained")).to_be_visible()
        workers.get_by_role("link", name=re.compile("^Undrain ")).click()
        page.get_by_role("dialog").get_by_role("button", name="Undrain").click()
        expect(workers.get_by_text("alive", exact=True)).to_be_visible()
        visitor.close(None)


def test_a_task_in_flight_leads_to_its_node(visitor: Visitor):
    job_id = visitor.submit("hang")
    visitor.until(job_id, "RUNNING")
    page = visitor.page(f"/ui/tasks?job_id={job_id}", java_script_enabled=False)
    page.get_by_role("link", name="wait", exact=True).click()
    expect(page).to_have_url(f"{visitor.server.url}/ui/jobs/{job_id}/nodes/wait")


def test_a_key_is_created_shown_once_rotated_and_revoked(visitor: Visitor):
    page = visitor.page("/ui/keys")
    page.get_by_label("Name").fill("nightly build")
    page.get_by_role("checkbox", name=re.compile("^submit")).check()
    page.get_by_role("button", name="Create").click()
    shown = page.get_by_label("New key")
    key = shown.inner_text().strip()
    assert key.startswith("dm_")
    page.goto("/ui/keys")
    assert key not in page.content()
    row = page.get_by_role("row", name=re.compile("nightly build")).first
    row.get_by_role("button", name=re.compile("Rotate")).click()
    page.get_by_role("dialog", name="Rotate nightly build").get_by_role("button", name="Rotate").click()
    expect(shown).not_to_have_text(key)
    row = page.get_by_role("row", name=re.compile("nightly build")).filter(has_text=key.split("_")[1])
    row.get_by_role("button", name=re.compile("Revoke")).click()
    page.get_by_role("dialog", name="Revoke nightly build").get_by_role("button", name="Revoke").click()
    expect(
        page.get_by_role("row", name=re.compile("nightly build")).filter(has_text="revoked")
    ).to_be_visible()


def test_a_reader_sees_the_pages_and_no_administration(visitor: Visitor):
    page = visitor.page("/ui/", scopes=(Scope.READ,))
    navigation = page.get_by_role("navigation", name="Main")
    expect(navigation.get_by_role("link", name="Fleet")).to_be_visible()
    expect(navigation.get_by_role("link", name="Keys")).to_have_count(0)
    expect(navigation.get_by_role("link", name="Audit")).to_have_count(0)
    for path in PAGES:
        page.goto(f"/ui/{path}")
        expect(page.get_by_role("main")).to_be_visible()
        expect(page.get_by_role("button", name=re.compile("Activate|Create|Revoke"))).to_have_count(0)
