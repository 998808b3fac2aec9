"""The services that a handler may use: storage, catalog, tables, a database, and its share of the machine."""

from __future__ import annotations

from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Protocol

from dagmaster.ports.default_settings import RASTER_MAX_FILE_MB, RASTER_MAX_PIXELS

if TYPE_CHECKING:
    from collections.abc import Mapping
    from types import TracebackType

    from psycopg import AsyncConnection, Connection
    from psycopg.rows import DictRow

    from dagmaster.json_types import JsonValue
    from dagmaster.ports.catalog import Catalog
    from dagmaster.ports.storage import Storage
    from dagmaster.ports.tables import Tables


@dataclass(frozen=True, slots=True, kw_only=True)
class Share:
    """The resources that one task may use."""

    threads: int = 1
    cache_mb: int = 128
    """Size of GDAL's block cache."""
    max_pixels: int = RASTER_MAX_PIXELS
    """Largest raster that is read as a whole, all bands together. A tile of a larger one may be read."""
    max_file_mb: int = RASTER_MAX_FILE_MB
    param_defaults: Mapping[str, JsonValue] = field(default_factory=dict)
    """The operator's defaults of handlers' params, by setting. A param names its setting in its field."""
    scratch: Path = field(default_factory=lambda: Path("/tmp"))  # noqa: S108 - workers pass another folder
    """Parent of the tasks' scratch folders."""


class LentConnection(Protocol):
    """A connection for one block, one transaction: `with` in functions, `async with` in coroutines."""

    def __enter__(self) -> Connection[DictRow]:
        """Return a connection for a plain function; raise `DatabaseUnavailable` if none is free in time."""

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        """Commit, or roll back if the block raised."""

    async def __aenter__(self) -> AsyncConnection[DictRow]:
        """Return a connection for a coroutine; raise `DatabaseUnavailable` if none is free in time."""

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        """Commit, or roll back if the block raised."""


class ConnectionPool(Protocol):
    """Connections to the database that the operator lets handlers use. Rows are dicts."""

    def connection(self) -> LentConnection:
        """Return a connection of the pool."""


class Services(Protocol):
    """Opened on first use: a handler that needs none waits for none."""

    @property
    def blobs(self) -> Storage:
        """Return the storage of blobs by URI."""

    @property
    def catalog(self) -> Catalog:
        """Return the STAC catalog."""

    @property
    def tables(self) -> Tables:
        """Return the feature tables."""

    @property
    def pool(self) -> ConnectionPool:
        """Return the pool of database connections; raise `ServicesNotFound` if the operator allows none."""

    @property
    def share(self) -> Share:
        """Return the resources that one task may use."""


class WorkerServices(Services, Protocol):
    """The services of a worker or a child process, which closes what its handlers have opened."""

    async def close_on_loop(self) -> None:
        """Close what was opened on the running event loop. It is opened again if it is used again."""

    def close(self) -> None:
        """Close everything else that was opened."""
