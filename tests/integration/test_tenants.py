"""Two tenants on one server: neither finds a trace of the other, whatever it asks."""

from __future__ import annotations

import asyncio
import contextlib
import json
import re
import socket
from typing import TYPE_CHECKING, Any, Final

import asyncpg
import httpx
from pydantic import SecretStr
from wsproto.events import TextMessage

from dagmaster.bootstrap import large_outputs, make_orchestrator
from dagmaster.bootstrap.http_server import ServerService
from dagmaster.http.app import route_scopes
from dagmaster.ports.api_keys import Scope
from dagmaster.ports.database_config import DatabaseConfig
from dagmaster.settings import load_settings
from dagmaster.ui.site import page_scopes
from tests.integration.server_on_socket import ADMIN_KEY
from tests.patience import PATIENCE_SECONDS
from tests.unit.http.live_server import Socket

if TYPE_CHECKING:
    from collections.abc import AsyncGenerator, AsyncIterator, Awaitable, Callable
    from pathlib import Path

CANARY: Final = "xcanaryx"


def flow(workflow_id: str, title: str = "a flow") -> dict[str, Any]:
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

    async def socket(self, who: str, job_id: str) -> str:
        """Return the first message of the socket of a job, or how it was closed."""
        address = httpx.URL(self.url)
        client = Socket(*await asyncio.open_connection(address.host, address.port))
        try:
            await client.open(address.netloc.decode(), f"/ws/jobs/{job_id}", {})
            client.send(TextMessage(json.dumps({"key": self.keys[who]})))
            return json.dumps(await client.next())
        finally:
            client.close()

    async def claim(
        self, who: str, worker_id: str, *, held: list[Any] | None = None, wait_seconds: float = 10
    ) -> list[Any]:
        body = {"worker_id": worker_id, "task_ids": [task["task_id"] for task in held or ()]}
        answer = await self.post(who, "tasks/claim", **body, limit=10, wait_seconds=wait_seconds)
        return list(answer["tasks"])

    async def until(self, who: str, job_id: str, status: str) -> Any:
        """Wait until a job has a status; return it."""
        async with asyncio.timeout(PATIENCE_SECONDS):
            while (job := await self.get(who, f"jobs/{job_id}"))["status"] != status:  # noqa: ASYNC110
                await asyncio.sleep(0.05)
        return job

    async def until_status(self, who: str, path: str, status: int) -> None:
        async with asyncio.timeout(PATIENCE_SECONDS):
            while (await self.call(who, "GET", path)).status_code != status:  # noqa: ASYNC110
                await asyncio.sleep(0.05)

    @contextlib.asynccontextmanager
    async def browser(self, who: str) -> AsyncIterator[httpx.AsyncClient]:
        """Provide a browser that is logged in with a key."""
        headers = {"Origin": self.url, "Sec-Fetch-Site": "same-origin"}
        async with httpx.AsyncClient(
            base_url=self.url, headers=headers, timeout=PATIENCE_SECONDS, follow_redirects=False
        ) as browser:
            answer = await browser.post("/ui/login", data={"key": self.keys[who]})
            assert answer.status_code == 303, answer.text
            yield browser

    @contextlib.asynccontextmanager
    async def events(self, who: str, path: str) -> AsyncIterator[AsyncGenerator[str]]:
        """Provide the messages of a stream, as text."""
        async with self._http.stream(
            "GET", f"/api/v1/{path}", headers={"X-API-Key": self.keys[who]}
        ) as answer:
            assert answer.status_code == 200

            async def messages() -> AsyncGenerator[str]:
                lines: list[str] = []
                async for line in answer.aiter_lines():
                    lines.append(line)
                    if not line and any(one.startswith("data:") for one in lines):
                        yield "\n".join(lines)
                        lines = []

            async with contextlib.aclosing(messages()) as items:
                yield items


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


