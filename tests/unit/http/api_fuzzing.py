"""Requests that schemathesis makes from the OpenAPI document, valid and invalid, against the API on a real socket.

Half of them name jobs, nodes and workflows that exist, so that they get past the look-up.
"""

from __future__ import annotations

import asyncio
import contextlib
import itertools
import json
import socket
import time
import warnings
from collections import Counter
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Final

import httpx
import hypothesis
import schemathesis
from schemathesis.core.failures import FailureGroup
from schemathesis.core.transport import Response
from schemathesis.specs.openapi.checks import content_type_conformance, response_schema_conformance

from dagmaster.application.api_keys import allows, create_key
from dagmaster.bootstrap.http_server import ServerService
from dagmaster.http.app import create_app, route_scopes
from dagmaster.http.server import HttpServer
from dagmaster.ports.api_keys import Scope
from dagmaster.ports.audit_trail import ChangeOrigin
from dagmaster.ports.database_config import DatabaseConfig
from dagmaster.sdk.handler_registry import Registry
from dagmaster.settings import load_settings
from dagmaster.store.postgres.api_key_store import PostgresApiKeyStore
from tests.unit.application.memory_application import served_application
from tests.unit.http.api_client import FLOW, find_undocumented, greet, memory_services

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Iterator
    from contextlib import AbstractAsyncContextManager
    from pathlib import Path

    from dagmaster.ports.api_keys import ApiKeyStore

SLOWEST_SECONDS: Final = 2.0
MODES: Final = (schemathesis.GenerationMode.POSITIVE, schemathesis.GenerationMode.NEGATIVE)
CHECKS: Final = [content_type_conformance, response_schema_conformance]
EXPECTED_503: Final = {"/readyz", "/health"}
"""They answer so when a part is missing, as in this world."""


@schemathesis.serializer("application/x-ndjson")
def write_lines(_context: Any, value: Any) -> bytes:
    """Write a body of lines: a text, or whatever else is sent instead."""
    return (value if isinstance(value, str) else json.dumps(value)).encode()


@dataclass(slots=True)
class FuzzReport:
    """What was sent, and what is wrong with the answers."""

    statuses: Counter[int] = field(default_factory=Counter)
    operations: set[str] = field(default_factory=set)
    failures: list[str] = field(default_factory=list)
    slowest: tuple[float, str] = (0.0, "")


def make_cases(seed: int, examples: int, document: dict[str, Any] | None = None) -> Iterator[Any]:
    """Return requests: for each operation so many valid ones, and as many that are not.

    `document`: by default that of a server.
    """
    described = document or create_app(memory_services(_unused_application())).openapi()
    schema = schemathesis.openapi.from_dict(described)
    for result, mode in itertools.product(list(schema.get_all_operations()), MODES):
        yield from _draw(result.ok().as_strategy(generation_mode=mode), seed, examples)


def _draw(strategy: Any, seed: int, examples: int) -> list[Any]:
    cases: list[Any] = []

    @hypothesis.seed(seed)
    @hypothesis.settings(
        max_examples=examples,
        database=None,
        deadline=None,
        phases=[hypothesis.Phase.generate],
        suppress_health_check=list(hypothesis.HealthCheck),
    )
    @hypothesis.given(strategy)
    def collect(case: Any) -> None:
        cases.append(case)

    # An operation without parameters has no invalid request.
    with contextlib.suppress(hypothesis.errors.Unsatisfiable, schemathesis.errors.SchemathesisError):
        collect()
    return cases


async def fuzz_api(
    cases: Iterator[Any], opened: AbstractAsyncContextManager[World], *, seconds: float, walks_scopes: bool
) -> FuzzReport:
    """Send requests, each with a key that may.

    `walks_scopes`: send one of each operation with the keys of all scopes and with none, too.
    """
    report = FuzzReport()
    deadline = time.monotonic() + seconds
    scopes = route_scopes()
    seen: set[str] = set()
    async with opened as world:
        for number, case in enumerate(cases):
            if time.monotonic() > deadline:
                break
            needed = scopes[case.method.upper(), case.operation.path]
            if number % 2:
                world.use_real_names(case)
            # A key of the scope that is needed, and one of admin: work is not part of that.
            is_own_scope = needed is Scope.WORK or number // 2 % 2
            await world.send(case, needed if is_own_scope else Scope.ADMIN, report)
            report.operations.add(case.operation.label)
            if walks_scopes and case.operation.label not in seen:
                seen.add(case.operation.label)
                for scope in (None, *Scope):
                    status = await world.send(case, scope, report)
                    is_allowed = needed is None or (scope is not None and allows({scope}, needed))
                    # Of its own jobs, a key with submit may read, and a resume with other inputs is a submission.
                    is_either = scope is Scope.SUBMIT and needed is Scope.READ
                    is_either |= scope is Scope.OPERATE and case.operation.path.endswith("/resume")
                    if not is_either and (status in (401, 403)) == is_allowed:
                        report.failures.append(f"{case.operation.label} with the scope {scope}: {status}")
    return report


