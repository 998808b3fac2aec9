"""Nodes across jobs: filters in the address, how long executions took, a page of rows."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

from dagmaster.application.views import NodeStatus
from dagmaster.ui.pages.addresses import with_query
from dagmaster.ui.pages.charts import BarChart, histogram_chart
from dagmaster.ui.pages.list_pages import ListPage, ListQuery, StatusChoice, status_choices
from dagmaster.ui.pages.node_rows import NodeRow

if TYPE_CHECKING:
    from collections.abc import Sequence

    from dagmaster.application.views import DurationReport, NodeRecord, Page

PATH: Final = "/ui/nodes"


@dataclass(frozen=True, slots=True, kw_only=True)
class NodesQuery(ListQuery):
    """The filters of nodes."""

    address = PATH
    statuses: tuple[str, ...] = ()
    workflow_id: str = ""
    top_level: bool = False

    def path(self, **changes: str) -> str:
        pairs = [("status", status) for status in self.statuses]
        pairs += [("workflow_id", self.workflow_id), ("top_level", "true" if self.top_level else "")]
        return with_query(PATH, *pairs, **changes)


@dataclass(frozen=True, slots=True, kw_only=True)
class NodesPage(ListPage[NodesQuery, NodeRow]):
    """The list of nodes. `histogram`: of finished jobs of the last `days`."""

    noun = "node"
    choices: tuple[StatusChoice, ...]
    workflows: tuple[str, ...]
    histogram: BarChart
    days: int


def nodes_page(
    query: NodesQuery,
    page: Page[NodeRecord],
    *,
    workflows: Sequence[str],
    durations: DurationReport,
    days: int,
    now: float,
    cursor: str | None,
    problem: str = "",
) -> NodesPage:
    return NodesPage(
        query=query,
        problem=problem,
        rows=tuple(NodeRow(node, now) for node in page.items),
        cursor=cursor,
        next_cursor=page.next_cursor,
        choices=status_choices(NodeStatus, query.statuses),
        workflows=tuple(workflows),
        histogram=histogram_chart(durations),
        days=days,
    )
