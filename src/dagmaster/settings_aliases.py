"""Setting names of the source systems, read as aliases by services."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final


@dataclass(frozen=True, slots=True)
class Alias:
    """A name of the source systems: an alias of a setting, or without effect, with what to use `instead`."""

    name: str
    setting: str = ""
    instead: str = ""
    part: str = ""
    is_secret: bool = False


# The first name of a setting wins. DATABASE_URL wins over its parts.
ALIASES: Final = (
    Alias("DATABASE_URL", "database_url", is_secret=True),
    Alias("POSTGRES_HOST", "database_url", part="host"),
    Alias("POSTGRES_PORT", "database_url", part="port"),
    Alias("POSTGRES_USER", "database_url", part="user"),
    Alias("POSTGRES_PASSWORD", "database_url", part="password", is_secret=True),
    Alias("POSTGRES_DB", "database_url", part="database"),
    Alias("POSTGIS_HOST", "database_url", part="host"),
    Alias("POSTGIS_DATABASE", "database_url", part="database"),
    Alias("WORKER_QUEUE", "queues"),
    Alias("DAG_WORKER_QUEUE", "queues"),
    Alias("POLL_INTERVAL_SEC", "poll_seconds"),
    Alias("ORPHAN_THRESHOLD_SEC", "orchestrator_lease_seconds"),
    Alias("ORPHAN_SCAN_INTERVAL_SEC", instead="the scan is a third of DAGMASTER_ORCHESTRATOR_LEASE_SECONDS"),
    Alias("HEARTBEAT_INTERVAL_SEC", instead="the heartbeat is a third of DAGMASTER_ORCHESTRATOR_LEASE_SECONDS"),
    Alias("WORKER_HEARTBEAT_INTERVAL", instead="the heartbeat is a third of DAGMASTER_WORKER_LEASE_SECONDS"),
    Alias("WORKER_TASK_TIMEOUT", instead="a handler or a node has its own timeout_seconds"),
    Alias("WORKER_MAX_RETRIES", instead="a handler or a node has its own retry"),
    Alias("JOB_DEFAULT_TIMEOUT", instead="there is no timeout for all jobs yet"),
    Alias("JOB_QUEUE_NAME", instead="jobs do not come from a broker's queue yet"),
    Alias("SERVICE_BUS_NAMESPACE", instead="the broker is PostgreSQL; there is none for Service Bus yet"),
    Alias("SERVICE_BUS_CONNECTION_STRING", instead="the broker is PostgreSQL, not yet Service Bus", is_secret=True),
    Alias("MANAGED_IDENTITY_CLIENT_ID", instead="the database is reached with a password, not yet with an identity"),
    Alias("RUN_MODE", instead="determined by the command (orchestrator or worker)"),
    Alias("WORKER_TYPE", instead="a worker is identified by its queues"),
    Alias("ORCHESTRATOR_URL", instead="there is no gateway that forwards to it yet"),
    Alias("WORKER_URL", instead="there is no gateway that forwards to it yet"),
    Alias("AAICLICK_LOG_DIR", instead="the logs of tasks are kept in the database"),
)
