"""The overview: what runs, what fails, what waits, and who works."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

from dagmaster.application.left_services import is_settled
from dagmaster.application.views import JobStatus
from dagmaster.text_format import age, format_count
from dagmaster.ui.pages.charts import BarChart, throughput_chart
from dagmaster.ui.pages.fleet import state_word
from dagmaster.ui.pages.job_rows import JobRow
from dagmaster.ui.pages.workflow_rows import FailureRow, failure_rows

if TYPE_CHECKING:
    from collections.abc import Sequence

    from dagmaster.application.views import (
        CountsView,
        FailureReport,
        FleetRecord,
        JobRecord,
        QueueRecord,
        ThroughputReport,
        WorkflowRecord,
    )

MAX_MEMBERS: Final = 60
"""How many members of the fleet the strip shows."""
FIRST_WORKFLOW: Final = "demo"
"""The workflow that a newcomer is led to, where it is published."""


@dataclass(frozen=True, slots=True)
class StatusTile:
    """How many jobs have a status, and where they are listed."""

    status: str
    count: str
    href: str
    is_empty: bool


@dataclass(frozen=True, slots=True)
class Member:
    """An orchestrator or a worker."""

    name: str
    kind: str
    state: str
    """`alive`, `busy`, `draining`, `drained`, `stopped` or `died`."""
    detail: str


@dataclass(frozen=True, slots=True, kw_only=True)
class OverviewPage:
    """The overview. `headline`: the state of the system in one sentence."""

    headline: str
    tone: str
    tiles: tuple[StatusTile, ...]
    active: tuple[JobRow, ...]
    newest: tuple[JobRow, ...]
    """Of every status, for when nothing runs."""
    failing: tuple[JobRow, ...]
    waiting: tuple[JobRow, ...]
    failures: tuple[FailureRow, ...]
    queues: tuple[tuple[QueueRecord, str], ...]
    """Those with tasks, each with the age of its oldest task."""
    chart: BarChart
    members: tuple[Member, ...]
    members_left_out: int
    members_stopped: int
    """Those that left nothing to look after; they are not shown."""
    counting: str
    """How complete chart and failures are: orchestrators count finished jobs from time to time."""
    is_first_run: bool
    workflows: tuple[str, ...]
    title: str = "Overview"


def overview_page(
    *,
    active: CountsView,
    recent: CountsView,
    running: Sequence[JobRecord],
    failing: Sequence[JobRecord],
    waiting: Sequence[JobRecord],
    newest: Sequence[JobRecord],
    failures: FailureReport,
    throughput: ThroughputReport,
    fleet: FleetRecord,
    workflows: Sequence[WorkflowRecord],
) -> OverviewPage:
    """Return the overview.

    `active`: open jobs of all times; `recent`: those that finished within 24 hours.
    """
    members = [*_orchestrators(fleet), *_workers(fleet)]
    queues = sorted(fleet.queues, key=lambda queue: -(queue.oldest_seconds or 0.0))
    headline, tone = _headline(active, recent, fleet)
    return OverviewPage(
        headline=headline,
        tone=tone,
        tiles=tuple(_tile(status, active, recent) for status in _TILES),
        active=tuple(map(JobRow, running)),
        newest=tuple(map(JobRow, newest)),
        failing=tuple(map(JobRow, failing)),
        waiting=tuple(map(JobRow, waiting)),
        failures=failure_rows(failures.failures, failures.until),
        queues=tuple((queue, _oldest_age(queue)) for queue in queues),
        chart=throughput_chart(throughput),
        members=tuple(members[:MAX_MEMBERS]),
        members_left_out=max(len(members) - MAX_MEMBERS, 0),
        members_stopped=sum(map(is_settled, fleet.orchestrators)) + sum(map(is_settled, fleet.workers)),
        counting=_counting(throughput.pending_jobs),
        is_first_run=not newest,
        workflows=tuple(
            sorted((one.workflow_id for one in workflows), key=lambda name: name != FIRST_WORKFLOW)
        ),
    )


_OPEN: Final = (JobStatus.RUNNING, JobStatus.WAITING, JobStatus.PENDING)
_TILES: Final = (*_OPEN, JobStatus.COMPLETED, JobStatus.FAILED, JobStatus.CANCELLED)


def _tile(status: JobStatus, active: CountsView, recent: CountsView) -> StatusTile:
    is_open = status in _OPEN
    count = (active if is_open else recent).counts.get(status.value, 0)
    since = "" if is_open else "&finished_since=1d"
    return StatusTile(
        status.value, f"{count:,}", f"/ui/jobs?status={status.value.lower()}{since}", count == 0
    )


def _headline(active: CountsView, recent: CountsView, fleet: FleetRecord) -> tuple[str, str]:
    """Return the most important fact, and its tone."""
    running, failed = active.counts.get("RUNNING", 0), recent.counts.get("FAILED", 0)
    pending = active.counts.get("PENDING", 0)
    is_open = running + pending > 0
    if not any(one.is_alive for one in fleet.orchestrators):
        waits = f"; {format_count(running + pending, 'job waits', 'jobs wait')}" if is_open else ""
        return f"No orchestrator is alive{waits}", "failed"
    if not any(one.is_alive for one in fleet.workers):
        return "No worker is alive: tasks stay in their queues", "failed" if is_open else "warning"
    stuck = [queue for queue in fleet.queues if queue.is_stuck]
    if stuck:
        waits = format_count(stuck[0].waiting, "task waits", "tasks wait")
        return f"No worker serves queue {stuck[0].queue}: {waits}", "failed"
    parts = [f"{format_count(running, 'job runs', 'jobs run')}" if running else "Nothing runs"]
    if failed:
        parts.append(f"{failed:,} failed in the last 24 hours")
    return ", ".join(parts), "warning" if failed else "ok"


def _counting(pending: int) -> str:
    if not pending:
        return "No job finished in the last 24 hours."
    return f"{format_count(pending, 'finished job is', 'finished jobs are')} counted within a minute."


def _oldest_age(queue: QueueRecord) -> str:
    return "" if queue.oldest_seconds is None else age(queue.oldest_seconds)


def _orchestrators(fleet: FleetRecord) -> list[Member]:
    return [
        Member(
            one.place,
            "orchestrator",
            state_word(one),
            f"{format_count(one.jobs, 'job')}, version {one.version}",
        )
        for one in fleet.orchestrators
        if not is_settled(one)
    ]


def _workers(fleet: FleetRecord) -> list[Member]:
    members = []
    for one in fleet.workers:
        if is_settled(one):
            continue
        detail = f"{one.running} of {one.concurrency} running, queues {', '.join(one.queues) or 'all'}"
        members.append(Member(one.place, "worker", state_word(one), detail))
    return members
