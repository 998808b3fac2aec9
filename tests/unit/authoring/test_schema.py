"""The JSON Schema of workflow files, for editors: it is one, and it knows what the compiler knows of keys and types."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given
from jsonschema import Draft202012Validator

from dagmaster.authoring.compiler.compile import compile_document
from dagmaster.authoring.schema import NODE_MODELS, json_schema
from dagmaster.authoring.source_document import document_from_data, read_document, read_file
from tests.unit.authoring.compiler.test_compile import FILES, WHOLE
from tests.unit.authoring.workflow_strategies import workflows

SCHEMA = json_schema()
VALIDATOR = Draft202012Validator(SCHEMA)


def problems(text: str) -> list[str]:
    return [error.message for error in VALIDATOR.iter_errors(read_document(text).data)]


def in_file(node: str) -> str:
    return f"{{workflow_id: w, nodes: {{a: {node}}}}}"


def test_it_is_a_json_schema_of_draft_2020_12():
    assert SCHEMA["$schema"] == "https://json-schema.org/draft/2020-12/schema"
    Draft202012Validator.check_schema(SCHEMA)


def test_every_definition_it_points_at_is_there():
    def pointed_at(value: Any) -> set[str]:
        if isinstance(value, dict):
            result = {value["$ref"]} if isinstance(value.get("$ref"), str) else set()
            return result.union(*map(pointed_at, value.values()))
        return set().union(*map(pointed_at, value)) if isinstance(value, list) else set()

    assert pointed_at(SCHEMA) <= {f"#/$defs/{name}" for name in SCHEMA["$defs"]}
    assert "x-defined-as" not in str(SCHEMA)


def test_every_key_has_a_description():
    for model in NODE_MODELS.values():
        for name, key in SCHEMA["$defs"][model.__name__]["properties"].items():
            assert name == "type" or key.get("description"), (model, name)


@pytest.mark.parametrize("file", FILES, ids=lambda file: file.stem)
def test_it_accepts_every_workflow_that_ships(file):
    VALIDATOR.validate(read_file(file).data)


def test_it_accepts_a_file_with_every_type_of_node():
    VALIDATOR.validate(read_document(WHOLE).data)


@pytest.mark.parametrize(
    "text",
    [
        "{workflow_id: w, nodez: {}, nodes: {a: {handler: h, queue: q}}}",
        "{workflow_id: w}",
        "{workflow_id: w, nodes: {}}",
        "{workflow_id: a b, nodes: {a: {handler: h, queue: q}}}",
        "{workflow_id: w, on_failure: stop, nodes: {a: {handler: h, queue: q}}}",
        "{workflow_id: w, inputs: {x: {tpe: string}}, nodes: {a: {handler: h, queue: q}}}",
        "{workflow_id: w, inputs: {x: {type: int}}, nodes: {a: {handler: h, queue: q}}}",
        "{workflow_id: w, nodes: {a__b: {handler: h, queue: q}}}",
        "{workflow_id: w, nodes: {a-b: {handler: h, queue: q}}}",
        in_file("{handlr: h, queue: q}"),
        in_file("{queue: q}"),
        in_file("echo"),
        in_file("{handler: h, queue: q, timeout_seconds: 0}"),
        in_file("{handler: h, queue: q, timeout_seconds: 86401}"),
        in_file("{handler: h, queue: q, timeout_seconds: }"),
        in_file("{handler: h, queue: q, params: [1]}"),
        in_file("{handler: h, queue: q, retry: 3}"),
        in_file("{handler: h, queue: q, retry: {max_attempt: 3}}"),
        in_file("{handler: h, queue: q, next: 3}"),
        in_file("{handler: h, queue: q, depends_on: }"),
        in_file("{handler: h, queue: q, depends_on: []}"),
        in_file("{handler: h, queue: q, depends_on: {any: [a]}}"),
        in_file("{handler: h, queue: q, depends_on: {any_of: [a], all_of: [b]}}"),
        in_file("{handler: h, queue: q, depends_on: {any_of: [{any_of: 3}]}}"),
        in_file("{type: taks, handler: h, queue: q}"),
        in_file("{type: start, queue: q}"),
        in_file("{type: start, depends_on: a}"),
        in_file("{type: end, next: a}"),
        in_file("{type: conditional, next: a, branches: [{default: true}]}"),
        in_file("{type: conditional, branches: []}"),
        in_file("{type: conditional, branches: [{conditon: x}]}"),
        in_file("{type: fan_out, source: 5, task: {handler: h, queue: q}}"),
        in_file("{type: fan_out, source: nodes.x.output, task: {handler: h, queue: q}}"),
        in_file("{type: fan_out, source: [1], task: {handlr: h, queue: q}}"),
        in_file("{type: fan_out, source: [1], task: {type: approval}}"),
        in_file("{type: fan_out, source: [1], tolerate_failures: -1, task: {handler: h, queue: q}}"),
        in_file("{type: fan_out, source: [1], tolerate_failures: true, task: {handler: h, queue: q}}"),
        in_file("{type: fan_in, aggregation: mean}"),
        in_file("{type: workflow}"),
        in_file("{type: approval, on_timeout: go_on}"),
        in_file("{type: wait, seconds: soon}"),
        in_file("{type: wait, seconds: -1}"),
    ],
)
def test_it_refuses_typos_and_values_of_the_wrong_kind(text):
    assert problems(text)


def test_an_editor_is_shown_the_problems_of_that_type_of_node_only():
    assert problems(in_file("{type: approval, approver: [ada]}")) == [
        "Additional properties are not allowed ('approver' was unexpected)"
    ]


@given(workflows())
def test_it_accepts_whatever_the_compiler_accepts(data):
    compile_document(document_from_data(data))
    VALIDATOR.validate(data)
