"""The proof that the proof can fail: bugs are planted in the engine one at a time, and each must be noticed.

A bug is a line of a function that is replaced; the code of the function is exchanged, so everybody who holds it has the
bug. Then random histories are lived until one of them goes wrong.
"""

from __future__ import annotations
import __future__

import inspect
import textwrap
from contextlib import ExitStack, contextmanager
from typing import TYPE_CHECKING, Any, NamedTuple

import pytest

from dagmaster.engine import (
    advance,
    apply,
    approvals_and_waits,
    backlog,
    fanout,
    gates,
    groups,
    growth,
    job_completion,
    model,
    node_cancels,
    node_start,
    reruns,
    step,
)
from dagmaster.engine.graph import Tolerance
from tests.unit.engine.random_workflows import Seeded
from tests.unit.engine.test_engine_properties import live_a_life

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator

pytestmark = pytest.mark.slow

SEEDS = range(500)
NOTICED_BY = {
    "a signal is taken twice": 436,
    "a cancelled node stays in the backlog": 339,
    "timers fire early": 220,
    "a fan-out that has not started again starts children": 173,
    "a cancelled child frees a slot that it did not have": 86,
    "what can never run is added": 76,
    "an ending job tries again": 75,
    "a node that is being stopped is cancelled once more": 69,
    "the first failure decides which of the named nodes are cancelled": 56,
}
"""Seeds that are tried first: those that noticed a rare bug before. Any other seed will do, and takes longer to find."""
STEPS = 40
ANNOTATIONS = __future__.annotations.compiler_flag


class Bug(NamedTuple):
    """One replaced piece of one function."""

    says: str
    where: Callable[..., Any]
    right: str
    wrong: str


