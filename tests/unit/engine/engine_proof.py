"""One job, three ways: the engine, the engine after a crash before every step, and the reference; and what must agree."""

from __future__ import annotations

from collections import defaultdict
from contextlib import contextmanager
from dataclasses import replace
from typing import TYPE_CHECKING, Any
from unittest import mock

from dagmaster.engine import backlog, fanout
from dagmaster.engine import events as ev
from dagmaster.engine.advance import advance, pending_needs
from dagmaster.engine.decisions import (
    REPORTED,
    AcceptCancel,
    AddNodes,
    Cancel,
    Complete,
    Decision,
    Fail,
    FinishJob,
    Ignore,
    Need,
    RejectResult,
    Reopen,
    Withdraw,
)
from dagmaster.engine.graph import ApprovalSpec, FanInSpec, Graph, Spec, TaskSpec, WaitSpec, WorkflowSpec
from dagmaster.engine.groups import is_group_start
from dagmaster.engine.invariants import violations
from dagmaster.engine.model import FanOut, Job, Node, fails_job, is_dormant, row_of
from dagmaster.engine.status import TERMINAL_JOB, JobStatus, NodeStatus
from dagmaster.testing import Driver
from tests.unit.engine.random_workflows import BOOM, Chance, Workflows, answers, happens, pick, reports
from tests.unit.engine.reference_engine import Reference

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

    from dagmaster.engine.growth import NodeBatch

MAX_STEPS_TO_THE_END = 400
MAX_NODES = 12


@contextmanager
def batches_of(size: int) -> Iterator[None]:
    """So many children are made in a step, and one task fewer is started: a job of these tests has few at once."""
    with mock.patch.object(fanout, "EXPAND_BATCH", size), mock.patch.object(backlog, "START_BATCH", size - 1):
        yield


