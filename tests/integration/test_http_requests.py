"""Requests of partners over HTTP, on a real database and socket."""

from __future__ import annotations

import asyncio
import json
import uuid
from typing import TYPE_CHECKING, Any

import asyncpg
import pytest
from click.testing import CliRunner

from dagmaster.cli.main import cli
from dagmaster.client.async_client import AsyncClient
from dagmaster.errors import RequestRejected
from dagmaster.records.requests import RequestBody
from tests.integration.server_on_socket import ADMIN_KEY, with_server

if TYPE_CHECKING:
    from pathlib import Path

    import httpx

FLOW = {
    "workflow_id": "rest",
    "version": 1,
    "inputs": {"title": {"type": "string", "default": ""}},
    "nodes": {"a": {"type": "wait", "signal": "go"}},
}
OURS = {"workflow_id": "rest", "submitted_by": "portal"}
DDH = {"dataset_id": "floods", "resource_id": "tile-17"}


async def publish(http: httpx.AsyncClient) -> None:
    published = await http.post("/api/v1/workflows", json={"text": json.dumps(FLOW)})
    assert published.status_code < 300, published.text


def test_a_request_is_submitted_listed_and_shown(dsn: str, tmp_path: Path):
    async def work(http: httpx.AsyncClient) -> None:
        await publish(http)
        answer = await http.post("/api/v1/submit", json={**OURS, **DDH, "idempotency_key": "k"})
        assert answer.status_code == 202, answer.text
        request = answer.json()
        assert answer.headers["location"] == f"/api/v1/requests/{request['request_id']}"
        again = await http.post("/api/v1/submit", json={**OURS, **DDH}, headers={"Idempotency-Key": "k"})
        assert (again.status_code, again.json()["job_id"]) == (202, request["job_id"])
        other = await http.post("/api/v1/submit", json={**OURS, "idempotency_key": "k"})
        assert (other.status_code, other.json()["code"]) == (409, "idempotency_conflict")

        shown = (await http.get(answer.headers["location"])).json()
        assert (shown["job_id"], shown["status"], shown["platform_id"]) == (
            request["job_id"],
            "pending",
            "ddh",
        )
        status = (await http.get(f"{answer.headers['location']}/status")).json()
        assert (status["status"], status["request_id"]) == ("pending", request["request_id"])
        assert not status.keys() & {"job_id", "actor", "tenant"}
        job = (await http.get(f"/api/v1/jobs/{request['job_id']}")).json()
        assert job["correlation_id"] == request["request_id"]
        (entry,) = (await http.get("/api/v1/audit?action=job.submit")).json()["items"]
        assert entry["object_id"] == request["job_id"]

        rejected = await http.post("/api/v1/submit", json={**OURS, "workflow_id": "nothing"})
        problem = rejected.json()
        assert (rejected.status_code, problem["code"], problem["reason"]) == (
            *(422, "request_rejected"),
            "workflow_not_found",
        )
        failed = (await http.get(f"/api/v1/requests/{problem['request_id']}")).json()
        assert (failed["status"], failed["job_id"], failed["rejection"]["code"]) == (
            *("failed", None),
            "workflow_not_found",
        )
        for query, expected in (
            ("", [problem["request_id"], request["request_id"]]),
            ("status=pending", [request["request_id"]]),
            ("status=failed", [problem["request_id"]]),
            ("status=pending&status=failed", [problem["request_id"], request["request_id"]]),
            ("status=completed", []),
            ("platform_id=ddh", [request["request_id"]]),
            ("workflow_id=nothing", [problem["request_id"]]),
            ("tenant=default&limit=1", [problem["request_id"]]),
            ("tenant=other", []),
            ("idempotency_key=k", [request["request_id"]]),
        ):
            page = (await http.get(f"/api/v1/requests?{query}")).json()
            assert [one["request_id"] for one in page["items"]] == expected, query
        first = (await http.get("/api/v1/requests?limit=1")).json()
        second = (await http.get(f"/api/v1/requests?limit=1&cursor={first['next_cursor']}")).json()
        assert [one["request_id"] for one in second["items"]] == [request["request_id"]]
        assert (await http.get("/api/v1/requests?status=waiting")).status_code == 400

    asyncio.run(with_server(dsn, tmp_path, work))


