"""Nothing of ours leaves a gateway towards a partner, whatever fails behind it and whatever a route sends by mistake."""

from __future__ import annotations

import asyncio
import itertools
import json
import re
from typing import TYPE_CHECKING, Any

import httpx
import pytest
from hypothesis import given
from hypothesis import strategies as st
from starlette.responses import JSONResponse, PlainTextResponse, StreamingResponse

from dagmaster.errors import (
    DatabaseUnavailable,
    IssuerUnavailable,
    JobNotFound,
    Problem,
    QueryInvalid,
    RequestInvalid,
    SchemaVersionMismatch,
    StatementFailed,
)
from dagmaster.errors.base import ProblemsError
from dagmaster.http.gateway.answers import answer
from dagmaster.http.gateway.closed_problems import CODES, describe, field_problem, of_error, problem
from dagmaster.http.gateway.leak_guard import LeakGuard, is_closed
from dagmaster.records.gateway import GatewayHealthResponse, PlatformSubmitResponse
from tests.unit.http.gateway.gateway_client import REQUEST_ID, RESULT, SUBMIT, opened_gateway

if TYPE_CHECKING:
    from collections.abc import Callable

    from starlette.requests import Request
    from starlette.responses import Response

CANARIES = (
    "116253640196554752",
    "canary_node",
    "canary-host.internal",
    "canary-correlation",
    'Traceback (most recent call last): File "/srv/canary.py", line 7',
    "SELECT canary_column FROM dagapp.dag_jobs",
    "postgresql://canary:canary@10.0.0.7/db",
    "worker_canary@host-7",
)
"""What must never leave: ids, names of nodes and hosts, traces, statements, addresses."""
CANARY = " ".join(CANARIES)
HEADERS = {"Server": "canary", "Server-Timing": "db;dur=53", "X-Request-ID": "canary-of-the-server", "X-Node": "canary", "X-Correlation-ID": "canary-correlation", "Location": "/api/v1/jobs/116253640196554752", "Set-Cookie": "a=canary"}  # fmt: skip
ERRORS = (
    DatabaseUnavailable(CANARY),
    StatementFailed(CANARY),
    SchemaVersionMismatch(CANARY),
    IssuerUnavailable(CANARY),
    JobNotFound(CANARY),
    QueryInvalid(CANARY, field="canary_node SELECT"),
    RequestInvalid([Problem(message=CANARY, path=CANARY)]),
    RuntimeError(CANARY),
    ValueError(CANARY),
    TimeoutError(CANARY),
    RecursionError(CANARY),
)
NESTED: Any = {"database": {"node": "canary"}}
STATUSES = (200, 202, 204, 301, 400, 401, 403, 404, 405, 409, 413, 418, 422, 429, 500, 502, 503)
CONTENTS: tuple[dict[str, Any], ...] = (
    {"json": {"code": "request_rejected", "detail": CANARY, "request_id": CANARY, "errors": [{"path": CANARY, "message": CANARY, "job": CANARY}]}},
    {"json": {**RESULT, "job_id": CANARY, "workflow_id": CANARY, "node": CANARY, "detail": CANARY}},
    {"json": [RESULT | {"outcome": "error", "error": {"code": CANARY, "message": CANARY, "problems": [{"path": CANARY, "message": CANARY}]}}]},
    {"text": CANARY},
)  # fmt: skip
SERVER_ANSWERS = tuple(
    httpx.Response(status, headers=HEADERS, **content)
    for status, content in itertools.product(STATUSES, CONTENTS)
)
PARTNER_PATHS = (
    *("/livez", "/readyz", "/gateway/health", f"/platform/status/{REQUEST_ID}", "/platform/status/x"),
    *(
        f"/platform/results/{REQUEST_ID}",
        f"/platform/results/{REQUEST_ID}?expires=1&signature=720575940379279360",
    ),
    *(
        f"/platform/dag_status/{REQUEST_ID}",
        "/platform/submit",
        "/platform/submit_dag",
        "/gateway/submit/batch",
    ),
    *("/.well-known/webhook-keys", f"/.well-known/webhook-keys/{REQUEST_ID}"),
    *("/nothing", "/platform", "/status/job/1", "/status/jobs", "/admin/config", "/proxy/orchestrator/livez"),
    *("/status/lookup", "/status/jobs?status=x", "/openapi.json", "/platform/status/%00", "/proxy/health"),
)
METHODS = ("GET", "POST", "PUT", "DELETE", "PATCH", "HEAD", "OPTIONS", "TRACE")
BODIES: tuple[dict[str, Any], ...] = (
    {},
    {"json": SUBMIT},
    {"json": {"jobs": [SUBMIT]}},
    {"json": {"workflow_id": 7}},
    {"content": b"{", "headers": {"Content-Type": "application/json"}},
    {"content": b"x" * 1_100_000, "headers": {"Content-Type": "application/json"}},
    {"content": b"a=b", "headers": {"Content-Type": "text/plain"}},
)
ALLOWED_HEADERS = frozenset(
    [
        "allow",
        "cache-control",
        "content-length",
        "content-type",
        "deprecation",
        "link",
        "location",
        "ratelimit",
        "ratelimit-policy",
        "retry-after",
        "www-authenticate",
        "x-request-id",
        "connection",
    ]
)


