"""Declares routes: method, path, the scope a caller needs, and the view that is the answer.

One table, `Routes.scopes`, says which route needs which scope; a test walks all of it. The caller is checked
before anything else of a request is read.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping, Sequence
from typing import Any, Final, TypeVar

from fastapi import APIRouter
from starlette.responses import JSONResponse

from dagmaster.http.openapi import IF_NONE_MATCH
from dagmaster.http.operation_errors import PROBLEM
from dagmaster.http.strict_requests import Body, StrictRoute, parse_json
from dagmaster.ports.api_keys import Reach, Scope

__all__ = ["JOB_PARAMETER", "NDJSON", "PROBLEMS", "Body", "Routes", "parse_json", "schema_of"]

F = TypeVar("F", bound=Callable[..., Any])
NDJSON: Final = "application/x-ndjson"
JOB_PARAMETER: Final = "{job_id}"
PROBLEMS: dict[int | str, dict[str, Any]] = {
    "default": {"description": "A problem (RFC 9457)", "content": {**PROBLEM}}
}


class Routes:
    """A router whose routes all name a scope; None: the route is open to everyone."""

    def __init__(self, tag: str) -> None:
        self.router = APIRouter(route_class=StrictRoute, tags=[tag])
        self.scopes: dict[tuple[str, str], Scope | None] = {}
        self.reaches: dict[tuple[str, str], Reach] = {}
        self.lines: list[type[Body]] = []
        """The models of lines, of bodies that are NDJSON."""

    def get(self, path: str, scope: Scope | None, returns: str, **options: Any) -> Callable[[F], F]:
        """Declare a route that reads. `returns`: the name of a view, or [name] of a list."""
        return self._add("GET", path, scope, returns, 200, **options)

    def post(
        self, path: str, scope: Scope | None, returns: str, status: int = 200, **options: Any
    ) -> Callable[[F], F]:
        """Declare a route that changes something, or whose question needs a body."""
        return self._add("POST", path, scope, returns, status, **options)

    def _add(
        self,
        method: str,
        path: str,
        scope: Scope | None,
        returns: str,
        status: int,
        *,
        media_type: str = "application/json",
        streams: bool = False,
        also: Mapping[int, str] | None = None,
        same: Mapping[int, str] | None = None,
        headers: Sequence[str] = (),
        reach: Reach = Reach.ALL,
        lines: type[Body] | None = None,
        **options: Any,
    ) -> Callable[[F], F]:
        """Declare a route. `reach`: what it is about; one whose path names a job is about that job.

        `lines`: what a line of its body is, if that is NDJSON and the route reads it. `headers`: what its
        answer has in addition to every answer's, see `openapi.HEADERS`. `also`, `same`: descriptions of other
        statuses, without a body and with the same one.
        """
        reach = Reach.JOB if JOB_PARAMETER in path else reach
        self.scopes[method, path], self.reaches[method, path] = scope, reach
        content = {media_type: {"schema": schema_of(returns)}}
        if streams:
            content["text/event-stream"] = {"schema": schema_of("EventStream")}
        answer: dict[str, Any] = {"description": returns, "content": content}
        answer["headers"] = {name: {"$ref": f"#/components/headers/{name}"} for name in headers}
        others: dict[int | str, dict[str, Any]] = {
            code: {"description": text} for code, text in (also or {}).items()
        }
        others |= {code: {**answer, "description": text} for code, text in (same or {}).items()}
        responses: dict[int | str, dict[str, Any]] = {status: answer, **others, **PROBLEMS}
        extra: dict[str, Any] = (
            {}
            if scope is None
            else {
                "security": [{"key": []}],
                "x-scope": scope.value,
                "x-reach": reach.value,
            }
        )
        if "ETag" in headers:
            responses[304] = {"description": "Nothing has changed.", "headers": answer["headers"]}
            extra["parameters"] = [IF_NONE_MATCH]
        if lines is not None:
            self.lines.append(lines)
            extra["requestBody"] = lines_body(lines)
        return self.router.api_route(
            path,
            methods=[method],
            status_code=status,
            response_class=JSONResponse,
            response_model=None,
            responses=responses,
            openapi_extra=extra,
            **options,
        )


def schema_of(returns: str) -> dict[str, Any]:
    """Return the reference to the schema of a view; `[X]` is a list of X, `X|Y` one of both."""
    if returns.startswith("["):
        return {"type": "array", "items": schema_of(returns[1:-1])}
    if "|" in returns:
        return {"oneOf": [schema_of(name) for name in returns.split("|")]}
    return {"$ref": f"#/components/schemas/{returns}"}


def lines_body(line: type[Body]) -> dict[str, Any]:
    """Return the description of a body of lines, each of which is a JSON object."""
    examples = line.model_config.get("json_schema_extra", {})
    assert isinstance(examples, dict)  # noqa: S101 - for mypy
    schema = {
        "type": "string",
        "description": "One JSON object a line: see `x-line`. It may be compressed (Content-Encoding: gzip).",
        "x-line": schema_of(line.__name__),
    }
    text = "\n".join(map(json.dumps, examples["examples"]))  # type: ignore[arg-type]
    return {"required": True, "content": {NDJSON: {"schema": schema, "example": text}}}
