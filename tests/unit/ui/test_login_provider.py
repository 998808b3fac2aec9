"""The login at an identity provider: the way there and back, the logout, the settings."""

from __future__ import annotations

import asyncio
from http.cookies import SimpleCookie
from typing import TYPE_CHECKING, Any
from urllib.parse import parse_qs, parse_qsl, urlsplit

import pytest

from dagmaster.adapters import oidc_issuer
from dagmaster.adapters.oidc import OidcConfig, OidcVerifier
from dagmaster.adapters.oidc_login import LOGIN_SECONDS, OidcLogin
from dagmaster.bootstrap.access import make_token_verifier
from dagmaster.bootstrap.http_server import make_browser_login
from dagmaster.errors import ApiKeyRejected, LoginRejected, SettingsInvalid
from dagmaster.http.auth import SESSION_COOKIE, KeyChecker
from dagmaster.settings import Settings, read_settings
from tests.unit.http.local_issuer import AUDIENCE, CLIENT_ID, CLIENT_SECRET, DISCOVERY, served_issuer
from tests.unit.ui.login_browser import PUBLIC_URL, TICKET, assert_rejected, login_config, opened_browser, run
from tests.unit.ui.page_client import opened_pages

if TYPE_CHECKING:
    from collections.abc import Iterator

    from tests.unit.http.local_issuer import LocalIssuer
    from tests.unit.ui.login_browser import Browser


@pytest.fixture
def issuer() -> Iterator[LocalIssuer]:
    with served_issuer() as issuer:
        yield issuer


# ── The way there and back ──────────────────────────────────────────────────────────────────────────────────────────


def test_a_login_leads_to_the_provider_and_back_to_the_page(issuer):
    async def journey(browser: Browser) -> None:
        sent = await browser.get("/ui/jobs?status=failed")
        page = await browser.get(sent.headers["location"])
        link = f"{PUBLIC_URL}/ui/login/provider?next=%2Fui%2Fjobs%3Fstatus%3Dfailed"
        assert f'href="{link}">Log in with Example<' in page.text
        assert "API key or token" in page.text
        started = await browser.get(link, Host="evil.example")
        asked = parse_qs(urlsplit(started.headers["location"]).query)
        assert asked["redirect_uri"] == [f"{PUBLIC_URL}/ui/login/callback"], (
            "not the address that the request names"
        )
        assert started.headers["cache-control"] == "no-store"
        cookie = started.headers["set-cookie"]
        assert cookie.startswith(f"{TICKET}=")
        for attribute in ("HttpOnly", "SameSite=lax", "Secure", "Path=/", f"Max-Age={LOGIN_SECONDS}"):
            assert attribute in cookie
        for name in ("state", "nonce"):
            assert asked[name][0] not in cookie
        finished = await browser.finish(issuer.authorize(started.headers["location"]))
        assert finished.status_code == 200
        assert 'content="0;url=/ui/jobs?status=failed"' in finished.text
        (session,) = [line for line in finished.headers.get_list("set-cookie") if SESSION_COOKIE in line]
        for attribute in ("HttpOnly", "SameSite=strict", "Secure", "Path=/"):
            assert attribute in session
        assert 590 <= int(SimpleCookie(session)[SESSION_COOKIE]["max-age"]) <= 600, (
            "as long as the token is valid"
        )
        assert set(browser.cookies) == {SESSION_COOKIE}, "the ticket is used up"
        assert "user-1" in (await browser.get("/ui/jobs?status=failed")).text

    run(issuer, journey)


def test_without_a_provider_there_is_no_link_and_no_route():
    async def main() -> None:
        async with opened_pages() as pages:
            pages.key = ""
            assert "Log in with" not in (await pages.get("/ui/login")).text
            for path in ("/ui/login/provider", "/ui/login/callback?code=x&state=y"):
                assert (await pages.get(path)).status_code == 404

    asyncio.run(main())


@pytest.mark.parametrize(
    ("methods", "secret"),
    [(["client_secret_post"], CLIENT_SECRET), (None, None)],
    ids=["the secret in the form", "a public client"],
)
def test_a_client_authenticates_as_the_issuer_expects(issuer, methods, secret):
    issuer.client_secret = secret
    if methods is not None:
        issuer.discovery["token_endpoint_auth_methods_supported"] = methods

    async def journey(browser: Browser) -> None:
        assert (await browser.finish(await browser.start())).status_code == 200

    run(issuer, journey, client_secret=secret)


def test_the_id_token_is_the_session_if_the_access_token_is_not_for_this_server(issuer):
    async def journey(browser: Browser) -> None:
        issuer.id_claims = {"scope": "read"}
        for access_claims in (
            None,
            {"aud": "https://graph.example.com"},
            {"aud": CLIENT_ID, "scope": "profile"},
        ):
            issuer.access_claims = access_claims
            assert (await browser.finish(await browser.start())).status_code == 200
            assert "user-1" in (await browser.get("/ui/jobs")).text

    run(issuer, journey, audience=CLIENT_ID)


