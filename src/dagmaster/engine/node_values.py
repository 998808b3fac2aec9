"""What a node gets (params, inputs of a child job, a message), and which nodes get secret inputs."""

from __future__ import annotations

from typing import TYPE_CHECKING

from dagmaster.engine.graph import ApprovalSpec, FanOutSpec, TaskSpec, WorkflowSpec

if TYPE_CHECKING:
    from dagmaster.engine.expressions.templates import Template
    from dagmaster.engine.graph import Graph, Spec


def innermost(spec: Spec) -> Spec:
    """Return what a fan-out runs for each item, at any depth; another node itself."""
    while isinstance(spec, FanOutSpec):
        spec = spec.child
    return spec


def template_of(spec: Spec) -> Template | None:
    if isinstance(spec, TaskSpec):
        return spec.params
    if isinstance(spec, WorkflowSpec):
        return spec.inputs
    return spec.message if isinstance(spec, ApprovalSpec) else None


def uses_secrets(template: Template, secret_inputs: frozenset[str]) -> bool:
    """Return whether a template has parts that are secret: `secrets.NAME`, or one of these inputs."""
    # A secret input is used alone, so its path ends with its name. Another path with this end costs a search
    # of the params, and no more.
    return any(
        use.keys[0] == "secrets" or (use.keys[0] == "inputs" and use.keys[-1] in secret_inputs)
        for _, use in template.uses
    )


def nodes_with_inputs(graph: Graph, secret_inputs: frozenset[str]) -> frozenset[str]:
    """Return the nodes whose results would be reused or not by the values of these secret inputs.

    An approval is for all inputs of the job. Nodes that follow these are not among them.
    """
    if not secret_inputs:
        return frozenset()
    return frozenset(
        node_id
        for node_id, spec in graph.specs.items()
        if isinstance(spec, ApprovalSpec)
        or ((template := template_of(innermost(spec))) is not None and _uses_inputs(template, secret_inputs))
    )


def _uses_inputs(template: Template, names: frozenset[str]) -> bool:
    return any(use.keys[0] == "inputs" and use.keys[-1] in names for _, use in template.uses)
