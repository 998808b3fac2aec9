"""Groups of nodes: what they wait for, when they complete, and what depends on them."""

from __future__ import annotations

from typing import Any

import pytest

from dagmaster.engine.diagnosis.context import DiagnosisContext
from dagmaster.engine.diagnosis.explain import Why
from dagmaster.engine.events import ResumeRequested
from dagmaster.engine.graph import Gate, GateKind, Leaf
from dagmaster.engine.groups import link_groups, result_nodes
from dagmaster.engine.growth import NodeBatch, check_batch
from dagmaster.engine.resume_plan import ResumeContext, plan_rerun
from dagmaster.errors import NodesRejected
from dagmaster.testing import (
    Driver,
    a_graph,
    a_job,
    a_spec,
    all_of,
    any_of,
    branch_of,
    conditional,
    fan_in,
    group,
    join,
    member,
    task,
    wait,
)

ROUTE = conditional(branches={"taken": None, "other": "value == 1"})


def a_started_job(on_failure="continue", **nodes) -> Driver:
    driver = Driver(a_job(on_failure=on_failure, **nodes))
    driver.start()
    return driver


# ── When a group completes ──


def test_a_group_completes_when_all_its_nodes_have_completed():
    driver = a_started_job(clean=group(), a=member("clean"), b=member("clean"), load="clean")
    driver.succeed("a")
    assert driver.statuses() == {"clean": "PENDING", "a": "COMPLETED", "b": "DISPATCHED", "load": "PENDING"}
    driver.succeed("b")
    assert (driver.status("clean"), driver.status("load")) == ("COMPLETED", "DISPATCHED")


def test_nodes_of_nested_groups_count_at_any_depth():
    driver = a_started_job(
        outer=group(),
        middle=member("outer", group()),
        inner=member("middle", group()),
        a=member("inner"),
        load="outer",
    )
    assert driver.status("load") == "PENDING"
    driver.succeed("a")
    assert [driver.status(name) for name in ("inner", "middle", "outer")] == ["COMPLETED"] * 3
    assert driver.status("load") == "DISPATCHED"


def test_groups_may_be_nested_deeper_than_the_stack_of_python():
    # The innermost first: its entry is that of all around it.
    groups = {f"g{depth}": member(f"g{depth - 1}", group()) for depth in range(4_999, 0, -1)}
    driver = a_started_job(first=task(), a=member("g4999"), **groups, g0=group("first"), load="g0")
    assert (driver.status("a"), driver.status("load")) == ("PENDING", "PENDING")
    driver.succeed("first")
    driver.succeed("a")
    assert (driver.status("g4999"), driver.status("g0"), driver.status("load")) == (
        "COMPLETED",
        "COMPLETED",
        "DISPATCHED",
    )


def test_an_empty_group_completes_when_what_it_waits_for_has_completed():
    driver = a_started_job(first="", empty=group("first"), load="empty")
    assert driver.status("empty") == "PENDING"
    driver.succeed("first")
    assert (driver.status("empty"), driver.status("load")) == ("COMPLETED", "DISPATCHED")


def test_an_empty_group_that_waits_for_nothing_completes_at_once():
    assert a_started_job(empty=group(), load="empty").status("empty") == "COMPLETED"


def test_a_failed_node_makes_what_follows_its_group_impossible():
    driver = a_started_job(
        outer=group(), clean=member("outer", group()), a=member("clean"), b=member("clean"), c="outer"
    )
    driver.fail("a")
    assert [driver.status(name) for name in ("clean", "outer", "c")] == ["SKIPPED upstream_failed"] * 3
    driver.succeed("b")
    assert driver.job.status == "FAILED"


def test_an_allowed_failure_completes_its_group():
    driver = a_started_job(clean=group(), a=member("clean", task(allow_failure=True)), load="clean")
    driver.fail("a")
    assert (driver.status("clean"), driver.status("load")) == ("COMPLETED", "DISPATCHED")


def test_a_group_joins_the_branches_that_were_taken():
    taken, other = branch_of("route", "taken"), branch_of("route", "other")
    driver = a_started_job(
        route=ROUTE, clean=group(), a=member("clean", taken), b=member("clean", other), load="clean"
    )
    driver.succeed("a")
    assert (driver.status("b"), driver.status("clean")) == ("SKIPPED not_taken", "COMPLETED")
    assert driver.status("load") == "DISPATCHED"


def test_a_group_whose_nodes_are_all_not_taken_is_not_taken():
    driver = a_started_job(
        route=ROUTE, clean=group(), a=member("clean", branch_of("route", "other")), load="clean"
    )
    assert (driver.status("clean"), driver.status("load")) == ("SKIPPED not_taken", "SKIPPED not_taken")