def test_another_server_finishes_a_login_if_it_has_the_same_secret(issuer):
    async def main() -> None:
        verifier = OidcVerifier(OidcConfig(issuer=issuer.url, audience=AUDIENCE))
        secrets_of_servers: list[tuple[dict[str, Any], dict[str, Any], bool]] = [
            ({}, {}, True),
            (
                {"client_secret": None, "ticket_secret": "x" * 32},
                {"client_secret": None, "ticket_secret": "x" * 32},
                True,
            ),
            ({"client_secret": None}, {"client_secret": None}, False),
            ({"ticket_secret": "x" * 32}, {"ticket_secret": "y" * 32}, False),
            ({}, {"client_id": "other"}, False),
        ]
        for first, second, is_accepted in secrets_of_servers:
            issuer.client_secret = first.get("client_secret", CLIENT_SECRET)
            started = await OidcLogin(login_config(**first), verifier).start("/ui/jobs")
            answer = dict(parse_qsl(urlsplit(issuer.authorize(started.address)).query))
            other = OidcLogin(login_config(**second), verifier)
            if is_accepted:
                assert (await other.finish(started.ticket, answer)).target == "/ui/jobs"
            else:
                with pytest.raises(LoginRejected, match="no login under way"):
                    await other.finish(started.ticket, answer)
        await verifier.close()

    asyncio.run(main())


def test_an_expired_session_leads_to_the_login_and_back(issuer):
    async def journey(browser: Browser) -> None:
        browser.cookies[SESSION_COOKIE] = "ds_of another day"
        answer = await browser.get("/ui/jobs?status=failed")
        assert answer.headers["location"] == "/ui/login?next=%2Fui%2Fjobs%3Fstatus%3Dfailed"
        assert SESSION_COOKIE not in browser.cookies
        assert "Log in with Example" in (await browser.get(answer.headers["location"])).text

    run(issuer, journey)


def test_discovery_is_read_once_for_many_logins_and_not_at_every_click_while_the_issuer_is_down(
    issuer, monkeypatch
):
    async def journey(browser: Browser) -> None:
        issuer.is_down = True
        for sentence in ("answers with status 503", "could not be reached a moment ago"):
            assert_rejected(browser, await browser.get("/ui/login/provider"), 503, sentence)
        assert issuer.requests == [DISCOVERY]
        issuer.is_down = False
        monkeypatch.setattr(oidc_issuer, "RETRY_SECONDS", 0.0)
        for _ in range(3):
            await browser.start()
        assert issuer.requests == [DISCOVERY, DISCOVERY]

    run(issuer, journey)


# ── Logout ──────────────────────────────────────────────────────────────────────────────────────────────────────────


def test_a_logout_ends_the_session_here_and_at_the_provider(issuer):
    async def main() -> None:
        async with opened_browser(issuer) as browser:
            pages = browser._pages
            token = issuer.token()
            checker: KeyChecker = pages.api.app.state.keys
            pages.key = await checker.start_session(await checker.caller(token), 60.0)
            answer = await pages.post("/ui/logout")
            assert answer.status_code == 200, (
                "a redirect of a form to another origin is blocked by form-action"
            )
            after = "https%3A%2F%2Fdagmaster.example.com%2Fui%2Flogin"
            address = f"{issuer.url}/logout?client_id={CLIENT_ID}&amp;post_logout_redirect_uri={after}"
            assert f'content="0;url={address}"' in answer.text
            assert token not in answer.text
            assert f'{SESSION_COOKIE}=""' in answer.headers["set-cookie"]
            with pytest.raises(ApiKeyRejected):
                await checker.session_caller(pages.key)

    asyncio.run(main())


def test_a_logout_stays_here_for_keys_ended_sessions_and_issuers_that_offer_none(issuer):
    async def main() -> None:
        async with opened_browser(issuer) as browser:
            pages = browser._pages
            for key in (pages.key, issuer.token(exp=1), ""):
                pages.key = key
                assert (await pages.post("/ui/logout")).headers["location"] == "/ui/login"
        del issuer.discovery["end_session_endpoint"]
        async with opened_browser(issuer) as browser:
            browser._pages.key = issuer.token()
            assert (await browser._pages.post("/ui/logout")).headers["location"] == "/ui/login"

    asyncio.run(main())


# ── Settings ────────────────────────────────────────────────────────────────────────────────────────────────────────


def test_the_settings_make_a_login_and_name_what_is_missing():
    async def main() -> None:
        settings = Settings(oidc_issuer="https://login.example.com/tenant", oidc_audience=AUDIENCE)
        verifier = make_token_verifier(settings)
        assert make_browser_login(settings, verifier) is None
        client = settings.model_copy(update={"oidc_client_id": CLIENT_ID})
        with pytest.raises(SettingsInvalid, match="DAGMASTER_PUBLIC_URL"):
            make_browser_login(client, verifier)
        with pytest.raises(SettingsInvalid, match="DAGMASTER_OIDC_ISSUER"):
            make_browser_login(client, None)
        login = make_browser_login(client.model_copy(update={"public_url": PUBLIC_URL}), verifier)
        assert login is not None
        assert (login.provider, login.public_url) == ("login.example.com", PUBLIC_URL)
        assert verifier is not None
        await verifier.close()

    asyncio.run(main())


@pytest.mark.parametrize(
    ("variable", "value"),
    [
        ("DAGMASTER_PUBLIC_URL", "http://dagmaster.example.com"),
        ("DAGMASTER_PUBLIC_URL", "https://dagmaster.example.com/path"),
        ("DAGMASTER_PUBLIC_URL", "https://user@dagmaster.example.com"),
        ("DAGMASTER_OIDC_LOGIN_SCOPES", "profile"),
        ("DAGMASTER_OIDC_LOGIN_SCOPES", "openid profile"),
        ("DAGMASTER_OIDC_TICKET_SECRET", "short"),
    ],
)
def test_settings_that_would_weaken_the_login_are_rejected(monkeypatch, variable, value):
    monkeypatch.setenv(variable, value)
    assert list(read_settings().problems) == [variable.removeprefix("DAGMASTER_").lower()]
