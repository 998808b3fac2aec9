"""Leaves, gates, and who `upstream` is: the tables of semantics.md, cell by cell."""

from __future__ import annotations

from itertools import permutations, product

import pytest

from dagmaster.engine.decisions import Complete, Ignore
from dagmaster.engine.gates import BROKEN, NOT_TAKEN, OPEN, SATISFIED, count
from dagmaster.engine.graph import GateKind, flatten
from dagmaster.engine.model import leaf_outcome
from dagmaster.engine.status import NodeStatus, SkipReason
from dagmaster.testing import (
    Driver,
    a_job,
    a_spec,
    all_of,
    any_of,
    branch_of,
    conditional,
    end,
    join,
    nodes_added,
    start,
    task,
    wait,
)

ROUTE = {"small": ("< 10", "s"), "large": (None, "l")}


def a_route(**nodes) -> Driver:
    """Return a task, and a conditional on its output that goes small or large."""
    route = conditional("{{ nodes.a.output.n }}", ROUTE, after="a")
    driver = Driver(a_job(on_failure="continue", a="", route=route, **nodes))
    driver.start()
    return driver


# ── Gates ──


def outcome_by_the_table(kind: GateKind, leaves: tuple[int, ...]) -> int:
    """Judge a gate by the table of semantics.md, word by word."""
    satisfied = [leaf == SATISFIED for leaf in leaves]
    open_ = [leaf == OPEN for leaf in leaves]
    broken = [leaf == BROKEN for leaf in leaves]
    not_taken = [leaf == NOT_TAKEN for leaf in leaves]
    rows = {
        GateKind.ALL: (
            all(satisfied),
            any(broken),
            not any(open_) and not any(broken) and any(not_taken),
        ),
        GateKind.ANY: (
            any(satisfied),
            not any(satisfied) and not any(open_) and any(broken),
            not any(satisfied) and not any(open_) and not any(broken),
        ),
        GateKind.JOIN: (
            not any(open_) and not any(broken) and any(satisfied),
            any(broken),
            all(not_taken),
        ),
    }
    result = [
        outcome for outcome, holds in zip((SATISFIED, BROKEN, NOT_TAKEN), rows[kind], strict=True) if holds
    ]
    assert len(result) <= 1, "the columns of the table exclude each other"
    return result[0] if result else OPEN


@pytest.mark.parametrize("kind", list(GateKind))
@pytest.mark.parametrize("size", [1, 2, 3, 4])
def test_a_gate_settles_as_the_table_says_in_whatever_order_its_leaves_do(kind, size):
    gates, _ = flatten(
        {GateKind.ALL: all_of, GateKind.ANY: any_of, GateKind.JOIN: join}[kind](*"abcd"[:size])
    )
    for leaves in product((OPEN, SATISFIED, NOT_TAKEN, BROKEN), repeat=size):
        for order in permutations(leaf for leaf in leaves if leaf != OPEN):
            counts = [0] * 4
            result = [count(gates, counts, 0, leaf) for leaf in order]
            assert counts[0] == outcome_by_the_table(kind, leaves), (leaves, order)
            assert [outcome for outcome in result if outcome != OPEN] == ([counts[0]] if counts[0] else [])


@pytest.mark.parametrize(("outer", "inner"), list(product((GateKind.ALL, GateKind.ANY), repeat=2)))
def test_a_nested_gate_is_a_leaf_of_the_gate_around_it(outer, inner):
    makers = {GateKind.ALL: all_of, GateKind.ANY: any_of}
    gates, leaves = flatten(makers[outer](makers[inner]("a", "b"), "c"))
    place = {leaf.node: gate for leaf, gate in leaves}
    for a, b, c in product((OPEN, SATISFIED, NOT_TAKEN, BROKEN), repeat=3):
        expected = outcome_by_the_table(outer, (outcome_by_the_table(inner, (a, b)), c))
        for order in permutations([("a", a), ("b", b), ("c", c)]):
            counts = [0] * (4 * len(gates))
            for name, outcome in order:
                if outcome != OPEN:
                    count(gates, counts, place[name], outcome)
            assert counts[0] == expected


# ── Leaves ──


