"""The routes of a gateway: what is forwarded, what is answered, and to whom."""

from __future__ import annotations

import asyncio
import functools
import itertools
import json
import re
import time

import httpx
import pytest

from dagmaster.application.api_keys import allows
from dagmaster.errors import DatabaseUnavailable
from dagmaster.http.gateway.app import route_scopes
from dagmaster.http.rate_limits import RateLimiter
from dagmaster.ports.api_keys import Scope
from dagmaster.ports.result_links import result_link
from tests.unit.http.gateway.gateway_client import (
    JOB_ID,
    KEYS,
    REQUEST_ID,
    RESULT,
    RESULT_KEY,
    SERVER,
    SUBMIT,
    opened_gateway,
)

UUID = re.compile(r"[0-9a-f]{8}(-[0-9a-f]{4}){3}-[0-9a-f]{12}")


def test_a_submit_is_forwarded_with_the_partners_own_key_and_answered_without_what_is_ours():
    async def scenario() -> None:
        async with opened_gateway() as gateway:
            answer = await gateway.post("/platform/submit", {**SUBMIT, "priority": 0, "dataset_id": "d1"}, headers={"X-Request-ID": "of-a-partner-1"})  # fmt: skip
            assert answer.status_code == 202
            assert answer.json() == {"request_id": REQUEST_ID, "workflow_id": "hello", "submitted_at": "2026-11-19T08:00:00Z", "status": "accepted"}  # fmt: skip
            assert answer.headers["location"] == f"/platform/status/{REQUEST_ID}"
            (sent,) = gateway.sent
            assert str(sent.url) == f"{SERVER}/api/v1/submit"
            assert sent.headers["authorization"] == gateway.key("acme")["Authorization"]
            assert sent.headers["x-request-id"] == "of-a-partner-1"
            body = json.loads(sent.content)
            assert UUID.fullmatch(body.pop("request_id"))
            # Nothing is added: an absent priority is the server's default, and 0 stays 0.
            assert body == {**SUBMIT, "priority": 0, "dataset_id": "d1"}

    asyncio.run(scenario())


def test_a_key_in_a_header_is_forwarded_in_the_body_and_must_not_differ_from_it():
    async def scenario() -> None:
        async with opened_gateway() as gateway:
            header = {"Idempotency-Key": "k1"}
            assert (await gateway.post("/platform/submit", SUBMIT, headers=header)).status_code == 202
            assert json.loads(gateway.sent[0].content)["idempotency_key"] == "k1"
            same = await gateway.post("/platform/submit", {**SUBMIT, "idempotency_key": "k1"}, headers=header)
            assert same.status_code == 202
            for path, body in (
                ("/platform/submit", {**SUBMIT, "idempotency_key": "k2"}),
                ("/gateway/submit/batch", {"jobs": [SUBMIT]}),
            ):
                answer = await gateway.post(path, body, headers=header)
                assert (answer.status_code, answer.json()["errors"][0]["path"]) == (
                    422,
                    "header.Idempotency-Key",
                )
            chosen = await gateway.post("/platform/submit", {**SUBMIT, "request_id": REQUEST_ID})
            assert (chosen.status_code, chosen.json()["errors"][0]["path"]) == (422, "body.request_id")
            assert len(gateway.sent) == 2

    asyncio.run(scenario())


