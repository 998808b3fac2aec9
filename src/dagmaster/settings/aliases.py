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
    Alias("RUN_MODE", "run_mode"),
    Alias("WORKER_QUEUE", "queues"),
    Alias("DAG_WORKER_QUEUE", "queues"),
    Alias("POLL_INTERVAL_SEC", "poll_seconds"),
    Alias("ORPHAN_THRESHOLD_SEC", "orchestrator_lease_seconds"),
    Alias("LEASE_TTL_SEC", "orchestrator_lease_seconds"),
    Alias("ORPHAN_SCAN_INTERVAL_SEC", "orchestrator_scan_seconds"),
    Alias("HEARTBEAT_INTERVAL_SEC", "orchestrator_heartbeat_seconds"),
    Alias("PULSE_INTERVAL_SEC", "orchestrator_heartbeat_seconds"),
    Alias("LEASE_ACQUIRE_DELAY_SEC", "reconnect_max_seconds"),
    Alias("LEASE_ACQUIRE_RETRIES", "start_retries"),
    Alias("JOB_LOCK_PREFIX", instead="a job is fenced by its owner and epoch, without advisory locks"),
    Alias("WORKER_HEARTBEAT_INTERVAL", "worker_heartbeat_seconds"),
    Alias("WORKER_TASK_TIMEOUT", "task_timeout_seconds"),
    Alias("JOB_DEFAULT_TIMEOUT", "job_timeout_seconds"),
    Alias("WORKER_MAX_RETRIES", "task_max_retries"),
    Alias("WORKER_TYPE", instead="a worker is identified by its queues; use DAGMASTER_QUEUES"),
    Alias("JOB_QUEUE_NAME", instead="jobs do not come from a broker's queue yet; use `dagmaster submit`"),
    Alias("SERVICE_BUS_NAMESPACE", instead="the broker is PostgreSQL; Service Bus is not supported yet"),
    Alias(
        "SERVICE_BUS_CONNECTION_STRING",
        instead="the broker is PostgreSQL, not yet Service Bus",
        is_secret=True,
    ),
    Alias(
        "MANAGED_IDENTITY_CLIENT_ID",
        instead="databases and storage need passwords and keys, not yet identities",
    ),
    Alias("ORCHESTRATOR_URL", "orchestrator_url"),
    Alias("WORKER_URL", "worker_url"),
    Alias("AAICLICK_LOG_DIR", "log_dir"),
)
