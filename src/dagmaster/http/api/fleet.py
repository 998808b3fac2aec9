"""Orchestrators, workers and queues."""

from __future__ import annotations

from starlette.responses import JSONResponse

from dagmaster.application.queries.fleet import (
    fleet,
    list_orchestrators,
    list_queues,
    list_workers,
    orchestrator_status,
)
from dagmaster.http.parameters import Cursor, Limit
from dagmaster.http.routes import Routes
from dagmaster.http.services import App
from dagmaster.ports.api_keys import Scope

routes = Routes("fleet")


@routes.get("/fleet", Scope.READ, "FleetView")
async def whole_fleet(app: App) -> JSONResponse:
    """Show orchestrators, workers and queues."""
    return JSONResponse((await fleet(app)).to_dict())


@routes.get("/orchestrator/status", Scope.READ, "OrchestratorStatusView")
async def status(app: App) -> JSONResponse:
    """Show what all orchestrators did: jobs claimed and reclaimed, turns, results."""
    return JSONResponse((await orchestrator_status(app)).to_dict())


@routes.get("/orchestrators", Scope.READ, "OrchestratorViewPage")
async def orchestrators(app: App, cursor: Cursor = None, limit: Limit = 100) -> JSONResponse:
    """List orchestrators that are alive or left lately, by id."""
    return JSONResponse((await list_orchestrators(app, cursor=cursor, limit=limit)).to_dict())


@routes.get("/workers", Scope.READ, "WorkerViewPage")
async def workers(app: App, cursor: Cursor = None, limit: Limit = 100) -> JSONResponse:
    """List workers that are alive or left lately, by id."""
    return JSONResponse((await list_workers(app, cursor=cursor, limit=limit)).to_dict())


@routes.get("/queues", Scope.READ, "QueueViewPage")
async def queues(app: App, cursor: Cursor = None, limit: Limit = 100) -> JSONResponse:
    """List queues with tasks by name, and how many workers serve each."""
    return JSONResponse((await list_queues(app, cursor=cursor, limit=limit)).to_dict())
