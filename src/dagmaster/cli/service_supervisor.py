"""Supervise child processes of `dagmaster dev`: start, watch, restart and stop them."""

from __future__ import annotations

import asyncio
import contextlib
import os
import sys
from dataclasses import dataclass, field
from types import MappingProxyType
from typing import TYPE_CHECKING, Final

from dagmaster.cli.main import BAD_INPUT, COMPLETED, FAILED, INTERRUPTED
from dagmaster.cli.render.text import format_exit
from dagmaster.host.clocks import wait_at_most
from dagmaster.sdk.terminal import echo
from dagmaster.telemetry.logs import LogFormat

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable, Mapping, Sequence

RESTART_SECONDS: Final = 1.0
MAX_RESTART_SECONDS: Final = 30.0
HEALTHY_SECONDS: Final = 60.0
"""A process that ran for so long is restarted as the first one that died."""
MAX_LINE_BYTES: Final = 4 * 1024 * 1024
ERROR_PREFIX: Final = "Error: "
"""How a command begins the line of the error that ends it."""
READY_LINE: Final = "dagmaster: ready"
"""What a service prints to its supervisor when it is ready."""


@dataclass(frozen=True, slots=True)
class Service:
    """A dagmaster command to keep running.

    `ready` is set when its process has printed that it is ready, `replaced` when another one, the
    replacement, takes its place.
    """

    name: str
    arguments: Sequence[str]
    ready: asyncio.Event = field(default_factory=asyncio.Event)
    replaced: asyncio.Event = field(default_factory=asyncio.Event)
    is_replacement: bool = False