# ── What the nodes of a group wait for ──


def test_all_nodes_of_a_group_wait_for_what_the_group_waits_for():
    driver = a_started_job(
        x="", y="", clean=group("x y"), a=member("clean"), inner=member("clean", group()), b=member("inner")
    )
    driver.succeed("x")
    assert (driver.status("a"), driver.status("b")) == ("PENDING", "PENDING")
    driver.succeed("y")
    assert (driver.status("a"), driver.status("b")) == ("DISPATCHED", "DISPATCHED")


def test_a_node_of_a_group_also_waits_for_its_own_dependencies():
    driver = a_started_job(
        x="", y="", clean=group("x"), a=member("clean", any_of("y")), b=member("clean", join("x", "y"))
    )
    driver.succeed("x")
    assert (driver.status("a"), driver.status("b")) == ("PENDING", "PENDING")
    driver.succeed("y")
    assert (driver.status("a"), driver.status("b")) == ("DISPATCHED", "DISPATCHED")


@pytest.mark.parametrize("expression", [any_of("x", "y"), all_of(any_of("x", "y")), join("x", "y")])
def test_a_group_can_wait_for_any_expression(expression):
    driver = a_started_job(x="", y="", clean=group(expression), a=member("clean"))
    driver.succeed("x", "y")
    assert driver.status("a") == "DISPATCHED"


def test_what_a_failed_dependency_makes_impossible_includes_the_nodes_of_the_group():
    driver = a_started_job(x="", y="", clean=group("x y"), a=member("clean"), load="clean")
    driver.fail("x")
    assert [driver.status(name) for name in ("a", "clean", "load")] == ["SKIPPED upstream_failed"] * 3


def test_a_group_of_many_nodes_behind_many_dependencies_has_one_edge_for_each():
    sources: dict[str, Any] = {f"s{number}": "" for number in range(20)}
    members: dict[str, Any] = {f"m{number}": member("clean") for number in range(30)}
    graph = a_graph(**sources, clean=group(" ".join(sources)), **members)
    assert sum(len(leaves) for leaves in graph.wiring.leaves.values()) == 20 + 30 + 30


def test_a_node_that_depends_on_another_node_of_its_group_needs_no_further_edge():
    specs = a_graph(x="", y="", clean=group("x y"), a=member("clean"), b=member("clean", "a")).specs
    assert specs["b"].requires == Gate(GateKind.ALL, (Leaf("a"),))


def test_upstream_of_a_node_is_the_only_node_that_its_group_depends_on():
    driver = a_started_job(x="", clean=group("x"), a=member("clean"))
    driver.succeed("x")
    assert driver.job.nodes["a"].upstream == "x"


# ── Cycles ──


@pytest.mark.parametrize(
    ("nodes", "cycle"),
    [
        ({"clean": group(), "a": member("clean", "b"), "b": "clean"}, "clean → b → a → clean"),
        (
            {"clean": group("b"), "a": member("clean"), "b": "a"},
            "a → b → a (a is in the group clean, which depends on b)",
        ),
        (
            {"x": "", "clean": group("x b"), "a": member("clean"), "b": "a"},
            "clean → a → b → clean",
        ),
        ({"one": group("two"), "two": group("one"), "a": member("one"), "b": member("two")}, "one"),
        ({"clean": group(), "a": member("clean", "clean")}, "clean → a → clean"),
    ],
)
def test_a_cycle_through_groups_is_spelled_out(nodes, cycle):
    specs = tuple(a_spec(node_id, node) for node_id, node in nodes.items())
    with pytest.raises(NodesRejected) as caught:
        check_batch({}, NodeBatch((1,), specs))
    assert f"cycle: {cycle}" in str(caught.value)
    assert "__start" not in str(caught.value)


def test_a_group_cannot_contain_itself():
    specs = (a_spec("one", member("two", group())), a_spec("two", member("one", group())))
    with pytest.raises(NodesRejected, match="group 'one' contains itself: one → two → one"):
        check_batch({}, NodeBatch((1,), specs))


# ── Values ──


def test_a_fan_in_after_a_group_aggregates_the_outputs_of_its_nodes():
    driver = a_started_job(
        clean=group(),
        a=member("clean"),
        inner=member("clean", group()),
        b=member("inner"),
        all=fan_in("clean"),
    )
    driver.succeed("b", output={"n": 2})
    driver.succeed("a", output={"n": 1})
    assert driver.outputs["all"] == {"results": [{"n": 1}, {"n": 2}], "count": 2}


