"""Requests that are checked strictly: the caller first, then the parameters, then the JSON of the body."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from typing import Any, Final

from fastapi.dependencies.utils import get_flat_params
from fastapi.exceptions import RequestValidationError
from fastapi.params import ParamTypes
from fastapi.routing import APIRoute
from pydantic import BaseModel, ConfigDict
from starlette.requests import Request
from starlette.responses import Response

from dagmaster.errors import MediaTypeUnsupported, Problem, RequestInvalid
from dagmaster.http.auth import Need, authorize, need_of
from dagmaster.http.older_bodies import translate_body
from dagmaster.http.page_links import add_next_link
from dagmaster.json_types import read_json

MAX_DEPTH: Final = 128
"""Levels of a JSON body. Serializers that follow stop at about 255."""


class Body(BaseModel):
    """The body of a request. Unknown fields are rejected, and nothing is converted."""

    model_config = ConfigDict(extra="forbid", strict=True)


class StrictRoute(APIRoute):
    """A route that checks its caller first, rejects unknown query parameters, and parses JSON strictly."""

    check_caller: Callable[[Request, Need], Awaitable[None]] = staticmethod(authorize)
    """Finds the caller, and raises why it may not use the route."""

    def get_route_handler(self) -> Callable[[Request], Any]:
        handle, check_caller = super().get_route_handler(), self.check_caller
        need = need_of(self.openapi_extra)
        known = {field.alias for field in get_flat_params(self.dependant) if _is_in_query(field)}
        has_body = self.body_field is not None

        async def handle_strictly(request: Request) -> Response:
            if need is not None:
                await check_caller(request, need)
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
