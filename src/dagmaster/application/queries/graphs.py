"""Queries about graphs: of a job, and of a published version."""

from __future__ import annotations

from typing import TYPE_CHECKING

from dagmaster.application.job_lookup import find_job
from dagmaster.application.node_lookup import describe_action
from dagmaster.application.views.graphs import GraphEdgeView, GraphNodeView, GraphView
from dagmaster.application.workflow_lookup import find_shown_version
from dagmaster.engine.graph import FanOutSpec, TaskSpec
from dagmaster.engine.groups import is_group_start, written_name
from dagmaster.engine.shown_graph import shown_graph

if TYPE_CHECKING:
    from collections.abc import Mapping

    from dagmaster.application.context import Application
    from dagmaster.engine.graph import Graph, Spec


async def job_graph(app: Application, job_id: str | None) -> GraphView:
    job = await find_job(app, job_id)
    return graph_view(await app.outlines.of_job(job))


async def workflow_graph(app: Application, workflow_id: str, version: int | None = None) -> GraphView:
    """Return the graph of a version of a workflow; by default of the active one, else of the newest."""
    record = await find_shown_version(app, workflow_id, version)
    return graph_view(await app.outlines.get(record.content_hash))


def graph_view(graph: Graph) -> GraphView:
    from dagmaster.authoring.diagram.dependencies import list_dependencies

    graph = shown_graph(graph)
    return GraphView(
        workflow_id=graph.workflow_id,
        version=graph.version,
        name=graph.name,
        content_hash=graph.content_hash,
        nodes=tuple(_node_view(spec, _group_of(spec, graph.specs)) for spec in graph.specs.values()),
        edges=tuple(
            GraphEdgeView(source=source, target=target, branches=branches, is_alternative=any_of)
            for source, target, branches, any_of in list_dependencies(graph)
        ),
    )


def _group_of(spec: Spec, specs: Mapping[str, Spec]) -> str | None:
    """Return the group that a node is in. What joins the dependencies of a group is next to it."""
    joined = specs.get(written_name(spec.id)) if is_group_start(spec.id) else None
    return spec.group if joined is None else joined.group


def _node_view(spec: Spec, group: str | None) -> GraphNodeView:
    inner = spec
    while isinstance(inner, FanOutSpec):
        inner = inner.child
    return GraphNodeView(
        node_id=spec.id,
        kind=spec.kind,
        action=describe_action(inner),
        handler=inner.handler if isinstance(inner, TaskSpec) else None,
        description=spec.description,
        group=group,
    )