def test_the_result_of_a_job_that_ends_in_a_group_is_that_of_its_last_nodes():
    driver = a_started_job(
        clean=group(),
        a=member("clean"),
        b=member("clean", "a"),
        inner=member("clean", group("a")),
        c=member("inner"),
    )
    driver.succeed("a")
    driver.succeed("b", output="b")
    driver.succeed("c", output="c")
    assert driver.result == {"b": "b", "c": "c"}


def test_nodes_before_another_group_are_not_among_the_last():
    specs = link_groups(
        {name: a_spec(name, node) for name, node in
         {"g": group(), "one": member("g", group()), "a": member("one"), "b": member("g", "one")}.items()}, {}
    )  # fmt: skip
    assert result_nodes(specs, ["g"]) == ("b",)


# ── New runs ──


def a_failed_job() -> Driver:
    driver = a_started_job(clean=group(), a=member("clean"), b=member("clean"), load="clean")
    driver.fail("a")
    driver.succeed("b")
    assert driver.job.status == "FAILED"
    return driver


@pytest.mark.parametrize("again", [lambda driver: driver.resume(), lambda driver: driver.retry("a")])
def test_a_resume_and_a_retry_open_the_groups_of_a_node(again):
    driver = a_failed_job()
    again(driver)
    assert driver.statuses() == {"clean": "PENDING", "a": "DISPATCHED", "b": "COMPLETED", "load": "PENDING"}
    driver.succeed_all()
    assert driver.job.status == "COMPLETED"


def test_a_retry_of_an_allowed_failure_opens_a_completed_group():
    driver = a_started_job(clean=group(), a=member("clean", task(allow_failure=True)), load="clean")
    driver.fail("a")
    driver.succeed("load")
    driver.retry("a")
    assert driver.statuses() == {"clean": "PENDING", "a": "DISPATCHED", "load": "COMPLETED"}


def test_a_resume_from_a_group_runs_all_its_nodes_and_what_follows():
    driver = a_started_job(
        first="", clean=group("first"), inner=member("clean", group()), a=member("inner"), load="clean"
    )
    driver.succeed_all()
    driver.resume("clean")
    assert driver.statuses() == {
        "first": "COMPLETED", "clean": "PENDING", "inner": "PENDING", "a": "DISPATCHED", "load": "PENDING"
    }  # fmt: skip


def test_a_retry_of_a_cancelled_group_runs_its_cancelled_nodes():
    driver = a_started_job(clean=group(), a=member("clean"), b=member("clean", wait(signal="go")), load="a")
    driver.succeed("a")
    driver.cancel()
    driver.succeed("load")
    assert driver.status("clean") == "CANCELLED"
    driver.retry("clean")
    assert driver.statuses() == {"clean": "PENDING", "a": "COMPLETED", "b": "WAITING", "load": "COMPLETED"}


def test_a_plan_to_resume_names_the_nodes_of_a_group_and_not_the_group():
    driver = a_started_job(x="", y="", clean=group("x y"), a=member("clean"), load="clean")
    driver.succeed_all()
    plan = plan_rerun(driver.job, ResumeRequested(("clean",)), 0.0, ResumeContext(named=frozenset({"clean"})))
    assert not isinstance(plan, str)
    assert [(decision.node, decision.reason) for decision in plan] == [
        ("x", "completed"),
        ("y", "completed"),
        ("a", "named to be redone"),
        ("load", "depends on `clean`, which is redone"),
    ]


# ── Why ──


def sentences(driver: Driver, *names: str) -> list[str]:
    why = Why(driver.job, DiagnosisContext(now=0.0))
    return [why.reason_for(name).sentence for name in names]


def test_why_says_how_many_nodes_of_a_group_are_not_finished():
    members: dict[str, Any] = {f"m{number}": member("clean") for number in range(8)}
    driver = a_started_job(clean=group(), **members, load="clean")
    driver.succeed(*list(members)[:5])
    assert sentences(driver, "load", "clean") == [
        "waits for the group clean: 3 of 8 nodes are not finished",
        "waits for its nodes: 3 of 8 nodes are not finished",
    ]


def test_why_names_what_a_group_waits_for_and_not_the_node_that_joins_it():
    driver = a_started_job(x="", y="", clean=group("x y"), a=member("clean"), load="clean a")
    assert sentences(driver, "a", "load") == ["waits for x and y", "waits for the group clean and a"]
    driver.fail("x")
    assert sentences(driver, "a") == ["was skipped: x failed"]
    why = Why(driver.job, DiagnosisContext(now=0.0))
    assert "clean__start" not in {node.id for node in why.nodes()}


def test_why_says_that_a_group_completed():
    driver = a_started_job(clean=group(), a=member("clean"), keep=wait(signal="go"))
    driver.succeed("a")
    assert sentences(driver, "clean") == ["completed: all 1 member"]