@pytest.mark.parametrize(
    ("status", "document", "headers", "expected"),
    [
        (422, {"code": "request_rejected", "request_id": REQUEST_ID, "reason": "inputs_invalid", "detail": "secret detail", "errors": [{"path": "name", "message": "3 is not text"}]}, {},
         (422, {"code": "request_rejected", "request_id": REQUEST_ID, "errors": [{"path": "input_params.name", "message": "3 is not text"}]})),
        (422, {"code": "request_rejected", "request_id": REQUEST_ID, "reason": "workflow_not_found"}, {},
         (422, {"code": "request_rejected", "request_id": REQUEST_ID, "errors": [{"path": "workflow_id", "message": "No workflow has this id."}]})),
        (422, {"code": "request_invalid", "errors": [{"path": "body.priority", "message": f"job {JOB_ID} of 10.0.0.7"}]}, {},
         (422, {"code": "request_invalid", "errors": [{"path": "body.priority", "message": "The value is not valid."}]})),
        (409, {"code": "idempotency_conflict", "detail": f"used by job {JOB_ID}"}, {}, (409, {"code": "idempotency_conflict"})),
        (429, {"code": "request_quota_exceeded"}, {"Retry-After": "3600"}, (429, {"code": "request_quota_exceeded"})),
        (429, {"code": "rate_limit_exceeded"}, {"Retry-After": "soon\n"}, (429, {"code": "rate_limit_exceeded"})),
        (403, {"code": "key_narrowed", "detail": "…"}, {}, (403, {"code": "scope_missing"})),
        (404, {"code": "route_not_found"}, {}, (503, {"code": "service_unavailable"})),
        (500, {"code": "internal", "detail": "Traceback"}, {}, (503, {"code": "service_unavailable"})),
        (503, {"code": "database_unavailable"}, {"Retry-After": "5"}, (503, {"code": "service_unavailable"})),
        (202, {"outcome": "accepted", "request_id": "not an id", "submitted_at": "2026-11-19T08:00:00Z"}, {}, (503, {"code": "service_unavailable"})),
        (202, ["a list"], {}, (503, {"code": "service_unavailable"})),
    ],
)  # fmt: skip
def test_what_the_server_refuses_is_told_in_the_closed_form(status, document, headers, expected):
    async def scenario() -> None:
        async with opened_gateway() as gateway:
            gateway.server = lambda _: httpx.Response(status, json=document, headers=headers)
            answer = await gateway.post("/platform/submit", SUBMIT)
            told = answer.json()
            fixed = {name: told.pop(name) for name in ("type", "title", "status", "detail")}
            assert (answer.status_code, told) == expected
            assert fixed["status"] == answer.status_code
            assert JOB_ID not in answer.text
            if answer.status_code == 503:
                assert answer.headers["retry-after"] == headers.get("Retry-After", "2")
            if headers.get("Retry-After") == "3600":
                assert answer.headers["retry-after"] == "3600"

    asyncio.run(scenario())


def test_a_server_that_is_down_is_503_with_when_to_try_again():
    async def scenario() -> None:
        async with opened_gateway() as gateway:

            def refuse(request: httpx.Request) -> httpx.Response:
                raise httpx.ConnectError("server.internal:8420 refused", request=request)

            gateway.server = refuse
            for path, body in (("/platform/submit", SUBMIT), ("/gateway/submit/batch", {"jobs": [SUBMIT]})):
                answer = await gateway.post(path, body)
                assert (answer.status_code, answer.json()["code"]) == (503, "service_unavailable")
                assert answer.headers["retry-after"] == "2"
                assert "server.internal" not in answer.text
            gateway.server = lambda _: httpx.Response(502, text="<html>proxy of server.internal</html>")
            answer = await gateway.post("/platform/submit", SUBMIT)
            assert (answer.status_code, "server.internal" in answer.text) == (503, False)

    asyncio.run(scenario())


def test_each_submit_of_a_batch_has_an_outcome():
    rejected = {"outcome": "rejected", "request_id": REQUEST_ID, "job_id": None, "error": {"code": "inputs_invalid", "message": f"job {JOB_ID}", "problems": [{"path": "name", "message": "is needed"}]}}  # fmt: skip
    conflict = {
        "outcome": "error",
        "request_id": None,
        "error": {"code": "idempotency_conflict", "message": JOB_ID},
    }
    quota = {
        "outcome": "error",
        "request_id": None,
        "error": {"code": "request_quota_exceeded", "message": "…"},
    }
    strange = {
        "outcome": "error",
        "request_id": None,
        "error": {"code": "platform_refs_invalid", "message": JOB_ID},
    }

    async def scenario() -> None:
        async with opened_gateway() as gateway:
            gateway.server = lambda _: httpx.Response(202, json=[RESULT, rejected, conflict, quota, strange])
            answer = await gateway.post("/gateway/submit/batch", {"jobs": [SUBMIT] * 5})
            assert (answer.status_code, answer.json()["accepted"]) == (202, 1)
            results = answer.json()["results"]
            assert [result["index"] for result in results] == [0, 1, 2, 3, 4]
            assert [result["status"] for result in results] == ["accepted", "rejected", "rejected", "failed", "rejected"]  # fmt: skip
            assert [result["request_id"] for result in results] == [REQUEST_ID, REQUEST_ID, None, None, None]
            codes = [result["problem"] and result["problem"]["code"] for result in results]
            assert codes == [None, "request_rejected", "idempotency_conflict", "request_quota_exceeded", "request_invalid"]  # fmt: skip
            assert JOB_ID not in answer.text
            (sent,) = gateway.sent
            bodies = json.loads(sent.content)["requests"]
            assert len({body["request_id"] for body in bodies}) == 5
            gateway.server = lambda _: httpx.Response(202, json=[RESULT])
            short = await gateway.post("/gateway/submit/batch", {"jobs": [SUBMIT] * 2})
            assert (short.status_code, short.json()["code"]) == (503, "service_unavailable")
            for jobs in ([], [SUBMIT] * 101):
                assert (await gateway.post("/gateway/submit/batch", {"jobs": jobs})).status_code == 422

    asyncio.run(scenario())


