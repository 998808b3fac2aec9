"""The login at an identity provider: the way there and back, and every way to misuse it."""

from __future__ import annotations

import asyncio
import contextlib
import time
from http.cookies import SimpleCookie
from typing import TYPE_CHECKING, Any
from urllib.parse import parse_qs, parse_qsl, urlencode, urlsplit

import pytest

from dagmaster.adapters import oidc_issuer
from dagmaster.adapters.oidc import OidcConfig, OidcVerifier
from dagmaster.adapters.oidc_login import LOGIN_SECONDS, LoginConfig, OidcLogin
from dagmaster.bootstrap.http_server import make_browser_login, make_token_verifier
from dagmaster.errors import IssuerUnavailable, LoginRejected, SettingsInvalid
from dagmaster.http.auth import SESSION_COOKIE
from dagmaster.settings import Settings, read_settings
from dagmaster.ui.sessions import MAX_COOKIE
from tests.unit.http.local_issuer import AUDIENCE, CLIENT_ID, CLIENT_SECRET, DISCOVERY, rsa_key, served_issuer
from tests.unit.ui.page_client import opened_pages, text_of

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Awaitable, Callable, Iterator

    import httpx

    from tests.unit.http.local_issuer import LocalIssuer
    from tests.unit.ui.page_client import Pages

PUBLIC_URL = "https://dagmaster.example.com"
TICKET = "__Host-dagmaster_login"


class Hand:
    """A clock that a test moves."""

    def __init__(self, now: float) -> None:
        self.now = now

    def __call__(self) -> float:
        return self.now


@pytest.fixture
def issuer() -> Iterator[LocalIssuer]:
    with served_issuer() as issuer:
        yield issuer


class Browser:
    """A browser without a session. It keeps cookies, and asks the issuer when it is sent there."""

    def __init__(self, pages: Pages, issuer: LocalIssuer) -> None:
        self._pages = pages
        self._issuer = issuer
        self.cookies: dict[str, str] = {}

    async def get(self, address: str, site: str = "same-origin", **headers: str) -> httpx.Response:
        """Open an address of the server."""
        parts = urlsplit(address)
        cookies = "; ".join(f"{name}={value}" for name, value in self.cookies.items())
        self._pages.api.http.cookies.clear()
        answer = await self._pages.api.http.get(
            f"{parts.path}?{parts.query}" if parts.query else parts.path,
            headers={"Sec-Fetch-Site": site, **({"Cookie": cookies} if cookies else {}), **headers},
        )
        for line in answer.headers.get_list("set-cookie"):
            for name, morsel in SimpleCookie(line).items():
                if morsel["max-age"] == "0":
                    self.cookies.pop(name, None)
                else:
                    self.cookies[name] = morsel.value
        return answer

    async def start(self, target: str = "/ui/jobs?status=failed", **more: str) -> str:
        """Start a login, and agree to it at the issuer; return the address that leads back."""
        answer = await self.get(f"/ui/login/provider?{urlencode({'next': target})}")
        assert answer.status_code == 303
        return self._issuer.authorize(answer.headers["location"], **more)

    async def finish(self, address: str) -> httpx.Response:
        """Go back to the server."""
        return await self.get(address, "cross-site")


@contextlib.asynccontextmanager
async def opened_browser(issuer: LocalIssuer, **config: Any) -> AsyncIterator[Browser]:
    """Serve the web page with a login at the issuer."""
    verifier = OidcVerifier(OidcConfig(issuer=issuer.url, audience=config.pop("audience", AUDIENCE)))
    clock = config.pop("clock", time.time)
    login = OidcLogin(login_config(**config), verifier, clock=clock)
    try:
        async with opened_pages(login=login, tokens=verifier) as pages:
            yield Browser(pages, issuer)
    finally:
        await verifier.close()


def login_config(**config: Any) -> LoginConfig:
    return LoginConfig(
        **{
            "client_id": CLIENT_ID,
            "client_secret": CLIENT_SECRET,
            "public_url": PUBLIC_URL,
            "provider": "Example",
            "scopes": ("openid", "profile"),
        }
        | config
    )


def run(issuer: LocalIssuer, journey: Callable[[Browser], Awaitable[None]], **config: Any) -> None:
    async def main() -> None:
        async with opened_browser(issuer, **config) as browser:
            await journey(browser)

    asyncio.run(main())


