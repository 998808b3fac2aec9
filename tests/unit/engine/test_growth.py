"""Graphs that grow: what can be added to a job, when, and that a crash changes nothing of it."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

from dagmaster.engine.advance import advance
from dagmaster.engine.decisions import AddNodes, FinishJob, Ignore, Need, Reopen
from dagmaster.engine.events import ResolutionFailed, TaskSucceeded
from dagmaster.engine.growth import check_batch, grow_graph
from dagmaster.engine.invariants import violations
from dagmaster.engine.job_completion import MAX_LAST_NODES
from dagmaster.engine.model import Job
from dagmaster.engine.status import JobStatus
from dagmaster.testing import (
    Driver,
    a_job,
    a_spec,
    any_of,
    branch_of,
    conditional,
    fan_in,
    fan_out,
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


def batch(links=None, *, added_by=None, **nodes):
    specs = [replace(a_spec(node_id, node), added_by=added_by) for node_id, node in nodes.items()]
    added = nodes_added(*specs, links=links)
    added.node = added_by
    return added


def succeed_with(driver: Driver, node: str, links=None, **nodes) -> None:
    """Report a success that adds nodes."""
    added = batch(links, added_by=node, **nodes).batch
    driver.apply(TaskSucceeded(node, driver.job.nodes[node].attempt, added=added))


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
        (
            {},
            {"new": member("full")},
            "'full' is COMPLETED: a dependency or a member can be added only before",
        ),
        (
            {"clean": "new"},
            {"new": ""},
            "group 'clean' exists already: what a group depends on is declared when",
        ),
        ({"nowhere": "new"}, {"new": ""}, "'nowhere' is to depend on 'new', and is no node of this job"),
        (
            {"later": "nowhere"},
            {"new": ""},
            "node 'later' is to depend on 'nowhere', which is no node of this job",
        ),
    ],
)
def test_a_batch_that_cannot_be_added_changes_nothing(links, nodes, reason):
    driver = a_started_job(
        a="",
        later="a",
        last="later",
        failed="",
        behind="failed",
        clean=group("a"),
        m=member("clean"),
        full=group(),
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
    driver = a_started_job(
        route=conditional(branches={"taken": None, "other": "value == 1"}), keep=wait(signal="go")
    )
    driver.apply(batch(b=branch_of("route", "other")))
    assert driver.status("b") == "SKIPPED not_taken"


def test_a_task_fails_whose_nodes_cannot_be_added():
    driver = a_started_job(a="", b="a")
    succeed_with(driver, "a", b="")
    assert (driver.status("a"), driver.status("b")) == ("FAILED", "SKIPPED upstream_failed")
    assert (driver.job.nodes["a"].attempt, driver.job.nodes["a"].failed_attempts) == (1, 1)
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
    assert "the job is ending, since it was cancelled; no nodes" in refusal(driver, b="a")
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


# ── Nodes that are run again add again ──


def a_split_job(**static) -> Driver:
    """Return a completed job: `split` added two parts and `total`, which `report` waits for."""
    driver = a_started_job(split="", report="split", **static)
    succeed_with(driver, "split", {"report": "total"}, p1="", p2="", total="p1 p2")
    driver.succeed_all()
    assert driver.job.status == "COMPLETED"
    return driver


def rebuilt(driver: Driver) -> Driver:
    """Continue with the job as it is loaded after a crash."""
    assert violations(driver.job) == []
    driver.job = driver.rebuild()
    assert violations(driver.job) == []
    return driver


def test_what_a_restarted_node_had_added_is_superseded_and_its_names_can_be_used_again():
    driver = a_split_job()
    driver.resume("split")
    superseded = dict.fromkeys(["p1", "p2", "total"], "SKIPPED superseded")
    assert rebuilt(driver).statuses() == {"split": "DISPATCHED", "report": "PENDING", **superseded}
    succeed_with(driver, "split", {"report": "total"}, p2="", p3="", total="p2 p3")
    assert rebuilt(driver).statuses() == {
        "split": "COMPLETED", "report": "PENDING", "p1": "SKIPPED superseded", "p2": "DISPATCHED", "p3": "DISPATCHED",
        "total": "PENDING",
    }  # fmt: skip
    assert [driver.job.nodes[node].attempt for node in ("p2", "p3")] == [2, 1]
    driver.succeed("p2", "p3")
    assert (driver.status("total"), driver.status("report")) == ("DISPATCHED", "PENDING")
    driver.succeed("total", "report")
    assert rebuilt(driver).job.status == "COMPLETED"


def test_a_new_run_names_what_it_supersedes_and_which_nodes_add_it_again():
    driver = a_split_job()
    (reopen,) = [decision for decision in driver.resume("split") if isinstance(decision, Reopen)]
    assert (reopen.nodes, reopen.superseded, reopen.adders) == (
        ("split", "report"),
        ("p1", "p2", "total"),
        ("split",),
    )


def test_nodes_that_superseded_nodes_had_added_are_also_superseded():
    driver = a_started_job(a="")
    succeed_with(driver, "a", b="")
    succeed_with(driver, "b", c="")
    driver.succeed("c")
    driver.resume("a")
    assert driver.statuses() == {"a": "DISPATCHED", "b": "SKIPPED superseded", "c": "SKIPPED superseded"}
    succeed_with(driver, "a", c="")
    assert rebuilt(driver).status("c") == "DISPATCHED"


def test_what_waited_for_added_nodes_waits_for_the_node_that_runs_again():
    driver = a_started_job(split="", slow="", report="slow")
    succeed_with(driver, "split", {"report": "total"}, total="")
    driver.succeed("total", "slow", "report")
    driver.resume("split")
    assert rebuilt(driver).status("report") == "PENDING"
    succeed_with(driver, "split", {"report": "total"}, total="")
    assert rebuilt(driver).status("report") == "PENDING"
    driver.succeed("total")
    assert rebuilt(driver).status("report") == "DISPATCHED"


@pytest.mark.parametrize(("fails", "status"), [(False, "DISPATCHED"), (True, "SKIPPED upstream_failed")])
def test_a_node_that_is_not_added_again_counts_as_the_one_that_added_it(fails, status):
    driver = a_started_job(split="", slow="", report="slow")
    succeed_with(driver, "split", {"report": "total"}, total="")
    driver.succeed("total", "slow", "report")
    driver.resume("split")
    driver.fail("split") if fails else driver.succeed("split")
    assert rebuilt(driver).status("report") == status


def test_a_group_waits_for_the_node_that_adds_members_to_it_again():
    driver = a_started_job(split="", clean=group(), m=member("clean", "split"), load="clean")
    succeed_with(driver, "split", part=member("clean"))
    driver.succeed("m", "part", "load")
    driver.resume("split")
    assert (rebuilt(driver).status("clean"), driver.status("load")) == ("PENDING", "PENDING")
    succeed_with(driver, "split", part=member("clean"))
    driver.succeed("m")
    assert rebuilt(driver).status("clean") == "PENDING"
    driver.succeed("part", "load")
    assert rebuilt(driver).job.status == "COMPLETED"


def test_a_group_that_is_added_again_has_its_new_members_alone():
    driver = a_started_job(split="", x="", report="split")
    succeed_with(
        driver, "split", {"report": "clean"}, clean=group("x split"), p1=member("clean"), p2=member("clean")
    )
    driver.succeed("x", "p1")
    driver.fail("p2")
    assert driver.job.status == "FAILED"
    driver.resume("split")
    succeed_with(
        driver, "split", {"report": "clean"}, clean=group("x split"), p1=member("clean"), p3=member("clean")
    )
    assert rebuilt(driver).dispatched() == ["p1", "p3"]
    driver.succeed("p1", "p3")
    assert rebuilt(driver).status("report") == "DISPATCHED"
    driver.succeed("report")
    assert driver.job.status == "COMPLETED"


def test_an_added_node_that_failed_does_not_run_next_to_the_node_that_adds_it_again():
    driver = a_started_job(split="")
    succeed_with(driver, "split", part="")
    driver.fail("part")
    driver.resume("split")
    assert driver.statuses() == {"split": "DISPATCHED", "part": "SKIPPED superseded"}
    driver.succeed("split")
    assert driver.job.status == "COMPLETED"
    driver.resume("split")
    assert driver.statuses() == {"split": "DISPATCHED", "part": "SKIPPED superseded"}


def test_a_resume_from_an_added_node_runs_it_again_and_one_from_a_superseded_node_is_ignored():
    driver = a_split_job()
    driver.resume("p1")
    assert driver.dispatched() == ["p1"]
    driver.succeed_all()
    driver.resume("split")
    driver.succeed_all()
    ignored = driver.resume("total")[-1]
    assert isinstance(ignored, Ignore)
    assert ignored.reason == "no node 'total' in this job"


def test_nothing_can_refer_to_a_superseded_node():
    driver = a_split_job(slow="")
    driver.resume("split", "slow")
    assert refusal(driver, new="p1") == "node 'new' depends on 'p1', which is no node of this job"
    assert refusal(driver, {"p1": "new"}, new="") == "'p1' is to depend on 'new', and is no node of this job"


def test_a_name_of_this_run_is_in_use():
    driver = a_started_job(split="", slow="")
    driver.apply(batch(added_by="split", total=""))
    driver.succeed("total")
    assert "'total' already, which 'split' added before" in refusal(driver, added_by="split", total="")
    assert "'total' already: give the new one another name" in refusal(driver, added_by="slow", total="")


def test_children_that_are_expanded_again_supersede_what_their_predecessors_added():
    driver = a_started_job(f=fan_out([1, 2]), last="f")
    succeed_with(driver, "f__0", part="")
    driver.succeed("f__1", "part")
    driver.succeed("last")
    (reopen,) = [decision for decision in driver.resume("f") if isinstance(decision, Reopen)]
    assert (set(reopen.superseded), reopen.adders) == ({"f__0", "f__1", "part"}, ("f__0",))
    succeed_with(driver, "f__0", part="")
    driver.succeed("f__1", "part", "last")
    assert rebuilt(driver).job.status == "COMPLETED"


def test_reinjected_items_add_again():
    driver = a_started_job(f=fan_out([1, 2]))
    succeed_with(driver, "f__0", part="")
    succeed_with(driver, "f__1", other="")
    driver.succeed("part", "other")
    driver.reinject("f", 0)
    assert (driver.status("part"), driver.status("other")) == ("SKIPPED superseded", "COMPLETED")
    succeed_with(driver, "f__0", part="")
    driver.succeed("part")
    assert rebuilt(driver).job.status == "COMPLETED"


def test_what_waits_for_a_name_waits_for_the_new_node_and_a_cycle_through_it_is_refused():
    driver = a_started_job(split="", slow="", report="slow")
    succeed_with(driver, "split", {"report": "total"}, total="")
    driver.succeed("total", "slow", "report")
    driver.resume("split")
    succeed_with(driver, "split", total="report")
    assert "cycle: total → report → total" in str(driver.job.nodes["split"].error)
    assert (driver.status("total"), driver.job.status) == ("SKIPPED superseded", "FAILED")


def test_a_node_that_another_one_adds_under_a_superseded_name_stands_in_for_what_that_had_added():
    driver = a_started_job(a="", slow="", x="", report="slow")
    succeed_with(driver, "a", b="")
    succeed_with(driver, "b", {"report": "c"}, c="")
    driver.succeed("c", "slow", "x", "report")
    driver.resume("a", "slow", "x")
    driver.succeed("a")
    succeed_with(driver, "x", b="")
    driver.succeed("b")
    assert rebuilt(driver).status("report") == "PENDING"
    driver.succeed("slow")
    assert rebuilt(driver).status("report") == "DISPATCHED"


def test_a_node_before_the_one_that_adds_again_does_not_wait_for_it():
    driver = a_started_job(c="", b="x", x="", a=any_of("c", "b"))
    driver.succeed("c")
    succeed_with(driver, "a", {"b": "t"}, t="")
    driver.succeed_all()
    assert driver.job.status == "COMPLETED"
    driver.resume("c")
    driver.fail("c")
    assert rebuilt(driver).dispatched() == ["b"]


def test_what_waited_for_a_superseded_node_does_not_follow_what_that_had_waited_for():
    driver = a_started_job(x="", split="", side="split", clean=group(), m=member("clean"))
    succeed_with(driver, "split", {"side": "p"}, p=member("clean", "x"))
    driver.succeed_all()
    driver.resume("split")
    driver.succeed_all()
    driver.resume("x")
    assert driver.dispatched() == ["x"]
    driver.succeed_all()
    driver.resume("clean")
    assert driver.dispatched() == ["m"]


def test_the_start_of_a_group_that_is_added_again_waits_again():
    driver = a_started_job(split="", x="", y="")
    succeed_with(driver, "split", clean=group("x y"), p=member("clean"))
    driver.succeed_all()
    driver.resume("split")
    assert driver.job.nodes["clean__start"].skip_reason == "superseded"
    succeed_with(driver, "split", clean=group("x y"), p=member("clean"))
    assert rebuilt(driver).dispatched() == ["p"]


def test_a_reused_name_does_not_wait_for_the_node_that_had_it_before():
    driver = a_started_job(first="", x="first", slow="", d="slow")
    driver.succeed("first")
    succeed_with(driver, "x", {"d": "s"}, s="")
    driver.succeed_all()
    driver.resume("first")
    succeed_with(driver, "first", {"x": "m"}, s="", m="d")
    for node in ("s", "d", "m", "x"):
        assert rebuilt(driver).dispatched() == [node]
        driver.succeed(node)
    assert driver.job.status == "COMPLETED"


@pytest.mark.parametrize("place", [member("clean"), ""])
def test_a_member_that_is_added_again_is_in_its_new_group_alone(place):
    driver = a_started_job(split="", clean=group(), m=member("clean"), load="clean")
    succeed_with(driver, "split", p=member("clean"))
    driver.succeed_all()
    driver.resume("split")
    succeed_with(driver, "split", p=place)
    assert rebuilt(driver).job.leaves("clean")[-1][0].node == ("p" if place else "m")
    assert len(driver.job.leaves("clean")) == (2 if place else 1)
    driver.succeed_all()
    assert rebuilt(driver).job.status == "COMPLETED"


def test_the_result_of_a_graph_in_code_is_without_superseded_nodes():
    driver = a_job_of_code(split="")
    succeed_with(driver, "split", old="")
    driver.succeed("old", output="old")
    driver.resume("split")
    succeed_with(driver, "split", new="split")
    driver.succeed("new", output="new")
    assert driver.result == "new"


def test_an_added_wait_that_is_added_again_receives_its_new_signal_alone():
    driver = a_started_job(a="")
    succeed_with(driver, "a", pause=wait(signal="go"))
    driver.signal("go")
    driver.resume("a")
    succeed_with(driver, "a", pause=wait(signal="now"))
    assert rebuilt(driver).job.graph.wiring.waits == {"go": [], "now": ["pause"]}
    driver.signal("now")
    assert driver.status("pause") == "COMPLETED"


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
