"""Addresses of pages, with filters in their query."""

from __future__ import annotations

from urllib.parse import urlencode


def with_query(path: str, *pairs: tuple[str, str], **params: str | int | None) -> str:
    """Return a path with those parameters that have a value. `pairs`: those that may stand several times."""
    query = urlencode([(name, value) for name, value in (*pairs, *params.items()) if value not in {None, ""}])
    return f"{path}?{query}" if query else path
