"""Health: whether the process lives, whether jobs can run, and the state of each part."""

from __future__ import annotations

from http import HTTPStatus
from typing import Any

from starlette.responses import JSONResponse

from dagmaster.application.queries.fleet import fleet
from dagmaster.errors import DagmasterError
from dagmaster.http.routes import App, Routes
from dagmaster.ports.api_keys import Scope

routes = Routes("health")


@routes.get("/livez", None, "Health")
async def livez() -> JSONResponse:
    """Answer while the process lives."""
    return JSONResponse({"status": "OK"})


@routes.get("/readyz", None, "Health")
async def readyz(app: App) -> JSONResponse:
    """Answer 200 if the database is reachable and an orchestrator is alive, else 503."""
    parts = await _parts(app)
    is_ready = parts["database"]["healthy"] and parts["orchestrator"]["healthy"]
    status = HTTPStatus.OK if is_ready else HTTPStatus.SERVICE_UNAVAILABLE
    return JSONResponse({"status": "OK" if is_ready else "UNAVAILABLE"}, status)


@routes.get("/health", Scope.READ, "Health")
async def health(app: App) -> JSONResponse:
    """Show the state of each part."""
    parts = await _parts(app)
    is_healthy = all(part["healthy"] for part in parts.values())
    status = HTTPStatus.OK if is_healthy else HTTPStatus.SERVICE_UNAVAILABLE
    return JSONResponse({"status": "HEALTHY" if is_healthy else "UNHEALTHY", "parts": parts}, status)


async def _parts(app: App) -> dict[str, dict[str, Any]]:
    try:
        view = await fleet(app)
    except DagmasterError as error:
        unknown = {"healthy": False, "detail": "unknown: the database is unavailable"}
        return {"database": {"healthy": False, "detail": error.code}, "orchestrator": unknown, "queues": unknown}
    alive = sum(orchestrator.is_alive for orchestrator in view.orchestrators)
    unserved = sorted(queue.queue for queue in view.queues if queue.waiting and not queue.workers)
    return {
        "database": {"healthy": True, "detail": "reachable"},
        "orchestrator": {"healthy": alive > 0, "detail": f"{alive} alive"},
        "queues": {
            "healthy": not unserved,
            "detail": f"no live worker serves: {', '.join(unserved[:10])}" if unserved else "all are served",
        },
    }
