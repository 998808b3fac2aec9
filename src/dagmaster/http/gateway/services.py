"""What the routes of a gateway work with, and how a route gets it.

Dependencies are coroutines, as in `http.services`.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Mapping
from dataclasses import dataclass, field
from typing import Annotated, Final, Protocol

import httpx
from fastapi import Depends
from starlette.requests import Request

from dagmaster.errors import ScopeMissing
from dagmaster.http.auth import KeyChecker
from dagmaster.http.failed_logins import FailedLogins
from dagmaster.http.gateway.startup import StartupChecks
from dagmaster.http.gateway.submit_batches import SubmitBatches
from dagmaster.http.gateway.upstream import Upstream
from dagmaster.http.rate_limits import RateLimiter
from dagmaster.ports.api_keys import Caller as CallerRecord
from dagmaster.ports.gateway import GatewayStore
from dagmaster.records.gateway import AdminConfigResponse
from dagmaster.records.requests import RequestStatusRecord
from dagmaster.telemetry.prometheus import ProcessMetrics

TARGETS: Final = ("orchestrator", "worker")
"""What the proxy forwards to, if the settings have its address. There is no other target."""


class StatusReader(Protocol):
    """Reads the status of requests."""

    async def status(self, caller: CallerRecord, request_id: str) -> RequestStatusRecord:
        """Return how far a request of a caller is; raise `RequestNotFound`."""

    async def result_key(self, caller: CallerRecord, request_id: str) -> str | None:
        """Return what signs the links to the result of a request of a caller; None without a key for it."""


@dataclass(frozen=True, slots=True, kw_only=True)
class GatewayServices:
    """Everything behind the routes of a gateway, wired by `bootstrap`."""

    store: GatewayStore
    requests: StatusReader
    keys: KeyChecker
    failed_logins: FailedLogins
    checks: StartupChecks
    upstream: Upstream
    client: httpx.AsyncClient
    targets: Mapping[str, str]
    config: Callable[[], AdminConfigResponse]
    close: Callable[[], Awaitable[None]]
    metrics: ProcessMetrics = field(default_factory=ProcessMetrics)
    rate_limiter: RateLimiter | None = None
    allowed_hosts: frozenset[str] | None = None
    """The hosts that requests may name besides this machine's (`http.hosts`); None: any."""
    submits: SubmitBatches = field(init=False, compare=False, repr=False)

    def __post_init__(self) -> None:
        object.__setattr__(self, "submits", SubmitBatches(self.upstream))


async def services(request: Request) -> GatewayServices:
    wired: GatewayServices = request.app.state.services
    return wired


async def caller(request: Request) -> CallerRecord:
    """Return who sent the request: the route has checked the key or token, and its scope."""
    record: CallerRecord = request.state.caller
    return record


async def installation_admin(request: Request) -> CallerRecord:
    """Return an administrator of the installation; raise `ScopeMissing` for one of a tenant."""
    record: CallerRecord = request.state.caller
    if not record.is_installation_admin:
        raise ScopeMissing("this is for administrators of the installation, and not of a tenant")
    return record


Services = Annotated[GatewayServices, Depends(services)]
Caller = Annotated[CallerRecord, Depends(caller)]
InstallationAdmin = Annotated[CallerRecord, Depends(installation_admin)]
