"""Administration of the database: schema, audit, leases of dead processes, what the doctor inspects."""

from __future__ import annotations

import contextlib
import os
import pathlib
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import AsyncIterator

    from dagmaster.application.database_admin import DatabaseAdmin
    from dagmaster.bootstrap.client_settings import ClientSettings
    from dagmaster.ports.database_config import DatabaseConfig
    from dagmaster.ports.database_facts import DatabaseFact
    from dagmaster.ports.output_blobs import OutputBlobs
    from dagmaster.settings import Settings
    from dagmaster.store.embedded.inspection import DataDirectory
    from dagmaster.store.postgres.schema_version import LiveService


@contextlib.asynccontextmanager
async def open_database_admin(
    config: DatabaseConfig, settings: ClientSettings | Settings, outputs: OutputBlobs
) -> AsyncIterator[DatabaseAdmin]:
    """Open what administration works with. It connects when it is first used, whatever the schema is."""
    from dagmaster.application.database_admin import DatabaseAdmin
    from dagmaster.ports.tenants import ALL_TENANTS
    from dagmaster.store.postgres.audit import PostgresInvariantAuditor
    from dagmaster.store.postgres.audit_trail import PostgresAuditTrail
    from dagmaster.store.postgres.metric_rollups import PostgresMetricRebuilder
    from dagmaster.store.postgres.schema_admin import PostgresSchemaAdmin

    async with contextlib.AsyncExitStack() as stack:
        trail = PostgresAuditTrail(config, statement_timeout_seconds=settings.read_timeout_seconds)
        auditor = PostgresInvariantAuditor(
            config,
            lease_seconds=settings.orchestrator_lease_seconds,
            worker_lease_seconds=settings.worker_lease_seconds,
        )
        metrics = PostgresMetricRebuilder(config)
        for store in (trail, auditor, metrics):
            stack.push_async_callback(store.close)
        yield DatabaseAdmin(
            schema=PostgresSchemaAdmin(config),
            auditor=auditor,
            metrics=metrics,
            changes=trail if config.role is None else trail.for_tenant(ALL_TENANTS),
            outputs=outputs,
        )


async def check_live_services(
    config: DatabaseConfig, settings: ClientSettings | Settings, target: str
) -> None:
    """Raise `ServicesIncompatible` if services are alive that could not use the schema of a version."""
    from dagmaster.errors import ServicesIncompatible
    from dagmaster.store.postgres import schema_version
    from dagmaster.text_format import format_count, format_list

    before = await schema_version.current(config.dsn)
    if not schema_version.breaks_services(before, "0000" if target == "base" else target):
        return
    live = await live_services(config, settings)
    if live:
        raise ServicesIncompatible(
            f"{format_count(len(live), 'service')} could not use the schema {target}:"
            f" {format_list([str(service) for service in live])}. Stop them first, or add --force:"
            " they fail, and"
            " their tasks are lost"
        )


async def live_services(config: DatabaseConfig, settings: ClientSettings | Settings) -> list[LiveService]:
    """Return the services whose leases have not ended."""
    from dagmaster.store.postgres import schema_version

    return await schema_version.live_services(
        config.dsn,
        lease_seconds=settings.orchestrator_lease_seconds,
        worker_lease_seconds=settings.worker_lease_seconds,
    )


def upgrade_schema(dsn: str, revision: str) -> None:
    from dagmaster.store.postgres import schema_version

    schema_version.upgrade(dsn, revision)


def downgrade_schema(dsn: str, revision: str) -> None:
    """Downgrade the schema of a database to a version; what only later versions have is lost."""
    from dagmaster.store.postgres import schema_version

    schema_version.downgrade(dsn, revision)


async def expire_process(config: DatabaseConfig, settings: ClientSettings | Settings, pid: int) -> None:
    """End the leases of a dead process of this host, so that its jobs and tasks are reclaimed at once."""
    from dagmaster.store.postgres.client_store import PostgresClientStore

    store = PostgresClientStore(config)
    try:
        await store.expire_process(
            pid,
            lease_seconds=settings.orchestrator_lease_seconds,
            worker_lease_seconds=settings.worker_lease_seconds,
        )
    finally:
        await store.close()


async def probe_database(config: DatabaseConfig, settings: Settings) -> list[DatabaseFact]:
    """Collect facts about a database server in any state; write nothing."""
    from dagmaster.store.postgres import database_probe

    return await database_probe.probe_database(
        config,
        lease_seconds=settings.orchestrator_lease_seconds,
        worker_lease_seconds=settings.worker_lease_seconds,
    )


def embedded_data_dir(settings: Settings, data_dir: pathlib.Path | None = None) -> pathlib.Path:
    """Return the data directory of the embedded PostgreSQL, without symbolic links."""
    from dagmaster.store.embedded.server import default_data_dir

    return pathlib.Path(os.path.realpath(data_dir or settings.data_dir or default_data_dir()))


def inspect_data_directory(data_dir: pathlib.Path) -> DataDirectory:
    """Return the state of an embedded PostgreSQL's data directory; raise if it cannot be used."""
    from dagmaster.store.embedded import inspection

    return inspection.inspect_data_directory(data_dir)


def time_trial_start() -> float:
    """Start an embedded PostgreSQL on a temporary directory; return the seconds until it was ready."""
    from dagmaster.store.embedded import inspection

    return inspection.time_trial_start()