BUGS = [
    Bug("the attempt of a report is not looked at", apply._in_flight, "node.attempt != attempt or ", ""),
    Bug("a report about a fan-out counts", apply._in_flight, " or isinstance(node, FanOut)", ""),
    Bug("all_of is any_of", gates._outcome, "if kind is GateKind.ANY:", "if kind is not GateKind.JOIN:"),
    Bug(
        "all_of does not wait for open leaves",
        gates._outcome,
        "if satisfied + not_taken < size:",
        "if not satisfied:",
    ),
    Bug(
        "edges want everything",
        gates._outcome,
        "return SATISFIED if satisfied else NOT_TAKEN",
        "return NOT_TAKEN if not_taken else SATISFIED",
    ),
    Bug(
        "an allowed failure breaks",
        model.leaf_outcome,
        "SATISFIED if node.allows_failure else BROKEN",
        "BROKEN",
    ),
    Bug(
        "skip reasons are swapped", advance._after_gate, "if outcome == NOT_TAKEN", "if outcome != NOT_TAKEN"
    ),
    Bug("max_parallel is ignored", fanout.admit, "active < limit and ", ""),
    Bug("one failure more is tolerated", Tolerance.allows, "failed <= limit", "failed <= limit + 1"),
    Bug("fail_fast does not wait", fanout.child_settled, " and not fan.tolerates_failures()", ""),
    Bug(
        "a fan-out closes before its last child",
        fanout.child_settled,
        "fan.open == 0:",
        "fan.open <= 1 and setattr(fan, 'open', 0) is None:",
    ),
    Bug(
        "a fan-out closes before all children are made",
        fanout.close_if_done,
        "fan.expanded < total and not ended_early",
        "False",
    ),
    Bug(
        "a stopped fan-out is not stored as such",
        fanout.stop_children,
        "step.job.changed.append(fan)",
        "pass",
    ),
    Bug(
        "an ending fan-out keeps its timer", job_completion.cancel_remaining, "node.close_admission()", "pass"
    ),
    Bug(
        "one attempt more than max_attempts",
        apply._task_failed,
        "failed_attempts >= spec",
        "failed_attempts > spec",
    ),
    Bug("an ending job tries again", apply._task_failed, "or step.job.ending\n", "\n"),
    Bug(
        "lost counts as a try",
        apply._task_lost,
        "node.lost_attempts += 1",
        "node.lost_attempts += 1; node.failed_attempts += 1",
    ),
    Bug("a cancelled node is dispatched again", apply._end_stopped, "if node.stopped:", "if False:"),
    Bug("the cancel of a node is not stored", node_cancels._cancel, "job.changed.append(node)", "pass"),
    Bug(
        "a cancelled child frees a slot that it did not have",
        node_cancels._cancel,
        "node.parent.active += 1",
        "pass",
    ),
    Bug(
        "a cancelled node stays in the backlog", node_cancels._cancel, "job.backlog.discard(node.id)", "pass"
    ),
    Bug(
        "a node that is being stopped is cancelled once more",
        node_cancels._reason_against,
        "(node.stopped or is_stopping(job, node))",
        "False",
    ),
    Bug(
        "the first failure decides which of the named nodes are cancelled",
        node_cancels.cancel_nodes,
        "_cancel(step, node,",
        "_reason_against(job, node) is None and _cancel(step, node,",
    ),
    Bug("a group is cancelled instead of its members", node_cancels._targets, "if not inner:", "if True:"),
    Bug(
        "a cancelled fan-out does not fail",
        fanout.close_if_done,
        "fan.cancel_request is not None and",
        "False and",
    ),
    Bug(
        "a fan-out that has not started again starts children",
        fanout.child_settled,
        "and fan.status is NodeStatus.RUNNING",
        "",
    ),
    Bug(
        "a fan-out is not retried because one of its children is",
        reruns._Plan.reopen,
        "in self.planned",
        "in self.reopened",
    ),
    Bug(
        "only the first named node is retried",
        reruns.retry,
        "dict.fromkeys(named)",
        "list(dict.fromkeys(named))[:1]",
    ),
    Bug(
        "a refusal does not know of the stop",
        apply._fail_or_cancel,
        "not _end_stopped(step, node, error)",
        "True",
    ),
    Bug("timers fire early", apply._timer_fired, " or step.now < node.wake_at", ""),
    Bug(
        "a cancel leaves pauses open",
        job_completion.cancel_remaining,
        "in NOT_STARTED_NODE:",
        "in NOT_STARTED_NODE - {NodeStatus.WAITING}:",
    ),
    Bug("a cancel skips", job_completion.end_before_start, "if step.job.cancel_requested:", "if False:"),
    Bug("finish_running stops", step.Step.fail, "is OnFailure.CANCEL_RUNNING", "is not OnFailure.CONTINUE"),
    Bug(
        "a deadline lets what runs finish", apply._timer_fired, "step.end(stop=True)", "step.end(stop=False)"
    ),
    Bug("a signal is taken twice", approvals_and_waits.wait_for_signal, "signals.pop(name)", "signals[name]"),
    Bug("upstream is the last", node_start._upstream, "min(satisfied", "max(satisfied"),
    Bug(
        "upstream is any leaf",
        node_start._upstream,
        "is_satisfied(leaf, gate)",
        "job.nodes[leaf.node].finished_seq",
    ),
    Bug(
        "resume runs completed nodes again",
        model.is_unsuccessful,
        "node.status is NodeStatus.CANCELLED",
        "node.is_terminal",
    ),
    Bug(
        "attempts restart",
        fanout.reset,
        "node.failed_attempts = 0",
        "node.failed_attempts = node.attempt = 0",
    ),
    Bug("budgets are kept", fanout.reset, "node.failed_attempts = 0", "pass"),
    Bug(
        "a new run is still ending",
        reruns._open_run,
        "job.deadline_passed = job.ending = job.stopping",
        "job.deadline_passed",
    ),
    Bug(
        "retry opens the fan-out's other failures",
        reruns._Plan._reopen_parent,
        "self.reopened[fan] = None",
        "self.reopen(fan)",
    ),
    Bug(
        "a rebuilt fan-out forgets its cursor",
        model.FanOut.recount,
        "self.cursor = next(",
        "self.cursor = len(children) or next(",
    ),
    Bug(
        "a rebuilt fan-out forgets that it was stopped",
        model.Job._restore,
        "node.stopped = row.stopped",
        "pass",
    ),
    Bug("a rebuilt job forgets that it is ending", model.Job.rebuild, "job.ending = row.ending", "pass"),
    Bug(
        "nodes that are added while a job ends are lost",
        apply._task_succeeded,
        "if event.added is not None:",
        "if event.added is not None and not step.job.ending:",
    ),
    Bug(
        "a group completes before its new members",
        groups.with_members,
        "(*group.requires.members, *leaves)",
        "leaves",
    ),
    Bug(
        "a member does not wait for its group",
        groups._GroupLinker._with_entry,
        "spec.group is None or ",
        "True or ",
    ),
    Bug(
        "any_of with a member counts as waiting for the group",
        groups._GroupLinker._waits_for_member,
        "if requires.kind is not GateKind.ALL and len(requires.members) > 1:",
        "if False:",
    ),
    Bug(
        "a dependency is added to a node that runs",
        growth._check_statuses,
        "if not (job.ending and is_unsuccessful(node)):",
        "if False:",
    ),
    Bug("what can never run is added", growth._check_sources, " == BROKEN", " == BROKEN and False"),
    Bug("cycles are added", growth._check_cycles, "if len(ordered) < len(affected):", "if False:"),
    Bug("all that is ready is started at once", advance._propagate, "tasks >= backlog.START_BATCH", "False"),
    Bug(
        "a rebuilt job forgets its backlog",
        model.Job._derive_gates,
        "ready if self.status is JobStatus.RUNNING else ()",
        "()",
    ),
    Bug(
        "an ending job keeps its backlog", job_completion.cancel_remaining, "job.backlog.replace(())", "pass"
    ),
    Bug("a task after any_of can wait", backlog.can_wait, "gate.kind is GateKind.ANY", "False"),
    Bug(
        "a retry leaves the group of a node complete",
        reruns._Plan._reopen_groups,
        ".is_terminal",
        ".is_terminal and False",
    ),
    Bug("a group is redone without its members", reruns.resume, ", *_members(job, node_id))", ",)"),
    Bug(
        "a fan-in forgets the members of a group",
        node_start._sources,
        "all_members(job.graph.specs, source)",
        "[source]",
    ),
]


