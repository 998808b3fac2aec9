"""Declares routes of the web page: path, and the scope a viewer needs. Errors become pages.

One table, `PageRoutes.scopes`, says which route needs which scope; a test walks all of it. A viewer who is
not logged in is led to the login and back. A POST changes something: it needs our own origin and the token of
the session.
"""

from __future__ import annotations

import logging
from collections.abc import Callable
from http import HTTPStatus
from typing import Annotated, Any, TypeVar

from fastapi import APIRouter, Depends
from fastapi.exceptions import RequestValidationError
from fastapi.routing import APIRoute
from starlette.requests import Request
from starlette.responses import RedirectResponse, Response

from dagmaster.errors import OUTCOMES, Category, DagmasterError, QueryInvalid
from dagmaster.http.auth import Credential, Need, authorize, need_of
from dagmaster.http.origins import is_own_fetch
from dagmaster.http.routes import JOB_PARAMETER
from dagmaster.ports.api_keys import Reach, Scope
from dagmaster.ui.forms import Form, read_form
from dagmaster.ui.notices import Notice, leave_notice
from dagmaster.ui.pages.messages import cross_site_page, error_page, unexpected_page
from dagmaster.ui.rendering import is_fragment, render
from dagmaster.ui.sessions import check_origin, check_token, end_session, login_path, session_key

F = TypeVar("F", bound=Callable[..., Any])
_LOGGER = logging.getLogger("dagmaster.ui")


class PageRoutes:
    """A router whose routes all name a scope; None: open to everyone."""

    def __init__(self) -> None:
        self.router = APIRouter(route_class=PageRoute, include_in_schema=False)
        self.scopes: dict[tuple[str, str], Scope | None] = {}
        self.reaches: dict[tuple[str, str], Reach] = {}

    def get(self, path: str, scope: Scope | None, reach: Reach = Reach.ALL) -> Callable[[F], F]:
        return self._add("GET", path, scope, reach)

    def post(self, path: str, scope: Scope | None, reach: Reach = Reach.ALL) -> Callable[[F], F]:
        """Declare a change. Without a scope it needs no session, and its form has no token."""
        return self._add("POST", path, scope, reach)

    def _add(self, method: str, path: str, scope: Scope | None, reach: Reach) -> Callable[[F], F]:
        reach = Reach.JOB if JOB_PARAMETER in path else reach
        self.scopes[method, path], self.reaches[method, path] = scope, reach
        extra = {} if scope is None else {"x-scope": scope.value, "x-reach": reach.value}
        return self.router.api_route(path, methods=[method], response_model=None, openapi_extra=extra)


class PageRoute(APIRoute):
    """A route that checks its viewer first, and whose errors are pages."""

    def get_route_handler(self) -> Callable[[Request], Any]:
        handle = super().get_route_handler()
        need = need_of(self.openapi_extra)

        async def handle_page(request: Request) -> Response:
            try:
                if request.method == "POST":
                    await _admit_form(request, need)
                elif need is not None:
                    await authorize(request, need)
                response: Response = await handle(request)
            except DagmasterError as error:
                return _on_error(request, error)
            except RequestValidationError as error:
                return _on_error(request, QueryInvalid(_first_problem(error)))
            except Exception as error:  # noqa: BLE001 - a bug becomes a page and a line of the log
                return _on_bug(request, error)
            return response

        return handle_page


async def _admit_form(request: Request, need: Need | None) -> None:
    """Raise why a form may not be sent; else keep it, and its sender, for the route."""
    check_origin(request)
    request.state.form = await read_form(request)
    if need is None:
        return
    key = session_key(request) or ""
    await authorize(request, need, Credential(key, is_session=True))
    check_token(key, request.state.form.text("token"))


def _on_error(request: Request, error: DagmasterError) -> Response:
    status = error.http_status or OUTCOMES[error.category].http_status
    if error.category is Category.UNAUTHENTICATED and not is_fragment(request):
        return _ask_to_log_in(request)
    if error.category is Category.INTERNAL:
        _LOGGER.error("internal error: %s", error)
    return render(request, "message.html", error_page(error, status, request.state.request_id), status=status)


def _ask_to_log_in(request: Request) -> Response:
    if not is_own_fetch(request.headers) and request.method == "GET":
        # A link on another site: the cookie is not accepted until one of our own pages asks for the page. The
        # session goes on: else a picture on a page of another port would end it, as the browser sends the
        # cookie there.
        return render(request, "forward.html", cross_site_page(request.url.path, request.url.query))
    response = RedirectResponse(login_path(request), HTTPStatus.SEE_OTHER)
    if session_key(request) is not None:
        leave_notice(response, Notice("Your key is no longer accepted. Log in again to continue.", "warning"))
        end_session(response)
    return response


def _on_bug(request: Request, error: Exception) -> Response:
    # The message may contain a secret: it is logged, not shown.
    request_id = request.state.request_id
    _LOGGER.error("page %s failed", request_id, exc_info=error, extra={"request_id": request_id})
    return render(
        request, "message.html", unexpected_page(request_id), status=HTTPStatus.INTERNAL_SERVER_ERROR
    )


def _first_problem(error: RequestValidationError) -> str:
    first = error.errors()[0]
    return f"{first['loc'][-1]}: {first['msg']}"


def see_other(path: str, notice: Notice | None = None) -> Response:
    """Return the answer to a change: go to a page, which shows what it led to."""
    response = RedirectResponse(path, HTTPStatus.SEE_OTHER)
    if notice is not None:
        leave_notice(response, notice)
    return response


async def _form(request: Request) -> Form:
    form: Form = request.state.form
    return form


FormFields = Annotated[Form, Depends(_form)]
