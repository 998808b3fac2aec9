"""How a command reaches the database and the application layer on it."""

from __future__ import annotations

import asyncio
import contextlib
from dataclasses import dataclass
from typing import TYPE_CHECKING, TypeVar

import click

from dagmaster.cli.errors import command_errors

if TYPE_CHECKING:
    import pathlib
    from collections.abc import Awaitable, Callable, Iterator

    from dagmaster.application.context import Application
    from dagmaster.bootstrap.client_settings import ClientSettings
    from dagmaster.ports.database_config import DatabaseConfig
    from dagmaster.settings import Settings

T = TypeVar("T")
job_argument = click.argument("job_id", metavar="JOB")


@dataclass(frozen=True, slots=True)
class DatabaseSession:
    """A database that can be used for as long as a command runs."""

    config: DatabaseConfig
    settings: ClientSettings | Settings
    data_dir: pathlib.Path | None

    def run(self, work: Callable[[Application], Awaitable[T]], *, migrate: bool = False) -> T:
        """Run something with the application layer."""
        from dagmaster.bootstrap import open_application

        async def run() -> T:
            async with open_application(self.config, self.settings, self.data_dir, migrate=migrate) as app:
                return await work(app)

        return asyncio.run(run())


@contextlib.contextmanager
def database_session(data_dir: pathlib.Path | None) -> Iterator[DatabaseSession]:
    """Open the database of DAGMASTER_DATABASE_URL, else the embedded one; report errors as a command does."""
    from dagmaster.bootstrap import open_database
    from dagmaster.bootstrap.client_settings import load_client_settings

    with command_errors():
        settings = load_client_settings()
        with open_database(settings, data_dir) as config:
            yield DatabaseSession(config, settings, data_dir)


def on_application(data_dir: pathlib.Path | None, work: Callable[[Application], Awaitable[T]]) -> T:
    """Run something with the application layer of the configured database."""
    with database_session(data_dir) as session:
        return session.run(work)
