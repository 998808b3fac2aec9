"""What a resume would do, said before it does: for each node whether its result is reused, and why not.

Pure. A new run of the same job is tried on the job itself, which is thrown away. A job that is resumed as a new one is
rehearsed by the shell, with nobody to run anything; here what stands after that is compared with what stood before.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from enum import StrEnum
from typing import TYPE_CHECKING, Final

from dagmaster.engine.advance import advance
from dagmaster.engine.decisions import Ignore, Reopen
from dagmaster.engine.fingerprints import outcome_digest
from dagmaster.engine.graph import ApprovalSpec, ConditionalSpec, EndSpec, FanOutSpec, StartSpec, TaskSpec, WorkflowSpec
from dagmaster.engine.model import FanOut, row_of
from dagmaster.engine.status import NodeStatus, SkipReason
from dagmaster.text_format import counted

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Mapping

    from dagmaster.engine.events import ResumeRequested, RetryRequested
    from dagmaster.engine.expressions.templates import Template
    from dagmaster.engine.graph import Graph, Spec
    from dagmaster.engine.model import Job, Node, NodeRow

# Children that a fan-out names.
NAMED_CHILDREN: Final = 3


class ReuseKind(StrEnum):
    """What becomes of a node. IMPOSSIBLE: its result can neither be reused nor made again as things are."""

    REUSED = "reused"
    REDONE = "redone"
    IMPOSSIBLE = "impossible"


@dataclass(frozen=True, slots=True)
class ReuseDecision:
    """What becomes of one node, and why. `children`: how many of a fan-out's are reused, and how many redone."""

    node: str
    fate: ReuseKind
    reason: str
    children: tuple[int, int] | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class ResumeContext:
    """What is another than it was, beside the graph. `served`: the handlers of live workers; None if nobody lives."""

    named: frozenset[str] = frozenset()
    inputs: frozenset[str] = frozenset()
    env: frozenset[str] = frozenset()
    versions: Mapping[str, frozenset[str]] = field(default_factory=dict)
    served: frozenset[str] | None = None


def with_followers(graph: Graph, names: Iterable[str]) -> frozenset[str]:
    """Give these nodes and all that follows them, at any distance."""
    found: set[str] = set()
    pending = list(names)
    while pending:
        node_id = pending.pop()
        if node_id not in found:
            found.add(node_id)
            pending += [dependent.node for dependent in graph.wiring.dependents.get(node_id, ())]
    return frozenset(found)


# ── A new run of the same job ───────────────────────────────────────────────────────────────────────────────────────


def plan_of_run(
    job: Job, happening: ResumeRequested | RetryRequested, now: float, around: ResumeContext
) -> list[ReuseDecision] | str:
    """Say what a new run would do. Text: why there is none. The job is spent by it."""
    before = {node.id: row_of(node) for node in job.nodes.values()}
    decided = advance(job, happening, now)
    opened = next((frozenset(each.nodes) for each in decided if isinstance(each, Reopen)), None)
    if opened is None:
        ignored = next((each.reason for each in decided if isinstance(each, Ignore)), None)
        return ignored or [
            ReuseDecision(name, ReuseKind.REDONE, "rests between attempts: tried at once") for name in around.named
        ]
    return [
        _in_run(job, node, before, opened, around)
        for node in job.nodes.values()
        if node.parent is None and not isinstance(node.spec, StartSpec | EndSpec)
    ]


def _in_run(
    job: Job, node: Node, before: Mapping[str, NodeRow], opened: frozenset[str], around: ResumeContext
) -> ReuseDecision:
    row = before[node.id]
    if node.id not in opened:
        return ReuseDecision(node.id, ReuseKind.REUSED, _stays(node, row, around))
    missing = _unserved(node, around)
    if missing is not None:
        return ReuseDecision(node.id, ReuseKind.IMPOSSIBLE, missing)
    reason = _opened_because(job, node, row, opened, around)
    if not isinstance(node, FanOut) or row.total is None:
        return ReuseDecision(node.id, ReuseKind.REDONE, reason)
    if node.total is None:
        made = sum(each.parent == node.id for each in before.values())
        return ReuseDecision(
            node.id, ReuseKind.REDONE, f"{reason}: all children are made anew ({row.total:,} before)", (0, made)
        )
    leaves = list(_last_children(node))
    redone = [child for child in leaves if child.id in opened]
    kept = len(leaves) - len(redone)
    why = [(child.id, _ended(before[child.id])) for child in redone]
    return ReuseDecision(node.id, ReuseKind.REDONE, _of_children(kept, why), (kept, len(redone)))


def _stays(node: Node, row: NodeRow, around: ResumeContext) -> str:
    if row.status is NodeStatus.COMPLETED:
        another = _other_version(node, row.handler_version, around)
        return "completed" if another is None else f"completed; {another}: --from {node.id} redoes it"
    if row.skip_reason is SkipReason.NOT_TAKEN:
        return "was not taken"
    return "failed, which is allowed" if node.allows_failure else f"stays as it is: {row.status}"