@pytest.mark.parametrize(
    ("status", "reason", "whole", "branch"),
    [
        (NodeStatus.FAILED, None, BROKEN, BROKEN),
        (NodeStatus.CANCELLED, None, BROKEN, BROKEN),
        (NodeStatus.SKIPPED, SkipReason.NOT_TAKEN, NOT_TAKEN, NOT_TAKEN),
        (NodeStatus.SKIPPED, SkipReason.UPSTREAM_FAILED, BROKEN, BROKEN),
        (NodeStatus.SKIPPED, SkipReason.JOB_FAILED, BROKEN, BROKEN),
        (NodeStatus.SKIPPED, SkipReason.SUPERSEDED, BROKEN, BROKEN),
        *[(status, None, OPEN, OPEN) for status in ("PENDING", "READY", "DISPATCHED", "RUNNING", "WAITING")],
    ],
)
def test_what_a_node_is_to_one_that_depends_on_it(status, reason, whole, branch):
    node = a_job(route=conditional(branches={"b": None})).nodes["route"]
    node.status, node.skip_reason = NodeStatus(status), reason
    assert leaf_outcome(node, None) == whole
    assert leaf_outcome(node, "b") == branch


def test_a_completed_conditional_satisfies_itself_and_the_branch_it_took():
    node = a_job(route=conditional(branches={"b": None, "c": None})).nodes["route"]
    node.status, node.branch = NodeStatus.COMPLETED, "b"
    assert [leaf_outcome(node, branch) for branch in (None, "b", "c")] == [SATISFIED, SATISFIED, NOT_TAKEN]


def test_a_failure_that_is_allowed_satisfies():
    node = a_job(a=task(allow_failure=True)).nodes["a"]
    node.status = NodeStatus.FAILED
    assert leaf_outcome(node, None) == SATISFIED


# ── Conditionals ──


def test_the_branch_that_holds_is_taken_and_the_other_is_skipped():
    driver = a_route(s=branch_of("route", "small"), l=branch_of("route", "large"))
    decided = driver.succeed("a", output={"n": 3})
    assert Complete("route", {"branch_taken": "s", "branch": "small", "value": 3}) in decided
    assert driver.statuses() == {
        "a": "COMPLETED",
        "route": "COMPLETED",
        "s": "DISPATCHED",
        "l": "SKIPPED not_taken",
    }


def test_the_default_is_tried_last_wherever_it_stands():
    route = conditional("{{ nodes.a.output.n }}", {"rest": None, "small": "< 10"}, after="a")
    driver = Driver(a_job(a="", route=route))
    driver.start()
    driver.succeed("a", output={"n": 3})
    assert driver.job.nodes["route"].branch == "small"


def test_a_conditional_without_a_branch_that_holds_fails():
    route = conditional("{{ nodes.a.output.n }}", {"small": "< 10"}, after="a")
    driver = Driver(a_job(a="", route=route))
    driver.start()
    driver.succeed("a", output={"n": 30})
    assert driver.status("route") == "FAILED"
    assert (driver.job.nodes["route"].error or {})["kind"] == "no_branch"


def test_a_join_after_a_conditional_runs_once_whichever_branch_ran():
    for n in (3, 30):
        driver = a_route(s=branch_of("route", "small"), l=branch_of("route", "large"), j=join("s", "l"))
        driver.succeed("a", output={"n": n})
        driver.succeed_all()
        assert driver.status("j") == "COMPLETED"
        assert driver.job.nodes["j"].attempt == 1


def test_a_list_wants_both_where_two_edges_join_what_was_taken():
    driver = a_route(s=branch_of("route", "small"), l=branch_of("route", "large"), both="s l")
    driver.succeed("a", output={"n": 3})
    driver.succeed_all()
    assert driver.status("both") == "SKIPPED not_taken"


def test_an_all_of_waits_for_its_open_leaf_before_it_is_not_taken():
    driver = a_route(s=branch_of("route", "small"), l=branch_of("route", "large"), both="s l")
    driver.succeed("a", output={"n": 3})
    assert driver.status("both") == "PENDING"
    driver.fail("s")
    assert driver.status("both") == "SKIPPED upstream_failed"


def test_not_taken_goes_on_to_what_follows():
    driver = a_route(
        s=branch_of("route", "small"), l=branch_of("route", "large"), after_l="l", end=end(join("after_l"))
    )
    driver.succeed("a", output={"n": 3})
    assert driver.status("after_l") == "SKIPPED not_taken"
    assert driver.status("end") == "SKIPPED not_taken"
    driver.succeed_all()
    assert driver.job.status == "COMPLETED"


