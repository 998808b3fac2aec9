"""The metrics of processes, as Prometheus scrapes them: one table of names, and the registry of a process.

Labels are names of workflows, queues and handlers, ids of workers, and statuses: never a value of a job,
which may be a secret, nor the id of a job, of which there are too many.
"""

from __future__ import annotations

import hmac
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final

from prometheus_client import (
    CollectorRegistry,
    Counter,
    Gauge,
    Histogram,
    generate_latest,
    make_wsgi_app,
    start_http_server,
)
from prometheus_client.process_collector import ProcessCollector

if TYPE_CHECKING:
    from collections.abc import Iterable
    from wsgiref.types import StartResponse, WSGIApplication, WSGIEnvironment

CONTENT_TYPE: Final = "text/plain; version=0.0.4; charset=utf-8"

_MINUTE, _HOUR = 60.0, 3600.0
JOB_BUCKETS: Final = (
    0.1,
    0.5,
    1.0,
    5.0,
    15.0,
    _MINUTE,
    5 * _MINUTE,
    15 * _MINUTE,
    _HOUR,
    4 * _HOUR,
    24 * _HOUR,
)
TASK_BUCKETS: Final = (
    0.005,
    0.02,
    0.1,
    0.5,
    1.0,
    5.0,
    15.0,
    _MINUTE,
    5 * _MINUTE,
    15 * _MINUTE,
    _HOUR,
    4 * _HOUR,
)
REQUEST_BUCKETS: Final = (0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 10.0)


@dataclass(frozen=True, slots=True)
class Metric:
    """A metric. `service`: the process that has it. `buckets`: of a histogram, whose values are seconds."""

    name: str
    service: str
    description: str
    labels: tuple[str, ...] = ()
    buckets: tuple[float, ...] = ()

    @property
    def kind(self) -> str:
        if self.buckets:
            return "histogram"
        return "counter" if self.name.endswith("_total") else "gauge"


METRICS: Final = {
    metric.name: metric
    for metric in (
        Metric("dagmaster_jobs_created_total", "orchestrator", "Jobs that it started.", ("workflow",)),
        Metric("dagmaster_jobs_completed_total", "orchestrator", "Jobs that completed.", ("workflow",)),
        Metric("dagmaster_jobs_failed_total", "orchestrator", "Jobs that failed.", ("workflow",)),
        Metric("dagmaster_jobs_cancelled_total", "orchestrator", "Jobs that were cancelled.", ("workflow",)),
        Metric(
            "dagmaster_job_duration_seconds",
            "orchestrator",
            "From the submit of a job to its end; not of jobs that were resumed.",
            ("workflow",),
            JOB_BUCKETS,
        ),
        Metric("dagmaster_tasks_created_total", "orchestrator", "Tasks that it dispatched.", ("queue",)),
        Metric("dagmaster_attempts_lost_total", "orchestrator", "Attempts whose worker died.", ("workflow",)),
        Metric(
            "dagmaster_callback_attempts_total",
            "relay",
            "Attempts to deliver a callback, by what became of it.",
            ("outcome",),
        ),
        Metric(
            "dagmaster_callback_attempt_seconds", "relay", "How long an attempt took.", (), REQUEST_BUCKETS
        ),
        Metric(
            "dagmaster_callback_endpoints_paused_total",
            "relay",
            "Endpoints of callbacks that were paused: they failed for days, or are gone.",
            ("reason",),
        ),
        Metric("dagmaster_tasks_completed_total", "worker", "Tasks that completed.", ("handler",)),
        Metric("dagmaster_tasks_failed_total", "worker", "Tasks that failed.", ("handler",)),
        Metric(
            "dagmaster_task_duration_seconds",
            "worker",
            "From the dispatch of a task to the accepted report.",
            ("handler",),
            TASK_BUCKETS,
        ),
        Metric(
            "dagmaster_worker_task_execution_time",
            "worker",
            "Seconds that a handler ran.",
            ("handler",),
            TASK_BUCKETS,
        ),
        Metric("dagmaster_task_queue_depth", "server", "Tasks that wait for a worker.", ("queue",)),
        Metric("dagmaster_task_queue_oldest_seconds", "server", "The age of the oldest of them.", ("queue",)),
        Metric("dagmaster_task_queue_workers", "server", "Live workers that claim from it.", ("queue",)),
        Metric("dagmaster_workers_active", "server", "Live workers."),
        Metric(
            "dagmaster_worker_heartbeat_age",
            "server",
            "Seconds since its last heartbeat.",
            ("worker", "host"),
        ),
        Metric("dagmaster_orchestrators_active", "server", "Live orchestrators."),
        Metric("dagmaster_jobs_unowned", "server", "Open jobs without an orchestrator."),
        Metric("dagmaster_database_up", "server", "1 if the database answers, else 0."),
        Metric(
            "dagmaster_database_seconds", "server", "How long it took to read these values from the database."
        ),
        Metric(
            "dagmaster_database_scrape_stale_seconds",
            "server",
            "0, or how old these values are, if the database does not answer.",
        ),
        Metric(
            "dagmaster_http_credentials_rejected_total",
            "server, gateway",
            "Keys, tokens and sessions that were not valid, or were not looked up since too many were not.",
            ("reason",),
        ),
        Metric(
            "dagmaster_http_request_duration_seconds",
            "server, gateway",
            "From a request to the end of its answer.",
            ("method", "route", "status"),
            REQUEST_BUCKETS,
        ),
        Metric(
            "dagmaster_gateway_forward_failures_total",
            "gateway",
            "Requests whose forwarding failed: the server gave no answer, no JSON, or a status from 500 on.",
            ("reason",),
        ),
    )
}


