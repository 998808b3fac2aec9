"""What changes while a page is open: jobs that move, a server that goes away, a key that is revoked."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING

from playwright.sync_api import expect

from dagmaster.application.api_keys import revoke_key
from dagmaster.http import auth
from dagmaster.ports.api_keys import Scope
from tests.browser.visitor import COUNT_SOURCES
from tests.unit.http.loopback import ORIGIN

if TYPE_CHECKING:
    from tests.browser.visitor import Visitor


def test_a_job_moves_on_the_page_without_reloading(visitor: Visitor):
    job_id = visitor.submit("hello")
    visitor.until(job_id, "WAITING")
    page = visitor.page(f"/ui/jobs/{job_id}/nodes")
    expect(page.locator("[data-live]")).to_have_text("live")
    page.evaluate("window.isTheSamePage = true")
    visitor.api.post(f"/api/v1/jobs/{job_id}/nodes/ask/approve")
    expect(page.locator(".page-head .status")).to_have_text("completed")
    expect(page.locator("tr[data-node=ask] .status")).to_have_text("completed")
    assert page.evaluate("window.isTheSamePage")


def test_the_drawer_and_the_page_of_a_node_also_move_and_keep_what_is_being_written(visitor: Visitor):
    job_id = visitor.submit("hello")
    visitor.until(job_id, "WAITING")
    page, node = visitor.page(f"/ui/jobs/{job_id}"), visitor.page(f"/ui/jobs/{job_id}/nodes/end")
    expect(node.locator("[data-live]")).to_have_text("live")
    page.get_by_role("treegrid").get_by_role("link", name="end", exact=True).click()
    drawer = page.get_by_role("dialog", name="Node")
    expect(drawer.locator(".page-head .status")).to_have_text("pending")
    written = visitor.page(f"/ui/jobs/{job_id}/nodes/ask")
    written.get_by_label("Comment (optional)").fill("not yet")
    written.evaluate("document.addEventListener('page-refreshed', () => { window.isRefreshed = true; })")
    visitor.api.post(f"/api/v1/jobs/{job_id}/nodes/ask/approve")
    for place in (drawer, node):
        expect(place.locator(".page-head .status")).to_have_text("completed")
        expect(place.get_by_role("region", name="Output")).to_be_visible()
    written.wait_for_function("() => window.isRefreshed")
    expect(written.get_by_label("Comment (optional)")).to_have_value("not yet")


def test_the_page_of_a_running_node_follows_its_log_on_the_one_connection(visitor: Visitor):
    job_id = visitor.submit("hang")
    visitor.until(job_id, "RUNNING")
    page = visitor.page(None)
    page.add_init_script(COUNT_SOURCES)
    page.goto(f"/ui/jobs/{job_id}/nodes/wait")
    expect(page.locator("[data-live]")).to_have_text("live")
    (address,) = page.evaluate(
        "sources.filter((source) => source.readyState !== 2).map((source) => source.url)"
    )
    assert re.search(rf"/jobs/{job_id}/stream.*logs=true&log_node_id=wait", address)
    visitor.api.post(f"/api/v1/jobs/{job_id}/cancel")
    expect(page.locator(".page-head .status")).to_have_text("cancelled")


def test_a_new_job_appears_in_the_list_and_what_was_selected_stays(visitor: Visitor):
    first = visitor.submit("hello")
    visitor.until(first, "WAITING")
    page = visitor.page("/ui/jobs?workflow_id=hello")
    expect(page.locator("[data-live]")).to_have_text("live")
    page.get_by_role("checkbox", name=f"Select hello {first}").check()
    second = visitor.submit("hello")
    expect(page.locator(f"tr[data-job='{second}']")).to_be_visible()
    expect(page.get_by_role("checkbox", name=f"Select hello {first}")).to_be_checked()
    expect(page.get_by_text("1 selected")).to_be_visible()


def test_while_the_server_is_gone_a_banner_says_so_and_the_page_continues_by_itself(visitor: Visitor):
    job_id = visitor.submit("hello")
    visitor.until(job_id, "WAITING")
    page = visitor.page(f"/ui/jobs/{job_id}")
    expect(page.locator("[data-live]")).to_have_text("live")
    page.context.set_offline(offline=True)
    visitor.server.restart()
    expect(page.locator("[data-banner]")).to_contain_text("The server cannot be reached")
    expect(page.locator(".page-head .status")).to_have_text("waiting")
    page.context.set_offline(offline=False)
    expect(page.locator("[data-banner]")).to_be_hidden()
    visitor.api.post(f"/api/v1/jobs/{job_id}/nodes/ask/approve")
    expect(page.locator(".page-head .status")).to_have_text("completed")
    visitor.problems.clear()  # requests that failed while there was no server


def test_a_key_that_is_revoked_leads_to_the_login_and_back_to_the_same_place(visitor: Visitor, monkeypatch):
    monkeypatch.setattr(auth, "CACHE_SECONDS", -1.0)
    job_id = visitor.submit("hello")
    visitor.until(job_id, "WAITING")
    key = visitor.server.make_key(Scope.READ)
    page = visitor.page(f"/ui/jobs/{job_id}/nodes?open=", key=key)
    expect(page.locator("[data-live]")).to_have_text("live")
    visitor.server.run(revoke_key(visitor.server.services.keys, key.split("_")[1], origin=ORIGIN))
    visitor.api.post(f"/api/v1/jobs/{job_id}/nodes/ask/approve")
    expect(page).to_have_url(re.compile("/ui/login"))
    page.get_by_label("API key or token").fill(visitor.server.key)
    page.get_by_role("button", name="Log in").click()
    expect(page).to_have_url(re.compile(f"/ui/jobs/{job_id}/nodes"))
    visitor.problems.clear()  # 401 is in the console


def test_a_page_that_is_opened_while_the_server_is_gone_says_so_and_is_shown_when_it_is_back(
    visitor: Visitor,
):
    page = visitor.page("/ui/", service_workers="allow")
    page.evaluate("navigator.serviceWorker.ready")
    page.reload()
    page.context.set_offline(offline=True)
    page.goto("/ui/jobs?status=failed")
    expect(page.get_by_role("heading", name="The server cannot be reached")).to_be_visible()
    assert page.evaluate("getComputedStyle(document.body).fontFamily").startswith("system-ui")
    page.context.set_offline(offline=False)
    expect(page.get_by_role("search", name="Filter jobs")).to_be_visible()
    expect(page).to_have_url(re.compile("status=failed"))
    visitor.problems.clear()  # requests that failed while there was no server
