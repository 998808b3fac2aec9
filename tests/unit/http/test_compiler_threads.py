"""Workflows are compiled and drawn in a few threads, so that the event loop answers other requests meanwhile."""

from __future__ import annotations

import asyncio
import threading
from typing import TYPE_CHECKING, Any

from dagmaster.http.api import definitions, workflows
from dagmaster.http.compiler_threads import MAX_THREADS, CompilerThreads
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

    for module, name in ((workflows, "validate_text"), (workflows, "svg"), (definitions, "compile_definition")):
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
