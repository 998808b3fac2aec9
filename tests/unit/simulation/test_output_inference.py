"""What mocks give is what the workflow can read."""

from __future__ import annotations

import random
from typing import Any

import pytest
from pydantic import BaseModel

from dagmaster.authoring.compiler.compile import compile_text
from dagmaster.engine.expressions.filters import FILTERS
from dagmaster.sdk.handler_registry import Registry, handler
from dagmaster.simulation.mock_handlers import learn_shapes
from dagmaster.simulation.output_inference import _FILTER_INPUTS, _FILTER_OUTPUTS

LOOK = "look: {handler: see, queue: q, next: then}"


def drawn(text: str, *others: str, node: str = "look", known: Registry | None = None) -> list[Any]:
    """Return a hundred outputs of a node."""
    graphs = [compile_text(each).graph for each in (text, *others)]
    shape = learn_shapes(graphs, known).of[node]
    return [shape.draw(random.Random(seed)) for seed in range(100)]


def flow(value: str) -> str:
    return f'{{workflow_id: f, nodes: {{{LOOK}, then: {{handler: h, queue: q, params: {{p: "{{{{ {value} }}}}"}}}}}}}}'


@pytest.mark.parametrize(
    ("read", "kind"),
    [
        ("nodes.look.output.x | upper", str),
        ("nodes.look.output.x | length", str),
        ("nodes.look.output.x | default('none')", str),
        ("nodes.look.output.x + ' and more'", str),
        ("nodes.look.output.x * 2", int),
        ("nodes.look.output.x < 7", int),
        ("nodes.look.output.x | round", int),
        ("nodes.look.output.x | sort", list),
        ("1 if not nodes.look.output.x else 2", bool),
    ],
)
def test_the_kind_of_a_value_is_inferred_from_its_readers(read: str, kind: type) -> None:
    assert {type(output["x"]) for output in drawn(flow(read))} == {kind}


@pytest.mark.parametrize(
    "read",
    [
        "nodes.look.output.list | first",
        "nodes.look.output.list[2].name | trim",
        "10 / nodes.look.output.part",
        "nodes.look.output.a + nodes.look.output.b",
        "(nodes.look.output.many | sort)[:2] + nodes.look.output.rest",
        "nodes.look.output.low < nodes.look.output.high",
        "nodes.look.output.list | map(attribute='size')",
        "(nodes.look.output.list | unique | sum) // nodes.look.output.share.of",
    ],
)
def test_what_is_read_can_be_read_of_all_that_is_given(read: str) -> None:
    graph = compile_text(flow(read)).graph
    for output in drawn(flow(read)):
        graph.specs["then"].params.resolve({"nodes": {"look": {"output": output}}})  # type: ignore[attr-defined]


def test_the_items_of_a_fan_out_are_what_its_children_read() -> None:
    text = """
    workflow_id: f
    nodes:
      look: {handler: see, queue: q, next: tiles}
      tiles:
        type: fan_out
        source: "{{ nodes.look.output.tiles }}"
        task: {handler: h, queue: q, params: {x: "{{ item.x * 2 }}", of: "{{ item.of.name | lower }}"}}
        next: then
      then: {handler: h, queue: q, params: {p: "{{ nodes.tiles.outputs[1].path | basename }}"}}
    """
    tiles = [tile for output in drawn(text) for tile in output["tiles"]]
    assert all(isinstance(tile["x"], int) and isinstance(tile["of"]["name"], str) for tile in tiles)
    assert min(len(output["tiles"]) for output in drawn(text)) == 2
    assert all(isinstance(output["path"], str) for output in drawn(text, node="tiles"))


def test_a_condition_determines_the_kind_of_its_field_and_both_sides_are_drawn() -> None:
    text = """
    workflow_id: f
    nodes:
      look: {handler: see, queue: q, next: route}
      route:
        type: conditional
        condition_field: "{{ nodes.look.output.kind }}"
        branches:
          - {name: raster, condition: "== 'raster'", next: then}
          - {name: other, default: true}
      then: {handler: h, queue: q}
    """
    kinds = [output["kind"] for output in drawn(text)]
    assert {type(kind) for kind in kinds} == {str}
    assert 10 < kinds.count("raster") < 100


def test_the_inputs_and_outputs_of_a_child_workflow_also_say_it() -> None:
    parent = """
    workflow_id: parent
    nodes:
      look: {handler: see, queue: q, next: inner}
      inner: {type: workflow, workflow_id: child, inputs: {name: "{{ nodes.look.output.x }}"}, next: then}
      then: {handler: h, queue: q, params: {p: "{{ nodes.inner.output.said | upper }}"}}
    """
    child = """
    workflow_id: child
    inputs: {name: {type: string, required: true}}
    nodes: {deep: {handler: h, queue: q}}
    outputs: {said: "{{ nodes.deep.output.words }}"}
    """
    assert {type(output["x"]) for output in drawn(parent, child)} == {str}
    assert {type(output["words"]) for output in drawn(parent, child, node="deep")} == {str}


class Place(BaseModel):
    name: str
    sizes: list[float]
    note: str | None = None


class Seen(BaseModel):
    x: bool
    places: list[Place]


def test_the_model_of_a_typed_handler_has_precedence() -> None:
    @handler("see")
    def see() -> Seen:
        raise NotImplementedError

    for output in drawn(flow("nodes.look.output.x | length"), known=Registry([see])):
        Seen.model_validate(output, strict=True)


def test_the_mocks_know_what_every_filter_takes_or_gives():
    # `default` takes and gives anything.
    assert {*_FILTER_INPUTS, *_FILTER_OUTPUTS} == FILTERS.keys() - {"default"}
