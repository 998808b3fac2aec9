"""Graphs as programs read them: nodes, what they run, and the dependencies between them."""

from __future__ import annotations

import pytest

from dagmaster.application.queries.graphs import job_graph, workflow_graph
from dagmaster.application.queries.job_detail import job_detail
from dagmaster.application.views import Kind
from dagmaster.engine.shown_graph import MAX_ARROWS
from dagmaster.errors import WorkflowNotFound
from tests.unit.application.queries.test_workflows import a_version
from tests.unit.application.world import FakeReadStore, a_record, an_application, run

BRANCHED = {
    "workflow_id": "flow",
    "version": 1,
    "nodes": {
        "check": {
            "type": "conditional",
            "branches": [
                {"default": True, "next": "small"},
                {"name": "large", "condition": "inputs.n > 1", "next": ["split"]},
            ],
        },
        "small": {"handler": "shrink", "queue": "q", "description": "As it is."},
        "split": {
            "type": "fan_out",
            "source": [1],
            "task": {"type": "fan_out", "source": [1], "task": {"handler": "clip", "queue": "q"}},
        },
        "end": {"handler": "publish", "queue": "q", "depends_on": {"any_of": ["small", "split"]}},
    },
}


def store() -> FakeReadStore:
    return FakeReadStore([a_record()], definitions={"x": BRANCHED}, version_records=[a_version(2)])


def test_a_graph_names_what_each_node_runs():
    nodes = {node.node_id: node for node in run(job_graph(an_application(store()), "7")).nodes}
    assert [node.kind for node in nodes.values()] == [Kind.CONDITIONAL, Kind.TASK, Kind.FAN_OUT, Kind.TASK]
    assert [node.handler for node in nodes.values()] == [None, "shrink", "clip", "publish"]
    assert (nodes["check"].action, nodes["split"].action) == ("conditional", "clip")
    assert nodes["small"].description == "As it is."


def test_edges_have_branches_and_alternatives():
    edges = [edge.to_dict() for edge in run(job_graph(an_application(store()), "7")).edges]
    assert edges == [
        {"source": "check", "target": "split", "branches": ["large"], "is_alternative": False},
        {"source": "check", "target": "small", "branches": ["default"], "is_alternative": False},
        {"source": "small", "target": "end", "branches": [], "is_alternative": True},
        {"source": "split", "target": "end", "branches": [], "is_alternative": True},
    ]


GROUPED = {
    "workflow_id": "flow",
    "version": 1,
    "nodes": {
        "x": {"handler": "a", "queue": "q"},
        "y": {"handler": "a", "queue": "q"},
        "clean": {"type": "group", "depends_on": ["x", "y"]},
        "wash": {"handler": "a", "queue": "q", "group": "clean"},
        "pack": {"handler": "a", "queue": "q", "depends_on": "clean"},
    },
}


def test_a_group_joins_its_nodes_and_no_node_is_shown_that_was_not_written():
    app = an_application(FakeReadStore([a_record()], definitions={"x": GROUPED}))
    view = run(job_graph(app, "7"))
    assert [(node.node_id, node.kind) for node in view.nodes][2] == ("clean", Kind.GROUP)
    assert [node.group for node in view.nodes] == [None, None, None, "clean", None]
    assert [(edge.source, edge.target) for edge in view.edges] == [
        ("x", "wash"),
        ("y", "wash"),
        ("clean", "pack"),
        ("wash", "clean"),
    ]
    job = run(job_detail(app, "7"))
    assert list(job.nodes) == ["x", "y", "clean", "wash", "pack"]
    assert job.dependencies["wash"] == ("x", "y")


def test_what_joins_the_dependencies_of_a_large_group_stands_next_to_the_group():
    members = {f"m{number}": {"handler": "a", "queue": "q", "group": "inner"} for number in range(MAX_ARROWS)}
    inner = {"type": "group", "group": "outer", "depends_on": ["x", "y"]}
    nodes = {**GROUPED["nodes"], "outer": {"type": "group"}, "inner": inner, **members}  # type: ignore[dict-item]
    store = FakeReadStore([a_record()], definitions={"x": {**GROUPED, "nodes": nodes}})
    groups = {node.node_id: node.group for node in run(job_graph(an_application(store), "7")).nodes}
    assert (groups["inner__start"], groups["inner"], groups["m7"]) == ("outer", "outer", "inner")


def test_a_workflow_without_an_active_version_shows_its_newest():
    view = run(workflow_graph(an_application(store()), "flow"))
    assert (view.workflow_id, view.content_hash) == ("flow", "x")
    with pytest.raises(WorkflowNotFound, match="no version 9"):
        run(workflow_graph(an_application(store()), "flow", 9))
