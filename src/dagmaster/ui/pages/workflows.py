"""The list of published workflows: active versions, finished jobs, the last job."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from dagmaster.ui.pages.list_pages import ListPage, ListQuery
from dagmaster.ui.pages.workflow_rows import WorkflowRow, workflow_row

if TYPE_CHECKING:
    from collections.abc import Mapping

    from dagmaster.application.views import JobRecord, Page, WorkflowMetricsReport, WorkflowRecord

PATH = "/ui/workflows"


@dataclass(frozen=True, slots=True, kw_only=True)
class WorkflowsQuery(ListQuery):
    """The filters of workflows."""

    address = PATH
    tag: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class WorkflowsPage(ListPage[WorkflowsQuery, WorkflowRow]):
    """The list of workflows. `days`: over how many days finished jobs are counted."""

    noun = "workflow"
    days: int


def workflows_page(
    query: WorkflowsQuery,
    page: Page[WorkflowRecord],
    *,
    metrics: WorkflowMetricsReport,
    newest: Mapping[str, JobRecord],
    days: int,
    cursor: str | None,
) -> WorkflowsPage:
    of_workflow = {one.workflow_id: one for one in metrics.workflows}
    return WorkflowsPage(
        query=query,
        rows=tuple(
            workflow_row(view, of_workflow.get(view.workflow_id), newest.get(view.workflow_id))
            for view in page.items
        ),
        cursor=cursor,
        next_cursor=page.next_cursor,
        days=days,
    )
