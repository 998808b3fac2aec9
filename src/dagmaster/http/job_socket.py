"""The WebSocket of a job: the messages of its stream, after a first message with the key."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, Final

from fastapi import APIRouter
from pydantic import Field, ValidationError
from starlette.websockets import WebSocket, WebSocketDisconnect

from dagmaster.application.job_lookup import find_job
from dagmaster.application.log_streams import stream_with_logs
from dagmaster.application.queries.events_and_logs import list_logs
from dagmaster.application.stream_messages import EndReason, StreamMessage
from dagmaster.errors import Category, DagmasterError
from dagmaster.http.auth import Credential, Need, application_of, check_again, find_allowed
from dagmaster.http.event_stream import abort_connection
from dagmaster.http.origins import is_own_origin
from dagmaster.http.parameters import MAX_ID
from dagmaster.http.routes import Body
from dagmaster.ports.api_keys import Reach, Scope

if TYPE_CHECKING:
    from dagmaster.http.live_streams import LiveStreams

PATH: Final = "/ws/jobs/{job_id}"
_NEED: Final = Need(Scope.READ, Reach.JOB)
SCOPES: Final[dict[tuple[str, str], Scope | None]] = {("WS", PATH): _NEED.scope}
REACHES: Final = {("WS", PATH): _NEED.reach}
HELLO_SECONDS: Final = 10.0
"""How long a client may take to send its key."""
_NORMAL, _GOING_AWAY, _POLICY, _ERROR, _TRY_LATER = 1000, 1001, 1008, 1011, 1013
_CLOSE_CODES: Final = {
    EndReason.FINISHED: _NORMAL,
    EndReason.REMOVED: _NORMAL,
    EndReason.SHUTDOWN: _GOING_AWAY,
    EndReason.UNAVAILABLE: _TRY_LATER,
    EndReason.KEY_REJECTED: 4401,
    EndReason.FAILED: _ERROR,
}
_ERROR_CODES: Final = {
    Category.UNAUTHENTICATED: 4401,
    Category.FORBIDDEN: 4403,
    Category.NOT_FOUND: 4404,
    Category.UNAVAILABLE: _TRY_LATER,
}

router = APIRouter()


class LogSelection(Body):
    """Which logs are sent with the messages of the job."""

    node_id: str | None = Field(default=None, max_length=MAX_ID)
    attempt: int | None = Field(default=None, ge=1, le=2**31 - 1)
    cursor: str | None = Field(default=None, max_length=2_000)


class Hello(Body):
    """The first message of a client."""

    key: str = Field(max_length=8_000)
    last_event_id: int | None = Field(default=None, ge=0)
    logs: LogSelection | None = None


@router.websocket(PATH)
async def job_socket(socket: WebSocket, job_id: str) -> None:
    """Send the stream of a job."""
    if not is_own_origin(socket.headers):
        # Before it is accepted: the handshake is answered with 403.
        await socket.close(_POLICY)
        return
    await socket.accept()
    try:
        await _serve(socket, job_id)
    except WebSocketDisconnect:
        return
    except (TimeoutError, ValidationError):
        await socket.close(_POLICY, "no valid first message")
    except DagmasterError as error:
        await socket.close(_ERROR_CODES.get(error.category, _ERROR), error.code)


async def _serve(socket: WebSocket, job_id: str) -> None:
    live: LiveStreams = socket.app.state.services.live
    async with asyncio.timeout(HELLO_SECONDS):
        hello = Hello.model_validate_json(await _first_text(socket))
    credential = Credential(hello.key)
    caller = await find_allowed(socket, credential, _NEED)
    app = application_of(socket, caller)
    with live.sessions.admit(caller.key_id):
        record = await find_job(app, job_id)
        messages = live.of(caller).jobs.stream(record, hello.last_event_id)
        if hello.logs is not None:
            await list_logs(app, record.job_id, **hello.logs.model_dump(), limit=1)
            messages = stream_with_logs(app, record.job_id, messages, **hello.logs.model_dump())
        reason = await live.sessions.run(
            messages, _Frames(socket), lambda: check_again(socket, credential, _NEED)
        )
        if reason is not None:
            await socket.close(_CLOSE_CODES[reason], reason)


async def _first_text(socket: WebSocket) -> str:
    message = await socket.receive()
    if message["type"] == "websocket.disconnect":
        raise WebSocketDisconnect(message["code"])
    # A binary frame has no text: an empty one is not a valid first message.
    return message.get("text") or ""


class _Frames:
    """The frames of a socket as an outlet."""

    def __init__(self, socket: WebSocket) -> None:
        self._socket = socket

    async def send(self, item: StreamMessage) -> None:
        number = "null" if item.id is None else item.id
        await self._socket.send_text(f'{{"type":"{item.type}","id":{number},"data":{item.data}}}')

    async def beat(self) -> None:
        """Do nothing: the server pings every client."""

    async def wait_closed(self) -> None:
        while (await self._socket.receive())["type"] != "websocket.disconnect":
            pass

    def abort(self) -> None:
        abort_connection(self._socket.scope)
