"""Log in at an identity provider: leave for it, and come back with a code.

Between the two the browser keeps a ticket, in a cookie that only this server's own address can set
(`__Host-`): the answer to a login that another browser started is worth nothing here. The cookie is
SameSite=Lax, as the way back starts on the provider's site.
"""

from __future__ import annotations

from http import HTTPStatus
from typing import Annotated, Final
from urllib.parse import quote

from fastapi import Depends, Query
from starlette.requests import Request
from starlette.responses import RedirectResponse, Response

from dagmaster.errors import OUTCOMES, DagmasterError, PageNotFound
from dagmaster.http.auth import KeyChecker
from dagmaster.http.origins import is_own_fetch
from dagmaster.ports.browser_login import BrowserLogin
from dagmaster.ui.page_routes import PageRoutes, see_other
from dagmaster.ui.pages.messages import ForwardPage, sentence_of
from dagmaster.ui.rendering import render
from dagmaster.ui.routes.login import login_page
from dagmaster.ui.sessions import HOME, LOGIN, keep_session, safe_target

routes = PageRoutes()
TICKET_COOKIE: Final = "dagmaster_login"


async def _login(request: Request) -> BrowserLogin:
    login: BrowserLogin | None = request.app.state.site.login
    if login is None:
        raise PageNotFound("this server has no identity provider: log in with a key")
    return login


Login = Annotated[BrowserLogin, Depends(_login)]


@routes.get("/ui/login/provider", None)
async def start(
    request: Request, login: Login, target: Annotated[str, Query(alias="next", max_length=2_000)] = HOME
) -> Response:
    """Send the browser to the provider.

    Whether the target is ours is checked where it is used: at the end.
    """
    if not is_own_fetch(request.headers):
        # Another site must not log a visitor in unasked, nor out of the session that they have.
        return see_other(f"{LOGIN}?next={quote(target, safe='')}")
    try:
        started = await login.start(target)
    except DagmasterError as error:
        return _show_failure(request, error)
    response = RedirectResponse(started.address, HTTPStatus.SEE_OTHER, {"Cache-Control": "no-store"})
    response.set_cookie(
        _cookie_name(login),
        started.ticket,
        max_age=started.seconds,
        httponly=True,
        samesite="lax",
        secure=_is_secure(login),
    )
    return response


@routes.get("/ui/login/callback", None)
async def finish(request: Request, login: Login) -> Response:
    """Start a session with the token that the provider's answer leads to."""
    ticket = request.cookies.get(_cookie_name(login), "")
    try:
        finished = await login.finish(ticket, request.query_params)
        # No redirect: it would be part of the way from the provider's site, on which a browser holds a cookie
        # with SameSite=Strict back.
        response = render(request, "forward.html", ForwardPage(target=safe_target(finished.target)))
        checker: KeyChecker = request.app.state.keys
        session_id = await checker.start_session(await checker.caller(finished.token), finished.seconds)
        keep_session(response, session_id, is_secure=_is_secure(login), seconds=finished.seconds)
    except DagmasterError as error:
        return _show_failure(request, error)
    response.delete_cookie(_cookie_name(login), httponly=True, samesite="lax", secure=_is_secure(login))
    return response


def _show_failure(request: Request, error: DagmasterError) -> Response:
    """Show why a login led to nothing, where another can be started."""
    status = error.http_status or OUTCOMES[error.category].http_status
    return render(
        request, "login.html", login_page(request, HOME, failure=sentence_of(str(error))), status=status
    )


def _cookie_name(login: BrowserLogin) -> str:
    return f"__Host-{TICKET_COOKIE}" if _is_secure(login) else TICKET_COOKIE


def _is_secure(login: BrowserLogin) -> bool:
    return login.public_url.startswith("https:")
