"""How a command reaches the database: where it is, whether its schema fits, and who asks."""

from __future__ import annotations

import asyncio
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final, TypeVar

import click

from dagmaster.errors import DagmasterError, JobUnknown

if TYPE_CHECKING:
    import pathlib
    from collections.abc import Awaitable, Callable

    from dagmaster.ports.output_blobs import Blobs
    from dagmaster.settings import Settings
    from dagmaster.store.postgres.connection import Address
    from dagmaster.store.postgres.read_store import JobHead, PostgresReadStore

T = TypeVar("T")
LAST: Final = "last"
job_argument = click.argument("job_id", metavar="JOB")
json_option = click.option("--json", "as_json", is_flag=True, help="Print one JSON document, and nothing else.")


@dataclass(slots=True)
class Onlooker:
    """What a command reads with. `address` is for the few that write, too."""

    address: Address
    store: PostgresReadStore
    blobs: Blobs

    async def job(self, job_id: str | None) -> JobHead:
        """The job that was named: by its id, or as `last`."""
        wanted = await self.store.newest() if job_id in (None, LAST) else job_id
        if wanted is None:
            raise JobUnknown("there is no job yet: `dagmaster submit WORKFLOW` makes one")
        found = await self.store.job(wanted) if wanted.isascii() and wanted.isdigit() else None
        if found is None:
            raise JobUnknown(f"there is no job {wanted!r}: `dagmaster jobs list` shows them, and `last` is the newest")
        return found

    async def value(self, value: Any, ref: str | None) -> Any:
        """A value that stands in its row, or in a blob. One that cannot be read is told by its name."""
        if ref is None:
            return value
        from dagmaster.authoring.inputs import read_json  # noqa: PLC0415 - slow to import

        try:
            return read_json((await self.blobs.read(ref)).decode())
        except (DagmasterError, ValueError) as error:
            return {"blob": ref, "unreadable": str(error)}


def on_database(data_dir: pathlib.Path | None, work: Callable[[Onlooker], Awaitable[T]]) -> T:
    """Do something with a database: DAGMASTER_DATABASE_URL, else the embedded one. What goes wrong is one sentence."""
    from dagmaster.bootstrap import reached  # noqa: PLC0415 - slow to import
    from dagmaster.settings import load_settings  # noqa: PLC0415 - likewise

    try:
        settings = load_settings()
        with reached(settings, data_dir) as address:
            return asyncio.run(look_at(address, settings, data_dir, work))
    except DagmasterError as error:
        raise click.ClickException(str(error)) from error


async def look_at(
    address: Address, settings: Settings, data_dir: pathlib.Path | None, work: Callable[[Onlooker], Awaitable[T]]
) -> T:
    """Do something with a database that was reached."""
    from dagmaster.bootstrap import blob_directory, large_outputs, prepare  # noqa: PLC0415 - slow to import
    from dagmaster.store.postgres.read_store import PostgresReadStore  # noqa: PLC0415 - likewise

    await prepare(address, migrate=False)
    store = PostgresReadStore(
        address,
        lease_seconds=settings.orchestrator_lease_seconds,
        worker_lease_seconds=settings.worker_lease_seconds,
    )
    try:
        blobs = large_outputs(settings, blob_directory(settings, data_dir))
        return await work(Onlooker(address, store, blobs))
    finally:
        await store.close()
