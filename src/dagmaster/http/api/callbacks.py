"""Callbacks: what became of them, their endpoints, and what they are signed with."""

from __future__ import annotations

from typing import Annotated, Final, Literal

from fastapi import Depends, Path, Query
from pydantic import Field
from starlette.requests import Request
from starlette.responses import JSONResponse

from dagmaster.application import callbacks as operations
from dagmaster.application.callbacks import MAX_ENDPOINT
from dagmaster.application.signing_secrets import (
    DEFAULT_OVERLAP_HOURS,
    MAX_OVERLAP_HOURS,
    create_signing_secret,
    list_signing_secrets,
    revoke_signing_secret,
)
from dagmaster.errors import KeyNarrowed
from dagmaster.http.page_links import PageAnswer
from dagmaster.http.parameters import Cursor, KeySet, Limit, Time, parse_optional_time
from dagmaster.http.routes import Body, Routes
from dagmaster.http.services import Caller, OpenedCallbacks, Origin
from dagmaster.ports.api_keys import Scope
from dagmaster.ports.callbacks import CallbackFilter
from dagmaster.ports.tenants import ALL_TENANTS, MAX_TENANT
from dagmaster.records.callbacks import DeliveryStatus, SecretKind

routes = Routes("callbacks")
keys_routes = Routes("callbacks")
"""The public keys, outside of the API: anybody reads them."""
_CACHED: Final = {"Cache-Control": "public, max-age=60"}
NO_STORE: Final = {"Cache-Control": "no-store"}
CallbackId = Annotated[str, Path(max_length=60, description="The id of a callback, `msg_…`.")]
SecretId = Annotated[str, Path(max_length=60)]
Endpoint = Annotated[
    str | None, Query(max_length=MAX_ENDPOINT, description="The origin of addresses, as https://host.")
]
Tenant = Annotated[str | None, Query(max_length=MAX_TENANT)]


class EndpointBody(Body):
    """An endpoint: the origin of the addresses of callbacks."""

    endpoint: str = Field(min_length=1, max_length=MAX_ENDPOINT, examples=["https://partner.example.com"])
    tenant: str | None = Field(default=None, max_length=MAX_TENANT, description="Default: of all tenants.")


class SecretBody(Body):
    """A signing secret to create."""

    kind: Literal["hmac", "ed25519"] = "hmac"
    tenant: str | None = Field(default=None, max_length=MAX_TENANT, description="Default: your own.")
    overlap_hours: float = Field(
        default=DEFAULT_OVERLAP_HOURS,
        ge=0,
        le=MAX_OVERLAP_HOURS,
        description="How long the secret that it replaces signs as well.",
    )


async def callback_filter(
    status: Literal["waiting", "delivered", "dead"] | None = None,
    endpoint: Endpoint = None,
    tenant: Tenant = None,
    subject: Annotated[
        str | None, Query(max_length=60, description="The id of the request or of the job.")
    ] = None,
    since: Time = None,
    until: Time = None,
) -> CallbackFilter:
    return CallbackFilter(
        status=None if status is None else DeliveryStatus(status),
        endpoint=None if endpoint is None else endpoint.rstrip("/").lower(),
        tenant=tenant,
        subject=subject,
        since=parse_optional_time("since", since),
        until=parse_optional_time("until", until),
    )


Matching = Annotated[CallbackFilter, Depends(callback_filter)]


@routes.get("/callbacks", Scope.READ, "CallbackViewPage")
async def list_(
    callbacks: OpenedCallbacks,
    matching: Matching,
    cursor: Cursor = None,
    limit: Limit = 100,
) -> JSONResponse:
    """List callbacks, newest first."""
    page = await operations.list_callbacks(callbacks, matching, cursor=cursor, limit=limit)
    return PageAnswer(page)


@routes.get("/callbacks/endpoints", Scope.READ, "[EndpointView]")
async def endpoints(
    callbacks: OpenedCallbacks,
    is_paused: Annotated[bool | None, Query(description="Only those that are paused, or are not.")] = None,
) -> JSONResponse:
    """List where callbacks go, with the health of each endpoint; paused ones first."""
    records = await operations.list_endpoints(callbacks, is_paused=is_paused)
    return JSONResponse([record.to_dict() for record in records])


