"""Administration: keys of callers, the audit trail, the database's schema, invariants and metrics."""

from __future__ import annotations

import time
from typing import Annotated

from fastapi import Path, Query
from pydantic import Field
from starlette.responses import JSONResponse

from dagmaster.application.access import tenant_for
from dagmaster.application.api_keys import (
    MAX_DAYS,
    MAX_NAME,
    MAX_NARROWED,
    MAX_NARROWED_NAME,
    MAX_OVERLAP_HOURS,
    create_key,
    list_keys,
    parse_scopes,
    revoke_key,
    rotate_key,
)
from dagmaster.application.audit_trail import list_changes
from dagmaster.application.browser_sessions import list_sessions, revoke_session
from dagmaster.application.database_admin import (
    audit_batch,
    migrate_schema,
    rebuild_metrics,
    schema_history,
    schema_state,
)
from dagmaster.application.job_lookup import find_job
from dagmaster.http.page_links import PageAnswer
from dagmaster.http.parameters import MAX_ID, Cursor, Limit, one_of
from dagmaster.http.routes import Body, Routes
from dagmaster.http.services import Admin, App, Caller, Origin, Services
from dagmaster.ports.api_keys import KeyLimits, Reach, Scope
from dagmaster.ports.audit_trail import AuditFilter
from dagmaster.ports.job_options import MAX_ACTOR
from dagmaster.ports.tenants import MAX_TENANT

routes = Routes("admin")
Names = Annotated[
    list[Annotated[str, Field(min_length=1, max_length=MAX_NARROWED_NAME)]], Field(max_length=MAX_NARROWED)
]
KeyId = Annotated[str, Path(max_length=100, description="The id of a key, or its beginning `dm_…`.")]
NO_STORE = {"Cache-Control": "no-store"}


class LimitsBody(Body):
    """What a key is narrowed to."""

    queues: Names = Field(default_factory=list, description="For work: only these queues.")
    handlers: Names = Field(default_factory=list, description="For work: only these handlers.")
    workflows: Names = Field(default_factory=list, description="For submit: only these workflows.")
    is_own: bool = Field(default=False, description="Only jobs that the key submitted.")

    @property
    def limits(self) -> KeyLimits:
        """Return what the key is narrowed to."""
        return KeyLimits(
            queues=tuple(self.queues),
            handlers=tuple(self.handlers),
            workflows=tuple(self.workflows),
            is_own=self.is_own,
        )


class KeyBody(LimitsBody):
    """A key to create."""

    name: str = Field(min_length=1, max_length=MAX_NAME, description="The submitter of what it is used for.")
    scopes: list[Annotated[str, one_of(Scope)]] = Field(
        min_length=1, max_length=5, examples=[["submit", "read"]]
    )
    days: float | None = Field(default=None, gt=0, le=MAX_DAYS, description="How long it is valid.")
    is_sandbox: bool = Field(default=False, description="Its requests are played, and start nothing.")
    tenant: str | None = Field(
        default=None,
        max_length=MAX_TENANT,
        description="Whose jobs it submits and sees. Default: the caller's; another one is for administrators"
        " of the installation.",
    )


class RotateBody(Body):
    """How a key is replaced."""

    overlap_hours: float = Field(
        default=24.0, ge=0, le=MAX_OVERLAP_HOURS, description="How long the old one works."
    )


@routes.post("/keys", Scope.ADMIN, "NewApiKeyView", 201)
async def create(services: Services, caller: Caller, origin: Origin, body: KeyBody) -> JSONResponse:
    """Create a key. Its text is shown only in this answer."""
    scopes = parse_scopes(body.scopes)
    view = await create_key(
        services.keys_of(caller),
        body.name,
        scopes,
        origin=origin,
        now=time.time(),
        days=body.days,
        limits=body.limits,
        is_sandbox=body.is_sandbox,
        tenant=tenant_for(caller, body.tenant),
    )
    return JSONResponse(view.to_dict(), 201, headers=NO_STORE)


@routes.get("/keys", Scope.ADMIN, "ApiKeyViewPage")
async def keys(services: Services, caller: Caller, cursor: Cursor = None, limit: Limit = 100) -> JSONResponse:
    """List keys, newest first, without their secrets."""
    return PageAnswer(await list_keys(services.keys_of(caller), cursor=cursor, limit=limit))


