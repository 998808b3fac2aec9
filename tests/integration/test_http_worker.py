"""Workers that speak HTTP, on PostgreSQL and real sockets: the one of the documentation, and servers that die."""

from __future__ import annotations

import asyncio
import contextlib
import json
import os
import re
import shutil
import socket
import subprocess
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Any

import asyncpg
import httpx

from dagmaster.application import remote_tasks
from dagmaster.application.api_keys import create_key
from dagmaster.bootstrap import large_outputs, make_orchestrator
from dagmaster.bootstrap.http_server import ServerService
from dagmaster.ports.api_keys import Scope
from dagmaster.ports.audit_trail import ChangeOrigin
from dagmaster.ports.database_config import DatabaseConfig
from dagmaster.settings import load_settings
from dagmaster.store.postgres.api_key_store import PostgresApiKeyStore
from tests.patience import PATIENCE_SECONDS

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Awaitable, Callable

PAGE = (Path(__file__).parents[2] / "docs" / "howto" / "http-worker.md").read_text(encoding="utf-8")


def block(language: str) -> str:
    """Return the block of the page in a language."""
    (text,) = re.findall(rf"^```{language}\n(.*?)^```", PAGE, re.MULTILINE | re.DOTALL)
    return str(text)


class Fleet:
    """An orchestrator, and servers on sockets of their own."""

    def __init__(self, dsn: str, folder: Path) -> None:
        self.config, self.settings, self.folder = DatabaseConfig(dsn=dsn), load_settings(), folder
        self.key = ""
        self._running: dict[Any, asyncio.Task[None]] = {}

    async def start(self, service: Any) -> None:
        self._running[service] = asyncio.create_task(service.run())
        await asyncio.wait_for(service.ready.wait(), PATIENCE_SECONDS)

    async def stop(self, service: Any) -> None:
        service.stop()
        await asyncio.wait_for(self._running.pop(service), PATIENCE_SECONDS)

    async def server(self) -> tuple[ServerService, str]:
        """Start a server; return it, and its address."""
        listener = socket.create_server(("127.0.0.1", 0))
        service = ServerService(self.config, self.settings, self.folder, listener)
        await self.start(service)
        return service, f"http://127.0.0.1:{listener.getsockname()[1]}"

    @contextlib.asynccontextmanager
    async def running(self) -> AsyncIterator[Fleet]:
        keys = PostgresApiKeyStore(self.config)
        view = await create_key(keys, "edge", list(Scope), origin=ChangeOrigin(actor="test"), now=0.0)
        await keys.close()
        self.key = str(view.key)
        await self.start(
            make_orchestrator(self.config, large_outputs(self.settings, self.folder), self.settings)
        )
        try:
            yield self
        finally:
            for service in list(self._running):
                await self.stop(service)

    def http(self, url: str) -> httpx.AsyncClient:
        headers = {"Authorization": f"Bearer {self.key}"}
        return httpx.AsyncClient(base_url=f"{url}/api/v1/", headers=headers, timeout=PATIENCE_SECONDS)


async def until(check: Callable[[], Awaitable[Any]]) -> Any:
    """Ask again until the answer is true."""
    async with asyncio.timeout(PATIENCE_SECONDS):
        while not (answer := await check()):  # noqa: ASYNC110 - it asks as a client does
            await asyncio.sleep(0.05)
    return answer


async def submit(http: httpx.AsyncClient, **inputs: Any) -> str:
    published = await http.post("workflows", json={"text": block("yaml")})
    assert published.status_code == 201, published.text
    answer = await http.post("jobs", json={"workflow_id": "edge", "inputs": inputs})
    return str(answer.json()["job_id"])


async def finished(http: httpx.AsyncClient, job_id: str) -> dict[str, Any]:
    async def check() -> dict[str, Any] | None:
        job: dict[str, Any] = (await http.get(f"jobs/{job_id}")).json()
        return job if job["status"] in ("COMPLETED", "FAILED") else None

    job: dict[str, Any] = await until(check)
    return job


async def call(http: httpx.AsyncClient, path: str, **body: Any) -> httpx.Response:
    return await http.post(path, json=body)


def test_the_worker_of_the_documentation_works_as_it_is_written(dsn, tmp_path):
    script = tmp_path / "shout_worker.py"
    script.write_text(block("python"), encoding="utf-8")

    async def main() -> None:
        async with Fleet(dsn, tmp_path).running() as fleet:
            _, url = await fleet.server()
            env = os.environ | {"DAGMASTER_URL": url, "DAGMASTER_KEY": fleet.key}
            worker = await asyncio.create_subprocess_exec(sys.executable, str(script), env=env)
            try:
                async with fleet.http(url) as http:
                    job_id = await submit(http, text="quiet")
                    job = await finished(http, job_id)
                    assert job["status"] == "COMPLETED"
                    node = (await http.get(f"jobs/{job_id}/nodes/loud")).json()
                    assert node["output"] == {"text": "QUIET"}
                    hosts = {row["host"]: row["pid"] for row in (await http.get("fleet")).json()["workers"]}
                    assert hosts == {"edge-1": worker.pid}
                    if shutil.which("curl"):
                        command = block("console").removeprefix("$ ")
                        answer = await asyncio.to_thread(
                            subprocess.run, command, shell=True, env=env, capture_output=True, check=True
                        )
                        assert json.loads(answer.stdout)["worker_id"].isdecimal()
            finally:
                worker.kill()
                await worker.wait()

    asyncio.run(main())


