"""What the routes of a server work with, and how a route gets it.

Dependencies are coroutines, also those that await nothing: FastAPI calls a plain function in another thread,
which takes longer than all else of a small request.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Annotated

from fastapi import Depends
from starlette.requests import Request

from dagmaster.application.callbacks import Callbacks
from dagmaster.application.context import Application
from dagmaster.application.database_admin import DatabaseAdmin
from dagmaster.application.fleet_monitor import FleetMonitor
from dagmaster.application.health import HealthMonitor
from dagmaster.application.remote_tasks import RemoteTasks
from dagmaster.application.requests import RequestQueue
from dagmaster.application.submission_queue import SubmissionQueue
from dagmaster.host.check_processes import CheckProcesses
from dagmaster.host.system_load import SystemProbe
from dagmaster.http.compiler_threads import CompilerThreads
from dagmaster.http.live_streams import LiveStreams
from dagmaster.http.rate_limits import RateLimiter
from dagmaster.ports.api_keys import ApiKeyStore, TokenVerifier
from dagmaster.ports.api_keys import Caller as CallerRecord
from dagmaster.ports.audit_trail import AuditTrail, ChangeOrigin
from dagmaster.ports.tenants import ALL_TENANTS, TenantStore
from dagmaster.telemetry.prometheus import ProcessMetrics


@dataclass(frozen=True, slots=True, kw_only=True)
class HttpServices:
    """Everything behind the routes, wired by `bootstrap`."""

    application: Application
    keys: ApiKeyStore
    admin: DatabaseAdmin
    tenants: TenantStore
    remote_tasks: RemoteTasks
    callbacks: Callbacks
    tokens: TokenVerifier | None = None
    """Without it, only keys are accepted."""
    rate_limiter: RateLimiter | None = None
    failed_logins: int = 0
    """How many keys and tokens that are not valid one address may send in a minute; 0: any number."""
    allowed_hosts: frozenset[str] | None = None
    """The hosts that requests may name besides this machine's (`http.hosts`); None: any."""
    has_access_log: bool = False
    streams_per_key: int = 0
    """How many live streams one caller may have at once; 0: no limit."""
    metrics: ProcessMetrics = field(default_factory=ProcessMetrics, compare=False, repr=False)
    processes: CheckProcesses | None = field(default=None, compare=False, repr=False)
    """Where texts and inputs of callers are checked; without them, in threads."""
    system: SystemProbe = field(default_factory=SystemProbe, compare=False, repr=False)
    """The machine of the server, and the disk of its data."""
    admin_key: str | None = field(default=None, repr=False)
    """A key with the scope admin that is in no database."""
    health: HealthMonitor = field(init=False, compare=False, repr=False)
    fleet: FleetMonitor = field(init=False, compare=False, repr=False)
    live: LiveStreams = field(init=False, compare=False, repr=False)
    submissions: SubmissionQueue = field(init=False, compare=False, repr=False)
    requests: RequestQueue = field(init=False, compare=False, repr=False)
    _healths: dict[str, HealthMonitor] = field(default_factory=dict, compare=False, repr=False)
    compiler: CompilerThreads = field(init=False, compare=False, repr=False)

    def health_of(self, caller: CallerRecord) -> HealthMonitor:
        """Return the health of what a caller sees: its own, and the services of the installation."""
        monitor = self._healths.get(caller.sees)
        if monitor is None:
            app = self.application.for_tenant(caller.sees)
            monitor = self._healths[caller.sees] = HealthMonitor(app, self.admin.schema, self.system)
        return monitor

    def audit_of(self, caller: CallerRecord) -> AuditTrail:
        """Return the audit trail that a caller reads and writes: that of its tenant."""
        return self.admin.changes.for_tenant(caller.sees)

    def keys_of(self, caller: CallerRecord) -> ApiKeyStore:
        """Return the keys and sessions that a caller administers: its tenant's."""
        return self.keys.for_tenant(caller.sees)

    def __post_init__(self) -> None:
        object.__setattr__(self, "health", HealthMonitor(self.application, self.admin.schema, self.system))
        object.__setattr__(self, "fleet", FleetMonitor(self.application))
        self._healths[ALL_TENANTS] = self.health
        object.__setattr__(self, "live", LiveStreams(self.application, self.streams_per_key))
        object.__setattr__(self, "submissions", SubmissionQueue(self.application))
        object.__setattr__(self, "requests", RequestQueue())
        compiler = CompilerThreads(self.processes)
        object.__setattr__(self, "compiler", compiler)
        object.__setattr__(self.application, "checks", compiler)
        # Also stored graphs: the first request about a job of a large workflow must not stop the others.
        for cache in (
            self.application.graphs,
            self.application.outlines,
            self.application.explained_outlines,
        ):
            cache.run = compiler.run


async def database_admin(request: Request) -> DatabaseAdmin:
    return _services(request).admin


async def callbacks_of(request: Request) -> Callbacks:
    """Return the callbacks that the caller sees."""
    return _services(request).callbacks.for_tenant(_caller(request).sees)


async def services(request: Request) -> HttpServices:
    return _services(request)


async def remote_tasks(request: Request) -> RemoteTasks:
    """Return the tasks that workers of the caller may get."""
    return _services(request).remote_tasks.for_tenant(_caller(request).works_for)


async def live_streams(request: Request) -> LiveStreams:
    return _services(request).live


async def compiler_threads(request: Request) -> CompilerThreads:
    return _services(request).compiler


async def caller(request: Request) -> CallerRecord:
    """Return who sent the request: the route has checked the key or token, and its scope."""
    return _caller(request)


async def origin(request: Request) -> ChangeOrigin:
    return _origin(request)


async def application(request: Request) -> Application:
    """Return the application layer, on behalf of the caller."""
    return _services(request).application.on_behalf_of(_origin(request), _caller(request))


def _services(request: Request) -> HttpServices:
    wired: HttpServices = request.app.state.services
    return wired


def _caller(request: Request) -> CallerRecord:
    record: CallerRecord = request.state.caller
    return record


def _origin(request: Request) -> ChangeOrigin:
    sender = _caller(request)
    return ChangeOrigin(actor=sender.actor, request_id=request.state.request_id, key_id=sender.key_id)


Admin = Annotated[DatabaseAdmin, Depends(database_admin)]
OpenedCallbacks = Annotated[Callbacks, Depends(callbacks_of)]
Services = Annotated[HttpServices, Depends(services)]
App = Annotated[Application, Depends(application)]
Caller = Annotated[CallerRecord, Depends(caller)]
Origin = Annotated[ChangeOrigin, Depends(origin)]
Compiler = Annotated[CompilerThreads, Depends(compiler_threads)]
Live = Annotated[LiveStreams, Depends(live_streams)]
Tasks = Annotated[RemoteTasks, Depends(remote_tasks)]
