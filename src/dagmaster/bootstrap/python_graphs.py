"""Wires what code that manages jobs needs in addition to the application layer."""

from __future__ import annotations

import contextlib
from typing import TYPE_CHECKING

from dagmaster.bootstrap import secret
from dagmaster.bootstrap.shipped_handlers import shipped_names

if TYPE_CHECKING:
    from collections.abc import AsyncIterator

    from dagmaster.application.context import Application
    from dagmaster.application.remote_tasks import RemoteTasks
    from dagmaster.ports.database_config import DatabaseConfig
    from dagmaster.ports.remote_workers import RemoteWorkers
    from dagmaster.ports.schema_admin import SchemaAdmin


def schema_admin(config: DatabaseConfig | None) -> SchemaAdmin:
    if config is None:
        from dagmaster.store.memory.schema_admin import MemorySchemaAdmin

        return MemorySchemaAdmin()
    from dagmaster.store.postgres.schema_admin import PostgresSchemaAdmin

    return PostgresSchemaAdmin(config)


@contextlib.asynccontextmanager
async def open_remote_tasks(config: DatabaseConfig | None, app: Application) -> AsyncIterator[RemoteTasks]:
    """Open the registration of workers that this process acts for."""
    from dagmaster.application.remote_tasks import RemoteTasks

    async with contextlib.AsyncExitStack() as stack:
        workers: RemoteWorkers
        if config is None:
            from dagmaster.store.memory.client_store import MemoryClientStore
            from dagmaster.store.memory.remote_workers import MemoryRemoteWorkers

            assert isinstance(app.client, MemoryClientStore)  # noqa: S101 - the store without a database
            workers = MemoryRemoteWorkers(app.client.database)
        else:
            from dagmaster.store.postgres.remote_workers import PostgresRemoteWorkers

            stored = PostgresRemoteWorkers(config)
            stack.push_async_callback(stored.close)
            workers = stored
        yield RemoteTasks(
            workers,
            app.blobs,
            secret,
            app.read.worker_lease_seconds,
            vault=app.vault,
            shipped=shipped_names(),
        )
