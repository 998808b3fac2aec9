"""A naive engine, written from docs/explanation/semantics.md and nothing else.

It keeps a dict of states, remembers no counter, and after each event rescans everything until nothing changes. It
shares with the real engine the specs, the events, the decisions and the words for a status: no line of logic.

Where the documents leave an order open (which of several ready nodes starts first in one step), it follows the order it
is given; whatever that is, the outcome must be one that the documents allow.
"""

from __future__ import annotations

import math
import re
from dataclasses import dataclass, replace
from datetime import UTC, datetime
from fractions import Fraction
from typing import TYPE_CHECKING, Any

from dagmaster.engine import decisions as d
from dagmaster.engine import events as ev
from dagmaster.engine import graph as g
from dagmaster.engine.retry import Backoff
from dagmaster.engine.status import JobStatus, NodeStatus, SkipReason
from dagmaster.errors import EvaluationFailed

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping

    from dagmaster.engine.growth import NodeBatch

OVER = {NodeStatus.COMPLETED, NodeStatus.FAILED, NodeStatus.SKIPPED, NodeStatus.CANCELLED}
JOB_OVER = {JobStatus.COMPLETED, JobStatus.FAILED, JobStatus.CANCELLED}
NOT_STARTED = {NodeStatus.PENDING, NodeStatus.READY, NodeStatus.WAITING}
HELD = {NodeStatus.DISPATCHED, NodeStatus.RUNNING}

SATISFIED, NOT_TAKEN, BROKEN, OPEN = "satisfied", "not_taken", "broken", "open"


@dataclass
class State:
    """What the documents say a node has."""

    id: str
    spec: g.Spec
    parent: str | None = None
    index: int = -1
    status: NodeStatus = NodeStatus.PENDING
    skip_reason: SkipReason | None = None
    attempt: int = 0
    failed_attempts: int = 0
    lost_attempts: int = 0
    shared_losses: int = 0
    upstream: str | None = None
    branch: str | None = None
    wake_at: float | None = None
    seq: int | None = None
    error: dict[str, Any] | None = None
    total: int | None = None
    expanded: int = 0
    stopped: bool = False
    is_named: bool = False
    links: tuple[g.Leaf, ...] = ()

    @property
    def allows_failure(self) -> bool:
        # A child counts for its fan-out, and nothing depends on it.
        return self.parent is None and isinstance(self.spec, g.TaskSpec) and self.spec.allow_failure


