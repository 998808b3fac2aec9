"""Requests made to stop a server: it answers others meanwhile, and the request ends with what limits it."""

from __future__ import annotations

import asyncio
import json
from typing import TYPE_CHECKING, Any

import pytest

from dagmaster.host.check_processes import CheckProcesses
from tests.integration.server_on_socket import with_server

if TYPE_CHECKING:
    import httpx

NODES = "nodes: {a: {handler: h, queue: q}}"
SHARP_S = r"(?i)^(?:\u017f+s)+c"


async def validate(http: httpx.AsyncClient, inputs: Any) -> Any:
    text = f"workflow_id: w\nversion: 1\ninputs: {json.dumps(inputs)}\n{NODES}\n"
    answer = await http.post("/api/v1/workflows/validate", json={"text": text})
    assert answer.status_code == 200, answer.text
    return answer.json()


async def ask_livez_until(request: asyncio.Task[Any], http: httpx.AsyncClient) -> int:
    """Return how often /livez answered while the request was pending."""
    answers = 0
    while not request.done():
        assert (await http.get("/livez")).status_code == 200
        answers += not request.done()
    return answers


@pytest.fixture
def _short_limit(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(CheckProcesses.__init__.__kwdefaults__, "cpu_seconds", 0.4)  # type: ignore[arg-type]


def test_patterns_made_to_backtrack_and_values_made_to_be_compared_end(dsn, tmp_path):
    async def work(http: httpx.AsyncClient) -> None:
        result = await validate(http, {"x": {"pattern": SHARP_S, "default": "s" * 70}})
        assert [problem["message"] for problem in result["problems"] if problem["severity"] == "error"] == [
            f'the default does not fit: "{"s" * 70}" does not match the pattern {SHARP_S}'
        ]
        for pattern in (r"^(?:aa|a){1,400}$", "^(a+)+$"):
            result = await validate(http, {"x": {"pattern": pattern, "default": "a" * 9_000 + "!"}})
            assert not result["is_valid"]
        result = await validate(http, {"x": {"pattern": r"(a+)\1+b", "default": "a" * 5_000}})
        assert r"a back reference \1" in result["problems"][0]["message"]

        unique = {"type": "array", "constraints": {"uniqueItems": True}}
        objects = [{"a": n, "b": [n]} for n in range(1_500)]
        assert (await validate(http, {"x": {**unique, "default": objects}}))["is_valid"]
        text = f"workflow_id: unique\nversion: 1\ninputs: {json.dumps({'x': unique})}\n{NODES}\n"
        assert (await http.post("/api/v1/workflows", json={"text": text})).status_code == 201
        # As many as a body has room for.
        objects = [{"a": n} for n in range(60_000)]
        for values, status in ((objects, 202), ([*objects[:3_000], {"a": 7.0}], 422)):
            body = {"workflow_id": "unique", "inputs": {"x": values}}
            request = asyncio.create_task(http.post("/api/v1/jobs", json=body))
            assert await ask_livez_until(request, http) > 1
            answer = request.result()
            assert answer.status_code == status, answer.text
            assert status == 202 or "its items 7 and 3000 are equal" in answer.text

    asyncio.run(with_server(dsn, tmp_path, work))


@pytest.mark.usefixtures("_short_limit")
def test_a_check_without_end_is_stopped_while_the_server_answers_others(dsn, tmp_path):
    schema = {"x": {"type": "array", "items": {"enum": [1], "anyOf": [{"allOf": [{}] * 20}] * 4_000}}}

    async def work(http: httpx.AsyncClient) -> None:
        text = f"workflow_id: w\nversion: 1\ninputs: {json.dumps(schema)}\n{NODES}\n"
        for path in ("workflows/validate", "workflows"):
            request = asyncio.create_task(http.post(f"/api/v1/{path}", json={"text": text}))
            assert await ask_livez_until(request, http) > 3
            answer = request.result()
            assert (answer.status_code, answer.json()["code"]) == (422, "check_limit_exceeded")
            assert "it took more than 0.4 s of CPU time" in answer.json()["detail"]
        assert (await validate(http, {}))["is_valid"]

    asyncio.run(with_server(dsn, tmp_path, work))
