"""What makes a resume a new job: another input, as JSON has it."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import pytest

from dagmaster.authoring.compiler.compile import compile_text
from dagmaster.cli.commands.jobs_resume import ResumeArgs, differing

GRAPH = compile_text("{name: one, inputs: {x: {type: number}}, nodes: {a: {handler: h, queue: q}}}").graph


def order(before: Any, now: Any) -> ResumeArgs:
    """Return a resume of a job that had this input, with that one."""
    head: Any = SimpleNamespace(inputs={"x": before})
    return ResumeArgs(head=head, before=GRAPH, graph=GRAPH, inputs={"x": now}, named=(), key=None)


@pytest.mark.parametrize(
    ("before", "now"),
    [(1, True), (0, False), (1, 1.0), ([1], [True]), ({"a": {"b": 0}}, {"a": {"b": 0.0}}), ("1", 1), (None, 0)],
)
def test_what_is_equal_to_python_and_not_in_json_is_another_input(before: Any, now: Any):
    assert differing({"x": before, "y": 1}, {"x": now, "y": 1}) == {"x"}
    assert differing({"x": now}, {"x": before}) == {"x"}


def test_the_order_of_keys_makes_no_other_input():
    assert differing({"x": {"a": 1, "b": [2]}, "y": 1}, {"y": 1, "x": {"b": [2], "a": 1}}) == frozenset()


def test_an_input_that_is_null_is_not_one_that_is_missing():
    assert differing({"x": None}, {}) == differing({}, {"x": None}) == {"x"}


def test_another_input_makes_a_new_job_and_the_same_a_new_run():
    assert order(1, 1.0).is_new_job
    assert not order(1, 1).is_new_job
