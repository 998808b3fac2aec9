"""Handlers that workers have published: a server without their code lists them, validates with them, tests them."""

from __future__ import annotations

import asyncio
from typing import Any

from dagmaster.application.commands.validation import validate_text
from dagmaster.application.worker_admission import WorkerQuotas
from dagmaster.ports.api_keys import Scope
from dagmaster.sdk.handler_registry import Registry
from tests.patience import PATIENCE_SECONDS
from tests.unit.http.api_client import greet, opened_api

WRONG = """
workflow_id: wrong
version: 1
nodes:
  one: {handler: greet, queue: q, params: {name: [1]}, next: two}
  two: {handler: greet, queue: q, params: {nam: Ada}, next: three}
  three: {handler: greet, queue: q}
"""


async def published(api: Any) -> None:
    """Wait until the worker has published its handlers."""
    async with asyncio.timeout(PATIENCE_SECONDS):
        while not (await api.get("/api/v1/handlers")).json()["items"]:  # noqa: ASYNC110 - it is published next to the work
            await asyncio.sleep(0)


def test_published_handlers_are_listed_and_shown_with_their_schemas():
    async def main() -> None:
        async with opened_api() as api:
            await published(api)
            (item,) = (await api.get("/api/v1/handlers")).json()["items"]
            assert (item["name"], item["version"], item["queue"], item["workers"]) == ("greet", "1", "q", 1)
            assert item["params"]["properties"]["name"]["type"] == "string"
            assert (await api.get("/api/v1/handlers/greet")).json() == item
            answer = await api.get("/api/v1/handlers/great")
            assert (answer.status_code, answer.json()["code"]) == (404, "handler_not_found")
            assert "greet" in answer.json()["detail"]

    asyncio.run(main())


def test_a_server_reports_the_same_problems_at_the_same_places_as_the_handlers_own_code():
    async def main() -> None:
        async with opened_api() as api:
            await published(api)
            body = {"text": WRONG, "file": "wrong.yaml"}
            answer = (await api.post("/api/v1/workflows/validate", body)).json()
            own = validate_text(WRONG, Registry([greet]), name="wrong.yaml").to_dict()
            assert len(own["problems"]) == 3
            assert answer == own
            refused = await api.post("/api/v1/workflows", body)
            assert (refused.status_code, refused.json()["code"]) == (422, "workflow_invalid")

    asyncio.run(main())


def test_a_handler_that_no_worker_has_is_a_warning_or_an_error_as_asked():
    async def main() -> None:
        async with opened_api() as api:
            await published(api)
            text = WRONG.replace("greet", "gret").replace("{name: [1]}", "{}")
            for allowed, severity in ((True, "warning"), (False, "error")):
                body = {"text": text, "allow_missing_handlers": allowed}
                answer = (await api.post("/api/v1/workflows/validate", body)).json()
                assert answer["is_valid"] is allowed
                assert {problem["severity"] for problem in answer["problems"]} == {severity}

    asyncio.run(main())


def test_a_handler_is_tested_on_a_worker_as_a_job_that_no_list_shows():
    async def main() -> None:
        async with opened_api() as api:
            await published(api)
            params = {"name": "{{ inputs.nothing }}"}
            answer = await api.post("/api/v1/handlers/greet/test", {"params": params})
            body = answer.json()
            assert (answer.status_code, body["status"], body["is_finished"]) == (200, "COMPLETED", True)
            assert body["output"] == {"text": "hello {{ inputs.nothing }}"}, "a param is no template"
            assert (await api.get(f"/api/v1/jobs/{body['job_id']}")).json()["status"] == "COMPLETED"
            assert (await api.get("/api/v1/jobs")).json()["items"] == []
            assert (await api.get("/api/v1/stats")).json()["total"] == 0

    asyncio.run(main())


def test_a_test_that_fails_says_why():
    async def main() -> None:
        async with opened_api() as api:
            await published(api)
            body = (await api.post("/api/v1/handlers/greet/test", {"params": {"nam": 1}})).json()
            assert (body["status"], body["output"]) == ("FAILED", None)
            assert body["error"]["kind"] == "invalid_params"
            missing = await api.post("/api/v1/handlers/nothing/test", {})
            assert (missing.status_code, missing.json()["code"]) == (404, "handler_not_found")

    asyncio.run(main())


def test_a_test_that_takes_longer_answers_202_with_its_job():
    async def main() -> None:
        async with opened_api(queues=["q"]) as api:
            await published(api)
            body = {"params": {"name": "Ada"}, "queue": "unserved", "wait_seconds": 0.05}
            answer = await api.post("/api/v1/handlers/greet/test", body)
            assert (answer.status_code, answer.json()["is_finished"]) == (202, False)
            assert answer.headers["location"] == f"/api/v1/jobs/{answer.json()['job_id']}"

    asyncio.run(main())