def test_an_unknown_request_a_malformed_id_and_another_caller_s_are_answered_alike(dsn: str, tmp_path: Path):
    async def work(http: httpx.AsyncClient) -> None:
        await publish(http)
        stored = (await http.post("/api/v1/submit", json=OURS)).json()["request_id"]
        key = {"name": "portal", "scopes": ["submit"]}
        own = (await http.post("/api/v1/keys", json=key)).json()["key"]
        answers = [
            await http.get(f"/api/v1/requests/{one}{tail}", headers={"X-API-Key": own})
            for one in (stored, str(uuid.uuid4()), "x", "{" + stored + "}")
            for tail in ("", "/status")
        ]
        assert {(answer.status_code, answer.text) for answer in answers} == {(404, answers[0].text)}
        listed = await http.get("/api/v1/requests", headers={"X-API-Key": own})
        assert listed.json()["items"] == []
        mine = (await http.post("/api/v1/submit", json=OURS, headers={"X-API-Key": own})).json()["request_id"]
        assert (
            await http.get(f"/api/v1/requests/{mine}/status", headers={"X-API-Key": own})
        ).status_code == 200

    asyncio.run(with_server(dsn, tmp_path, work))


def test_requests_and_platforms_at_the_command_line(
    dsn: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
):
    def run(*words: str) -> str:
        result = CliRunner().invoke(cli, list(words))
        assert result.exit_code == 0, result.output
        return result.output

    def commands(rejected: str, accepted: str) -> None:
        listed = json.loads(run("requests", "list", "--json"))["items"]
        assert [one["request_id"] for one in listed] == [rejected, accepted]
        failed = json.loads(run("requests", "list", "--status", "failed", "--json"))["items"]
        assert [one["request_id"] for one in failed] == [rejected]
        assert accepted in run("requests", "list")
        assert "no request matches" in run("requests", "list", "--platform", "arcgis")
        shown = run("requests", "show", accepted)
        assert "dataset_id=floods" in shown
        assert f"dagmaster jobs show {listed[1]['job_id']}" in shown
        assert "workflow_not_found" in run("requests", "show", rejected)
        assert CliRunner().invoke(cli, ["requests", "show", "x"]).exit_code
        stored = (
            "--id-field",
            "item",
            "--optional",
            "layer",
            "--integer",
            "layer",
            "--map",
            "label=inputs.title",
        )
        document = json.loads(run("platforms", "set", "portal", *stored, "--json"))
        assert json.loads(run("platforms", "show", "portal", "--json")) == document
        assert document["field_types"] == {"layer": "integer"}
        assert document in json.loads(run("platforms", "list", "--json"))
        assert "label → inputs.title" in run("platforms", "show", "portal")
        assert "portal" in run("platforms", "list")
        assert CliRunner().invoke(cli, ["platforms", "set", "portal", "--id-field", "priority"]).exit_code

    async def work(http: httpx.AsyncClient) -> None:
        await publish(http)
        accepted = (await http.post("/api/v1/submit", json={**OURS, **DDH})).json()["request_id"]
        wrong = await http.post("/api/v1/submit", json={"workflow_id": "nothing"})
        rejected = wrong.json()["request_id"]
        monkeypatch.setenv("DAGMASTER_DATABASE_URL", dsn)
        await asyncio.to_thread(commands, rejected, accepted)
        monkeypatch.delenv("DAGMASTER_DATABASE_URL")
        monkeypatch.setenv("DAGMASTER_URL", str(http.base_url))
        monkeypatch.setenv("DAGMASTER_KEY", ADMIN_KEY)
        await asyncio.to_thread(commands, rejected, accepted)

    asyncio.run(with_server(dsn, tmp_path, work))


def test_a_client_submits_requests_and_gets_the_errors_of_the_application(dsn: str, tmp_path: Path):
    async def work(http: httpx.AsyncClient) -> None:
        await publish(http)
        async with AsyncClient(str(http.base_url), ADMIN_KEY) as client:
            body = RequestBody(workflow_id="rest", fields=DDH, idempotency_key="k")
            result = await client.submit_request(body)
            assert (await client.submit_request(body)).job_id == result.job_id
            assert (await client.request_status(result.request_id or "")).status == "pending"
            with pytest.raises(RequestRejected) as caught:
                await client.submit_request(RequestBody(workflow_id="rest", input_params={"title": 1}))
            assert (caught.value.reason, bool(caught.value.problems)) == ("inputs_invalid", True)
            assert (await client.show_request(caught.value.request_id)).status == "failed"
            outcomes = await client.submit_requests([body, RequestBody(workflow_id="nothing")])
            assert [one.outcome for one in outcomes] == ["existing", "rejected"]

    asyncio.run(with_server(dsn, tmp_path, work))


