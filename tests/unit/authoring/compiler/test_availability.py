"""What is certain before anything runs, and the proof that nothing is called certain that is not."""

from __future__ import annotations

import random
from itertools import product
from typing import TYPE_CHECKING, Any

from hypothesis import given
from hypothesis import strategies as st

from dagmaster.authoring.compiler.availability import MAX_CUBES, Availability
from dagmaster.engine.events import JobStarted, TaskFailed, TaskSucceeded
from dagmaster.engine.graph import ConditionalSpec, Gate, GateKind, Leaf, Spec
from dagmaster.engine.model import Job
from dagmaster.engine.status import JobStatus, NodeStatus
from dagmaster.testing import Driver, all_of, any_of, join
from dagmaster.testing import factories as make

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping

# ── What is certain ─────────────────────────────────────────────────────────────────────────────────────────────────


def known(branches: Mapping[str, str], **after: Any) -> Availability:
    """Nodes in this order; a string lists what all of is wanted; `branches` names the branches of conditionals."""
    requires: dict[str, Gate] = {}
    for node_id, gate in after.items():
        if isinstance(gate, Gate):
            requires[node_id] = gate
        elif gate:
            requires[node_id] = all_of(gate)
    names = {node_id: text.split() for node_id, text in branches.items()}
    return Availability(after, requires, names, dict.fromkeys(after, tuple(after)))


ROUTE = {"route": "small large"}


def test_a_node_is_before_what_depends_on_it_directly_or_not():
    implied = known({}, a="", b="a", c="b", other="")
    assert implied.is_before("a", "b")
    assert implied.is_before("a", "c")
    assert not implied.is_before("c", "a")
    assert not implied.is_before("a", "a")
    assert not implied.is_before("other", "c")
    assert not implied.is_before("nobody", "c")


def test_every_node_of_a_diamond_of_plain_edges_is_certain():
    implied = known({}, a="", b=join("a"), c=join("a"), d=join("b", "c"))
    assert all(implied.is_certain(source, "d") for source in "abc")
    assert all(implied.always_runs(node) for node in "abcd")


def test_what_comes_before_a_conditional_is_certain_on_each_branch_and_behind_the_join():
    implied = known(ROUTE, a="", route="a", s=join("route.small"), l=join("route.large"), end=join("s", "l"))
    assert all(implied.is_certain("a", node) for node in ("route", "s", "l", "end"))
    assert all(implied.is_certain("route", node) for node in ("s", "l", "end"))


def test_a_branch_is_not_certain_behind_the_join_nor_in_the_end():
    implied = known(ROUTE, route="", s=join("route.small"), l=join("route.large"), end=join("s", "l"))
    assert not implied.is_certain("s", "end")
    assert not implied.is_certain("l", "end")
    assert not implied.always_runs("s")


def test_a_join_of_all_branches_always_runs():
    implied = known(
        ROUTE, route="", s=join("route.small"), l=join("route.large"), end=join("s", "l"), last="end"
    )
    assert implied.always_runs("end")
    assert implied.is_certain("end", "last")


def test_a_join_of_some_branches_may_not_run():
    implied = known({"route": "a b c"}, route="", x=join("route.a", "route.b"))
    assert not implied.always_runs("x")


def test_a_node_on_the_same_branch_is_certain():
    implied = known(
        ROUTE, route="", first=join("route.small"), second=join("first"), third=all_of("first second")
    )
    assert implied.is_certain("first", "second")
    assert implied.is_certain("first", "third")
    assert implied.is_certain("second", "third")


def test_nested_conditionals_fold_from_the_inside():
    implied = known(
        {"outer": "yes no", "inner": "yes no"},
        outer="",
        inner=join("outer.yes"),
        a=join("inner.yes"),
        b=join("inner.no"),
        both=join("a", "b"),
        c=join("outer.no"),
        end=join("both", "c"),
    )
    assert implied.is_certain("inner", "both")
    assert not implied.always_runs("both")
    assert not implied.is_certain("inner", "end")
    assert not implied.is_certain("both", "end")
    assert implied.always_runs("end")


def test_the_first_of_any_of_leaves_the_others_open():
    implied = known({}, a="", b="a", c="a", d=any_of("b", "c"))
    assert implied.is_certain("a", "d")
    assert not implied.is_certain("b", "d")
    assert not implied.is_certain("c", "d")
    assert implied.always_runs("d")


