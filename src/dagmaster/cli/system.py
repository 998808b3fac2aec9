"""Where the questions of a command go: to the application layer, or, with `--url`, to a server."""

from __future__ import annotations

import asyncio
import contextlib
from dataclasses import dataclass
from enum import Enum, auto
from typing import TYPE_CHECKING, Any, Final, Protocol, TypeVar, assert_never

import click

from dagmaster.cli.errors import command_errors
from dagmaster.client.system import LocalSystem, RemoteSystem, current_user
from dagmaster.errors import DatabaseUnavailable, SchemaVersionMismatch, ServerUnavailable
from dagmaster.ports.audit_trail import ChangeOrigin
from dagmaster.text_format import format_seconds

if TYPE_CHECKING:
    import pathlib
    from collections.abc import AsyncIterator, Awaitable, Callable, Iterator, Sequence

    from dagmaster.bootstrap.client_settings import ClientSettings
    from dagmaster.client.system import System
    from dagmaster.ports.database_config import DatabaseConfig
    from dagmaster.settings import Settings

T = TypeVar("T")
_OPTIONS: Final = "dagmaster.server"
job_argument = click.argument("job_id", metavar="JOB")


class Part(Enum):
    """What the functions of a command take as their first argument. A server has all of it."""

    APPLICATION = auto()
    KEYS = auto()
    TENANTS = auto()
    CHANGES = auto()
    """The audit trail."""
    CALLBACKS = auto()
    DATABASE = auto()
    """Administration of the database, whatever its schema is."""


class Session(Protocol):
    """A system that can be used for as long as a command runs."""

    def run(
        self,
        work: Callable[[System], Awaitable[T]],
        *,
        migrate: bool = False,
        part: Part = Part.APPLICATION,
        answer_seconds: float | None = None,
    ) -> T:
        """Run something with the system.

        `answer_seconds`: raise if there is no answer by then. `migrate`: create the tables of an embedded
        database: it belongs to this machine, and its first user creates them. `part`: what the functions take
        as their first argument.
        """


@contextlib.contextmanager
def open_session(data_dir: pathlib.Path | None) -> Iterator[Session]:
    """Open the server of --url or DAGMASTER_URL, else the database; report errors as a command does."""
    with command_errors():
        server = find_server(data_dir)
        if server is not None:
            yield RemoteSession(server)
            return
    with database_session(data_dir) as session:
        yield session


def on_system(
    data_dir: pathlib.Path | None,
    work: Callable[[System], Awaitable[T]],
    *,
    answer_seconds: float | None = None,
) -> T:
    """Run something with the server, or with the application layer of the database.

    `answer_seconds`: raise if there is no answer by then.
    """
    with open_session(data_dir) as session:
        return session.run(work, answer_seconds=answer_seconds)


# ── A database ──


@contextlib.contextmanager
def database_session(data_dir: pathlib.Path | None) -> Iterator[DatabaseSession]:
    """Open the database of DAGMASTER_DATABASE_URL, else the embedded one; report errors as a command does."""
    from dagmaster.bootstrap import open_database
    from dagmaster.bootstrap.client_settings import load_client_settings
    from dagmaster.bootstrap.monitoring import start_traces

    with command_errors():
        settings = load_client_settings()
        start_traces(settings, "cli")
        with open_database(settings, data_dir) as config:
            yield DatabaseSession(config, settings, data_dir)


