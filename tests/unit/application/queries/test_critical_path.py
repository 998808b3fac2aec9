"""The critical path: the nodes that decided how long a job took."""

from __future__ import annotations

from dagmaster.application.queries.timeline import critical_path

DIAMOND = {"a": (), "b": ("a",), "c": ("a",), "d": ("b", "c")}


def test_the_path_leads_through_the_slower_branch():
    assert critical_path({"a": 1, "b": 5, "c": 9, "d": 10}, DIAMOND) == ("a", "c", "d")


def test_a_node_that_did_not_run_is_not_on_the_path():
    assert critical_path({"a": 1, "b": 5, "d": 10}, DIAMOND) == ("a", "b", "d")


def test_the_path_of_a_running_job_ends_at_what_runs():
    assert critical_path({"a": 1, "b": 5, "c": 20}, DIAMOND) == ("a", "c")


def test_of_nodes_that_ended_together_the_last_counts():
    assert critical_path({"a": 1, "b": 5, "c": 4, "d": 5}, DIAMOND) == ("a", "b", "d")
    assert critical_path({"a": 1, "b": 5, "c": 5, "d": 6}, DIAMOND) == ("a", "c", "d")


def test_a_job_that_has_not_begun_has_no_path():
    assert critical_path({}, DIAMOND) == ()
