"""Server-Sent Events: the messages of a stream, which is opened again where it broke off."""

from __future__ import annotations

import asyncio
import contextlib
import json
import logging
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final

import httpx

from dagmaster.client.problems import error_of_response
from dagmaster.errors import ApiKeyRejected, Category, DagmasterError, ServerAnswerInvalid
from dagmaster.host.connection_backoff import ConnectionBackoff

if TYPE_CHECKING:
    from collections.abc import AsyncGenerator, AsyncIterable, Mapping

    from dagmaster.client.connection import Connection

SILENT_SECONDS: Final = 45.0
"""A stream that sends nothing for so long is broken: a server sends a heartbeat every 15 seconds."""
_FINAL_REASONS: Final = frozenset({"finished", "removed"})
_NO_CONTENT: Final = 204


@dataclass(frozen=True, slots=True)
class Message:
    """A message of a stream: its type, its data, and where the stream resumes after it."""

    type: str
    data: Any
    id: str | None = None


async def read_stream(
    connection: Connection, *path: str, last_id: str | None = None, params: Mapping[str, Any] | None = None
) -> AsyncGenerator[Message, None]:
    """Yield the messages of a stream until what it follows has ended.

    A stream that breaks off is opened again after the last message: an outage is waited out. What fails at
    the first time, and what a retry cannot change, is raised.
    """
    backoff = ConnectionBackoff(logging.getLogger("dagmaster"), remote="server")
    is_first = True
    while True:
        pause = 0.0
        try:
            async with contextlib.aclosing(_read_once(connection, path, last_id, params or {})) as messages:
                async for message in messages:
                    is_first = False
                    last_id = last_id if message.id is None else message.id
                    if message.type != "end":
                        backoff.on_success()
                        yield message
                    elif message.data["reason"] in _FINAL_REASONS:
                        return
                    elif message.data["reason"] == "key_rejected":
                        raise ApiKeyRejected(str(message.data["detail"]))
                    else:
                        break
            pause = backoff.on_failure(DagmasterError("the stream of the server broke off"))
        except DagmasterError as error:
            if is_first or error.category is not Category.UNAVAILABLE:
                raise
            pause = backoff.on_failure(error)
        await asyncio.sleep(pause)


async def _read_once(
    connection: Connection, path: tuple[str, ...], last_id: str | None, params: Mapping[str, Any]
) -> AsyncGenerator[Message, None]:
    headers = {"Accept": "text/event-stream"} | ({} if last_id is None else {"Last-Event-ID": last_id})
    try:
        async with connection.stream(
            path, params=params, headers=headers, silent_seconds=SILENT_SECONDS
        ) as response:
            if response.status_code == _NO_CONTENT:
                yield Message("end", {"reason": "finished", "detail": "there is nothing new"})
                return
            if not response.is_success:
                await response.aread()
                raise error_of_response(response)
            async for message in parse_messages(response.aiter_lines()):
                yield message
    except httpx.TransportError as error:
        raise connection.unavailable(error) from error


async def parse_messages(lines: AsyncIterable[str]) -> AsyncGenerator[Message, None]:
    """Parse the lines of a stream. A message that is not complete is not yielded."""
    fields: dict[str, str] = {}
    async for line in lines:
        name, _, value = line.partition(":")
        if name:
            fields[name] = value.removeprefix(" ")
        elif not line and "data" in fields:
            yield _message(fields)
            fields = {}
        elif not line:
            fields = {}


def _message(fields: Mapping[str, str]) -> Message:
    try:
        return Message(fields.get("event", "message"), json.loads(fields["data"]), fields.get("id"))
    except ValueError as error:
        raise ServerAnswerInvalid("a message of the stream is not JSON: is it a dagmaster server?") from error
