"""Clients follow jobs through a server on a socket: views, events and logs as they come, whatever is restarted."""

from __future__ import annotations

import asyncio
import os
import subprocess
import sys
import time
from dataclasses import replace
from itertools import pairwise
from typing import TYPE_CHECKING, Any

import httpx
import pytest

from dagmaster import AsyncClient, Client, JobFilter
from dagmaster.application.commands.publication import publish_workflows
from dagmaster.application.commands.validation import to_sources, validate_text
from dagmaster.application.submission import JobRequest
from dagmaster.application.views import CommandView, JobStatus
from dagmaster.client import following
from dagmaster.client.retries import Retries
from dagmaster.errors import JobNotFound, NodeNotFound, ServerUnavailable
from dagmaster.ports.read_records import LogRecord
from dagmaster.sdk.handler_registry import Registry, handler
from dagmaster.store.memory.database import StoredLog
from dagmaster.store.memory.read_store import MemoryReadStore
from tests.patience import PATIENCE_SECONDS
from tests.unit.http.loopback import Loopback, serve

if TYPE_CHECKING:
    from collections.abc import Iterator

    from dagmaster.application.views import EventView, JobDetailView

FLOW = """
workflow_id: steps
version: 1
inputs: {name: {type: string, default: Ada}}
nodes:
  greet: {handler: following.greet, params: {name: "{{ inputs.name }}"}, next: pause}
  pause: {type: wait, signal: go, next: last}
  last: {handler: following.greet, params: {name: last}}
outputs: {text: "{{ nodes.greet.output.text }}"}
"""


@handler("following.greet", queue="q")
async def greet(name: str) -> dict[str, Any]:
    return {"text": f"hello {name}"}


@pytest.fixture(scope="module")
def server() -> Iterator[Loopback]:
    registry = Registry([greet])
    with serve(registry) as server:
        server.run(
            publish_workflows(server.services.application, to_sources([validate_text(FLOW, registry)]))
        )
        yield server


def run(server: Loopback, work: Any, **options: Any) -> Any:
    """Run something with a client of the server."""

    async def main() -> Any:
        async with (
            asyncio.timeout(PATIENCE_SECONDS),
            AsyncClient(server.url, server.key, **options) as client,
        ):
            return await work(client)

    return asyncio.run(main())


async def submitted(client: AsyncClient) -> str:
    """Submit a job, and return its id when it waits for the signal."""
    job_id = (await client.submit("steps")).job_id
    assert job_id is not None
    async for job in client.watch_job(job_id):
        if "pause" in job.statuses and job.statuses["pause"] == "WAITING":
            break
    return job_id


def test_events_of_a_running_job_come_in_order_each_once(server):
    async def main(client: AsyncClient) -> None:
        job_id = await submitted(client)
        reading = asyncio.create_task(all_events(client, job_id))
        await client.send_signal(job_id, "go")
        events = await reading
        stored = (await client.list_events(job_id)).items
        assert events == list(stored)
        assert [event.seq for event in events] == list(range(1, len(events) + 1))

    run(server, main)


async def all_events(client: AsyncClient, job_id: str, after: int = 0) -> list[EventView]:
    return [event async for event in client.follow_events(job_id, after=after)]


def test_events_continue_after_the_server_was_restarted(server):
    async def main(client: AsyncClient) -> None:
        job_id = await submitted(client)
        events: list[EventView] = []
        restarted = False
        async for event in client.follow_events(job_id):
            events.append(event)
            job = await client.job_progress(job_id) if not restarted else None
            if job is not None and event.seq == job.event_seq:
                restarted = True
                await asyncio.to_thread(server.restart)
                await client.send_signal(job_id, "go")
        assert restarted
        assert [event.seq for event in events] == list(range(1, events[-1].seq + 1))
        assert events[-1].seq == (await client.job_progress(job_id)).event_seq

    run(server, main)


def test_events_after_a_number_and_of_a_node(server):
    async def main(client: AsyncClient) -> None:
        job_id = await submitted(client)
        await client.send_signal(job_id, "go")
        await client.wait(job_id)
        stored = (await client.list_events(job_id)).items
        assert await all_events(client, job_id, after=3) == list(stored[3:])
        assert await all_events(client, job_id, after=len(stored)) == []
        of_node = [event async for event in client.follow_events(job_id, node_id="greet", follow=False)]
        assert of_node == [event for event in stored if event.node_id == "greet"]
        with pytest.raises(NodeNotFound, match="has no node 'greeet'"):
            await anext(client.follow_events(job_id, node_id="greeet", follow=False))

    run(server, main)


def test_a_watch_ends_with_the_result(server):
    async def main(client: AsyncClient) -> list[JobDetailView]:
        job_id = (await client.submit("steps", {"name": "Eve"})).job_id
        views = []
        async for job in client.watch_job(job_id):
            views.append(job)
            if job.statuses.get("pause") == "WAITING" and not job.pending_commands:
                await client.send_signal(job_id, "go")
        return views

    views = run(server, main)
    assert (views[-1].status, views[-1].result) == ("COMPLETED", {"text": "hello Eve"})
    assert all(one.event_seq <= other.event_seq for one, other in pairwise(views))


@pytest.mark.slow
def test_the_list_of_jobs_is_yielded_again_when_one_changes(server):
    async def main(client: AsyncClient) -> None:
        job_filter = JobFilter(workflow_id="steps", name="listed")
        first = second = None
        async for jobs in client.watch_jobs(job_filter, limit=1):
            if first is None:
                assert jobs == ()
                first = (await client.submit("steps", name="listed")).job_id
            elif second is None and [job.job_id for job in jobs] == [first]:
                second = (await client.submit("steps", name="listed")).job_id
            elif second is not None and [job.job_id for job in jobs] == [second]:
                break

    run(server, main)


