"""What the engine promises of a job between two happenings, as sentences that a test can ask after any step.

Each check gives the names of those that break its sentence. Nothing in the engine calls this: it costs every node.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from dagmaster.engine.gates import OPEN, SATISFIED, count
from dagmaster.engine.graph import ConditionalSpec, FanInSpec, FanOutSpec, WaitSpec, WorkflowSpec
from dagmaster.engine.model import FanOut, fails_job, is_dormant, leaf_outcome
from dagmaster.engine.status import TERMINAL_JOB, TERMINAL_NODE, JobStatus, NodeStatus, SkipReason

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from dagmaster.engine.model import Job, Node

    Check = Callable[[Job], Iterator[str]]

_NOT_STARTED: Final = frozenset({NodeStatus.PENDING, NodeStatus.READY, NodeStatus.WAITING})
_DECIDES_BY_VALUES: Final = (ConditionalSpec, FanOutSpec, FanInSpec, WaitSpec)


def violations(job: Job) -> list[str]:
    """Give every promise that this job breaks, and where."""
    return [f"{sentence} Not so: {name}" for sentence, check in PROMISES for name in check(job)]


# ── The job ─────────────────────────────────────────────────────────────────────────────────────────────────────────


def over_means_all_over(job: Job) -> Iterator[str]:
    """A job that is over has only nodes that are over."""
    if job.status in TERMINAL_JOB:
        yield from (node.id for node in job.nodes.values() if not node.is_terminal)


def something_can_happen(job: Job) -> Iterator[str]:
    """A running job always has something that can still happen to it."""
    if job.status is JobStatus.RUNNING and job.open and not any(_can_be_moved(node) for node in job.nodes.values()):
        yield "the job"


def _can_be_moved(node: Node) -> bool:
    if node.status in (NodeStatus.DISPATCHED, NodeStatus.WAITING):
        return True
    if node.status is NodeStatus.RUNNING:
        return isinstance(node.spec, WorkflowSpec) or node.wake_at is not None
    waits_for_values = isinstance(node.spec, _DECIDES_BY_VALUES)
    return node.status is NodeStatus.READY and (waits_for_values or node.wake_at is not None)


def every_pause_ends(job: Job) -> Iterator[str]:
    """A node that waits for a time, rests between attempts, or has children to make, has a timer."""
    for node in job.nodes.values():
        spec = node.spec
        rests = node.status is NodeStatus.READY and not isinstance(spec, _DECIDES_BY_VALUES)
        waits = node.status is NodeStatus.WAITING and isinstance(spec, WaitSpec) and spec.signal is None
        expands = isinstance(node, FanOut) and node.status is NodeStatus.RUNNING and _has_more_to_make(job, node)
        if (rests or waits or expands) and node.wake_at is None:
            yield node.id


def _has_more_to_make(job: Job, fan: FanOut) -> bool:
    return fan.expanded < (fan.total or 0) and not fan.stopped and not job.ending


def ending_starts_nothing(job: Job) -> Iterator[str]:
    """An ending job has nothing PENDING, READY or WAITING."""
    if job.ending:
        yield from (node.id for node in job.nodes.values() if node.status in _NOT_STARTED)


def stopping_is_ending(job: Job) -> Iterator[str]:
    """A job that stops what runs is ending, and so is one that was cancelled or whose deadline passed."""
    if (job.stopping and not job.ending) or ((job.cancel_requested or job.deadline_passed) and not job.stopping):
        yield "the job"


def only_open_jobs_have_deadlines(job: Job) -> Iterator[str]:
    """Only a running job has a deadline to come."""
    if job.deadline_at is not None and job.status is not JobStatus.RUNNING:
        yield "the job"


def job_counters_are_exact(job: Job) -> Iterator[str]:
    """The job's counters equal a recount."""
    live = [node for node in job.nodes.values() if not is_dormant(node)]
    if job.open != sum(not node.is_terminal for node in live):
        yield "open"
    if job.failed != sum(fails_job(node) for node in live):
        yield "failed"
    if job.children_made != sum(node.parent is not None for node in job.nodes.values()):
        yield "children_made"
    if job.finish_seq < max((node.finished_seq or 0 for node in live), default=0):
        yield "finish_seq"


# ── Every node ──────────────────────────────────────────────────────────────────────────────────────────────────────


