"""Random workflows and random histories, from whatever makes choices: hypothesis (to shrink) or a seed (to be fast)."""

from __future__ import annotations

import random
from dataclasses import replace
from typing import TYPE_CHECKING, Any, Protocol, TypeVar

from hypothesis import strategies as st

from dagmaster.engine import events as ev
from dagmaster.engine.graph import (
    ConditionalSpec,
    FanOutSpec,
    Gate,
    GateKind,
    Graph,
    GroupSpec,
    Leaf,
    Spec,
    StartSpec,
    TaskSpec,
    WaitSpec,
)
from dagmaster.engine.growth import NodeBatch, check_batch
from dagmaster.engine.retry import Backoff, RetryPolicy
from dagmaster.engine.status import JobStatus
from dagmaster.errors import NodesRejected
from dagmaster.testing import factories as make

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from dagmaster.testing.factories import After, Builder

T = TypeVar("T")
BLOCK = 200
"""Bytes that make the first choices of a drawn history: about its workflow and its first steps."""


class Chance(Protocol):
    """Something that chooses."""

    def number(self, least: int, most: int) -> int:
        """Return a number between these two, inclusive."""


class Seeded:
    """Chance from a seed."""

    def __init__(self, seed: int) -> None:
        self._random = random.Random(seed)

    def number(self, least: int, most: int) -> int:
        return self._random.randint(least, most)


class Drawn:
    """Chance from hypothesis: two draws for a whole history.

    A history makes thousands of choices. With a draw for each of them, hypothesis took 85 % of the time (2026-11). Its
    block of bytes makes the first choices and shrinks to zeros, which are the simplest; its seed makes the others, and
    shrinks to 0, which stands for zeros without end.
    """

    def __init__(self, data: st.DataObject) -> None:
        self._bytes = iter(data.draw(st.binary(min_size=BLOCK, max_size=BLOCK)))
        seed = data.draw(st.integers(0, 2**32))
        self._random = random.Random(seed) if seed else None

    def number(self, least: int, most: int) -> int:
        byte = next(self._bytes, None)
        if byte is not None and most - least < 256:
            return least + byte % (most - least + 1)
        return self._random.randint(least, most) if self._random else least


def pick(chance: Chance, options: Sequence[T]) -> T:
    """One of these; the first is the simplest."""
    return options[chance.number(0, len(options) - 1)]


def happens(chance: Chance, percent: int) -> bool:
    """Return True in this percentage of cases; False is the simplest."""
    return chance.number(0, 99) >= 100 - percent


# ── Workflows ───────────────────────────────────────────────────────────────────────────────────────────────────────