def test_all_of_two_branches_of_one_conditional_never_runs():
    implied = known(ROUTE, route="", s=join("route.small"), l=join("route.large"), x="s l", y="x")
    assert implied.can_never_run("x")
    assert implied.can_never_run("y")
    assert not implied.can_never_run("s")


def test_a_join_of_more_branches_than_the_limit_still_always_runs():
    names = [f"b{number}" for number in range(1000)]
    gate = Gate(GateKind.JOIN, tuple(Leaf("route", name) for name in names))
    implied = known({"route": " ".join(names)}, route="", end=gate, last="end")
    assert implied.always_runs("end")
    assert implied.is_certain("end", "last")


def tangle(conditionals: int) -> tuple[dict[str, str], dict[str, Any]]:
    """Conditionals and a node `deep` that runs if any two of them take their first branch: too many cubes to hold."""
    names = [f"r{number}" for number in range(conditionals)]
    pairs = [all_of(f"{one}.yes", f"{other}.yes") for one in names for other in names if one < other]
    assert len(pairs) > MAX_CUBES
    return dict.fromkeys(names, "yes no"), {**dict.fromkeys(names, ""), "deep": any_of(*pairs)}


def test_past_the_limit_less_is_proven_and_nothing_wrong():
    branches, nodes = tangle(13)
    implied = known(branches, **nodes, same="deep", last=join("deep", "r0"))
    assert implied.is_certain("deep", "same")
    assert not implied.is_certain("deep", "last")
    assert not implied.always_runs("deep")
    assert not implied.can_never_run("deep")


def test_past_the_limit_a_conditional_still_has_its_branches():
    branches, nodes = tangle(13)
    nodes["route"] = nodes.pop("deep")
    nodes |= {"s": join("route.small"), "l": join("route.large"), "end": join("s", "l")}
    implied = known(branches | ROUTE, **nodes, last=join("end", "r0"))
    assert implied.is_certain("route", "s")
    assert not implied.can_never_run("s")
    assert not implied.is_certain("s", "end")
    assert implied.is_certain("route", "end")
    assert not implied.is_certain("end", "last")


def test_past_the_limit_what_stands_next_to_it_does_not_decide_alone():
    branches, nodes = tangle(13)
    large = nodes.pop("deep")
    after = join("x", "s")
    for gate in (any_of(large, "route.small"), all_of(large, "route.small"), all_of("route.small", large)):
        implied = known(branches | ROUTE, route="", **nodes, s=join("route.small"), x=gate, last=after)
        assert not implied.is_certain("x", "last")
        assert not implied.always_runs("x")
    implied = known(
        branches | ROUTE, route="", **nodes, s=join("route.small"), x=any_of(large, "route.small"), last=after
    )
    assert not implied.is_certain("s", "last")


# ── Nothing wrong is called certain ─────────────────────────────────────────────────────────────────────────────────


class World:
    """A small random workflow of tasks and conditionals."""

    def __init__(self, seed: int, *, orderly: bool = False) -> None:
        self.random = random.Random(seed)
        self.gates = [GateKind.ALL] if orderly else [GateKind.ALL, GateKind.ANY]
        self.specs: dict[str, Spec] = {}
        self.may_fail: set[str] = set()
        for number in range(self.random.randint(2, 9)):
            self._add(f"n{number}")

    def _add(self, node_id: str) -> None:
        after = self._gate()
        if self.random.random() < 0.4:
            branches: dict[str, str | None] = {
                f"b{k}": f"inputs.{node_id} == {k}" for k in range(self._some(3))
            }
            if self.random.random() < 0.7:
                branches["other"] = None
            self.specs[node_id] = make.conditional(None, branches, after or "")(node_id)
            return
        allowed = self.random.random() < 0.15
        if allowed:
            self.may_fail.add(node_id)
        self.specs[node_id] = make.task(after or "", allow_failure=allowed)(node_id)

    def _gate(self) -> Gate | None:
        if not self.specs or self.random.random() < 0.1:
            return None
        kind = self.random.choice([GateKind.JOIN, *self.gates])
        return Gate(kind, tuple(self._member(kind, 0) for _ in range(self._some(3))))

    def _member(self, kind: GateKind, depth: int) -> Gate | Leaf:
        if kind is not GateKind.JOIN and depth < 2 and self.random.random() < 0.25:
            inner = self.random.choice(self.gates)
            return Gate(inner, tuple(self._member(inner, depth + 1) for _ in range(self._some(3))))
        spec = self.random.choice(list(self.specs.values()))
        if isinstance(spec, ConditionalSpec) and self.random.random() < 0.85:
            return Leaf(spec.id, self.random.choice(spec.branches).name)
        return Leaf(spec.id)

    def _some(self, most: int) -> int:
        return self.random.randint(1, most)

    @property
    def conditionals(self) -> list[ConditionalSpec]:
        return [spec for spec in self.specs.values() if isinstance(spec, ConditionalSpec)]

    def availability(self) -> Availability:
        requires = {spec.id: spec.requires for spec in self.specs.values() if spec.requires is not None}
        branches = {spec.id: [branch.name for branch in spec.branches] for spec in self.conditionals}
        return Availability(self.specs, requires, branches, dict.fromkeys(self.specs, tuple(self.specs)))

    def choices(self) -> Iterable[dict[str, int]]:
        """Every way in which the conditionals can choose, at most a few hundred."""
        ways = [range(len(spec.branches)) for spec in self.conditionals]
        for result, numbers in enumerate(product(*ways)):
            if result == 300:
                return
            yield {spec.id: number for spec, number in zip(self.conditionals, numbers, strict=True)}


