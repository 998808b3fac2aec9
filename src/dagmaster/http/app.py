"""The ASGI application: routes, problems, limits, and the OpenAPI document."""

from __future__ import annotations

import secrets
from importlib.metadata import version
from typing import TYPE_CHECKING, Any, Final

from fastapi import FastAPI
from starlette.middleware.gzip import GZipMiddleware

from dagmaster.application.views.json_schema import view_schemas
from dagmaster.errors import RequestTooLarge
from dagmaster.http import health, problems
from dagmaster.http.api import fleet, jobs, keys, workflows
from dagmaster.http.auth import KeyChecker

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable, MutableMapping

    from dagmaster.application.context import Application
    from dagmaster.ports.api_keys import ApiKeyStore, Scope

    Message = MutableMapping[str, Any]
    Receive = Callable[[], Awaitable[Message]]
    Send = Callable[[Message], Awaitable[None]]

API: Final = "/api/v1"
MAX_BODY_BYTES: Final = 1024 * 1024
GROUPS: Final = (jobs.routes, workflows.routes, fleet.routes, keys.routes)


def create_app(application: Application, key_store: ApiKeyStore) -> FastAPI:
    """Return the API on an application layer."""
    app = Api(
        title="dagmaster",
        version=version("dagmaster"),
        description="Durable workflows. Every answer is what the command line prints with --json.",
        openapi_url="/openapi.json",
        docs_url=None,
        redoc_url=None,
    )
    app.state.application = application
    app.state.key_store = key_store
    app.state.keys = KeyChecker(key_store)
    problems.install(app)
    for group in GROUPS:
        app.include_router(group.router, prefix=API)
    app.include_router(health.routes.router)
    app.add_middleware(GZipMiddleware, minimum_size=1_000)
    app.add_middleware(LimitsMiddleware)
    return app


class Api(FastAPI):
    """FastAPI with the schemas of our views in its document."""

    def openapi(self) -> dict[str, Any]:
        """Return the OpenAPI document."""
        if self.openapi_schema is None:
            document = super().openapi()
            schemas = document.setdefault("components", {}).setdefault("schemas", {})
            schemas |= _with_component_references(view_schemas()["$defs"])
            schemas |= {
                "Problem": problems.SCHEMA,
                "Svg": {"type": "string"},
                "Health": {"type": "object", "properties": {"status": {"type": "string"}}, "required": ["status"]},
            }
            document["components"]["securitySchemes"] = {"key": {"type": "http", "scheme": "bearer"}}
        return self.openapi_schema or {}


def route_scopes() -> dict[tuple[str, str], Scope | None]:
    """Return every route with the scope that it needs; None: open to everyone."""
    scopes = {(method, API + path): scope for group in GROUPS for (method, path), scope in group.scopes.items()}
    return scopes | health.routes.scopes


class LimitsMiddleware:
    """Limits the size of bodies, and gives each request an id."""

    def __init__(self, app: Callable[[Message, Receive, Send], Awaitable[None]]) -> None:
        self._app = app

    async def __call__(self, scope: Message, receive: Receive, send: Send) -> None:
        """Handle a request."""
        if scope["type"] != "http":
            await self._app(scope, receive, send)
            return
        request_id = secrets.token_hex(8)
        size = 0

        async def receive_limited() -> Message:
            nonlocal size
            message = await receive()
            size += len(message.get("body") or b"")
            if size > MAX_BODY_BYTES:
                raise RequestTooLarge(f"a body has at most {MAX_BODY_BYTES:,} bytes")
            return message

        async def send_with_id(message: Message) -> None:
            if message["type"] == "http.response.start":
                message["headers"] = [*message["headers"], (b"x-request-id", request_id.encode())]
            await send(message)

        await self._app(scope, receive_limited, send_with_id)


def _with_component_references(value: Any) -> Any:
    if isinstance(value, list):
        return [_with_component_references(item) for item in value]
    if not isinstance(value, dict):
        return value
    copied = {key: _with_component_references(item) for key, item in value.items()}
    if isinstance(copied.get("$ref"), str):
        copied["$ref"] = copied["$ref"].replace("#/$defs/", "#/components/schemas/")
    return copied