def a_log(job_id: str, chunk: int, text: str) -> StoredLog:
    now = time.time()
    return StoredLog(job_id, LogRecord("greet", 1, now, text, (now, "1", chunk)))


def test_logs_come_as_they_are_written_and_once_each(server):
    store = server.services.application.read
    assert isinstance(store, MemoryReadStore)
    logs = store._database.logs

    async def main(client: AsyncClient) -> None:
        job_id = await submitted(client)
        texts = []
        logs["1", 0] = a_log(job_id, 0, "one\n")
        async for log in client.follow_logs(job_id, node_id="greet"):
            texts.append(log.text)
            if log.text == "one\n":
                await asyncio.to_thread(server.restart)
                logs["1", 1] = a_log(job_id, 1, "two\n")
            elif log.text == "two\n":
                await client.send_signal(job_id, "go")
        assert texts == ["one\n", "two\n"]
        assert [log.text async for log in client.follow_logs(job_id, follow=False)] == texts

    run(server, main)


def test_a_wait_ends_with_the_job_or_with_its_time(server):
    async def main(client: AsyncClient) -> None:
        job_id = await submitted(client)
        with pytest.raises(TimeoutError, match=rf"job {job_id} is (PENDING|RUNNING|WAITING) after 0\.05 s"):
            await client.wait(job_id, timeout_seconds=0.05)
        waiting = asyncio.create_task(client.wait(job_id))
        await client.send_signal(job_id, "go")
        assert (await waiting).status == "COMPLETED"
        # A job that has finished is returned at once.
        assert (await client.wait(job_id, timeout_seconds=60)).job_id == job_id

    run(server, main)


@pytest.mark.parametrize("way", ["wait", "watch"])
def test_a_job_that_has_finished_and_is_to_be_resumed_is_waited_for(server, monkeypatch, way):
    resume = CommandView(command_id="1", kind="resume", sent_by="ada", age_seconds=1.0)
    reads: list[JobDetailView] = []
    job_detail: Any = AsyncClient.job_detail

    async def with_resume(client: AsyncClient, job_id: str) -> JobDetailView:
        view: JobDetailView = await job_detail(client, job_id)
        reads.append(view)
        return view if len(reads) > 1 else replace(view, status=JobStatus.FAILED, pending_commands=(resume,))

    async def main(client: AsyncClient) -> JobDetailView:
        job_id = await submitted(client)
        await client.send_signal(job_id, "go")
        await client.wait(job_id)
        monkeypatch.setattr(AsyncClient, "job_detail", with_resume)
        if way == "wait":
            return await client.wait(job_id)
        return [view async for view in client.watch_job(job_id)][-1]

    assert run(server, main).status == "COMPLETED"
    assert len(reads) == 2


class NoStreams(httpx.AsyncHTTPTransport):
    """A proxy that allows no streams."""

    async def handle_async_request(self, request: httpx.Request) -> httpx.Response:
        if request.url.path.endswith("/stream"):
            return httpx.Response(403, text="<html>", request=request)
        return await super().handle_async_request(request)


def test_without_streams_a_job_is_polled(server, monkeypatch):
    monkeypatch.setattr(following, "POLL_SECONDS", 0.01)

    async def main(client: AsyncClient) -> None:
        job_id = await submitted(client)
        waiting = asyncio.create_task(client.wait(job_id))
        await client.send_signal(job_id, "go")
        assert (await waiting).status == "COMPLETED"

    run(server, main, transport=NoStreams())


def test_a_job_that_is_not_there_is_an_error_at_once(server):
    async def main(client: AsyncClient) -> None:
        for question in (client.wait("1"), anext(client.watch_job("1")), anext(client.follow_events("1"))):
            with pytest.raises(JobNotFound):
                await question

    run(server, main)


def test_the_blocking_client_does_the_same_also_inside_a_loop(server):
    async def main() -> None:
        with Client(server.url, server.key) as client:
            results = client.submit_jobs(
                [JobRequest(workflow_id="steps", inputs={"name": name}) for name in "ab"]
            )
            for result in results:
                client.send_signal(result.job_id, "go")
                job = client.wait(result.job_id, timeout_seconds=60)
                assert job.status == "COMPLETED"
                events = list(client.follow_events(job.job_id))
                assert events == list(client.list_events(job.job_id).items)
            # An iterator that is not read to its end is closed.
            assert next(iter(client.follow_events(results[0].job_id))).seq == 1
            assert "dm_" not in repr(client)

    asyncio.run(main())


def test_a_blocking_client_of_no_server_raises_and_closes():
    with (
        Client("http://127.0.0.1:9", retries=Retries(attempts=1)) as client,
        pytest.raises(ServerUnavailable, match="cannot reach"),
    ):
        client.count_jobs()


@pytest.mark.process
def test_a_program_that_does_not_close_its_client_ends(server):
    program = (
        "import dagmaster; client = dagmaster.Client(); print(client.count_jobs() is not None);"
        " lists = client.watch_jobs(); next(lists)"
    )
    command = [sys.executable, "-c", program]
    environment = {**os.environ, "DAGMASTER_URL": server.url, "DAGMASTER_KEY": server.key}
    done = subprocess.run(
        command, env=environment, timeout=PATIENCE_SECONDS, capture_output=True, text=True, check=True
    )
    assert done.stdout == "True\n"