def _opened_because(job: Job, node: Node, row: NodeRow, opened: frozenset[str], around: ResumeContext) -> str:
    if node.id in around.named:
        return "named with --from"
    if row.status is NodeStatus.FAILED and not node.allows_failure:
        return _ended(row)
    before = next((leaf.node for leaf, _ in job.leaves(node.id) if leaf.node in opened), None)
    return _ended(row) if before is None else f"follows `{before}`, which is redone"


# ── A new job ───────────────────────────────────────────────────────────────────────────────────────────────────────


def plan_of_new_job(job: Job, before: Job, around: ResumeContext) -> list[ReuseDecision]:
    """Say what a job that was rehearsed reuses of the one before."""
    compared = _Compared(job, before, around)
    verdicts = {
        node_id: compared.verdict(job.nodes[node_id])
        for node_id, spec in job.graph.specs.items()
        if not isinstance(spec, StartSpec | EndSpec)
    }
    gone = [
        ReuseDecision(node_id, ReuseKind.IMPOSSIBLE, f"version {job.graph.version} has no node `{node_id}`")
        for node_id, spec in before.graph.specs.items()
        if node_id not in job.graph.specs and not isinstance(spec, StartSpec | EndSpec)
    ]
    return [*verdicts.values(), *gone]


class _Compared:
    """A job that was rehearsed beside the one that it was resumed from."""

    def __init__(self, job: Job, before: Job, around: ResumeContext) -> None:
        self.job = job
        self.before = before
        self.around = around
        self.redo = with_followers(job.graph, around.named)
        self.known = {
            (node.top.id, node.fingerprint): node for node in before.nodes.values() if node.fingerprint is not None
        }

    def verdict(self, node: Node) -> ReuseDecision:
        """What becomes of a node of the graph."""
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
        missing = _unserved(node, self.around)
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
            return ReuseDecision(node.id, ReuseKind.REUSED, "nothing that it depends on changed")
        return ReuseDecision(node.id, ReuseKind.REUSED, "follows from what is reused")

    def _skipped(self, node: Node) -> ReuseDecision:
        if node.skip_reason is not SkipReason.NOT_TAKEN:
            leaf = next(
                (each.node for each, _ in self.job.leaves(node.id) if _is_broken(self.job.nodes[each.node])), ""
            )
            return ReuseDecision(node.id, ReuseKind.IMPOSSIBLE, f"follows `{leaf}`, which is impossible")
        old = self.before.nodes.get(node.id)
        if old is not None and old.status is NodeStatus.COMPLETED:
            return ReuseDecision(node.id, ReuseKind.IMPOSSIBLE, "is not taken any more")
        return ReuseDecision(node.id, ReuseKind.REUSED, "is not taken")

    def _pending(self, node: Node) -> ReuseDecision:
        leaves = [leaf for leaf, _ in self.job.leaves(node.id) if not self.job.nodes[leaf.node].is_terminal]
        first, old = leaves[0], self.before.nodes.get(node.id)
        came = self.before.nodes.get(first.node)
        if (
            old is not None
            and old.status is NodeStatus.COMPLETED
            and node.id not in self.redo
            and all(_failed_before(self.before.nodes.get(leaf.node)) for leaf in leaves)
        ):
            # Whoever followed a failure that was allowed did so with that.
            return ReuseDecision(node.id, ReuseKind.REDONE, f"redone unless `{first.node}` fails again")
        waits = self.job.nodes[first.node].status is NodeStatus.WAITING and not isinstance(
            self.job.nodes[first.node].spec, ApprovalSpec
        )
        how = "which waits again" if waits else "which is redone"
        taken = "" if first.branch is None or (came is not None and came.branch == first.branch) else ", if it is taken"
        return ReuseDecision(node.id, ReuseKind.REDONE, f"follows `{first.node}`, {how}{taken}")

    def _fan_out(self, fan: FanOut) -> ReuseDecision:
        children = list(_last_children(fan))
        redone = [child for child in children if child.status is not NodeStatus.COMPLETED]
        kept = len(children) - len(redone)
        if not redone and fan.status is NodeStatus.COMPLETED:
            all_of_them = f"all {counted(kept, 'child', 'children')}" if kept else "has no children"
            return ReuseDecision(fan.id, ReuseKind.REUSED, all_of_them, (kept, 0))
        missing = next((said for child in redone if (said := _unserved(child, self.around)) is not None), None)
        if missing is not None:
            return ReuseDecision(fan.id, ReuseKind.IMPOSSIBLE, missing, (kept, len(redone)))
        why = [(child.id, self.why(child)) for child in redone]
        return ReuseDecision(fan.id, ReuseKind.REDONE, _of_children(kept, why), (kept, len(redone)))

    def why(self, node: Node) -> str:
        """Say why a node that was about to start found no result."""
        if node.status is NodeStatus.FAILED:
            return str((node.error or {}).get("message", "fails"))
        top = node.top.id
        if top in self.around.named:
            return "named with --from"
        if top in self.redo:
            return f"follows `{next(iter(self._leaves_in_redo(top)), '')}`, which is redone"
        same = self.known.get((top, node.fingerprint or b""))
        if same is not None:
            # One that did not complete has no version: it is redone for how it ended.
            is_whole = same.status is NodeStatus.COMPLETED
            another = _other_version(node, same.handler_version, self.around) if is_whole else None
            return another or _ended(row_of(same))
        return self._changed(node)

    def _leaves_in_redo(self, node_id: str) -> Iterator[str]:
        return (leaf.node for leaf, _ in self.job.leaves(node_id) if leaf.node in self.redo)

    def _changed(self, node: Node) -> str:
        """Say what is another about a node whose fingerprint nobody had."""
        old_top = self.before.nodes.get(node.top.id)
        if old_top is None:
            return f"is new in version {self.job.graph.version}"
        if node.parent is None and old_top.status is not NodeStatus.COMPLETED:
            return _ended(row_of(old_top))
        spec, was = node.spec, _innermost(old_top.spec)
        if isinstance(spec, TaskSpec) and isinstance(was, TaskSpec) and spec.handler != was.handler:
            return f"runs handler `{spec.handler}`, ran `{was.handler}`"
        found = next(self._other_values(spec, was), None)
        if found is not None:
            return found
        for leaf, _ in self.job.leaves(node.top.id):
            now, then = self.job.nodes[leaf.node], self.before.nodes.get(leaf.node)
            if then is None or outcome_digest(self.job, now) != outcome_digest(self.before, then):
                return f"follows `{leaf.node}`, whose result is another"
        return "is new" if node.parent is not None else "its params are others"

    def _other_values(self, spec: Spec, was: Spec) -> Iterator[str]:
        template, old = _template(spec), _template(was)
        refs = () if template is None else template.refs
        for root, changed in (("inputs", self.around.inputs), ("env", self.around.env)):
            names = (
                sorted(changed) if isinstance(spec, ApprovalSpec) and root == "inputs" else _named(refs, root, changed)
            )
            yield from (f"{root}.{name} changed" for name in names)
        if template is not None and old is not None and template.source != old.source:
            yield "its params are written differently"
        if ("job", "id") in refs:
            yield "its params have job.id, which is another in a new job"


