"""The gateway itself, for administrators of the installation: its checks and its settings."""

from __future__ import annotations

import asyncio
import contextlib
from importlib.metadata import PackageNotFoundError, version
from typing import Final

from starlette.requests import Request
from starlette.responses import Response

from dagmaster.errors import DagmasterError
from dagmaster.http.gateway.answers import answer_admin, passed_on
from dagmaster.http.gateway.services import InstallationAdmin, Services
from dagmaster.http.gateway.status import admin_routes as routes
from dagmaster.ports.api_keys import Reach, Scope
from dagmaster.records.gateway import AdminConfigResponse, AdminHealthResponse
from dagmaster.telemetry.prometheus import CONTENT_TYPE

__all__ = ["routes"]
UNKNOWN_VERSION: Final = "unknown"


@routes.get("/admin/health", Scope.ADMIN, AdminHealthResponse, name="get_admin_health")
async def admin_health(request: Request, services: Services, _caller: InstallationAdmin) -> Response:
    """Show each check with why it failed, and how many orchestrators and workers are alive."""
    state = await services.checks.state()
    alive = None
    with contextlib.suppress(DagmasterError):
        alive = await services.store.alive_services()
    view = AdminHealthResponse(
        status="healthy" if state.all_passed else "unhealthy",
        version=own_version(),
        checks=state.checks,
        orchestrators=None if alive is None else alive.orchestrators,
        workers=None if alive is None else alive.workers,
    )
    return answer_admin(request, view)


@routes.get("/admin/config", Scope.ADMIN, AdminConfigResponse, name="get_config")
async def admin_config(request: Request, services: Services, _caller: InstallationAdmin) -> Response:
    """Show the settings of the gateway, with secrets masked."""
    return answer_admin(request, services.config())


@routes.add(
    ["GET"],
    "/metrics",
    Scope.READ,
    None,
    name="get_metrics",
    reach=Reach.INSTALLATION,
    text="The metrics of this process in the text format of Prometheus.",
)
async def metrics(request: Request, services: Services) -> Response:
    """Return the metrics of this process for Prometheus: requests by route and status, and failures."""
    text = await asyncio.to_thread(services.metrics.render)
    return passed_on(request, Response(text, headers={"Content-Type": CONTENT_TYPE}))


def own_version() -> str:
    """Return the version of dagmaster; a copy of its files that was not installed has none."""
    try:
        return version("dagmaster")
    except PackageNotFoundError:
        return UNKNOWN_VERSION
