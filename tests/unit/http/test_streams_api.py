"""Live streams over real sockets: the messages, resuming, slow clients, the end."""

from __future__ import annotations

import asyncio
import contextlib
import json
from typing import TYPE_CHECKING, Any

import httpx
import pytest
from wsproto.events import BytesMessage, TextMessage

from dagmaster.application import job_list_streams
from dagmaster.application.api_keys import revoke_key
from dagmaster.application.job_list_streams import JobListStreams
from dagmaster.application.job_streams import JobStreams
from dagmaster.application.stream_messages import EndReason, MessageType, StreamMessage, end
from dagmaster.http import auth, job_socket, live_sessions
from dagmaster.ports.api_keys import Scope
from dagmaster.ports.audit_trail import ChangeOrigin
from dagmaster.sdk.handler_registry import handler
from dagmaster.worker.task_log_capture import capture
from tests.patience import PATIENCE_SECONDS
from tests.unit.application.memory_application import until
from tests.unit.http.live_server import LiveServer, live_server

if TYPE_CHECKING:
    from collections.abc import AsyncGenerator, Awaitable, Callable

LOGS = """
workflow_id: talk
version: 1
nodes:
  first: {handler: talk, queue: q, params: {lines: ["one", "two"]}, next: ask}
  ask: {type: approval, message: "go on?", next: second}
  second: {handler: talk, queue: q, params: {lines: ["three"]}}
"""


@handler("talk", queue="q")
async def talk(lines: list[str]) -> dict[str, Any]:
    for line in lines:
        print(line)  # noqa: T201 - the log of the task
    return {}


def serve(scenario: Callable[[LiveServer], Awaitable[None]], *handlers: Any) -> None:
    async def main() -> None:
        async with live_server(*handlers) as api:
            await scenario(api)

    asyncio.run(main())


def seqs(messages: list[tuple[str, str | None, Any]]) -> list[int]:
    return [event["seq"] for kind, _, data in messages if kind == "delta" for event in data["events"]]


# ── Server-Sent Events ──


def test_a_job_is_streamed_as_a_snapshot_and_deltas_until_it_has_finished():
    async def scenario(api: LiveServer) -> None:
        job_id = await api.waiting_job()
        async with api.events(f"/jobs/{job_id}/stream", {"Accept-Encoding": "gzip"}) as events:
            headers = events.response.headers
            assert headers["content-type"] == "text/event-stream; charset=utf-8"
            assert (headers["cache-control"], headers.get("content-encoding")) == ("no-store", None)
            kind, number, job = await events.next()
            shown = (await api.get(f"/api/v1/jobs/{job_id}")).json()
            assert (kind, number, job.keys(), job["nodes"]) == (
                "snapshot",
                str(job["event_seq"]),
                shown.keys(),
                shown["nodes"],
            )
            assert events.retry == "2000"
            await api.approve(job_id)
            messages = await events.rest()
            assert messages[-1] == (
                "end",
                messages[-2][1],
                {"reason": "finished", "detail": "the job is COMPLETED"},
            )
            last = (await api.get(f"/api/v1/jobs/{job_id}")).json()["event_seq"]
            assert seqs(messages) == list(range(job["event_seq"] + 1, last + 1))
        async with api.events(f"/jobs/{job_id}/stream", {"Last-Event-ID": str(last)}) as events:
            assert events.response.status_code == 204, "a browser stops to connect"

    serve(scenario)


def test_a_stream_resumes_after_the_header_else_after_the_parameter():
    async def scenario(api: LiveServer) -> None:
        job_id = await api.waiting_job()
        await api.approve(job_id)
        await api.until(job_id, "COMPLETED")
        last = (await api.get(f"/api/v1/jobs/{job_id}")).json()["event_seq"]
        for headers, params, first in (
            ({"Last-Event-ID": "2"}, {"last_event_id": 1}, 3),
            ({}, {"last_event_id": 4}, 5),
        ):
            async with api.events(f"/jobs/{job_id}/stream", headers, **params) as events:
                assert seqs(await events.rest()) == list(range(first, last + 1))

    serve(scenario)


def test_an_error_before_the_first_message_is_a_problem():
    async def scenario(api: LiveServer) -> None:
        job_id = await api.waiting_job()
        for path, headers, status in (
            ("/jobs/9/stream", {}, 404),
            (f"/jobs/{job_id}/stream", {"Last-Event-ID": "x"}, 422),
            (f"/jobs/{job_id}/stream", {"Last-Event-ID": "-1"}, 422),
            (f"/jobs/{job_id}/stream?after=3", {}, 422),
            ("/stream?status=nonsense", {}, 400),
            (f"/jobs/{job_id}/nodes/nothing/logs?follow=true", {}, 404),
            (f"/jobs/{job_id}/logs?follow=true", {"Last-Event-ID": "damaged"}, 400),
            (f"/jobs/{job_id}/stream?logs=true&log_node_id=nothing", {}, 404),
            (f"/jobs/{job_id}/stream?logs=true&log_cursor=damaged", {}, 400),
            (f"/jobs/{job_id}/stream?logs=true&log_since=once", {}, 400),
            (f"/jobs/{job_id}/stream", {"Authorization": "Bearer dm_wrong"}, 401),
        ):
            async with api.events(path, headers) as events:
                assert events.response.status_code == status, (path, events.response.text)
                assert events.response.headers["content-type"] == "application/problem+json"

    serve(scenario)


