"""The settings of leases, heartbeats, polls and retries."""

from __future__ import annotations

from typing import Final

from pydantic import BaseModel, Field, ValidationInfo, field_validator

from dagmaster.ports.default_settings import (
    DRAIN_SECONDS,
    ORCHESTRATOR_LEASE_SECONDS,
    POLL_SECONDS,
    RECONNECT_MAX_SECONDS,
    WORKER_LEASE_SECONDS,
)

SHORTEST_LEASES: Final = {"orchestrator_lease_seconds": 10.0, "worker_lease_seconds": 5.0}
"""A lease of the source systems (LEASE_TTL_SEC, ORPHAN_THRESHOLD_SEC) is that of an orchestrator over a job.

A worker renews its lease every 2 s by default, and its tasks run elsewhere 6 s after it has died: 10 s would
forbid the default. Losing a task costs one attempt, which is not a retry; losing jobs costs reading them all.
"""

LONGEST_LEASE_SECONDS: Final = 300.0


class TimingSettings(BaseModel):
    """Leases, heartbeats and polls. Leases are the same in all services, and where `fleet` is asked."""

    poll_seconds: float = Field(
        default=POLL_SECONDS,
        gt=0,
        le=60,
        description="How often orchestrators and workers poll, as the fallback for lost notifications.",
    )
    short_leases: bool = Field(
        default=False,
        description="Allow leases outside of their limits: for tests, where a paused process may lose jobs.",
    )
    orchestrator_lease_seconds: float = Field(
        default=ORCHESTRATOR_LEASE_SECONDS,
        gt=0,
        le=3600,
        description="An orchestrator without a heartbeat for this long is dead: its jobs are reclaimed. 10 to"
        " 300 s, as the lease of the source systems, or any with DAGMASTER_SHORT_LEASES.",
    )
    orchestrator_heartbeat_seconds: float | None = Field(
        default=None,
        gt=0,
        le=1800,
        description="How often an orchestrator renews its lease. Default: a third of the lease.",
    )
    orchestrator_scan_seconds: float | None = Field(
        default=None,
        gt=0,
        le=3600,
        description="How often an orchestrator looks for jobs of dead ones. Default: a third of the lease.",
    )
    worker_lease_seconds: float = Field(
        default=WORKER_LEASE_SECONDS,
        gt=0,
        le=3600,
        description="A worker without a heartbeat for this long is dead: its tasks are lost and retried. 5 to"
        " 300 s, shorter than an orchestrator's may be, as the default finds a dead worker in 6 s; any with"
        " DAGMASTER_SHORT_LEASES.",
    )
    worker_heartbeat_seconds: float | None = Field(
        default=None,
        gt=0,
        le=1800,
        description="How often a worker renews its lease. Default: a third of the lease.",
    )
    reconnect_max_seconds: float = Field(
        default=RECONNECT_MAX_SECONDS,
        gt=0,
        le=300,
        description="The longest delay before an orchestrator, or a service that starts, tries again to"
        " connect to the database. The first is 0.1 s, and each is twice the one before.",
    )
    start_retries: int | None = Field(
        default=None,
        ge=0,
        le=1_000_000,
        description="How often a service that starts tries again to connect to the database, before it exits"
        " with code 3. Default: until it is there.",
    )
    drain_seconds: float = Field(
        default=DRAIN_SECONDS,
        ge=0,
        le=3600,
        description="The shutdown timeout of a worker. Its tasks may finish within 5 s (or a third of it, if"
        " less); then they are asked to save a checkpoint and stop, and are released.",
    )

    @field_validator("orchestrator_lease_seconds", "worker_lease_seconds")
    @classmethod
    def _check_lease(cls, value: float, info: ValidationInfo) -> float:
        shortest = SHORTEST_LEASES[str(info.field_name)]
        if not info.data.get("short_leases", False) and not shortest <= value <= LONGEST_LEASE_SECONDS:
            raise ValueError(
                f"must be {shortest:g} to {LONGEST_LEASE_SECONDS:g} s: a shorter lease ends in a pause of the"
                f" process, a longer one delays the recovery. For tests: DAGMASTER_SHORT_LEASES=1"
            )
        return value

    @field_validator("orchestrator_heartbeat_seconds", "worker_heartbeat_seconds")
    @classmethod
    def _check_heartbeat(cls, value: float | None, info: ValidationInfo) -> float | None:
        lease = str(info.field_name).replace("heartbeat", "lease")
        # A lease that is invalid itself is not in the data.
        if value is not None and value > info.data.get(lease, value * 2) / 2:
            raise ValueError(f"must be at most half of DAGMASTER_{lease.upper()} ({info.data[lease]:g} s)")
        return value
