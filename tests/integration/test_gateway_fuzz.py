"""A gateway on PostgreSQL answers any request, valid or not, without a server error, and closed towards partners."""

from __future__ import annotations

import asyncio
import itertools
import json
import warnings
from collections import Counter
from typing import TYPE_CHECKING, Any

import httpx
import pytest
from schemathesis.core.failures import FailureGroup
from schemathesis.core.transport import Response

from dagmaster.http.gateway import startup
from dagmaster.http.gateway.app import gateway_document, route_scopes
from dagmaster.http.gateway.leak_guard import is_closed
from dagmaster.ports.api_keys import Scope
from tests.integration.gateway_world import as_gateway, opened_world
from tests.patience import PATIENCE_SECONDS
from tests.unit.http.api_fuzzing import CHECKS, make_cases

if TYPE_CHECKING:
    from pathlib import Path

    from tests.integration.gateway_world import GatewayWorld


class GatewayFuzz:
    """What was sent, and what is wrong with the answers."""

    def __init__(self, world: GatewayWorld, request_ids: list[str], job_ids: list[str]) -> None:
        self.statuses: Counter[int] = Counter()
        self.operations: set[str] = set()
        self.failures: list[str] = []
        self._world = world
        self._names = {
            "request_id": itertools.cycle(request_ids),
            "job_id": itertools.cycle(job_ids),
            "target": itertools.cycle(["orchestrator", "worker"]),
        }

    def use_real_names(self, case: Any) -> None:
        """Let a request name what exists."""
        for name in case.path_parameters or {}:
            if name in self._names:
                case.path_parameters[name] = next(self._names[name])
        if isinstance(case.body, dict) and "workflow_id" in case.body:
            case.body["workflow_id"] = "hello"

    async def send(self, case: Any, key: str) -> None:
        """Send a request; record what is wrong with its answer."""
        arguments = case.as_transport_kwargs(base_url="http://localhost")
        secret = ("authorization", "x-api-key")
        headers = {name: value for name, value in arguments["headers"].items() if name.lower() not in secret}
        arguments["headers"] = headers | {"Authorization": f"Bearer {self._world.keys[key]}"}
        if "json" in arguments:
            arguments["content"] = json.dumps(arguments.pop("json")).encode()
        elif "data" in arguments:
            arguments["content"] = arguments.pop("data")
        label = f"{case.operation.label} ({key}): {case.as_curl_command()[:2_000]}"
        try:
            request = self._world.http.build_request(**arguments)
        except (httpx.InvalidURL, UnicodeEncodeError, ValueError, TypeError):
            # It cannot be written as HTTP at all.
            return
        answer = await self._world.http.send(request)
        self.operations.add(case.operation.label)
        self.statuses[answer.status_code] += 1
        self._check(case, answer, label)

    def _check(self, case: Any, answer: httpx.Response, label: str) -> None:
        if answer.status_code >= 500:
            self.failures.append(f"{label}\n{answer.status_code} {answer.text[:500]}")
        if "/proxy/{target}" in case.operation.path:
            return
        if answer.status_code >= 400:
            if request_has_body(answer) and not is_closed(answer.json()):
                self.failures.append(f"{label}\n{answer.status_code} is not closed: {answer.text[:500]}")
            return
        try:
            case.validate_response(Response.from_httpx(answer, verify=False), checks=CHECKS)
        except FailureGroup as failures:
            self.failures.append(f"{label}\n{answer.status_code} {failures} {answer.text[:500]}")


def request_has_body(answer: httpx.Response) -> bool:
    return answer.request.method != "HEAD"


@pytest.mark.slow
def test_no_request_causes_a_server_error_or_an_open_answer(dsn: str, tmp_path: Path, monkeypatch):
    monkeypatch.setattr(startup, "CHECK_SECONDS", PATIENCE_SECONDS)
    gateway_dsn = as_gateway(dsn)
    scopes = route_scopes()

    async def scenario() -> GatewayFuzz:
        async with opened_world(dsn, gateway_dsn, tmp_path) as world:
            submit = {"workflow_id": "hello", "submitted_by": "fuzz"}
            ids = [(await world.post("/platform/submit", submit)).json()["request_id"] for _ in range(2)]
            jobs = (await world.get("/status/jobs", "admin")).json()["jobs"]
            fuzz = GatewayFuzz(world, ids, [job["job_id"] for job in jobs])
            for number, case in enumerate(make_cases(20_261_119, 3, gateway_document())):
                needed = scopes[case.method.upper(), case.operation.path.replace("{path}", "{path:path}")]
                if number % 2:
                    fuzz.use_real_names(case)
                await fuzz.send(case, "admin" if needed is Scope.ADMIN else "acme")
                if number % 3 == 0:
                    await fuzz.send(case, "other")
            return fuzz

    with warnings.catch_warnings():
        # Of schemathesis and hypothesis, about examples that are not found.
        warnings.simplefilter("ignore")
        fuzz = asyncio.run(scenario())
    assert fuzz.failures == []
    assert len(fuzz.operations) == len(scopes)
    assert fuzz.statuses.keys() >= {200, 202, 404, 422}