def always(response: httpx.Response) -> Callable[[httpx.Request], httpx.Response]:
    return lambda _: response


def assert_clean(response: httpx.Response, what: object) -> None:
    text = response.text + str(dict(response.headers))
    assert not [one for one in (*CANARIES, "canary", "dag_", "Traceback") if one in text], (what, text[:500])
    assert response.headers.keys() <= ALLOWED_HEADERS, what
    if response.status_code >= 400 and response.content:
        document = response.json()
        assert is_closed(document) or document.keys() <= {"ready", "failed_check", "status", "checks"}, what


@pytest.mark.slow
def test_no_partner_route_leaks_a_canary_whatever_the_server_and_the_database_do():
    async def scenario() -> None:
        async with opened_gateway() as gateway:
            await gateway.get("/livez")
            servers = itertools.cycle(SERVER_ANSWERS)
            errors = itertools.cycle((None, *ERRORS))
            keys = itertools.cycle(("acme", "submit", "read", "work", "other", None, "acme admin"))
            for path, method, body in itertools.product(PARTNER_PATHS, METHODS, BODIES):
                server, gateway.store.error = next(servers), next(errors)
                gateway.server = always(server)
                key = next(keys)
                if key == "acme admin" and path.startswith("/status"):
                    key = "other"
                response = await gateway.request(method, path, key, **body)
                if "openapi" not in path:
                    assert_clean(response, (method, path, key, server.status_code, gateway.store.error))

    asyncio.run(scenario())


def test_every_answer_of_the_server_to_a_submit_is_clean():
    async def scenario() -> None:
        async with opened_gateway() as gateway:
            for server, (path, body) in itertools.product(
                SERVER_ANSWERS, (("/platform/submit", SUBMIT), ("/gateway/submit/batch", {"jobs": [SUBMIT]}))
            ):
                gateway.server = always(server)
                assert_clean(await gateway.post(path, body), (path, server.status_code, server.text[:50]))

    asyncio.run(scenario())


def test_every_error_of_a_read_is_clean():
    async def scenario() -> None:
        async with opened_gateway() as gateway:
            for error in ERRORS:
                gateway.store.error = error
                assert_clean(response := await gateway.get(f"/platform/status/{REQUEST_ID}"), error)
                assert response.status_code >= 400

    asyncio.run(scenario())


# ── The guard itself, around routes that make mistakes ──


def guarded(send: Any) -> httpx.AsyncClient:
    """Return a client of an application that is wrapped, and answers what it is told to."""
    from starlette.requests import Request

    async def app(scope: Any, receive: Any, send_message: Any) -> None:
        response = send(Request(scope, receive))
        await response(scope, receive, send_message)

    transport = httpx.ASGITransport(LeakGuard(app))
    return httpx.AsyncClient(transport=transport, base_url="http://localhost")


def fetch(send: Any, method: str = "GET") -> httpx.Response:
    async def scenario() -> httpx.Response:
        async with guarded(send) as http:
            return await http.request(method, "/any")

    return asyncio.run(scenario())


def _as_health(request: Request, document: Any) -> Response:
    response = answer(request, GatewayHealthResponse(status="healthy", checks={}))
    return JSONResponse(document, headers={"content-type": response.headers["content-type"]})


MISTAKES: list[Any] = [
    lambda _: JSONResponse({"job_id": CANARY}),
    lambda _: PlainTextResponse(CANARY),
    lambda _: StreamingResponse(iter([CANARY.encode()])),
    lambda request: _as_health(request, {"status": "healthy", "job_id": "canary"}),
    lambda request: _as_health(request, {"status": "healthy", "checks": {"canary_node": "ok"}}),
    lambda request: _as_health(request, [CANARY]),
    lambda request: _as_health(request, CANARY),
    lambda request: answer(request, GatewayHealthResponse(status="x", checks=NESTED)),
]


@pytest.mark.parametrize("send", MISTAKES)
def test_an_answer_with_a_field_that_no_partner_knows_is_replaced(send, caplog):
    response = fetch(send)
    assert (response.status_code, response.json()) == (500, describe("internal").to_dict())
    assert "replaced" in caplog.text


