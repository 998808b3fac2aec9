"""Metrics of finished jobs: by workflow, by node, by failure, over time."""

from __future__ import annotations

from typing import Annotated

from fastapi import Query
from starlette.responses import JSONResponse

from dagmaster.application.queries import metrics as queries
from dagmaster.application.queries.metrics import MAX_DAYS, MAX_FAILURES, MAX_HOURS
from dagmaster.http.routes import Routes
from dagmaster.http.services import App
from dagmaster.ports.api_keys import Scope

routes = Routes("metrics")
Days = Annotated[int, Query(ge=1, le=MAX_DAYS, description="How many days back.")]
Failures = Annotated[int, Query(ge=1, le=MAX_FAILURES, description="The number of groups.")]
Hours = Annotated[int, Query(ge=1, le=MAX_HOURS, description="How many hours back.")]
WorkflowFilter = Annotated[str | None, Query(max_length=64, description="Only of this one.")]
Minutes = Annotated[int, Query(ge=1, le=24 * 60, description="The length of a bucket.")]


@routes.get("/metrics/workflows", Scope.READ, "WorkflowMetricsReport")
async def workflows(app: App, workflow_id: WorkflowFilter = None, days: Days = 7) -> JSONResponse:
    """Show how many jobs of each workflow completed and failed, how long they took, and why they failed."""
    return JSONResponse((await queries.workflow_metrics(app, workflow_id=workflow_id, days=days)).to_dict())


@routes.get("/metrics/workflows/{workflow_id}/nodes", Scope.READ, "NodeMetricsReport")
async def nodes(app: App, workflow_id: str, days: Days = 7) -> JSONResponse:
    """Show how often each node of a workflow completed and failed, and how long it took."""
    return JSONResponse((await queries.node_metrics(app, workflow_id, days=days)).to_dict())


@routes.get("/metrics/workflows/{workflow_id}/history", Scope.READ, "WorkflowHistoryReport")
async def history(app: App, workflow_id: str, days: Days = 7) -> JSONResponse:
    """Show how many jobs of a workflow finished over time, and how long they took."""
    return JSONResponse((await queries.workflow_history(app, workflow_id, days=days)).to_dict())


@routes.get("/metrics/durations", Scope.READ, "DurationReport")
async def durations(app: App, workflow_id: WorkflowFilter = None, days: Days = 7) -> JSONResponse:
    """Show how long nodes took, as a histogram: of all workflows, or of one."""
    return JSONResponse((await queries.node_durations(app, workflow_id=workflow_id, days=days)).to_dict())


@routes.get("/metrics/failures", Scope.READ, "FailureReport")
async def failures(
    app: App, workflow_id: WorkflowFilter = None, days: Days = 7, limit: Failures = 20
) -> JSONResponse:
    """Show the most frequent failures, grouped by their message."""
    report = await queries.failure_metrics(app, workflow_id=workflow_id, days=days, limit=limit)
    return JSONResponse(report.to_dict())


@routes.get("/metrics/throughput", Scope.READ, "ThroughputReport")
async def throughput(app: App, hours: Hours = 24, bucket_minutes: Minutes = 60) -> JSONResponse:
    """Show how many jobs were submitted and finished over time."""
    return JSONResponse((await queries.throughput(app, hours=hours, bucket_minutes=bucket_minutes)).to_dict())
