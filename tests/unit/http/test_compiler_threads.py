"""Workflows are compiled and drawn in a few threads, so that the event loop answers other requests meanwhile."""

from __future__ import annotations

import asyncio
import threading
from typing import TYPE_CHECKING, Any

from dagmaster.application.commands import handler_tests, validation
from dagmaster.authoring import graph_outline
from dagmaster.authoring.compiler import compile as compile_module
from dagmaster.http.api import workflows
from dagmaster.http.compiler_threads import MAX_THREADS, CompilerThreads
from tests.patience import PATIENCE_SECONDS
from tests.unit.http.api_client import FLOW, opened_api

if TYPE_CHECKING:
    from collections.abc import Callable

DEFINITION = {"workflow_id": "one", "version": 1, "nodes": {"a": {"handler": "greet", "queue": "q"}}}


def test_no_route_compiles_or_draws_on_the_event_loop(monkeypatch):
    threads: dict[str, set[str]] = {}

    def record(name: str, function: Callable[..., Any]) -> Callable[..., Any]:
        def call(*args: Any, **options: Any) -> Any:
            threads.setdefault(name, set()).add(threading.current_thread().name.partition("_")[0])
            return function(*args, **options)

        return call

    for module, name in (
        (validation, "validate_text"),
        (workflows, "svg"),
        (validation, "compile_definition"),
    ):
        monkeypatch.setattr(module, name, record(name, getattr(module, name)))

    async def main() -> list[int]:
        async with opened_api() as api:
            answers = [
                await api.post("/api/v1/workflows/validate", {"text": FLOW}),
                await api.post("/api/v1/workflows", {"text": FLOW}),
                await api.get("/api/v1/workflows/hello/diagram.svg"),
                await api.post("/api/v1/workflows/batch", {"workflows": [{"definition": DEFINITION}]}),
                await api.post("/api/v1/jobs/definition", {"definition": DEFINITION, "jobs": [{}]}),
            ]
            return [answer.status_code for answer in answers]

    assert asyncio.run(main()) == [200, 201, 200, 201, 202]
    names = ("validate_text", "svg", "compile_definition")
    assert threads == {name: {"dagmaster-compiler"} for name in names}


REQUESTS = [
    ("GET", "/api/v1/workflows/hello/diagram.svg", None),
    ("GET", "/api/v1/jobs/last", None),
    ("GET", "/api/v1/jobs/last/nodes/ask", None),
    ("GET", "/api/v1/jobs/last/progress", None),
    ("GET", "/api/v1/jobs/last/why", None),
    ("POST", "/api/v1/jobs/last/resume?dry_run=true", {}),
    ("POST", "/api/v1/jobs/last/nodes/ask/retry?dry_run=true", None),
    ("POST", "/api/v1/plan", {"workflow_id": "hello"}),
    ("POST", "/api/v1/jobs", {"workflow_id": "hello"}),
    ("POST", "/api/v1/handlers/greet/test", {"params": {"name": "Ada"}, "wait_seconds": 0}),
]


def test_a_server_answers_while_it_compiles_a_stored_graph(monkeypatch):
    """Whatever asks for the graph: the compiler waits here until the server has answered another request."""
    compiling, answered = threading.Event(), threading.Event()

    def held(function: Callable[..., Any]) -> Callable[..., Any]:
        def call(*args: Any, **options: Any) -> Any:
            if threading.current_thread().name.startswith("dagmaster-compiler"):
                compiling.set()
                assert answered.wait(PATIENCE_SECONDS), "the event loop waits for the compiler"
            return function(*args, **options)

        return call

    async def main() -> None:
        async with opened_api() as api:
            await api.publish()
            job_id = (await api.post("/api/v1/jobs", {"workflow_id": "hello"})).json()["job_id"]
            await api.until(job_id, "WAITING")
            rejected = await api.post(f"/api/v1/jobs/{job_id}/nodes/ask/reject", {})
            assert rejected.status_code == 200, rejected.text
            await api.until(job_id, "FAILED")
            for module, name in (
                (compile_module, "compile_definition"),
                (graph_outline, "outline_graph"),
                (handler_tests, "compile_definition"),
            ):
                monkeypatch.setattr(module, name, held(getattr(module, name)))
            for method, path, body in REQUESTS:
                api.application.graphs._graphs.clear()
                api.application.outlines._graphs.clear()
                api.application.explained_outlines._graphs.clear()
                compiling.clear()
                answered.clear()
                request = asyncio.create_task(api.http.request(method, path, json=body, headers=api.headers))
                assert await asyncio.to_thread(compiling.wait, 10), f"{path} compiles on the event loop"
                assert (await api.http.get("/livez")).status_code == 200
                answered.set()
                assert (await request).status_code < 500

    asyncio.run(main())


def test_requests_for_one_graph_compile_it_once(monkeypatch):
    compiled: list[str] = []
    compile_definition = compile_module.compile_definition

    def count(definition: Any, *args: Any) -> Any:
        if threading.current_thread().name.startswith("dagmaster-compiler"):
            compiled.append(definition["workflow_id"])
        return compile_definition(definition, *args)

    async def main() -> None:
        async with opened_api() as api:
            await api.publish()
            monkeypatch.setattr(compile_module, "compile_definition", count)
            path = "/api/v1/workflows/hello/diagram.svg"
            answers = await asyncio.gather(*[api.get(path) for _ in range(5)])
            assert {answer.status_code for answer in answers} == {200}

    asyncio.run(main())
    assert compiled == ["hello"]


def test_a_cancelled_request_does_not_let_another_thread_start():
    started, release = threading.Semaphore(0), threading.Event()
    calls: list[int] = []

    def work(number: int) -> int:
        calls.append(number)
        started.release()
        release.wait()
        return number

    async def main() -> None:
        compiler = CompilerThreads()
        tasks = [asyncio.create_task(compiler.run(work, number)) for number in range(MAX_THREADS + 1)]
        for _ in range(MAX_THREADS):
            await asyncio.to_thread(started.acquire)
        tasks[0].cancel()
        await asyncio.wait([tasks[0]])
        assert len(calls) == MAX_THREADS
        release.set()
        assert await asyncio.gather(*tasks[1:]) == [1, 2]

    asyncio.run(main())
