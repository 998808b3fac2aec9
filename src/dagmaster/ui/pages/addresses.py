"""Addresses of pages, with filters in their query."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final
from urllib.parse import urlencode

if TYPE_CHECKING:
    from collections.abc import Callable


REQUESTS: Final = "/ui/requests"


def with_query(path: str, *pairs: tuple[str, str], **params: str | int | None) -> str:
    """Return a path with those parameters that have a value. `pairs`: those that may stand several times."""
    query = urlencode([(name, value) for name, value in (*pairs, *params.items()) if value not in {None, ""}])
    return join_query(path, query)


def join_query(path: str, query: str) -> str:
    return f"{path}?{query}" if query else path


def page_hrefs(path: Callable[..., str], cursor: str | None, next_cursor: str | None) -> dict[str, str]:
    """Return the addresses `first` and `next` of a list; empty if that is this page, or does not exist."""
    hrefs = {"first": "", "next": ""}
    if cursor is not None:
        hrefs["first"] = path()
    if next_cursor is not None:
        hrefs["next"] = path(cursor=next_cursor)
    return hrefs


def request_path(request_id: str) -> str:
    return f"{REQUESTS}/{request_id}"