@routes.get("/keys/sessions", Scope.ADMIN, "[BrowserSessionView]")
async def sessions(services: Services, caller: Caller) -> JSONResponse:
    """List the sessions of browsers that have not ended, newest first; at most 1,000."""
    return JSONResponse([view.to_dict() for view in await list_sessions(services.keys_of(caller))])


@routes.post("/keys/sessions/{session_id}/revoke", Scope.ADMIN, "BrowserSessionView")
async def end_session(
    services: Services, caller: Caller, origin: Origin, session_id: Annotated[str, Path(max_length=100)]
) -> JSONResponse:
    """End a session of a browser: requests with it are rejected within seconds."""
    return JSONResponse((await revoke_session(services.keys_of(caller), session_id, origin=origin)).to_dict())


@routes.post("/keys/{key_id}/revoke", Scope.ADMIN, "ApiKeyView")
async def revoke(services: Services, caller: Caller, origin: Origin, key_id: KeyId) -> JSONResponse:
    """Revoke a key: requests with it are rejected within seconds."""
    return JSONResponse((await revoke_key(services.keys_of(caller), key_id, origin=origin)).to_dict())


@routes.post("/keys/{key_id}/rotate", Scope.ADMIN, "NewApiKeyView", 201)
async def rotate(
    services: Services, caller: Caller, origin: Origin, key_id: KeyId, body: RotateBody | None = None
) -> JSONResponse:
    """Replace a key by a new one with the same name and scopes; the old one works for some more hours."""
    hours = (body or RotateBody()).overlap_hours
    view = await rotate_key(
        services.keys_of(caller), key_id, origin=origin, now=time.time(), overlap_hours=hours
    )
    return JSONResponse(view.to_dict(), 201, headers=NO_STORE)


@routes.get("/audit", Scope.ADMIN, "AuditEntryViewPage")
async def audit_trail(
    services: Services,
    caller: Caller,
    actor: Annotated[str | None, Query(max_length=MAX_ACTOR)] = None,
    action: Annotated[str | None, Query(max_length=100)] = None,
    object_kind: Annotated[str | None, Query(max_length=100)] = None,
    object_id: Annotated[str | None, Query(max_length=MAX_ID)] = None,
    cursor: Cursor = None,
    limit: Limit = 100,
) -> JSONResponse:
    """List what callers changed, newest first."""
    audit_filter = AuditFilter(actor=actor, action=action, object_kind=object_kind, object_id=object_id)
    trail = services.audit_of(caller)
    return PageAnswer(await list_changes(trail, audit_filter, cursor=cursor, limit=limit))


@routes.get("/admin/schema", Scope.ADMIN, "SchemaView", reach=Reach.INSTALLATION)
async def schema(admin: Admin) -> JSONResponse:
    """Show the version of the database's schema."""
    return JSONResponse((await schema_state(admin)).to_dict())


@routes.get("/admin/schema/versions", Scope.ADMIN, "[SchemaVersionView]", reach=Reach.INSTALLATION)
async def schema_versions(admin: Admin) -> JSONResponse:
    """List the versions of the schema that this server knows, oldest first."""
    return JSONResponse([version.to_dict() for version in await schema_history(admin)])


@routes.post("/admin/migrate", Scope.ADMIN, "SchemaView", reach=Reach.INSTALLATION)
async def migrate(admin: Admin, origin: Origin) -> JSONResponse:
    """Upgrade the schema of the database to the version of this server. A current one stays as it is."""
    return JSONResponse((await migrate_schema(admin, origin=origin)).to_dict())


@routes.get("/admin/invariants", Scope.ADMIN, "AuditBatchView", reach=Reach.INSTALLATION)
async def invariants(
    admin: Admin,
    app: App,
    job_id: Annotated[
        str | None, Query(max_length=20, description="Only of this job; `last`: the caller's newest one.")
    ] = None,
    cursor: Cursor = None,
) -> JSONResponse:
    """Check the invariants of the next batch of jobs, or of one.

    Services may keep running: nothing is written.
    """
    if job_id is not None:
        job_id = (await find_job(app, job_id)).job_id
    return PageAnswer(await audit_batch(admin, job_id=job_id, cursor=cursor))


@routes.post("/admin/metrics/rebuild", Scope.ADMIN, "MetricRebuildView", reach=Reach.INSTALLATION)
async def rebuild(admin: Admin, origin: Origin, cursor: Cursor = None) -> JSONResponse:
    """Count all finished jobs again.

    The cursor of an answer continues its rebuild; without one, a new one begins.
    """
    return JSONResponse((await rebuild_metrics(admin, origin=origin, cursor=cursor)).to_dict())