class Run(Driver):
    """One run: what had completed when each node started."""

    def __init__(self, world: World, choice: Mapping[str, int], *, failing: bool) -> None:
        nodes: dict[str, Any] = {spec.id: (lambda _, spec=spec: spec) for spec in world.specs.values()}
        super().__init__(Job("job", make.a_graph(on_failure="continue", **nodes)))
        self.world = world
        self.choice = choice
        self.before: dict[str, set[str]] = {}
        self.saw(JobStarted())
        while waiting := self.dispatched():
            node_id = world.random.choice(waiting)
            attempt = self.job.nodes[node_id].attempt
            if failing and world.random.random() < 0.2:
                self.saw(TaskFailed(node_id, attempt, {"kind": "error", "message": "boom"}, permanent=True))
            else:
                self.saw(TaskSucceeded(node_id, attempt))

    def scope(self, node_id: str | None) -> Mapping[str, Any]:
        return {**super().scope(node_id), "inputs": self.choice}

    def saw(self, event: Any) -> None:
        self.apply(event, output={})
        done = {node.id for node in self.job.nodes.values() if node.status is NodeStatus.COMPLETED}
        done |= {
            node_id for node_id in self.world.may_fail if self.job.nodes[node_id].status is NodeStatus.FAILED
        }
        for node in self.job.nodes.values():
            if node.status not in (NodeStatus.PENDING, NodeStatus.SKIPPED):
                self.before.setdefault(node.id, done - {node.id})


def check(world: World, *, failing: bool) -> None:
    availability = world.availability()
    pairs = [(one, other) for one in world.specs for other in world.specs]
    certain = [(source, node) for source, node in pairs if availability.is_certain(source, node)]
    always = {node for node in world.specs if availability.always_runs(node)}
    never = {node for node in world.specs if availability.can_never_run(node)}
    for source, node in certain:
        assert availability.is_before(source, node)
    for choice in world.choices():
        run = Run(world, choice, failing=failing)
        assert not never & run.before.keys()
        for source, node in certain:
            assert node not in run.before or source in run.before[node], (source, node, choice)
        if run.job.status is JobStatus.COMPLETED:
            assert always <= run.before.keys(), choice


@given(st.integers(0, 2**32))
def test_what_is_certain_has_completed_in_every_run_in_which_the_node_runs(seed):
    check(World(seed), failing=False)


@given(st.integers(0, 2**32))
def test_what_is_certain_has_completed_even_when_other_nodes_fail(seed):
    check(World(seed), failing=True)


@given(st.integers(0, 2**32))
def test_without_any_of_all_that_has_completed_in_every_run_is_certain(seed):
    world = World(seed, orderly=True)
    availability = world.availability()
    ways = list(world.choices())
    runs = [Run(world, choice, failing=False) for choice in ways]
    if len(ways) == 300:
        return
    for source, node in product(world.specs, world.specs):
        seen = [source in run.before[node] for run in runs if node in run.before]
        if availability.is_before(source, node) and seen and all(seen):
            assert availability.is_certain(source, node), (source, node)
    completed = [run for run in runs if run.job.status is JobStatus.COMPLETED]
    for node in world.specs:
        if completed and all(node in run.before for run in completed):
            assert availability.always_runs(node), node
