"""Secret inputs are typed parts: whole params and parts of texts. Everything else is refused where it is written."""

from __future__ import annotations

from typing import Any

import pytest

from dagmaster.authoring.compiler.compile import compile_definition, compile_text
from dagmaster.authoring.source_document import read_document
from dagmaster.engine.expressions.secret_parts import (
    SecretInput,
    SecretText,
    attach_secrets,
    detach_secrets,
    fill_secrets,
    hide_secrets,
    names_in,
    typed_inputs,
)
from dagmaster.engine.graph import Graph, TaskSpec
from dagmaster.errors import EvaluationFailed, WorkflowInvalid

HEAD = """
workflow_id: w
inputs:
  key: {type: string, required: true, secret: true}
  box: {type: object, required: true, secret: true}
  list: {type: array, required: true, secret: true}
  open: {type: string, required: true}
"""
SECRET = {"key": "hunter2", "box": {"a": "hunter3"}, "list": ["hunter4"], "open": "o"}
NAMES = frozenset({"key", "box", "list"})

REFUSED = [
    "inputs.key[0:2]",
    "inputs.key[0]",
    "inputs.box.a",
    "inputs.box['a']",
    "inputs.list[0]",
    "inputs.list[inputs.open]",
    "inputs['key'][0]",
    "inputs.key | upper",
    "inputs.key | replace('a', 'b')",
    "inputs.open | replace(inputs.key, 'b')",
    "inputs.key | length",
    "inputs.list | length",
    "inputs.box | tojson",
    "inputs.key == 'a'",
    "'a' == inputs.key",
    "inputs.key < 'm'",
    "'a' in inputs.key",
    "inputs.open in inputs.list",
    "inputs.key is defined",
    "inputs.key is none",
    "not inputs.key",
    "inputs.key and true",
    "'a' if inputs.key else 'b'",
    "inputs.key if inputs.open == 'o' else 'b'",
    "inputs.key | default('x')",
    "inputs.open | default(inputs.key)",
    "inputs.key + 'x'",
    "'x' + inputs.key",
    "[inputs.key]",
    "{'a': inputs.key}",
    "inputs.list | first",
    "inputs.list | join(',')",
    "-inputs.key",
    "inputs | tojson",
    "inputs",
    "inputs[inputs.open]",
    "inputs[inputs.key]",
]


def in_params(expression: str) -> str:
    return f"{HEAD}nodes:\n  a: {{handler: h, queue: q, params: {{x: ['{{{{ {expression.replace(chr(39), chr(39) * 2)} }}}}']}}}}\n"


def problems(text: str) -> list[tuple[int, str]]:
    with pytest.raises(WorkflowInvalid) as refused:
        compile_text(text, allow_missing_handlers=True)
    return [(problem.line, problem.message) for problem in refused.value.problems]


def params(graph: Graph) -> Any:
    spec = graph.specs["a"]
    assert isinstance(spec, TaskSpec)
    return spec.params.resolve({"inputs": typed_inputs(NAMES, SECRET)})


@pytest.mark.parametrize("expression", REFUSED)
def test_what_computes_from_a_secret_input_is_refused_with_its_place(expression: str):
    ((line, message),) = problems(in_params(expression))
    assert line == 9
    assert "secret" in message or "must be literal" in message


@pytest.mark.parametrize("expression", REFUSED)
def test_a_stored_definition_that_does_so_compiles_and_fails_its_node_without_the_value(expression: str):
    data = read_document(in_params(expression), "stored").data
    if expression in ("inputs[inputs.open]", "inputs[inputs.key]"):
        # It was never accepted.
        return
    if expression == "inputs.open | default(inputs.key)":
        # The default is not needed, so it is not evaluated.
        assert params(compile_definition(data)) == {"x": ["o"]}
        return
    with pytest.raises(EvaluationFailed, match="secret") as failed:
        params(compile_definition(data))
    assert "hunter" not in str(failed.value)


@pytest.mark.parametrize(
    "nodes",
    [
        "a: {type: fan_out, source: '{{ inputs.list }}', task: {handler: h}}",
        "a: {type: fan_out, source: [{x: '{{ inputs.key }}'}], task: {handler: h}}",
        "a: {type: wait, seconds: '{{ inputs.key }}'}",
        "a: {type: wait, until: '{{ inputs.key }}'}",
        "a: {type: approval, message: 'Use {{ inputs.key }}?'}",
        "a: {type: conditional, condition_field: '{{ inputs.key }}', branches: [{name: x, condition: '== 5', next: END}]}",
        "a: {type: conditional, condition_field: inputs.key, branches: [{name: x, condition: '== 5', next: END}]}",
        "a: {type: conditional, condition_field: inputs.open, branches: [{name: x, condition: '== inputs.key', next: END}]}",
        "a: {type: conditional, branches: [{name: x, condition: 'inputs.key', next: END}]}",
    ],
)
def test_a_decision_may_not_use_a_secret_input(nodes: str):
    messages = [message for _, message in problems(f"{HEAD}nodes:\n  {nodes}\n")]
    assert any(
        "may only be used in the params of tasks and the inputs of child workflows" in each
        for each in messages
    )


def test_the_result_of_a_job_may_not_have_a_secret_input():
    text = f"{HEAD}nodes:\n  a: {{handler: h, queue: q}}\noutputs: {{key: '{{{{ inputs.key }}}}'}}\n"
    ((line, message),) = problems(text)
    assert line == 10
    assert "secret input 'key'" in message


def test_a_whole_param_a_part_of_a_text_and_an_input_of_a_child_are_allowed():
    text = (
        f"{HEAD}nodes:\n"
        "  a: {handler: h, queue: q, params: {whole: '{{ inputs.box }}', text: 'Bearer {{ inputs.key }}', n: ['{{ inputs.list }}']}}\n"
        "  b: {type: workflow, workflow_id: child, inputs: {key: '{{ inputs.key }}', text: 'x{{ inputs.key }}'}}\n"
    )
    resolved = params(compile_text(text, allow_missing_handlers=True).graph)
    key, box = SecretInput("key", "hunter2"), SecretInput("box", {"a": "hunter3"})
    assert resolved["whole"] == box
    assert resolved["text"] == SecretText(("Bearer ", key))
    assert "hunter" not in repr(resolved)


def test_detached_secrets_have_no_value_and_are_filled_with_their_types():
    resolved = {
        "whole": SecretInput("box", "BOX"),
        "text": SecretText(("Bearer ", SecretInput("key", "KEY"))),
        "empty": SecretText((SecretInput("box", "BOX"), "")),
    }
    value, places, inputs = detach_secrets(resolved)
    assert value == {"whole": None, "text": None, "empty": None}
    assert "BOX" not in f"{places}"
    assert inputs == {"box": "BOX", "key": "KEY"}
    assert names_in(places) == (set(), {"key", "box"})
    assert hide_secrets(dict(value), places) == {"whole": "***", "text": "Bearer ***", "empty": "***"}
    opened = {"box": {"a": 1}, "key": "k"}
    filled = fill_secrets(attach_secrets(value, places, inputs), str, lambda part: opened[part.name])
    assert filled == {"whole": {"a": 1}, "text": "Bearer k", "empty": '{"a":1}'}


def test_an_optional_secret_input_is_not_told_to_write_a_default_filter():
    text = "{name: n, inputs: {key: {type: string, secret: true}}, nodes: {a: {handler: h, queue: q, params: {x: '{{ inputs.key }}'}}}}"
    (warning, *_) = compile_text(text, allow_missing_handlers=True).warnings
    assert warning.hint == "give it `required: true` or a default"
