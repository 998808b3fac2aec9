"""How a command reaches the database: where it is, whether its schema fits, and who asks."""

from __future__ import annotations

import asyncio
import contextlib
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final, TypeVar

import click

from dagmaster.cli.errors import command_errors
from dagmaster.errors import DagmasterError, JobNotFound

if TYPE_CHECKING:
    import pathlib
    from collections.abc import Awaitable, Callable, Iterator

    from dagmaster.application.context import Application
    from dagmaster.ports.database_config import DatabaseConfig
    from dagmaster.ports.output_blobs import OutputBlobs
    from dagmaster.settings import Settings
    from dagmaster.store.postgres.legacy_read_store import JobDetail, LegacyReadStore

T = TypeVar("T")
LAST: Final = "last"
job_argument = click.argument("job_id", metavar="JOB")


@dataclass(frozen=True, slots=True)
class DatabaseSession:
    """A database that can be used for as long as a command runs."""

    config: DatabaseConfig
    settings: Settings
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
    from dagmaster.settings import load_settings

    with command_errors():
        settings = load_settings()
        with open_database(settings, data_dir) as config:
            yield DatabaseSession(config, settings, data_dir)


def on_application(data_dir: pathlib.Path | None, work: Callable[[Application], Awaitable[T]]) -> T:
    """Run something with the application layer of the configured database."""
    with database_session(data_dir) as session:
        return session.run(work)


@dataclass(slots=True)
class ReadSession:
    """What a command reads with. `address` is for the few that write, too."""

    address: DatabaseConfig
    store: LegacyReadStore
    blobs: OutputBlobs

    async def job(self, job_id: str | None) -> JobDetail:
        """The job that was named: by its id, or as `last`."""
        wanted = await self.store.newest() if job_id in (None, LAST) else job_id
        if wanted is None:
            raise JobNotFound("there is no job yet: `dagmaster submit WORKFLOW` makes one")
        found = await self.store.job(wanted) if wanted.isascii() and wanted.isdigit() else None
        if found is None:
            raise JobNotFound(f"there is no job {wanted!r}: `dagmaster jobs list` shows them, and `last` is the newest")
        return found

    async def value(self, value: Any, ref: str | None) -> Any:
        """A value that stands in its row, or in a blob. One that cannot be read is told by its name."""
        if ref is None:
            return value
        from dagmaster.authoring.inputs import read_json

        try:
            return read_json((await self.blobs.read(ref)).decode())
        except (DagmasterError, ValueError) as error:
            return {"blob": ref, "unreadable": str(error)}


def on_database(data_dir: pathlib.Path | None, work: Callable[[ReadSession], Awaitable[T]]) -> T:
    """Do something with a database: DAGMASTER_DATABASE_URL, else the embedded one. What goes wrong is one sentence."""
    from dagmaster.bootstrap import open_database
    from dagmaster.settings import load_settings

    with command_errors():
        settings = load_settings()
        with open_database(settings, data_dir) as address:
            return asyncio.run(look_at(address, settings, data_dir, work))


async def look_at(
    address: DatabaseConfig,
    settings: Settings,
    data_dir: pathlib.Path | None,
    work: Callable[[ReadSession], Awaitable[T]],
) -> T:
    """Do something with a database that was open_database."""
    from dagmaster.bootstrap import blob_directory, ensure_schema, large_outputs
    from dagmaster.store.postgres.legacy_read_store import LegacyReadStore

    await ensure_schema(address, migrate=False)
    store = LegacyReadStore(
        address,
        lease_seconds=settings.orchestrator_lease_seconds,
        worker_lease_seconds=settings.worker_lease_seconds,
    )
    try:
        blobs = large_outputs(settings, blob_directory(settings, data_dir))
        return await work(ReadSession(address, store, blobs))
    finally:
        await store.close()
