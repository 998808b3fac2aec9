"""Older routes of other systems: each is the same as a route of this API."""

from __future__ import annotations

import re
from typing import Final, NamedTuple
from urllib.parse import quote

ALIASES: Final = {
    "/api/dag/submit": "/api/v1/jobs",
    "/api/platform/submit": "/api/v1/jobs",
    "/api/dag/jobs/{id}": "/api/v1/jobs/{id}",
    "/api/dag/jobs/{id}/nodes": "/api/v1/jobs/{id}/nodes",
    "/api/dag/jobs/{id}/cancel": "/api/v1/jobs/{id}/cancel",
    "/api/dag/status/{id}": "/api/v1/jobs/{id}/progress",
    "/api/task/complete": "/api/v1/callbacks/task-result",
    "/api/callbacks/{id}": "/api/v1/callbacks/{id}",
    "/api/test/handler": "/api/v1/handlers/test",
    "/api/v1/queues/status": "/api/v1/queues",
}
"""The whole table. `{id}` is one part of a path."""

_PATTERNS: Final = [(re.compile(re.escape(old).replace(r"\{id\}", "(?P<id>[^/]+)")), old) for old in ALIASES]
DEPRECATED: Final = "@1767225600"
"""Since when older routes are deprecated (RFC 9745): 2026-01-01."""


class Alias(NamedTuple):
    """An older route: as the table has it, and the path of the route that answers."""

    older: str
    path: str

    def headers(self) -> list[tuple[bytes, bytes]]:
        """Return what the answer says of it."""
        link = f'<{quote(self.path)}>; rel="successor-version"'
        return [(b"deprecation", DEPRECATED.encode()), (b"link", link.encode())]


def find_alias(path: str) -> Alias | None:
    for pattern, older in _PATTERNS:
        if match := pattern.fullmatch(path):
            return Alias(older, ALIASES[older].format(**match.groupdict()))
    return None


def resolve_alias(path: str) -> str:
    """Return the path of the route that answers; the same path if it is no alias."""
    alias = find_alias(path)
    return path if alias is None else alias.path