class Reference:
    """A job, as naive as can be."""

    def __init__(self, graph: g.Graph, written: Iterable[g.Spec], *, batch: int) -> None:
        self.graph = graph
        self.batch = batch
        self.nodes: dict[str, State] = {}
        self.known_needs: dict[str, g.Gate | None] = {}
        self.put(written)
        self.status = JobStatus.PENDING
        self.run = 1
        self.cancel_requested = False
        self.deadline_at: float | None = None
        self.deadline_passed = False
        self.ending = False
        self.stopping = False
        self.signals: dict[str, Any] = {}
        self.asked_to_stop: set[tuple[str, int]] = set()
        # Tasks that could start, and are left to a later step.
        self.backlog: set[str] = set()
        # Of the step under way.
        self.now = 0.0
        self.out: list[d.Decision] = []
        self.rank: dict[str, int] = {}
        self.at_once: set[str] = set()
        self.began: list[str] = []
        self.sweep_due = False
        self.tasks_started = 0
        self.held_back: set[str] = set()

    # ── The step ──

    def advance(self, event: ev.EngineEvent, now: float, order: Iterable[str] = ()) -> list[d.Decision]:
        """Return what `advance` must decide; `order` says which of several ready nodes starts first."""
        self.now, self.out, self.at_once, self.began, self.sweep_due = now, [], set(), [], False
        self.tasks_started, self.held_back = 0, set(self.backlog)
        self.rank = {}
        for place, node_id in enumerate(order):
            parts = [node_id] if node_id.endswith("__start") else node_id.split("__")
            for depth in range(1, len(parts) + 1):
                self.rank.setdefault("__".join(parts[:depth]), place)
        reopening = isinstance(event, ev.ResumeRequested | ev.RetryRequested | ev.ItemsReinjected)
        if self.status in JOB_OVER and not reopening:
            self.ignore()
            return self.out
        self.react(event)
        while self.something_follows():
            pass
        is_running = self.status is JobStatus.RUNNING and not self.ending
        self.backlog = {node.id for node in self.satisfied() if self.can_wait(node)} if is_running else set()
        ignored = any(isinstance(decision, d.Ignore) for decision in self.out)
        if self.status is JobStatus.RUNNING and self.all_over() and not ignored:
            self.conclude()
        return self.out

    def something_follows(self) -> bool:
        """One thing that follows from where everything stands. Starting something comes last."""
        return self.skip_one() or self.close_one() or self.sweep() or self.start_one()

    def skip_one(self) -> bool:
        for node in self.top_level():
            if node.status is NodeStatus.PENDING and self.gate(self.needs(node)) in (BROKEN, NOT_TAKEN):
                broken = self.gate(self.needs(node)) == BROKEN
                reason = SkipReason.UPSTREAM_FAILED if broken else SkipReason.NOT_TAKEN
                self.skip(node, reason)
                for child in self.descendants(node):
                    if child.status not in OVER:
                        self.skip(child, reason)
                return True
        return False

    def close_one(self) -> bool:
        for fan in self.live():
            if not isinstance(fan.spec, g.FanOutSpec) or fan.status is not NodeStatus.RUNNING:
                continue
            children = self.children(fan)
            # First everything that has not started is swept; then a fan-out is cut short.
            cut_short = fan.stopped or (self.ending and not self.sweep_due)
            to_come = fan.expanded < (fan.total or 0) and not cut_short
            if to_come or any(child.status not in OVER for child in children):
                continue
            worked_out = [
                child for child in children if child.status in (NodeStatus.COMPLETED, NodeStatus.FAILED)
            ]
            is_cut_short = len(worked_out) < (fan.total or 0)
            if fan.is_named and (is_cut_short or not self.tolerates(fan)):
                self.fail(fan, "cancelled")
            elif not self.tolerates(fan):
                self.fail(fan, "children_failed")
            elif is_cut_short:
                self.cancel(fan)
            else:
                self.complete(fan, {"fan_out_count": fan.total})
            return True
        return False

    def sweep(self) -> bool:
        if not self.sweep_due:
            return False
        self.sweep_due = False
        for node in self.live():
            if node.status in NOT_STARTED:
                if self.cancel_requested:
                    self.cancel(node)
                else:
                    self.skip(node, SkipReason.JOB_FAILED)
            elif isinstance(node.spec, g.FanOutSpec):
                node.wake_at = None
            elif node.status in HELD and self.stopping:
                self.stop_attempt(node)
            elif node.status is NodeStatus.DISPATCHED:
                self.out.append(d.Withdraw(node.id, node.attempt, ev.TaskReleased(node.id, node.attempt)))
        return True

    def start_one(self) -> bool:
        if self.ending:
            return False
        is_full = self.tasks_started >= self.batch - 1
        ready = [
            node
            for node in self.satisfied()
            if node.id not in self.held_back and not (is_full and self.can_wait(node))
        ]
        ready += [self.nodes[node_id] for node_id in self.at_once]
        for fan in self.live():
            if isinstance(fan.spec, g.FanOutSpec) and fan.status is NodeStatus.RUNNING and not fan.stopped:
                children = self.children(fan)
                waiting = [child for child in children if child.status is NodeStatus.PENDING]
                under_way = [child for child in children if child.status not in OVER and child not in waiting]
                if waiting and len(under_way) < (fan.spec.max_parallel or math.inf):
                    ready.append(waiting[0])
        if not ready or self.status is not JobStatus.RUNNING:
            return False
        chosen = min(ready, key=lambda node: self.rank.get(node.id, math.inf))
        self.tasks_started += chosen.status is NodeStatus.PENDING and self.can_wait(chosen)
        self.start(chosen)
        return True

    def satisfied(self) -> list[State]:
        pending = [node for node in self.top_level() if node.status is NodeStatus.PENDING]
        return [node for node in pending if self.gate(self.needs(node)) == SATISFIED]

    def can_wait(self, node: State) -> bool:
        """Return whether a node may start in a later step: a task that nothing can reach in another way meanwhile."""
        is_task = node.parent is None and isinstance(node.spec, g.TaskSpec)
        return is_task and not self.has_any_of(self.needs(node))

    def has_any_of(self, gate: g.Gate | g.Leaf | None) -> bool:
        members = gate.members if isinstance(gate, g.Gate) else ()
        return getattr(gate, "kind", None) is g.GateKind.ANY or any(map(self.has_any_of, members))

    def on_backlog_due(self, _: ev.BacklogDue) -> None:
        if not self.backlog:
            self.ignore()
        in_order = sorted(self.backlog, key=lambda node_id: (len(node_id), node_id))
        self.held_back = set(in_order[self.batch - 1 :])

    # ── Groups ──

    def put(self, specs: Iterable[g.Spec]) -> list[State]:
        """Add nodes; a group that waits for more than one node has another one that joins them."""
        new = [State(spec.id, spec) for spec in specs]
        self.nodes |= {node.id: node for node in new}
        self.known_needs.clear()
        for group in [node for node in new if isinstance(node.spec, g.GroupSpec)]:
            needs = self.written_needs(group)
            if needs is not None and len(set(needs.leaves())) > 1:
                start = State(f"{group.id}__start", g.GroupSpec(id=f"{group.id}__start"))
                self.nodes[start.id] = start
                new.append(start)
        self.known_needs.clear()
        return new

    def needs(self, node: State) -> g.Gate | None:
        """Return what a node waits for."""
        if node.id not in self.known_needs:
            self.known_needs[node.id] = self.all_of(self.own_needs(node), node.links)
        return self.known_needs[node.id]

    def own_needs(self, node: State) -> g.Gate | None:
        if node.id.endswith("__start"):
            return self.written_needs(self.nodes[node.id.removesuffix("__start")])
        if not isinstance(node.spec, g.GroupSpec):
            return self.written_needs(node)
        members = self.members(node)
        if members:
            return g.Gate(g.GateKind.JOIN, tuple(g.Leaf(member.id) for member in members))
        return self.all_of(None, self.entry(node))

    def members(self, group: State) -> list[State]:
        return [node for node in self.top_level() if node.spec.group == group.id]

    def members_at_any_depth(self, group: State) -> list[State]:
        return [
            each for member in self.members(group) for each in (member, *self.members_at_any_depth(member))
        ]

    def groups_around(self, node: State) -> list[State]:
        top = (self.ancestors(node) or [node])[-1]
        if top.spec.group is None:
            return []
        group = self.nodes[top.spec.group]
        return [group, *self.groups_around(group)]

    def entry(self, group: State) -> tuple[g.Leaf, ...]:
        """Return the leaf, if any, that all members of a group wait for."""
        if f"{group.id}__start" in self.nodes:
            return (g.Leaf(f"{group.id}__start"),)
        needs = self.written_needs(group)
        return () if needs is None else tuple(set(needs.leaves()))

    def written_needs(self, node: State) -> g.Gate | None:
        """Return what was written for a node, and what its group waits for unless it waits for a member of that."""
        own = node.spec.requires
        if node.spec.group is None:
            return own
        group = self.nodes[node.spec.group]
        inside = {member.id for member in self.members_at_any_depth(group)}
        if own is not None and not inside.isdisjoint(self.surely_needed(own)):
            return own
        return self.all_of(own, self.entry(group))

    def surely_needed(self, gate: g.Gate | g.Leaf) -> set[str]:
        """Return the nodes without which a gate is never satisfied."""
        if isinstance(gate, g.Leaf):
            return {gate.node}
        members = [self.surely_needed(member) for member in gate.members]
        return set().union(*members) if gate.kind is g.GateKind.ALL or len(members) == 1 else set()

    @staticmethod
    def all_of(gate: g.Gate | None, more: tuple[g.Leaf, ...]) -> g.Gate | None:
        if gate is None or not more:
            return g.Gate(g.GateKind.ALL, more) if more else gate
        if gate.kind is g.GateKind.ALL:
            return g.Gate(g.GateKind.ALL, tuple(dict.fromkeys((*gate.members, *more))))
        return g.Gate(g.GateKind.ALL, (gate, *more))

    # ── Nodes that are added ──

    def on_nodes_added(self, event: ev.NodesAdded) -> None:
        if (self.ending and event.node is None) or not self.add(event.batch):
            self.ignore()

    def add(self, batch: NodeBatch) -> bool:
        """Add all of a batch, or nothing of it."""
        if not self.can_be_named(batch):
            return False
        links = {node.id: node.links for node in self.nodes.values()}
        changed = {target for target, _ in batch.links}
        changed |= {spec.group for spec in batch.specs if spec.group is not None}
        changed &= self.nodes.keys()
        wanted = [leaf for spec in batch.specs if spec.requires for leaf in spec.requires.leaves()]
        wanted += [leaf for _, leaf in batch.links]
        impossible = [leaf for leaf in wanted if leaf.node in self.nodes and self.leaf(leaf) == BROKEN]
        own = {
            spec.id: tuple(leaf for target, leaf in batch.links if target == spec.id) for spec in batch.specs
        }
        new = self.put(
            replace(spec, requires=self.all_of(spec.requires, own[spec.id])) for spec in batch.specs
        )
        for target, leaf in batch.links:
            self.nodes[target].links += () if target in own else (leaf,)
        self.known_needs.clear()
        started = [
            node_id
            for node_id in changed
            if self.nodes[node_id].status is not NodeStatus.PENDING
            and not (self.ending and self.did_not_work_out(self.nodes[node_id]))
        ]
        if started or self.has_cycle() or (impossible and not self.ending):
            for node in new:
                del self.nodes[node.id]
            for node in self.nodes.values():
                node.links = links[node.id]
            self.known_needs.clear()
            return False
        self.out.append(d.AddNodes(batch.numbers, tuple(node.id for node in new)))
        # A task that has to wait again is no longer one that could start.
        self.held_back -= {each for each in changed if self.gate(self.needs(self.nodes[each])) != SATISFIED}
        for node in new if self.ending else []:
            if self.cancel_requested:
                self.cancel(node)
            else:
                self.skip(node, SkipReason.JOB_FAILED)
        return True

    def can_be_named(self, batch: NodeBatch) -> bool:
        new = {spec.id: spec for spec in batch.specs}
        old = {node.id: node.spec for node in self.top_level()}
        known = old | new
        leaves = [leaf for spec in batch.specs if spec.requires for leaf in spec.requires.leaves()]
        groups = {spec.group for spec in batch.specs if spec.group is not None}
        return (
            len(new) == len(batch.specs)
            and new.keys().isdisjoint(old)
            and all(leaf.node in known for leaf in (*leaves, *(leaf for _, leaf in batch.links)))
            and all(isinstance(known.get(group), g.GroupSpec) for group in groups)
            and all(
                target in new or isinstance(old.get(target, g.GroupSpec(id="")), g.GroupSpec) is False
                for target, _ in batch.links
            )
            and not any(self.contains_itself(spec, known) for spec in batch.specs)
        )

    @staticmethod
    def contains_itself(spec: g.Spec, known: Mapping[str, g.Spec]) -> bool:
        inner, group = {spec.id}, spec.group
        while group is not None and group not in inner:
            inner.add(group)
            group = known[group].group
        return group is not None

    def has_cycle(self) -> bool:
        """Take away whatever waits for nothing that is left; a cycle stays."""
        left = {
            node.id: {leaf.node for leaf in gate.leaves()} if (gate := self.needs(node)) else set()
            for node in self.top_level()
        }
        while free := [node_id for node_id, before in left.items() if before.isdisjoint(left)]:
            for node_id in free:
                del left[node_id]
        return bool(left)

    # ── Leaves and gates ──

    def leaf(self, leaf: g.Leaf, seen: set[str] | None = None) -> str:
        node = self.nodes[leaf.node]
        if seen is not None and node.id not in seen:
            return OPEN
        if node.status is NodeStatus.COMPLETED:
            return SATISFIED if leaf.branch in (None, node.branch) else NOT_TAKEN
        if node.status is NodeStatus.FAILED:
            return SATISFIED if node.allows_failure else BROKEN
        if node.status is NodeStatus.CANCELLED:
            return BROKEN
        if node.status is NodeStatus.SKIPPED:
            return NOT_TAKEN if node.skip_reason is SkipReason.NOT_TAKEN else BROKEN
        return OPEN

    def gate(self, gate: g.Gate | g.Leaf | None, seen: set[str] | None = None) -> str:
        if gate is None:
            return SATISFIED
        if isinstance(gate, g.Leaf):
            return self.leaf(gate, seen)
        result = [self.gate(member, seen) for member in gate.members]
        if gate.kind is g.GateKind.ANY:
            return next(outcome for outcome in (SATISFIED, OPEN, BROKEN, NOT_TAKEN) if outcome in result)
        if BROKEN in result or OPEN in result:
            return BROKEN if BROKEN in result else OPEN
        if gate.kind is g.GateKind.ALL:
            return NOT_TAKEN if NOT_TAKEN in result else SATISFIED
        return SATISFIED if SATISFIED in result else NOT_TAKEN

    def counting_leaves(self, gate: g.Gate | g.Leaf, seen: set[str]) -> list[g.Leaf]:
        """Return the satisfied leaves whose gates are all satisfied."""
        if self.gate(gate, seen) != SATISFIED:
            return []
        if isinstance(gate, g.Leaf):
            return [gate]
        return [leaf for member in gate.members for leaf in self.counting_leaves(member, seen)]

    def upstream_choices(
        self, node_id: str, gate: g.Gate | None, seqs: Mapping[str, int], before: int
    ) -> set[str | None]:
        """Who `upstream` may be for a node that began in this step, whenever in the step that was."""
        if gate is None or self.nodes[node_id].parent is not None:
            return {None}
        leaves = gate.leaves()
        if gate.kind is g.GateKind.ALL and len(leaves) > 1:
            return {None}
        choices: set[str | None] = set()
        for cutoff in {before} | {seq for seq in seqs.values() if seq > before}:
            seen = {leaf.node for leaf in leaves if seqs.get(leaf.node, math.inf) <= cutoff}
            counting = self.counting_leaves(gate, seen)
            if counting:
                choices.add(min((leaf.node for leaf in counting), key=lambda each: seqs[each]))
        return choices

    # ── Events ──

    def react(self, event: ev.EngineEvent) -> None:
        words = re.findall("[A-Z][a-z]*", type(event).__name__)
        getattr(self, "on_" + "_".join(words).lower())(event)

    def on_job_started(self, _: ev.JobStarted) -> None:
        if self.status is not JobStatus.PENDING:
            self.ignore()
            return
        self.status = JobStatus.RUNNING
        self.set_deadline()

    def set_deadline(self) -> None:
        self.deadline_at = None
        if self.graph.deadline_seconds is not None:
            self.deadline_at = self.now + self.graph.deadline_seconds
            self.out.append(d.WaitUntil(None, self.deadline_at))

    def current(self, node_id: str, attempt: int) -> State | None:
        node = self.nodes.get(node_id)
        if node is None or node.attempt != attempt or attempt == 0 or node.status not in HELD:
            self.ignore()
            return None
        return node

    def was_asked_to_stop(self, node: State) -> bool:
        return (node.id, node.attempt) in self.asked_to_stop

    def on_task_succeeded(self, event: ev.TaskSucceeded) -> None:
        if node := self.current(event.node, event.attempt):
            if event.added is None or self.add(event.added):
                self.complete(node, d.REPORTED)
            else:
                node.failed_attempts += 1
                self.out.append(d.RejectResult(node.id, node.attempt, {"kind": "added_nodes"}))
                self.fail_or_cancel(node, "added_nodes")

    def on_result_reused(self, event: ev.ResultReused) -> None:
        node = self.nodes.get(event.node)
        if (
            node is None
            or isinstance(node.spec, g.FanOutSpec)
            or node.status not in {*HELD, NodeStatus.WAITING}
        ):
            self.ignore()
            return
        if node.status in HELD:
            # The attempt was not dispatched, and no worker was asked to stop it.
            self.asked_to_stop.discard((node.id, node.attempt))
            node.attempt -= 1
        node.error = None
        self.over(node, NodeStatus.COMPLETED, d.Complete(node.id, event.output, event.source))

    def on_task_failed(self, event: ev.TaskFailed) -> None:
        node = self.current(event.node, event.attempt)
        if node is None:
            return
        assert isinstance(node.spec, g.TaskSpec)
        node.failed_attempts += 1
        if event.error["kind"] in {"error", "boom"}:
            node.shared_losses = 0
        policy = node.spec.retry
        if self.was_asked_to_stop(node):
            self.end_stopped(node)
        elif event.permanent or node.failed_attempts >= policy.max_attempts or self.ending:
            self.fail(node, event.error["kind"])
        else:
            node.status = NodeStatus.READY
            assert not policy.jitter
            growth = {
                Backoff.FIXED: 1,
                Backoff.LINEAR: node.failed_attempts,
                Backoff.EXPONENTIAL: 2 ** (node.failed_attempts - 1),
            }
            delay = min(policy.initial_delay_seconds * growth[policy.backoff], policy.max_delay_seconds)
            self.wait_until(node, self.now + delay)

    def on_task_lost(self, event: ev.TaskLost) -> None:
        node = self.current(event.node, event.attempt)
        if node is None:
            return
        assert isinstance(node.spec, g.TaskSpec)
        if not event.alone and node.shared_losses < 10:
            node.shared_losses += 1
            self.released(node)
            return
        node.lost_attempts += 1
        self.out.append(d.ChargeLoss(node.id))
        if self.was_asked_to_stop(node):
            self.end_stopped(node)
        elif node.lost_attempts > node.spec.retry.max_lost or self.ending:
            self.fail(node, "lost")
        else:
            self.again(node)

    def on_task_released(self, event: ev.TaskReleased) -> None:
        node = self.current(event.node, event.attempt)
        if node is not None:
            self.released(node)

    def released(self, node: State) -> None:
        if self.was_asked_to_stop(node):
            self.end_stopped(node)
        elif self.ending:
            self.skip(node, SkipReason.JOB_FAILED)
        else:
            self.again(node)

    def again(self, node: State) -> None:
        node.status = NodeStatus.READY
        node.wake_at = None
        self.at_once.add(node.id)

    def on_dispatch_rejected(self, event: ev.DispatchRejected) -> None:
        node = self.current(event.node, event.attempt)
        if node is not None:
            self.fail_or_cancel(node, event.error["kind"])

    def on_child_job_finished(self, event: ev.ChildJobFinished) -> None:
        node = self.current(event.node, event.attempt)
        if node is None:
            return
        if event.status == "COMPLETED":
            self.complete(node, event.result)
        else:
            self.fail_or_cancel(node, "child_job")

    def fail_or_cancel(self, node: State, kind: str) -> None:
        if self.was_asked_to_stop(node):
            self.end_stopped(node)
        else:
            self.fail(node, kind)

    def end_stopped(self, node: State) -> None:
        """End a node that was asked to stop: it fails if it was cancelled itself, and not only with its job."""
        if node.is_named:
            self.fail(node, "cancelled")
        else:
            self.cancel(node)

    def on_timer_fired(self, event: ev.TimerFired) -> None:
        if event.node is None:
            if self.deadline_at is None or self.now < self.deadline_at:
                self.ignore()
                return
            self.deadline_at, self.deadline_passed = None, True
            self.end(stop=True)
            return
        node = self.nodes.get(event.node)
        if node is None or node.wake_at is None or self.now < node.wake_at:
            self.ignore()
            return
        node.wake_at = None
        spec = node.spec
        if node.status is NodeStatus.READY:
            self.at_once.add(node.id)
        elif isinstance(spec, g.FanOutSpec):
            self.expand(node, None)
        elif isinstance(spec, g.TaskSpec):
            report = ev.TaskFailed(node.id, node.attempt, {"kind": "dispatch_timeout"})
            self.out.append(d.Withdraw(node.id, node.attempt, report))
        else:
            self.time_is_over(node)

    def time_is_over(self, node: State) -> None:
        spec = node.spec
        if isinstance(spec, g.ApprovalSpec):
            if spec.on_timeout is g.OnTimeout.APPROVE:
                self.complete(
                    node, {"approved_by": None, "at": self.timestamp(), "comment": "approved by timeout"}
                )
            else:
                self.fail(node, "approval_timeout")
        elif isinstance(spec, g.WaitSpec) and spec.signal is None:
            self.complete(node, {"waited_until": self.timestamp()})
        elif isinstance(spec, g.WaitSpec) and spec.on_timeout is g.OnTimeout.GO_ON:
            self.complete(node, None)
        else:
            self.fail(node, "signal_timeout")

    def timestamp(self) -> str:
        return datetime.fromtimestamp(self.now, UTC).isoformat().replace("+00:00", "Z")

    def on_values_loaded(self, event: ev.ValuesLoaded) -> None:
        if event.node is None:
            if self.all_over() and self.status is JobStatus.RUNNING:
                self.give_result(event.scope)
            else:
                self.ignore()
            return
        node = self.nodes.get(event.node)
        if node is None or node.status is not NodeStatus.READY or node.wake_at is not None:
            self.ignore()
        else:
            self.decide(node, event.scope)

    def on_resolution_failed(self, event: ev.ResolutionFailed) -> None:
        if event.node is None:
            if self.all_over() and self.status is JobStatus.RUNNING:
                has_result = self.graph.outputs is not None or bool(self.graph.result_nodes)
                # A result that no author asked for does not fail the job.
                if has_result:
                    self.finish(JobStatus.FAILED, kind="expression")
                else:
                    self.finish(JobStatus.COMPLETED)
            else:
                self.ignore()
            return
        node = self.nodes.get(event.node)
        running_fan = (
            node is not None and isinstance(node.spec, g.FanOutSpec) and node.status is NodeStatus.RUNNING
        )
        if node is None or node.status in OVER or node.status is NodeStatus.PENDING or running_fan:
            self.ignore()
        else:
            self.fail_or_cancel(node, "expression")

    def on_approved(self, event: ev.Approved) -> None:
        if node := self.asked_for_approval(event):
            self.complete(node, {"approved_by": event.by, "at": event.at, "comment": event.comment})

    def on_rejected(self, event: ev.Rejected) -> None:
        if node := self.asked_for_approval(event):
            self.fail(node, "rejected")

    def asked_for_approval(self, event: ev.Approved | ev.Rejected) -> State | None:
        node = self.nodes.get(event.node)
        spec = None if node is None else node.spec
        is_open = node is not None and node.status is NodeStatus.WAITING
        may_answer = isinstance(spec, g.ApprovalSpec) and event.by in (spec.approvers or [event.by])
        if is_open and may_answer:
            return node
        self.ignore()
        return None

    def on_signal_received(self, event: ev.SignalReceived) -> None:
        interested = [
            node
            for node in self.top_level()
            if isinstance(node.spec, g.WaitSpec)
            and node.spec.signal == event.name
            and node.status not in OVER
        ]
        waiting = [node for node in interested if node.status is NodeStatus.WAITING]
        for node in waiting:
            self.complete(node, event.payload)
        if interested and not waiting:
            self.signals[event.name] = event.payload
        if not interested:
            self.ignore()

    def on_cancel_requested(self, _: ev.CancelRequested) -> None:
        if self.cancel_requested:
            self.ignore()
            return
        self.cancel_requested = True
        self.status = JobStatus.RUNNING
        self.end(stop=True)

    def on_node_cancel_requested(self, event: ev.NodeCancelRequested) -> None:
        live = {node.id: node for node in self.live()}
        chosen: dict[str, State] = {}
        refused = 0
        for name in dict.fromkeys(event.nodes):
            is_written = name in live and not name.endswith("__start")
            meant = self.meant_by(live[name]) if is_written else []
            possible = [node for node in meant if self.can_be_cancelled(node)]
            chosen |= {node.id: node for node in possible}
            refused += not possible
        if self.status is not JobStatus.RUNNING or not chosen:
            self.ignore()
            return
        self.out.append(d.AcceptCancel(tuple(chosen), refused))
        # All of them end at the same moment, but for those that are asked to stop. Then the failures count.
        not_started = [node for node in chosen.values() if node.status in NOT_STARTED]
        for node in chosen.values():
            node.is_named = True
            if node.status in HELD and not isinstance(node.spec, g.FanOutSpec):
                node.stopped = True
                self.stop_attempt(node)
        for node in not_started:
            self.mark_failed(node, "cancelled")
        for node in not_started:
            for inner in self.descendants(node):
                if inner.status not in OVER:
                    self.cancel(inner)
        for fan in chosen.values():
            if isinstance(fan.spec, g.FanOutSpec) and fan.status is NodeStatus.RUNNING and not fan.stopped:
                self.stop(fan)
        for node in not_started:
            self.failure_counts(node)

    def meant_by(self, node: State) -> list[State]:
        """Return the nodes that are cancelled under a name: a group stands for what is in it."""
        members = self.members(node)
        return [each for member in members for each in self.meant_by(member)] if members else [node]

    def can_be_cancelled(self, node: State) -> bool:
        if node.status in NOT_STARTED:
            return True
        stops_with_others = self.stopping or any(fan.stopped for fan in self.ancestors(node))
        return node.status in HELD and not (stops_with_others or node.is_named or node.stopped)

    # ── Starting ──

    def start(self, node: State) -> None:
        if node.status is NodeStatus.PENDING:
            self.began.append(node.id)
        self.at_once.discard(node.id)
        node.status = NodeStatus.READY
        spec = node.spec
        if isinstance(spec, g.StartSpec | g.EndSpec | g.GroupSpec):
            self.complete(node, {})
        elif isinstance(spec, g.TaskSpec):
            node.status = NodeStatus.DISPATCHED
            node.attempt += 1
            self.out.append(d.Dispatch(node.id, node.attempt, spec))
            if spec.dispatch_timeout_seconds is not None and node.shared_losses < 3:
                self.wait_until(node, self.now + spec.dispatch_timeout_seconds)
        elif isinstance(spec, g.WorkflowSpec):
            node.status = NodeStatus.RUNNING
            node.attempt += 1
            self.out.append(d.StartChildJob(node.id, node.attempt, spec))
        elif isinstance(spec, g.ApprovalSpec):
            self.pause(node, d.RequestApproval(node.id, spec), spec.timeout_seconds)
        elif isinstance(spec, g.WaitSpec) and spec.signal in self.signals:
            self.complete(node, self.signals.pop(spec.signal))
        elif isinstance(spec, g.WaitSpec) and spec.signal is not None:
            self.pause(node, None, spec.timeout_seconds)
        elif isinstance(spec, g.FanOutSpec) and node.total is not None:
            node.status = NodeStatus.RUNNING
            if node.expanded < node.total and not node.stopped:
                self.expand(node, None)
        else:
            self.ask(node)

    def ask(self, node: State) -> None:
        if refs := self.refs(node.spec):
            self.out.append(d.Need(node.id, refs))
        else:
            self.decide(node, {})

    def pause(self, node: State, decision: d.Decision | None, timeout: float | None) -> None:
        node.status = NodeStatus.WAITING
        if decision is not None:
            self.out.append(decision)
        if timeout is not None:
            self.wait_until(node, self.now + timeout)

    def refs(self, spec: g.Spec) -> tuple[Any, ...]:
        if isinstance(spec, g.ConditionalSpec):
            return spec.refs
        if isinstance(spec, g.FanOutSpec):
            return spec.source.refs
        if isinstance(spec, g.WaitSpec):
            return tuple(ref for template in (spec.seconds, spec.until) if template for ref in template.refs)
        assert isinstance(spec, g.FanInSpec)
        if spec.over is not None:
            return ("nodes", spec.over, "outputs"), ("nodes", spec.over, "failed")
        return tuple(
            ("nodes", source, "output")
            for source in self.sources(spec)
            if self.nodes[source].status is NodeStatus.COMPLETED
        )

    def sources(self, spec: g.FanInSpec) -> list[str]:
        """Return the nodes that a fan-in aggregates: for a group, those in it."""
        inside: list[str] = []
        for source in spec.sources:
            is_group = isinstance(self.nodes[source].spec, g.GroupSpec)
            nodes = self.members_at_any_depth(self.nodes[source]) if is_group else [self.nodes[source]]
            inside += [node.id for node in nodes if not isinstance(node.spec, g.GroupSpec)]
        return list(dict.fromkeys(inside))

    def decide(self, node: State, scope: Mapping[str, Any]) -> None:
        spec = node.spec
        try:
            if isinstance(spec, g.ConditionalSpec):
                self.take_a_branch(node, spec, scope)
            elif isinstance(spec, g.FanOutSpec):
                self.freeze(node, spec.source.resolve(scope))
            elif isinstance(spec, g.WaitSpec):
                at = self.moment(spec, scope)
                node.status = NodeStatus.WAITING
                self.wait_until(node, at)
            elif isinstance(spec, g.FanInSpec):
                self.fold(node, spec, scope)
        except EvaluationFailed:
            self.fail(node, "expression")

    def moment(self, spec: g.WaitSpec, scope: Mapping[str, Any]) -> float:
        if spec.until is not None:
            return datetime.fromisoformat(spec.until.resolve(scope)).timestamp()
        assert spec.seconds is not None
        seconds = spec.seconds.resolve(scope)
        if not isinstance(seconds, int | float) or seconds < 0:
            raise EvaluationFailed("seconds")
        return self.now + seconds

    def take_a_branch(self, node: State, spec: g.ConditionalSpec, scope: Mapping[str, Any]) -> None:
        """Branches of the tests are named for their condition: `is_3` holds for 3; the default has another name."""
        value = None if spec.condition_field is None else spec.condition_field.resolve(scope)
        branch = next((branch for branch in spec.branches if branch.name == f"is_{value}"), None)
        branch = branch or next((branch for branch in spec.branches if branch.condition is None), None)
        if branch is None:
            self.fail(node, "no_branch")
            return
        node.branch = branch.name
        target = branch.next[0] if len(branch.next) == 1 else list(branch.next) or None
        self.complete(node, {"branch_taken": target, "branch": branch.name, "value": value})

    def fold(self, node: State, spec: g.FanInSpec, scope: Mapping[str, Any]) -> None:
        failed: list[Any] = []
        if spec.over is not None:
            facts = scope["nodes"][spec.over]
            if "failed" not in facts:
                raise EvaluationFailed("outputs")
            failed = facts["failed"]
            without = [item["index"] for item in failed]
            everything = facts["outputs"]
            outputs = [None if index in without else output for index, output in enumerate(everything)]
            if spec.aggregation is not g.Aggregation.COLLECT_ALL:
                outputs = [output for index, output in enumerate(outputs) if index not in without]
        else:
            loaded, sources = scope.get("nodes", {}), list(self.sources(spec))
            if spec.aggregation is not g.Aggregation.COLLECT_ALL:
                sources = [source for source in sources if "output" in loaded.get(source, {})]
            outputs = [loaded.get(source, {}).get("output") for source in sources]
        self.complete(node, folded(spec.aggregation, outputs, failed))

    # ── Fan-outs ──

    def freeze(self, fan: State, source: Any) -> None:
        if not isinstance(source, list):
            self.fail(fan, "invalid_source")
            return
        fan.total = len(source)
        if source:
            fan.status = NodeStatus.RUNNING
            self.expand(fan, source)
        else:
            self.out.append(d.Expand(fan.id, 0, 0, 0, source))
            self.complete(fan, {"fan_out_count": 0})

    def expand(self, fan: State, source: list[Any] | None) -> None:
        assert isinstance(fan.spec, g.FanOutSpec)
        assert fan.total is not None
        first = fan.expanded
        fan.expanded = min(fan.total, first + self.batch)
        for index in range(first, fan.expanded):
            child = self.nodes.setdefault(
                f"{fan.id}__{index}", State(f"{fan.id}__{index}", fan.spec.child, fan.id, index)
            )
            self.forget(child)
            child.status = NodeStatus.PENDING
        self.out.append(d.Expand(fan.id, first, fan.expanded - first, fan.total, source))
        if fan.expanded < fan.total:
            self.wait_until(fan, self.now)

    def tolerates(self, fan: State) -> bool:
        assert isinstance(fan.spec, g.FanOutSpec)
        failed = sum(1 for child in self.children(fan) if child.status is NodeStatus.FAILED)
        if fan.spec.on_item_error is not g.OnItemError.FAIL:
            return True
        tolerance = fan.spec.tolerance
        if tolerance.percent is None:
            return failed <= tolerance.count
        return failed <= math.floor(Fraction(str(tolerance.percent)) * (fan.total or 0) / 100)

    def stop(self, fan: State) -> None:
        fan.stopped = True
        fan.wake_at = None
        for child in self.children(fan):
            if child.status in NOT_STARTED:
                self.cancel(child)
                for inner in self.descendants(child):
                    if inner.status not in OVER:
                        self.cancel(inner)
            elif isinstance(child.spec, g.FanOutSpec):
                if child.status is NodeStatus.RUNNING and not child.stopped:
                    self.stop(child)
            elif child.status in HELD:
                self.stop_attempt(child)

    def stop_attempt(self, node: State) -> None:
        self.asked_to_stop.add((node.id, node.attempt))
        self.out.append(d.Stop(node.id, node.attempt))

    # ── How nodes and the job end ──

    def over(self, node: State, status: NodeStatus, decision: d.Decision) -> None:
        node.status, node.wake_at = status, None
        self.out.append(decision)

    def complete(self, node: State, output: Any) -> None:
        node.error = None
        self.over(node, NodeStatus.COMPLETED, d.Complete(node.id, output, attempt=node.attempt))

    def skip(self, node: State, reason: SkipReason) -> None:
        node.skip_reason = reason
        self.over(node, NodeStatus.SKIPPED, d.Skip(node.id, reason))

    def cancel(self, node: State) -> None:
        self.over(node, NodeStatus.CANCELLED, d.Cancel(node.id))

    def fail(self, node: State, kind: str) -> None:
        self.mark_failed(node, kind)
        self.failure_counts(node)

    def mark_failed(self, node: State, kind: str) -> None:
        error = {"kind": kind}
        node.error = error
        self.over(node, NodeStatus.FAILED, d.Fail(node.id, error))

    def failure_counts(self, node: State) -> None:
        if node.parent is not None:
            fan = self.nodes[node.parent]
            assert isinstance(fan.spec, g.FanOutSpec)
            if fan.spec.fail_fast and not fan.stopped and not self.tolerates(fan):
                self.stop(fan)
        elif not node.allows_failure and self.graph.on_failure is not g.OnFailure.CONTINUE:
            self.end(stop=self.graph.on_failure is g.OnFailure.CANCEL_RUNNING)

    def end(self, *, stop: bool) -> None:
        self.sweep_due = self.sweep_due or not self.ending or (stop and not self.stopping)
        self.ending = True
        self.stopping = self.stopping or stop

    def conclude(self) -> None:
        failed = [
            node for node in self.top_level() if node.status is NodeStatus.FAILED and not node.allows_failure
        ]
        if self.cancel_requested:
            self.finish(JobStatus.CANCELLED)
        elif self.deadline_passed:
            self.finish(JobStatus.FAILED, kind="deadline")
        elif failed:
            self.finish(JobStatus.FAILED, kind="node_failed")
        elif refs := self.result_refs():
            self.out.append(d.Need(None, refs))
        else:
            self.give_result({})

    def result_refs(self) -> tuple[Any, ...]:
        if self.graph.outputs is not None:
            return self.graph.outputs.refs
        completed = [each for each in self.result_nodes() if self.nodes[each].status is NodeStatus.COMPLETED]
        return tuple(("nodes", each, "output") for each in completed)

    def result_nodes(self) -> tuple[str, ...]:
        """Return the nodes whose outputs are the result: without any in the workflow, those that nothing waits for."""
        if self.graph.result_nodes:
            return self.graph.result_nodes
        needed = {
            leaf.node
            for node in self.top_level()
            if (gate := self.needs(node))
            for leaf in gate.leaves()
            if self.nodes[leaf.node].spec.group != node.id
        }
        return tuple(
            node.id
            for node in self.top_level()
            if not isinstance(node.spec, g.GroupSpec | g.WaitSpec)
            and needed.isdisjoint([node.id, *(group.id for group in self.groups_around(node))])
        )

    def give_result(self, scope: Mapping[str, Any]) -> None:
        if self.graph.outputs is not None:
            try:
                self.finish(JobStatus.COMPLETED, result=self.graph.outputs.resolve(scope))
            except EvaluationFailed:
                self.finish(JobStatus.FAILED, kind="expression")
            return
        expected = [ref[1] for ref in self.result_refs()]
        if not all("output" in scope["nodes"].get(each, {}) for each in expected):
            self.finish(JobStatus.FAILED, kind="expression")
            return
        outputs = {each: scope["nodes"][each]["output"] for each in expected}
        if len(self.result_nodes()) == 1:
            self.finish(JobStatus.COMPLETED, result=next(iter(outputs.values()), None))
        else:
            self.finish(JobStatus.COMPLETED, result=outputs)

    def finish(self, status: JobStatus, *, result: Any = None, kind: str | None = None) -> None:
        self.status = status
        self.deadline_at = None
        self.out.append(d.FinishJob(status, result, None if kind is None else {"kind": kind}))

    # ── New runs ──

    def on_resume_requested(self, event: ev.ResumeRequested) -> None:
        if self.status not in JOB_OVER or any(name not in self.nodes for name in event.nodes):
            self.ignore()
            return
        opened: dict[str, None] = {}
        for node in self.top_level():
            if self.did_not_work_out(node):
                self.open_what_failed(node, opened)
        for name in event.nodes:
            for each in (self.nodes[name], *self.members_at_any_depth(self.nodes[name])):
                self.open_from_the_beginning(each, opened)
        self.open_run(opened)

    def on_retry_requested(self, event: ev.RetryRequested) -> None:
        named = [self.nodes[name] for name in event.nodes if name in self.nodes]
        waiting = [node for node in named if node.status is NodeStatus.READY and node.wake_at is not None]
        ending = self.ending and self.status not in JOB_OVER
        over = [
            node
            for node in named
            if node.status in (NodeStatus.FAILED, NodeStatus.CANCELLED)
            and not any(fan.stopped and fan.status not in OVER for fan in self.ancestors(node))
        ]
        if ending or not (waiting or over):
            self.ignore()
            return
        for node in waiting:
            node.wake_at = None
            self.at_once.add(node.id)
        opened: dict[str, None] = {}
        for node in over:
            for each in (node, *filter(self.did_not_work_out, self.members_at_any_depth(node))):
                self.open_with_followers(each, opened)
        if over:
            self.open_run(opened)

    def open_with_followers(self, node: State, opened: dict[str, None]) -> None:
        top = (self.ancestors(node) or [node])[-1]
        failed_the_job = top.status is NodeStatus.FAILED and not top.allows_failure
        ended_otherwise = self.cancel_requested or self.deadline_passed
        ended_the_job = (
            failed_the_job and self.graph.on_failure is not g.OnFailure.CONTINUE and not ended_otherwise
        )
        self.open_what_failed(node, opened)
        followers = self.followers(top)
        for each in self.top_level():
            swept = each.status is NodeStatus.CANCELLED or each.skip_reason is SkipReason.JOB_FAILED
            broken = each.skip_reason is SkipReason.UPSTREAM_FAILED
            if (swept and ended_the_job) or ((swept or broken) and each in followers):
                self.open_what_failed(each, opened)

    def on_items_reinjected(self, event: ev.ItemsReinjected) -> None:
        fan = self.nodes.get(event.node)
        if fan is None or self.status not in JOB_OVER or not isinstance(fan.spec, g.FanOutSpec):
            self.ignore()
            return
        if fan.status not in OVER or not all(0 <= index < fan.expanded for index in event.indexes):
            self.ignore()
            return
        opened: dict[str, None] = {}
        for index in event.indexes:
            self.open_from_the_beginning(self.nodes[f"{fan.id}__{index}"], opened)
        self.open_run(opened)

    def did_not_work_out(self, node: State) -> bool:
        if node.status is NodeStatus.SKIPPED:
            return node.skip_reason is not SkipReason.NOT_TAKEN
        return node.status is NodeStatus.CANCELLED or (
            node.status is NodeStatus.FAILED and not node.allows_failure
        )

    def open_what_failed(self, node: State, opened: dict[str, None]) -> None:
        opened[node.id] = None
        opened.update((fan.id, None) for fan in self.ancestors(node) if fan.status in OVER)
        # No group is complete while one of its nodes is open.
        opened.update((group.id, None) for group in self.groups_around(node) if group.status in OVER)
        for child in self.children(node):
            if self.did_not_work_out(child):
                self.open_what_failed(child, opened)

    def open_from_the_beginning(self, node: State, opened: dict[str, None]) -> None:
        top = (self.ancestors(node) or [node])[-1]
        for each in (node, *self.followers(top)):
            opened[each.id] = None
            for inner in [each, *self.all_descendants(each)]:
                inner.total, inner.expanded = None, 0
                if inner is not each:
                    self.forget(inner)
                    inner.status, inner.skip_reason = NodeStatus.SKIPPED, SkipReason.SUPERSEDED
        opened.update((fan.id, None) for fan in self.ancestors(node) if fan.status in OVER)

    def open_run(self, opened: Iterable[str]) -> None:
        live = {node.id for node in self.live()}
        chosen = [node_id for node_id in opened if node_id in live]
        if not opened:
            self.ignore()
            return
        for node_id in chosen:
            node = self.nodes[node_id]
            self.forget(node)
            node.status = NodeStatus.PENDING
        self.status = JobStatus.RUNNING
        self.run += 1
        self.cancel_requested = self.deadline_passed = self.ending = self.stopping = False
        self.held_back = set()
        self.out.append(d.Reopen(self.run, tuple(chosen)))
        self.set_deadline()

    def forget(self, node: State) -> None:
        node.skip_reason = node.error = node.wake_at = node.seq = node.upstream = node.branch = None
        node.failed_attempts = node.lost_attempts = node.shared_losses = 0
        node.stopped = node.is_named = False

    # ── Who is who ──

    def top_level(self) -> list[State]:
        return [node for node in self.nodes.values() if node.parent is None]

    def live(self) -> list[State]:
        """All nodes but the children that are left over from a longer list of an earlier run."""
        return [result for node in self.top_level() for result in (node, *self.descendants(node))]

    def children(self, fan: State) -> list[State]:
        return [self.nodes[f"{fan.id}__{index}"] for index in range(fan.expanded)]

    def descendants(self, fan: State) -> list[State]:
        return [result for child in self.children(fan) for result in (child, *self.descendants(child))]

    def all_descendants(self, fan: State) -> list[State]:
        return [node for node in self.nodes.values() if node.parent and node.id.startswith(f"{fan.id}__")]

    def ancestors(self, node: State) -> list[State]:
        if node.parent is None:
            return []
        parent = self.nodes[node.parent]
        return [parent, *self.ancestors(parent)]

    def followers(self, node: State) -> list[State]:
        result: list[State] = []
        while True:
            known = {node.id, *(each.id for each in result)}
            more = [
                each
                for each in self.top_level()
                if each.id not in known
                and (gate := self.needs(each))
                and any(leaf.node in known for leaf in gate.leaves())
            ]
            if not more:
                return result
            result += more

    def all_over(self) -> bool:
        return all(node.status in OVER for node in self.live())

    def wait_until(self, node: State, at: float) -> None:
        node.wake_at = at
        self.out.append(d.WaitUntil(node.id, at))

    def ignore(self) -> None:
        self.out.append(d.Ignore(""))


def folded(mode: g.Aggregation, outputs: list[Any], failed: list[Any]) -> dict[str, Any]:
    """Aggregate outputs that are objects, by the table of graph.md."""
    if mode in (g.Aggregation.COLLECT, g.Aggregation.COLLECT_ALL):
        return {"results": outputs, "count": len(outputs)} | ({"failed": failed} if failed else {})
    if mode in (g.Aggregation.FIRST, g.Aggregation.LAST):
        place = 0 if mode is g.Aggregation.FIRST else -1
        return {"result": outputs[place] if outputs else None, "count": len(outputs)}
    values = [output[key] for output in outputs if isinstance(output, dict) for key in sorted(output)]
    if mode is g.Aggregation.CONCAT:
        joined = [item for value in values if isinstance(value, list) for item in value]
        return {"results": joined, "count": len(joined)}
    numbers = [value for value in values if isinstance(value, int | float) and not isinstance(value, bool)]
    return {"total": sum(numbers), "count": len(outputs)}