class Proof:
    """A job whose every step is compared with the reference, and with itself after a reload."""

    def __init__(self, graph: Graph, written: Mapping[str, Spec], *, batch: int) -> None:
        self.driver = Driver(Job("job", graph))
        self.reloaded = self.driver.rebuild()
        self.reference = Reference(graph, written.values(), batch=batch)
        self.needs: dict[str | None, Need] = {}
        self.withdrawn: list[ev.EngineEvent] = []
        self.history: list[ev.EngineEvent] = []

    @property
    def job(self) -> Job:
        return self.driver.job

    @property
    def is_over(self) -> bool:
        return self.job.status in TERMINAL_JOB

    # ── One step, and what must hold after it ──

    def step(self, event: ev.EngineEvent, output: Any = None) -> list[Decision]:
        self.history.append(event)
        twin = self.reloaded
        before = max((node.finished_seq or 0 for node in self.job.nodes.values()), default=0)
        self.check_outstanding(twin)
        decided = self.driver.step(event, output=output)
        again = advance(twin, event, self.driver.now)
        expected = self.reference.advance(event, self.driver.now, self.order_of(decided))
        self.check_decisions(decided, expected)
        self.check_states()
        self.check_order(decided, before)
        assert violations(self.job) == []
        assert again == decided, "a rebuilt job decides differently"
        assert {node.id: row_of(node) for node in twin.nodes.values()} == self.driver.rows()
        assert twin.row() == self.job.row()
        assert self.driver.stored == self.driver.rows(), "something changed and was not marked as changed"
        # The twin of the next step: nothing changes between two steps.
        self.reloaded = self.driver.rebuild()
        assert derived(self.reloaded) == derived(self.job)
        self.remember(decided)
        return decided

    def order_of(self, decided: list[Decision]) -> list[str]:
        """Who went first, as far as one can see. A fan-out that goes on with its old children starts without a word."""
        named = [(decision, getattr(decision, "node", None)) for decision in decided]
        fans = {node.id: node for node in self.job.nodes.values() if isinstance(node, FanOut) and node.total}
        silent = [
            node_id
            for place, (decision, node_id) in enumerate(named)
            if node_id in fans
            and (isinstance(decision, Cancel) or (isinstance(decision, Fail) and fans[node_id].stopped))
            # One that is cancelled before it starts comes before its children.
            and not any((other or "").startswith(f"{node_id}__") for _, other in named[place:])
        ]
        return silent + [node_id for _, node_id in named if node_id is not None]

    def check_decisions(self, decided: list[Decision], target: list[Decision]) -> None:
        """Check that the decisions are the same, and those of a node in the same order."""
        result, expected = by_node(decided), by_node(target)
        assert result == expected

    def check_states(self) -> None:
        nodes = {
            node.id: facts(node, node.total if isinstance(node, FanOut) else None)
            for node in self.job.nodes.values()
        }
        expected = {node.id: facts(node, node.total) for node in self.reference.nodes.values()}
        assert nodes == expected
        assert job_facts(self.job) == job_facts(self.reference)

    def check_order(self, decided: list[Decision], before: int) -> None:
        """Check that later settled nodes have later numbers, and that upstream is the node that settled first."""
        seqs = {
            node.id: node.finished_seq for node in self.job.nodes.values() if node.finished_seq is not None
        }
        settled = [d.node for d in decided if type(d).__name__ in ("Complete", "Skip", "Fail", "Cancel")]  # type: ignore[union-attr]
        if not any(isinstance(decision, Reopen) for decision in decided):
            assert all(seqs[node_id] > before for node_id in settled if node_id is not None)
        numbers = [seqs[node_id] for node_id in settled if node_id is not None]
        assert numbers == sorted(numbers)
        before = min(numbers, default=max(seqs.values(), default=0) + 1) - 1
        for node_id in self.reference.began:
            upstream = self.job.nodes[node_id].upstream
            gate = self.job.nodes[node_id].spec.requires
            choices = self.reference.upstream_choices(node_id, gate, seqs, before)
            assert upstream in choices, f"upstream of {node_id}"
            self.reference.nodes[node_id].upstream = upstream
        for decision in decided:
            if isinstance(decision, FinishJob) and (decision.error or {}).get("kind") == "node_failed":
                failed = [node for node in self.job.nodes.values() if fails_job(node)]
                first = min(failed, key=lambda node: node.finished_seq or 0)
                assert (decision.error or {})["node"] == first.id

    def check_outstanding(self, twin: Job) -> None:
        """After a reload, exactly the unanswered needs are requested again."""
        asked = {need.node: set(need.refs) for need in pending_needs(twin) if isinstance(need, Need)}
        assert asked.keys() == self.needs.keys()
        for node_id, need in self.needs.items():
            # A fan-in after an `any_of` may find more by now; and less, when a node before it was retried.
            if node_id is None or not isinstance(self.job.nodes[node_id].spec, FanInSpec):
                assert asked[node_id] == set(need.refs)

    def remember(self, decided: list[Decision]) -> None:
        for decision in decided:
            if isinstance(decision, Need):
                self.needs[decision.node] = decision
            elif isinstance(decision, Withdraw):
                self.withdrawn.append(decision.then)
        for node_id in list(self.needs):
            waits_for_result = self.job.status is JobStatus.RUNNING and self.job.open == 0
            if not (
                waits_for_result if node_id is None else self.job.nodes[node_id].status is NodeStatus.READY
            ):
                del self.needs[node_id]

    def crash(self) -> None:
        """Go on with the job as it was stored."""
        self.driver.job = self.driver.rebuild()

    # ── What can happen next ──

    def sensible(self, chance: Chance) -> list[tuple[ev.EngineEvent, float]]:
        """Return the events that the world owes this job, each with its time."""
        now = self.driver.now
        result: list[tuple[ev.EngineEvent, float]] = [
            (self.answer(chance, need), now) for need in self.needs.values()
        ]
        if self.job.status is JobStatus.PENDING:
            result.append((ev.JobStarted(), now))
        if self.job.deadline_at is not None and happens(chance, 5):
            result.append((ev.TimerFired(), self.job.deadline_at))
        for node in self.job.nodes.values():
            if node.status in (NodeStatus.DISPATCHED, NodeStatus.RUNNING) and not isinstance(node, FanOut):
                result.append((self.report(chance, node), now))
            elif node.status is NodeStatus.WAITING and _has_outsiders(node.spec):
                result.append((answers(chance, node.id, node.spec), now))
            if node.wake_at is not None:
                result.append((ev.TimerFired(node.id), max(now, node.wake_at)))
        result += [(ev.BacklogDue(), now)] if self.job.backlog else []
        result += [(event, now) for event in self.withdrawn]
        return result

    def report(self, chance: Chance, node: Node) -> ev.EngineEvent:
        report = reports(chance, node.id, node.spec, node.attempt)
        if isinstance(report, ev.TaskSucceeded) and happens(chance, 10):
            return replace(report, added=self.batch(chance))
        return report

    def batch(self, chance: Chance) -> NodeBatch | None:
        """Return a batch of nodes to add; None if the job has enough."""
        nodes = (
            node for node in self.job.nodes.values() if node.parent is None and not is_group_start(node.id)
        )
        specs = {node.id: node.spec for node in nodes}
        return Workflows(chance).added(specs) if len(specs) < MAX_NODES else None

    def answer(self, chance: Chance, need: Need) -> ev.EngineEvent:
        if happens(chance, 8):
            return ev.ResolutionFailed(need.node, "source.x", "missing")
        return self.driver.answer(need)

    def odd(self, chance: Chance) -> tuple[ev.EngineEvent, float]:
        """Return an event that should never be sent, or rarely."""
        now = self.driver.now
        nodes = list(self.job.nodes.values())
        node = pick(chance, nodes)
        attempt = max(0, node.attempt + pick(chance, [-1, 0, 1]))
        is_attempted = isinstance(node.spec, TaskSpec | WorkflowSpec)
        options: list[ev.EngineEvent] = [
            ev.CancelRequested(),
            ev.RetryRequested((node.id,)),
            ev.RetryRequested((node.id, pick(chance, nodes).id)),
            self.cancel_of_nodes(chance),
            ev.ResumeRequested(),
            ev.JobStarted(),
            ev.BacklogDue(),
            ev.TimerFired(node.id),
            ev.TimerFired(),
            ev.SignalReceived(pick(chance, ["go", "stop", "other"]), {"n": chance.number(0, 2)}),
            answers(chance, node.id, node.spec),
            reports(chance, node.id, node.spec, attempt)
            if is_attempted
            else ev.TaskSucceeded(node.id, attempt),
            reports(chance, node.id, node.spec, attempt)
            if is_attempted
            else ev.TaskReleased(node.id, attempt),
            ev.ValuesLoaded(None, self.driver.scope(None)),
            ev.ItemsReinjected(node.id, (0,)),
            ev.TaskFailed("nobody", 1, BOOM),
            ev.ResolutionFailed(None, "outputs", "missing"),
        ]
        batch = None if self.is_over else self.batch(chance)
        options += (
            []
            if batch is None
            else [ev.NodesAdded(batch), ev.NodesAdded(batch, node.id), ev.NodesAdded(batch)]
        )
        if not is_dormant(node):
            options.append(ev.ValuesLoaded(node.id, self.driver.scope(node.id)))
        options.append(ev.ResolutionFailed(node.id, "params", "missing"))
        if self.history:
            options.append(pick(chance, self.history))
        return pick(chance, options), now

    def cancel_of_nodes(self, chance: Chance) -> ev.EngineEvent:
        """Return a cancel of some nodes: mostly of unfinished ones."""
        nodes = list(self.job.nodes.values())
        unfinished = [node for node in nodes if not node.is_terminal] or nodes
        named = [pick(chance, unfinished).id for _ in range(chance.number(1, 3))]
        return ev.NodeCancelRequested(
            (*named, pick(chance, nodes).id) if happens(chance, 30) else tuple(named), "ada"
        )

    def reopening(self, chance: Chance) -> ev.EngineEvent:
        """Return an event that opens a new run."""
        nodes = [node for node in self.job.nodes.values() if not is_dormant(node)]
        failed = [node for node in nodes if node.status in (NodeStatus.FAILED, NodeStatus.CANCELLED)]
        fans = [node for node in nodes if isinstance(node, FanOut) and node.expanded]
        options: list[ev.EngineEvent] = [ev.ResumeRequested()]
        options.append(ev.ResumeRequested((pick(chance, nodes).id,)))
        options.append(ev.ResumeRequested((pick(chance, nodes).id, pick(chance, nodes).id)))
        if failed:
            options += [ev.RetryRequested((pick(chance, failed).id,))] * 2
            options.append(ev.RetryRequested(tuple(pick(chance, failed).id for _ in range(3))))
        if fans:
            fan = pick(chance, fans)
            assert isinstance(fan, FanOut)
            indexes = {chance.number(0, fan.expanded - 1) for _ in range(chance.number(1, 2))}
            options += [ev.ItemsReinjected(fan.id, tuple(sorted(indexes)))] * 2
        return pick(chance, options)

    # ── Histories ──

    def live(self, chance: Chance, *, steps: int) -> None:
        """So many random events."""
        batch = self.batch(chance) if happens(chance, 10) else None
        if batch is not None:
            self.happen(ev.NodesAdded(batch), self.driver.now, chance)
        self.happen(ev.JobStarted(), self.driver.now, chance)
        for _ in range(steps):
            options = self.sensible(chance)
            if self.is_over:
                if happens(chance, 40):
                    self.happen(self.reopening(chance), self.driver.now, chance)
                else:
                    self.happen(*self.odd(chance), chance)
            elif not options or happens(chance, 22):
                self.happen(*self.odd(chance), chance)
            elif happens(chance, 3):
                self.happen(self.cancel_of_nodes(chance), self.driver.now, chance)
            else:
                self.happen(*pick(chance, options), chance)

    def happen(self, event: ev.EngineEvent, at: float, chance: Chance) -> None:
        self.driver.now = at
        output = {"n": chance.number(0, 3), "l": list(range(chance.number(0, 3)))}
        self.step(event, output)
        if happens(chance, 15):
            self.crash()

    def live_to_the_end(self, chance: Chance) -> None:
        """From wherever it stands, a job ends when the world does what it owes it."""
        for _ in range(MAX_STEPS_TO_THE_END):
            if self.is_over:
                return
            self.withdrawn.clear()
            options = self.sensible(chance)
            assert options, "nothing can happen any more, and the job is not over"
            self.happen(*options[chance.number(0, len(options) - 1)], chance)
        raise AssertionError(f"not over after {MAX_STEPS_TO_THE_END} steps: {self.driver.statuses()}")