def test_a_platform_is_declared_with_a_field_map(dsn: str, tmp_path: Path):
    platform = {
        "platform_id": "portal",
        "title": "The portal",
        "id_fields": ["item"],
        "optional_id_fields": ["layer"],
        "field_types": {"layer": "integer"},
        "field_map": {"item_no": "platform_refs.item", "label": "inputs.title", "urgency": "priority"},
    }

    async def work(http: httpx.AsyncClient) -> None:
        await publish(http)
        for wrong, path in (
            ({"id_fields": ["item", "workflow_id"]}, "id_fields"),
            ({"field_types": {"nothing": "integer"}}, "field_types.nothing"),
            ({"field_types": {"layer": "float"}}, "field_types.layer"),
            ({"field_map": {"label": "elsewhere.title"}}, "field_map.label"),
            ({"field_map": {"a": "inputs.b", "c": "inputs.b"}}, "field_map.c"),
            ({"field_map": {"item": "inputs.b"}}, "field_map.item"),
            ({"platform_id": "Portal"}, "platform_id"),
        ):
            refused = await http.post("/api/v1/platforms", json=platform | wrong)
            assert refused.status_code == 422
            assert [error["path"] for error in refused.json()["errors"]] == [path], refused.text
        assert (await http.post("/api/v1/platforms", json=platform)).json() == platform
        assert (await http.get("/api/v1/platforms/portal")).json() == platform
        (entry,) = (await http.get("/api/v1/audit?action=platform.set")).json()["items"]
        assert (entry["object_id"], entry["details"]["id_fields"]) == ("portal", ["item"])
        assert (await http.get("/api/v1/platforms/nowhere")).json()["code"] == "platform_not_found"
        listed = (await http.get("/api/v1/platforms")).json()
        assert [one["platform_id"] for one in listed] == ["arcgis", "ddh", "portal"]
        own = {"item_no": "17", "layer": 3, "label": "A map", "urgency": 9}
        answer = await http.post("/api/v1/submit", json={**OURS, **own})
        assert answer.status_code == 202, answer.text
        shown = (await http.get(answer.headers["location"])).json()
        assert (shown["platform_id"], shown["platform_refs"], shown["priority"]) == (
            *("portal", {"item": "17", "layer": 3}),
            9,
        )
        job = (await http.get(f"/api/v1/jobs/{shown['job_id']}")).json()
        assert (job["inputs"], job["priority"]) == ({"title": "A map"}, 9)

        for more, paths in (
            ({"item": "1", "layer": "3"}, ["layer"]),
            ({"item": 1}, ["item"]),
            ({"item": ""}, ["item"]),
            ({"platform_id": "portal", "layer": 1}, ["item"]),
            ({"platform_id": "nowhere", "item": "1"}, ["platform_id"]),
            ({"platform_refs": {"item": "1"}}, ["platform_id"]),
            ({"platform_id": "portal", "platform_refs": {"item": "1", "else": "2"}}, ["platform_refs.else"]),
            ({"item": "1", "item_no": "2"}, ["item_no"]),
            ({"item": "1", "urgency": 11}, ["priority"]),
            ({"itme": "1"}, ["itme"]),
            ({"item": "1", "dataset_id": "2"}, ["platform_id"]),
        ):
            refused = await http.post("/api/v1/submit", json={**OURS, **more})
            assert refused.status_code in (400, 422), more
            assert [error["path"] for error in refused.json()["errors"]] == paths, refused.text

    asyncio.run(with_server(dsn, tmp_path, work))


def test_a_batch_has_1_to_100_requests_with_an_outcome_each(dsn: str, tmp_path: Path):
    async def work(http: httpx.AsyncClient) -> None:
        await publish(http)
        bodies = [OURS | {"priority": n % 11} for n in range(98)] + [
            {"workflow_id": "nothing"},
            OURS | {"x": 1},
        ]
        answer = await http.post("/api/v1/submit/batch", json={"requests": bodies})
        outcomes = [one["outcome"] for one in answer.json()]
        assert (answer.status_code, outcomes) == (202, ["accepted"] * 98 + ["rejected"] * 2)
        for count in (0, 101):
            assert (
                await http.post("/api/v1/submit/batch", json={"requests": [OURS] * count})
            ).status_code == 422
        keyed = await http.post(
            "/api/v1/submit/batch", json={"requests": [OURS]}, headers={"Idempotency-Key": "k"}
        )
        assert keyed.status_code == 400

    asyncio.run(with_server(dsn, tmp_path, work))