class Workflows:
    """Makes random workflows. `orderly`: nothing in them depends on the order in which reports come.

    `specs` has the dependencies that an author would write: those of groups are added to them later.
    """

    def __init__(self, chance: Chance, *, orderly: bool = False) -> None:
        self.chance = chance
        self.orderly = orderly
        self.specs: dict[str, Spec] = {}

    def graph(self) -> Graph:
        for number in range(self.chance.number(1, 7)):
            node_id = f"n{number}"
            self.specs[node_id] = self.grouped(self.spec(node_id))
        deadline = pick(self.chance, [None, None, None, None, 20.0, 60.0])
        outputs = pick(
            self.chance,
            [None, None, {"n": "{{ nodes.n0.output.n | default(0) }}"}, "{{ nodes.n0.output.n }}"],
        )
        return make.a_graph(
            on_failure="continue"
            if self.orderly
            else pick(self.chance, ["continue", "finish_running", "cancel_running"]),
            deadline_seconds=None if self.orderly else deadline,
            outputs=outputs,
            **{node_id: _made(spec) for node_id, spec in self.specs.items()},
        )

    def added(self, specs: dict[str, Spec]) -> NodeBatch:
        """Return additional nodes and dependencies for a job that already has these; some cannot be added."""
        self.specs = dict(specs)
        first = len(specs)
        names = [f"n{number}" for number in range(first, first + self.chance.number(1, 3))]
        if happens(self.chance, 5):
            names.append(pick(self.chance, list(specs)))
        for node_id in names:
            spec = self.spec(node_id)
            groups = self.groups()
            self.specs[node_id] = replace(spec, group=pick(self.chance, groups)) if groups else spec
        links = (
            [self.link(names) for _ in range(self.chance.number(0, 2))] if happens(self.chance, 40) else []
        )
        return NodeBatch((1,), tuple(self.specs[node_id] for node_id in names), tuple(links))

    def link(self, names: list[str]) -> tuple[str, Leaf]:
        """Return a further dependency, mostly of an existing node on a new one."""
        target = pick(self.chance, [node_id for node_id in self.specs if node_id not in names] + ["nobody"])
        leaf = Leaf(pick(self.chance, [*names * 3, *self.specs]))
        return (target, leaf) if happens(self.chance, 80) else (leaf.node, Leaf(target))

    def grouped(self, spec: Spec) -> Spec:
        """Put a node into a group, if it can be in one."""
        groups = [] if isinstance(spec, StartSpec) else self.groups()
        if not groups or (group := pick(self.chance, groups)) is None:
            return spec
        grouped = replace(spec, group=group)
        try:
            check_batch({}, NodeBatch((), (*self.specs.values(), grouped)))
        except NodesRejected:
            return spec
        return grouped

    def groups(self) -> list[str | None]:
        """Return the groups that a node can be put into, and none."""
        groups: list[str | None] = [
            node_id for node_id, spec in self.specs.items() if isinstance(spec, GroupSpec)
        ]
        return [None, *groups * 2] if groups else []

    def spec(self, node_id: str) -> Spec:
        after = self.after()
        kinds: list[Callable[[Gate | None], Builder]] = [
            self.fan_in,
            self.wait,
            self.approval,
            self.workflow,
            self.end,
        ]
        kinds = [*[self.task] * 9, *[self.conditional] * 3, *[self.fan_out] * 4, *[self.group] * 4, *kinds]
        if not self.specs:
            kinds += [self.start]
        return pick(self.chance, kinds)(after)(node_id)

    def after(self) -> Gate | None:
        if not self.specs or happens(self.chance, 15):
            return None
        kind = pick(self.chance, [GateKind.ALL, GateKind.JOIN, GateKind.ANY])
        return Gate(kind, tuple(self.member(kind) for _ in range(self.chance.number(1, 3))))

    def member(self, kind: GateKind, depth: int = 0) -> Gate | Leaf:
        # Edges do not nest: only what `depends_on` says does.
        if kind is not GateKind.JOIN and depth < 2 and happens(self.chance, 20):
            inner = pick(self.chance, [GateKind.ALL, GateKind.ANY])
            return Gate(inner, tuple(self.member(inner, depth + 1) for _ in range(self.chance.number(1, 3))))
        node_id = pick(self.chance, list(self.specs))
        spec = self.specs[node_id]
        if isinstance(spec, ConditionalSpec) and happens(self.chance, 80):
            return Leaf(node_id, pick(self.chance, spec.branches).name)
        return Leaf(node_id)

    def value_before(self, after: Gate | None, key: str) -> str | None:
        """Return an expression over the output of a node before this one."""
        leaves = [] if after is None else [leaf.node for leaf in after.leaves()]
        if self.orderly and after is not None and (after.kind is GateKind.ANY or _is_nested(after)):
            return None
        return f"{{{{ nodes.{pick(self.chance, leaves)}.output.{key} }}}}" if leaves else None

    def start(self, _: Gate | None) -> Builder:
        return make.start()

    def group(self, after: Gate | None) -> Builder:
        return make.group(after or "")

    def end(self, after: Gate | None) -> Builder:
        return make.end(after or "")

    def task(self, after: Gate | None) -> Builder:
        policy = RetryPolicy(
            max_attempts=pick(self.chance, [1, 1, 2, 3]),
            backoff=pick(self.chance, [Backoff.FIXED, Backoff.LINEAR, Backoff.EXPONENTIAL]),
            initial_delay_seconds=4.0,
            max_delay_seconds=10.0,
            jitter=False,
            max_lost=pick(self.chance, [1, 0, 3]),
        )
        return make.task(
            after or "",
            retry=policy,
            allow_failure=happens(self.chance, 8 if after is None else 25),
            dispatch_timeout_seconds=7.0 if happens(self.chance, 10) else None,
        )

    def conditional(self, after: Gate | None) -> Builder:
        branches: dict[str, str | None] = {f"is_{n}": f"== {n}" for n in range(self.chance.number(1, 3))}
        if happens(self.chance, 70):
            branches["other"] = None
        return make.conditional(self.value_before(after, "n"), branches, after or "")

    def fan_out(self, after: Gate | None, depth: int = 1) -> Builder:
        chance = self.chance
        literal = [pick(chance, [[1], [1, 2], [], 3, [1, 2, 3]]) for _ in range(chance.number(0, 5))]
        sources: list[Any] = [literal, literal, literal]
        sources.append(self.value_before(after, "l") or literal)
        if depth > 1:
            # 3 is no list, and fails at once.
            sources += ["{{ item }}"] * 4 + [3]
        children = [self.task] * 6 + [self.workflow]
        nested = depth < 3 and happens(chance, 35)
        tolerances: list[int | str] = [0, 0, 1, 2, "50%", "34%"]
        return make.fan_out(
            pick(chance, sources),
            self.fan_out(None, depth + 1) if nested else pick(chance, children)(None),
            after=after or "",
            max_parallel=pick(chance, [None, 1, 2]),
            tolerate=pick(chance, tolerances),
            on_item_error=pick(chance, ["fail", "fail", "fail", "tolerate", "quarantine"]),
            fail_fast=not self.orderly and happens(chance, 40),
        )

    def fan_in(self, after: Gate | None) -> Builder:
        if after is None:
            return self.task(after)
        sources = {leaf.node: self.specs[leaf.node] for leaf in after.leaves()}
        over = next((node_id for node_id, spec in sources.items() if isinstance(spec, FanOutSpec)), None)
        over = over if len(sources) == 1 else None
        nested = any(
            isinstance(spec, FanOutSpec) and isinstance(spec.child, FanOutSpec) for spec in sources.values()
        )
        modes = ["collect", "collect_all", "first", "last"] + ([] if nested else ["concat", "sum"])
        return make.fan_in(after, pick(self.chance, modes), over=over)

    def wait(self, after: Gate | None) -> Builder:
        kind = self.chance.number(0, 3)
        timeout = None if self.orderly else pick(self.chance, [None, 9.0])
        if kind == 0:
            return make.wait(
                after or "", seconds=pick(self.chance, [0, 5, self.value_before(after, "n") or 3])
            )
        if kind == 1:
            return make.wait(after or "", until="1970-01-01T00:00:30Z")
        signal = pick(self.chance, ["go", "stop"])
        on_timeout = pick(self.chance, ["fail", "go_on"])
        return make.wait(after or "", signal=signal, timeout_seconds=timeout, on_timeout=on_timeout)

    def approval(self, after: Gate | None) -> Builder:
        timeout = None if self.orderly else pick(self.chance, [None, 9.0])
        on_timeout = pick(self.chance, ["reject", "approve"])
        approvers = pick(self.chance, ["", "ada bob"])
        return make.approval(after or "", approvers=approvers, timeout_seconds=timeout, on_timeout=on_timeout)

    def workflow(self, after: Gate | None) -> Builder:
        return make.workflow(after or "")