@routes.post("/callbacks/endpoints/pause", Scope.OPERATE, "CallbackChangeResult")
async def pause(callbacks: OpenedCallbacks, origin: Origin, body: EndpointBody) -> JSONResponse:
    """Send nothing more to an endpoint. Its callbacks wait."""
    result = await operations.pause_endpoint(callbacks, body.endpoint, origin=origin, tenant=body.tenant)
    return JSONResponse(result.to_dict())


@routes.post("/callbacks/endpoints/resume", Scope.OPERATE, "CallbackChangeResult")
async def resume(callbacks: OpenedCallbacks, origin: Origin, body: EndpointBody) -> JSONResponse:
    """Send to a paused endpoint again: what waits, and what died since it began to fail, in order.

    Up to 5,000 callbacks are recovered at once. While some are `left`, it stays paused: resume it again.
    """
    result = await operations.resume_endpoint(callbacks, body.endpoint, origin=origin, tenant=body.tenant)
    return JSONResponse(result.to_dict())


@routes.post("/callbacks/replay", Scope.OPERATE, "CallbackChangeResult")
async def replay_range(
    callbacks: OpenedCallbacks, origin: Origin, matching: Matching, cursor: Cursor = None
) -> JSONResponse:
    """Send up to 5,000 callbacks again that match, oldest first: dead ones, unless another status is named.

    Their ids stay. If more match, send it again with `next_cursor` of the answer.
    """
    result = await operations.replay_callbacks(callbacks, matching, cursor=cursor, origin=origin)
    return JSONResponse(result.to_dict())


@routes.get("/callbacks/secrets", Scope.ADMIN, "[SigningSecretView]")
async def secrets(callbacks: OpenedCallbacks, tenant: Tenant = None) -> JSONResponse:
    """List signing secrets, without the secrets."""
    records = await list_signing_secrets(callbacks, tenant=tenant)
    return JSONResponse([record.to_dict() for record in records])


@routes.post("/callbacks/secrets", Scope.ADMIN, "NewSigningSecretView", 201)
async def create_secret(
    callbacks: OpenedCallbacks, origin: Origin, caller: Caller, body: SecretBody
) -> JSONResponse:
    """Create a signing secret. It is shown only in this answer; the one before it signs on for a while."""
    kind, tenant = SecretKind(body.kind), body.tenant or caller.tenant
    if caller.sees not in {ALL_TENANTS, tenant}:
        raise KeyNarrowed("this key makes signing secrets for its tenant alone")
    view = await create_signing_secret(
        callbacks, kind, origin=origin, tenant=tenant, overlap_hours=body.overlap_hours
    )
    return JSONResponse(view.to_dict(), 201, headers=NO_STORE)


@routes.post("/callbacks/secrets/{secret_id}/revoke", Scope.ADMIN, "SigningSecretView")
async def revoke_secret(callbacks: OpenedCallbacks, origin: Origin, secret_id: SecretId) -> JSONResponse:
    """Revoke a signing secret: within seconds nothing is signed with it."""
    return JSONResponse((await revoke_signing_secret(callbacks, secret_id, origin=origin)).to_dict())


# After the lists: the id of a callback would match their names.
@routes.get("/callbacks/{callback_id}", Scope.READ, "CallbackView")
async def show(callbacks: OpenedCallbacks, callback_id: CallbackId) -> JSONResponse:
    """Show a callback, and what became of it."""
    return JSONResponse((await operations.show_callback(callbacks, callback_id)).to_dict())


@routes.post("/callbacks/{callback_id}/replay", Scope.OPERATE, "CallbackChangeResult")
async def replay(callbacks: OpenedCallbacks, origin: Origin, callback_id: CallbackId) -> JSONResponse:
    """Send a callback again, with the same id."""
    return JSONResponse((await operations.replay_callback(callbacks, callback_id, origin=origin)).to_dict())


@keys_routes.get(operations.KEYS_PATH, None, "PublicKeysView")
async def installation_keys(request: Request) -> JSONResponse:
    """Return the public keys that verify callbacks of the installation's own jobs."""
    view = await operations.public_keys(request.app.state.services.callbacks)
    return JSONResponse(view.to_dict(), headers=_CACHED)


@keys_routes.get(operations.KEYS_PATH + "/{key_set}", None, "PublicKeysView")
async def tenant_keys(
    request: Request,
    key_set: KeySet,
) -> JSONResponse:
    """Return the public keys of a set, as `dagmaster callbacks secrets list` names it; none of another."""
    view = await operations.public_keys(request.app.state.services.callbacks, key_set)
    return JSONResponse(view.to_dict(), headers=_CACHED)
