"""Health, keys of callers, and the audit trail."""

from __future__ import annotations

import time
from typing import Annotated, Final

from fastapi import Path, Query
from starlette.requests import Request
from starlette.responses import Response

from dagmaster.application.access import tenant_for
from dagmaster.application.api_keys import (
    MAX_NAME,
    create_key,
    list_keys,
    parse_scopes,
    revoke_key,
    rotate_key,
)
from dagmaster.application.audit_trail import list_changes
from dagmaster.application.browser_sessions import list_sessions, revoke_session
from dagmaster.application.database_admin import schema_state
from dagmaster.application.queries.fleet import fleet
from dagmaster.application.queries.metrics import throughput
from dagmaster.application.tenants import list_tenants
from dagmaster.application.views import HealthState
from dagmaster.errors import ApiKeyInvalid, TenantNotFound
from dagmaster.http.parameters import MAX_ID, Cursor
from dagmaster.http.services import App, Caller, HttpServices, Origin, Services
from dagmaster.ports.api_keys import Caller as CallerRecord
from dagmaster.ports.api_keys import Scope
from dagmaster.ports.audit_trail import AuditFilter
from dagmaster.ports.job_options import MAX_ACTOR
from dagmaster.ports.tenants import MAX_TENANT
from dagmaster.ui.notices import Notice
from dagmaster.ui.page_routes import FormFields, PageRoutes, see_other
from dagmaster.ui.pages.audit import AuditQuery, audit_page
from dagmaster.ui.pages.health import health_page
from dagmaster.ui.pages.keys import KeyEntry, KeysPage, NewKey, keys_page, new_key
from dagmaster.ui.rendering import render

routes = PageRoutes()
ROWS: Final = 50
MAX_NUMBER: Final = 10
KeyId = Annotated[str, Path(max_length=100)]
OVERLAPS: Final = (0.0, 1.0, 24.0, 168.0)


@routes.get("/ui/health", Scope.READ)
async def health(request: Request, app: App, services: Services, caller: Caller) -> Response:
    """Show the state of each part, and which versions run. It also works without the database."""
    view = await services.health_of(caller).check()
    is_readable = all(view.parts[name].state is HealthState.HEALTHY for name in ("database", "schema"))
    schema, members, pending = None, None, None
    if is_readable:
        schema, members = await schema_state(services.admin), await fleet(app)
        pending = (await throughput(app, hours=1)).pending_jobs
    page = health_page(view, schema=schema, fleet=members, pending=pending, now=time.time())
    return render(request, "health.html", page)


@routes.get("/ui/keys", Scope.ADMIN)
async def keys(request: Request, services: Services, caller: Caller, cursor: Cursor = None) -> Response:
    """List keys, newest first."""
    return render(request, "keys.html", await _keys_page(services, caller, cursor=cursor))


@routes.post("/ui/keys", Scope.ADMIN)
async def create(
    request: Request, services: Services, caller: Caller, origin: Origin, form: FormFields
) -> Response:
    """Create a key. The answer shows it, and nothing shows it again."""
    entry = KeyEntry(
        name=form.text("name", max_length=10 * MAX_NAME).strip(),
        scopes=tuple(form.texts("scope")),
        days=form.text("days", max_length=MAX_NUMBER),
        tenant=form.text("tenant", max_length=MAX_TENANT) or caller.tenant,
    )
    try:
        scopes, days = parse_scopes(entry.scopes), _days(entry.days)
        view = await create_key(
            services.keys_of(caller),
            entry.name,
            scopes,
            origin=origin,
            now=time.time(),
            days=days,
            tenant=tenant_for(caller, entry.tenant),
        )
    except (ApiKeyInvalid, TenantNotFound) as error:
        page = await _keys_page(services, caller, entry=entry, problem=str(error))
        return render(request, "keys.html", page, status=400)
    return render(request, "keys.html", await _keys_page(services, caller, made=new_key(view)), status=201)


@routes.post("/ui/keys/{key_id}/rotate", Scope.ADMIN)
async def rotate(
    request: Request, services: Services, caller: Caller, origin: Origin, key_id: KeyId, form: FormFields
) -> Response:
    """Replace a key by a new one, which the answer shows."""
    text = form.text("overlap_hours", max_length=MAX_NUMBER)
    hours = next((hours for hours in OVERLAPS if f"{hours:g}" == text), None)
    if hours is None:
        raise ApiKeyInvalid(f"overlap_hours: one of {', '.join(f'{hours:g}' for hours in OVERLAPS)}")
    view = await rotate_key(
        services.keys_of(caller), key_id, origin=origin, now=time.time(), overlap_hours=hours
    )
    made = new_key(view, replaced=f"dm_{key_id}", hours=hours)
    return render(request, "keys.html", await _keys_page(services, caller, made=made), status=201)


@routes.post("/ui/keys/{key_id}/revoke", Scope.ADMIN)
async def revoke(services: Services, caller: Caller, origin: Origin, key_id: KeyId) -> Response:
    """Revoke a key."""
    view = await revoke_key(services.keys_of(caller), key_id, origin=origin)
    return see_other("/ui/keys", Notice(f"The key {view.key_id} of {view.name} is revoked."))


@routes.post("/ui/keys/sessions/{session_id}/revoke", Scope.ADMIN)
async def end_session(
    services: Services, caller: Caller, origin: Origin, session_id: Annotated[str, Path(max_length=100)]
) -> Response:
    """End the session of a browser."""
    view = await revoke_session(services.keys_of(caller), session_id, origin=origin)
    return see_other("/ui/keys", Notice(f"The session {view.session_id} of {view.caller} has ended."))


@routes.get("/ui/audit", Scope.ADMIN)
async def audit(
    request: Request,
    services: Services,
    caller: Caller,
    actor: Annotated[str, Query(max_length=MAX_ACTOR)] = "",
    action: Annotated[str, Query(max_length=100)] = "",
    object_kind: Annotated[str, Query(max_length=100)] = "",
    object_id: Annotated[str, Query(max_length=MAX_ID)] = "",
    cursor: Cursor = None,
) -> Response:
    """List what callers changed, newest first."""
    query = AuditQuery(actor=actor, action=action, object_kind=object_kind, object_id=object_id)
    audit_filter = AuditFilter(
        actor=actor or None,
        action=action or None,
        object_kind=object_kind or None,
        object_id=object_id or None,
    )
    page = await list_changes(services.audit_of(caller), audit_filter, cursor=cursor, limit=ROWS)
    return render(request, "audit.html", audit_page(query, page, now=time.time(), cursor=cursor))


async def _keys_page(
    services: HttpServices,
    caller: CallerRecord,
    *,
    cursor: str | None = None,
    entry: KeyEntry | None = None,
    problem: str = "",
    made: NewKey | None = None,
) -> KeysPage:
    page = await list_keys(services.keys_of(caller), cursor=cursor, limit=ROWS)
    sessions = await list_sessions(services.keys_of(caller)) if cursor is None else []
    tenants = await list_tenants(services.tenants) if caller.is_installation_admin else []
    return keys_page(
        page,
        tenants=[record.name for record in tenants],
        sessions=sessions,
        own_id=caller.key_id,
        now=time.time(),
        cursor=cursor,
        entry=entry,
        problem=problem,
        made=made,
    )


def _days(text: str) -> float | None:
    if not text:
        return None
    if not (text.isascii() and text.isdigit()):
        raise ApiKeyInvalid("expires: a number of days")
    return float(text)
