"""Static files, the way from the root to the web page, and what does not exist."""

from __future__ import annotations

from http import HTTPStatus
from typing import TYPE_CHECKING

from starlette.requests import Request
from starlette.responses import RedirectResponse, Response

from dagmaster.errors import PageNotFound
from dagmaster.ports.api_keys import Reach, Scope
from dagmaster.ui.page_routes import PageRoutes
from dagmaster.ui.pages.messages import offline_page
from dagmaster.ui.rendering import SECURITY_HEADERS, render
from dagmaster.ui.sessions import HOME

if TYPE_CHECKING:
    from dagmaster.ui.site import Site

routes = PageRoutes()
unknown = PageRoutes()


@routes.get("/", None)
async def root() -> Response:
    """Lead a browser to the web page."""
    return RedirectResponse(HOME, HTTPStatus.SEE_OTHER)


@routes.get("/ui", None)
async def without_slash() -> Response:
    """Lead to the overview."""
    return RedirectResponse(HOME, HTTPStatus.SEE_OTHER)


@routes.get("/ui/static/{version}/{path:path}", None)
async def static_file(request: Request, version: str, path: str) -> Response:
    """Send a static file.

    Under its hash it never changes; a page of an older server gets what there is now.
    """
    site: Site = request.app.state.site
    asset = site.assets.files.get(path)
    if asset is None:
        raise PageNotFound(f"there is no file {path[:200]}")
    is_exact = version == site.assets.version
    headers = {
        **SECURITY_HEADERS,
        "ETag": asset.etag,
        # The service worker is for all pages, not only for the folder that it is in.
        "Service-Worker-Allowed": "/ui/",
        "Cache-Control": "public, max-age=31536000, immutable" if is_exact else "no-cache",
    }
    if request.headers.get("if-none-match") == asset.etag:
        return Response(status_code=HTTPStatus.NOT_MODIFIED, headers=headers)
    return Response(asset.content, media_type=asset.media_type, headers=headers)


@routes.get("/ui/offline", None)
async def offline(request: Request) -> Response:
    """Show what a browser shows while the server cannot be reached; its service worker keeps it."""
    return render(request, "offline.html", offline_page())


@unknown.get("/ui/{path:path}", Scope.READ, Reach.OPEN)
async def unknown_page(request: Request) -> Response:
    raise PageNotFound(f"there is no page {request.url.path[:200]}")
