"""Nodes across jobs: filters in the address, how long executions took, a page of rows."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

from dagmaster.application.views import NodeStatus
from dagmaster.text_format import format_count
from dagmaster.ui.pages.addresses import with_query
from dagmaster.ui.pages.charts import BarChart, histogram_chart
from dagmaster.ui.pages.job_rows import job_path
from dagmaster.ui.pages.jobs import StatusChoice
from dagmaster.ui.pages.node_rows import NodeRow, node_row

if TYPE_CHECKING:
    from collections.abc import Sequence

    from dagmaster.application.views import DurationReport, NodeRecord, Page

PATH: Final = "/ui/nodes"


@dataclass(frozen=True, slots=True, kw_only=True)
class NodesQuery:
    """What the address asks for, as text: it is shown again as it was typed."""

    statuses: tuple[str, ...] = ()
    workflow_id: str = ""
    top_level: bool = False

    def path(self, **changes: str) -> str:
        """Return the address of this list, or of another page of it."""
        pairs = [("status", status) for status in self.statuses]
        pairs += [("workflow_id", self.workflow_id), ("top_level", "true" if self.top_level else "")]
        return with_query(PATH, *pairs, **changes)

    @property
    def is_filtered(self) -> bool:
        """Return whether anything is left out."""
        return self.path() != PATH


@dataclass(frozen=True, slots=True, kw_only=True)
class NodeLine:
    """A node of the list, and where it is: its job, its queue and its worker."""

    row: NodeRow
    job_href: str
    queue: str
    worker_id: str
    worker_href: str


@dataclass(frozen=True, slots=True, kw_only=True)
class NodesPage:
    """A page of the list. `problem`: why the filters cannot be used."""

    query: NodesQuery
    problem: str
    lines: tuple[NodeLine, ...]
    choices: tuple[StatusChoice, ...]
    workflows: tuple[str, ...]
    histogram: BarChart
    days: int
    summary: str
    first: str
    next: str
    title: str = "Nodes"


def nodes_page(
    query: NodesQuery,
    page: Page[NodeRecord] | None,
    *,
    workflows: Sequence[str],
    durations: DurationReport,
    days: int,
    now: float,
    cursor: str | None,
    problem: str = "",
) -> NodesPage:
    views = () if page is None else page.items
    following = None if page is None else page.next_cursor
    return NodesPage(
        query=query,
        problem=problem,
        lines=tuple(_line(view, now) for view in views),
        choices=tuple(
            StatusChoice(status.value, status.value.lower(), status.value.lower() in query.statuses)
            for status in NodeStatus
        ),
        workflows=tuple(workflows),
        histogram=histogram_chart(durations),
        days=days,
        summary=f"{format_count(len(views), 'node')} on this page",
        first="" if cursor is None else query.path(),
        next="" if following is None else query.path(cursor=following),
    )


def _line(view: NodeRecord, now: float) -> NodeLine:
    return NodeLine(
        row=node_row(view, now),
        job_href=job_path(view.job_id),
        queue=view.queue or "",
        worker_id=view.worker_id or "",
        worker_href=with_query("/ui/tasks", worker_id=view.worker_id) if view.worker_id else "",
    )
