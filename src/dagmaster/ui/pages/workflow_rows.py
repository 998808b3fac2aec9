"""A workflow as a row of a list, the numbers of its finished jobs, and their failures."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Final
from urllib.parse import quote

from dagmaster.ui.pages.addresses import with_query
from dagmaster.ui.pages.job_rows import JobRow, job_path
from dagmaster.ui.pages.times import Moment, format_optional, moment

if TYPE_CHECKING:
    from collections.abc import Sequence

    from dagmaster.application.views import FailureRecord, JobRecord, WorkflowMetricsRecord, WorkflowRecord

GOOD_RATE: Final = 0.95
BAD_RATE: Final = 0.5


@dataclass(frozen=True, slots=True)
class SuccessRate:
    """How many of those that completed or failed have completed; `percent` is for a bar."""

    percent: float
    text: str
    tone: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Numbers:
    """The finished jobs of a workflow in a few numbers."""

    jobs: str
    success: SuccessRate | None
    p50: str
    p95: str


def workflow_numbers(metrics: WorkflowMetricsRecord | None) -> Numbers:
    """Return the numbers of a workflow; None: no job of it has finished."""
    if metrics is None:
        return Numbers(jobs="0", success=None, p50=format_optional(None), p95=format_optional(None))
    return Numbers(
        jobs=f"{metrics.total_jobs:,}",
        success=success_rate(metrics.success_rate),
        p50=format_optional(metrics.p50_duration),
        p95=format_optional(metrics.p95_duration),
    )


@dataclass(frozen=True, slots=True, kw_only=True)
class WorkflowRow:
    """A workflow of a list. `numbers`: of the jobs that finished lately; `last`: the newest job."""

    record: WorkflowRecord
    href: str
    numbers: Numbers
    last: JobRow | None


def workflow_row(
    view: WorkflowRecord, metrics: WorkflowMetricsRecord | None, newest: JobRecord | None
) -> WorkflowRow:
    return WorkflowRow(
        record=view,
        href=workflow_path(view.workflow_id),
        numbers=workflow_numbers(metrics),
        last=None if newest is None else JobRow(newest),
    )


@dataclass(frozen=True, slots=True)
class FailureRow:
    """Failed jobs with the same message, and the last of them."""

    record: FailureRecord
    href: str
    last: Moment | None


def failure_rows(failures: Sequence[FailureRecord], now: float) -> tuple[FailureRow, ...]:
    return tuple(FailureRow(one, job_path(one.job_id), moment(one.last_at, now)) for one in failures)


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