def traces(text: str) -> list[str]:
    """Return where a text has the word of the other tenant."""
    return [text[max(0, at - 80) : at + 80] for at in (text.find(CANARY),) if at >= 0]


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
                found = [] if said in path and answer.status_code >= 400 else traces(text)
                assert not found, (who, method, path, answer.status_code, found)
                assert answer.status_code != 500, (who, method, path, answer.text)
                if "{job_id}" in route:
                    assert answer.status_code >= 400, (who, method, path, answer.text)
        assert answered > 500
        assert await state_of_globex(one, ids) == before
        assert traces((await one.call("globex/boss", "GET", "jobs")).text), "it can be found"

    on_installation(dsn, tmp_path, work)


def test_the_page_of_a_request_is_its_tenants(dsn, tmp_path):
    async def work(one: Installation) -> None:
        rejected = (await one.call("globex/boss", "POST", "submit", workflow_id=CANARY)).json()["request_id"]
        async with one.browser("globex/boss") as browser:
            page = (await browser.get(f"/ui/requests/{rejected}")).text
            assert CANARY in page
            assert "is published" in page
        async with one.browser("acme/boss") as browser:
            unknown = await browser.get(f"/ui/requests/{rejected}")
            assert (unknown.status_code, traces(unknown.text)) == (404, [])

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


def test_no_page_and_no_stream_shows_a_tenant_a_trace_of_another(dsn, tmp_path):
    async def work(one: Installation) -> None:
        ids = await filled(one)
        boss, reader = "acme/boss", await one.make_key("default", "read", "read")
        pages = {path for (method, path), scope in page_scopes().items() if method == "GET" and scope}
        for who in (boss, reader):
            async with one.browser(who) as browser:
                assert traces((await browser.get("/ui/jobs")).text) == []
                for route in sorted(pages):
                    named = re.findall(r"{(\w+)[^}]*}", route)
                    path = re.sub(r"{(\w+)[^}]*}", r"{\1}", route)
                    answer = await browser.get(path.format(**{name: ids.get(name, "x") for name in named}))
                    assert answer.status_code != 500, (who, route)
                    assert traces(f"{answer.text}{dict(answer.headers)}") == [], (who, route)
        async with one.browser("globex/boss") as browser:
            assert traces((await browser.get("/ui/jobs")).text), "it can be found"
        own = ""
        for who in (boss, reader):
            for path in (f"jobs/{ids['job_id']}/stream", f"jobs/{ids['job_id']}/stream?logs=true"):
                assert (await one.call(who, "GET", path)).status_code == 404
            await one.post(boss, "workflows", text=json.dumps(FLOW_OF_ACME))
            own = (await one.post(boss, "jobs", workflow_id="own"))["job_id"]
            if who == boss:
                # The list changes while globex changes: it has its own jobs alone.
                async with one.events(who, "stream") as events:
                    first = await anext(events)
                    await one.post("globex/boss", f"jobs/{ids['job_id']}/nodes/ask/approve")
                    await one.post(boss, f"jobs/{own}/signals/go")
                    second = await anext(events)
                assert own in first
                assert own in second
                assert traces(first + second) == []
                async with one.events(who, f"jobs/{own}/stream") as events:
                    assert traces(await anext(events)) == []
            # Of a socket, the key comes with the first message. One that is refused says the same of any job.
            refused = {await one.socket(who, job_id) for job_id in (ids["job_id"], "1" * 18)}
            assert refused == {'{"closed": 4404, "reason": "job_not_found"}'}
        message = await one.socket(boss, own)
        assert own in message
        assert traces(message) == []
        assert traces(await one.socket("globex/boss", ids["job_id"])), "it can be found"

    on_installation(dsn, tmp_path, work)


FLOW_OF_ACME: Final = {
    "workflow_id": "own",
    "version": 1,
    "nodes": {"a": {"type": "wait", "signal": "go", "next": "b"}, "b": {"type": "wait", "seconds": 3600}},
}


