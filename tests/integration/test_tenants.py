"""Two tenants on one server: neither finds a trace of the other, whatever it asks."""

from __future__ import annotations

import asyncio
import contextlib
import json
import re
import socket
from typing import TYPE_CHECKING, Any, Final

import httpx
from pydantic import SecretStr

from dagmaster.bootstrap import large_outputs, make_orchestrator
from dagmaster.bootstrap.http_server import ServerService
from dagmaster.http.app import route_scopes
from dagmaster.ports.api_keys import Scope
from dagmaster.ports.database_config import DatabaseConfig
from dagmaster.settings import load_settings
from tests.integration.server_on_socket import ADMIN_KEY
from tests.patience import PATIENCE_SECONDS

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Awaitable, Callable
    from pathlib import Path

CANARY: Final = "xcanaryx"


def flow(workflow_id: str, title: str = "") -> dict[str, Any]:
    return {
        "workflow_id": workflow_id,
        "version": 1,
        "name": title,
        "inputs": {"text": {"type": "string", "default": ""}},
        "nodes": {
            "work": {
                "type": "task",
                "handler": "shout",
                "queue": "edge",
                "params": {"text": "{{ inputs.text }}"},
            }
        },
    }


class Installation:
    """A server and an orchestrator on a database, with keys of two tenants."""

    def __init__(self, url: str) -> None:
        self.url = url
        self.keys: dict[str, str] = {"admin": ADMIN_KEY}
        self._http = httpx.AsyncClient(base_url=url, timeout=PATIENCE_SECONDS)

    async def close(self) -> None:
        await self._http.aclose()

    async def call(self, who: str, method: str, path: str, **body: Any) -> httpx.Response:
        return await self._http.request(
            method,
            path if path.startswith("/") else f"/api/v1/{path}",
            headers={"X-API-Key": self.keys[who]},
            json=body or None,
        )

    async def get(self, who: str, path: str) -> Any:
        answer = await self.call(who, "GET", path)
        assert answer.status_code == 200, (path, answer.text)
        return answer.json()

    async def post(self, who: str, path: str, **body: Any) -> Any:
        answer = await self.call(who, "POST", path, **body)
        assert answer.status_code in (200, 201, 202), (path, answer.text)
        return answer.json()

    async def make_key(self, tenant: str, name: str, *scopes: str, by: str = "admin") -> str:
        body = {"name": name, "scopes": list(scopes), "tenant": tenant}
        who = f"{tenant}/{name}"
        self.keys[who] = (await self.post(by, "keys", **body))["key"]
        return who


@contextlib.asynccontextmanager
async def installed(dsn: str, folder: Path) -> AsyncIterator[Installation]:
    config = DatabaseConfig(dsn=dsn)
    settings = load_settings().model_copy(update={"admin_key": SecretStr(ADMIN_KEY)})
    listener = socket.create_server(("127.0.0.1", 0))
    server = ServerService(config, settings, folder, listener)
    orchestrator = make_orchestrator(config, large_outputs(settings, folder), settings)
    running = [asyncio.create_task(service.run()) for service in (server, orchestrator)]
    await asyncio.wait_for(server.ready.wait(), PATIENCE_SECONDS)
    installation = Installation(f"http://127.0.0.1:{listener.getsockname()[1]}")
    try:
        for tenant in ("acme", "globex"):
            await installation.post("admin", "tenants", name=tenant)
            await installation.make_key(tenant, "boss", "admin", "work")
        yield installation
    finally:
        await installation.close()
        for service in (server, orchestrator):
            service.stop()
        for task in running:
            await asyncio.wait_for(task, PATIENCE_SECONDS)


def on_installation(dsn: str, folder: Path, work: Callable[[Installation], Awaitable[None]]) -> None:
    async def main() -> None:
        async with installed(dsn, folder) as installation:
            await work(installation)

    asyncio.run(main())