def test_the_older_names_answer_the_same_and_say_what_replaces_them():
    async def scenario() -> None:
        async with opened_gateway() as gateway:
            new = await gateway.get(f"/platform/status/{REQUEST_ID}")
            answer = await gateway.get(f"/platform/dag_status/{REQUEST_ID}")
            assert new.content == answer.content
            assert answer.headers["deprecation"] == "true"
            assert answer.headers["link"] == f'</platform/status/{REQUEST_ID}>; rel="successor-version"'
            answer = await gateway.post("/platform/submit_dag", SUBMIT)
            assert (answer.status_code, answer.json()["request_id"]) == (202, REQUEST_ID)
            assert answer.headers["link"] == '</platform/submit>; rel="successor-version"'

    asyncio.run(scenario())


def test_an_unknown_id_and_that_of_another_partner_get_the_same_bytes_by_the_same_query():
    async def scenario() -> None:
        async with opened_gateway() as gateway:
            own = {"X-Request-ID": "the-same-id"}
            ids = (REQUEST_ID, f"{REQUEST_ID[:-1]}0", "x", "x" * 150)
            answers = [await gateway.get(f"/platform/status/{one}", "other", headers=own) for one in ids]
            assert {(answer.status_code, answer.content) for answer in answers} == {(404, answers[0].content)}
            assert len({tuple(sorted(answer.headers.items())) for answer in answers}) == 1
            assert [call[:2] for call in gateway.store.calls] == [("status", "other")] * 4

    asyncio.run(scenario())


def test_everybody_reads_the_public_keys_of_callbacks():
    async def scenario() -> None:
        async with opened_gateway() as gateway:
            for path in ("", f"/{REQUEST_ID}"):
                answer = await gateway.get(f"/.well-known/webhook-keys{path}", None)
                shown = {"key_id": "sec_1", "public_key": "whpk_x", "expires_at": None}
                assert (answer.status_code, answer.json()) == (200, {"keys": [shown]})
            assert [call[1] for call in gateway.store.calls] == [None, REQUEST_ID]
            assert (await gateway.get("/.well-known/webhook-keys/x", None)).status_code == 422

    asyncio.run(scenario())


def link(request_id: str = REQUEST_ID, *, seconds: int = 3_600, key: str = RESULT_KEY) -> str:
    """Return the path of a link that expires after some seconds."""
    return result_link("", key, request_id, int(time.time()) + seconds)


def test_a_link_of_a_callback_shows_the_status_to_the_partner_until_it_expires():
    async def scenario() -> None:
        async with opened_gateway() as gateway:
            status = await gateway.get(f"/platform/status/{REQUEST_ID}")
            answer = await gateway.get(link())
            assert (answer.status_code, answer.content) == (200, status.content)
            assert (await gateway.get(link(), None)).status_code == 401
            assert (await gateway.get(link(), "operate")).status_code == 403
            expired = await gateway.get(link(seconds=-1))
            assert (expired.status_code, expired.json()["code"]) == (410, "result_link_expired")
            assert "/platform/status/{request_id}" in expired.json()["detail"]
            for query in ("", f"?expires={'9' * 13}&signature=x", f"?expires=1&signature={'x' * 65}", "?a=1"):
                assert (await gateway.get(f"/platform/results/{REQUEST_ID}{query}")).status_code == 422, query

    asyncio.run(scenario())