def test_hostile_bodies_are_refused_and_not_stored(dsn: str, tmp_path: Path):
    texts: list[str | bytes] = [
        '{"workflow_id": "rest", "priority": NaN}',
        '{"workflow_id": "rest", "workflow_id": "rest"}',
        '{"workflow_id": "rest", "submitted_by": "\\ud800"}',
        '{"workflow_id": "rest", "submitted_by": "\\u0000"}',
        '{"workflow_id": "rest", "input_params": ' + '{"a":' * 200 + "1" + "}" * 201,
        '{"workflow_id": "' + "a" * 65 + '"}',
        '{"workflow_id": "rest", "input_params": []}',
        '{"workflow_id": "rest", "priority": "5"}',
        '{"workflow_id": "rest", "platform_refs": "x"}',
        '{"workflow_id": "rest", "request_id": "' + "a" * 36 + '"}',
        "[]",
        "null",
        b"\xff",
    ]

    async def work(http: httpx.AsyncClient) -> None:
        await publish(http)
        for text in texts:
            answer = await http.post(
                "/api/v1/submit", content=text, headers={"Content-Type": "application/json"}
            )
            assert answer.status_code in (400, 422), (text, answer.text)
            assert "request_id" not in answer.json()
        assert (await http.get("/api/v1/requests")).json()["items"] == []

    asyncio.run(with_server(dsn, tmp_path, work))


def test_a_used_up_quota_is_answered_with_the_time_of_its_renewal(dsn: str, tmp_path: Path):
    async def work(http: httpx.AsyncClient) -> None:
        await publish(http)
        connection: Any = await asyncpg.connect(dsn)
        await connection.execute("UPDATE dagapp.dag_tenants SET requests_per_day = 1 WHERE name = 'default'")
        await connection.close()
        assert (await http.post("/api/v1/submit", json=OURS)).status_code == 202
        answer = await http.post("/api/v1/submit", json=OURS)
        assert (answer.status_code, answer.json()["code"]) == (429, "request_quota_exceeded")
        assert 0 < int(answer.headers["retry-after"]) <= 86_400

    asyncio.run(with_server(dsn, tmp_path, work))


def test_a_submit_without_the_database_is_to_be_sent_again(tmp_path: Path):
    async def work(http: httpx.AsyncClient) -> None:
        for path, body in (("submit", OURS), ("submit/batch", {"requests": [OURS]})):
            answer = await http.post(f"/api/v1/{path}", json=body)
            assert (answer.status_code, answer.json()["code"]) == (503, "database_unavailable")
            assert answer.headers["retry-after"]

    asyncio.run(with_server("postgresql://nothing@127.0.0.1:1/x", tmp_path, work))


