"""Files that were made to take long, or that say what cannot be: they are refused, and soon."""

from __future__ import annotations

from typing import Any

import pytest

from dagmaster.authoring import model_reader
from dagmaster.authoring.compiler import availability
from dagmaster.authoring.source_document import document_from_data
from dagmaster.authoring.validation_messages import MAX_PROBLEMS
from dagmaster.errors import WorkflowInvalid
from dagmaster.sdk.handler_registry import Registry, handler
from tests.unit.authoring.compiled_workflows import (
    TASK,
    flow,
    messages,
    nodes_of,
    problems_of,
    the_problem_of,
)


def with_input(definition: str) -> str:
    return flow(f"a: {{{TASK}}}", f"inputs: {{x: {definition}}}")


@pytest.mark.parametrize("wrong", ["5", "{typo: 5}", "{type: strin}"])
def test_of_very_many_problems_the_last_one_says_that_there_are_more(wrong: str) -> None:
    inputs = "".join(f"  i{n}: {wrong}\n" for n in range(4000))
    problems = problems_of(f"workflow_id: w\nnodes: {{a: {{{TASK}}}}}\ninputs:\n{inputs}")
    assert len(problems) == MAX_PROBLEMS + 1
    assert problems[-1].message.startswith("there are more problems")


def test_what_is_wrong_is_copied_once_however_much_it_is(monkeypatch: pytest.MonkeyPatch) -> None:
    copied: list[Any] = []
    copy = model_reader._copy

    def counted(value: Any) -> Any:
        copied.append(value)
        return copy(value)

    monkeypatch.setattr(model_reader, "_copy", counted)
    inputs = "".join(f"  i{n}: 5\n" for n in range(100))
    assert len(problems_of(f"workflow_id: w\nnodes: {{a: {{{TASK}}}}}\ninputs:\n{inputs}")) == 100
    assert len(copied) < 200


def test_nodes_that_wait_for_the_same_two_of_many_branches_cost_one_product(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    folded: list[int] = []
    merge = availability.Availability._merge

    def counted(self: availability.Availability, result: set[Any]) -> bool:
        folded.append(len(result))
        return merge(self, result)

    monkeypatch.setattr(availability.Availability, "_merge", counted)
    lines = []
    for name in "xy":
        branches = ", ".join(f"{{name: b{n}, condition: '== {n}', next: {name}_end}}" for n in range(63))
        other = f"{{name: b63, condition: '== 63', next: {name}_no}}"
        lines.append(
            f"{name}: {{type: conditional, condition_field: job.id, branches: [{branches}, {other}]}}"
        )
        lines += [f"{name}_end: {{{TASK}}}", f"{name}_no: {{{TASK}}}"]
    lines += [f"n{n}: {{{TASK}, depends_on: [x_end, y_end]}}" for n in range(50)]
    assert len(nodes_of("\n".join(lines))) == 56
    assert max(folded) <= availability.MAX_PRODUCT


def test_a_fan_outs_task_that_allows_its_failure_is_refused() -> None:
    node = f"a: {{type: fan_out, source: [1], task: {{{TASK}, allow_failure: true}}}}"
    problem = the_problem_of(flow(node))
    assert problem.message == "a fan-out's task has no 'allow_failure'"
    assert "tolerate_failures" in problem.hint
    assert "on_item_error" in problem.hint


@handler(queue="q")
def make_chunks(count: int, name: str = "", sizes: list[int] | None = None) -> dict[str, Any]:
    return {}


@pytest.mark.parametrize(
    ("params", "message", "path"),
    [
        ("{count: three}", "count is a whole number, not the text 'three'", "nodes.a.params.count"),
        ("{count: 3, name: 5}", "name is text, not the number 5", "nodes.a.params.name"),
        ("{count: '{{ job.id }}', name: 5}", "name is text, not the number 5", "nodes.a.params.name"),
        (
            "{count: 3, sizes: [1, x]}",
            "sizes[1] is a whole number, not the text 'x'",
            "nodes.a.params.sizes[1]",
        ),
    ],
)
def test_a_param_that_is_written_out_must_fit_its_handler(params: str, message: str, path: str) -> None:
    problem = the_problem_of(
        flow(f"a: {{handler: make_chunks, params: {params}}}"), handlers=Registry([make_chunks])
    )
    assert (problem.message, problem.path) == (message, path)


def test_nothing_is_said_of_a_param_with_an_expression() -> None:
    node = "a: {handler: make_chunks, params: {count: '{{ job.id }}', sizes: ['{{ job.id }}']}}"
    assert nodes_of(node, handlers=Registry([make_chunks]))


@pytest.mark.parametrize("number", [str(2**1023), "0x" + "f" * 300, "9" * 308])
def test_a_number_that_the_engine_cannot_hold_is_refused_where_it_is_read(number: str) -> None:
    assert messages(problems_of(with_input(f"{{type: integer, default: {number}}}"))) == [
        "the number is too large"
    ]
    with pytest.raises(WorkflowInvalid, match="too large"):
        document_from_data({"x": int(number, 0)})
    assert document_from_data({"x": 2**1023 - 1}).data


@pytest.mark.parametrize(
    ("text", "hint"),
    [
        ("x and y", "write a list: [x, y]"),
        ("x && y", "write a list: [x, y]"),
        ("x or y", "write {any_of: [x, y]}"),
        ("x or y or z", "write {any_of: [x, y, z]}"),
    ],
)
def test_nodes_joined_by_a_word_are_hinted_as_a_list(text: str, hint: str) -> None:
    tasks = "\n".join(f"{name}: {{{TASK}}}" for name in "xyz")
    assert the_problem_of(flow(f"{tasks}\na: {{{TASK}, depends_on: {text}}}")).hint == hint


@pytest.mark.parametrize("word", ["tasks", "steps", "jobs"])
def test_steps_under_another_word_are_hinted_to_stand_under_nodes(word: str) -> None:
    assert (
        the_problem_of(f"workflow_id: w\n{word}: {{a: {{{TASK}}}}}\n").hint == "write the steps under nodes:"
    )


def test_a_node_that_is_not_indented_is_hinted_to_be() -> None:
    problem = the_problem_of(f"workflow_id: w\nnodes: {{a: {{{TASK}}}}}\nb: {{{TASK}}}\n")
    assert (problem.message, problem.hint) == ("unknown key 'b'", "if it is a node, indent it under nodes:")
