"""Every way to misuse the login at an identity provider, and its failures: a sentence, and nothing stored."""

from __future__ import annotations

import asyncio
import time
from typing import TYPE_CHECKING, Any
from urllib.parse import parse_qsl, urlencode, urlsplit

import pytest

from dagmaster.adapters.oidc import OidcConfig, OidcVerifier
from dagmaster.adapters.oidc_login import LOGIN_SECONDS, OidcLogin
from dagmaster.errors import IssuerUnavailable
from dagmaster.http.auth import SESSION_COOKIE
from tests.unit.http.local_issuer import AUDIENCE, CLIENT_ID, CLIENT_SECRET, rsa_key, served_issuer
from tests.unit.ui.login_browser import TICKET, Browser, assert_rejected, login_config, opened_browser, run

if TYPE_CHECKING:
    from collections.abc import Iterator

    from tests.unit.http.local_issuer import LocalIssuer


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
        for target in (
            "https://evil.example",
            "//evil.example",
            "/ui/\\evil",
            "/ui/login/provider",
            '/uix"><script>',
        ):
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
}


def test_tokens_that_are_not_of_this_login_or_not_for_this_server_are_rejected(issuer):
    async def journey(browser: Browser) -> None:
        for issuer.id_claims, issuer.access_claims, status, sentence in TOKENS.values():
            assert_rejected(browser, await browser.finish(await browser.start()), status, sentence)

    run(issuer, journey)


def test_a_wrong_client_secret_and_an_issuer_that_fails_are_named(issuer):
    async def journey(browser: Browser) -> None:
        issuer.client_secret = "other"
        assert_rejected(
            browser, await browser.finish(await browser.start()), 401, "checks the client id and secret"
        )
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
            await (
                login.start("/ui/")
                if name == "authorization_endpoint"
                else login.finish(started.ticket, answer)
            )
        await verifier.close()

    asyncio.run(main())


def test_a_pasted_token_is_not_in_the_browser_and_its_session_ends_with_it(issuer):
    async def main() -> None:
        async with opened_browser(issuer) as browser:
            token = issuer.token(groups=["x" * 40] * 90)
            answer = await browser._pages.post("/ui/login", {"key": token})
            assert answer.status_code == 303
            assert token[-20:] not in answer.headers["set-cookie"]
            session, *_ = await browser._pages.api.keys.sessions()
            assert session.expires_at == session.caller.expires_at

    asyncio.run(main())
