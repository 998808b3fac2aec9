"""The overview."""

from __future__ import annotations

import asyncio
import time
from typing import Final

from starlette.requests import Request
from starlette.responses import Response

from dagmaster.application.queries.fleet import fleet
from dagmaster.application.queries.jobs import count_jobs, list_jobs, oldest_jobs
from dagmaster.application.queries.metrics import failure_metrics, throughput
from dagmaster.application.queries.workflows import list_workflows
from dagmaster.application.views import JobRecord, JobStatus
from dagmaster.http.services import App
from dagmaster.ports.api_keys import Scope
from dagmaster.ports.job_filter import JobFilter
from dagmaster.ui.page_routes import PageRoutes
from dagmaster.ui.pages.overview import overview_page
from dagmaster.ui.rendering import render

routes = PageRoutes()
DAY_SECONDS: Final = 86_400.0
ROWS: Final = 6
OPEN: Final = frozenset({JobStatus.PENDING, JobStatus.RUNNING, JobStatus.WAITING})


@routes.get("/ui/", Scope.READ)
async def overview(request: Request, app: App) -> Response:
    """Show what runs, what fails, what waits, and who works."""
    since = time.time() - DAY_SECONDS

    async def newest(*statuses: JobStatus, finished_after: float | None = None) -> tuple[JobRecord, ...]:
        job_filter = JobFilter(statuses=frozenset(statuses), finished_after=finished_after)
        return (await list_jobs(app, job_filter, limit=ROWS)).items

    active, recent, running, failing, waiting, anything = await asyncio.gather(
        count_jobs(app, JobFilter(statuses=OPEN)),
        count_jobs(app, JobFilter(finished_after=since)),
        newest(JobStatus.RUNNING, JobStatus.PENDING),
        newest(JobStatus.FAILED, finished_after=since),
        oldest_jobs(app, JobFilter(statuses=frozenset({JobStatus.WAITING})), limit=ROWS),
        newest(),
    )
    failures, finished, members, workflows = await asyncio.gather(
        failure_metrics(app, days=1, limit=5),
        throughput(app, hours=24, bucket_minutes=60),
        fleet(app),
        list_workflows(app, limit=12),
    )
    page = overview_page(
        active=active,
        recent=recent,
        running=running,
        failing=failing,
        waiting=waiting,
        newest=anything,
        failures=failures,
        throughput=finished,
        fleet=members,
        workflows=workflows.items,
    )
    return render(request, "overview.html", page)
