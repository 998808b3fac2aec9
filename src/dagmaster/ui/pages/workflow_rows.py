"""A workflow as a row of a list, and the numbers of its finished jobs."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Final
from urllib.parse import quote

from dagmaster.ui.pages.addresses import with_query
from dagmaster.ui.pages.job_rows import JobRow, job_row
from dagmaster.ui.pages.times import Moment, format_optional, moment

if TYPE_CHECKING:
    from dagmaster.application.views import JobRecord, WorkflowMetricsRecord, WorkflowRecord

GOOD_RATE: Final = 0.95
BAD_RATE: Final = 0.5


@dataclass(frozen=True, slots=True)
class SuccessRate:
    """How many of those that completed or failed have completed; `percent` is for a bar."""

    percent: float
    text: str
    tone: str


@dataclass(frozen=True, slots=True, kw_only=True)
class WorkflowRow:
    """A workflow of a list. `jobs`, `success`, `p50`, `p95`: of the jobs that finished lately."""

    workflow_id: str
    href: str
    name: str
    tags: tuple[str, ...]
    active_version: int | None
    newest_version: int
    versions: int
    published: Moment | None
    jobs: str
    success: SuccessRate | None
    p50: str
    p95: str
    last: JobRow | None


def workflow_row(
    view: WorkflowRecord, metrics: WorkflowMetricsRecord | None, newest: JobRecord | None
) -> WorkflowRow:
    return WorkflowRow(
        workflow_id=view.workflow_id,
        href=workflow_path(view.workflow_id),
        name=view.name or "",
        tags=view.tags,
        active_version=view.active_version,
        newest_version=view.newest_version,
        versions=view.versions_total,
        published=moment(view.published_at, view.read_at),
        jobs="0" if metrics is None else f"{metrics.total_jobs:,}",
        success=None if metrics is None else success_rate(metrics.success_rate),
        p50=format_optional(None if metrics is None else metrics.p50_duration),
        p95=format_optional(None if metrics is None else metrics.p95_duration),
        last=None if newest is None else job_row(newest),
    )


def workflow_path(workflow_id: str, *parts: str, **query: str | int | None) -> str:
    """Return the path of a workflow's page, or of what is below it."""
    return with_query("/".join(["/ui/workflows", quote(workflow_id, safe=""), *parts]), **query)


def success_rate(rate: float | None) -> SuccessRate | None:
    """Return a rate as a bar and a text; 100 % only if nothing failed."""
    if rate is None:
        return None
    percent = rate * 100
    text = "100 %" if rate == 1 else f"{min(percent, 99.9):.1f} %"
    tone = "ok" if rate >= GOOD_RATE else "failed" if rate < BAD_RATE else "warning"
    return SuccessRate(round(percent, 1), text, tone)
