"""Declares routes: method, path, the scope a caller needs, and the view that is the answer.

One table, `Routes.scopes`, says which route needs which scope; a test walks all of it. The caller is checked
before anything else of a request is read.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping, Sequence
from typing import Any, Final, TypeVar

from fastapi import APIRouter
from fastapi.dependencies.utils import get_flat_params
from fastapi.exceptions import RequestValidationError
from fastapi.params import ParamTypes
from fastapi.routing import APIRoute
from pydantic import BaseModel, ConfigDict
from starlette.requests import Request
from starlette.responses import JSONResponse, Response

from dagmaster.authoring.inputs import read_json
from dagmaster.errors import MediaTypeUnsupported, Problem, RequestInvalid
from dagmaster.http.auth import authorize, need_of
from dagmaster.http.older_bodies import translate_body
from dagmaster.http.openapi import IF_NONE_MATCH
from dagmaster.http.operation_errors import PROBLEM
from dagmaster.http.page_links import add_next_link
from dagmaster.ports.api_keys import Reach, Scope

F = TypeVar("F", bound=Callable[..., Any])
NDJSON: Final = "application/x-ndjson"
MAX_DEPTH: Final = 128
"""Levels of a JSON body. Serializers that follow stop at about 255."""
JOB_PARAMETER: Final = "{job_id}"
PROBLEMS: dict[int | str, dict[str, Any]] = {
    "default": {"description": "A problem (RFC 9457)", "content": {**PROBLEM}}
}


class Body(BaseModel):
    """The body of a request. Unknown fields are rejected, and nothing is converted."""

    model_config = ConfigDict(extra="forbid", strict=True)


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


class StrictRoute(APIRoute):
    """A route that checks its caller first, rejects unknown query parameters, and parses JSON strictly."""

    def get_route_handler(self) -> Callable[[Request], Any]:
        handle = super().get_route_handler()
        need = need_of(self.openapi_extra)
        known = {field.alias for field in get_flat_params(self.dependant) if _is_in_query(field)}
        has_body = self.body_field is not None

        async def handle_strictly(request: Request) -> Response:
            if need is not None:
                await authorize(request, need)
            if has_body:
                _check_media_type(request)
            unknown = sorted(request.query_params.keys() - known)
            if unknown:
                message = f"unknown parameter; the parameters are: {', '.join(sorted(known)) or 'none'}"
                raise RequestValidationError([{"loc": ("query", name), "msg": message} for name in unknown])
            response: Response = await handle(StrictRequest(request.scope, request.receive))
            add_next_link(request, response)
            return response

        return handle_strictly


def _check_media_type(request: Request) -> None:
    """Raise `MediaTypeUnsupported` if the request has a body that is not plain JSON."""
    headers = request.headers
    if "transfer-encoding" not in headers and headers.get("content-length", "0") == "0":
        return
    media_type = headers.get("content-type", "").split(";", 1)[0].strip().lower()
    if media_type != "application/json":
        name = repr(media_type[:100]) if media_type else "missing"
        raise MediaTypeUnsupported(f"a body is JSON: send Content-Type: application/json, which is {name}")
    if headers.get("content-encoding", "identity").strip().lower() != "identity":
        raise MediaTypeUnsupported("a body is not compressed: leave out Content-Encoding")


def _is_in_query(field: Any) -> bool:
    return getattr(field.field_info, "in_", None) is ParamTypes.query


class StrictRequest(Request):
    """A request whose JSON is parsed strictly: no NaN, no duplicate keys, no unpaired surrogates, no NUL."""

    async def json(self) -> Any:
        """Return the body; raise `RequestInvalid` if it is not strict JSON."""
        try:
            body = parse_json(await self.body())
        except ValueError as error:
            message = f"the body is not valid JSON: {error}"[:300]
            raise RequestInvalid([Problem(message=message, path="body")]) from None
        return translate_body(self.scope["state"].get("older_path"), body)


def parse_json(content: bytes) -> Any:
    """Return the value of strict JSON that the database can store; otherwise raise ValueError."""
    try:
        text = content.decode()
        value = read_json(text)
        # Without an escape there is neither NUL nor half a surrogate pair: JSON and UTF-8 have none. The walk
        # takes longer than all else.
        if "\\u" in text or text.count("[") + text.count("{") > MAX_DEPTH:
            _check_storable(value)
    except (ValueError, RecursionError) as error:
        raise ValueError(_json_reason(error)) from None
    return value


def _json_reason(error: ValueError | RecursionError) -> str:
    """Return why a text is not JSON, for people who do not know Python."""
    match error:
        case RecursionError():
            return "it is nested too deeply"
        case UnicodeDecodeError():
            return f"it is not UTF-8, from byte {error.start} on"
        case UnicodeEncodeError():
            return "a text has one half of a surrogate pair without the other"
    text = str(error)
    if "BOM" in text:
        return "it begins with a byte order mark: leave that out"
    return "a number has thousands of digits" if text.startswith("Exceeds the limit") else text


def _check_storable(value: Any) -> None:
    pending = [(value, 1)]
    while pending:
        item, depth = pending.pop()
        if depth > MAX_DEPTH:
            raise ValueError(f"it is nested more than {MAX_DEPTH} levels deep")
        if isinstance(item, str):
            if "\0" in item:
                raise ValueError("a text has the character NUL, which PostgreSQL cannot store")
            item.encode()
        elif isinstance(item, dict):
            pending += [(part, depth + 1) for part in (*item.keys(), *item.values())]
        elif isinstance(item, list):
            pending += [(part, depth + 1) for part in item]


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


def schema_of(returns: str) -> dict[str, Any]:
    """Return the reference to the schema of a view; `[X]` is a list of X, `X|Y` one of both."""
    if returns.startswith("["):
        return {"type": "array", "items": schema_of(returns[1:-1])}
    if "|" in returns:
        return {"oneOf": [schema_of(name) for name in returns.split("|")]}
    return {"$ref": f"#/components/schemas/{returns}"}
