"""Sessions of browsers: a cookie with an opaque id, and what protects changes from other sites.

The store has the digest of the id. The cookie is HttpOnly and SameSite=Strict. A change is a POST
from our own origin with the token of the session, which only a page of this server can contain.
"""

from __future__ import annotations

import hashlib
import hmac
from typing import TYPE_CHECKING, Final
from urllib.parse import quote

from dagmaster.errors import OriginRejected
from dagmaster.http.auth import SESSION_COOKIE
from dagmaster.http.origins import is_own_fetch, is_own_origin
from dagmaster.ui.pages.addresses import join_query

if TYPE_CHECKING:
    from starlette.requests import Request
    from starlette.responses import Response

HOME: Final = "/ui/"
LOGIN: Final = "/ui/login"
_TOKEN_CONTEXT: Final = b"dagmaster web page: token of a form"


def session_key(request: Request) -> str | None:
    return request.cookies.get(SESSION_COOKIE) or None


def token_of(key: str) -> str:
    return hmac.new(key.encode(), _TOKEN_CONTEXT, hashlib.sha256).hexdigest()


def check_origin(request: Request) -> None:
    """Raise `OriginRejected` unless a page of this server sent a form."""
    headers = request.headers
    is_named = "origin" in headers or "sec-fetch-site" in headers
    if not is_named or not is_own_origin(headers) or not is_own_fetch(headers):
        raise OriginRejected(
            "the form was not sent by a page of this server: open the page here, and send it again"
        )


def check_token(key: str, token: str) -> None:
    """Raise `OriginRejected` unless a form has the token of its session."""
    if not hmac.compare_digest(token_of(key).encode(), token.encode(errors="replace")):
        raise OriginRejected("the form is not of this session: reload the page, and send it again")


def keep_session(response: Response, session_id: str, *, is_secure: bool, seconds: int) -> None:
    """Keep the id of a session in the browser."""
    response.set_cookie(
        SESSION_COOKIE, session_id, max_age=seconds, httponly=True, samesite="strict", secure=is_secure
    )


def end_session(response: Response) -> None:
    """Remove the session from the browser."""
    response.delete_cookie(SESSION_COOKIE, httponly=True, samesite="strict")


def login_path(request: Request) -> str:
    target = join_query(request.url.path, request.url.query)
    return LOGIN if target == HOME else f"{LOGIN}?next={quote(target, safe='')}"


def safe_target(path: str) -> str:
    """Return a path to go to after the login, the overview if it leads elsewhere."""
    is_ours = path.startswith("/ui/") and "\\" not in path and path.isprintable()
    return path if is_ours and not path.startswith(LOGIN) else HOME
