"""A browser without a browser: pages over an application in memory, with the cookie and the headers of a session."""

from __future__ import annotations

import contextlib
import re
from typing import TYPE_CHECKING, Any

from dagmaster.application.api_keys import find_caller
from dagmaster.application.browser_sessions import start_session
from dagmaster.http.auth import SESSION_COOKIE
from dagmaster.ports.api_keys import Scope
from dagmaster.ui.navigation import Mode
from dagmaster.ui.sessions import token_of
from dagmaster.ui.site import Site
from tests.unit.http.api_client import opened_api

if TYPE_CHECKING:
    from collections.abc import AsyncIterator

    import httpx

    from dagmaster.ports.browser_login import BrowserLogin
    from tests.unit.http.api_client import Api

OWN = {"Origin": "http://test", "Sec-Fetch-Site": "same-origin"}


class Pages:
    """Requests of a browser that has logged in."""

    def __init__(self, api: Api) -> None:
        self.api = api
        self.key = ""
        self.api_key = ""

    async def log_in(self, *scopes: Scope) -> str:
        """Start a session of a key with some scopes; return what its cookie has."""
        return await self.use_key(await self.api.use_key(*scopes))

    async def use_key(self, api_key: str) -> str:
        """Start a session of a key; return what its cookie has."""
        self.api_key = api_key
        caller = await find_caller(self.api.keys, api_key)
        self.key = await start_session(self.api.keys, caller)
        return self.key

    @property
    def cookies(self) -> dict[str, str]:
        return {"Cookie": f"{SESSION_COOKIE}={self.key}"} if self.key else {}

    async def get(self, path: str, **headers: str) -> httpx.Response:
        return await self.api.http.get(path, headers={**self.cookies, **headers})

    async def post(
        self, path: str, fields: dict[str, Any] | None = None, *, token: str | None = None, **headers: str
    ) -> httpx.Response:
        """Send a form with the token of the session, unless another one is named."""
        proof = token_of(self.key) if token is None else token
        return await self.api.http.post(
            path, data={"token": proof, **(fields or {})}, headers={**self.cookies, **OWN, **headers}
        )


@contextlib.asynccontextmanager
async def opened_pages(
    *handlers: Any, mode: Mode = Mode.SERVER, login: BrowserLogin | None = None, **options: Any
) -> AsyncIterator[Pages]:
    """Serve the web page; an orchestrator and a worker run its jobs. The browser has a key of the scope admin."""
    async with opened_api(*handlers, extensions=(Site(mode, login=login),), **options) as api:
        pages = Pages(api)
        await pages.log_in(Scope.ADMIN)
        yield pages


def text_of(html: str) -> str:
    """Return the text of a page, without tags."""
    return " ".join(re.sub(r"<[^>]+>", " ", html).split())
