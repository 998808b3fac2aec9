"""Health: whether the process lives, whether jobs can run, and the state of each part."""

from __future__ import annotations

from http import HTTPStatus

from starlette.responses import JSONResponse

from dagmaster.application.views import HealthState
from dagmaster.http.routes import Routes
from dagmaster.http.services import Services
from dagmaster.ports.api_keys import Scope

routes = Routes("health")


@routes.get("/livez", None, "Liveness")
async def livez() -> JSONResponse:
    """Answer while the process lives."""
    return JSONResponse({"status": "alive"})


@routes.get("/readyz", None, "ReadinessView")
async def readyz(services: Services) -> JSONResponse:
    """Answer 200 if the database is reachable, its schema current and an orchestrator alive, else 503."""
    view = await services.health.check_readiness()
    return JSONResponse(view.to_dict(), HTTPStatus.OK if view.is_ready else HTTPStatus.SERVICE_UNAVAILABLE)


@routes.get("/health", Scope.READ, "HealthView")
async def health(services: Services) -> JSONResponse:
    """Show the state of each part, and since when; 503 if one is not healthy."""
    view = await services.health.check()
    is_healthy = view.status is HealthState.HEALTHY
    return JSONResponse(view.to_dict(), HTTPStatus.OK if is_healthy else HTTPStatus.SERVICE_UNAVAILABLE)