def test_a_result_whose_answer_died_with_its_server_is_accepted_once_by_the_next_server(
    dsn, tmp_path, monkeypatch
):
    def die(*_arguments: Any) -> None:
        raise ConnectionResetError("the server died after the commit, before the answer")

    async def main() -> None:
        async with Fleet(dsn, tmp_path).running() as fleet:
            server, url = await fleet.server()
            async with fleet.http(url) as http:
                body = {"handlers": [{"name": "shout"}], "queues": ["edge"]}
                worker_id = (await call(http, "workers", **body)).json()["worker_id"]
                job_id = await submit(http)
                (task,) = (await call(http, "tasks/claim", worker_id=worker_id, wait_seconds=30)).json()[
                    "tasks"
                ]
                report = {
                    "worker_id": worker_id,
                    "task_id": task["task_id"],
                    "lease_token": task["lease_token"],
                }
                report |= {"status": "completed", "output": {"n": 1}}
                with monkeypatch.context() as patched:
                    patched.setattr(remote_tasks, "_result", die)
                    assert (await call(http, "callbacks/task-result", **report)).status_code == 500
            await fleet.stop(server)
            _, url = await fleet.server()
            async with fleet.http(url) as http:
                answers = [
                    await call(http, "callbacks/task-result", **report | {"output": {"n": n}}) for n in (1, 2)
                ]
                assert [answer.status_code for answer in answers] == [200, 200]
                assert answers[0].json() == answers[1].json()
                assert answers[0].json()["status"] == "COMPLETED"
                assert (await finished(http, job_id))["status"] == "COMPLETED"
                node = (await http.get(f"jobs/{job_id}/nodes/loud")).json()
                assert (node["output"], len(node["attempts"])) == ({"n": 1}, 1)

    asyncio.run(main())


def test_a_worker_waits_on_one_server_and_is_woken_by_a_job_of_another(dsn, tmp_path):
    async def main() -> None:
        async with Fleet(dsn, tmp_path).running() as fleet:
            (_, one), (_, two) = [await fleet.server() for _ in range(2)]
            async with fleet.http(one) as http, fleet.http(two) as other:
                body = {"handlers": [{"name": "shout"}], "queues": ["edge"]}
                worker_id = (await call(http, "workers", **body)).json()["worker_id"]
                waiting = asyncio.create_task(
                    call(other, "tasks/claim", worker_id=worker_id, wait_seconds=30)
                )
                job_id = await submit(http)
                (task,) = (await waiting).json()["tasks"]
                assert task["job_id"] == job_id
                report = {
                    "worker_id": worker_id,
                    "task_id": task["task_id"],
                    "lease_token": task["lease_token"],
                }
                await call(http, "callbacks/task-result", **report, status="completed")
                assert (await finished(http, job_id))["status"] == "COMPLETED"

    asyncio.run(main())


async def expire(dsn: str, worker_id: str) -> None:
    """Let the last sign of life of a worker be an hour ago: with a short lease, a worker that is alive loses it, too."""
    connection = await asyncpg.connect(dsn)
    try:
        sql = "UPDATE dagapp.dag_workers SET heartbeat_at = heartbeat_at - interval '1 hour' WHERE worker_id::text = $1"
        assert await connection.execute(sql, worker_id) == "UPDATE 1"
    finally:
        await connection.close()


def test_the_tasks_of_a_worker_that_went_away_run_elsewhere(dsn, tmp_path):
    async def main() -> None:
        fleet = Fleet(dsn, tmp_path)
        async with fleet.running():
            _, url = await fleet.server()
            async with fleet.http(url) as http:
                body = {"handlers": [{"name": "shout"}], "queues": ["edge"]}
                job_id = await submit(http)
                silent = (await call(http, "workers", **body)).json()["worker_id"]
                (lost,) = (await call(http, "tasks/claim", worker_id=silent, wait_seconds=30)).json()["tasks"]
                await expire(dsn, silent)

                async def claim() -> Any:
                    worker_id = (await call(http, "workers", **body)).json()["worker_id"]
                    answer = await call(http, "tasks/claim", worker_id=worker_id, wait_seconds=5)
                    return [(worker_id, task) for task in answer.json().get("tasks", ())]

                ((worker_id, task),) = await until(claim)
                assert (task["job_id"], task["attempt"]) == (job_id, 2)
                report = {"worker_id": silent, "task_id": lost["task_id"], "lease_token": lost["lease_token"]}
                late = await call(http, "callbacks/task-result", **report, status="completed")
                assert late.status_code == 409
                ids = {"worker_id": worker_id, "task_id": task["task_id"], "lease_token": task["lease_token"]}
                assert (
                    await call(http, "callbacks/task-result", **ids, status="completed")
                ).status_code == 200
                assert (await finished(http, job_id))["status"] == "COMPLETED"

    asyncio.run(main())