def test_a_heartbeat_comes_while_nothing_else_does(monkeypatch):
    monkeypatch.setattr(live_sessions, "HEARTBEAT_SECONDS", 0.05)

    async def scenario(api: LiveServer) -> None:
        async with api.events(f"/jobs/{await api.waiting_job()}/stream") as events:
            await events.next("snapshot")
            assert await events.next("comment") == ("comment", None, "heartbeat")

    serve(scenario)


def test_a_stream_whose_key_is_revoked_ends(monkeypatch):
    monkeypatch.setattr(live_sessions, "HEARTBEAT_SECONDS", 0.05)
    monkeypatch.setattr(auth, "CACHE_SECONDS", -1.0)

    async def scenario(api: LiveServer) -> None:
        job_id = await api.waiting_job()
        key = await api.use_key(Scope.READ)
        async with api.events(f"/jobs/{job_id}/stream") as events:
            _, number, _ = await events.next("snapshot")
            await revoke_key(api.keys, key, origin=ChangeOrigin(actor="test"))
            _, last, data = await events.next("end")
            assert (last, data["reason"]) == (number, "key_rejected")

    serve(scenario)


def test_a_client_that_leaves_is_forgotten():
    async def scenario(api: LiveServer) -> None:
        job_id = await api.waiting_job()
        async with api.events(f"/jobs/{job_id}/stream") as events:
            await events.next("snapshot")
            assert len(api.live.sessions) == 1
        await until(lambda: len(api.live.sessions) == 0)

    serve(scenario)


def test_a_key_has_a_limited_number_of_streams_at_once(monkeypatch):
    async def scenario(api: LiveServer) -> None:
        monkeypatch.setattr(api.live.sessions, "_limit", 2)
        job_id = await api.waiting_job()
        async with api.events(f"/jobs/{job_id}/stream") as first:
            await first.next("snapshot")
            async with api.events("/stream") as second:
                await second.next("snapshot")
                async with api.events(f"/jobs/{job_id}/logs", follow=True) as third:
                    problem = third.response.json()
                    assert (third.response.status_code, problem["code"]) == (429, "stream_limit_exceeded")
                    assert "2 live streams" in problem["detail"]
                    assert int(third.response.headers["retry-after"]) > 0
                async with api.socket(f"/ws/jobs/{job_id}") as (_, client):
                    await api.hello(client)
                    assert await client.next() == {"closed": 1013, "reason": "stream_limit_exceeded"}
                own, api.headers = api.headers, {}
                await api.use_key(Scope.READ, name="bob")
                async with api.events(f"/jobs/{job_id}/stream") as other:
                    await other.next("snapshot")
                api.headers = own
            await until(lambda: len(api.live.sessions) == 1)
            async with api.events("/stream") as again:
                await again.next("snapshot")

    serve(scenario)


def test_a_stopped_server_ends_every_stream_with_a_reason():
    async def scenario(api: LiveServer) -> None:
        job_id = await api.waiting_job()
        async with (
            api.events(f"/jobs/{job_id}/stream") as job,
            api.events("/stream") as jobs,
            api.events(f"/jobs/{job_id}/logs", follow=True) as logs,
            api.socket(f"/ws/jobs/{job_id}") as (_, client),
        ):
            _, number, _ = await job.next("snapshot")
            await jobs.next("snapshot")
            await api.hello(client)
            assert (await client.next())["type"] == "snapshot"
            api.server.stop()
            for events in (job, jobs, logs):
                _, last, data = await events.next("end")
                assert (data["reason"], last) == ("shutdown", number if events is job else None)
                with pytest.raises(EOFError):
                    await events.next()
            assert (await client.next())["data"]["reason"] == "shutdown"
            assert await client.next() == {"closed": 1001, "reason": "shutdown"}

    serve(scenario)