def test_a_sandbox_key_plays_its_requests_and_starts_nothing(dsn: str, tmp_path: Path):
    outcomes = {
        "completed": ("completed", None),
        "failed": ("failed", "processing_failed"),
        "cancelled": ("failed", "cancelled"),
        "deadline": ("failed", "deadline"),
    }

    async def work(http: httpx.AsyncClient) -> None:
        await publish(http)
        body = {"name": "acme", "scopes": ["submit"], "is_sandbox": True}
        made = (await http.post("/api/v1/keys", json=body)).json()
        assert (made["actor"], made["is_sandbox"]) == ("sandbox:acme", True)
        assert (await http.post("/api/v1/keys", json=body | {"scopes": ["admin"]})).status_code == 400
        own = {"X-API-Key": made["key"]}
        requests = {}
        for outcome in outcomes:
            asked = {**OURS, "sandbox": {"outcome": outcome}, "idempotency_key": outcome}
            answer = await http.post("/api/v1/submit", json=asked, headers=own)
            assert answer.status_code == 202, answer.text
            requests[outcome] = answer.json()["request_id"]
            again = await http.post("/api/v1/submit", json=asked, headers=own)
            assert again.json()["request_id"] == requests[outcome]
        for outcome, (status, code) in (
            ("rejected", (422, "request_rejected")),
            ("quota_exceeded", (429, "request_quota_exceeded")),
            ("unavailable", (503, "database_unavailable")),
            ("else", (400, "request_invalid")),
        ):
            answer = await http.post(
                "/api/v1/submit", json={**OURS, "sandbox": {"outcome": outcome}}, headers=own
            )
            assert (answer.status_code, answer.json()["code"]) == (status, code), outcome
        wrong = await http.post("/api/v1/submit", json={**OURS, "input_params": {"title": 1}}, headers=own)
        assert (wrong.status_code, wrong.json()["reason"]) == (422, "inputs_invalid")
        for method, path in (
            ("POST", "jobs"),
            ("GET", "jobs"),
            ("POST", "plan"),
            ("GET", "workflows"),
            ("GET", "fleet"),
        ):
            refused = await http.request(method, f"/api/v1/{path}", headers=own, json=None)
            assert refused.status_code == 403, path

        database: Any = await asyncpg.connect(dsn, server_settings={"search_path": "dagapp"})

        async def statuses(change: str) -> list[tuple[str, str | None]]:
            await database.execute(f"UPDATE dag_api_requests SET {change} WHERE state = 'sandbox'")
            answers = [
                await http.get(f"/api/v1/requests/{one}/status", headers=own) for one in requests.values()
            ]
            return [(one.json()["status"], one.json()["error_code"]) for one in answers]

        assert await statuses("created_at = clock() + interval '1 h'") == [("pending", None)] * 4
        runs = """created_at = clock() - interval '1 h', sandbox = (sandbox::jsonb || '{"ends_after": 7200}')::json"""
        assert await statuses(runs) == [("running", None)] * 4
        ends = """sandbox = (sandbox::jsonb || '{"ends_after": 3}')::json"""
        assert await statuses(ends) == list(outcomes.values())
        status = (await http.get(f"/api/v1/requests/{requests['completed']}/status", headers=own)).json()
        assert (bool(status["completed_at"]), status["result"] is None) == (True, False)
        assert (await http.get("/api/v1/requests?status=completed", headers=own)).json()["items"][0][
            "is_sandbox"
        ]
        assert await database.fetchval("SELECT count(*) FROM dag_jobs") == 0
        await database.close()
        assert (await http.get("/api/v1/jobs")).json()["items"] == []
        theirs = await http.post("/api/v1/submit", json={**OURS, "sandbox": {"outcome": "failed"}})
        assert theirs.json()["errors"][0]["path"] == "sandbox"

    asyncio.run(with_server(dsn, tmp_path, work))


def test_tenants_see_their_own_requests_and_use_their_own_platforms(dsn: str, tmp_path: Path):
    async def work(http: httpx.AsyncClient) -> None:
        await publish(http)
        keys = {}
        for name, platforms in (("acme", ["ddh"]), ("other", [])):
            tenant = {"name": name, "platforms": platforms, "workflows": ["*"], "requests_per_day": 2}
            made = await http.post("/api/v1/tenants", json=tenant)
            assert made.status_code < 300, made.text
            key = {"name": "portal", "scopes": ["submit", "read"], "tenant": name}
            keys[name] = {"X-API-Key": (await http.post("/api/v1/keys", json=key)).json()["key"]}
        body = {**OURS, **DDH, "idempotency_key": "k"}
        mine = (await http.post("/api/v1/submit", json=body, headers=keys["acme"])).json()["request_id"]
        theirs = await http.post("/api/v1/submit", json=body, headers=keys["other"])
        assert (theirs.status_code, theirs.json()["reason"]) == (422, "platform_refs_invalid")
        assert "ddh" not in theirs.text
        plain = await http.post(
            "/api/v1/submit", json={**OURS, "idempotency_key": "l"}, headers=keys["other"]
        )
        assert plain.status_code == 202, plain.text
        answers = [
            await http.get(f"/api/v1/requests/{one}{tail}", headers=keys["other"])
            for one in (mine, str(uuid.uuid4()), "x")
            for tail in ("", "/status")
        ]
        assert {(answer.status_code, answer.text) for answer in answers} == {(404, answers[0].text)}
        for query in ("", "?tenant=acme", "?platform_id=ddh"):
            listed = (await http.get(f"/api/v1/requests{query}", headers=keys["other"])).json()["items"]
            assert mine not in [one["request_id"] for one in listed]
        assert (await http.get("/api/v1/platforms", headers=keys["other"])).json() == []
        spent = await http.post("/api/v1/submit", json=OURS, headers=keys["other"])
        assert spent.status_code == 429
        assert (await http.post("/api/v1/submit", json=OURS, headers=keys["acme"])).status_code == 202
        everything = (await http.get("/api/v1/requests?tenant=acme")).json()["items"]
        assert {one["tenant"] for one in everything} == {"acme"}
        (own, *_) = (await http.get("/api/v1/requests?idempotency_key=k", headers=keys["acme"])).json()[
            "items"
        ]
        assert (own["request_id"], own["actor"]) == (mine, "acme/key:portal")

    asyncio.run(with_server(dsn, tmp_path, work))
