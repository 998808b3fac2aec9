"""Errors as RFC 9457 problems: `type`, `title`, `status`, `detail`, `code`, and `errors` with paths."""

from __future__ import annotations

import logging
import math
from http import HTTPStatus
from typing import TYPE_CHECKING, Any, Final

from fastapi.exceptions import RequestValidationError
from starlette.exceptions import HTTPException
from starlette.responses import JSONResponse
from starlette.routing import Match

from dagmaster.errors import (
    OUTCOMES,
    Category,
    CursorInvalid,
    DagmasterError,
    QueryInvalid,
    RateLimitExceeded,
    TokenRejected,
)

if TYPE_CHECKING:
    from fastapi import FastAPI
    from starlette.requests import Request
    from starlette.responses import Response

MEDIA_TYPE: Final = "application/problem+json"
RETRY_SECONDS: Final = 2
MAX_ERRORS: Final = 50
_METHODS: Final = ("DELETE", "GET", "HEAD", "PATCH", "POST", "PUT")
# What the problems of stored requests and of preconditions have in addition.
_MEMBERS: Final = ("request_id", "reason", "current")
_LOGGER = logging.getLogger("dagmaster.http")

SCHEMA: Final[dict[str, Any]] = {
    "type": "object",
    "description": "An error (RFC 9457). Programs match on `code`; see the reference of errors.",
    "properties": {
        "type": {"type": "string"},
        "title": {"type": "string"},
        "status": {"type": "integer"},
        "detail": {"type": "string"},
        "code": {"type": "string"},
        "request_id": {"type": "string", "description": "Of a request that is stored, and that has no job."},
        "reason": {"type": "string", "description": "The code of the error that the request has no job for."},
        "errors": {
            "type": "array",
            "items": {
                "type": "object",
                "properties": {"path": {"type": "string"}, "message": {"type": "string"}},
                "required": ["path", "message"],
            },
        },
        "current": {
            "type": "object",
            "description": "With 412: what is there now.",
            "additionalProperties": True,
        },
    },
    "required": ["type", "title", "status", "detail", "code"],
}


def install(app: FastAPI) -> None:
    """Answer every error of an application with a problem document."""
    app.add_exception_handler(DagmasterError, _on_error)
    app.add_exception_handler(RequestValidationError, _on_invalid)
    app.add_exception_handler(HTTPException, _on_http)
    app.add_exception_handler(Exception, _on_bug)


def problem(
    status: int,
    code: str,
    detail: str,
    *,
    errors: list[dict[str, Any]] | None = None,
    headers: dict[str, str] | None = None,
    more: dict[str, Any] | None = None,
) -> JSONResponse:
    document: dict[str, Any] = {
        "type": f"urn:dagmaster:error:{code}",
        "title": HTTPStatus(status).phrase,
        "status": status,
        "detail": detail,
        "code": code,
        **(more or {}),
    }
    if errors is not None:
        document["errors"] = errors
    return JSONResponse(document, status, headers, MEDIA_TYPE)


def of_error(error: DagmasterError) -> JSONResponse:
    status = error.http_status or OUTCOMES[error.category].http_status
    headers: dict[str, str] = {}
    if isinstance(error, RateLimitExceeded):
        headers["Retry-After"] = str(math.ceil(error.retry_after_seconds))
    elif error.category is Category.UNAVAILABLE:
        headers["Retry-After"] = str(RETRY_SECONDS)
    elif error.category is Category.UNAUTHENTICATED:
        reason = ', error="invalid_token"' if isinstance(error, TokenRejected) else ""
        headers["WWW-Authenticate"] = f'Bearer realm="dagmaster"{reason}'
    document = error.to_dict()
    errors = [
        {**item, "path": item["path"], "message": item["message"]} for item in document.get("problems", ())
    ]
    if parameter := _parameter_of(error):
        errors = [{"path": f"query.{parameter}", "message": str(error).removeprefix(f"{parameter}: ")}]
    more: dict[str, Any] = {name: document[name] for name in _MEMBERS if name in document}
    return problem(status, error.code, document["message"], errors=errors or None, headers=headers, more=more)


def _parameter_of(error: DagmasterError) -> str:
    """Return the name of the parameter that an error is about; empty if it is about no single one."""
    if isinstance(error, CursorInvalid):
        return "cursor"
    return error.field if isinstance(error, QueryInvalid) else ""


async def _on_error(_request: Request, error: Exception) -> Response:
    assert isinstance(error, DagmasterError)  # noqa: S101 - for mypy
    if error.category is Category.INTERNAL:
        _LOGGER.error("internal error: %s", error)
    return of_error(error)


async def _on_invalid(_request: Request, error: Exception) -> Response:
    assert isinstance(error, RequestValidationError)  # noqa: S101 - for mypy
    errors = [{"path": _path(item["loc"]), "message": item["msg"]} for item in error.errors()[:MAX_ERRORS]]
    detail = f"{errors[0]['path']}: {errors[0]['message']}" if errors else "the request is not valid"
    return problem(HTTPStatus.UNPROCESSABLE_ENTITY, "request_invalid", detail, errors=errors)


async def _on_http(request: Request, error: Exception) -> Response:
    assert isinstance(error, HTTPException)  # noqa: S101 - for mypy
    if isinstance(error.__cause__, DagmasterError):
        # FastAPI wraps what the parser of the body raises.
        return of_error(error.__cause__)
    code = {404: "route_not_found", 405: "method_not_allowed"}.get(error.status_code, "http_error")
    detail, headers = str(error.detail), dict(error.headers or {})
    if error.status_code == HTTPStatus.NOT_FOUND:
        detail = f"there is no route {request.method} {request.url.path[:200]}"
    elif error.status_code == HTTPStatus.METHOD_NOT_ALLOWED and (methods := methods_of(request)):
        headers["Allow"] = ", ".join(methods)
        detail = f"{request.url.path[:200]} has no method {request.method}; it has: {headers['Allow']}"
    return problem(error.status_code, code, detail, headers=headers)


def methods_of(request: Request) -> list[str]:
    """Return the methods of all routes at the path of a request: Starlette names only the first route's."""
    return [
        method
        for method in _METHODS
        if any(
            route.matches({**request.scope, "method": method})[0] is Match.FULL
            for route in request.app.routes
        )
    ]


async def _on_bug(request: Request, error: Exception) -> Response:
    # The message may contain a secret: it is logged, not sent.
    request_id = getattr(request.state, "request_id", "")
    _LOGGER.error("request %s failed", request_id, exc_info=error, extra={"request_id": request_id})
    detail = f"the server failed to answer; its log has the reason, under request {request_id}"
    return problem(HTTPStatus.INTERNAL_SERVER_ERROR, "internal", detail)


def _path(location: tuple[int | str, ...]) -> str:
    """Return the path of a bad field: `body.inputs.count`, `query.limit`."""
    return ".".join(map(str, location))
