"""Queues, orchestrators and workers."""

from __future__ import annotations

from starlette.requests import Request
from starlette.responses import Response

from dagmaster.application.queries import fleet as queries
from dagmaster.http.services import App
from dagmaster.ports.api_keys import Scope
from dagmaster.ui.page_routes import PageRoutes
from dagmaster.ui.pages.fleet import fleet_page, queues_page
from dagmaster.ui.rendering import render

routes = PageRoutes()


@routes.get("/ui/queues", Scope.READ)
async def queues(request: Request, app: App) -> Response:
    """Show how many tasks wait, for how long, and who works on them."""
    return render(request, "queues.html", queues_page(await queries.fleet(app)))


@routes.get("/ui/fleet", Scope.READ)
async def fleet(request: Request, app: App) -> Response:
    """Show orchestrators and workers."""
    return render(request, "fleet.html", fleet_page(await queries.fleet(app)))
