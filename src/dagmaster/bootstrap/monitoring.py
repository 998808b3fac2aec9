"""Wires the metrics of services. A service without them imports nothing of it."""

from __future__ import annotations

from typing import TYPE_CHECKING

from dagmaster.errors import SettingsInvalid

if TYPE_CHECKING:
    from dagmaster.orchestrator.service import Orchestrator
    from dagmaster.settings import Settings
    from dagmaster.telemetry.prometheus import ProcessMetrics
    from dagmaster.worker.service import Worker


def open_metrics_port(settings: Settings, port: int | None = None) -> ProcessMetrics | None:
    """Serve the metrics of this process on a port (default: that of the settings); None if there is none."""
    port = settings.metrics_port if port is None else port
    if port is None:
        return None
    from dagmaster.telemetry.prometheus import ProcessMetrics

    metrics = ProcessMetrics()
    try:
        metrics.listen(settings.metrics_host, port)
    except OSError as error:
        address = f"{settings.metrics_host}:{port}"
        raise SettingsInvalid(
            f"metrics cannot be served at {address}: {error.strerror or error}; choose another --metrics-port"
        ) from error
    return metrics


def observe_turns(orchestrator: Orchestrator, metrics: ProcessMetrics | None) -> Orchestrator:
    """Count what an orchestrator does, if its metrics are served."""
    if metrics is not None:
        from dagmaster.orchestrator.turn_metrics import TurnMetrics

        orchestrator.observer = TurnMetrics(metrics, orchestrator.store)
    return orchestrator


def observe_tasks(worker: Worker, metrics: ProcessMetrics | None) -> Worker:
    """Count the tasks of a worker, if its metrics are served."""
    if metrics is not None:
        from dagmaster.worker.task_metrics import TaskMetrics

        worker.held.observer = TaskMetrics(metrics)
    return worker
