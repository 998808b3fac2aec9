"""`/metrics`: what Prometheus scrapes from a server."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING

from starlette.responses import Response

from dagmaster.errors import DagmasterError
from dagmaster.http.routes import Routes
from dagmaster.http.services import Services
from dagmaster.ports.api_keys import Reach, Scope
from dagmaster.telemetry.prometheus import CONTENT_TYPE, render_gauges

if TYPE_CHECKING:
    from collections.abc import Iterator

    from dagmaster.application.fleet_monitor import FleetMonitor
    from dagmaster.application.views import FleetRecord

    Gauge = tuple[str, tuple[str, ...], float]

routes = Routes("health")


@routes.get("/metrics", Scope.READ, "Metrics", media_type="text/plain", reach=Reach.INSTALLATION)
async def metrics(services: Services) -> Response:
    """Return the metrics of the fleet and of this process for Prometheus."""
    gauges = await _fleet_gauges(services.fleet)
    # 500 routes and statuses are 7,000 lines and take 80 ms: streams and other requests do not wait for that
    # (2026-11).
    text = await asyncio.to_thread(services.metrics.render)
    return Response(render_gauges(gauges) + text, headers={"Content-Type": CONTENT_TYPE})


async def _fleet_gauges(fleet: FleetMonitor) -> list[Gauge]:
    try:
        view, seconds, stale_seconds = await fleet.snapshot()
    except DagmasterError:
        # The scrape itself succeeds: an alert on this value names the cause.
        return [("dagmaster_database_up", (), 0)]
    return [
        ("dagmaster_database_up", (), 0 if stale_seconds else 1),
        ("dagmaster_database_seconds", (), seconds),
        ("dagmaster_database_scrape_stale_seconds", (), stale_seconds),
        *_gauges(view),
    ]


def _gauges(view: FleetRecord) -> Iterator[Gauge]:
    workers = [worker for worker in view.workers if worker.is_alive]
    yield "dagmaster_workers_active", (), len(workers)
    yield (
        "dagmaster_orchestrators_active",
        (),
        sum(orchestrator.is_alive for orchestrator in view.orchestrators),
    )
    yield "dagmaster_jobs_unowned", (), view.unowned_jobs
    for worker in workers:
        yield "dagmaster_worker_heartbeat_age", (worker.worker_id, worker.host), worker.silent_seconds
    for queue in view.queues:
        yield "dagmaster_task_queue_depth", (queue.queue,), queue.waiting
        yield "dagmaster_task_queue_oldest_seconds", (queue.queue,), queue.oldest_seconds or 0.0
        yield "dagmaster_task_queue_workers", (queue.queue,), queue.workers