class World:
    """The API on a socket, with a workflow, jobs and a key for each scope."""

    def __init__(self, http: httpx.AsyncClient, keys: dict[Scope | None, str], job_ids: list[str]) -> None:
        self._http = http
        self._keys = keys
        self._job_ids = itertools.cycle(job_ids)
        self._nodes = itertools.cycle(["greet", "ask", "none"])

    def use_real_names(self, case: Any) -> None:
        """Let a request name what exists."""
        names = {"job_id": next(self._job_ids), "node_id": next(self._nodes), "workflow_id": "hello"}
        for name in case.path_parameters or {}:
            case.path_parameters[name] = names.get(name, case.path_parameters[name])
        if isinstance(case.body, dict) and "workflow_id" in case.body:
            case.body["workflow_id"] = "hello"

    async def send(self, case: Any, scope: Scope | None, report: FuzzReport) -> int:
        """Send a request; record what is wrong with the answer."""
        if isinstance(case.query, dict) and "wait_seconds" in case.query:
            # A caller may ask to wait for half a minute.
            case.query["wait_seconds"] = 0.1
        arguments = case.as_transport_kwargs(base_url=str(self._http.base_url))
        arguments["headers"] = {
            name: value
            for name, value in arguments["headers"].items()
            if name.lower() not in ("authorization", "x-api-key")
        }
        if scope is not None:
            arguments["headers"]["Authorization"] = f"Bearer {self._keys[scope]}"
        if "json" in arguments:
            arguments["content"] = json.dumps(arguments.pop("json")).encode()
        elif "data" in arguments:
            arguments["content"] = arguments.pop("data")
        label = f"{case.operation.label} ({scope}): {case.as_curl_command()[:2_000]}"
        started = time.monotonic()
        try:
            request = self._http.build_request(**arguments)
        except (httpx.InvalidURL, UnicodeEncodeError, ValueError, TypeError):
            # It cannot be written as HTTP at all.
            return 400
        answer = await self._http.send(request, stream=True)
        if answer.headers.get("content-type", "").startswith("text/event-stream"):
            await answer.aclose()
            report.statuses[answer.status_code] += 1
            return answer.status_code
        await answer.aread()
        await answer.aclose()
        report.slowest = max(report.slowest, (time.monotonic() - started, label))
        report.statuses[answer.status_code] += 1
        self._check(case, answer, label, report)
        return answer.status_code

    def _check(self, case: Any, answer: httpx.Response, label: str, report: FuzzReport) -> None:
        if answer.status_code == 503 and answer.json().get("code") == "requests_unavailable":
            # Of stores in memory. On PostgreSQL it is never answered.
            return
        if answer.status_code >= 500 and case.operation.path not in EXPECTED_503:
            report.failures.append(f"{label}\n{answer.status_code} {answer.text[:500]}")
        if answer.status_code >= 400 and answer.status_code != 503:
            if answer.headers.get("content-type") != "application/problem+json":
                report.failures.append(
                    f"{label}\n{answer.status_code} is no problem document: {answer.text[:500]}"
                )
            elif undocumented := find_undocumented(answer):
                report.failures.append(f"{label}\nnot in the document: {undocumented}")
        else:
            try:
                case.validate_response(Response.from_httpx(answer, verify=False), checks=CHECKS)
            except FailureGroup as failures:
                report.failures.append(f"{label}\n{answer.status_code} {failures} {answer.text[:500]}")


@contextlib.asynccontextmanager
async def memory_world() -> AsyncIterator[World]:
    """Serve stores in memory; an orchestrator and a worker run the jobs."""
    async with served_application(Registry([greet])) as application:
        services = memory_services(application)
        listener = socket.create_server(("127.0.0.1", 0))
        server = HttpServer(create_app(services), listener)
        running = asyncio.create_task(server.run_until_stopped())
        await server.ready.wait()
        try:
            async with _filled_world(listener, await _keys(services.keys)) as world:
                yield world
        finally:
            server.stop()
            await running


@contextlib.asynccontextmanager
async def postgres_world(dsn: str, folder: Path) -> AsyncIterator[World]:
    """Serve a database as `dagmaster server` does. No orchestrator runs: its jobs stay as they are."""
    store = PostgresApiKeyStore(DatabaseConfig(dsn=dsn))
    keys = await _keys(store)
    await store.close()
    listener = socket.create_server(("127.0.0.1", 0))
    service = ServerService(DatabaseConfig(dsn=dsn), load_settings(), folder, listener)
    running = asyncio.create_task(service.run())
    await service.ready.wait()
    try:
        async with _filled_world(listener, keys) as world:
            yield world
    finally:
        service.stop()
        await running


async def _keys(store: ApiKeyStore) -> dict[Scope | None, str]:
    origin = ChangeOrigin(actor="fuzz")
    return {
        scope: (await create_key(store, scope.value, [scope], origin=origin, now=time.time())).key
        for scope in Scope
    }


@contextlib.asynccontextmanager
async def _filled_world(listener: socket.socket, keys: dict[Scope | None, str]) -> AsyncIterator[World]:
    url = f"http://127.0.0.1:{listener.getsockname()[1]}"
    async with httpx.AsyncClient(base_url=url, timeout=60) as http:
        headers = {"Authorization": f"Bearer {keys[Scope.ADMIN]}"}
        await http.post("/api/v1/workflows", json={"text": FLOW}, headers=headers)
        jobs = [
            (await http.post("/api/v1/jobs", json={"workflow_id": "hello"}, headers=headers)).json()["job_id"]
            for _ in range(3)
        ]
        await http.post(f"/api/v1/jobs/{jobs[0]}/cancel", headers=headers)
        yield World(http, keys, jobs)


def _unused_application() -> Any:
    from tests.unit.application.memory_application import memory_application

    return memory_application()


def run_fuzz(
    seed: int,
    examples: int,
    *,
    world: AbstractAsyncContextManager[World] | None = None,
    seconds: float = float("inf"),
    walks_scopes: bool = True,
) -> FuzzReport:
    """Make requests and send them; by default to stores in memory."""
    with warnings.catch_warnings():
        # Of schemathesis and hypothesis, about examples that are not found.
        warnings.simplefilter("ignore")
        cases = make_cases(seed, examples)
        return asyncio.run(
            fuzz_api(cases, world or memory_world(), seconds=seconds, walks_scopes=walks_scopes)
        )