def test_a_changed_link_and_that_of_another_partner_get_the_same_bytes_by_the_same_query():
    async def scenario() -> None:
        async with opened_gateway() as gateway:
            own = {"X-Request-ID": "the-same-id"}
            later = re.sub(r"expires=\d+", "expires=999999999999", link(seconds=-1))
            changed = [link()[:-1] + ("0" if link()[-1] != "0" else "1"), later, link(key="no request")]
            changed += [link(seconds=-1, key="another"), link().replace("expires=", "expires=x")[:-1]]
            unknown = [link(f"{REQUEST_ID[:-1]}0"), link("x"), link("x", key="no request")]
            answers = [await gateway.get(one, headers=own) for one in (*changed, *unknown)]
            answers += [await gateway.get(link(seconds=one), "other", headers=own) for one in (3_600, -1)]
            answers.append(await gateway.get(f"/platform/status/{REQUEST_ID}", "other", headers=own))
            assert {(answer.status_code, answer.content) for answer in answers} == {(404, answers[0].content)}
            assert len({tuple(sorted(answer.headers.items())) for answer in answers}) == 1
            assert {call[0] for call in gateway.store.calls[:-1]} == {"result_key"}

    asyncio.run(scenario())


def test_a_result_that_is_not_in_the_database_is_read_by_the_server():
    async def scenario() -> None:
        async with opened_gateway() as gateway:
            record = await gateway.store.status(_Caller("acme"), REQUEST_ID)  # type: ignore[arg-type]
            omitted = record.to_dict() | {"result": None, "result_omitted": "too large"}
            told = record.to_dict() | {"result": {"large": 1}, "job_id": JOB_ID}
            answers = iter([httpx.Response(200, json=told), httpx.Response(404, json={})])
            gateway.server = lambda _: next(answers)

            async def status(*_: object) -> object:
                return type(record)(**{**{name: getattr(record, name) for name in record.__slots__}, "result": None, "result_omitted": "too large"})  # fmt: skip

            gateway.store.status = status  # type: ignore[method-assign,assignment]
            answer = await gateway.get(f"/platform/status/{REQUEST_ID}")
            assert (answer.json()["result"], "job_id" in answer.json()) == ({"large": 1}, False)
            assert str(gateway.sent[0].url) == f"{SERVER}/api/v1/requests/{REQUEST_ID}/status"
            assert (await gateway.get(f"/platform/status/{REQUEST_ID}")).json() == omitted

    asyncio.run(scenario())


class _Caller:
    def __init__(self, sees: str) -> None:
        self.sees = sees


@pytest.mark.slow
def test_every_route_is_closed_to_every_key_without_its_scope():
    paths = {
        "{request_id}": REQUEST_ID,
        "{key_set}": REQUEST_ID,
        "{job_id}": JOB_ID,
        "{target}": "orchestrator",
        "{path:path}": "livez",
    }
    installation = ("/admin/", "/proxy/", "/metrics")

    async def scenario() -> None:
        async with opened_gateway() as gateway:
            await gateway.get("/livez")
            for ((method, path), scope), name in itertools.product(route_scopes().items(), (*KEYS, None)):
                filled = functools.reduce(lambda text, pair: text.replace(*pair), paths.items(), path)
                answer = await gateway.request(method, filled, name)
                if scope is None:
                    assert answer.status_code == 200
                elif name is None:
                    assert answer.status_code == 401, path
                else:
                    tenant, scopes = KEYS[name]
                    # Who submits may ask how far that is.
                    is_allowed = allows(scopes, scope) or (
                        scope is Scope.READ and Scope.SUBMIT in scopes and path != "/metrics"
                    )
                    is_allowed &= tenant == "default" or not path.startswith(installation)
                    assert (answer.status_code != 403) == is_allowed, (method, path, name)

    asyncio.run(scenario())


