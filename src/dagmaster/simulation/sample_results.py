"""A result that a workflow might have, for a sandbox: of the declared types, and the same every time."""

from __future__ import annotations

import random
from typing import TYPE_CHECKING, Any, Final

from dagmaster.engine.graph import FanInSpec, FanOutSpec
from dagmaster.engine.groups import last_nodes
from dagmaster.errors import EvaluationFailed
from dagmaster.simulation.mock_handlers import learn_shapes, tasks_of
from dagmaster.simulation.value_schema import Shape

if TYPE_CHECKING:
    from collections.abc import Mapping

    from dagmaster.engine.graph import Graph, Spec
    from dagmaster.json_types import JsonObject, JsonValue

CHILDREN: Final = 2
"""How many children a fan-out has in a sample."""


def sample_result(
    graph: Graph, inputs: Mapping[str, JsonValue], schemas: Mapping[str, JsonObject]
) -> JsonValue:
    """Return a result of a graph. `schemas`: of the outputs of handlers, as far as they are published."""
    shapes = learn_shapes([graph], None)
    for node, task in tasks_of([graph]).items():
        if task.handler in schemas:
            shapes.typed(node, schemas[task.handler])
    rng = random.Random(graph.content_hash)  # noqa: S311 - to be drawn again
    nodes: dict[str, Any] = {
        node: {"output": _draw(spec, shapes.of.get(node, Shape()), rng), "status": "COMPLETED"}
        for node, spec in graph.specs.items()
    }
    if graph.outputs is not None:
        try:
            result: JsonValue = graph.outputs.resolve({"nodes": nodes, "inputs": dict(inputs), "env": {}})
        except EvaluationFailed:
            # What is read is not what any handler declares.
            return {}
        return result
    last = graph.result_nodes or tuple(last_nodes(graph.specs, graph.wiring))
    outputs = {node: nodes[node]["output"] for node in last}
    return next(iter(outputs.values())) if len(outputs) == 1 else outputs


def _draw(spec: Spec, shape: Shape, rng: random.Random) -> Any:
    if isinstance(spec, FanOutSpec | FanInSpec):
        return [shape.draw(rng, number) for number in range(CHILDREN)]
    return shape.draw(rng)
