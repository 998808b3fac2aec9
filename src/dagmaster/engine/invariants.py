"""The invariants of a job between two events, as sentences that a test can check after any step.

Each check yields the names of the violators. The engine itself never calls this: a check visits every node.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from dagmaster.engine.gates import OPEN, SATISFIED, count
from dagmaster.engine.graph import ConditionalSpec, FanInSpec, FanOutSpec, WaitSpec, WorkflowSpec, flatten
from dagmaster.engine.groups import members
from dagmaster.engine.model import FanOut, fails_job, is_dormant
from dagmaster.engine.status import (
    NOT_STARTED_NODE,
    TERMINAL_JOB,
    TERMINAL_NODE,
    JobStatus,
    NodeStatus,
    SkipReason,
)

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from dagmaster.engine.model import Job, Node

    Check = Callable[[Job], Iterator[str]]

_NEEDS_VALUES: Final = (ConditionalSpec, FanOutSpec, FanInSpec, WaitSpec)


INVARIANTS: Final[list[tuple[str, Check]]] = []


def _invariant(sentence: str) -> Callable[[Check], Check]:
    """Register a check under the sentence that it verifies."""

    def register(check: Check) -> Check:
        INVARIANTS.append((sentence, check))
        return check

    return register


def violations(job: Job) -> list[str]:
    return [f"{sentence} Violated by: {name}" for sentence, check in INVARIANTS for name in check(job)]


# ── The job ─────────────────────────────────────────────────────────────────────────────────────────────────


@_invariant("A finished job has only finished nodes.")
def _finished_jobs_have_finished_nodes(job: Job) -> Iterator[str]:
    if job.status in TERMINAL_JOB:
        yield from (node.id for node in job.nodes.values() if not node.is_terminal)


@_invariant("A running job with open nodes has a node that an event can move.")
def _running_jobs_can_advance(job: Job) -> Iterator[str]:
    can_move = bool(job.backlog) or any(_can_move(node) for node in job.nodes.values())
    if job.status is JobStatus.RUNNING and job.open and not can_move:
        yield "the job"


def _can_move(node: Node) -> bool:
    if node.status in (NodeStatus.DISPATCHED, NodeStatus.WAITING):
        return True
    if node.status is NodeStatus.RUNNING:
        return isinstance(node.spec, WorkflowSpec) or node.wake_at is not None
    waits_for_values = isinstance(node.spec, _NEEDS_VALUES)
    return node.status is NodeStatus.READY and (waits_for_values or node.wake_at is not None)


@_invariant("A node that waits for a time or for a retry, or has children to create, has a timer.")
def _timed_waits_have_timers(job: Job) -> Iterator[str]:
    for node in job.nodes.values():
        spec = node.spec
        waits_for_retry = node.status is NodeStatus.READY and not isinstance(spec, _NEEDS_VALUES)
        waits_for_time = (
            node.status is NodeStatus.WAITING and isinstance(spec, WaitSpec) and spec.signal is None
        )
        expands = (
            isinstance(node, FanOut) and node.status is NodeStatus.RUNNING and _has_more_to_expand(job, node)
        )
        if (waits_for_retry or waits_for_time or expands) and node.wake_at is None:
            yield node.id


def _has_more_to_expand(job: Job, fan: FanOut) -> bool:
    return fan.expanded < (fan.total or 0) and not fan.stopped and not job.ending


@_invariant("An ending job has no node that is PENDING, READY or WAITING.")
def _ending_jobs_start_nothing(job: Job) -> Iterator[str]:
    if job.ending:
        yield from (node.id for node in job.nodes.values() if node.status in NOT_STARTED_NODE)


@_invariant("A stopping job is ending; a cancelled job, or one whose deadline passed, is stopping.")
def _stopping_is_ending(job: Job) -> Iterator[str]:
    if (job.stopping and not job.ending) or (
        (job.cancel_requested or job.deadline_passed) and not job.stopping
    ):
        yield "the job"


@_invariant("Only a running job has a deadline set.")
def _only_open_jobs_have_deadlines(job: Job) -> Iterator[str]:
    if job.deadline_at is not None and job.status is not JobStatus.RUNNING:
        yield "the job"


@_invariant("The job's counters equal a recount.")
def _job_counters_are_exact(job: Job) -> Iterator[str]:
    live = [node for node in job.nodes.values() if not is_dormant(node)]
    if job.open != sum(not node.is_terminal for node in live):
        yield "open"
    if job.failed != sum(fails_job(node) for node in live):
        yield "failed"
    if job.children_made != sum(node.parent is not None for node in job.nodes.values()):
        yield "children_made"
    if job.finish_seq < max((node.finished_seq or 0 for node in live), default=0):
        yield "finish_seq"


# ── Every node ──────────────────────────────────────────────────────────────────────────────────────────────


@_invariant("A node has a skip_reason if, and only if, it is SKIPPED.")
def _skipped_nodes_have_a_reason(job: Job) -> Iterator[str]:
    for node in job.nodes.values():
        if (node.status is NodeStatus.SKIPPED) is not (node.skip_reason is not None):
            yield node.id


@_invariant("A node has a finished_seq if, and only if, it is finished, and no other node has the same.")
def _finished_seqs_are_unique(job: Job) -> Iterator[str]:
    seen: set[int] = set()
    for node in job.nodes.values():
        if node.is_terminal is (node.finished_seq is None) and not is_dormant(node):
            yield node.id
        if node.finished_seq is not None:
            if node.finished_seq in seen:
                yield node.id
            seen.add(node.finished_seq)


@_invariant("Only a node that is neither PENDING nor finished has a timer.")
def _only_active_nodes_have_timers(job: Job) -> Iterator[str]:
    for node in job.nodes.values():
        if node.wake_at is not None and (node.is_terminal or node.status is NodeStatus.PENDING):
            yield node.id


@_invariant("A node's failed and lost attempts, charged or not, are at most its attempts.")
def _budgets_are_within_attempts(job: Job) -> Iterator[str]:
    for node in job.nodes.values():
        if node.attempt < node.failed_attempts + node.lost_attempts + node.shared_losses:
            yield node.id


@_invariant("A node in flight, with a worker or a child job, has an attempt.")
def _in_flight_nodes_have_an_attempt(job: Job) -> Iterator[str]:
    for node in job.nodes.values():
        in_flight = node.status in (NodeStatus.DISPATCHED, NodeStatus.RUNNING) and not isinstance(
            node, FanOut
        )
        if in_flight and node.attempt < 1:
            yield node.id


@_invariant("A FAILED node has an error; a COMPLETED or PENDING node has none.")
def _failed_nodes_have_an_error(job: Job) -> Iterator[str]:
    for node in job.nodes.values():
        must_have_none = node.status in (NodeStatus.COMPLETED, NodeStatus.PENDING)
        if (node.error is None and node.status is NodeStatus.FAILED) or (
            node.error is not None and must_have_none
        ):
            yield node.id


@_invariant(
    "A node that is asked to stop alone is in flight or finished; in flight, its error is the request."
)
def _stopped_nodes_have_a_request(job: Job) -> Iterator[str]:
    for node in job.nodes.values():
        is_stopping = node.stopped and not node.is_terminal and not isinstance(node, FanOut)
        if is_stopping and (node.status in NOT_STARTED_NODE or node.cancel_request is None):
            yield node.id


@_invariant(
    "A node has a branch if, and only if, it is a COMPLETED conditional, and it is one of its branches."
)
def _only_conditionals_have_branches(job: Job) -> Iterator[str]:
    for node in job.nodes.values():
        spec = node.spec
        names = [branch.name for branch in spec.branches] if isinstance(spec, ConditionalSpec) else []
        completed = bool(names) and node.status is NodeStatus.COMPLETED
        if completed is not (node.branch is not None) or (completed and node.branch not in names):
            yield node.id


@_invariant("The upstream of a node is one of its leaves.")
def _upstream_is_a_leaf(job: Job) -> Iterator[str]:
    for node in job.nodes.values():
        if node.upstream is not None and node.upstream not in {leaf.node for leaf, _ in job.leaves(node.id)}:
            yield node.id


@_invariant(
    "In a running job no PENDING node has a settled gate, except in the backlog, whose gate is satisfied."
)
def _settled_gates_move_their_node(job: Job) -> Iterator[str]:
    if job.status is not JobStatus.RUNNING:
        yield from job.backlog
        return
    for node in job.nodes.values():
        is_pending = node.parent is None and node.status is NodeStatus.PENDING
        outcome = _outcome(job, node) if is_pending else OPEN
        if outcome != (SATISFIED if node.id in job.backlog else OPEN):
            yield node.id


def _outcome(job: Job, node: Node) -> int:
    gates = job.gates(node.id)
    if not gates:
        return SATISFIED
    counts = [0] * (4 * len(gates))
    for leaf, gate in job.leaves(node.id):
        outcome = job.leaf_outcome(leaf)
        if outcome != OPEN and (settled := count(gates, counts, gate, outcome)) != OPEN:
            return settled
    return OPEN


@_invariant("The gates of a node match its dependencies.")
def _gates_are_wired(job: Job) -> Iterator[str]:
    wiring = job.graph.wiring
    for node_id, spec in job.graph.specs.items():
        gates = ((), ()) if spec.requires is None else flatten(spec.requires)
        if (wiring.gates.get(node_id, ()), wiring.leaves.get(node_id, ())) != gates:
            yield node_id


@_invariant("A COMPLETED group has no unfinished member.")
def _completed_groups_have_finished_members(job: Job) -> Iterator[str]:
    for node in job.nodes.values():
        if node.status is NodeStatus.COMPLETED:
            yield from (member for member in members(node.spec) if not job.nodes[member].is_terminal)


@_invariant("The members of a group are its leaves.")
def _groups_wait_for_their_members(job: Job) -> Iterator[str]:
    linked = {member: node_id for node_id, spec in job.graph.specs.items() for member in members(spec)}
    for node_id, spec in job.graph.specs.items():
        # A node that is added again may be in another group than before.
        group = linked.get(node_id)
        if spec.group != group and not (group is not None and is_dormant(job.nodes[group])):
            yield node_id


# ── Fan-outs ────────────────────────────────────────────────────────────────────────────────────────────────


def _fan_outs(job: Job) -> Iterator[tuple[FanOut, list[Node]]]:
    for node in job.nodes.values():
        if isinstance(node, FanOut) and not is_dormant(node):
            yield node, node.children[: node.expanded]


@_invariant("A child has its id and its index in its fan-out; and a fan-out has the children it expanded.")
def _children_are_indexed(job: Job) -> Iterator[str]:
    for node in job.nodes.values():
        if isinstance(node, FanOut):
            if not node.expanded <= min(len(node.children), node.total or 0):
                yield node.id
            for index, child in enumerate(node.children):
                if (child.id, child.index, child.parent) != (f"{node.id}__{index}", index, node):
                    yield child.id
    yield from (name for name, node in job.nodes.items() if name != node.id)


@_invariant("The counters of a fan-out equal a recount of its children.")
def _fan_out_counters_are_exact(job: Job) -> Iterator[str]:
    for fan, children in _fan_outs(job):
        is_open = [child for child in children if child.status not in TERMINAL_NODE]
        started = [child for child in is_open if child.status is not NodeStatus.PENDING]
        completed = [child for child in children if child.status is NodeStatus.COMPLETED]
        failed = [child for child in children if child.status is NodeStatus.FAILED]
        counters = (fan.open, fan.active, fan.completed, fan.failed)
        if counters != (len(is_open), len(started), len(completed), len(failed)):
            yield f"{fan.id}: open, active, completed, failed are {counters}"


@_invariant("No PENDING child of a fan-out is before its cursor.")
def _cursor_skips_no_pending_child(job: Job) -> Iterator[str]:
    for fan, children in _fan_outs(job):
        yield from (child.id for child in children[: fan.cursor] if child.status is NodeStatus.PENDING)


@_invariant("A COMPLETED fan-out has only COMPLETED and FAILED children, and their failures are tolerated.")
def _completed_fan_outs_have_finished_children(job: Job) -> Iterator[str]:
    for fan, children in _fan_outs(job):
        if fan.status is NodeStatus.COMPLETED:
            ended = all(child.status in (NodeStatus.COMPLETED, NodeStatus.FAILED) for child in children)
            if not ended or fan.expanded != fan.total or not fan.tolerates_failures():
                yield fan.id


@_invariant("A finished fan-out has no open children; a fully expanded running one has at least one.")
def _finished_fan_outs_have_no_open_children(job: Job) -> Iterator[str]:
    for fan, children in _fan_outs(job):
        has_open = any(not child.is_terminal for child in children)
        is_running = fan.status is NodeStatus.RUNNING
        if (fan.is_terminal and has_open) or (
            is_running and not has_open and not _has_more_to_expand(job, fan)
        ):
            yield fan.id


@_invariant("A child is active only while its fan-out is RUNNING.")
def _active_children_have_a_running_fan_out(job: Job) -> Iterator[str]:
    for fan, children in _fan_outs(job):
        if fan.status is not NodeStatus.RUNNING:
            yield from (
                child.id
                for child in children
                if not child.is_terminal and child.status is not NodeStatus.PENDING
            )


@_invariant("At most max_parallel children of a fan-out are active.")
def _max_parallel_is_respected(job: Job) -> Iterator[str]:
    for fan, children in _fan_outs(job):
        active = sum(not child.is_terminal and child.status is not NodeStatus.PENDING for child in children)
        if fan.spec.max_parallel is not None and active > fan.spec.max_parallel:
            yield fan.id


@_invariant("A running fan-out with a PENDING child has max_parallel active children.")
def _no_slot_stays_free(job: Job) -> Iterator[str]:
    for fan, children in _fan_outs(job):
        is_waiting = any(child.status is NodeStatus.PENDING for child in children)
        if (
            is_waiting
            and fan.status is NodeStatus.RUNNING
            and fan.active < (fan.spec.max_parallel or len(children))
        ):
            yield fan.id


@_invariant("A stopped fan-out that is still running has no child that is PENDING, READY or WAITING.")
def _stopped_fan_outs_start_nothing(job: Job) -> Iterator[str]:
    for fan, children in _fan_outs(job):
        if fan.stopped and not fan.is_terminal:
            yield from (child.id for child in children if child.status in NOT_STARTED_NODE)


@_invariant("A child is SKIPPED as superseded if, and only if, it is left over from an earlier, longer list.")
def _dormant_children_are_superseded(job: Job) -> Iterator[str]:
    for node in job.nodes.values():
        if is_dormant(node) is not (node.skip_reason is SkipReason.SUPERSEDED):
            yield node.id


# ── Added nodes ─────────────────────────────────────────────────────────────────────────────────────────────


@_invariant(
    "Another node is superseded only if a task added it, and nothing that a superseded node added is left."
)
def _added_nodes_are_superseded_together(job: Job) -> Iterator[str]:
    for node in job.nodes.values():
        adder = node.spec.added_by
        if node.parent is not None:
            continue
        if adder is None:
            if is_dormant(node):
                yield node.id
        elif is_dormant(job.nodes[adder]) and not is_dormant(node):
            yield node.id
    yield from (node_id for node_id, stand_in in job.stand_ins.items() if is_dormant(job.nodes[stand_in]))
