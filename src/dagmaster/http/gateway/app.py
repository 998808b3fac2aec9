"""The ASGI application of a gateway. Its routes for callers exist once its checks have passed."""

from __future__ import annotations

import contextlib
import logging
from collections.abc import AsyncIterator, Awaitable, Callable
from typing import Any, Final

from fastapi import FastAPI
from fastapi.exceptions import RequestValidationError
from starlette.exceptions import HTTPException
from starlette.requests import Request
from starlette.responses import JSONResponse, Response

from dagmaster.errors import Category, DagmasterError
from dagmaster.http.gateway import (
    admin,
    closed_problems,
    document,
    platform,
    probes,
    proxy,
    public_keys,
    status,
)
from dagmaster.http.gateway.answers import ANSWER
from dagmaster.http.gateway.closed_problems import field_problem, problem
from dagmaster.http.gateway.leak_guard import LeakGuard, Message, Receive, Send
from dagmaster.http.gateway.services import GatewayServices
from dagmaster.http.hosts import AllowedHosts
from dagmaster.http.problems import MAX_ERRORS, methods_of
from dagmaster.http.request_durations import RequestDurations
from dagmaster.http.request_limits import RequestLimits
from dagmaster.ports.api_keys import Scope

GROUPS: Final = (
    probes.routes,
    public_keys.routes,
    platform.routes,
    status.routes,
    admin.routes,
    proxy.routes,
)
"""The routes for callers. Those that are always there are in `probes.probes`."""
OPENAPI: Final = "/openapi.json"
LIVENESS: Final = "/livez"
READINESS: Final = "/readyz"
_LOGGER = logging.getLogger("dagmaster.gateway")


class GatewayApp(FastAPI):
    """A gateway. All that it sends passes the guard, whatever sends it."""

    def __init__(self, services: GatewayServices | None, **options: Any) -> None:
        super().__init__(**options)
        self._services = services
        self.is_open = False
        self._guard = LeakGuard(super().__call__)

    @property
    def services(self) -> GatewayServices:
        """Return what the routes work with; an application that is only described has none."""
        assert self._services is not None  # noqa: S101 - for mypy
        return self._services

    async def __call__(self, scope: Message, receive: Receive, send: Send) -> None:
        await self._guard(scope, receive, send)

    def open(self) -> None:
        """Add the routes for callers."""
        self.is_open = True
        for group in GROUPS:
            self.include_router(group.router)
        self.add_route(OPENAPI, _openapi)

    def openapi(self) -> dict[str, Any]:
        if self.openapi_schema is None:
            document.complete(super().openapi())
        return self.openapi_schema or {}


class StartupGate:
    """Lets nothing but probes pass until all checks have passed, and then adds the routes for callers."""

    def __init__(self, app: Callable[[Message, Receive, Send], Awaitable[None]], gateway: GatewayApp) -> None:
        self._app = app
        self._gateway = gateway

    async def __call__(self, scope: Message, receive: Receive, send: Send) -> None:
        if scope["type"] == "http" and not self._gateway.is_open and scope["path"] != LIVENESS:
            state = await self._gateway.services.checks.state()
            if state.all_passed:
                self._open()
            elif scope["path"] != READINESS:
                await problem("not_ready", failed_check=state.failed_check)(scope, receive, send)
                return
        await self._app(scope, receive, send)

    def _open(self) -> None:
        if not self._gateway.is_open:
            _LOGGER.info("all checks have passed; requests are served")
            self._gateway.open()


def create_gateway(services: GatewayServices) -> GatewayApp:
    """Return the application on its services."""
    app = _new_app(services)
    app.state.services = services
    app.state.keys = services.keys
    app.state.rate_limiter = services.rate_limiter
    app.state.failed_logins = services.failed_logins
    app.add_exception_handler(DagmasterError, _on_error)
    app.add_exception_handler(RequestValidationError, _on_invalid)
    app.add_exception_handler(HTTPException, _on_http)
    app.add_middleware(StartupGate, gateway=app)
    app.add_middleware(RequestLimits)
    if services.allowed_hosts is not None:
        app.add_middleware(AllowedHosts, hosts=services.allowed_hosts)
    app.add_middleware(RequestDurations, metrics=services.metrics)
    return app


def gateway_document() -> dict[str, Any]:
    """Return the OpenAPI document of a gateway."""
    app = _new_app(None)
    app.open()
    return app.openapi()


def _new_app(services: GatewayServices | None) -> GatewayApp:
    app = GatewayApp(
        services,
        title="dagmaster gateway",
        version=admin.own_version(),
        description="Submit requests with your own identifiers, and ask how far they are.",
        # A redirect has the scheme that this process sees, and may take a key out of TLS.
        redirect_slashes=False,
        openapi_url=None,
        docs_url=None,
        redoc_url=None,
        lifespan=_lifespan,
    )
    app.include_router(probes.probes.router)
    return app


def route_scopes() -> dict[tuple[str, str], Scope | None]:
    """Return every route of a gateway with the scope that it needs; None: open to all."""
    scopes: dict[tuple[str, str], Scope | None] = {}
    for group in (probes.probes, *GROUPS):
        scopes |= group.scopes
    return scopes


@contextlib.asynccontextmanager
async def _lifespan(app: FastAPI) -> AsyncIterator[None]:
    """Close what the services have opened, where a host says when it stops."""
    yield
    services: GatewayServices = app.state.services
    await services.close()


async def _openapi(request: Request) -> Response:
    described: dict[str, Any] = request.app.openapi()
    setattr(request.state, ANSWER, described)
    return JSONResponse(described)


async def _on_error(_request: Request, error: Exception) -> Response:
    assert isinstance(error, DagmasterError)  # noqa: S101 - for mypy
    if error.category in {Category.INTERNAL, Category.UNAVAILABLE}:
        _LOGGER.error("%s: %s", error.code, error)
    return closed_problems.of_error(error)


async def _on_invalid(_request: Request, error: Exception) -> Response:
    assert isinstance(error, RequestValidationError)  # noqa: S101 - for mypy
    fields = [
        field_problem(".".join(map(str, one["loc"])), one["msg"].removeprefix("Value error, "))
        for one in error.errors()[:MAX_ERRORS]
    ]
    return problem("request_invalid", errors=fields)


async def _on_http(request: Request, error: Exception) -> Response:
    assert isinstance(error, HTTPException)  # noqa: S101 - for mypy
    if isinstance(error.__cause__, DagmasterError):
        # FastAPI wraps what the parser of the body raises.
        return closed_problems.of_error(error.__cause__)
    response = closed_problems.of_status(error.status_code)
    if response.status_code == 405:  # noqa: PLR2004 - the status says it
        response.headers["Allow"] = ", ".join(methods_of(request))
    return response