def _has_outsiders(spec: Spec) -> bool:
    return isinstance(spec, ApprovalSpec) or (isinstance(spec, WaitSpec) and spec.signal is not None)


# ── What is compared ────────────────────────────────────────────────────────────────────────────────────────────────


_OF_THE_JOB = AddNodes | AcceptCancel | Reopen | FinishJob | Ignore


def by_node(decided: list[Decision]) -> dict[str | None, list[Any]]:
    result: dict[str | None, list[Any]] = defaultdict(list)
    for decision in decided:
        node = None if isinstance(decision, _OF_THE_JOB) else decision.node
        result[node].append(essence(decision))
    return dict(result)


def essence(decision: Decision) -> tuple[Any, ...]:
    """Return a decision without its texts for people."""
    name = type(decision).__name__
    match decision:
        case Need(refs=names) | AddNodes(nodes=names):
            return name, frozenset(names)
        case Complete(output=output, reused=reused, attempt=attempt):
            return name, "reported" if output is REPORTED else output, attempt if reused is None else None
        case Fail(error=error) | RejectResult(error=error):
            return name, error["kind"]
        case Withdraw(attempt=attempt, then=then):
            return name, attempt, type(then).__name__
        case Reopen(run=number, nodes=nodes) | AcceptCancel(skipped=number, nodes=nodes):
            return name, number, frozenset(nodes)
        case FinishJob(status=status, result=result, error=error):
            return name, status, result, None if error is None else error["kind"]
        case Ignore():
            return (name,)
    values = (getattr(decision, slot) for slot in type(decision).__slots__ if slot != "node")
    # What a node waits for is written in a spec of the reference, and linked in one of the engine.
    return name, *(replace(value, requires=None) if isinstance(value, Spec) else value for value in values)


