"""A client of the API over an application in memory: real routes and requests, without a socket."""

from __future__ import annotations

import asyncio
import contextlib
import re
from dataclasses import replace
from functools import cache
from typing import TYPE_CHECKING, Any, cast

import httpx

from dagmaster.application.api_keys import create_key
from dagmaster.application.callbacks import Callbacks
from dagmaster.application.database_admin import DatabaseAdmin
from dagmaster.application.job_watch import watch_job
from dagmaster.application.remote_tasks import RemoteTasks
from dagmaster.bootstrap.shipped_handlers import shipped_names
from dagmaster.http.aliases import resolve_alias
from dagmaster.http.app import create_app
from dagmaster.http.services import HttpServices
from dagmaster.ports.api_keys import Scope
from dagmaster.ports.audit_trail import ChangeOrigin
from dagmaster.sdk.handler_registry import Registry, handler
from dagmaster.store.memory.api_key_store import MemoryApiKeyStore
from dagmaster.store.memory.callback_store import MemoryCallbackStore
from dagmaster.store.memory.client_store import MemoryClientStore
from dagmaster.store.memory.database_admin import MemoryInvariantAuditor, MemoryMetricRebuilder
from dagmaster.store.memory.remote_workers import MemoryRemoteWorkers
from dagmaster.store.memory.schema_admin import MemorySchemaAdmin
from dagmaster.store.memory.tenant_store import MemoryTenantStore
from dagmaster.telemetry.traces import instrument_server
from tests.patience import PATIENCE_SECONDS
from tests.unit.application.memory_application import memory_application, served_application

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Sequence

    from fastapi import FastAPI

    from dagmaster.application.context import Application
    from dagmaster.store.memory.read_store import MemoryReadStore

SECRETS = {"TOKEN": "canary-of-the-server"}
FLOW = """
workflow_id: hello
version: 1
inputs: {name: {type: string, default: world}}
nodes:
  greet: {handler: greet, queue: q, params: {name: "{{ inputs.name }}"}, next: ask}
  ask: {type: approval, message: "go on?"}
"""


@handler("greet", queue="q")
async def greet(name: str) -> dict[str, Any]:
    return {"text": f"hello {name}"}


@cache
def documented_codes() -> list[tuple[str, re.Pattern[str], dict[int, set[str]]]]:
    """Return the codes of errors that each operation documents, in the order of the routes."""
    document = create_app(memory_services(memory_application())).openapi()
    shared = document["components"]["responses"]
    operations = []
    for path, methods in document["paths"].items():
        pattern = re.compile(re.sub(r"\{\w+\}", "[^/]+", path))
        for method, operation in methods.items():
            answers = {
                status: shared[answer["$ref"].rpartition("/")[2]] if "$ref" in answer else answer
                for status, answer in operation["responses"].items()
            }
            codes = {
                int(status): set(answer["x-codes"])
                for status, answer in answers.items()
                if "x-codes" in answer
            }
            operations.append((method.upper(), pattern, codes))
    return operations


DOCUMENTED_STATUSES = {400, 401, 403, 404, 408, 409, 412, 413, 415, 422, 429}


def find_undocumented(response: httpx.Response) -> str:
    """Return the error of an answer that the document of its operation does not name; empty if it does."""
    path, method, status = (
        resolve_alias(response.request.url.path),
        response.request.method,
        response.status_code,
    )
    for known_method, pattern, codes in documented_codes():
        if status in DOCUMENTED_STATUSES and known_method == method and pattern.fullmatch(path):
            code = response.json()["code"]
            return "" if code in codes.get(status, ()) else f"{method} {path}: {status} {code}"
    return ""


async def check_documented(response: httpx.Response) -> None:
    """Fail if an operation answers with an error that its document does not name."""
    if response.status_code in DOCUMENTED_STATUSES:
        await response.aread()
        assert not find_undocumented(response)


class Api:
    """Requests with a key of some scopes. An error that the document does not name fails the test."""

    def __init__(self, http: httpx.AsyncClient, services: HttpServices, app: FastAPI) -> None:
        self.http = http
        self.app = app
        self.keys = services.keys
        self.services = services
        self.application = services.application
        self.headers: dict[str, str] = {}

    async def use_key(self, *scopes: Scope, name: str = "ada") -> str:
        view = await create_key(self.keys, name, scopes, origin=ChangeOrigin(actor="test"), now=0.0)
        self.headers = {"Authorization": f"Bearer {view.key}"}
        return view.key

    async def get(self, path: str, **params: Any) -> httpx.Response:
        return await self.http.get(path, params=params, headers=self.headers)

    async def post(self, path: str, json: Any = None, **options: Any) -> httpx.Response:
        headers = {**self.headers, **options.pop("headers", {})}
        return await self.http.post(path, json=json, headers=headers, **options)

    async def until(self, job_id: str, status: str) -> None:
        """Wait until a job has a status."""
        async with asyncio.timeout(PATIENCE_SECONDS):
            async for view in watch_job(self.application, job_id):
                if view.status == status:
                    return

    async def publish(self, text: str = FLOW) -> None:
        answer = await self.post("/api/v1/workflows", {"text": text})
        assert answer.status_code == 201, answer.text


def memory_services(application: Application) -> HttpServices:
    """Return the services of a server whose stores are in memory."""
    database = cast("MemoryReadStore", application.read)._database
    assert isinstance(application.client, MemoryClientStore)
    audit_trail = application.client.audit_trail
    return HttpServices(
        application=application,
        keys=MemoryApiKeyStore(audit_trail=audit_trail),
        callbacks=Callbacks(MemoryCallbackStore(audit_trail=audit_trail), application.vault),
        admin=DatabaseAdmin(
            schema=MemorySchemaAdmin(),
            auditor=MemoryInvariantAuditor(database),
            metrics=MemoryMetricRebuilder(database),
            changes=audit_trail,
            outputs=database.blobs,
        ),
        tenants=MemoryTenantStore(audit_trail=audit_trail),
        remote_tasks=RemoteTasks(
            MemoryRemoteWorkers(database),
            database.blobs,
            SECRETS.get,
            lease_seconds=6.0,
            vault=application.vault,
            shipped=shipped_names(),
        ),
    )


@contextlib.asynccontextmanager
async def opened_api(*handlers: Any, queues: Sequence[str] = (), **options: Any) -> AsyncIterator[Api]:
    """Serve the API; an orchestrator and a worker with these handlers and queues run its jobs. The client has the scope admin.

    `extensions`: served next to the API. Other `options`: of `HttpServices`.
    """
    extensions = options.pop("extensions", ())
    async with served_application(
        Registry([greet, *handlers]), options.get("metrics"), queues
    ) as application:
        services = replace(memory_services(application), **options)
        app = create_app(services, *extensions)
        instrument_server(app)
        transport = httpx.ASGITransport(app, raise_app_exceptions=False)
        hooks = {"response": [check_documented]}
        async with httpx.AsyncClient(transport=transport, base_url="http://test", event_hooks=hooks) as http:
            api = Api(http, services, app)
            await api.use_key(Scope.ADMIN)
            yield api
