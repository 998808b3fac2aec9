"""Administration of the database: its schema, its audit, the leases of dead processes, and what the doctor inspects."""

from __future__ import annotations

import asyncio
import os
import pathlib
import secrets
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Callable

    from dagmaster.application.views import AuditView
    from dagmaster.bootstrap.client_settings import ClientSettings
    from dagmaster.ports.database_config import DatabaseConfig
    from dagmaster.ports.database_facts import DatabaseFact
    from dagmaster.settings import Settings
    from dagmaster.store.embedded.inspection import DataDirectory
    from dagmaster.store.postgres.schema_version import Version


def read_schema_version(dsn: str) -> tuple[str | None, str]:
    """Return the schema version of a database (None: no schema), and the one that this code needs."""
    from dagmaster.store.postgres import schema_version

    return asyncio.run(schema_version.current(dsn)), schema_version.HEAD


def migrate_schema(dsn: str, revision: str = "head") -> None:
    """Upgrade the schema of a database to a version."""
    from dagmaster.store.postgres import schema_version

    schema_version.upgrade(dsn, revision)


def downgrade_schema(dsn: str, revision: str) -> None:
    """Downgrade the schema of a database to a version; what only later versions have is lost."""
    from dagmaster.store.postgres import schema_version

    schema_version.downgrade(dsn, revision)


def schema_history(dsn: str) -> list[Version]:
    """Return all schema versions, oldest first; the one of the database is marked as current."""
    from dagmaster.store.postgres import schema_version

    return schema_version.history(asyncio.run(schema_version.current(dsn)))


async def audit_database(
    config: DatabaseConfig,
    settings: ClientSettings | Settings,
    job_id: str | None = None,
    *,
    on_progress: Callable[[int, int], None] | None = None,
) -> AuditView:
    """Check the invariants of all jobs of a database, or of one. `on_progress`: the jobs checked so far, and all."""
    from dagmaster.application.views import AuditView, ViolationView
    from dagmaster.store.postgres.audit import audit_at

    audit = await audit_at(
        config,
        job_id=job_id,
        lease_seconds=settings.orchestrator_lease_seconds,
        worker_lease_seconds=settings.worker_lease_seconds,
        on_progress=on_progress,
    )
    return AuditView(
        is_valid=not audit.violations,
        jobs_total=audit.jobs,
        nodes_total=audit.nodes,
        events_total=audit.events,
        invariants_total=audit.invariants,
        violations=tuple(
            ViolationView(
                invariant=violation.invariant,
                rule=violation.rule,
                job_id=violation.job_id,
                node_id=violation.node_id,
                message=violation.message,
            )
            for violation in audit.violations
        ),
    )


async def expire_process(config: DatabaseConfig, settings: ClientSettings | Settings, pid: int) -> None:
    """End the leases of a process of this host that died, so that its jobs and tasks are reclaimed at once."""
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


async def rebuild_metrics(config: DatabaseConfig) -> int:
    """Count all finished jobs of a database again; return how many."""
    from dagmaster.bootstrap import ensure_schema
    from dagmaster.store.postgres.connection import Connection
    from dagmaster.store.postgres.metric_rollups import MetricRollups

    await ensure_schema(config, migrate=config.is_embedded)
    connection = Connection(config, "dagmaster metrics rebuild")
    try:
        return await MetricRollups(connection).rebuild(secrets.randbits(62))
    finally:
        await connection.close()


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
