"""The settings of metrics for Prometheus."""

from __future__ import annotations

from pydantic import BaseModel, Field


class MonitoringSettings(BaseModel):
    """Metrics for Prometheus."""

    metrics_port: int | None = Field(
        default=None,
        ge=1,
        le=65_535,
        description="Where an orchestrator or a worker serves its metrics for Prometheus. Default: nowhere. A server"
        " has them at /metrics.",
    )
    metrics_host: str = Field(
        default="127.0.0.1",
        min_length=1,
        description="The address of DAGMASTER_METRICS_PORT. It has no keys: choose a network of your own.",
    )