def test_a_tenant_sees_its_jobs_and_no_other_ones(dsn, tmp_path):
    async def work(one: Installation) -> None:
        for tenant in ("acme", "globex"):
            await one.post(f"{tenant}/boss", "workflows", text=json.dumps(flow("flow", tenant)))
        jobs = {
            tenant: (await one.post(f"{tenant}/boss", "jobs", workflow_id="flow"))["job_id"]
            for tenant in ("acme", "globex")
        }
        for tenant, other in (("acme", "globex"), ("globex", "acme")):
            boss = f"{tenant}/boss"
            listed = (await one.get(boss, "jobs"))["items"]
            assert [(job["job_id"], job["tenant"]) for job in listed] == [(jobs[tenant], tenant)]
            assert (await one.get(boss, f"jobs/{jobs[tenant]}"))["submitted_by"] == f"{tenant}/key:boss"
            assert (await one.call(boss, "GET", f"jobs/{jobs[other]}")).status_code == 404
            assert (await one.call(boss, "POST", f"jobs/{jobs[other]}/cancel")).status_code == 404
            assert (await one.get(boss, "workflows/flow"))["definition"]["name"] == tenant
            assert [row["tenant"] for row in (await one.get(boss, "workflows"))["items"]] == [tenant]
        everything = (await one.get("admin", "jobs"))["items"]
        assert {job["tenant"] for job in everything} == {"acme", "globex"}
        assert [job["tenant"] for job in (await one.get("admin", "jobs?tenant=acme"))["items"]] == ["acme"]
        assert (await one.get("acme/boss", "jobs?tenant=globex"))["items"] == []
        listed = (await one.get("admin", "workflows"))["items"]
        assert [(row["workflow_id"], row["tenant"]) for row in listed] == [
            ("flow", "acme"),
            ("flow", "globex"),
        ]

    on_installation(dsn, tmp_path, work)


FLOW_OF_GLOBEX: Final = {
    "workflow_id": f"flow-{CANARY}",
    "version": 1,
    "name": f"flow of {CANARY}",
    "tags": [CANARY],
    "inputs": {"text": {"type": "string"}},
    "nodes": {
        "work": {
            "type": "task",
            "handler": CANARY,
            "queue": CANARY,
            "params": {"text": "{{ inputs.text }}"},
            "retry": "none",
            "next": "ask",
        },
        "ask": {"type": "approval", "message": f"is {CANARY} fine?"},
    },
}


async def filled(one: Installation) -> dict[str, str]:
    """Fill the tenant globex; return the ids that a path may name."""
    boss = "globex/boss"
    await one.make_key("globex", CANARY, "read")
    await one.post(boss, "workflows", text=json.dumps(FLOW_OF_GLOBEX))
    worker = {"handlers": [{"name": CANARY}], "queues": [CANARY], "host": CANARY}
    worker_id = (await one.post(boss, "workers", **worker))["worker_id"]
    body = {
        "workflow_id": FLOW_OF_GLOBEX["workflow_id"],
        "inputs": {"text": CANARY},
        "name": CANARY,
        "correlation_id": CANARY,
        "idempotency_key": CANARY,
    }
    job_ids = [(await one.post(boss, "jobs", **body))["job_id"]]
    job_ids += [
        (await one.post(boss, "jobs", **{**body, "idempotency_key": f"{CANARY}{number}"}))["job_id"]
        for number in range(3)
    ]
    tasks: list[Any] = []
    async with asyncio.timeout(PATIENCE_SECONDS):
        while len(tasks) < 3:
            claim = {"worker_id": worker_id, "task_ids": [task["task_id"] for task in tasks]}
            tasks += (await one.post(boss, "tasks/claim", **claim, limit=3 - len(tasks), wait_seconds=5))[
                "tasks"
            ]
    running, failing, done = tasks
    for task in tasks:
        report = {"worker_id": worker_id, "task_id": task["task_id"], "lease_token": task["lease_token"]}
        await one.post(
            boss,
            "callbacks/task-progress",
            **report,
            current=1,
            total=2,
            message=CANARY,
            checkpoint={"phase": CANARY, "data": {"text": CANARY}},
            log={"chunk": 1, "text": f"{CANARY}\n"},
        )
    for task, outcome in (
        (failing, {"status": "failed", "permanent": True, "error": {"kind": CANARY, "message": CANARY}}),
        (done, {"status": "completed", "output": {"text": CANARY}}),
    ):
        report = {"worker_id": worker_id, "task_id": task["task_id"], "lease_token": task["lease_token"]}
        await one.post(boss, "callbacks/task-result", **report, **outcome)

    async def status(job_id: str, *expected: str) -> None:
        async with asyncio.timeout(PATIENCE_SECONDS):
            while (await one.get(boss, f"jobs/{job_id}"))["status"] not in expected:  # noqa: ASYNC110
                await asyncio.sleep(0.05)

    await status(failing["job_id"], "FAILED")
    await status(done["job_id"], "WAITING")
    return {
        "job_id": done["job_id"],
        "running_job_id": running["job_id"],
        "failed_job_id": failing["job_id"],
        "task_id": running["task_id"],
        "worker_id": worker_id,
        "service_id": worker_id,
    }


