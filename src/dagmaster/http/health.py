"""Health: whether the process lives, whether jobs can run, and the state of each part."""

from __future__ import annotations

from http import HTTPStatus
from typing import TYPE_CHECKING, Final

from starlette.responses import JSONResponse

from dagmaster.application.views import HealthState
from dagmaster.http.problems import RETRY_SECONDS
from dagmaster.http.routes import Routes
from dagmaster.http.services import Caller, Services
from dagmaster.ports.api_keys import Scope

if TYPE_CHECKING:
    from dagmaster.records.record import Record

routes = Routes("health")
_RETRY: Final = {"Retry-After": str(RETRY_SECONDS)}


@routes.get("/livez", None, "Liveness")
async def livez() -> JSONResponse:
    """Answer while the process lives."""
    return JSONResponse({"status": "alive"})


@routes.get("/readyz", None, "ReadinessView", same={503: "A part that jobs need is missing."})
async def readyz(services: Services) -> JSONResponse:
    """Answer 200 if jobs can be submitted and run, else 503; `failing` names the parts that prevent it.

    `database`: it is reachable and can be written to (no standby, no full disk). `schema`: it can be used by
    this version. `secrets_key`: this server has the key of secret inputs, if the installation has one.
    `orchestrators`: one is alive, and does not drain.
    """
    view = await services.health.check_readiness()
    return _answer(view, is_good=view.is_ready)


@routes.get("/health", Scope.READ, "HealthView", same={503: "A part is not healthy."})
async def health(services: Services, caller: Caller) -> JSONResponse:
    """Show the state of each part, and since when; 503 if one is not healthy."""
    view = await services.health_of(caller).check()
    return _answer(view, is_good=view.status is HealthState.HEALTHY)


def _answer(view: Record, *, is_good: bool) -> JSONResponse:
    if is_good:
        return JSONResponse(view.to_dict())
    return JSONResponse(view.to_dict(), HTTPStatus.SERVICE_UNAVAILABLE, _RETRY)
