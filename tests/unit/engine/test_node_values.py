"""Which nodes get secret inputs."""

from __future__ import annotations

from dagmaster.authoring.compiler.compile import compile_text
from dagmaster.engine.node_values import nodes_with_inputs

FLOW = """
name: n
inputs: {key: {type: string, secret: true}, other: {type: string, secret: true}, n: {type: integer, default: 1}}
nodes:
  whole: {handler: h, queue: q, params: {x: "{{ inputs.key }}"}}
  inside: {handler: h, queue: q, params: {x: {y: ["a {{ inputs.key }}"]}}}
  plain: {handler: h, queue: q, params: {key: "{{ inputs.n }}", s: "{{ secrets.key }}"}, depends_on: whole}
  another: {handler: h, queue: q, params: {x: "{{ inputs.other }}"}}
  each: {type: fan_out, source: [1], task: {handler: h, queue: q, params: {x: "{{ inputs.key }}"}}}
  child: {type: workflow, workflow_id: w, inputs: {key: "{{ inputs.key }}"}}
  ask: {type: approval, message: "go on?"}
"""


def test_nodes_with_secret_inputs_are_found_at_any_depth_and_approvals_are_for_all_inputs():
    graph = compile_text(FLOW).graph
    assert nodes_with_inputs(graph, frozenset({"key"})) == {"whole", "inside", "each", "child", "ask"}
    assert nodes_with_inputs(graph, frozenset({"other"})) == {"another", "ask"}
    assert nodes_with_inputs(graph, frozenset()) == frozenset()