def test_workers_and_handlers_of_a_tenant_are_for_its_tasks_alone(dsn, tmp_path):
    async def work(one: Installation) -> None:
        jobs, workers = {}, {}
        await one.make_key("default", "edge", "work")
        for who in ("acme/boss", "globex/boss", "default/edge"):
            body = {"handlers": [{"name": "shout", "description": who}], "queues": ["edge"]}
            answer = await one.post(who, "workers", **body)
            workers[who] = answer["worker_id"]
            # Each has its own contract of the name: none takes that of another.
            assert answer["untrusted_handlers"] == [], who
        for tenant in ("acme", "globex"):
            await one.post(f"{tenant}/boss", "workflows", text=json.dumps(flow("flow")))
            jobs[tenant] = (await one.post(f"{tenant}/boss", "jobs", workflow_id="flow"))["job_id"]
        described = (await one.get("acme/boss", "handlers/shout"))["description"]
        assert described in ("acme/boss", "default/edge")
        (task,) = await one.claim("acme/boss", workers["acme/boss"])
        assert task["job_id"] == jobs["acme"]
        assert await one.claim("acme/boss", workers["acme/boss"], held=[task], wait_seconds=0) == []
        report = {"task_id": task["task_id"], "lease_token": task["lease_token"], "status": "completed"}
        stolen = await one.call(
            "globex/boss", "POST", "callbacks/task-result", worker_id=workers["globex/boss"], **report
        )
        assert stolen.status_code == 409
        # A worker of the installation runs the tasks of all.
        (other,) = await one.claim("default/edge", workers["default/edge"])
        assert other["job_id"] == jobs["globex"]
        await one.post("acme/boss", "callbacks/task-result", worker_id=workers["acme/boss"], **report)

    on_installation(dsn, tmp_path, work)


def test_a_tenant_uses_the_workflows_of_the_installation_that_it_may_and_its_own_win(dsn, tmp_path):
    async def work(one: Installation) -> None:
        for workflow_id in ("shared", "secret"):
            await one.post(
                "admin", "workflows", text=json.dumps({**FLOW_OF_ACME, "workflow_id": workflow_id})
            )
        parent = {"workflow_id": "parent", "version": 1}
        for child in ("shared", "secret"):
            nodes = {"call": {"type": "workflow", "workflow_id": child}}
            await one.post(
                "acme/boss",
                "workflows",
                text=json.dumps({**parent, "workflow_id": f"calls-{child}", "nodes": nodes}),
            )
        boss = "acme/boss"
        assert (await one.call(boss, "POST", "jobs", workflow_id="shared")).status_code == 404
        changed = await one.post("admin", "tenants/acme", workflows=["shared"])
        assert changed["workflows"] == ["shared"]
        job = await one.get(boss, f"jobs/{(await one.post(boss, 'jobs', workflow_id='shared'))['job_id']}")
        assert (job["tenant"], job["workflow_id"]) == ("acme", "shared")
        assert (await one.call(boss, "POST", "jobs", workflow_id="secret")).status_code == 404
        # So do child jobs.
        calls = {
            child: (await one.post(boss, "jobs", workflow_id=f"calls-{child}"))["job_id"]
            for child in ("shared", "secret")
        }
        failed = await one.until(boss, calls["secret"], "FAILED")
        assert "no workflow 'secret' was found" in json.dumps(failed["error"])
        async with asyncio.timeout(PATIENCE_SECONDS):
            path = f"jobs?parent_job_id={calls['shared']}"
            while not (children := (await one.get(boss, path))["items"]):  # noqa: ASYNC110
                await asyncio.sleep(0.05)
        assert [child["tenant"] for child in children] == ["acme"]
        # It cannot change the installation's; what it publishes itself wins.
        activated = await one.call(boss, "POST", "workflows/shared/activate", version=1)
        assert activated.status_code == 404
        await one.post(
            boss, "workflows", text=json.dumps({**FLOW_OF_ACME, "workflow_id": "shared", "name": "mine"})
        )
        assert (await one.get(boss, "workflows/shared"))["definition"]["name"] == "mine"
        assert "name" not in (await one.get("admin", "workflows/shared"))["definition"]

    on_installation(dsn, tmp_path, work)


