"""Log in with a key, and out."""

from __future__ import annotations

from typing import Annotated

from fastapi import Query
from starlette.requests import Request
from starlette.responses import Response

from dagmaster.errors import Category, DagmasterError
from dagmaster.http.auth import KeyChecker
from dagmaster.ui.notices import Notice
from dagmaster.ui.page_routes import FormFields, PageRoutes, see_other
from dagmaster.ui.pages.login import LoginPage
from dagmaster.ui.rendering import render
from dagmaster.ui.sessions import HOME, LOGIN, end_session, safe_target, start_session

routes = PageRoutes()
MAX_KEY = 8_000
"""The longest key or token: what a cookie can hold is shorter, and is checked by the browser."""


@routes.get("/ui/login", None)
async def show(request: Request, target: Annotated[str, Query(alias="next", max_length=2_000)] = HOME) -> Response:
    """Show the form for a key."""
    return render(request, "login.html", LoginPage(target=safe_target(target)))


@routes.post("/ui/login", None)
async def log_in(request: Request, form: FormFields) -> Response:
    """Check a key and keep it in the browser."""
    target = safe_target(form.text("next"))
    checker: KeyChecker = request.app.state.keys
    key = form.text("key", max_length=MAX_KEY).strip()
    try:
        await checker.caller(key)
    except DagmasterError as error:
        if error.category is not Category.UNAUTHENTICATED:
            raise
        return render(request, "login.html", LoginPage(target=target, problem=_explain(key)), status=401)
    response = see_other(target)
    start_session(request, response, key)
    return response


@routes.post("/ui/logout", None)
async def log_out() -> Response:
    """Forget the key."""
    response = see_other(LOGIN, Notice("You are logged out."))
    end_session(response)
    return response


def _explain(key: str) -> str:
    if not key:
        return "Enter a key."
    return "This key is not known here, or it has expired or was revoked. Create one with: dagmaster keys create NAME"
