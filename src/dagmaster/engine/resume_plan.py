"""The plan of a resume: for each node whether its result would be reused, and if not, why.

Pure. A new run of the same job is applied to the job itself, which is then discarded. For a resume as a new
job the orchestrator makes a dry run without workers; its outcome is compared here with the earlier job.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from enum import StrEnum
from typing import TYPE_CHECKING, Final

from dagmaster.engine.advance import advance
from dagmaster.engine.decisions import Ignore, Reopen
from dagmaster.engine.fingerprints import outcome_digest
from dagmaster.engine.graph import (
    ApprovalSpec,
    ConditionalSpec,
    EndSpec,
    GroupSpec,
    StartSpec,
    TaskSpec,
    WorkflowSpec,
)
from dagmaster.engine.groups import all_members, written_name
from dagmaster.engine.model import FanOut, is_dormant, row_of
from dagmaster.engine.node_values import innermost, template_of
from dagmaster.engine.served_handlers import has_handler
from dagmaster.engine.status import NodeStatus, SkipReason
from dagmaster.text_format import format_count

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Mapping, Sequence

    from dagmaster.engine.events import ResumeRequested, RetryRequested
    from dagmaster.engine.graph import Graph, Spec
    from dagmaster.engine.model import Job, Node
    from dagmaster.engine.stored_rows import NodeRow

# Nodes that only connect others: there is nothing in them to reuse or redo.
_STRUCTURE: Final = (StartSpec, EndSpec, GroupSpec)
# Children listed in the reason of a fan-out.
NAMED_CHILDREN: Final = 3


class ReuseKind(StrEnum):
    """What happens to a node. IMPOSSIBLE: its result can neither be reused nor computed again."""

    REUSED = "reused"
    REDONE = "redone"
    IMPOSSIBLE = "impossible"


@dataclass(frozen=True, slots=True)
class ReuseDecision:
    """What happens to one node, and why. `children`: how many of a fan-out's are reused, and how many redone.

    `is_added_again`: it is redone if the node that had added it adds it again.
    """

    node: str
    kind: ReuseKind
    reason: str
    children: tuple[int, int] | None = None
    is_added_again: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class ResumeContext:
    """What changed, apart from the graph.

    `served`: the handlers of live workers; None if no worker is alive.
    """

    named: frozenset[str] = frozenset()
    given_again: frozenset[str] = frozenset()
    """The nodes that depend on secret inputs that are given again."""
    inputs: frozenset[str] = frozenset()
    env: frozenset[str] = frozenset()
    versions: Mapping[str, frozenset[str]] = field(default_factory=dict)
    served: frozenset[str] | None = None


def with_members(graph: Graph, names: Iterable[str]) -> frozenset[str]:
    """Return these nodes, and the members of the groups among them."""
    known = [name for name in names if name in graph.specs]
    return frozenset(names) | {member for name in known for member in all_members(graph.specs, name)}


def with_descendants(graph: Graph, names: Iterable[str]) -> frozenset[str]:
    """Return these nodes, of a group its members, and all their descendants."""
    names_seen: set[str] = set()
    pending = list(with_members(graph, names))
    while pending:
        node_id = pending.pop()
        if node_id not in names_seen:
            names_seen.add(node_id)
            pending += [dependent.node for dependent in graph.wiring.dependents.get(node_id, ())]
    return frozenset(names_seen)


# ── A new run of the same job ───────────────────────────────────────────────────────────────────────────────


def plan_rerun(
    job: Job, event: ResumeRequested | RetryRequested, now: float, context: ResumeContext
) -> list[ReuseDecision] | str:
    """Return what a new run would do, or the reason why it would do nothing. This uses up the job."""
    before = {node.id: row_of(node) for node in job.nodes.values()}
    decisions = advance(job, event, now)
    reopened = next(
        (frozenset(decision.nodes) for decision in decisions if isinstance(decision, Reopen)), None
    )
    if reopened is None:
        ignored = next((decision.reason for decision in decisions if isinstance(decision, Ignore)), None)
        return ignored or [
            ReuseDecision(name, ReuseKind.REDONE, "waits for a retry: retried at once")
            for name in context.named
        ]
    return _decide_all(job, before, reopened, context)


def plan_nothing(job: Job, context: ResumeContext) -> list[ReuseDecision]:
    """Return what a resume of a completed job would do: keep every node."""
    return _decide_all(job, {node.id: row_of(node) for node in job.nodes.values()}, frozenset(), context)


def _decide_all(
    job: Job, before: Mapping[str, NodeRow], reopened: frozenset[str], context: ResumeContext
) -> list[ReuseDecision]:
    return [
        _decide_in_run(job, node, before, reopened, context)
        for node in job.nodes.values()
        if node.parent is None
        and not isinstance(node.spec, _STRUCTURE)
        and before[node.id].skip_reason is not SkipReason.SUPERSEDED
    ]


def _decide_in_run(
    job: Job, node: Node, before: Mapping[str, NodeRow], reopened: frozenset[str], context: ResumeContext
) -> ReuseDecision:
    row = before[node.id]
    if is_dormant(node):
        reason = f"added by `{node.spec.added_by}`, which is redone: runs again if it is added again"
        return ReuseDecision(node.id, ReuseKind.REDONE, reason, is_added_again=True)
    # A fan-out that runs stays open: only its children are reopened.
    leaves = list(_last_children(node)) if isinstance(node, FanOut) and node.total is not None else []
    if node.id not in reopened and all(child.id not in reopened for child in leaves):
        return ReuseDecision(node.id, ReuseKind.REUSED, _why_kept(node, row, context))
    missing = _missing_handler(node, context)
    if missing is not None:
        return ReuseDecision(node.id, ReuseKind.IMPOSSIBLE, missing)
    reason = _why_reopened(job, node, row, reopened, context)
    if not isinstance(node, FanOut) or row.total is None:
        return ReuseDecision(node.id, ReuseKind.REDONE, reason)
    if node.total is not None:
        return _decide_children(node, leaves, before, reopened)
    created = sum(candidate.parent == node.id for candidate in before.values())
    reason += f": all children are redone ({row.total:,} before)"
    return ReuseDecision(node.id, ReuseKind.REDONE, reason, (0, created))


def _decide_children(
    fan: FanOut, leaves: Sequence[Node], before: Mapping[str, NodeRow], reopened: frozenset[str]
) -> ReuseDecision:
    """Return what a new run does with the children of a fan-out that keeps its list."""
    redone = [child for child in leaves if child.id in reopened]
    kept = sum(
        before[child.id].status is NodeStatus.COMPLETED for child in leaves if child.id not in reopened
    )
    why = [(child.id, _format_status(before[child.id])) for child in redone]
    text = _format_children(kept, why, left=len(leaves) - len(redone) - kept)
    return ReuseDecision(fan.id, ReuseKind.REDONE, text, (kept, len(redone)))


def _why_kept(node: Node, row: NodeRow, context: ResumeContext) -> str:
    if row.status is NodeStatus.COMPLETED:
        change = _version_change(node, row.handler_version, context)
        return "completed" if change is None else f"completed; {change}: name {node.id} to redo it"
    if row.skip_reason is SkipReason.NOT_TAKEN:
        return "was not taken"
    return "failed, which is allowed" if node.allows_failure else f"is kept as {row.status}"


def _why_reopened(
    job: Job, node: Node, row: NodeRow, reopened: frozenset[str], context: ResumeContext
) -> str:
    if node.id in with_members(job.graph, context.named):
        return "named to be redone"
    if row.status is NodeStatus.FAILED and not node.allows_failure:
        return _format_status(row)
    upstream = next((leaf.node for leaf, _ in job.leaves(node.id) if leaf.node in reopened), None)
    return (
        _format_status(row) if upstream is None else f"depends on `{written_name(upstream)}`, which is redone"
    )


# ── A new job ───────────────────────────────────────────────────────────────────────────────────────────────


def plan_new_job(job: Job, before: Job, context: ResumeContext) -> list[ReuseDecision]:
    """Return what a job after a dry run reuses of the earlier one."""
    comparison = _Comparison(job, before, context)
    decisions = {
        node_id: comparison.decide(job.nodes[node_id])
        for node_id, spec in job.graph.specs.items()
        if not isinstance(spec, _STRUCTURE)
    }
    removed = [
        ReuseDecision(node_id, ReuseKind.IMPOSSIBLE, f"version {job.graph.version} has no node `{node_id}`")
        for node_id, spec in before.graph.specs.items()
        if node_id not in job.graph.specs and not isinstance(spec, _STRUCTURE)
    ]
    return [*decisions.values(), *removed]


class _Comparison:
    """A job after a dry run, and the job that it is resumed from."""

    def __init__(self, job: Job, before: Job, context: ResumeContext) -> None:
        self.job = job
        self.before = before
        self.context = context
        self.named = with_members(job.graph, context.named)
        self.redo = with_descendants(job.graph, context.named | context.given_again)
        self.known = {
            (node.top.id, node.fingerprint): node
            for node in before.nodes.values()
            if node.fingerprint is not None
        }

    def decide(self, node: Node) -> ReuseDecision:
        if node.status is NodeStatus.FAILED:
            return ReuseDecision(node.id, ReuseKind.IMPOSSIBLE, (node.error or {}).get("message", "fails"))
        if node.status is NodeStatus.SKIPPED:
            return self._skipped(node)
        if node.status is NodeStatus.PENDING:
            return self._pending(node)
        if isinstance(node, FanOut):
            return self._fan_out(node)
        if node.status is NodeStatus.COMPLETED:
            return self._completed(node)
        missing = _missing_handler(node, self.context)
        if missing is not None:
            return ReuseDecision(node.id, ReuseKind.IMPOSSIBLE, missing)
        return ReuseDecision(node.id, ReuseKind.REDONE, self.why(node))

    def _completed(self, node: Node) -> ReuseDecision:
        if isinstance(node.spec, ConditionalSpec):
            old = self.before.nodes.get(node.id)
            if old is None or old.branch != node.branch:
                was = "" if old is None or old.branch is None else f", took `{old.branch}`"
                return ReuseDecision(node.id, ReuseKind.REDONE, f"takes branch `{node.branch}`{was}")
            return ReuseDecision(node.id, ReuseKind.REUSED, f"takes branch `{node.branch}` again")
        if isinstance(node.spec, TaskSpec | WorkflowSpec | ApprovalSpec):
            return ReuseDecision(node.id, ReuseKind.REUSED, "nothing it depends on has changed")
        return ReuseDecision(node.id, ReuseKind.REUSED, "follows from reused results")

    def _skipped(self, node: Node) -> ReuseDecision:
        if node.skip_reason is not SkipReason.NOT_TAKEN:
            leaf = next(
                (leaf.node for leaf, _ in self.job.leaves(node.id) if _is_broken(self.job.nodes[leaf.node])),
                "",
            )
            return ReuseDecision(
                node.id, ReuseKind.IMPOSSIBLE, f"depends on `{written_name(leaf)}`, which is impossible"
            )
        old = self.before.nodes.get(node.id)
        if old is not None and old.status is NodeStatus.COMPLETED:
            return ReuseDecision(node.id, ReuseKind.IMPOSSIBLE, "is no longer taken")
        return ReuseDecision(node.id, ReuseKind.REUSED, "is not taken")

    def _pending(self, node: Node) -> ReuseDecision:
        leaves = [leaf for leaf, _ in self.job.leaves(node.id) if not self.job.nodes[leaf.node].is_terminal]
        first, old = leaves[0], self.before.nodes.get(node.id)
        earlier = self.before.nodes.get(first.node)
        if (
            old is not None
            and old.status is NodeStatus.COMPLETED
            and node.id not in self.redo
            and all(_failed_before(self.before.nodes.get(leaf.node)) for leaf in leaves)
        ):
            # A descendant of an allowed failure ran with that failure.
            return ReuseDecision(
                node.id, ReuseKind.REDONE, f"redone unless `{written_name(first.node)}` fails again"
            )
        waits = self.job.nodes[first.node].status is NodeStatus.WAITING and not isinstance(
            self.job.nodes[first.node].spec, ApprovalSpec
        )
        how = "which waits again" if waits else "which is redone"
        taken = (
            ""
            if first.branch is None or (earlier is not None and earlier.branch == first.branch)
            else ", if it is taken"
        )
        return ReuseDecision(
            node.id, ReuseKind.REDONE, f"depends on `{written_name(first.node)}`, {how}{taken}"
        )

    def _fan_out(self, fan: FanOut) -> ReuseDecision:
        children = list(_last_children(fan))
        redone = [child for child in children if child.status is not NodeStatus.COMPLETED]
        kept = len(children) - len(redone)
        if not redone and fan.status is NodeStatus.COMPLETED:
            reason = f"all {format_count(kept, 'child', 'children')}" if kept else "has no children"
            return ReuseDecision(fan.id, ReuseKind.REUSED, reason, (kept, 0))
        missing = next(
            (text for child in redone if (text := _missing_handler(child, self.context)) is not None), None
        )
        if missing is not None:
            return ReuseDecision(fan.id, ReuseKind.IMPOSSIBLE, missing, (kept, len(redone)))
        why = [(child.id, self.why(child)) for child in redone]
        return ReuseDecision(fan.id, ReuseKind.REDONE, _format_children(kept, why), (kept, len(redone)))

    def why(self, node: Node) -> str:
        if node.status is NodeStatus.FAILED:
            return str((node.error or {}).get("message", "fails"))
        top = node.top.id
        if top in self.named:
            return "named to be redone"
        if top in self.context.given_again:
            return "may depend on a secret input that is given again"
        if top in self.redo:
            return f"depends on `{written_name(next(iter(self._leaves_in_redo(top)), ''))}`, which is redone"
        same = self.known.get((top, node.fingerprint or b""))
        if same is not None:
            # A node that did not complete has no version: it is redone because of its status.
            is_completed = same.status is NodeStatus.COMPLETED
            change = _version_change(node, same.handler_version, self.context) if is_completed else None
            return change or _format_status(row_of(same))
        return self._change(node)

    def _leaves_in_redo(self, node_id: str) -> Iterator[str]:
        return (leaf.node for leaf, _ in self.job.leaves(node_id) if leaf.node in self.redo)

    def _change(self, node: Node) -> str:
        old_top = self.before.nodes.get(node.top.id)
        if old_top is None:
            return f"is new in version {self.job.graph.version}"
        if node.parent is None and old_top.status is not NodeStatus.COMPLETED:
            return _format_status(row_of(old_top))
        spec, was = node.spec, innermost(old_top.spec)
        if isinstance(spec, TaskSpec) and isinstance(was, TaskSpec) and spec.handler != was.handler:
            return f"runs handler `{spec.handler}`, ran `{was.handler}`"
        change = next(self._value_changes(spec, was), None)
        if change is not None:
            return change
        for leaf, _ in self.job.leaves(node.top.id):
            now, then = self.job.nodes[leaf.node], self.before.nodes.get(leaf.node)
            if then is None or outcome_digest(self.job, now) != outcome_digest(self.before, then):
                return f"depends on `{written_name(leaf.node)}`, whose result changed"
        return "is new" if node.parent is not None else "its params changed"

    def _value_changes(self, spec: Spec, was: Spec) -> Iterator[str]:
        template, old = template_of(spec), template_of(was)
        refs = () if template is None else template.refs
        for root, changed in (("inputs", self.context.inputs), ("env", self.context.env)):
            names = (
                sorted(changed)
                if isinstance(spec, ApprovalSpec) and root == "inputs"
                else _named(refs, root, changed)
            )
            yield from (f"{root}.{name} changed" for name in names)
        if template is not None and old is not None and template.source != old.source:
            yield "its params are written differently"
        if ("job", "id") in refs:
            yield "its params use job.id, which is different in a new job"


# ── Sentences ───────────────────────────────────────────────────────────────────────────────────────────────


def _format_status(row: NodeRow) -> str:
    if row.status is NodeStatus.FAILED:
        return "failed"
    if row.status is NodeStatus.CANCELLED:
        return "was cancelled"
    if row.status is NodeStatus.SKIPPED:
        return f"was skipped ({str(row.skip_reason).replace('_', ' ')})"
    return "completed, and is redone" if row.status is NodeStatus.COMPLETED else "did not run"


def _format_children(kept: int, why: list[tuple[str, str]], left: int = 0) -> str:
    """Format what becomes of children. `left`: those that neither completed nor run again."""
    redone, first = len(why), why[:NAMED_CHILDREN]
    more = f" and {redone - NAMED_CHILDREN:,} more" if redone > NAMED_CHILDREN else ""
    reasons = {reason for _, reason in why}
    if redone > 1 and len(reasons) == 1:
        named = f"{', '.join(child for child, _ in first)}{more}: {reasons.pop()}"
    else:
        named = f"{', '.join(f'{child} {reason}' for child, reason in first)}{more}"
    rest = f", {left:,} left as they are" if left else ""
    return f"{kept:,} of {kept + redone + left:,} children reused{rest}, {redone:,} redone: {named}"


def _version_change(node: Node, was: str | None, context: ResumeContext) -> str | None:
    spec = innermost(node.spec)
    if not isinstance(spec, TaskSpec) or isinstance(node, FanOut):
        return None
    now = context.versions.get(spec.handler)
    if now is None or now == {was}:
        return None
    return f"handler `{spec.handler}` is version {' and '.join(sorted(now))} now, was {was}"


def _missing_handler(node: Node, context: ResumeContext) -> str | None:
    spec = innermost(node.spec)
    if context.served is None or not isinstance(spec, TaskSpec) or has_handler(context.served, spec.handler):
        return None
    return f"no live worker has the handler `{spec.handler}`"


def _named(refs: Iterable[tuple[str | int, ...]], root: str, changed: frozenset[str]) -> list[str]:
    names = {str(ref[1]) for ref in refs if len(ref) > 1 and ref[0] == root}
    return sorted(names & changed)


def _last_children(fan: FanOut) -> Iterator[Node]:
    """Yield the children that are not fan-outs themselves, at any depth."""
    for child in fan.children[: fan.expanded]:
        if isinstance(child, FanOut):
            yield from _last_children(child)
        else:
            yield child


def _failed_before(node: Node | None) -> bool:
    return node is not None and node.status is NodeStatus.FAILED and node.allows_failure


def _is_broken(node: Node) -> bool:
    broken = node.status in (NodeStatus.FAILED, NodeStatus.CANCELLED, NodeStatus.SKIPPED)
    return broken and node.skip_reason is not SkipReason.NOT_TAKEN