def skipped_for_a_reason(job: Job) -> Iterator[str]:
    """A node has a skip_reason if, and only if, it is SKIPPED."""
    for node in job.nodes.values():
        if (node.status is NodeStatus.SKIPPED) is not (node.skip_reason is not None):
            yield node.id


def finished_once(job: Job) -> Iterator[str]:
    """A node has a finished_seq if, and only if, it is over, and no other node has the same."""
    seen: set[int] = set()
    for node in job.nodes.values():
        if node.is_terminal is (node.finished_seq is None) and not is_dormant(node):
            yield node.id
        if node.finished_seq is not None:
            if node.finished_seq in seen:
                yield node.id
            seen.add(node.finished_seq)


def only_open_nodes_wake(job: Job) -> Iterator[str]:
    """Only a node that is under way has a timer."""
    for node in job.nodes.values():
        if node.wake_at is not None and (node.is_terminal or node.status is NodeStatus.PENDING):
            yield node.id


def budgets_are_attempts(job: Job) -> Iterator[str]:
    """What a node used of its budgets, it used in attempts."""
    for node in job.nodes.values():
        if node.attempt < node.failed_attempts + node.lost_attempts:
            yield node.id


def held_means_an_attempt(job: Job) -> Iterator[str]:
    """What is out with a worker or a child job has an attempt."""
    for node in job.nodes.values():
        is_held = node.status in (NodeStatus.DISPATCHED, NodeStatus.RUNNING) and not isinstance(node, FanOut)
        if is_held and node.attempt < 1:
            yield node.id


def failed_with_an_error(job: Job) -> Iterator[str]:
    """A FAILED node says why; one that is COMPLETED, or has not begun, has no error."""
    for node in job.nodes.values():
        has_none = node.status in (NodeStatus.COMPLETED, NodeStatus.PENDING)
        if (node.error is None and node.status is NodeStatus.FAILED) or (node.error is not None and has_none):
            yield node.id


def branches_are_taken_by_conditionals(job: Job) -> Iterator[str]:
    """A node has a branch if, and only if, it is a COMPLETED conditional, and the branch is one of its own."""
    for node in job.nodes.values():
        spec = node.spec
        names = [branch.name for branch in spec.branches] if isinstance(spec, ConditionalSpec) else []
        completed = bool(names) and node.status is NodeStatus.COMPLETED
        if completed is not (node.branch is not None) or (completed and node.branch not in names):
            yield node.id


def upstream_is_a_leaf(job: Job) -> Iterator[str]:
    """The upstream of a node is one of its leaves, and it settled before."""
    for node in job.nodes.values():
        if node.upstream is not None and node.upstream not in {leaf.node for leaf, _ in job.leaves(node.id)}:
            yield node.id


def settled_gates_act(job: Job) -> Iterator[str]:
    """In a running job no PENDING node has a gate that is settled."""
    if job.status is not JobStatus.RUNNING:
        return
    for node in job.nodes.values():
        if node.parent is None and node.status is NodeStatus.PENDING and _outcome(job, node) != OPEN:
            yield node.id


def _outcome(job: Job, node: Node) -> int:
    gates = job.gates(node.id)
    if not gates:
        return SATISFIED
    counts = [0] * (4 * len(gates))
    for leaf, gate in job.leaves(node.id):
        outcome = leaf_outcome(job.nodes[leaf.node], leaf.branch)
        if outcome != OPEN and (settled := count(gates, counts, gate, outcome)) != OPEN:
            return settled
    return OPEN


# ── Fan-outs ────────────────────────────────────────────────────────────────────────────────────────────────────────


def _fan_outs(job: Job) -> Iterator[tuple[FanOut, list[Node]]]:
    for node in job.nodes.values():
        if isinstance(node, FanOut) and not is_dormant(node):
            yield node, node.children[: node.expanded]


def children_have_their_places(job: Job) -> Iterator[str]:
    """A child is found under its name, at its index, under its fan-out; and a fan-out has as many as it made."""
    for node in job.nodes.values():
        if isinstance(node, FanOut):
            if not node.expanded <= min(len(node.children), node.total or 0):
                yield node.id
            for index, child in enumerate(node.children):
                if (child.id, child.index, child.parent) != (f"{node.id}__{index}", index, node):
                    yield child.id
    yield from (name for name, node in job.nodes.items() if name != node.id)


