"""What a change would do, before it is confirmed: the plan of a resume or a retry, the end of a job."""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum
from typing import TYPE_CHECKING, Final

from dagmaster.text_format import format_count
from dagmaster.ui.pages.job_rows import JobRow, job_path
from dagmaster.ui.pages.node_rows import node_path

if TYPE_CHECKING:
    from collections.abc import Sequence

    from dagmaster.application.views import JobRecord, PlannedNodeView, ResumePlanView


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


def cancel_page(job: JobRecord) -> CancelPage:
    path = job_path(job.job_id)
    return CancelPage(
        title=f"Cancel {job.name}", job=JobRow(job), action=job_path(job.job_id, "cancel"), back=path
    )


@dataclass(frozen=True, slots=True, kw_only=True)
class NodesChangePage:
    """The confirmation of a change to nodes. `nodes`: the selected nodes that it concerns.

    `of_node`: the only one that is selected, to whose page the change returns.
    """

    title: str
    verb: str
    effect: str
    job: JobRow
    nodes: tuple[str, ...]
    of_node: str
    left_out: str
    action: str
    back: str
    is_cancel: bool


class NodesChange(StrEnum):
    """What can be done with several nodes at once."""

    CANCEL = "cancel"
    RETRY = "retry"


_EFFECTS: Final = {
    NodesChange.CANCEL: "What has not started fails at once; running tasks are asked to stop, and fail when"
    " they have. The workflow's rules for failures say what follows; a retry or a resume runs these nodes"
    " again.",
    NodesChange.RETRY: "They run again in one new run, with everything that was skipped because of them.",
}
_REASONS_AGAINST: Final = {
    NodesChange.CANCEL: "finished or already being cancelled",
    NodesChange.RETRY: "neither failed nor cancelled",
}


def nodes_change_page(
    job: JobRecord, verb: NodesChange, selected: Sequence[str], nodes: Sequence[str]
) -> NodesChangePage:
    count = len(nodes)
    named = nodes[0] if count == 1 else format_count(count, "node")
    rest = len(selected) - count
    left_out = ""
    if rest:
        stay = "stays as it is" if rest == 1 else "stay as they are"
        left_out = f"{rest:,} of {len(selected):,} selected nodes {stay}: {_REASONS_AGAINST[verb]}."
    of_node = selected[0] if len(selected) == 1 else ""
    return NodesChangePage(
        title=f"{verb.capitalize()} {named}" if count else f"Nothing to {verb}",
        verb=f"{verb.capitalize()} {named}",
        effect=_EFFECTS[verb],
        job=JobRow(job),
        nodes=tuple(nodes),
        of_node=of_node,
        left_out=left_out,
        action=job_path(job.job_id, f"{verb}-nodes"),
        back=nodes_change_origin(job.job_id, of_node),
        is_cancel=verb is NodesChange.CANCEL,
    )


def nodes_change_origin(job_id: str, of_node: str) -> str:
    """Return where the change of nodes began: the page of one node, or the map for several."""
    return node_path(job_id, of_node) if of_node else job_path(job_id, "map")


def plan_page(
    plan: ResumePlanView, job: JobRecord, *, node_id: str = "", nodes: Sequence[str] = ()
) -> PlanPage:
    title, action, back = f"Resume {job.name}", job_path(job.job_id, "resume"), job_path(job.job_id)
    if node_id:
        title, back = f"Retry {node_id}", node_path(job.job_id, node_id)
        action = node_path(job.job_id, node_id, "retry")
    added_again = sum(node.is_added_again for node in plan.redone)
    counts = [
        f"{len(plan.reused):,} reused",
        f"{format_count(len(plan.redone) - added_again, 'node')} run again",
        *([f"{added_again:,} if they are added again"] if added_again else []),
        f"{len(plan.impossible):,} not possible",
    ]
    return PlanPage(
        title=title,
        action=action,
        job=JobRow(job),
        nodes=tuple(nodes),
        reused=_nodes(job, plan.reused),
        redone=_nodes(job, plan.redone),
        impossible=_nodes(job, plan.impossible),
        summary=", ".join(counts),
        warning="" if plan.has_workers else "No worker is alive: whether its handlers exist is not known.",
        back=back,
    )


def _nodes(job: JobRecord, planned: Sequence[PlannedNodeView]) -> tuple[PlannedNode, ...]:
    return tuple(
        PlannedNode(
            node.node, node_path(job.job_id, node.node), node.reason.replace("`", ""), _children(node)
        )
        for node in planned
    )


def _children(node: PlannedNodeView) -> str:
    # A reason that counts them also has the failures' names.
    if node.children is None or " children reused" in node.reason:
        return ""
    reused = format_count(node.children.reused, "child", "children")
    return f"{reused} reused, {node.children.redone:,} run again"
