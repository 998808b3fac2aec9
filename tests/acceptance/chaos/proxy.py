"""A proxy between services and the server, which drops connections at a chosen moment. It parses only message frames.

before      the statement does not arrive
during      it arrives, and its client disconnects
after       it is committed, and the response is lost
hold        nothing passes in either direction until it is released: what was sent arrives late
"""

from __future__ import annotations

import asyncio
import contextlib
import struct
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final, Self

if TYPE_CHECKING:
    from pathlib import Path
    from types import TracebackType

MODES: Final = ("before", "during", "after")
_SYNC: Final = b"S\x00\x00\x00\x04"
_SOCKET: Final = ".s.PGSQL.5432"
_CHUNK: Final = 1 << 16


@dataclass(slots=True)
class Fault:
    """A fault in the statements of a session, after some others."""

    session: str
    mode: str
    after: int = 0


class Proxy:
    """Listens in a folder as a server does; a context manager."""

    def __init__(self, folder: Path, server: Path) -> None:
        self.folder = folder
        self.dsn = f"postgresql:///dagmaster?host={folder}&port=5432&user=dagmaster"
        self.lost = 0
        self._server = server
        self._fault: Fault | None = None
        self._fired = asyncio.Event()
        self._is_open = asyncio.Event()
        self._is_open.set()
        self._connections: set[asyncio.Task[None]] = set()

    async def __aenter__(self) -> Self:
        self.folder.mkdir(exist_ok=True)
        self._listening = await asyncio.start_unix_server(self._accept, str(self.folder / _SOCKET))
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._is_open.set()
        self._listening.close()
        for connection in self._connections:
            connection.cancel()
        await asyncio.gather(*self._connections, return_exceptions=True)

    def inject(self, fault: Fault) -> asyncio.Event:
        """Inject one fault; the event is set when it has happened."""
        self._fault, self._fired = fault, asyncio.Event()
        return self._fired

    def hold(self, session: str) -> asyncio.Event:
        """Block all traffic from the next statement of a session on; the event is set when it is blocked."""
        return self.inject(Fault(session, "hold"))

    def release(self) -> None:
        """Let the blocked traffic pass."""
        self._is_open.set()

    def fires(self, session: str, *modes: str) -> bool:
        """Return whether the fault happens now."""
        fault = self._fault
        if fault is None or fault.session != session or fault.mode not in modes:
            return False
        fault.after -= 1
        if fault.after >= 0:
            return False
        self._fault = None
        return True

    def stop(self) -> None:
        """Block all traffic."""
        self._is_open.clear()
        self._fired.set()

    def record_loss(self) -> None:
        """Count a lost message."""
        self.lost += 1
        self._fired.set()

    async def _accept(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        task = asyncio.current_task()
        assert task is not None
        self._connections.add(task)
        task.add_done_callback(self._connections.discard)
        try:
            connection = _ProxiedConnection(
                self, reader, writer, *await asyncio.open_unix_connection(str(self._server / _SOCKET))
            )
            await connection.run()
        except (OSError, asyncio.IncompleteReadError, asyncio.CancelledError):
            # Either side disconnected, or the proxy is closing.
            writer.transport.abort()

    async def wait_open(self) -> None:
        """Wait while traffic is blocked."""
        await self._is_open.wait()


class _ProxiedConnection:
    """One connection through the proxy."""

    def __init__(
        self,
        proxy: Proxy,
        reader: asyncio.StreamReader,
        writer: asyncio.StreamWriter,
        server_reader: asyncio.StreamReader,
        server_writer: asyncio.StreamWriter,
    ) -> None:
        self._proxy = proxy
        self._reader, self._writer = reader, writer
        self._server_reader, self._server_writer = server_reader, server_writer
        self._session = ""

    async def run(self) -> None:
        try:
            length = await self._reader.readexactly(4)
            rest = await self._reader.readexactly(struct.unpack("!i", length)[0] - 4)
            words = rest[4:].split(b"\x00")
            if b"application_name" in words:
                self._session = words[words.index(b"application_name") + 1].decode()
            self._server_writer.write(length + rest)
            pumps = [asyncio.create_task(pump) for pump in (self._to_server(), self._to_client())]
            try:
                await asyncio.wait(pumps, return_when=asyncio.FIRST_COMPLETED)
            finally:
                for pump in pumps:
                    pump.cancel()
                await asyncio.gather(*pumps, return_exceptions=True)
        finally:
            self._writer.transport.abort()
            self._server_writer.close()
            with contextlib.suppress(OSError):
                await self._server_writer.wait_closed()

    async def _to_server(self) -> None:
        while chunk := await self._reader.read(_CHUNK):
            # Sync: the server executes the statement when it arrives.
            if chunk.endswith(_SYNC) and self._proxy.fires(self._session, "hold"):
                self._proxy.stop()
            await self._proxy.wait_open()
            if chunk.endswith(_SYNC):
                if self._proxy.fires(self._session, "before"):
                    self._proxy.record_loss()
                    return
                if self._proxy.fires(self._session, "during"):
                    self._server_writer.write(chunk)
                    await self._server_writer.drain()
                    self._proxy.record_loss()
                    return
            self._server_writer.write(chunk)
            await self._server_writer.drain()

    async def _to_client(self) -> None:
        """Forward complete messages: a type, a length, and the rest. A response ends with `Z`, after the commit."""
        is_lost = False
        while True:
            head = await self._server_reader.readexactly(5)
            body = await self._server_reader.readexactly(struct.unpack("!i", head[1:])[0] - 4)
            await self._proxy.wait_open()
            # `C`: a statement is complete.
            is_lost = is_lost or (head[:1] == b"C" and self._proxy.fires(self._session, "after"))
            if not is_lost:
                self._writer.write(head + body)
                await self._writer.drain()
            elif head[:1] == b"Z":
                self._proxy.record_loss()
                return
