"""What a change would do, before it is confirmed: the plan of a resume or a retry, the end of a job."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from dagmaster.text_format import format_count
from dagmaster.ui.pages.job_rows import JobRow, job_path, job_row
from dagmaster.ui.pages.node_rows import node_path

if TYPE_CHECKING:
    from collections.abc import Sequence

    from dagmaster.application.views import JobView, PlannedNodeView, ResumePlanView


@dataclass(frozen=True, slots=True)
class PlannedNode:
    """A node of a plan, and why."""

    node_id: str
    href: str
    reason: str
    children: str


@dataclass(frozen=True, slots=True, kw_only=True)
class PlanPage:
    """The three lists of a dry run. `nodes`: those that are named to run again."""

    title: str
    action: str
    job: JobRow
    nodes: tuple[str, ...]
    reused: tuple[PlannedNode, ...]
    redone: tuple[PlannedNode, ...]
    impossible: tuple[PlannedNode, ...]
    summary: str
    warning: str
    back: str


@dataclass(frozen=True, slots=True, kw_only=True)
class CancelPage:
    """The confirmation of a cancellation."""

    title: str
    job: JobRow
    action: str
    back: str


def cancel_page(job: JobView) -> CancelPage:
    """Return the confirmation of a cancellation."""
    path = job_path(job.job_id)
    return CancelPage(title=f"Cancel {job.name}", job=job_row(job), action=job_path(job.job_id, "cancel"), back=path)


def plan_page(plan: ResumePlanView, job: JobView, *, node_id: str = "", nodes: Sequence[str] = ()) -> PlanPage:
    """Return what a resume, or the retry of one node, would do."""
    verb, name = ("Retry", node_id) if node_id else ("Resume", job.name)
    action = node_path(job.job_id, node_id, "retry") if node_id else job_path(job.job_id, "resume")
    counts = [
        f"{len(plan.reused):,} reused",
        f"{format_count(len(plan.redone), 'node')} run again",
        f"{len(plan.impossible):,} not possible",
    ]
    return PlanPage(
        title=f"{verb} {name}",
        action=action,
        job=job_row(job),
        nodes=tuple(nodes),
        reused=_nodes(job, plan.reused),
        redone=_nodes(job, plan.redone),
        impossible=_nodes(job, plan.impossible),
        summary=", ".join(counts),
        warning="" if plan.has_workers else "No worker is alive: whether its handlers exist is not known.",
        back=node_path(job.job_id, node_id) if node_id else job_path(job.job_id),
    )


def _nodes(job: JobView, planned: Sequence[PlannedNodeView]) -> tuple[PlannedNode, ...]:
    return tuple(
        PlannedNode(node.node, node_path(job.job_id, node.node), node.reason.replace("`", ""), _children(node))
        for node in planned
    )


def _children(node: PlannedNodeView) -> str:
    # A reason that counts them has the failures' names, too.
    if node.children is None or " children reused" in node.reason:
        return ""
    return f"{format_count(node.children.reused, 'child', 'children')} reused, {node.children.redone:,} run again"
