"""Resume: a new run or a new job, what is checked before, and what the dry runs return."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import pytest

from dagmaster.application.commands.resume import ResumeRequest, _Resume, changed_names
from dagmaster.authoring.compiler.compile import compile_text

GRAPH = compile_text("{name: one, inputs: {x: {type: number}}, nodes: {a: {handler: h, queue: q}}}").graph


def a_resume(before: Any, after: Any, **request: Any) -> _Resume:
    """Return a resume of a job that had this input, with that one."""
    job: Any = SimpleNamespace(id="7", inputs={"x": before})
    return _Resume(
        job=job,
        source_graph=GRAPH,
        graph=GRAPH,
        inputs={"x": after},
        request=ResumeRequest(sent_by="ada", **request),
    )


@pytest.mark.parametrize(
    ("before", "after"),
    [(1, True), (0, False), (1, 1.0), ([1], [True]), ({"a": {"b": 0}}, {"a": {"b": 0.0}}), ("1", 1), (None, 0)],
)
def test_values_that_are_equal_in_python_and_not_in_json_differ(before: Any, after: Any):
    assert changed_names({"x": before, "y": 1}, {"x": after, "y": 1}) == {"x"}
    assert changed_names({"x": after}, {"x": before}) == {"x"}


def test_the_order_of_keys_does_not_matter():
    assert changed_names({"x": {"a": 1, "b": [2]}, "y": 1}, {"y": 1, "x": {"b": [2], "a": 1}}) == frozenset()


def test_a_null_input_is_not_a_missing_one():
    assert changed_names({"x": None}, {}) == changed_names({}, {"x": None}) == {"x"}


def test_another_input_makes_a_new_job_and_the_same_a_new_run():
    assert a_resume(1, 1.0).is_new_job
    assert not a_resume(1, 1).is_new_job


def test_the_default_key_is_the_same_for_the_same_resume_only():
    key = a_resume(1, 2, from_nodes=("a", "b")).idempotency_key
    assert key == a_resume(1, 2, from_nodes=("b", "a")).idempotency_key
    assert key.startswith("resume:7:")
    assert len(key) <= 128
    others = [a_resume(1, 3, from_nodes=("a", "b")), a_resume(1, 2, from_nodes=("a",)), a_resume(1, 2.0)]
    assert key not in {other.idempotency_key for other in others}
    assert a_resume(1, 2, idempotency_key="mine").idempotency_key == "mine"