@dataclass(frozen=True, slots=True)
class DatabaseSession:
    """A database that can be used for as long as a command runs."""

    config: DatabaseConfig
    settings: ClientSettings | Settings
    data_dir: pathlib.Path | None

    def run(
        self,
        work: Callable[[System], Awaitable[T]],
        *,
        migrate: bool = False,
        part: Part = Part.APPLICATION,
        answer_seconds: float | None = None,
    ) -> T:
        """Run something with the application layer, or another part."""
        results: list[T] = []

        async def run() -> None:
            timeout = asyncio.timeout(answer_seconds)
            try:
                async with (
                    timeout,
                    self._opened(part, migrate=migrate and self.config.is_embedded) as first,
                ):
                    results.append(await work(LocalSystem(first)))
            except TimeoutError as error:
                if answer_seconds is None or not timeout.expired():
                    raise
                raise DatabaseUnavailable(
                    f"the database did not answer within {format_seconds(answer_seconds)}: check its"
                    " address, its load and its locks"
                ) from error

        # Not returned by the task: asyncio.run formats its result when it resets the signal handler, for a
        # second if that is a view of 100,000 nodes (CPython 3.11).
        try:
            asyncio.run(run())
        except SchemaVersionMismatch:
            if not self.config.is_embedded or part is Part.DATABASE:
                raise
            # Tried only now: a check before every command would cost one more connection.
            self._migrate()
            asyncio.run(run())
        return results[0]

    def _migrate(self) -> None:
        """Create or upgrade the tables; raise if this code is too old for them."""
        from dagmaster.bootstrap import ensure_schema

        asyncio.run(ensure_schema(self.config, migrate=True))

    @contextlib.asynccontextmanager
    async def _opened(self, part: Part, *, migrate: bool) -> AsyncIterator[Any]:
        from dagmaster.bootstrap import blob_directory, large_outputs, open_application
        from dagmaster.bootstrap.database_admin import open_database_admin

        match part:
            case Part.APPLICATION:
                async with open_application(
                    self.config, self.settings, self.data_dir, migrate=migrate
                ) as app:
                    yield app.on_behalf_of(ChangeOrigin(actor=current_user()))
            case Part.KEYS:
                from dagmaster.bootstrap.http_server import open_keys

                async with open_keys(self.config, migrate=migrate) as keys:
                    yield keys
            case Part.TENANTS:
                from dagmaster.bootstrap.http_server import open_tenants

                async with open_tenants(self.config, migrate=migrate) as tenants:
                    yield tenants
            case Part.CHANGES:
                from dagmaster.bootstrap.http_server import open_audit_trail

                async with open_audit_trail(self.config, self.settings) as trail:
                    yield trail
            case Part.CALLBACKS:
                from dagmaster.bootstrap import ensure_schema
                from dagmaster.bootstrap.callbacks import open_callbacks

                await ensure_schema(self.config, migrate=migrate)
                async with open_callbacks(self.config, self.settings) as callbacks:
                    yield callbacks
            case Part.DATABASE:
                outputs = large_outputs(self.settings, blob_directory(self.settings, self.data_dir))
                async with open_database_admin(self.config, self.settings, outputs) as admin:
                    yield admin
            case _:
                assert_never(part)


# ── A server ──


@dataclass(frozen=True, slots=True)
class Server:
    """The address of a server, and the key to use."""

    url: str
    key: str | None

    def __repr__(self) -> str:
        return f"Server({self.url!r})"


def remember_server(context: click.Context, url: str | None, key: str | None) -> None:
    """Record the options `--url` and `--key` of the root command."""
    context.meta[_OPTIONS] = (url, key)


def find_server(data_dir: pathlib.Path | None, *, modules: Sequence[str] = ()) -> Server | None:
    """Return the server to ask.

    An option wins over the environment; None: the database, or code of this machine.
    """
    context = click.get_current_context(silent=True)
    url, key = (None, None) if context is None else context.meta.get(_OPTIONS, (None, None))
    if url is not None and data_dir is not None:
        raise click.UsageError(
            "--url asks a server, --data-dir names a database of this machine: leave one of them out"
        )
    if url is not None and modules:
        raise click.UsageError(
            "--url asks for the handlers of the server's workers, --handlers names code of this machine:"
            " leave one of them out"
        )
    if data_dir is not None or modules:
        return None
    from dagmaster.bootstrap.client_settings import load_client_settings

    settings = load_client_settings()
    url = url or settings.url
    if url is None:
        if key is not None:
            raise click.UsageError("--key is for a server: name it with --url or DAGMASTER_URL")
        return None
    if key is None and settings.key is not None:
        key = settings.key.get_secret_value()
    return Server(url, key)


@dataclass(frozen=True, slots=True)
class RemoteSession:
    """A server that can be asked for as long as a command runs."""

    server: Server

    def run(
        self,
        work: Callable[[System], Awaitable[T]],
        *,
        migrate: bool = False,  # noqa: ARG002 - a server migrates only when it is asked to
        part: Part = Part.APPLICATION,  # noqa: ARG002 - a server has all of it
        answer_seconds: float | None = None,
    ) -> T:
        from dagmaster.client.async_client import AsyncClient
        from dagmaster.client.retries import Retries

        # One that is to answer soon is asked once.
        retries = None if answer_seconds is None else Retries(attempts=1)

        async def run() -> T:
            async with AsyncClient(self.server.url, self.server.key, retries=retries) as client:
                timeout = asyncio.timeout(answer_seconds)
                try:
                    async with timeout:
                        return await work(RemoteSystem(client))
                except TimeoutError as error:
                    if not timeout.expired():
                        raise
                    raise ServerUnavailable(
                        f"the server at {self.server.url} did not answer within"
                        f" {format_seconds(answer_seconds or 0)}"
                    ) from error

        return asyncio.run(run())