def test_the_failure_of_a_node_can_be_caught_by_a_conditional_on_its_status():
    caught = conditional("{{ nodes.a.status }}", {"failed": "== 'FAILED'", "fine": None}, after="a")
    driver = Driver(a_job(a=task(allow_failure=True), caught=caught, clean_up=branch_of("caught", "failed")))
    driver.start()
    driver.fail("a")
    assert driver.status("clean_up") == "DISPATCHED"


# ── any_of ──


def test_an_any_of_fires_once_on_the_first():
    driver = Driver(a_job(a="", b="", c=any_of("a", "b")))
    driver.start()
    driver.succeed("a")
    assert driver.status("c") == "DISPATCHED"
    driver.succeed("b")
    assert driver.job.nodes["c"].attempt == 1


def test_an_any_of_outlives_a_failure_while_another_leaf_is_open():
    driver = Driver(a_job(on_failure="continue", a="", b="", c=any_of("a", "b")))
    driver.start()
    driver.fail("a")
    assert driver.status("c") == "PENDING"
    driver.succeed("b")
    assert driver.status("c") == "DISPATCHED"


def test_the_loser_of_an_any_of_goes_on_and_its_failure_still_counts():
    driver = Driver(a_job(on_failure="continue", a="", b="", c=any_of("a", "b")))
    driver.start()
    driver.succeed("a")
    driver.fail("b")
    driver.succeed("c")
    assert driver.job.status == "FAILED"


# ── upstream ──


def test_upstream_is_the_leaf_that_finished_first():
    driver = Driver(a_job(a="", b="", j=join("a", "b")))
    driver.start()
    driver.succeed("b", "a")
    assert driver.job.nodes["j"].upstream == "b"


def test_upstream_counts_only_leaves_whose_gates_are_all_satisfied():
    driver = Driver(a_job(on_failure="continue", a="", b="", c="", d=any_of(all_of("a", "b"), "c")))
    driver.start()
    driver.succeed("a", "c")
    assert driver.job.nodes["d"].upstream == "c"


def test_an_all_of_over_more_than_one_leaf_has_no_upstream():
    driver = Driver(a_job(a="", b="", c="a b", d="a"))
    driver.start()
    driver.succeed("a", "b")
    assert driver.job.nodes["c"].upstream is None
    assert driver.job.nodes["d"].upstream == "a"


# ── Start, end, and nodes that a task adds ──


def test_start_and_end_complete_by_themselves():
    driver = Driver(a_job(start=start(), end=end("start")))
    driver.start()
    assert driver.job.status == "COMPLETED"
    assert driver.result == {}


def test_nodes_that_a_task_adds_run_in_its_own_job():
    driver = Driver(a_job(a=""))
    driver.start()
    driver.apply(nodes_added(a_spec("b", ""), a_spec("c", "a b")))
    assert driver.statuses() == {"a": "DISPATCHED", "b": "DISPATCHED", "c": "PENDING"}
    driver.succeed_all()
    assert driver.job.status == "COMPLETED"


def test_a_node_is_not_added_twice():
    driver = Driver(a_job(a=""))
    driver.start()
    driver.apply(nodes_added(a_spec("b", "")))
    assert isinstance(driver.apply(nodes_added(a_spec("b", "")))[0], Ignore)
    assert driver.job.open == 2


def test_an_added_node_that_is_skipped_tells_another_added_node_once():
    """It was counted twice, and an all_of with an open leaf was not_taken too early."""
    route = conditional(branches={"taken": None, "other": None})
    driver = Driver(a_job(route=route, signal=wait(signal="go")))
    driver.start()
    driver.apply(nodes_added(a_spec("b", branch_of("route", "other")), a_spec("c", "b signal")))
    assert driver.status("b") == "SKIPPED not_taken"
    assert driver.status("c") == "PENDING"


def test_upstream_of_an_added_node_is_the_leaf_that_finished_first():
    """The gates behind the first that settled were not counted."""
    driver = Driver(a_job(a="", b="a", keep=wait(signal="go")))
    driver.start()
    driver.succeed("a", "b")
    driver.apply(nodes_added(a_spec("c", any_of("b", all_of("a")))))
    assert driver.job.nodes["c"].upstream == "a"
