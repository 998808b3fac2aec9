"""Streams: messages are parsed, and a stream that breaks off continues after the last message."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, Any

import httpx
import pytest

from dagmaster.client.connection import Connection
from dagmaster.client.event_streams import Message, parse_messages, read_stream
from dagmaster.client.retries import Retries
from dagmaster.errors import (
    ApiKeyRejected,
    DatabaseUnavailable,
    JobNotFound,
    ServerAnswerInvalid,
    ServerUnavailable,
)
from tests.unit.client.test_connection import problem

if TYPE_CHECKING:
    from collections.abc import AsyncIterator

DELTA = 'id: {0}\nevent: delta\ndata: {{"n": {0}}}\n\n'
FINISHED = 'id: 9\nevent: end\ndata: {"reason": "finished", "detail": ""}\n\n'


class Broken(httpx.AsyncByteStream):
    """A body that breaks off."""

    def __init__(self, text: str) -> None:
        self.text = text

    async def __aiter__(self) -> AsyncIterator[bytes]:
        yield self.text.encode()
        raise httpx.ReadError("reset")


class Streams:
    """Answers requests for a stream in turn."""

    def __init__(self, *answers: httpx.Response | httpx.TransportError | str) -> None:
        self.answers = list(answers)
        self.last_ids: list[str | None] = []

    def __call__(self, request: httpx.Request) -> httpx.Response:
        self.last_ids.append(request.headers.get("Last-Event-ID"))
        answer = self.answers.pop(0)
        if isinstance(answer, httpx.TransportError):
            raise answer
        return httpx.Response(200, text=answer) if isinstance(answer, str) else answer

    def read(self, last_id: str | None = None) -> list[Any]:
        async def work() -> list[Any]:
            connection = Connection(
                "http://server", "k", retries=Retries(), transport=httpx.MockTransport(self)
            )
            return [
                message.data["n"]
                async for message in read_stream(connection, "jobs", "7", "stream", last_id=last_id)
            ]

        return asyncio.run(work())


def parse(text: str) -> list[Message]:
    async def lines() -> AsyncIterator[str]:
        for line in text.split("\n"):
            yield line

    async def work() -> list[Message]:
        return [message async for message in parse_messages(lines())]

    return asyncio.run(work())


def test_messages_have_a_type_data_and_an_id():
    text = (
        'retry: 2000\n\nid: 12\nevent: delta\ndata: {"a": [1]}\n\n: heartbeat\n\nevent: tasks\ndata: {}\n\n'
    )
    assert parse(text) == [Message("delta", {"a": [1]}, "12"), Message("tasks", {})]


def test_a_message_that_is_not_complete_is_not_used():
    assert parse('id: 1\nevent: delta\ndata: {"a": 1}') == []


def test_a_message_that_is_not_json_is_an_error():
    with pytest.raises(ServerAnswerInvalid):
        parse("data: <html>\n\n")


def test_a_stream_ends_when_what_it_follows_has_finished():
    streams = Streams(DELTA.format(1) + DELTA.format(2) + FINISHED)
    assert streams.read("0") == [1, 2]
    assert streams.last_ids == ["0"]


def test_a_stream_that_breaks_off_continues_after_the_last_message():
    streams = Streams(
        httpx.Response(200, stream=Broken(DELTA.format(1) + 'id: 2\nevent: delta\ndata: {"n"')),
        httpx.ConnectError("refused"),
        problem(DatabaseUnavailable("away")),
        DELTA.format(2) + 'event: end\ndata: {"reason": "shutdown", "detail": ""}\n\n',
        DELTA.format(3),
        DELTA.format(4) + FINISHED,
    )
    assert streams.read() == [1, 2, 3, 4]
    assert streams.last_ids == [None, "1", "1", "1", "2", "3"]


def test_a_job_without_news_has_no_messages():
    assert Streams(httpx.Response(204)).read("9") == []


@pytest.mark.parametrize(
    ("answer", "error_type"),
    [
        (problem(JobNotFound("none")), JobNotFound),
        (httpx.ConnectError("refused"), ServerUnavailable),
        (problem(DatabaseUnavailable("away")), DatabaseUnavailable),
    ],
)
def test_what_fails_at_once_is_raised(answer, error_type):
    with pytest.raises(error_type):
        Streams(answer).read()


def test_a_key_that_expires_ends_the_stream():
    streams = Streams(
        DELTA.format(1) + 'event: end\ndata: {"reason": "key_rejected", "detail": "revoked"}\n\n'
    )
    with pytest.raises(ApiKeyRejected, match="revoked"):
        streams.read()