def assert_rejected(browser: Browser, answer: httpx.Response, status: int, sentence: str) -> None:
    """Check that the login page has a sentence and offers another login, and that nothing is stored."""
    assert (answer.status_code, sentence in text_of(answer.text)) == (status, True), text_of(answer.text)
    assert "Log in with Example" in answer.text
    assert "set-cookie" not in answer.headers
    assert SESSION_COOKIE not in browser.cookies


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
        assert asked["redirect_uri"] == [f"{PUBLIC_URL}/ui/login/callback"], "not the address that the request names"
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
        assert 590 <= int(SimpleCookie(session)[SESSION_COOKIE]["max-age"]) <= 600, "as long as the token is valid"
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
        for access_claims in (None, {"aud": "https://graph.example.com"}, {"aud": CLIENT_ID, "scope": "profile"}):
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
        browser.cookies[SESSION_COOKIE] = issuer.token(exp=int(time.time()) - 60)
        answer = await browser.get("/ui/jobs?status=failed")
        assert answer.headers["location"] == "/ui/login?next=%2Fui%2Fjobs%3Fstatus%3Dfailed"
        assert SESSION_COOKIE not in browser.cookies
        assert "Log in with Example" in (await browser.get(answer.headers["location"])).text

    run(issuer, journey)


def test_discovery_is_read_once_for_many_logins_and_not_at_every_click_while_the_issuer_is_down(issuer, monkeypatch):
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
            pages.key = token = issuer.token()
            answer = await pages.post("/ui/logout")
            assert answer.status_code == 200, "a redirect of a form to another origin is blocked by form-action"
            after = "https%3A%2F%2Fdagmaster.example.com%2Fui%2Flogin"
            address = f"{issuer.url}/logout?client_id={CLIENT_ID}&amp;post_logout_redirect_uri={after}"
            assert f'content="0;url={address}"' in answer.text
            assert token not in answer.text
            assert f'{SESSION_COOKIE}=""' in answer.headers["set-cookie"]

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


# ── Attacks and failures: a sentence, and nothing stored ────────────────────────────────────────────────────────────


def test_a_login_that_another_browser_started_is_not_finished_here(issuer):
    """Login CSRF: the attacker sends the victim the answer to their own login."""

    async def journey(attacker: Browser) -> None:
        address = await attacker.start()
        victim = Browser(attacker._pages, issuer)
        assert_rejected(victim, await victim.finish(address), 401, "no login under way")
        await victim.start()
        tokens = issuer.requests.count("/token")
        assert_rejected(victim, await victim.finish(address), 401, "belongs to another login")
        assert issuer.requests.count("/token") == tokens, "the code is not even used"

    run(issuer, journey)


def test_a_rejected_answer_leaves_the_session_and_the_login_under_way_alone(issuer):
    async def journey(browser: Browser) -> None:
        await browser.finish(await browser.start())
        session = browser.cookies[SESSION_COOKIE]
        address = await browser.start()
        answer = await browser.finish("/ui/login/callback?code=x&state=forged")
        assert answer.status_code == 401
        assert browser.cookies[SESSION_COOKIE] == session
        assert (await browser.finish(address)).status_code == 200

    run(issuer, journey)


def test_another_site_cannot_start_a_login(issuer):
    async def journey(browser: Browser) -> None:
        for site in ("cross-site", "same-site"):
            answer = await browser.get("/ui/login/provider?next=/ui/jobs", site)
            assert (answer.status_code, answer.headers["location"]) == (303, "/ui/login?next=%2Fui%2Fjobs")
            assert browser.cookies == {}

    run(issuer, journey)


def test_a_login_leads_to_no_other_site(issuer):
    async def journey(browser: Browser) -> None:
        for target in ("https://evil.example", "//evil.example", "/ui/\\evil", "/ui/login/provider", '/uix"><script>'):
            finished = await browser.finish(await browser.start(target))
            assert 'content="0;url=/ui/"' in finished.text, target

    run(issuer, journey)


def test_a_code_of_another_login_is_not_accepted(issuer):
    """Code injection: a stolen code is of another challenge, and its id token of another nonce."""

    async def journey(victim: Browser) -> None:
        stolen = dict(parse_qsl(urlsplit(await victim.start()).query))["code"]
        attacker = Browser(victim._pages, issuer)
        state = dict(parse_qsl(urlsplit(await attacker.start()).query))["state"]
        address = f"/ui/login/callback?{urlencode({'code': stolen, 'state': state})}"
        assert_rejected(
            attacker, await attacker.finish(address), 401, "was used already, has expired, or is of another"
        )

    run(issuer, journey)


def test_a_code_is_accepted_once(issuer):
    async def journey(browser: Browser) -> None:
        address = await browser.start()
        ticket = browser.cookies[TICKET]
        assert (await browser.finish(address)).status_code == 200
        browser.cookies = {}
        assert_rejected(browser, await browser.finish(address), 401, "no login under way")
        browser.cookies = {TICKET: ticket}
        assert_rejected(browser, await browser.finish(address), 401, "was used already")

    run(issuer, journey)