def traces(text: str, asked: str) -> list[str]:
    """Return what is left of the other tenant in a text, apart from what the request itself said."""
    cleaned = text.replace(asked, "")
    return [cleaned[max(0, at - 80) : at + 80] for at in (cleaned.find(CANARY),) if at >= 0]


def test_no_route_and_no_scope_shows_a_tenant_a_trace_of_another(dsn, tmp_path):
    async def work(one: Installation) -> None:
        ids = await filled(one)
        callers = [await one.make_key("acme", scope.value, scope.value, by="admin") for scope in Scope] + [
            await one.make_key("default", scope, scope) for scope in ("read", "submit", "operate")
        ]
        document = (await one.call("admin", "GET", "/openapi.json")).json()["paths"]
        before = await state_of_globex(one, ids)
        answered = 0
        for (method, route), needed in route_scopes().items():
            if method == "WS" or needed is None or route.endswith("/stream"):
                continue
            content = document[route][method.lower()].get("requestBody", {}).get("content", {})
            body = content.get("application/json", {}).get("example") or {}
            named = re.findall(r"{(\w+)[^}]*}", route)
            values = {name: ids.get(name, CANARY) for name in named}
            path = re.sub(r"{(\w+)[^}]*}", "{\\1}", route).format(**values)
            for who in callers:
                if (who, route) == ("default/read", "/metrics"):
                    continue  # The metrics of the installation are for its own callers.
                answer = await one.call(who, method, path, **body)
                answered += 1
                said = CANARY if CANARY in values.values() else "\0"
                text = f"{answer.text}{dict(answer.headers)}"
                found = [] if said in path and answer.status_code >= 400 else traces(text, "\0")
                assert not found, (who, method, path, answer.status_code, found)
                assert answer.status_code != 500, (who, method, path, answer.text)
                if "{job_id}" in route:
                    assert answer.status_code >= 400, (who, method, path, answer.text)
        assert answered > 500
        assert await state_of_globex(one, ids) == before
        assert traces((await one.call("globex/boss", "GET", "jobs")).text, "\0"), "it can be found"

    on_installation(dsn, tmp_path, work)


async def state_of_globex(one: Installation, ids: dict[str, str]) -> Any:
    """Return what must not change: its jobs, keys, workers and workflows."""
    jobs = (await one.get("globex/boss", "jobs"))["items"]
    keys = (await one.get("globex/boss", "keys"))["items"]
    workers = [
        (row["worker_id"], row["is_draining"]) for row in (await one.get("globex/boss", "workers"))["items"]
    ]
    return (
        sorted((job["job_id"], job["status"], job["is_cancelling"]) for job in jobs),
        sorted((key["key_id"], key["revoked_at"]) for key in keys),
        [worker for worker in workers if worker[0] == ids["worker_id"]],
        (await one.get("globex/boss", "workflows"))["items"][0]["active_version"],
    )