# ── Words ───────────────────────────────────────────────────────────────────────────────────────────────────────────


def _ended(row: NodeRow) -> str:
    if row.status is NodeStatus.FAILED:
        return "failed"
    if row.status is NodeStatus.CANCELLED:
        return "was cancelled"
    if row.status is NodeStatus.SKIPPED:
        return f"was skipped ({str(row.skip_reason).replace('_', ' ')})"
    return "completed, and is made anew" if row.status is NodeStatus.COMPLETED else "did not run"


def _of_children(kept: int, why: list[tuple[str, str]]) -> str:
    redone, first = len(why), why[:NAMED_CHILDREN]
    more = f" and {redone - NAMED_CHILDREN:,} more" if redone > NAMED_CHILDREN else ""
    reasons = {reason for _, reason in why}
    if redone > 1 and len(reasons) == 1:
        named = f"{', '.join(child for child, _ in first)}{more}: {reasons.pop()}"
    else:
        named = f"{', '.join(f'{child} {reason}' for child, reason in first)}{more}"
    return f"{kept:,} of {kept + redone:,} children reused, {redone:,} redone: {named}"


def _other_version(node: Node, was: str | None, around: ResumeContext) -> str | None:
    spec = _innermost(node.spec)
    if not isinstance(spec, TaskSpec) or isinstance(node, FanOut):
        return None
    now = around.versions.get(spec.handler)
    if now is None or now == {was}:
        return None
    return f"handler `{spec.handler}` is version {' and '.join(sorted(now))} now, was {was}"


def _unserved(node: Node, around: ResumeContext) -> str | None:
    spec = _innermost(node.spec)
    if around.served is None or not isinstance(spec, TaskSpec) or spec.handler in around.served:
        return None
    return f"no live worker has the handler `{spec.handler}`"


def _innermost(spec: Spec) -> Spec:
    while isinstance(spec, FanOutSpec):
        spec = spec.child
    return spec


def _template(spec: Spec) -> Template | None:
    if isinstance(spec, TaskSpec):
        return spec.params
    if isinstance(spec, WorkflowSpec):
        return spec.inputs
    return spec.message if isinstance(spec, ApprovalSpec) else None


def _named(refs: Iterable[tuple[str | int, ...]], root: str, changed: frozenset[str]) -> list[str]:
    found = {str(ref[1]) for ref in refs if len(ref) > 1 and ref[0] == root}
    return sorted(found & changed)


def _last_children(fan: FanOut) -> Iterator[Node]:
    """Give the children that are no fan-outs themselves, at any depth."""
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
