"""Graphs that grow: what can be added to a job, when, and that a crash changes nothing of it."""

from __future__ import annotations

import pytest

from dagmaster.engine.decisions import AddNodes, Ignore
from dagmaster.engine.events import TaskSucceeded
from dagmaster.engine.growth import grow_graph
from dagmaster.engine.model import Job
from dagmaster.testing import (
    Driver,
    a_job,
    a_spec,
    branch_of,
    conditional,
    fan_in,
    group,
    member,
    nodes_added,
    task,
    wait,
)


def a_started_job(on_failure="continue", **nodes) -> Driver:
    driver = Driver(a_job(on_failure=on_failure, **nodes))
    driver.start()
    return driver


def batch(links=None, **nodes):
    return nodes_added(*(a_spec(node_id, node) for node_id, node in nodes.items()), links=links)


def succeed_with(driver: Driver, node: str, links=None, **nodes) -> None:
    """Report a success that adds nodes."""
    event = TaskSucceeded(node, driver.job.nodes[node].attempt, added=batch(links, **nodes).batch)
    driver.apply(event)


def refusal(driver: Driver, links=None, **nodes) -> str:
    """Return why nodes cannot be added; nothing has changed then."""
    before = (driver.statuses(), dict(driver.job.graph.specs), driver.job.open)
    decided = driver.apply(batch(links, **nodes))
    assert (driver.statuses(), dict(driver.job.graph.specs), driver.job.open) == before
    assert isinstance(decided[0], Ignore)
    return decided[0].reason


# ── What is added ──


def test_nodes_groups_and_dependencies_are_added_as_a_whole():
    driver = a_started_job(a="", load="a")
    driver.apply(batch({"load": "clean"}, clean=group("a"), b=member("clean"), c=member("clean", "b")))
    driver.succeed("a", "b")
    assert driver.statuses() == {
        "a": "COMPLETED", "load": "PENDING", "clean": "PENDING", "b": "COMPLETED", "c": "DISPATCHED"
    }  # fmt: skip
    driver.succeed("c")
    assert driver.status("load") == "DISPATCHED"


def test_a_group_that_is_being_filled_is_not_complete():
    driver = a_started_job(clean=group(), a=member("clean"), load="clean")
    succeed_with(driver, "a", b=member("clean"))
    assert driver.statuses() == {"clean": "PENDING", "a": "COMPLETED", "load": "PENDING", "b": "DISPATCHED"}
    succeed_with(driver, "b", c=member("clean", "a"))
    driver.succeed("c")
    assert driver.status("load") == "DISPATCHED"


def test_members_of_an_existing_group_wait_for_what_it_waits_for():
    driver = a_started_job(x="", y="", clean=group("x y"))
    driver.apply(batch(a=member("clean"), inner=member("clean", group()), b=member("inner")))
    assert (driver.status("a"), driver.status("b")) == ("PENDING", "PENDING")
    driver.succeed("x", "y")
    assert (driver.status("a"), driver.status("b")) == ("DISPATCHED", "DISPATCHED")


def test_a_fan_in_aggregates_members_that_were_added():
    driver = a_started_job(clean=group(), a=member("clean"), all=fan_in("clean"))
    succeed_with(driver, "a", b=member("clean"))
    driver.succeed("b", output={"n": 2})
    assert driver.outputs["all"]["count"] == 2


def test_nodes_that_depend_on_the_task_that_adds_them_start_with_its_success():
    driver = a_started_job(a="")
    succeed_with(driver, "a", b="a", c="b")
    assert driver.statuses() == {"a": "COMPLETED", "b": "DISPATCHED", "c": "PENDING"}


def test_a_failed_attempt_adds_nothing_and_its_retry_adds_once():
    driver = a_started_job(a=task(retry=2))
    driver.fail("a")
    driver.fire_timer("a")
    succeed_with(driver, "a", b="")
    added = [decision.nodes for decision in driver.decisions if isinstance(decision, AddNodes)]
    assert added == [("b",)]


def test_nodes_can_be_added_before_the_job_starts():
    driver = Driver(a_job(a=""))
    driver.apply(batch({"a": "b"}, b=""))
    assert driver.statuses() == {"a": "PENDING", "b": "PENDING"}
    driver.start()
    assert driver.statuses() == {"a": "PENDING", "b": "DISPATCHED"}


def test_an_added_wait_receives_its_signal():
    driver = a_started_job(a="")
    driver.apply(batch(pause=wait(signal="go")))
    driver.signal("go")
    assert driver.status("pause") == "COMPLETED"


# ── What is refused ──