def test_handlers_of_a_worker_that_speaks_http_are_published_when_it_registers():
    async def main() -> None:
        async with opened_api() as api:
            headers = api.headers
            await api.use_key(Scope.WORK, name="far")
            schema = {
                "type": "object",
                "properties": {"size": {"type": "integer", "minimum": 1}},
                "required": ["size"],
                "additionalProperties": False,
            }
            handler = {"name": "thumb", "version": "3", "queue": "far", "params": schema}
            assert (await api.post("/api/v1/workers", {"handlers": [handler]})).status_code == 201
            api.headers = headers
            shown = (await api.get("/api/v1/handlers/thumb")).json()
            assert (shown["version"], shown["workers"], shown["params"]) == ("3", 1, schema)
            text = "workflow_id: w\nversion: 1\nnodes: {a: {handler: thumb, params: {size: 0}}}\n"

            async def problems() -> list[str]:
                answer = await api.post("/api/v1/workflows/validate", {"text": text})
                return [problem["path"] for problem in answer.json()["problems"]]

            assert await problems() == ["nodes.a", "nodes.a.params.size"], "its default queue does not count"
            answer = await api.post("/api/v1/handlers/thumb/trust")
            assert answer.json() == {
                "handler": "thumb", "caller": "key:far", "is_trusted": True, "owner": "key:far",
            }  # fmt: skip
            assert await problems() == ["nodes.a.params.size"]

    asyncio.run(main())


def test_a_shipped_handler_that_nobody_has_published_cannot_be_claimed_by_the_first_key():
    async def main() -> None:
        async with opened_api() as api:
            admin = api.headers
            await api.use_key(Scope.WORK, name="stranger")
            handlers = [{"name": name, "queue": "evil"} for name in ("hello_world", "create_cog", "own")]
            registered = (await api.post("/api/v1/workers", {"handlers": handlers})).json()
            # Also not under an alias.
            assert registered["untrusted_handlers"] == ["create_cog", "hello_world"]
            api.headers = admin
            assert (await api.get("/api/v1/handlers/hello_world")).status_code == 404
            answer = await api.post("/api/v1/handlers/hello_world/trust")
            assert (answer.status_code, answer.json()["code"]) == (404, "handler_not_found")
            assert "narrowed to the handler" in answer.json()["detail"]

    asyncio.run(main())


def test_what_a_stranger_publishes_of_a_handler_changes_nothing_until_an_administrator_trusts_it():
    async def main() -> None:
        async with opened_api() as api:
            admin = api.headers
            await api.use_key(Scope.WORK, name="stranger")
            evil = {"name": "greet", "queue": "evil", "params": {"type": "object", "required": ["x"]}}
            registered = (await api.post("/api/v1/workers", {"handlers": [evil]})).json()
            assert registered["untrusted_handlers"] == ["greet"]
            stranger, api.headers = api.headers, admin
            await api.publish()
            shown = (await api.get("/api/v1/handlers/greet")).json()
            assert (shown["owner"], shown["queue"], shown["is_trusted"]) == ("installation", "q", True)
            (change,) = shown["changes"]
            assert change["actor"] == "key:stranger"
            assert 'queue: "q" → "evil"' in change["differences"]
            rejected = await api.post("/api/v1/handlers/greet/trust", {"caller": "key:other"})
            assert (rejected.status_code, rejected.json()["code"]) == (409, "handler_trust_rejected")
            await api.post("/api/v1/handlers/greet/trust", {"caller": "key:stranger"})
            entries = (await api.get("/api/v1/audit", action="handler.trust")).json()["items"]
            assert [(one["actor"], one["object_id"], one["details"]["caller"]) for one in entries] == [
                ("key:ada", "greet", "key:stranger")
            ]
            api.headers = stranger
            registered = (await api.post("/api/v1/workers", {"handlers": [{**evil, "queue": None}]})).json()
            assert registered["untrusted_handlers"] == []
            api.headers = admin
            assert (await api.post("/api/v1/handlers/greet/distrust")).status_code == 200
            api.headers = stranger
            registered = (await api.post("/api/v1/workers", {"handlers": [evil]})).json()
            assert registered["untrusted_handlers"] == ["greet"]

    asyncio.run(main())


def test_a_key_has_quotas_of_workers_queues_and_handlers():
    async def main() -> None:
        async with opened_api() as api:
            api.services.remote_tasks.quotas = WorkerQuotas(workers=2, queues=3, handlers=3)
            await api.use_key(Scope.WORK, name="far")

            async def register(handlers: str, queues: str = "q") -> tuple[int, str]:
                body = {"handlers": [{"name": name} for name in handlers.split()], "queues": queues.split()}
                answer = await api.post("/api/v1/workers", body)
                return answer.status_code, answer.json().get("detail", "")

            assert (await register("a b"))[0] == 201
            assert "4 handlers, and may have 3 (DAGMASTER_HANDLERS_PER_KEY)" in (await register("c d"))[1]
            assert "4 queues, and may have 3" in (await register("a", "r s t"))[1]
            assert (await register("a c", "r s"))[0] == 201
            status, reason = await register("a")
            assert (status, "3 live workers, and may have 2" in reason) == (403, True)
            await api.use_key(Scope.WORK, name="another")
            assert (await register("x y z"))[0] == 201
            rejected = await api.post("/api/v1/workers", {"handlers": [{"name": "geo.*"}]})
            assert rejected.status_code == 400, "a package would be all handlers of it"

    asyncio.run(main())