OPEN_ERRORS: list[Any] = [
    (lambda _: JSONResponse({"detail": CANARY}, 404), 404),
    (lambda _: PlainTextResponse(CANARY, 500), 500),
    (lambda _: JSONResponse({**describe("internal").to_dict(), "detail": CANARY}, 500, media_type="application/problem+json"), 500),
    (lambda _: JSONResponse({**describe("internal").to_dict(), "node": "canary"}, 500, media_type="application/problem+json"), 500),
    (lambda _: JSONResponse({**describe("not_ready").to_dict(), "failed_check": "canary"}, 503, media_type="application/problem+json"), 503),
    (lambda _: JSONResponse({**describe("request_rejected").to_dict(), "request_id": "canary"}, 422, media_type="application/problem+json"), 422),
    (lambda _: JSONResponse({**describe("request_invalid").to_dict(), "errors": [{"path": "a", "message": "b", "job": "canary"}]}, 422, media_type="application/problem+json"), 422),
    (lambda _: JSONResponse({**describe("request_invalid").to_dict(), "errors": ["canary"]}, 422, media_type="application/problem+json"), 422),
    (lambda _: JSONResponse(["canary"], 418, media_type="application/problem+json"), 500),
]  # fmt: skip


@pytest.mark.parametrize(("send", "status"), OPEN_ERRORS)
def test_an_error_that_is_not_of_the_closed_set_is_replaced_by_one_that_is(send, status):
    response = fetch(send)
    assert (response.status_code, is_closed(response.json())) == (status, True)
    assert "canary" not in response.text


def test_headers_that_are_not_listed_are_dropped():
    def send(request: Request) -> Response:
        view = PlatformSubmitResponse(request_id=REQUEST_ID, workflow_id="hello", submitted_at=1.0)
        return answer(request, view, headers=HEADERS | {"Retry-After": "2"})

    response = fetch(send)
    assert response.status_code == 200
    assert response.headers.keys() <= ALLOWED_HEADERS
    # The location of a job is not one of a request.
    assert ("location" in response.headers, response.headers["retry-after"]) == (False, "2")


def test_an_exception_is_a_fixed_problem_and_reaches_no_server_around_it(caplog):
    def fail(_: Request) -> Response:
        raise RuntimeError(CANARY)

    response = fetch(fail)
    assert (response.status_code, response.json()["code"]) == (500, "internal")
    assert "canary" in caplog.text, "the log has it"


def test_a_websocket_is_refused():
    async def scenario() -> list[Any]:
        sent: list[Any] = []

        async def send(message: Any) -> None:
            sent.append(message)

        async def app(*_: Any) -> None:
            pytest.fail("it must not be reached")

        await LeakGuard(app)({"type": "websocket", "path": "/ws/jobs/1", "headers": []}, None, send)  # type: ignore[arg-type]
        return sent

    assert asyncio.run(scenario()) == [{"type": "websocket.close", "code": 1008}]


# ── The closed set ──


def test_each_code_is_closed_and_says_its_sentence():
    for code, fixed in CODES.items():
        document = describe(code).to_dict()
        assert (document["status"], document["detail"], is_closed(document)) == (
            fixed.status,
            fixed.sentence,
            True,
        )


def all_errors() -> list[type[Exception]]:
    from dagmaster.errors import DagmasterError

    found, pending = [], [DagmasterError]
    while pending:
        one = pending.pop()
        # Not the errors of other tests.
        if one.__module__.startswith("dagmaster."):
            found.append(one)
        pending += one.__subclasses__()
    return found  # type: ignore[return-value]


def test_every_error_of_dagmaster_has_a_closed_answer_without_its_message():
    for error in all_errors():
        problems = [Problem(message=CANARY, path=CANARY)]
        raised = error(problems if issubclass(error, ProblemsError) else CANARY)
        response = of_error(raised)  # type: ignore[arg-type]
        document = json.loads(bytes(response.body))
        assert is_closed(document), error
        assert not [one for one in CANARIES if one in json.dumps(document)], error


@given(st.text(), st.text())
def test_what_is_told_of_a_field_is_closed_whatever_it_is_made_of(path, message):
    document = describe("request_invalid", errors=[field_problem(path, message)]).to_dict()
    assert is_closed(json.loads(json.dumps(document)))


@pytest.mark.parametrize("canary", CANARIES)
def test_nothing_of_ours_is_told_of_a_field(canary):
    found = field_problem(canary, f"it is {canary}")
    if re.search(r"\d{12}|://|SELECT|Traceback|@", canary):
        assert found.message == "The value is not valid."
    assert field_problem(3, None).to_dict() == {"path": "body", "message": "The value is not valid."}


def test_a_problem_that_may_be_over_later_says_when():
    assert problem("service_unavailable").headers["retry-after"] == "2"
    assert "www-authenticate" in problem("api_key_rejected").headers
