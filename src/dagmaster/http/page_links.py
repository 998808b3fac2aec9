"""Pages of lists: the header `Link` with `rel="next"` (RFC 8288) names the page that follows."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Protocol
from urllib.parse import quote, urlencode

from starlette.responses import JSONResponse

if TYPE_CHECKING:
    from starlette.requests import Request
    from starlette.responses import Response


class AnyPage(Protocol):
    """A part of a list, as it is answered."""

    @property
    def next_cursor(self) -> str | None: ...

    def to_dict(self) -> dict[str, Any]: ...


class PageAnswer(JSONResponse):
    """The answer that is a page. Its route adds the link."""

    def __init__(self, page: AnyPage, **options: Any) -> None:
        super().__init__(page.to_dict(), **options)
        self.next_cursor = page.next_cursor


def add_next_link(request: Request, response: Response) -> None:
    """Add the address of the next page to an answer that has one: the same request with another cursor.

    The address has no host: behind a proxy, this server knows only its own.
    """
    if not isinstance(response, PageAnswer) or response.next_cursor is None:
        return
    query = [(name, value) for name, value in request.query_params.multi_items() if name != "cursor"]
    address = f"{quote(request.url.path)}?{urlencode([*query, ('cursor', response.next_cursor)])}"
    response.headers["Link"] = f'<{address}>; rel="next"'
