"""Results that are made up for a sandbox: of the declared types, the same every time, without secrets."""

from __future__ import annotations

from typing import Any

from dagmaster.authoring.compiler.compile import compile_definition
from dagmaster.simulation.sample_results import sample_result

FLOW: dict[str, Any] = {
    "workflow_id": "w",
    "version": 1,
    "inputs": {"word": {"type": "string"}},
    "nodes": {
        "make": {"handler": "make", "queue": "q", "next": "tiles"},
        "tiles": {
            "type": "fan_out",
            "source": "{{ nodes.make.output.items }}",
            "task": {"handler": "tile", "queue": "q"},
        },
    },
    "outputs": {
        "word": "{{ inputs.word }}",
        "uri": "{{ nodes.make.output.uri }}",
        "count": "{{ nodes.make.output.count }}",
        "tiles": "{{ nodes.tiles.output }}",
    },
}
SCHEMAS: dict[str, Any] = {
    "make": {"type": "object", "properties": {"uri": {"type": "string"}, "count": {"type": "integer"}}},
    "tile": {"type": "object", "properties": {"url": {"type": "string"}}},
}


def test_a_result_has_the_declared_types_and_is_the_same_every_time():
    graph = compile_definition(FLOW)
    result: Any = sample_result(graph, {"word": "hello"}, SCHEMAS)
    assert result == sample_result(graph, {"word": "hello"}, SCHEMAS)
    assert (result["word"], type(result["uri"]), type(result["count"])) == ("hello", str, int)
    assert [type(tile["url"]) for tile in result["tiles"]] == [str, str]


def test_a_workflow_without_outputs_has_those_of_its_last_nodes():
    one = {name: part for name, part in FLOW.items() if name != "outputs"}
    result: Any = sample_result(compile_definition(one), {"word": ""}, SCHEMAS)
    assert [type(tile["url"]) for tile in result] == [str, str]


def test_outputs_that_read_what_nobody_declares_are_empty():
    flow = {**FLOW, "outputs": {"x": "{{ inputs.word | int }}"}}
    assert sample_result(compile_definition(flow), {"word": "no number"}, {}) == {}
