"""Probes: whether the process lives, and whether requests are served."""

from __future__ import annotations

from http import HTTPStatus
from typing import Final

from starlette.requests import Request
from starlette.responses import JSONResponse

from dagmaster.http.gateway.answers import answer
from dagmaster.http.gateway.routes import GatewayRoutes
from dagmaster.http.gateway.services import Services
from dagmaster.http.problems import RETRY_SECONDS
from dagmaster.records.gateway import AliveResponse, GatewayHealthResponse, ReadyResponse

probes = GatewayRoutes("probes")
routes = GatewayRoutes("gateway")
_RETRY: Final = {"Retry-After": str(RETRY_SECONDS)}


@probes.get("/livez", None, AliveResponse, name="check_liveness")
async def livez(request: Request) -> JSONResponse:
    """Answer while the process lives."""
    return answer(request, AliveResponse())


@probes.get("/readyz", None, ReadyResponse, name="check_readiness", also={503: "A check has failed."})
async def readyz(request: Request, services: Services) -> JSONResponse:
    """Answer 200 if requests are served, else 503 with the check that failed.

    `env_vars`: the settings name a database and a server. `database`: it can be read with a role that can do
    nothing else. `service_bus`: its settings are well-formed, if there are any. `orchestrator`: the server
    answers.
    """
    state = await services.checks.state()
    if state.all_passed:
        return answer(request, ReadyResponse(ready=True))
    view = ReadyResponse(ready=False, failed_check=state.failed_check)
    return answer(request, view, HTTPStatus.SERVICE_UNAVAILABLE, _RETRY)


@routes.get(
    "/gateway/health", None, GatewayHealthResponse, name="get_health", also={503: "A check has failed."}
)
async def health(request: Request, services: Services) -> JSONResponse:
    """Show the state of each check."""
    state = await services.checks.state()
    view = GatewayHealthResponse(
        status="healthy" if state.all_passed else "unhealthy",
        checks={check.name: "ok" if check.passed else "failed" for check in state.checks},
    )
    if state.all_passed:
        return answer(request, view)
    return answer(request, view, HTTPStatus.SERVICE_UNAVAILABLE, _RETRY)
