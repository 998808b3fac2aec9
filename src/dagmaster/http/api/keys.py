"""Keys of callers."""

from __future__ import annotations

import time

from pydantic import Field
from starlette.requests import Request
from starlette.responses import JSONResponse

from dagmaster.application.api_keys import MAX_NAME, create_key, list_keys, revoke_key
from dagmaster.http.routes import Body, Caller, Routes
from dagmaster.ports.api_keys import Scope

routes = Routes("keys")


class KeyBody(Body):
    """A key to create."""

    name: str = Field(min_length=1, max_length=MAX_NAME, description="The submitter of what it is used for.")
    scopes: list[str] = Field(min_length=1, max_length=5, examples=[["submit", "read"]])
    days: float | None = Field(default=None, gt=0, le=36_500, description="How long it is valid.")


@routes.post("/keys", Scope.ADMIN, "NewApiKeyView", 201)
async def create(request: Request, caller: Caller, body: KeyBody) -> JSONResponse:
    """Create a key. Its text is shown only in this answer."""
    from dagmaster.errors import ApiKeyInvalid

    try:
        scopes = [Scope(scope) for scope in body.scopes]
    except ValueError:
        raise ApiKeyInvalid(f"unknown scope; the scopes are: {', '.join(Scope)}") from None
    store = request.app.state.key_store
    view = await create_key(store, body.name, scopes, created_by=caller.name, now=time.time(), days=body.days)
    return JSONResponse(view.to_dict(), 201, headers={"Cache-Control": "no-store"})


@routes.get("/keys", Scope.ADMIN, "[ApiKeyView]")
async def keys(request: Request) -> JSONResponse:
    """List all keys, without their secrets."""
    return JSONResponse([view.to_dict() for view in await list_keys(request.app.state.key_store)])


@routes.post("/keys/{key_id}/revoke", Scope.ADMIN, "ApiKeyView")
async def revoke(request: Request, key_id: str) -> JSONResponse:
    """Revoke a key."""
    return JSONResponse((await revoke_key(request.app.state.key_store, key_id)).to_dict())