@contextmanager
def planted(bug: Bug) -> Iterator[None]:
    """Let everybody who holds the function have the bug."""
    source = textwrap.dedent(inspect.getsource(bug.where))
    assert source.count(bug.right) == 1, f"{bug.where.__qualname__} has changed: plant this bug again"
    result: dict[str, Any] = dict(bug.where.__globals__)
    exec(
        compile(
            source.replace(bug.right, bug.wrong),
            f"<{bug.says}>",
            "exec",
            dont_inherit=True,
            flags=ANNOTATIONS,
        ),
        result,
    )
    function = bug.where.__func__ if inspect.ismethod(bug.where) else bug.where
    changed = result[function.__name__]
    healthy = function.__code__
    function.__code__ = (changed.__func__ if isinstance(changed, classmethod) else changed).__code__
    try:
        yield
    finally:
        function.__code__ = healthy


def first_seed_that_goes_wrong(seeds: Iterable[int]) -> int | None:
    for seed in seeds:
        try:
            live_a_life(Seeded(seed), steps=STEPS)
        except Exception:  # noqa: BLE001 - a planted bug may crash in any way
            return seed
    return None


def test_seeds_of_bugs_are_tried_first():
    assert NOTICED_BY.keys() <= {bug.says for bug in BUGS}


def test_planting_itself_breaks_nothing():
    with ExitStack() as stack:
        for where in dict.fromkeys(bug.where for bug in BUGS):
            name = f"def {where.__name__}("
            stack.enter_context(planted(Bug("nothing is wrong", where, name, name)))
        assert first_seed_that_goes_wrong(SEEDS[:50]) is None


@pytest.mark.parametrize("bug", BUGS, ids=[bug.says for bug in BUGS])
def test_a_planted_bug_is_noticed(bug):
    with planted(bug):
        seed = first_seed_that_goes_wrong([NOTICED_BY.get(bug.says, 0), *SEEDS])
    assert seed is not None, f"no check noticed that {bug.says}"
    # It is the bug that was noticed: without it the same history goes well.
    live_a_life(Seeded(seed), steps=STEPS)