def test_administrators_of_the_installation_read_workflows_of_tenants_and_why_one_may_not_be_used(
    dsn, tmp_path
):
    async def work(one: Installation) -> None:
        await one.post("acme/boss", "workflows", text=json.dumps(flow("theirs", "of acme")))
        await one.post("admin", "workflows", text=json.dumps(flow("shared")))
        reader = await one.make_key("default", "read", "read")
        for path in ("workflows/theirs", "workflows/theirs/versions", "workflows/theirs/diagram.svg"):
            assert (await one.call("admin", "GET", path)).status_code == 200, path
            for who in (reader, "globex/boss"):
                assert (await one.call(who, "GET", path)).status_code == 404, path
        assert (await one.get("admin", "workflows/theirs"))["definition"]["name"] == "of acme"
        # It is not the installation's to run.
        assert (await one.call("admin", "POST", "jobs", workflow_id="theirs")).status_code == 404
        answer = await one.call("acme/boss", "POST", "submit", workflow_id="shared")
        assert answer.status_code == 422
        assert "may not use it" not in answer.text
        path = f"requests/{answer.json()['request_id']}"
        assert "may not use it" not in (await one.call("acme/boss", "GET", path)).text
        reason = (await one.get("admin", path))["rejection"]["message"]
        assert "The installation has this workflow, but acme may not use it" in reason

    on_installation(dsn, tmp_path, work)


def test_a_tenant_has_platforms_that_are_declared_and_is_warned_of_workflows_that_are_not_published(
    dsn, tmp_path
):
    async def work(one: Installation) -> None:
        for path, body in (("tenants", {"name": "initech"}), ("tenants/acme", {})):
            refused = await one.call("admin", "POST", path, **body, platforms=["ddh", "dhd"])
            assert (refused.status_code, "dhd is not declared" in refused.text) == (400, True), refused.text
        assert "initech" not in (await one.call("admin", "GET", "tenants")).text
        changed = await one.post("admin", "tenants/acme", platforms=["ddh", "*"], workflows=["soon", "*"])
        assert len(changed["warnings"]) == 1
        assert "no workflow 'soon'" in changed["warnings"][0]
        assert (await one.get("admin", "tenants/acme"))["warnings"] == []

    on_installation(dsn, tmp_path, work)


def test_keys_of_a_tenant_are_its_administrators_and_never_more_than_its_own(dsn, tmp_path):
    async def work(one: Installation) -> None:
        theirs = [key["key_id"] for key in (await one.get("globex/boss", "keys"))["items"]]
        made = await one.post("acme/boss", "keys", name="ci", scopes=["submit"])
        assert (made["tenant"], made["actor"]) == ("acme", "acme/key:ci")
        for tenant in ("globex", "default", "nobody"):
            answer = await one.call("acme/boss", "POST", "keys", name="x", scopes=["admin"], tenant=tenant)
            assert (answer.status_code, answer.json()["code"]) == (403, "key_narrowed")
        for action in ("revoke", "rotate"):
            assert (await one.call("acme/boss", "POST", f"keys/{theirs[0]}/{action}")).status_code == 404
        for path in ("tenants", "tenants/acme", "admin/schema", "admin/invariants"):
            assert (await one.call("acme/boss", "GET", path)).json()["code"] == "key_narrowed"
        assert (await one.call("acme/boss", "GET", "/metrics")).status_code == 403
        entries = (await one.get("acme/boss", "audit"))["items"]
        assert {entry["actor"] for entry in entries} == {"acme/key:boss"}
        unknown = await one.call("admin", "POST", "keys", name="x", scopes=["read"], tenant="nobody")
        assert (unknown.status_code, unknown.json()["code"]) == (404, "tenant_not_found")
        # Disabled: its keys are rejected within seconds, and those of others are not.
        await one.post("admin", "tenants/acme", is_disabled=True)
        await one.until_status("acme/boss", "jobs", 401)
        assert (await one.call("globex/boss", "GET", "jobs")).status_code == 200
        await one.post("admin", "tenants/acme", is_disabled=False)
        await one.until_status("acme/boss", "jobs", 200)

    on_installation(dsn, tmp_path, work)