def _made(spec: Spec) -> After | Builder:
    return lambda _: spec


def _is_nested(gate: Gate) -> bool:
    return any(isinstance(member, Gate) for member in gate.members)


# ── Histories ───────────────────────────────────────────────────────────────────────────────────────────────────────

BOOM = {"kind": "error", "message": "boom"}
CRASH = {"kind": "crashed", "message": "exit code 1"}
AT = "2026-01-01T00:00:00Z"


def reports(chance: Chance, node_id: str, spec: Spec, attempt: int) -> ev.EngineEvent:
    """Return a report about an attempt."""
    if not isinstance(spec, TaskSpec):
        ends: list[ev.EngineEvent] = [
            ev.ChildJobFinished(node_id, attempt, JobStatus.COMPLETED, {"n": chance.number(0, 2), "l": [1]}),
            ev.ChildJobFinished(node_id, attempt, JobStatus.FAILED, None, BOOM),
            ev.ChildJobFinished(node_id, attempt, JobStatus.CANCELLED),
            ev.DispatchRejected(node_id, attempt, BOOM),
            reused(node_id),
        ]
        return pick(chance, ends)
    options: list[ev.EngineEvent] = [
        ev.TaskSucceeded(node_id, attempt),
        ev.TaskFailed(node_id, attempt, BOOM),
        ev.TaskFailed(node_id, attempt, BOOM, permanent=True),
        ev.TaskFailed(node_id, attempt, CRASH),
        ev.TaskLost(node_id, attempt),
        ev.TaskLost(node_id, attempt, alone=False),
        ev.TaskReleased(node_id, attempt),
        ev.DispatchRejected(node_id, attempt, BOOM),
        ev.ResolutionFailed(node_id, "params.x", "missing"),
        reused(node_id),
    ]
    return pick(chance, [*options[:1] * 5, *options[:2] * 2, *options])


def answers(chance: Chance, node_id: str, spec: Spec) -> ev.EngineEvent:
    """Return what a person or another system may send to a waiting node."""
    if isinstance(spec, WaitSpec):
        return ev.SignalReceived(spec.signal or "go", {"n": chance.number(0, 2), "l": [1, 2]})
    by = pick(chance, ["ada", "bob", "eve"])
    says: list[ev.EngineEvent] = [ev.Approved(node_id, by, AT), ev.Rejected(node_id, by, AT), reused(node_id)]
    return pick(chance, says)


def reused(node_id: str) -> ev.EngineEvent:
    """Return the event that a previous job has the result."""
    return ev.ResultReused(node_id, {"n": 1, "l": [1, 2]}, ev.ReusedFrom("0", node_id, 1, "7"))
