"""The login at an identity provider of another site, as a browser follows it: redirects, cookies, content policy."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING

import pytest
from playwright.sync_api import expect

from dagmaster.adapters.oidc import OidcConfig, OidcVerifier
from dagmaster.adapters.oidc_login import LoginConfig, OidcLogin
from dagmaster.http.auth import SESSION_COOKIE, KeyChecker
from dagmaster.sdk.handler_registry import Registry
from dagmaster.ui.site import Site
from tests.browser.visitor import Visitor
from tests.unit.http.local_issuer import AUDIENCE, CLIENT_ID, CLIENT_SECRET, served_issuer
from tests.unit.http.loopback import serve

if TYPE_CHECKING:
    from collections.abc import Iterator

    from fastapi import FastAPI
    from playwright.sync_api import Browser

    from tests.unit.http.local_issuer import LocalIssuer


class SiteWithLogin(Site):
    """The web page of a server that accepts the tokens of an issuer."""

    def __init__(self, issuer: LocalIssuer) -> None:
        super().__init__()
        self.verifier = OidcVerifier(OidcConfig(issuer=issuer.url, audience=AUDIENCE))

    def install(self, app: FastAPI) -> None:
        super().install(app)
        app.state.keys = KeyChecker(app.state.services.keys, self.verifier)

    def lead_back_to(self, url: str) -> None:
        config = LoginConfig(
            client_id=CLIENT_ID,
            client_secret=CLIENT_SECRET,
            public_url=url,
            provider="Example",
            scopes=("openid", "profile"),
        )
        self.login = OidcLogin(config, self.verifier)


@pytest.fixture
def visitor(browser: Browser) -> Iterator[Visitor]:
    # For a browser, localhost and 127.0.0.1 are two sites.
    with served_issuer("localhost") as issuer:
        site = SiteWithLogin(issuer)
        with serve(Registry([]), site) as server:
            site.lead_back_to(server.url)
            visitor = Visitor(browser, server)
            yield visitor
            visitor.close(None)
            server.run(site.verifier.close())
    assert visitor.problems == [], "the console of the browser has errors"


@pytest.mark.parametrize("has_scripts", [True, False])
def test_a_viewer_logs_in_at_another_site_comes_back_to_the_page_and_logs_out(
    visitor: Visitor, has_scripts: bool
):
    page = visitor.page("/ui/jobs?status=failed", key=None, java_script_enabled=has_scripts)
    page.get_by_role("link", name="Log in with Example").click()
    expect(page).to_have_url(f"{visitor.server.url}/ui/jobs?status=failed")
    expect(page.get_by_role("button", name="Log out user-1")).to_be_visible()
    (cookie,) = page.context.cookies()
    assert (cookie["name"], cookie["httpOnly"], cookie["sameSite"]) == (SESSION_COOKIE, True, "Strict")
    page.get_by_role("button", name="Log out user-1").click()
    expect(page).to_have_url(re.compile("/ui/login$"))
    expect(page.get_by_role("link", name="Log in with Example")).to_be_visible()
    assert SESSION_COOKIE not in {cookie["name"] for cookie in page.context.cookies()}
