"""A gateway over stores in memory and a server that a test scripts, with keys of two tenants."""

from __future__ import annotations

import contextlib
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

import httpx

from dagmaster.application.api_keys import digest_of
from dagmaster.errors import RequestNotFound
from dagmaster.http.auth import KeyChecker
from dagmaster.http.failed_logins import FailedLogins
from dagmaster.http.gateway.app import GatewayApp, create_gateway
from dagmaster.http.gateway.services import GatewayServices
from dagmaster.http.gateway.startup import StartupChecks
from dagmaster.http.gateway.upstream import Upstream, make_client
from dagmaster.ports.api_keys import ApiKeyRecord, Scope
from dagmaster.ports.callbacks import PublicKey
from dagmaster.ports.gateway import AliveServices
from dagmaster.records.gateway import (
    AdminConfigResponse,
    ConfigItem,
    InternalEvent,
    InternalJobStatusResponse,
    InternalNodeStatus,
)
from dagmaster.records.requests import RequestProgressRecord, RequestStatus, RequestStatusRecord
from dagmaster.store.memory.api_key_store import MemoryApiKeyStore
from dagmaster.telemetry.prometheus import ProcessMetrics

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Callable

    from dagmaster.ports.api_keys import Caller

SERVER = "http://server.internal:8420"
WORKER = "http://worker.internal:9000/base"
REQUEST_ID = "4f0c5f4e-4f0b-4f5e-9d6b-3c5cfd8cf1e1"
RESULT_KEY = "0d5bd6ff-6c1c-4d6f-9d6b-3c5cfd8cf1e2"
JOB_ID = "116253640196554752"
SUBMIT = {"workflow_id": "hello", "input_params": {"name": "ada"}, "submitted_by": "portal"}
RESULT = {"outcome": "accepted", "request_id": REQUEST_ID, "workflow_id": "hello", "submitted_at": "2026-11-19T08:00:00Z", "job_id": JOB_ID, "is_new": True, "error": None}  # fmt: skip
"""What a server answers to a submit: more than a partner may see."""


def job(job_id: str = JOB_ID) -> InternalJobStatusResponse:
    return InternalJobStatusResponse(
        job_id=job_id,
        workflow_id="hello",
        status="RUNNING",
        correlation_id=REQUEST_ID,
        created_at=1.0,
        started_at=2.0,
        completed_at=None,
        error_message=None,
        owner_id="7",
    )


@dataclass
class ScriptedStore:
    """The reads of a gateway. `calls`: what was asked, with the tenant; `error`: what each read raises."""

    calls: list[tuple[Any, ...]] = field(default_factory=list)
    error: Exception | None = None

    def _note(self, *call: Any) -> None:
        self.calls.append(call)
        if self.error is not None:
            raise self.error

    async def public_keys(self, key_set: str | None) -> list[PublicKey]:
        self._note("public_keys", key_set)
        return [PublicKey("sec_1", "whpk_x", None)]

    async def alive_services(self) -> AliveServices:
        self._note("alive_services")
        return AliveServices(orchestrators=1, workers=2)

    async def jobs(self, tenant: str, query: Any) -> list[InternalJobStatusResponse]:
        self._note("jobs", tenant, query)
        return [job(str(number)) for number in range(query.limit)]

    async def job(self, tenant: str, job_id: str) -> InternalJobStatusResponse | None:
        self._note("job", tenant, job_id)
        return job() if job_id == JOB_ID else None

    async def find_jobs(self, tenant: str, **query: Any) -> list[InternalJobStatusResponse]:
        self._note("find_jobs", tenant, query)
        return [job()]

    async def counts(self, tenant: str) -> dict[str, int]:
        self._note("counts", tenant)
        return {"RUNNING": 2, "FAILED": 1}

    async def started_nodes(
        self, tenant: str, job_ids: list[str], *, limit: int
    ) -> dict[str, list[InternalNodeStatus]]:
        self._note("started_nodes", tenant, job_ids)
        return {job_id: [InternalNodeStatus(node_id="greet", status="RUNNING")] for job_id in job_ids}

    async def nodes(
        self, tenant: str, job_id: str, *, after: str, limit: int
    ) -> list[InternalNodeStatus] | None:
        self._note("nodes", tenant, job_id, after)
        return (
            [InternalNodeStatus(node_id=f"n{number}", status="PENDING") for number in range(limit)]
            if job_id == JOB_ID
            else None
        )

    async def events(self, tenant: str, job_id: str, *, after: int, limit: int) -> list[InternalEvent] | None:
        self._note("events", tenant, job_id, after)
        event = InternalEvent(
            event_id=1,
            event_type="JobStarted",
            created_at=1.0,
            source="orchestrator 7",
            node_id=None,
            attempt=None,
        )
        return [event] if job_id == JOB_ID else None

    async def result_key(self, caller: Caller, request_id: str) -> str | None:
        self._note("result_key", caller.sees, request_id)
        return RESULT_KEY if request_id == REQUEST_ID and caller.sees in ("acme", "*") else None

    async def status(self, caller: Caller, request_id: str) -> RequestStatusRecord:
        self._note("status", caller.sees, request_id)
        if request_id != REQUEST_ID or caller.sees not in ("acme", "*"):
            raise RequestNotFound("there is no such request")
        return RequestStatusRecord(
            request_id=request_id,
            workflow_id="hello",
            status=RequestStatus.COMPLETED,
            submitted_at=1.0,
            completed_at=2.0,
            progress=RequestProgressRecord(
                percent=100.0, total=1, completed=1, running=0, pending=0, failed=0, skipped=0, cancelled=0
            ),
            result={"anything": {"the author": "chooses"}},
            result_omitted=None,
            error=None,
            error_code=None,
        )


