"""The list of published workflows: active versions, finished jobs, the last job."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from dagmaster.text_format import format_count
from dagmaster.ui.pages.addresses import with_query
from dagmaster.ui.pages.workflow_rows import WorkflowRow, workflow_row

if TYPE_CHECKING:
    from collections.abc import Mapping

    from dagmaster.application.views import JobRecord, Page, WorkflowMetricsReport, WorkflowRecord

PATH = "/ui/workflows"


@dataclass(frozen=True, slots=True, kw_only=True)
class WorkflowsPage:
    """A page of the list. `days`: over how many days finished jobs are counted."""

    tag: str
    rows: tuple[WorkflowRow, ...]
    days: int
    summary: str
    first: str
    next: str
    title: str = "Workflows"


def workflows_page(
    page: Page[WorkflowRecord],
    *,
    metrics: WorkflowMetricsReport,
    newest: Mapping[str, JobRecord],
    tag: str,
    days: int,
    cursor: str | None,
) -> WorkflowsPage:
    of_workflow = {one.workflow_id: one for one in metrics.workflows}
    return WorkflowsPage(
        tag=tag,
        rows=tuple(
            workflow_row(view, of_workflow.get(view.workflow_id), newest.get(view.workflow_id))
            for view in page.items
        ),
        days=days,
        summary=f"{format_count(len(page.items), 'workflow')} on this page",
        first="" if cursor is None else with_query(PATH, tag=tag),
        next="" if page.next_cursor is None else with_query(PATH, tag=tag, cursor=page.next_cursor),
    )