@pytest.mark.parametrize(
    ("links", "nodes", "reason"),
    [
        ({}, {"a": ""}, "the job has a node 'a' already"),
        ({}, {"new": "nowhere"}, "node 'new' depends on 'nowhere', which is no node of this job"),
        ({}, {"new": member("a")}, "node 'new' is in 'a', which is no group of this job"),
        ({}, {"new": member("nowhere")}, "node 'new' is in 'nowhere', which is no group of this job"),
        ({}, {"new": "failed"}, "'failed' is FAILED: what depends on it could never run"),
        ({}, {"new": "behind"}, "'behind' is SKIPPED: what depends on it could never run"),
        ({"later": "new"}, {"new": "later"}, "cycle: new → later → new"),
        ({"later": "new"}, {"new": member("clean", "last")}, "cycle: new → later → last → new"),
        (
            {"a": "new"},
            {"new": ""},
            "'a' is DISPATCHED: a dependency or a member can be added only before it has started",
        ),
        ({}, {"new": member("full")}, "'full' is COMPLETED: a dependency or a member can be added only before"),
        ({"clean": "new"}, {"new": ""}, "group 'clean' exists already: what a group depends on is declared when"),
        ({"nowhere": "new"}, {"new": ""}, "'nowhere' is to depend on 'new', and is no node of this job"),
        ({"later": "nowhere"}, {"new": ""}, "node 'later' is to depend on 'nowhere', which is no node of this job"),
    ],
)
def test_a_batch_that_cannot_be_added_changes_nothing(links, nodes, reason):
    driver = a_started_job(
        a="", later="a", last="later", failed="", behind="failed", clean=group("a"), m=member("clean"), full=group()
    )
    driver.fail("failed")
    assert reason in refusal(driver, links, other="", **nodes)


def test_two_nodes_of_one_batch_cannot_have_one_name():
    driver = a_started_job(a="")
    decided = driver.apply(nodes_added(a_spec("b", ""), a_spec("b", "a")))
    assert isinstance(decided[0], Ignore)
    assert "two nodes are named 'b'" in decided[0].reason


def test_a_cycle_through_an_existing_group_is_refused():
    driver = a_started_job(a="", clean=group("a"), m=member("clean"), load="clean")
    assert refusal(driver, new=member("clean", "load")) == "cycle: new → clean → load → new"


def test_a_branch_that_was_not_taken_can_be_followed_and_is_skipped():
    driver = a_started_job(route=conditional(branches={"taken": None, "other": "value == 1"}), keep=wait(signal="go"))
    driver.apply(batch(b=branch_of("route", "other")))
    assert driver.status("b") == "SKIPPED not_taken"


def test_a_task_fails_whose_nodes_cannot_be_added():
    driver = a_started_job(a="", b="a")
    succeed_with(driver, "a", b="")
    assert (driver.status("a"), driver.status("b")) == ("FAILED", "SKIPPED upstream_failed")
    assert driver.job.nodes["a"].error == {
        "kind": "added_nodes",
        "message": "its nodes cannot be added: the job has a node 'b' already: give the new one another name",
    }


# ── Jobs that end, and new runs ──


def test_nodes_that_a_task_adds_while_its_job_fails_run_when_the_job_is_resumed():
    driver = a_started_job("finish_running", a="", b="", load="b")
    driver.fail("a")
    succeed_with(driver, "b", {"load": "c"}, c="b")
    assert (driver.status("c"), driver.status("load")) == ("SKIPPED job_failed", "SKIPPED job_failed")
    assert driver.job.status == "FAILED"
    driver.resume()
    assert driver.statuses() == {"a": "DISPATCHED", "b": "COMPLETED", "load": "PENDING", "c": "DISPATCHED"}


def test_nodes_that_a_task_adds_while_its_job_is_cancelled_are_cancelled():
    driver = a_started_job(a="")
    driver.cancel()
    succeed_with(driver, "a", b="a")
    assert (driver.status("b"), driver.job.status) == ("CANCELLED", "CANCELLED")


def test_a_resume_runs_added_nodes_that_failed():
    driver = a_started_job(clean=group(), a=member("clean"), load="clean")
    succeed_with(driver, "a", b=member("clean"))
    driver.fail("b")
    driver.resume()
    assert driver.statuses() == {"clean": "PENDING", "a": "COMPLETED", "load": "PENDING", "b": "DISPATCHED"}


# ── Storage ──


def test_a_job_that_grew_decides_the_same_after_a_rebuild():
    driver = a_started_job(x="", y="", clean=group("x y"), load="clean")
    driver.apply(batch({"load": "extra"}, a=member("clean"), extra=""))
    driver.job = driver.rebuild()
    driver.succeed("x", "y", "extra")
    succeed_with(driver, "a", b=member("clean", "a"))
    driver.job = driver.rebuild()
    assert driver.status("load") == "PENDING"
    driver.succeed("b")
    assert driver.status("load") == "DISPATCHED"


def test_a_job_that_grows_leaves_the_graph_of_other_jobs_alone():
    graph = a_job(a="", clean=group("a")).graph
    driver, other = Driver(Job("one", graph)), Driver(Job("two", graph))
    driver.start()
    driver.apply(batch(b=member("clean")))
    assert "b" not in other.job.graph.specs
    other.start()
    other.succeed_all()
    assert other.job.status == "COMPLETED"


def test_a_graph_grown_from_stored_batches_is_the_graph_of_the_job():
    driver = a_started_job(a="", clean=group("a"), load="a")
    driver.apply(batch({"load": "b"}, b=member("clean")))
    driver.apply(batch({"load": "c"}, c=member("clean", "b")))
    graph = grow_graph(driver.graph, driver.batches)
    assert graph.specs == driver.job.graph.specs
    assert graph.wiring.dependents == driver.job.graph.wiring.dependents