def test_a_ticket_is_valid_for_minutes_and_only_as_it_was_made(issuer):
    hand = Hand(time.time())

    async def journey(browser: Browser) -> None:
        address = await browser.start()
        ticket = browser.cookies[TICKET]
        for forged in ("x", ticket[:-8], f"{ticket[:40]}{'A' if ticket[40] != 'A' else 'B'}{ticket[41:]}"):
            browser.cookies = {TICKET: forged}
            assert_rejected(browser, await browser.finish(address), 401, "no login under way")
        browser.cookies = {TICKET: ticket}
        hand.now += LOGIN_SECONDS + 1
        assert_rejected(browser, await browser.finish(address), 401, "it took too long")

    run(issuer, journey, clock=hand)


def test_an_answer_without_a_code_of_this_issuer_is_rejected(issuer):
    answers = [
        (
            {"error": "access_denied", "error_description": "<b>not\nassigned</b>"},
            "access_denied: &lt;b&gt;notassigned",
        ),
        ({"iss": "https://evil.example"}, "is not of Example"),
        ({"code": ""}, "has no code"),
    ]

    async def journey(browser: Browser) -> None:
        for more, sentence in answers:
            assert_rejected(browser, await browser.finish(await browser.start(**more)), 401, sentence)
        assert "/token" not in issuer.requests

    run(issuer, journey)


def test_an_issuer_that_names_itself_in_every_answer_has_to(issuer):
    issuer.discovery["authorization_response_iss_parameter_supported"] = True

    async def journey(browser: Browser) -> None:
        assert_rejected(browser, await browser.finish(await browser.start()), 401, "is not of Example")
        assert (await browser.finish(await browser.start(iss=issuer.url))).status_code == 200

    run(issuer, journey)


TOKENS: dict[str, tuple[dict[str, Any], dict[str, Any] | None, int, str]] = {
    "another nonce": ({"nonce": "other"}, {}, 401, "of another login"),
    "no nonce": ({"nonce": None}, {}, 401, "of another login"),
    "an id token for another client": ({"aud": "other"}, {}, 401, "for another audience"),
    "one of several clients": ({"aud": [CLIENT_ID, "other"]}, {}, 401, "issued to another client"),
    "another party": ({"azp": "other"}, {}, 401, "issued to another client"),
    "an expired id token": ({"exp": 1}, {}, 401, "has expired"),
    "an id token of another issuer": ({"iss": "https://evil.example"}, {}, 401, "of another issuer"),
    "a forged id token": ({"key": rsa_key(1)}, {}, 401, "signature is wrong"),
    "an access token for others": ({}, {"aud": "other"}, 401, "for another audience"),
    "an access token of another user": ({}, {"sub": "user-2"}, 401, "of another user"),
    "an opaque access token": ({}, None, 401, "for another audience"),
    "no scopes": ({}, {"scope": "profile"}, 403, "allows user-1 nothing here"),
    "too many groups": ({}, {"groups": ["x" * 40] * 100}, 401, "characters, and a browser keeps at most"),
}


def test_tokens_that_are_not_of_this_login_or_not_for_this_server_are_rejected(issuer):
    async def journey(browser: Browser) -> None:
        for issuer.id_claims, issuer.access_claims, status, sentence in TOKENS.values():
            assert_rejected(browser, await browser.finish(await browser.start()), status, sentence)

    run(issuer, journey)


def test_a_wrong_client_secret_and_an_issuer_that_fails_are_named(issuer):
    async def journey(browser: Browser) -> None:
        issuer.client_secret = "other"
        assert_rejected(browser, await browser.finish(await browser.start()), 401, "checks the client id and secret")
        address = await browser.start()
        issuer.is_down = True
        answer = await browser.finish(address)
        assert_rejected(browser, answer, 503, "/token of the issuer answers with status 503")
        assert CLIENT_SECRET not in answer.text

    run(issuer, journey)


@pytest.mark.parametrize("name", ["authorization_endpoint", "token_endpoint"])
def test_an_endpoint_that_is_not_secure_is_not_used(issuer, name):
    async def main() -> None:
        verifier = OidcVerifier(OidcConfig(issuer=issuer.url, audience=AUDIENCE))
        login = OidcLogin(login_config(), verifier)
        started = await login.start("/ui/")
        answer = dict(parse_qsl(urlsplit(issuer.authorize(started.address)).query))
        document = await verifier.issuer.discovery()
        assert isinstance(document, dict)
        document[name] = "http://login.example.com/x"
        with pytest.raises(IssuerUnavailable, match=f"no https address as {name}"):
            await (login.start("/ui/") if name == "authorization_endpoint" else login.finish(started.ticket, answer))
        await verifier.close()

    asyncio.run(main())


def test_a_pasted_token_that_a_browser_would_drop_is_rejected_with_the_reason(issuer):
    async def main() -> None:
        async with opened_browser(issuer) as browser:
            token = issuer.token(groups=["x" * 40] * 90)
            assert MAX_COOKIE < len(token) < 8_000
            answer = await browser._pages.post("/ui/login", {"key": token})
            assert answer.status_code == 401
            assert "a browser keeps at most" in answer.text
            assert "set-cookie" not in answer.headers

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
