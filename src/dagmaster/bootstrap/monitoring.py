"""Wires the metrics and traces of services. A service without them imports nothing of it."""

from __future__ import annotations

import ipaddress
from typing import TYPE_CHECKING

from dagmaster.errors import SettingsInvalid

if TYPE_CHECKING:
    from dagmaster.bootstrap.client_settings import ClientSettings
    from dagmaster.orchestrator.service import Orchestrator
    from dagmaster.settings import Settings
    from dagmaster.telemetry.prometheus import ProcessMetrics
    from dagmaster.worker.service import Worker


def open_metrics_port(settings: Settings, port: int | None = None) -> ProcessMetrics | None:
    """Serve the metrics of this process on a port (default: the settings' port); None without one."""
    port = settings.metrics_port if port is None else port
    if port is None:
        return None
    key = None if settings.metrics_key is None else settings.metrics_key.get_secret_value()
    if key is None and not _is_loopback(settings.metrics_host):
        raise SettingsInvalid(
            f"DAGMASTER_METRICS_HOST={settings.metrics_host} is an address that others can reach: set"
            " DAGMASTER_METRICS_KEY to what scrapers have to send as a bearer token"
        )
    from dagmaster.telemetry.prometheus import ProcessMetrics

    metrics = ProcessMetrics()
    try:
        metrics.listen(settings.metrics_host, port, key)
    except OSError as error:
        address = f"{settings.metrics_host}:{port}"
        raise SettingsInvalid(
            f"metrics cannot be served at {address}: {error.strerror or error}; choose another --metrics-port"
        ) from error
    return metrics


def _is_loopback(host: str) -> bool:
    try:
        return ipaddress.ip_address(host).is_loopback
    except ValueError:
        return host == "localhost"


def observe_turns(orchestrator: Orchestrator, metrics: ProcessMetrics | None) -> Orchestrator:
    if metrics is not None:
        from dagmaster.orchestrator.turn_metrics import TurnMetrics

        orchestrator.observer = TurnMetrics(metrics, orchestrator.store)
    return orchestrator


def observe_tasks(worker: Worker, metrics: ProcessMetrics | None) -> Worker:
    if metrics is not None:
        from dagmaster.worker.task_metrics import TaskMetrics

        worker.held.observer = TaskMetrics(metrics)
    return worker


def start_traces(settings: ClientSettings | Settings, service: str) -> None:
    """Export traces if the settings say where; raise `SettingsInvalid` if the packages are missing."""
    insights = settings.application_insights
    if settings.otlp_endpoint is None and insights is None:
        return
    from dagmaster.telemetry.traces import TraceConfig, start_tracing

    config = TraceConfig(
        service, settings.otlp_endpoint, None if insights is None else insights.get_secret_value()
    )
    try:
        start_tracing(config)
    except ImportError as error:
        setting, extra = ("DAGMASTER_OTLP_ENDPOINT", "otel")
        if str(error.name).startswith("azure"):
            setting, extra = ("DAGMASTER_APPLICATION_INSIGHTS", "azure-monitor")
        raise SettingsInvalid(
            f"{setting} needs the package {error.name}: install dagmaster[{extra}]"
        ) from error
    except ValueError as error:
        # The exporter's words may show the connection string.
        raise SettingsInvalid(
            "DAGMASTER_APPLICATION_INSIGHTS is not a connection string of Azure Monitor"
        ) from error
