"""Log in with a key, and out."""

from __future__ import annotations

from typing import Annotated
from urllib.parse import quote

from fastapi import Query
from starlette.requests import Request
from starlette.responses import Response

from dagmaster.application.access import reaches_all
from dagmaster.application.browser_sessions import LINK_PREFIX, SESSION_SECONDS
from dagmaster.errors import Category, DagmasterError
from dagmaster.http.auth import KeyChecker, check_login
from dagmaster.ports.api_keys import SUBJECT_PREFIX
from dagmaster.ports.browser_login import BrowserLogin
from dagmaster.ui.notices import Notice
from dagmaster.ui.page_routes import FormFields, PageRoutes, see_other
from dagmaster.ui.pages.login import LoginPage
from dagmaster.ui.pages.messages import ForwardPage, sentence_of
from dagmaster.ui.rendering import render
from dagmaster.ui.sessions import HOME, LOGIN, end_session, keep_session, safe_target, session_key

routes = PageRoutes()
MAX_KEY = 8_000
"""The longest key or token of a form."""


@routes.get("/ui/login", None)
async def show(
    request: Request, target: Annotated[str, Query(alias="next", max_length=2_000)] = HOME
) -> Response:
    """Show the form for a key, and the way to the identity provider."""
    return render(request, "login.html", login_page(request, safe_target(target)))


@routes.post("/ui/login", None)
async def log_in(request: Request, form: FormFields) -> Response:
    """Check a key, or the code of a link, and start a session."""
    target = safe_target(form.text("next"))
    checker: KeyChecker = request.app.state.keys
    key = form.text("key", max_length=MAX_KEY).strip()
    response = see_other(target)
    try:
        caller = await check_login(request, key)
        if target == HOME and not reaches_all(caller):
            response = see_other("/ui/jobs")
        session_id = await checker.start_session(caller, SESSION_SECONDS)
        is_secure = request.url.scheme == "https"
        keep_session(response, session_id, is_secure=is_secure, seconds=SESSION_SECONDS)
    except DagmasterError as error:
        if error.category is not Category.UNAUTHENTICATED:
            raise
        return render(
            request, "login.html", login_page(request, target, problem=_explain(key, error)), status=401
        )
    return response


@routes.post("/ui/logout", None)
async def log_out(request: Request) -> Response:
    """End the session; that of the identity provider also ends there."""
    address = await _provider_logout(request)
    key = session_key(request)
    if key is not None:
        checker: KeyChecker = request.app.state.keys
        await checker.end_session(key)
    if address is None:
        response = see_other(LOGIN, Notice("You are logged out."))
    else:
        # No redirect: `form-action 'self'` counts for all of those that a form leads to.
        response = render(
            request, "forward.html", ForwardPage(target=address, label="Log out", title="Log out")
        )
    end_session(response)
    return response


def login_page(request: Request, target: str, *, problem: str = "", failure: str = "") -> LoginPage:
    login: BrowserLogin | None = request.app.state.site.login
    if login is None:
        return LoginPage(target=target, problem=problem)
    return LoginPage(
        target=target,
        problem=problem,
        provider=login.provider,
        # The provider leads back to this address, and only there does the browser have the ticket.
        provider_url=f"{login.public_url}/ui/login/provider?next={quote(target, safe='')}",
        failure=failure,
    )


async def _provider_logout(request: Request) -> str | None:
    """Return where the session ends at the identity provider; None if it is not one of the provider's."""
    login: BrowserLogin | None = request.app.state.site.login
    checker: KeyChecker = request.app.state.keys
    key = session_key(request)
    if login is None or key is None:
        return None
    try:
        caller = await checker.session_caller(key)
    except DagmasterError:
        return None
    return await login.logout_address() if caller.key_id.startswith(SUBJECT_PREFIX) else None


def _explain(key: str, error: DagmasterError) -> str:
    if not key:
        return "Enter a key."
    if key.startswith(LINK_PREFIX):
        return sentence_of(str(error))
    return (
        "This key is not known here, or it has expired or was revoked."
        " Create one with: dagmaster keys create NAME"
    )
