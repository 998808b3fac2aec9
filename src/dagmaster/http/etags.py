"""Answers that do not change: an `ETag`, and 304 to a caller that has it already."""

from __future__ import annotations

import hashlib
import json
from http import HTTPStatus
from typing import TYPE_CHECKING, Any

from starlette.responses import Response

if TYPE_CHECKING:
    from starlette.requests import Request


def with_etag(
    request: Request, body: Any, *, media_type: str = "application/json", **headers: str
) -> Response:
    """Return a body (a text, or JSON values) with the digest of its content; 304 if the caller has that."""
    text = body if isinstance(body, str) else json.dumps(body, ensure_ascii=False, separators=(",", ":"))
    content = text.encode()
    tag = f'"{hashlib.sha256(content).hexdigest()[:32]}"'
    # `private`: only for callers with a key. `no-cache`: ask each time; a version can become the active one.
    known = {"ETag": tag, "Cache-Control": "private, no-cache", **headers}
    if _matches(request.headers.get("if-none-match", ""), tag):
        return Response(status_code=HTTPStatus.NOT_MODIFIED, headers=known)
    return Response(content, media_type=media_type, headers=known)


def _matches(header: str, tag: str) -> bool:
    return any(part.strip().removeprefix("W/") in (tag, "*") for part in header.split(","))
