"""The outline of a stored graph is the compiled graph without expressions: readers show the same of both."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given

from dagmaster.application.node_lookup import actions_of, approvals_of, dependencies_of
from dagmaster.authoring.compiler.compile import compile_definition, compile_file, compile_text
from dagmaster.authoring.diagram.dependencies import list_dependencies
from dagmaster.authoring.graph_outline import outline_graph
from dagmaster.bootstrap import find_handlers
from dagmaster.engine.graph import ConditionalSpec, FanOutSpec, Graph, Spec
from tests.unit.authoring.workflow_strategies import workflows

WORKFLOWS = sorted((Path(__file__).parents[3] / "workflows").glob("*.yaml"))
SHOWN = (
    "handler", "queue", "retry", "dispatch_timeout_seconds", "allow_failure", "max_parallel", "workflow_id", "version",
    "signal", "approvers", "on_timeout",
)  # fmt: skip


def check(compiled: Graph) -> None:
    definition = json.loads(json.dumps(compiled.definition))
    graph, outline = compile_definition(definition), outline_graph(definition, compiled.content_hash)
    assert (outline.workflow_id, outline.version, outline.name) == (
        graph.workflow_id,
        graph.version,
        graph.name,
    )
    assert (outline.inputs, outline.content_hash) == (graph.inputs, graph.content_hash)
    assert (outline.on_failure, outline.deadline_seconds) == (graph.on_failure, graph.deadline_seconds)
    assert list(outline.specs) == list(graph.specs)
    for node_id, spec in graph.specs.items():
        assert shown(outline.specs[node_id]) == shown(spec)
        assert outline.specs[node_id].requires == spec.requires
    assert (outline.wiring.dependents, outline.wiring.waits) == (graph.wiring.dependents, graph.wiring.waits)
    explained = outline_graph(definition, compiled.content_hash, with_conditions=True)
    assert conditions_of(explained) == conditions_of(graph)
    assert list(explained.specs) == list(graph.specs)
    for read in (actions_of, approvals_of, dependencies_of, list_dependencies):
        assert read(outline) == read(graph)


def shown(spec: Spec) -> list[Any]:
    """Return what readers use of a node."""
    child = shown(spec.child) if isinstance(spec, FanOutSpec) else None
    return [type(spec), spec.description, child, *(getattr(spec, name, None) for name in SHOWN)]


def conditions_of(graph: Graph) -> list[Any]:
    """Return what explanations quote of branches."""
    conditionals = [spec for spec in graph.specs.values() if isinstance(spec, ConditionalSpec)]
    return [
        (
            spec.id,
            spec.condition_field is None,
            spec.refs,
            [(branch.name, branch.condition, branch.next) for branch in spec.branches],
        )
        for spec in conditionals
    ]


@pytest.mark.parametrize("path", WORKFLOWS, ids=lambda path: path.stem)
def test_the_outline_of_a_shipped_workflow_shows_what_its_graph_shows(path):
    check(compile_file(path, handlers=find_handlers()).graph)


@given(workflows())
def test_the_outline_of_any_workflow_shows_what_its_graph_shows(document):
    check(compile_text(json.dumps(document, ensure_ascii=False)).graph)
