"""Answers that do not change: an `ETag`, and 304 to a caller that has it already."""

from __future__ import annotations

import hashlib
import json
from http import HTTPStatus
from typing import TYPE_CHECKING, Any

from starlette.responses import Response

from dagmaster.errors import Problem, RequestInvalid

if TYPE_CHECKING:
    from starlette.requests import Request


def with_etag(
    request: Request, body: Any, *, media_type: str = "application/json", state: str = "", **headers: str
) -> Response:
    """Return a body (a text, or JSON values) with the digest of its content; 304 if the caller has that.

    `state`: what a change can be made conditional on (`expected_states`). It is the first part of the tag.
    """
    text = body if isinstance(body, str) else json.dumps(body, ensure_ascii=False, separators=(",", ":"))
    content = text.encode()
    digest = hashlib.sha256(content).hexdigest()[:32]
    tag = f'"{state}.{digest}"' if state else f'"{digest}"'
    # `private`: only for callers with a key. `no-cache`: ask each time; a version can become the active one.
    known = {"ETag": tag, "Cache-Control": "private, no-cache", **headers}
    if _matches(request.headers.get("if-none-match", ""), tag):
        return Response(status_code=HTTPStatus.NOT_MODIFIED, headers=known)
    return Response(content, media_type=media_type, headers=known)


def _matches(header: str, tag: str) -> bool:
    return any(part.strip().removeprefix("W/") in (tag, "*") for part in header.split(","))


def expected_states(if_match: str | None, if_none_match: str | None, unpublished: str) -> list[str] | None:
    """Return the states of which one must be the present one, by the headers of a change; None: any.

    A tag is an `ETag`, or its first part alone. `If-None-Match: *`: nothing may exist yet.
    """
    if if_none_match is not None:
        if if_match is not None or if_none_match.strip() != "*":
            message = "a change takes `If-None-Match: *`, which creates, or an `If-Match`"
            raise RequestInvalid([Problem(message=message, path="header.if-none-match")])
        return [unpublished]
    if if_match is None:
        return None
    parts = (part.strip().removeprefix("W/").strip('"') for part in if_match.split(","))
    return [part.partition(".")[0] for part in parts]
