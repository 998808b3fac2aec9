"""Queues, orchestrators and workers; and the drain of one, with what it would do shown first."""

from __future__ import annotations

import asyncio
import contextlib
from typing import TYPE_CHECKING, Annotated, Final

from fastapi import Path
from starlette.requests import Request
from starlette.responses import Response

from dagmaster.application.commands.drain import drain_service, undrain_service
from dagmaster.application.commands.handler_trust import distrust_handler, trust_handler
from dagmaster.application.fleet_monitor import ANSWER_SECONDS
from dagmaster.application.queries import fleet as queries
from dagmaster.application.queries.handlers import list_handlers
from dagmaster.errors import DatabaseUnavailable, QueryInvalid
from dagmaster.http.services import App, Caller, Services
from dagmaster.ports.api_keys import Scope
from dagmaster.ports.job_options import MAX_ACTOR
from dagmaster.sdk.handler_decorator import MAX_NAME
from dagmaster.ui.notices import Notice
from dagmaster.ui.page_routes import FormFields, PageRoutes, see_other
from dagmaster.ui.pages.drain import GRACE_CHOICES, drain_page, undrain_page
from dagmaster.ui.pages.fleet import fleet_page, queues_page
from dagmaster.ui.rendering import render

if TYPE_CHECKING:
    from collections.abc import Sequence

    from dagmaster.application.context import Application
    from dagmaster.application.views import HandlerRecord

routes = PageRoutes()
HANDLERS: Final = 1_000
"""The handlers among which changes are looked for; `dagmaster handlers list` has them all."""
ServiceId = Annotated[str, Path(max_length=20)]


@routes.get("/ui/queues", Scope.READ)
async def queues(request: Request, services: Services, app: App) -> Response:
    """Show how many tasks wait, for how long, and who works on them; soon, also while the database hangs."""
    snapshot = await services.fleet.snapshot(app)
    return render(request, "queues.html", queues_page(snapshot.record, snapshot.stale_seconds))


@routes.get("/ui/fleet", Scope.READ)
async def fleet(request: Request, services: Services, app: App) -> Response:
    """Show orchestrators and workers, and contracts of handlers that wait for an administrator."""
    snapshot, handlers = await asyncio.gather(services.fleet.snapshot(app), _read_handlers(app))
    return render(request, "fleet.html", fleet_page(snapshot.record, handlers, snapshot.stale_seconds))


async def _read_handlers(app: Application) -> Sequence[HandlerRecord]:
    """Return the handlers with their changes; none if the database does not answer soon."""
    with contextlib.suppress(TimeoutError, DatabaseUnavailable):
        async with asyncio.timeout(ANSWER_SECONDS):
            return (await list_handlers(app, limit=HANDLERS)).items
    return ()


@routes.post("/ui/fleet/trust", Scope.ADMIN)
async def trust(app: App, form: FormFields) -> Response:
    """Accept what a caller published of a handler."""
    name, owner = form.text("handler", max_length=MAX_NAME), form.text("caller", max_length=MAX_ACTOR)
    view = await trust_handler(app, name, caller=owner)
    return see_other("/ui/fleet", Notice(f"{view.caller} is trusted with {view.handler}."))


@routes.post("/ui/fleet/distrust", Scope.ADMIN)
async def distrust(app: App, form: FormFields) -> Response:
    """Remove what a caller has of a handler."""
    name, owner = form.text("handler", max_length=MAX_NAME), form.text("caller", max_length=MAX_ACTOR)
    view = await distrust_handler(app, name, caller=owner)
    return see_other("/ui/fleet", Notice(f"What {view.caller} published of {view.handler} is removed."))


@routes.get("/ui/fleet/{service_id}/drain", Scope.OPERATE)
async def confirm_drain(request: Request, app: App, service_id: ServiceId) -> Response:
    """Ask whether a service is to be drained."""
    return render(request, "drain.html", drain_page(await queries.fleet(app), service_id))


@routes.post("/ui/fleet/{service_id}/drain", Scope.OPERATE)
async def drain(app: App, caller: Caller, service_id: ServiceId, form: FormFields) -> Response:
    """Drain a service."""
    text = form.text("grace_seconds", max_length=10)
    if text not in dict(GRACE_CHOICES):
        raise QueryInvalid(
            f"grace_seconds: one of {', '.join(value for value, _ in GRACE_CHOICES if value)}, or empty"
        )
    result = await drain_service(
        app, service_id, sent_by=caller.actor, grace_seconds=float(text) if text else None
    )
    return see_other("/ui/fleet", Notice(f"{result.sentence[:1].upper()}{result.sentence[1:]}."))


@routes.get("/ui/fleet/{service_id}/undrain", Scope.OPERATE)
async def confirm_undrain(request: Request, app: App, service_id: ServiceId) -> Response:
    """Ask whether a service is to claim again."""
    return render(request, "drain.html", undrain_page(await queries.fleet(app), service_id))


@routes.post("/ui/fleet/{service_id}/undrain", Scope.OPERATE)
async def undrain(app: App, caller: Caller, service_id: ServiceId) -> Response:
    """Let a service claim again."""
    result = await undrain_service(app, service_id, sent_by=caller.actor)
    return see_other("/ui/fleet", Notice(f"{result.sentence[:1].upper()}{result.sentence[1:]}."))