def test_a_client_that_does_not_read_is_cut_off_and_others_are_not_delayed(monkeypatch):
    monkeypatch.setattr(live_sessions, "SLOW_SECONDS", 1.0)

    async def flood(_streams: Any, _filter: Any, *, limit: int) -> AsyncGenerator[StreamMessage]:
        while True:
            yield StreamMessage(MessageType.DELTA, json.dumps({"text": "x" * 200_000, "limit": limit}))
            await asyncio.sleep(0)

    async def scenario(api: LiveServer) -> None:
        monkeypatch.setattr(JobListStreams, "stream", flood)
        async with api.events("/stream") as slow, api.events("/stream") as quick:
            async with asyncio.timeout(PATIENCE_SECONDS):
                while len(api.live.sessions) > 1:
                    await quick.next("delta")
            await quick.next("delta")
            with contextlib.suppress(httpx.HTTPError):
                await slow.rest()
            assert len(api.live.sessions) == 1, "the client that reads is served still"

    serve(scenario)


def test_the_list_of_jobs_is_streamed_with_its_filters(monkeypatch):
    monkeypatch.setattr(job_list_streams, "LIST_SECONDS", 0.01)

    async def scenario(api: LiveServer) -> None:
        first = await api.waiting_job(correlation_id="mine")
        await api.waiting_job(correlation_id="other")
        async with api.events("/stream", correlation_id="mine", status="waiting") as events:
            kind, number, data = await events.next()
            assert (kind, number, [job["job_id"] for job in data["jobs"]]) == ("snapshot", None, [first])
            second = await api.waiting_job(correlation_id="mine")
            _, _, data = await events.next()
            assert ([job["job_id"] for job in data["jobs"]], data["removed"]) == ([second], [])
            await api.approve(first)
            _, _, data = await events.next()
            assert (data["jobs"], data["removed"]) == ([], [first])

    serve(scenario)


def test_logs_are_followed_until_the_job_has_finished_and_resume_after_a_chunk():
    async def scenario(api: LiveServer) -> None:
        await api.publish(LOGS)
        job_id = (await api.post("/api/v1/jobs", {"workflow_id": "talk"})).json()["job_id"]
        async with api.events(f"/jobs/{job_id}/logs", follow=True) as events:
            kind, cursor, chunk = await events.next()
            assert (kind, chunk["node_id"], chunk["cursor"]) == ("log", "first", cursor)
            text = chunk["text"]
            while text != "one\ntwo\n":
                _, cursor, chunk = await events.next("log")
                text += chunk["text"]
            await api.until(job_id, "WAITING")
            await api.approve(job_id)
            *chunks, last = await events.rest()
            assert "".join(data["text"] for _, _, data in chunks) == "three\n"
            assert (last[0], last[1], last[2]["reason"]) == ("end", chunks[-1][1], "finished")
        async with api.events(f"/jobs/{job_id}/logs", {"Last-Event-ID": str(cursor)}, follow=True) as events:
            texts = {number: data["text"] for kind, number, data in await events.rest() if kind == "log"}
            assert texts.items() >= {number: data["text"] for _, number, data in chunks}.items(), (
                "nothing is skipped"
            )
        async with api.events(f"/jobs/{job_id}/nodes/second/logs", follow=True) as events:
            assert [data["text"] for kind, _, data in await events.rest() if kind == "log"] == ["three\n"]
        page = (await api.get(f"/api/v1/jobs/{job_id}/logs", cursor=str(cursor))).json()
        assert [item["text"] for item in page["items"]] == ["three\n"]
        await check_searches(api, job_id)

    async def check_searches(api: LiveServer, job_id: str) -> None:
        path = f"/api/v1/jobs/{job_id}/logs"
        newest = (await api.get(path, newest_first=True, limit=1)).json()["items"]
        assert [item["text"] for item in newest] == ["three\n"]
        lines = (await api.get(f"{path}/lines", contains="T", newest_first=True)).json()["items"]
        assert [(line["node_id"], line["text"]) for line in lines] == [("second", "three"), ("first", "two")]
        assert (await api.get(f"{path}/lines", level="error")).json()["items"] == []
        assert (await api.get(f"{path}/lines", level="loud")).status_code == 422
        file = await api.get(f"{path}/text", node_id="first")
        assert file.text == "one\ntwo\n"
        assert file.headers["content-disposition"] == f"attachment; filename*=UTF-8''job-{job_id}-first.log"
        assert (await api.get(f"{path}/text", node_id="nothing")).status_code == 404
        assert (await api.get(path, newest_first=True, follow=True)).status_code == 400

    with capture():
        serve(scenario, talk)