def fan_out_counters_are_exact(job: Job) -> Iterator[str]:
    """The counters of a fan-out equal a recount of its children."""
    for fan, children in _fan_outs(job):
        is_open = [child for child in children if child.status not in TERMINAL_NODE]
        started = [child for child in is_open if child.status is not NodeStatus.PENDING]
        completed = [child for child in children if child.status is NodeStatus.COMPLETED]
        failed = [child for child in children if child.status is NodeStatus.FAILED]
        counters = (fan.open, fan.active, fan.completed, fan.failed)
        if counters != (len(is_open), len(started), len(completed), len(failed)):
            yield f"{fan.id}: open, active, completed, failed are {counters}"


def no_child_is_passed_over(job: Job) -> Iterator[str]:
    """No PENDING child of a fan-out stands before its cursor."""
    for fan, children in _fan_outs(job):
        yield from (child.id for child in children[: fan.cursor] if child.status is NodeStatus.PENDING)


def completed_means_children_completed(job: Job) -> Iterator[str]:
    """A fan-out is COMPLETED only when all its children are over and their failures are tolerated."""
    for fan, children in _fan_outs(job):
        if fan.status is NodeStatus.COMPLETED:
            ended = all(child.status in (NodeStatus.COMPLETED, NodeStatus.FAILED) for child in children)
            if not ended or fan.expanded != fan.total or not fan.tolerates_failures():
                yield fan.id


def over_fan_outs_have_no_open_children(job: Job) -> Iterator[str]:
    """A fan-out that is over has no open children, and one that runs and makes no more has some."""
    for fan, children in _fan_outs(job):
        has_open = any(not child.is_terminal for child in children)
        is_running = fan.status is NodeStatus.RUNNING
        if (fan.is_terminal and has_open) or (is_running and not has_open and not _has_more_to_make(job, fan)):
            yield fan.id


def children_wait_for_their_fan_out(job: Job) -> Iterator[str]:
    """A child is under way only while its fan-out is RUNNING."""
    for fan, children in _fan_outs(job):
        if fan.status is not NodeStatus.RUNNING:
            yield from (
                child.id for child in children if not child.is_terminal and child.status is not NodeStatus.PENDING
            )


def max_parallel_holds(job: Job) -> Iterator[str]:
    """No more than max_parallel children of a fan-out are under way."""
    for fan, children in _fan_outs(job):
        under_way = sum(not child.is_terminal and child.status is not NodeStatus.PENDING for child in children)
        if fan.spec.max_parallel is not None and under_way > fan.spec.max_parallel:
            yield fan.id


def no_place_stays_free(job: Job) -> Iterator[str]:
    """A running fan-out with a PENDING child has max_parallel of them under way."""
    for fan, children in _fan_outs(job):
        is_waiting = any(child.status is NodeStatus.PENDING for child in children)
        if is_waiting and fan.status is NodeStatus.RUNNING and fan.active < (fan.spec.max_parallel or len(children)):
            yield fan.id


def stopped_fan_outs_start_nothing(job: Job) -> Iterator[str]:
    """A stopped fan-out that still runs has no child that is PENDING, READY or WAITING."""
    for fan, children in _fan_outs(job):
        if fan.stopped and not fan.is_terminal:
            yield from (child.id for child in children if child.status in _NOT_STARTED)


def dormant_children_are_superseded(job: Job) -> Iterator[str]:
    """A child is SKIPPED as superseded if, and only if, it is left over from an earlier, longer list."""
    for node in job.nodes.values():
        if is_dormant(node) is not (node.skip_reason is SkipReason.SUPERSEDED):
            yield node.id


_CHECKS: Final[tuple[Check, ...]] = (
    over_means_all_over,
    something_can_happen,
    every_pause_ends,
    ending_starts_nothing,
    stopping_is_ending,
    only_open_jobs_have_deadlines,
    job_counters_are_exact,
    skipped_for_a_reason,
    finished_once,
    only_open_nodes_wake,
    budgets_are_attempts,
    held_means_an_attempt,
    failed_with_an_error,
    branches_are_taken_by_conditionals,
    upstream_is_a_leaf,
    settled_gates_act,
    children_have_their_places,
    fan_out_counters_are_exact,
    no_child_is_passed_over,
    completed_means_children_completed,
    over_fan_outs_have_no_open_children,
    children_wait_for_their_fan_out,
    max_parallel_holds,
    no_place_stays_free,
    stopped_fan_outs_start_nothing,
    dormant_children_are_superseded,
)

PROMISES: Final[tuple[tuple[str, Check], ...]] = tuple((check.__doc__ or "", check) for check in _CHECKS)
