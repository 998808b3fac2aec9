"""The shell of all pages: login, navigation, theme, errors."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING

from playwright.sync_api import expect

from dagmaster.http.auth import SESSION_COOKIE
from dagmaster.ports.api_keys import Scope

if TYPE_CHECKING:
    from tests.browser.visitor import Visitor


def test_the_link_of_dev_logs_in_and_leaves_no_key_in_the_address(visitor: Visitor):
    code = visitor.server.make_login_link(visitor.server.key)
    page = visitor.page(f"/ui/#login={code}", key=None)
    expect(page).to_have_url(f"{visitor.server.url}/ui/")
    expect(page.get_by_role("navigation", name="Main")).to_be_visible()
    (cookie,) = [cookie for cookie in page.context.cookies() if cookie["name"] == SESSION_COOKIE]
    assert (cookie["httpOnly"], cookie["sameSite"], cookie["value"][:3]) == (True, "Strict", "ds_")
    assert code not in cookie["value"]
    assert visitor.server.key not in page.content()


def test_a_key_is_pasted_without_scripts_and_leads_back_to_the_page(visitor: Visitor):
    page = visitor.page("/ui/jobs?status=failed", key=None, java_script_enabled=False)
    page.get_by_label("API key or token").fill("dm_wrong")
    page.get_by_role("button", name="Log in").click()
    expect(page.get_by_role("alert")).to_contain_text("not known here")
    page.get_by_label("API key or token").fill(visitor.server.key)
    page.get_by_role("button", name="Log in").click()
    expect(page).to_have_url(f"{visitor.server.url}/ui/jobs?status=failed")
    page.get_by_role("button", name=re.compile("Log out")).click()
    expect(page).to_have_url(re.compile("/ui/login"))
    visitor.problems.clear()  # 401 is the answer to the wrong key


def test_the_viewer_chooses_between_light_and_dark(visitor: Visitor):
    page = visitor.page("/ui/", color_scheme="light")
    page.get_by_role("button", name="Change between light and dark").click()
    page.reload()
    assert page.evaluate("document.documentElement.dataset.theme") == "dark"
    assert page.evaluate("getComputedStyle(document.body).backgroundColor") == "rgb(13, 16, 20)"


def test_an_unknown_address_and_a_missing_scope_say_what_to_do(visitor: Visitor):
    page = visitor.page("/ui/nowhere")
    expect(page.get_by_role("heading", name="Not found")).to_be_visible()
    page = visitor.page("/ui/", scopes=(Scope.SUBMIT,))
    expect(page.get_by_role("heading", name="Not allowed")).to_be_visible()
    expect(page.get_by_role("link", name="Log in with another key")).to_be_visible()
    visitor.problems.clear()  # 404 and 403 are in the console


def test_the_menu_opens_on_a_narrow_screen(visitor: Visitor):
    page = visitor.page("/ui/", viewport={"width": 360, "height": 740})
    jobs = page.get_by_role("navigation", name="Main").get_by_role("link", name="Overview")
    expect(jobs).not_to_be_visible()
    page.get_by_role("link", name="Menu").click()
    expect(jobs).to_be_visible()
    assert page.evaluate("document.documentElement.scrollWidth") <= 360