def test_a_tenant_has_no_more_open_jobs_and_requests_than_it_may(dsn, tmp_path):
    async def work(one: Installation) -> None:
        boss = "acme/boss"
        await one.post(boss, "workflows", text=json.dumps(FLOW_OF_ACME))
        await one.post("admin", "tenants/acme", max_open_jobs=3)
        # At the same moment: none of them gets more than there is.
        answers = await asyncio.gather(
            *(
                one.call(boss, "POST", "jobs", workflow_id="own", idempotency_key=f"k{number}")
                for number in range(12)
            )
        )
        codes = sorted(answer.status_code for answer in answers)
        assert codes == [202] * 3 + [429] * 9
        refused = next(answer for answer in answers if answer.status_code == 429)
        assert (refused.json()["code"], refused.headers["retry-after"]) == ("job_quota_exceeded", "10")
        accepted = next(number for number, answer in enumerate(answers) if answer.status_code == 202)
        again = await one.post(boss, "jobs", workflow_id="own", idempotency_key=f"k{accepted}")
        assert again["is_new"] is False, "the same submission again is answered as before"
        jobs = [{"workflow_id": "own"}] * 2
        outcomes = await one.call(boss, "POST", "jobs/batch", jobs=jobs)
        assert [row["error"]["code"] for row in outcomes.json()] == ["job_quota_exceeded"] * 2
        await one.post(boss, f"jobs/{again['job_id']}/cancel")
        await one.until(boss, again["job_id"], "CANCELLED")
        assert (await one.call(boss, "POST", "jobs", workflow_id="own")).status_code == 202
        await one.post("admin", "tenants/acme", max_open_jobs=None, rate_per_second=0.01, rate_burst=2)
        await one.until_status(boss, "jobs", 429)
        limited = await one.call(boss, "GET", "jobs")
        assert limited.json()["code"] == "rate_limit_exceeded"
        assert int(limited.headers["retry-after"]) > 1
        assert (await one.call("globex/boss", "GET", "jobs")).status_code == 200

    on_installation(dsn, tmp_path, work)


def test_what_locks_the_limits_of_a_tenant_delays_no_submit_of_another(dsn, tmp_path):
    async def work(one: Installation) -> None:
        for tenant in ("acme", "globex"):
            await one.post("admin", f"tenants/{tenant}", max_open_jobs=100, requests_per_day=100)
            await one.post(f"{tenant}/boss", "workflows", text=json.dumps(FLOW_OF_ACME))
            await one.post(f"{tenant}/boss", "submit", workflow_id="own")
        other = await asyncpg.connect(dsn, server_settings={"search_path": "dagapp"})
        transaction = other.transaction()
        await transaction.start()
        await other.execute("SELECT FROM dag_tenant_usage WHERE tenant = 'acme' FOR UPDATE")
        await other.execute("SELECT pg_advisory_xact_lock(hashtext('dagmaster open jobs'), hashtext('acme'))")

        def submits(tenant: str) -> list[asyncio.Task[Any]]:
            return [
                asyncio.create_task(one.post(f"{tenant}/boss", path, workflow_id="own"))
                for path in ("submit", "jobs") * 3
            ]

        waiting = submits("acme")
        await until_blocked(other)
        await asyncio.wait_for(asyncio.gather(*submits("globex")), PATIENCE_SECONDS)
        assert not any(task.done() for task in waiting)
        await transaction.rollback()
        await other.close()
        await asyncio.wait_for(asyncio.gather(*waiting), PATIENCE_SECONDS)

    on_installation(dsn, tmp_path, work)


async def until_blocked(connection: asyncpg.Connection[asyncpg.Record]) -> None:
    sql = "SELECT EXISTS (SELECT FROM pg_locks WHERE NOT granted AND pg_backend_pid() = ANY(pg_blocking_pids(pid)))"
    while not await connection.fetchval(sql):
        pass
