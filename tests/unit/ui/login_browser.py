"""A browser that logs in at an issuer on loopback, over pages in memory."""

from __future__ import annotations

import asyncio
import contextlib
import time
from http.cookies import SimpleCookie
from typing import TYPE_CHECKING, Any
from urllib.parse import urlencode, urlsplit

from dagmaster.adapters.oidc import OidcConfig, OidcVerifier
from dagmaster.adapters.oidc_login import LoginConfig, OidcLogin
from dagmaster.http.auth import SESSION_COOKIE
from tests.unit.http.local_issuer import AUDIENCE, CLIENT_ID, CLIENT_SECRET
from tests.unit.ui.page_client import opened_pages, text_of

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Awaitable, Callable

    import httpx

    from tests.unit.http.local_issuer import LocalIssuer
    from tests.unit.ui.page_client import Pages

PUBLIC_URL = "https://dagmaster.example.com"
TICKET = "__Host-dagmaster_login"


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
