"""Graphs that grow: what can be added to a job, when, and that a crash changes nothing of it."""

from __future__ import annotations

from typing import Any

import pytest

from dagmaster.engine.advance import advance
from dagmaster.engine.decisions import AddNodes, FinishJob, Ignore, Need
from dagmaster.engine.events import ResolutionFailed, TaskSucceeded
from dagmaster.engine.growth import check_batch, grow_graph
from dagmaster.engine.job_completion import MAX_LAST_NODES
from dagmaster.engine.model import Job
from dagmaster.engine.status import JobStatus
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


# ── The result of a graph that was built in code ──


def a_job_of_code(**nodes) -> Driver:
    """Return a job whose workflow has no nodes, with these added before it starts."""
    driver = Driver(a_job())
    driver.apply(batch(**nodes))
    driver.start()
    return driver


def test_the_result_of_a_graph_in_code_is_the_output_of_its_last_node():
    driver = a_job_of_code(a="", b="a", hold=wait(signal="go"))
    driver.succeed("a")
    driver.succeed("b", output=[1])
    driver.signal("go")
    assert driver.result == [1]


def test_a_result_that_no_author_asked_for_is_null_if_its_value_is_gone():
    job = a_job_of_code(a="").job
    advance(job, TaskSucceeded("a", 1), 0.0)
    (finished,) = advance(job, ResolutionFailed(None, "", "the blob is gone"), 0.0)
    assert finished == FinishJob(JobStatus.COMPLETED)


def test_the_results_of_several_last_nodes_are_a_mapping_without_groups_and_holds():
    driver = a_job_of_code(
        hold=wait(signal="go"), outer=group(), inner=member("outer", group()), a=member("inner"), b=member("inner", "a"),
        held=member("inner", group("hold")), first=group(), c=member("first"), d="first", e=task(allow_failure=True),
    )  # fmt: skip
    driver.succeed("a")
    driver.succeed("b", output="b")
    driver.succeed("c")
    driver.succeed("d", output=None)
    driver.fail("e", permanent=True)
    driver.signal("go")
    assert driver.result == {"b": "b", "d": None}


def test_nodes_that_a_task_added_count_among_the_last():
    driver = a_job_of_code(a="")
    succeed_with(driver, "a", b="a")
    driver.succeed("b", output="b")
    assert driver.result == "b"


def test_a_graph_in_code_with_too_many_last_nodes_has_no_result_and_loads_none():
    driver = a_job_of_code(**{f"n{number}": "" for number in range(MAX_LAST_NODES + 1)})
    driver.succeed_all(output="x")
    assert (driver.job.status, driver.result) == ("COMPLETED", None)
    assert not [one for one in driver.decisions if isinstance(one, Need)]


def test_results_of_a_graph_in_code_that_are_too_large_together_do_not_fail_the_job(monkeypatch):
    monkeypatch.setattr("dagmaster.engine.json_size.MAX_OUTPUT_BYTES", 1_000)
    driver = a_job_of_code(a="", b="")
    driver.succeed("a", "b", output="x" * 600)
    assert (driver.job.status, driver.result) == ("COMPLETED", None)


def test_a_node_after_an_added_node_that_is_not_taken_still_waits_for_the_others():
    driver = a_started_job(route=conditional(branches={"small": "false", "large": None}), x="")
    driver.apply(batch(n1=branch_of("route", "small"), n2="n1 x"))
    assert (driver.status("n1"), driver.status("n2")) == ("SKIPPED not_taken", "PENDING")
    driver.succeed("x")
    assert driver.status("n2") == "SKIPPED not_taken"


def test_a_group_that_is_filled_keeps_its_count_of_settled_members():
    driver = a_started_job(clean=group(), a=member("clean"), b=member("clean"), load="clean")
    driver.succeed("a")
    for number in range(3):
        driver.apply(batch(**{f"c{number}": member("clean")}))
        assert driver.rebuild().graph.wiring.leaves == driver.job.graph.wiring.leaves
    driver.succeed("b", "c0", "c1")
    assert driver.status("clean") == "PENDING"
    driver.succeed("c2")
    assert (driver.status("clean"), driver.status("load")) == ("COMPLETED", "DISPATCHED")


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


def test_nodes_that_a_running_task_adds_at_once_to_a_cancelled_job_run_after_a_resume():
    driver = a_started_job(a="")
    driver.cancel()
    added = batch(b="a")
    assert "the job is ending" in refusal(driver, b="a")
    added.node = "a"
    driver.apply(added)
    assert driver.status("b") == "CANCELLED"
    # It did not notice the cancel. A resume does not run it again.
    driver.succeed("a")
    driver.resume()
    assert driver.statuses() == {"a": "COMPLETED", "b": "DISPATCHED"}


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


# ── What it costs ──


class CountedDependents(dict[str, Any]):
    """Counts how often the dependents of a node are looked up."""

    count = 0

    def get(self, *arguments):
        self.count += 1
        return super().get(*arguments)


@pytest.mark.parametrize(
    ("links", "more"),
    [
        ({"n0": "more"}, ""),
        ({"n0": "more"}, "x"),
        (None, member("clean")),
        (None, member("clean", "x")),
    ],
)
def test_the_search_for_a_cycle_does_not_visit_all_that_follows(links, more):
    chain = {f"n{number}": f"n{number - 1}" if number else "clean" for number in range(200)}
    driver = a_started_job(x="", clean=group(), first=member("clean"), **chain)
    graph = driver.job.own_graph()
    graph.wiring.dependents = counted = CountedDependents(graph.wiring.dependents)
    check_batch(graph.specs, batch(links, more=more).batch, graph.wiring)
    assert counted.count < 10


def test_a_cycle_through_existing_nodes_is_found_from_either_end():
    chain = {f"n{number}": f"n{number - 1}" if number else "" for number in range(50)}
    driver = a_started_job(start="", **chain | {"n0": "start"})
    assert "cycle: " in refusal(driver, {"n0": "more"}, more="n49")
    assert "cycle: " in refusal(driver, {"n48": "more"}, more="n49")
    assert "cycle: " in refusal(driver, {"n1": "n2"})
