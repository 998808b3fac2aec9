"""Bad input is answered with a problem document, and changes nothing."""

from __future__ import annotations

import asyncio

import pytest

from dagmaster.http.request_limits import MAX_BODY_BYTES
from tests.unit.http.api_client import opened_api

JSON = {"Content-Type": "application/json"}


@pytest.mark.parametrize(
    ("body", "status"),
    [
        (b'{"workflow_id": "hello", "inputs": {"name": NaN}}', 400),
        (b'{"workflow_id": "hello", "workflow_id": "x"}', 400),
        (b'{"workflow_id": "hello", "name": "\\ud800"}', 400),
        (b'{"workflow_id": "hello", "name": "a\\u0000b"}', 400),
        (b'{"workflow_id": "hello", "inputs": ' + b"[" * 100_000 + b"]" * 100_000 + b"}", 400),
        (b'{"workflow_id": "hello", "inputs": {"a": ' + b"[" * 400 + b"]" * 400 + b"}}", 400),
        # Callbacks come with the gateway: until then the field is unknown, rather than ignored.
        (b'{"workflow_id": "hello", "webhook": "https://example.com/done"}', 422),
        (b"\xff\xfe", 400),
        (b"{", 400),
        (b"[]", 422),
        (b"", 422),
        (b'{"workflow_id": 7}', 422),
        (b'{"workflow_id": "hello", "priority": 11}', 422),
        (b'{"workflow_id": "hello", "correlation_id": "' + b"x" * 65 + b'"}', 422),
        (b'{"workflow_id": "hello", "unknown": 1}', 422),
        (b'{"workflow_id": "hello", "inputs": {"nme": "x"}}', 422),
        (b'{"workflow_id": "hello", "name": "' + b"x" * MAX_BODY_BYTES + b'"}', 413),
    ],
)
def test_a_bad_body_is_a_problem_with_a_path(body, status):
    async def main() -> None:
        async with opened_api() as api:
            await api.publish()
            answer = await api.http.post("/api/v1/jobs", content=body, headers={**api.headers, **JSON})
            problem = answer.json()
            assert answer.status_code == problem["status"] == status, answer.text
            assert answer.headers["content-type"] == "application/problem+json"
            assert problem.keys() >= {"type", "title", "status", "detail", "code"}
            assert status == 413 or all(error["path"] for error in problem["errors"])
            assert (await api.get("/api/v1/stats")).json()["total"] == 0

    asyncio.run(main())


@pytest.mark.parametrize(
    ("body", "reason"),
    [
        (b'{"inputs": ' + b"9" * 5_000 + b"}", "a number has thousands of digits"),
        (b'{"name": "\\ud800"}', "a text has one half of a surrogate pair without the other"),
        (b'{"name": "\xe9"}', "it is not UTF-8, from byte 10 on"),
        (b"\xef\xbb\xbf{}", "it begins with a byte order mark: leave that out"),
        (b'{"inputs": 1e999}', "the number 1e999 is too large"),
    ],
)
def test_the_reason_why_a_body_is_not_json_is_for_people_who_do_not_know_python(body, reason):
    async def main() -> None:
        async with opened_api() as api:
            answer = await api.http.post("/api/v1/jobs", content=body, headers={**api.headers, **JSON})
            (error,) = answer.json()["errors"]
            assert (answer.status_code, error["message"]) == (400, f"the body is not valid JSON: {reason}")

    asyncio.run(main())


def test_a_caller_without_a_key_is_rejected_before_its_request_is_read():
    async def main() -> None:
        async with opened_api() as api:
            answer = await api.http.post("/api/v1/jobs?x=1", content=b"{", headers=JSON)
            assert (answer.status_code, answer.json()["code"]) == (401, "api_key_rejected")

    asyncio.run(main())


def test_an_unknown_route_and_a_wrong_method_are_problems():
    async def main() -> None:
        async with opened_api() as api:
            unknown = await api.get("/api/v1/nothing")
            assert (unknown.status_code, unknown.json()["code"]) == (404, "route_not_found")
            wrong = await api.post("/api/v1/stats")
            assert (wrong.status_code, wrong.json()["code"]) == (405, "method_not_allowed")
            # Several routes have this path, each with one method.
            several = await api.http.delete("/api/v1/jobs", headers=api.headers)
            assert (several.status_code, several.headers["allow"]) == (405, "GET, POST")
            assert all("x-request-id" in answer.headers for answer in (unknown, wrong))

    asyncio.run(main())


def test_a_workflow_is_validated_with_the_places_of_its_problems():
    async def main() -> None:
        async with opened_api() as api:
            text = "workflow_id: x\nnodes:\n  a: {handler: h, queue: q, timout_seconds: 3}\n"
            checked = (
                await api.post("/api/v1/workflows/validate", {"text": text, "file": "flow.yaml"})
            ).json()
            assert checked["is_valid"] is False
            (problem,) = [problem for problem in checked["problems"] if problem["severity"] == "error"]
            assert (problem["file"], problem["line"], problem["hint"]) == (
                "flow.yaml",
                3,
                "did you mean 'timeout_seconds'?",
            )
            rejected = await api.post("/api/v1/workflows", {"text": text})
            assert (rejected.status_code, rejected.json()["code"]) == (422, "workflow_invalid")
            assert (await api.get("/api/v1/workflows")).json()["items"] == []

    asyncio.run(main())