class ProcessMetrics:
    """The metrics of one process, by name. Each exists from its first use on."""

    def __init__(self) -> None:
        self.registry = CollectorRegistry()
        ProcessCollector(registry=self.registry)
        self._collectors: dict[str, Any] = {}

    def count(self, name: str, *labels: str, amount: float = 1) -> None:
        self._child(name, labels).inc(amount)

    def observe(self, name: str, *labels: str, seconds: float) -> None:
        self._child(name, labels).observe(seconds)

    def render(self) -> bytes:
        return generate_latest(self.registry)

    def listen(self, host: str, port: int, key: str | None = None) -> None:
        """Serve the metrics in a dedicated thread until `close`, or until the process ends.

        `key`: what a scraper has to send as a bearer token.
        """
        app = make_wsgi_app(self.registry)
        # It listens at once: until the check is in place, there is nothing to see.
        self._server, self._thread = start_http_server(port, host, CollectorRegistry())
        self._server.set_app(app if key is None else _with_key(app, key))

    @property
    def port(self) -> int:
        return int(self._server.server_port)

    def close(self) -> None:
        self._server.shutdown()
        self._server.server_close()
        self._thread.join()

    def _child(self, name: str, labels: tuple[str, ...]) -> Any:
        collector = self._collectors.get(name)
        if collector is None:
            collector = self._collectors[name] = _new_collector(METRICS[name], self.registry)
        return collector.labels(*labels) if labels else collector


def _with_key(app: WSGIApplication, key: str) -> WSGIApplication:
    """Return an application that answers only requests with the key."""
    expected = f"Bearer {key}".encode()

    def check_key(environ: WSGIEnvironment, start_response: StartResponse) -> Iterable[bytes]:
        # WSGI has the bytes of a header as Latin-1.
        if hmac.compare_digest(environ.get("HTTP_AUTHORIZATION", "").encode("latin-1"), expected):
            return app(environ, start_response)
        start_response(
            "401 Unauthorized", [("WWW-Authenticate", 'Bearer realm="dagmaster"'), ("Content-Length", "0")]
        )
        return []

    return check_key


def render_gauges(values: Iterable[tuple[str, tuple[str, ...], float]]) -> bytes:
    """Return gauges as text: those that are read when they are scraped."""
    registry = CollectorRegistry()
    gauges: dict[str, Gauge] = {}
    for name, labels, value in values:
        gauge = gauges.get(name)
        if gauge is None:
            gauge = gauges[name] = _new_collector(METRICS[name], registry)
        (gauge.labels(*labels) if labels else gauge).set(value)
    return generate_latest(registry)


def _new_collector(metric: Metric, registry: CollectorRegistry) -> Any:
    options: dict[str, Any] = {"labelnames": metric.labels, "registry": registry}
    match metric.kind:
        case "histogram":
            return Histogram(metric.name, metric.description, buckets=metric.buckets, **options)
        case "counter":
            return Counter(metric.name, metric.description, **options)
        case _:
            return Gauge(metric.name, metric.description, **options)