def facts(node: Any, total: int | None) -> tuple[Any, ...]:
    return (
        node.status,
        node.skip_reason,
        node.attempt,
        node.failed_attempts,
        node.lost_attempts,
        node.shared_losses,
        node.branch,
        node.wake_at,
        total,
        getattr(node, "expanded", 0),
        # Whether a fan-out that is over was also told to stop depends on who was told first, and means nothing.
        getattr(node, "stopped", False) and node.status is NodeStatus.RUNNING,
        (node.error or {}).get("kind") if node.status is NodeStatus.FAILED else None,
    )


def job_facts(job: Any) -> tuple[Any, ...]:
    flags = (job.cancel_requested, job.deadline_at, job.deadline_passed, job.ending, job.stopping)
    return job.status, job.run, job.signals, *flags


def derived(job: Job) -> dict[str, Any]:
    """Everything of a job that is not stored."""
    result: dict[str, Any] = {
        "job": (job.open, job.failed, job.finish_seq, job.children_made, job.ending, job.stopping),
        "wiring": (job.graph.wiring.leaves, job.graph.wiring.dependents, job.graph.wiring.waits),
        "specs": job.graph.specs,
        "backlog": set(job.backlog),
    }
    for node in job.nodes.values():
        if isinstance(node, FanOut):
            children = node.children[: node.expanded]
            cursor = next((child.index for child in children[node.cursor :] if is_pending(child)), None)
            counters = (node.open, node.active, node.completed, node.failed, node.stopped, cursor)
            result[node.id] = (len(node.children), *counters)
        elif node.parent is None and is_pending(node):
            result[node.id] = settled_gates(job, node)
    return result


def settled_gates(job: Job, node: Node) -> list[Any]:
    """Return the outcome of each gate, with the counters of open ones."""
    gates = job.gates(node.id)
    counts = job.counts.get(node.id) or [0] * (4 * len(gates))
    return [counts[base] or counts[base : base + 4] for base in range(0, 4 * len(gates), 4)]


def is_pending(node: Node) -> bool:
    return node.status is NodeStatus.PENDING
