"""The ASGI application: routes, problems, limits, and the OpenAPI document."""

from __future__ import annotations

from importlib.metadata import version
from typing import TYPE_CHECKING, Any, Final, Protocol

from fastapi import FastAPI

from dagmaster.http import health, job_socket, openapi, problems, prometheus
from dagmaster.http.access_log import AccessLog
from dagmaster.http.api import (
    admin,
    callbacks,
    control,
    definitions,
    events,
    fleet,
    graphs,
    handlers,
    jobs,
    metrics,
    nodes,
    requests,
    streams,
    submissions,
    tasks,
    tenants,
    workflows,
)
from dagmaster.http.auth import KeyChecker
from dagmaster.http.etags import with_etag
from dagmaster.http.event_stream import Compression
from dagmaster.http.failed_logins import FailedLogins
from dagmaster.http.hosts import AllowedHosts
from dagmaster.http.openapi import API
from dagmaster.http.request_durations import RequestDurations
from dagmaster.http.request_limits import RequestLimits
from dagmaster.http.tenant_guard import TenantGuard

if TYPE_CHECKING:
    from starlette.requests import Request
    from starlette.responses import Response

    from dagmaster.http.services import HttpServices
    from dagmaster.ports.api_keys import Reach, Scope

GROUPS: Final = (
    submissions.routes,
    requests.routes,
    definitions.routes,
    jobs.routes,
    nodes.routes,
    events.routes,
    streams.routes,
    control.routes,
    workflows.routes,
    fleet.routes,
    metrics.routes,
    tasks.routes,
    # After the lists of tasks: the id of a task would match their names.
    graphs.routes,
    handlers.routes,
    admin.routes,
    tenants.routes,
    callbacks.routes,
)


class Extension(Protocol):
    """Routes in addition to the API, wired by `bootstrap`: the web page."""

    def install(self, app: FastAPI) -> None:
        """Add the routes to an application."""


def create_app(services: HttpServices, *extensions: Extension) -> FastAPI:
    """Return the API on its services, and what is served next to it."""
    app = Api(
        title="dagmaster",
        version=version("dagmaster"),
        description="Durable workflows. Every answer is what the command line prints with --json.",
        # A redirect has the scheme that this server sees: behind a proxy with TLS, it would take the key out
        # of TLS.
        redirect_slashes=False,
        openapi_url=None,
        docs_url=None,
        redoc_url=None,
    )
    app.state.services = services
    guard = TenantGuard(services.tenants, services.admin.schema)
    app.state.keys = KeyChecker(services.keys, services.tokens, admin_key=services.admin_key, guard=guard)
    app.state.rate_limiter = services.rate_limiter
    app.state.failed_logins = FailedLogins(services.failed_logins, services.metrics)
    problems.install(app)
    for group in GROUPS:
        app.include_router(group.router, prefix=API)
    app.include_router(health.routes.router)
    app.include_router(callbacks.keys_routes.router)
    app.include_router(job_socket.router)
    app.include_router(prometheus.routes.router)
    app.add_route("/openapi.json", _openapi)
    for extension in extensions:
        extension.install(app)
    # The graph of 5,000 nodes: 36 KB in 95 ms at level 9, 41 KB in 5 ms at level 4 (2026-11).
    app.add_middleware(Compression, minimum_size=1_000, compresslevel=4)
    app.add_middleware(RequestLimits)
    if services.allowed_hosts is not None:
        app.add_middleware(AllowedHosts, hosts=services.allowed_hosts)
    app.add_middleware(RequestDurations, metrics=services.metrics)
    if services.has_access_log:
        app.add_middleware(AccessLog)
    return app


def route_scopes() -> dict[tuple[str, str], Scope | None]:
    """Return every route of the API with the scope that it needs; None: open to all.

    WebSockets have the method WS.
    """
    scopes = {
        (method, API + path): scope for group in GROUPS for (method, path), scope in group.scopes.items()
    }
    return (
        scopes
        | health.routes.scopes
        | callbacks.keys_routes.scopes
        | prometheus.routes.scopes
        | job_socket.SCOPES
    )


def route_reaches() -> dict[tuple[str, str], Reach]:
    """Return every route of the API with what it is about."""
    reaches = {
        (method, API + path): reach for group in GROUPS for (method, path), reach in group.reaches.items()
    }
    return (
        reaches
        | health.routes.reaches
        | callbacks.keys_routes.reaches
        | prometheus.routes.reaches
        | job_socket.REACHES
    )


class Api(FastAPI):
    """FastAPI with our own document."""

    def openapi(self) -> dict[str, Any]:
        if self.openapi_schema is None:
            openapi.complete(super().openapi(), [model for group in GROUPS for model in group.lines])
        return self.openapi_schema or {}


async def _openapi(request: Request) -> Response:
    return with_etag(request, request.app.openapi())
