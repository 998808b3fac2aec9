"""Older routes of other systems: each is the same as a route of this API."""

from __future__ import annotations

import re
from typing import Final

ALIASES: Final = {
    "/api/dag/submit": "/api/v1/jobs",
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

_PATTERNS: Final = [
    (re.compile(re.escape(old).replace(r"\{id\}", "(?P<id>[^/]+)")), new) for old, new in ALIASES.items()
]


def resolve_alias(path: str) -> str:
    """Return the path of the route that answers; the same path if it is no alias."""
    for pattern, new in _PATTERNS:
        if match := pattern.fullmatch(path):
            return new.format(**match.groupdict())
    return path