class Gateway:
    """A gateway and its client. `server`: what the server behind it answers; `sent`: what it was sent."""

    def __init__(self) -> None:
        self.store = ScriptedStore()
        self.sent: list[httpx.Request] = []
        self.server: Callable[[httpx.Request], httpx.Response] = lambda _: httpx.Response(202, json=RESULT)
        self.failure = ""
        self.keys: dict[str, str] = {}
        self.app: GatewayApp
        self.http: httpx.AsyncClient

    async def run_check(self) -> str:
        """Return why the check fails; empty: it passes."""
        return self.failure

    async def answer(self, request: httpx.Request) -> httpx.Response:
        await request.aread()
        self.sent.append(request)
        return self.server(request)

    def key(self, name: str) -> dict[str, str]:
        return {"Authorization": f"Bearer {self.keys[name]}"}

    async def request(
        self, method: str, path: str, key: str | None = "acme", **options: Any
    ) -> httpx.Response:
        headers = {**({} if key is None else self.key(key)), **options.pop("headers", {})}
        return await self.http.request(method, path, headers=headers, **options)

    async def get(self, path: str, key: str | None = "acme", **options: Any) -> httpx.Response:
        return await self.request("GET", path, key, **options)

    async def post(self, path: str, json: Any, key: str | None = "acme", **options: Any) -> httpx.Response:
        return await self.request("POST", path, key, json=json, **options)


KEYS = {
    "acme": ("acme", {Scope.SUBMIT, Scope.READ}),
    "submit": ("acme", {Scope.SUBMIT}),
    "read": ("acme", {Scope.READ}),
    "operate": ("acme", {Scope.OPERATE}),
    "work": ("acme", {Scope.WORK}),
    "acme admin": ("acme", {Scope.ADMIN}),
    "other": ("other", {Scope.SUBMIT, Scope.READ}),
    "default": ("default", {Scope.SUBMIT, Scope.READ}),
    "admin": ("default", {Scope.ADMIN}),
}
"""Names of keys, with their tenant and scopes."""


@contextlib.asynccontextmanager
async def opened_gateway(**options: Any) -> AsyncIterator[Gateway]:
    """Serve a gateway. `options`: of `GatewayServices`."""
    gateway = Gateway()
    keys, metrics = MemoryApiKeyStore(), ProcessMetrics()
    for number, (name, (tenant, scopes)) in enumerate(KEYS.items()):
        text = f"dm_{number:012x}_{'k' * 43}"
        gateway.keys[name] = text
        record = ApiKeyRecord(key_id=f"{number:012x}", name=name, scopes=frozenset(scopes), tenant=tenant, created_at=0.0, created_by="test")  # fmt: skip
        await keys.add(record, digest_of(text))
    async with make_client(httpx.MockTransport(gateway.answer)) as client:
        settings = AdminConfigResponse(
            settings=(ConfigItem(name="orchestrator_url", value=SERVER, source="x"),)
        )
        services: dict[str, Any] = {
            "store": gateway.store,
            "requests": gateway.store,
            "keys": KeyChecker(keys),
            "failed_logins": FailedLogins(0, metrics),
            "metrics": metrics,
            "checks": StartupChecks({"database": gateway.run_check}),
            "upstream": Upstream(SERVER, client, metrics),
            "client": client,
            "targets": {"orchestrator": SERVER, "worker": WORKER},
            "config": lambda: settings,
            "close": client.aclose,
            **options,
        }
        gateway.app = create_gateway(GatewayServices(**services))
        transport = httpx.ASGITransport(gateway.app)
        async with httpx.AsyncClient(transport=transport, base_url="http://localhost") as http:
            gateway.http = http
            yield gateway