class ServiceSupervisor:
    """Runs services in child processes, restarts those that die, and stops them together."""

    def __init__(
        self,
        on_death: Callable[[int], Awaitable[None]],
        *,
        stop_seconds: float,
        log_format: LogFormat = LogFormat.TEXT,
        environment: Mapping[str, str] = MappingProxyType({}),
    ) -> None:
        self._services: list[Service] = []
        self._on_death = on_death
        self._log_format = log_format
        # What services get besides the environment of this process.
        self._environment = environment
        self._stop_seconds = stop_seconds
        self._processes: set[asyncio.subprocess.Process] = set()
        self._process_of: dict[int, asyncio.subprocess.Process] = {}
        self._tasks: list[asyncio.Task[None]] = []
        self._stopping = asyncio.Event()
        self._errors: set[str] = set()
        self.exit_code = COMPLETED
        """That of a service that could not start, and has printed why; else success."""

    @property
    def is_stopping(self) -> bool:
        return self._stopping.is_set()

    def start(self, services: Sequence[Service]) -> None:
        self._services = list(services)
        self._tasks = [asyncio.create_task(self._keep_running(service)) for service in self._services]

    def replace(self, name: str, arguments: Sequence[str]) -> None:
        """Stop all services of a name, which finish their work; start others with these arguments."""
        if self.is_stopping:
            return
        for position, service in enumerate(self._services):
            if service.name == name:
                service.replaced.set()
                self._terminate(self._process_of.get(id(service)))
                self._services[position] = new = Service(name, arguments, is_replacement=True)
                self._tasks.append(asyncio.create_task(self._keep_running(new)))

    async def wait_ready(self) -> None:
        """Wait until all services are ready, or a stop was requested."""
        stopping = asyncio.create_task(self._stopping.wait())
        for service in self._services:
            ready = asyncio.create_task(service.ready.wait())
            await asyncio.wait([ready, stopping], return_when=asyncio.FIRST_COMPLETED)
            ready.cancel()
        stopping.cancel()

    def stop(self) -> None:
        """Terminate all services; called again, kill them and exit."""
        if self.is_stopping:
            echo("exiting at once; jobs continue when dagmaster runs again", err=True)
            self._signal_all(kill=True)
            os._exit(INTERRUPTED)
        self._stopping.set()
        echo("\nstopping (press Ctrl-C again to exit at once)")
        self._signal_all()

    async def wait_stopped(self) -> None:
        """Wait until a stop was requested and all services have ended; kill those that take too long."""
        await self._stopping.wait()
        if self._tasks:
            _, late = await asyncio.wait(self._tasks, timeout=self._stop_seconds)
            if late:
                self._signal_all(kill=True)
            await asyncio.gather(*self._tasks, return_exceptions=True)

    @staticmethod
    def _terminate(process: asyncio.subprocess.Process | None) -> None:
        with contextlib.suppress(ProcessLookupError):
            if process is not None:
                process.terminate()

    def _signal_all(self, *, kill: bool = False) -> None:
        for process in self._processes:
            with contextlib.suppress(ProcessLookupError):
                process.kill() if kill else process.terminate()

    async def _forward_output(self, process: asyncio.subprocess.Process, service: Service) -> None:
        """Print the output of a process until it ends, JSON unchanged to stderr; note when it is ready."""
        assert process.stdout is not None  # noqa: S101 - for mypy: it is a pipe
        while True:
            try:
                line = await process.stdout.readline()
            except ValueError:
                # It is longer than any line of ours; the stream has dropped what it has of it.
                continue
            if not line:
                return
            text = line.decode(errors="replace").rstrip()
            if self.exit_code or self._is_repeated(text, service):
                continue
            if text == READY_LINE:
                print_status(service.name, f"pid {process.pid}")
                service.ready.set()
            elif self._log_format is LogFormat.JSON:
                echo(text, err=True)
            else:
                print_status(service.name, text)

    def _is_repeated(self, text: str, service: Service) -> bool:
        """Return whether another service that does not start, either, has printed this error."""
        if service.ready.is_set() or not text.startswith(ERROR_PREFIX):
            return False
        is_repeated = text in self._errors
        self._errors.add(text)
        return is_repeated

    async def _keep_running(self, service: Service) -> None:
        """Supervise a service; if that is not possible, say why, and end all."""
        try:
            await self._supervise(service)
        except Exception as error:  # noqa: BLE001 - nobody else awaits this: `dev` would wait for ever
            reason = f"{type(error).__name__}: {error}"
            echo(f"{ERROR_PREFIX}the {service.name} cannot be started or watched: {reason}", err=True)
            self._end_all(FAILED)

    def _end_all(self, code: int) -> None:
        self.exit_code = code
        self._stopping.set()
        self._signal_all()

    async def _supervise(self, service: Service) -> None:
        deaths, loop = 0, asyncio.get_running_loop()
        while not self._stopping.is_set() and not service.replaced.is_set():
            started_at = loop.time()
            was_ready = service.ready.is_set()
            process = await _spawn(service.arguments, self._environment)
            self._processes.add(process)
            self._process_of[id(service)] = process
            if service.replaced.is_set():
                self._terminate(process)
            await self._forward_output(process, service)
            code = await process.wait()
            self._processes.discard(process)
            del self._process_of[id(service)]
            if self._stopping.is_set():
                return
            if service.replaced.is_set():
                print_status(service.name, f"pid {process.pid} has stopped")
                return
            if code == BAD_INPUT and not (was_ready or service.ready.is_set() or service.is_replacement):
                # It has printed why; a restart would end the same way, and so may the others.
                self._end_all(code)
                return
            deaths = 1 if loop.time() - started_at > HEALTHY_SECONDS else deaths + 1
            seconds = restart_delay(deaths)
            print_status(
                service.name, f"pid {process.pid} {format_exit(code)}; restarting it in {seconds:g} s"
            )
            await self._on_death(process.pid)
            await wait_at_most(self._stopping, seconds)


def restart_delay(deaths: int) -> float:
    """Return how many seconds to wait after so many deaths of a process in a row."""
    return min(RESTART_SECONDS * 2.0 ** min(deaths - 1, 10), MAX_RESTART_SECONDS)


def print_status(name: str, message: str) -> None:
    echo(f"  {name:<13} {message}")


async def _spawn(
    arguments: Sequence[str], environment: Mapping[str, str] = MappingProxyType({})
) -> asyncio.subprocess.Process:
    # In its own session: this process passes on a Ctrl-C at the terminal. It exits when its standard input is
    # closed.
    return await asyncio.create_subprocess_exec(
        sys.executable,
        "-m",
        "dagmaster",
        *arguments,
        "--with-parent",
        stdin=asyncio.subprocess.PIPE,
        stdout=asyncio.subprocess.PIPE,
        stderr=asyncio.subprocess.STDOUT,
        limit=MAX_LINE_BYTES,
        env={**os.environ, **environment},
        start_new_session=True,
    )
