"""Defaults of settings that are also needed without their model, which imports pydantic.

Each stands here alone.
"""

from __future__ import annotations

from typing import Final

POLL_SECONDS: Final = 1.0
ORCHESTRATOR_LEASE_SECONDS: Final = 15.0
WORKER_LEASE_SECONDS: Final = 6.0
RECONNECT_MAX_SECONDS: Final = 5.0
DRAIN_SECONDS: Final = 30.0
BLOCKED_SECONDS: Final = 60.0
READ_TIMEOUT_SECONDS: Final = 30.0
CONCURRENCY: Final = 32
WORKERS_PER_KEY: Final = 1_000
QUEUES_PER_KEY: Final = 1_000
HANDLERS_PER_KEY: Final = 1_000
OIDC_LEEWAY_SECONDS: Final = 30.0
OIDC_NAME_CLAIM: Final = "sub"
OIDC_SCOPES_CLAIM: Final = "scope"
RASTER_MAX_PIXELS: Final = 5_000_000_000
RASTER_MAX_FILE_MB: Final = 1_000_000

WORKER_MEMORY: Final = (
    "How much memory, in MB, a worker and its child processes may use together; what they share counts once."
    " A worker that needs that before its first task does not start. Above it the largest child process is"
    " killed, or the worker drains and exits with code 81; 0: no limit. Default: 90 % of the memory limit of"
    " its control group, if it has one."
)
"""What the limit of a worker's memory means."""

CALLBACK_RETRY_SECONDS: Final = (10.0, 60.0, 600.0, 3_600.0, 14_400.0, 28_800.0, 39_600.0)
"""Eight tries over a day."""
CALLBACK_PAUSE_DAYS: Final = 3.0
CALLBACK_RETENTION_DAYS: Final = 30.0
RESULT_LINK_HOURS: Final = 72.0
