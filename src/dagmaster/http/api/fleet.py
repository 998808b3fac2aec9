"""Orchestrators, workers and queues."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING, Annotated, Any

from fastapi import Path
from pydantic import Field
from starlette.responses import JSONResponse

from dagmaster.application.commands.drain import MAX_GRACE_SECONDS, drain_service, undrain_service
from dagmaster.application.queries.fleet import (
    page_of_orchestrators,
    page_of_queues,
    page_of_workers,
    sum_orchestrators,
)
from dagmaster.http.page_links import PageAnswer
from dagmaster.http.parameters import Cursor, Limit
from dagmaster.http.routes import Body, Routes
from dagmaster.http.services import App, Caller, Services
from dagmaster.ports.api_keys import Scope

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable

    from dagmaster.application.fleet_monitor import FleetSnapshot
    from dagmaster.records.fleet import FleetRecord
    from dagmaster.records.page import Page

    _PageOf = Callable[[Callable[[], Awaitable[FleetRecord]], str | None, int], Awaitable[Page[Any]]]

routes = Routes("fleet")
ServiceName = Annotated[
    str, Path(max_length=300, description="The id of an orchestrator or a worker, or HOST:PID.")
]


class DrainBody(Body):
    """How a service drains."""

    grace_seconds: float | None = Field(
        default=None,
        ge=0,
        le=MAX_GRACE_SECONDS,
        allow_inf_nan=False,
        description="When a worker releases what still runs; null: it lets every task finish. Not for an"
        " orchestrator.",
    )


@routes.get("/fleet", Scope.READ, "FleetView")
async def whole_fleet(services: Services, app: App) -> JSONResponse:
    """Show orchestrators, workers and queues; those that were read last if the database does not answer."""
    return JSONResponse((await services.fleet.snapshot(app)).record.to_dict())


@routes.post("/fleet/{service_id}/drain", Scope.OPERATE, "DrainResult")
async def drain(
    app: App, caller: Caller, service_id: ServiceName, body: DrainBody | None = None
) -> JSONResponse:
    """Drain a service: it claims nothing more.

    A worker finishes its tasks, an orchestrator releases its jobs.
    """
    grace_seconds = None if body is None else body.grace_seconds
    result = await drain_service(app, service_id, sent_by=caller.actor, grace_seconds=grace_seconds)
    return JSONResponse(result.to_dict())


@routes.post("/fleet/{service_id}/undrain", Scope.OPERATE, "DrainResult")
async def undrain(app: App, caller: Caller, service_id: ServiceName) -> JSONResponse:
    """Let a service that drains claim again."""
    return JSONResponse((await undrain_service(app, service_id, sent_by=caller.actor)).to_dict())


@routes.get("/orchestrator/status", Scope.READ, "OrchestratorStatusView")
async def status(services: Services, app: App) -> JSONResponse:
    """Show what all orchestrators did: jobs claimed and reclaimed, turns, results."""
    snapshot = await services.fleet.snapshot(app)
    return JSONResponse(sum_orchestrators(snapshot.record).to_dict(), headers=_age(snapshot))


@routes.get("/orchestrators", Scope.READ, "OrchestratorViewPage")
async def orchestrators(
    services: Services, app: App, cursor: Cursor = None, limit: Limit = 100
) -> JSONResponse:
    """List orchestrators that are alive or stopped within the last hour, by id."""
    return await _list(services, app, page_of_orchestrators, cursor, limit)


@routes.get("/workers", Scope.READ, "WorkerViewPage")
async def workers(services: Services, app: App, cursor: Cursor = None, limit: Limit = 100) -> JSONResponse:
    """List workers that are alive or stopped within the last hour, by id."""
    return await _list(services, app, page_of_workers, cursor, limit)


@routes.get("/queues", Scope.READ, "QueueViewPage")
async def queues(services: Services, app: App, cursor: Cursor = None, limit: Limit = 100) -> JSONResponse:
    """List queues with tasks by name, and how many workers serve each."""
    return await _list(services, app, page_of_queues, cursor, limit)


async def _list(
    services: Services, app: App, page_of: _PageOf, cursor: str | None, limit: int
) -> JSONResponse:
    headers: dict[str, str] = {}

    async def read() -> FleetRecord:
        snapshot = await services.fleet.snapshot(app)
        headers.update(_age(snapshot))
        return snapshot.record

    page = await page_of(read, cursor, limit)
    return PageAnswer(page, headers=headers)


def _age(snapshot: FleetSnapshot) -> dict[str, str]:
    """Return the header of what was read earlier; none if the database answered now."""
    return {"Age": str(math.ceil(snapshot.stale_seconds))} if snapshot.stale_seconds else {}