def test_administrators_see_jobs_nodes_and_events_of_their_tenant():
    async def scenario() -> None:
        async with opened_gateway() as gateway:
            view = (await gateway.get(f"/status/job/{JOB_ID}", "acme admin")).json()
            assert (view["job_id"], view["owner_id"], view["nodes"]) == (JOB_ID, "7", None)
            view = (await gateway.get(f"/status/job/{JOB_ID}?include_nodes=true", "acme admin")).json()
            assert view["nodes"][0]["node_id"] == "greet"
            page = (
                await gateway.get("/status/jobs?limit=2&offset=4&status=failed&include_nodes=true", "admin")
            ).json()
            assert (len(page["jobs"]), page["limit"], page["offset"], page["has_more"]) == (2, 2, 4, True)
            nodes = (await gateway.get(f"/status/job/{JOB_ID}/nodes?limit=3", "admin")).json()
            assert ([node["node_id"] for node in nodes["nodes"]], nodes["next_after"]) == (
                ["n0", "n1", "n2"],
                "n2",
            )
            assert (await gateway.get(f"/status/job/{JOB_ID}/events", "admin")).json()["next_after"] is None
            assert (await gateway.get("/status/stats", "admin")).json() == {"total": 3, "by_status": {"RUNNING": 2, "FAILED": 1}}  # fmt: skip
            found = await gateway.get(f"/status/lookup?correlation_id={REQUEST_ID}", "admin")
            assert found.json()["jobs"][0]["job_id"] == JOB_ID
            assert {call[1] for call in gateway.store.calls[:3]} == {"acme"}
            assert {call[1] for call in gateway.store.calls[3:]} == {"*"}
            for path in ("job/1", "job/1/nodes", "job/1/events"):
                answer = await gateway.get(f"/status/{path}", "admin")
                assert (answer.status_code, answer.json()["code"]) == (404, "job_not_found")
            for query in ("limit=501", "limit=0", "offset=-1", "status=odd", "unknown=1"):
                assert (await gateway.get(f"/status/jobs?{query}", "admin")).status_code in (400, 422), query
            for query in ("", "?correlation_id=a&idempotency_key=b"):
                assert (await gateway.get(f"/status/lookup{query}", "admin")).status_code == 400

    asyncio.run(scenario())


def test_administrators_see_the_health_and_the_settings_of_the_gateway():
    async def scenario() -> None:
        async with opened_gateway() as gateway:
            view = (await gateway.get("/admin/health", "admin")).json()
            assert (view["status"], view["orchestrators"], view["workers"]) == ("healthy", 1, 2)
            assert view["checks"] == [{"name": "database", "passed": True, "detail": ""}]
            config = (await gateway.get("/admin/config", "admin")).json()
            assert config["settings"] == [{"name": "orchestrator_url", "value": SERVER, "source": "x"}]
            assert len((await gateway.get("/admin/active-jobs?limit=7", "admin")).json()["jobs"]) == 7
            assert gateway.store.calls[-1][2].is_open
            gateway.store.error = DatabaseUnavailable("lost")
            assert (await gateway.get("/admin/health", "admin")).json()["orchestrators"] is None

    asyncio.run(scenario())


def answered(response: httpx.Response, _request: httpx.Request) -> httpx.Response:
    return response


def test_metrics_count_requests_by_route_and_status_and_failures_to_forward_and_name_nothing_of_partners():
    async def scenario() -> None:
        async with opened_gateway() as gateway:
            assert (await gateway.post("/platform/submit", SUBMIT)).status_code == 202
            for server in (httpx.Response(502, json={}), httpx.Response(200, text="no")):
                gateway.server = functools.partial(answered, server)
                await gateway.post("/platform/submit", SUBMIT)
            await gateway.get(f"/platform/status/{REQUEST_ID}")
            await gateway.get("/canary")
            assert (await gateway.get("/metrics", "acme admin")).status_code == 403
            text = (await gateway.get("/metrics", "admin")).text
            count = "dagmaster_http_request_duration_seconds_count"
            assert f'{count}{{method="POST",route="/platform/submit",status="202"}} 1.0' in text
            assert f'{count}{{method="GET",route="/platform/status/{{request_id}}",status="200"}} 1.0' in text
            assert f'{count}{{method="any",route="none",status="404"}} 1.0' in text
            for reason in ("502", "no_json"):
                assert f'dagmaster_gateway_forward_failures_total{{reason="{reason}"}} 1.0' in text
            assert not [one for one in (REQUEST_ID, "acme", "canary", "hello") if one in text]

    asyncio.run(scenario())


def test_a_caller_that_is_too_fast_is_told_when_to_send_the_next_request():
    async def scenario() -> None:
        async with opened_gateway(rate_limiter=RateLimiter(0.5, 1)) as gateway:
            assert (await gateway.get(f"/platform/status/{REQUEST_ID}")).status_code == 200
            answer = await gateway.get(f"/platform/status/{REQUEST_ID}")
            assert (answer.status_code, answer.headers["retry-after"]) == (429, "2")
            assert "ratelimit" in answer.headers

    asyncio.run(scenario())
