"""A proxy between services and the server, that loses what it is told to lose. It speaks as much of the protocol as it needs.

before      the statement does not arrive
meanwhile   it arrives, and nobody waits for its answer
after       it is done and committed, and the answer is lost
hold        nothing passes in either direction until it is let go: what was sent arrives late
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

MODES: Final = ("before", "meanwhile", "after")
_SYNC: Final = b"S\x00\x00\x00\x04"
_SOCKET: Final = ".s.PGSQL.5432"
_CHUNK: Final = 1 << 16


@dataclass(slots=True)
class Fault:
    """What is lost: which kind of a session's statements, after how many others."""

    session: str
    mode: str
    after: int = 0


class Proxy:
    """Listens in a folder as a server would. Used as a context."""

    def __init__(self, folder: Path, server: Path) -> None:
        self.folder = folder
        self.dsn = f"postgresql:///dagmaster?host={folder}&port=5432&user=dagmaster"
        self.lost = 0
        self._server = server
        self._fault: Fault | None = None
        self._fired = asyncio.Event()
        self._flows = asyncio.Event()
        self._flows.set()
        self._links: set[asyncio.Task[None]] = set()

    async def __aenter__(self) -> Self:
        self.folder.mkdir(exist_ok=True)
        self._listening = await asyncio.start_unix_server(self._take, str(self.folder / _SOCKET))
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._flows.set()
        self._listening.close()
        for link in self._links:
            link.cancel()
        await asyncio.gather(*self._links, return_exceptions=True)

    def lose(self, fault: Fault) -> asyncio.Event:
        """Lose one thing; the event tells when it was lost."""
        self._fault, self._fired = fault, asyncio.Event()
        return self._fired

    def hold(self, session: str) -> asyncio.Event:
        """Hold up the next statement of a session, and from then on all; the event tells when."""
        return self.lose(Fault(session, "hold"))

    def let_go(self) -> None:
        """Let all pass, what waited first."""
        self._flows.set()

    def fires(self, session: str, *modes: str) -> bool:
        """Whether it is now that something is lost."""
        fault = self._fault
        if fault is None or fault.session != session or fault.mode not in modes:
            return False
        fault.after -= 1
        if fault.after >= 0:
            return False
        self._fault = None
        return True

    def stop(self) -> None:
        """Let nothing pass."""
        self._flows.clear()
        self._fired.set()

    def was_lost(self) -> None:
        """Tell that it was."""
        self.lost += 1
        self._fired.set()

    async def _take(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        task = asyncio.current_task()
        assert task is not None
        self._links.add(task)
        task.add_done_callback(self._links.discard)
        try:
            link = _Link(self, reader, writer, *await asyncio.open_unix_connection(str(self._server / _SOCKET)))
            await link.run()
        except (OSError, asyncio.IncompleteReadError, asyncio.CancelledError):
            # Either side left, or the proxy did.
            writer.transport.abort()

    async def flow(self) -> None:
        """Wait until things pass."""
        await self._flows.wait()


class _Link:
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
            pumps = [asyncio.create_task(each) for each in (self._to_server(), self._to_client())]
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
            # The end of a statement: with it, the server begins.
            if chunk.endswith(_SYNC) and self._proxy.fires(self._session, "hold"):
                self._proxy.stop()
            await self._proxy.flow()
            if chunk.endswith(_SYNC):
                if self._proxy.fires(self._session, "before"):
                    self._proxy.was_lost()
                    return
                if self._proxy.fires(self._session, "meanwhile"):
                    self._server_writer.write(chunk)
                    await self._server_writer.drain()
                    self._proxy.was_lost()
                    return
            self._server_writer.write(chunk)
            await self._server_writer.drain()

    async def _to_client(self) -> None:
        """Pass on whole messages: a type, a length, and the rest. An answer ends with `Z`, after the commit."""
        is_lost = False
        while True:
            head = await self._server_reader.readexactly(5)
            body = await self._server_reader.readexactly(struct.unpack("!i", head[1:])[0] - 4)
            await self._proxy.flow()
            # `C`: a statement is done.
            is_lost = is_lost or (head[:1] == b"C" and self._proxy.fires(self._session, "after"))
            if not is_lost:
                self._writer.write(head + body)
                await self._writer.drain()
            elif head[:1] == b"Z":
                self._proxy.was_lost()
                return