def test_the_stream_of_a_job_has_its_logs_if_they_are_asked_for_and_ends_after_the_last_chunk():
    async def scenario(api: LiveServer) -> None:
        await api.publish(LOGS)
        job_id = (await api.post("/api/v1/jobs", {"workflow_id": "talk"})).json()["job_id"]
        await api.until(job_id, "WAITING")
        async with (
            api.events(f"/jobs/{job_id}/stream", logs=True) as events,
            api.socket(f"/ws/jobs/{job_id}") as (_, client),
        ):
            await api.hello(client, logs={"node_id": "second"})
            _, number, chunk = await events.next("log")
            assert (number, chunk["text"]) == (None, "one\ntwo\n"), "the id stays that of an event"
            await api.approve(job_id)
            messages = await events.rest()
            texts = [data["text"] for kind, _, data in messages if kind == "log"]
            assert (texts, messages[-1][0], messages[-1][2]["reason"]) == (["three\n"], "end", "finished")
            sent = []
            while (message := await client.next())["type"] != "end":
                sent += [message["data"]["text"]] if message["type"] == "log" else []
            assert sent == ["three\n"]
        # The end was lost: the job has no newer event, but its log may have chunks that were not sent.
        last = {"logs": True, "last_event_id": messages[-1][1], "log_cursor": chunk["cursor"]}
        async with api.events(f"/jobs/{job_id}/stream", **last) as events:
            *chunks, ending = await events.rest()
            assert (chunks[-1][2]["text"], ending[0]) == ("three\n", "end")

    with capture():
        serve(scenario, talk)


def test_a_stream_with_logs_ends_with_the_job_that_is_removed(monkeypatch):
    async def removed(*_: Any) -> AsyncGenerator[StreamMessage]:
        yield end(EndReason.REMOVED, "the job was deleted", 7)

    async def scenario(api: LiveServer) -> None:
        job_id = await api.waiting_job()
        monkeypatch.setattr(JobStreams, "stream", removed)
        async with api.events(f"/jobs/{job_id}/stream", logs=True) as events:
            assert [(kind, data["reason"]) for kind, _, data in await events.rest()] == [("end", "removed")]

    serve(scenario)


# ── WebSockets ──


def test_a_socket_gets_the_messages_of_the_stream():
    async def scenario(api: LiveServer) -> None:
        job_id = await api.waiting_job()
        host = f"{api.address[0]}:{api.address[1]}"
        async with api.socket(f"/ws/jobs/{job_id}", Origin=f"http://{host}") as (status, client):
            assert status == 101
            await api.hello(client)
            first = await client.next()
            async with api.events(f"/jobs/{job_id}/stream") as events:
                kind, number, job = await events.next()
                assert (first["type"], first["id"]) == (kind, int(number or 0))
                assert first["data"].keys() == job.keys()
            await api.approve(job_id)
            numbers = []
            while (message := await client.next())["type"] != "end":
                if message["type"] == "delta":
                    numbers += [event["seq"] for event in message["data"]["events"]]
            assert numbers == list(range(first["id"] + 1, message["id"] + 1))
            assert await client.next() == {"closed": 1000, "reason": "finished"}
        async with api.socket(f"/ws/jobs/{job_id}") as (_, client):
            await api.hello(client, last_event_id=numbers[0])
            assert (await client.next())["data"]["events"][0]["seq"] == numbers[0] + 1

    serve(scenario)


@pytest.mark.parametrize("origin", ["https://evil.example", "null", "http://127.0.0.1:1"])
def test_a_page_of_another_site_cannot_open_a_socket(origin):
    async def scenario(api: LiveServer) -> None:
        async with api.socket("/ws/jobs/last", Origin=origin) as (status, _):
            assert status == 403

    serve(scenario)


def test_a_socket_is_closed_with_the_reason_of_what_is_wrong(monkeypatch):
    async def scenario(api: LiveServer) -> None:
        job_id = await api.waiting_job()
        submitter = (await api.post("/api/v1/keys", {"name": "s", "scopes": ["operate"]})).json()["key"]
        admin = api.headers["Authorization"].removeprefix("Bearer ")
        for path, hello, closed in (
            (job_id, '{"key": "dm_wrong"}', (4401, "api_key_rejected")),
            (job_id, json.dumps({"key": submitter}), (4403, "scope_missing")),
            ("9", json.dumps({"key": admin}), (4404, "job_not_found")),
            (job_id, "not json", (1008, "no valid first message")),
            (job_id, "[1]", (1008, "no valid first message")),
            (job_id, json.dumps({"key": admin, "last_event_id": -1}), (1008, "no valid first message")),
            (job_id, json.dumps({"key": admin, "more": 1}), (1008, "no valid first message")),
        ):
            async with api.socket(f"/ws/jobs/{path}") as (_, client):
                client.send(TextMessage(hello))
                assert await client.next() == {"closed": closed[0], "reason": closed[1]}, hello
        async with api.socket(f"/ws/jobs/{job_id}") as (_, client):
            client.send(BytesMessage(b"{}"))
            assert await client.next() == {"closed": 1008, "reason": "no valid first message"}
        monkeypatch.setattr(job_socket, "HELLO_SECONDS", 0.01)
        async with api.socket(f"/ws/jobs/{job_id}") as (_, client):
            assert (await client.next())["closed"] == 1008, "it sent nothing"

    serve(scenario)
