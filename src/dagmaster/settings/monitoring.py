"""The settings of metrics and traces. Prometheus and traces are off unless they are set."""

from __future__ import annotations

from pydantic import BaseModel, Field, SecretStr


class MonitoringSettings(BaseModel):
    """Metrics of finished jobs and for Prometheus, and traces for OpenTelemetry."""

    metrics_port: int | None = Field(
        default=None,
        ge=1,
        le=65_535,
        description="Where an orchestrator or a worker serves its metrics for Prometheus. Default: nowhere."
        " A server has them at /metrics.",
    )
    metrics_host: str = Field(
        default="127.0.0.1",
        min_length=1,
        description="The address of DAGMASTER_METRICS_PORT. Any other than this machine's own needs"
        " DAGMASTER_METRICS_KEY.",
    )
    metrics_key: SecretStr | None = Field(
        default=None,
        min_length=20,
        description="What a scraper of DAGMASTER_METRICS_PORT has to send as a bearer token; at least 20"
        " characters. An orchestrator or a worker checks it without the database, so it is no key of"
        " `dagmaster keys`.",
    )
    metric_retention_days: float = Field(
        default=100.0,
        ge=0,
        le=36_500,
        description="How long orchestrators keep the sums of finished jobs that `dagmaster metrics` shows;"
        " at most 90 days are asked for. 0: for ever.",
    )
    otlp_endpoint: str | None = Field(
        default=None,
        pattern=r"^https?://\S+$",
        description="The collector that gets traces, such as http://host:4318 (OTLP over HTTP). Needs"
        " dagmaster[otel].",
    )
    application_insights: SecretStr | None = Field(
        default=None,
        description="The connection string of an Application Insights that gets traces. Needs"
        " dagmaster[azure-monitor].",
    )
