"""Draw published workflows as a table, and one workflow as a page."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any

from rich.table import Table
from rich.text import Text

from dagmaster.application.node_lookup import dependencies_of, describe_action
from dagmaster.cli.render.text import DIM
from dagmaster.cli.render.tree import tree_rows
from dagmaster.text_format import age

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping, Sequence

    from rich.console import RenderableType

    from dagmaster import Graph
    from dagmaster.application.views import WorkflowDetailView, WorkflowRecord
    from dagmaster.json_types import JsonObject


def workflows_table(workflows: Sequence[WorkflowRecord]) -> Table:
    table = Table(box=None, pad_edge=False, header_style=DIM)
    for name in ("workflow", "active", "versions", "published", "tags", "name"):
        table.add_column(name, no_wrap=True, overflow="ellipsis")
    for workflow in workflows:
        table.add_row(
            Text(workflow.workflow_id, style="bold"),
            "none" if workflow.active_version is None else f"v{workflow.active_version}",
            f"{workflow.versions_total}",
            f"{age(workflow.read_at - workflow.published_at)} ago",
            ", ".join(workflow.tags),
            Text(workflow.name or "", style=DIM),
        )
    return table


def workflow_page(view: WorkflowDetailView) -> Iterator[RenderableType]:
    graph = _compile(view.definition)
    title = Text(f"{graph.workflow_id} v{graph.version}", style="bold")
    title.append(f"  {graph.name}" if graph.name != graph.workflow_id else "")
    title.append(
        "  active" if view.is_active else "  not active", style="green" if view.is_active else "yellow"
    )
    yield title
    if graph.description:
        yield Text(graph.description.strip())
    if graph.tags:
        yield Text(f"tags: {', '.join(graph.tags)}", style=DIM)
    if len(view.versions) > 1:
        names = ", ".join(
            f"v{version.version}{' (active)' if version.is_active else ''}" for version in view.versions
        )
        yield Text(f"versions: {names}", style=DIM)
    if graph.inputs:
        yield Text("\ninputs", style=DIM)
        table = Table(box=None, show_header=False, pad_edge=False, padding=(0, 2, 0, 0))
        for name, declared in graph.inputs.items():
            description = Text(str(declared.get("description", "")), style=DIM)
            kind = str(declared.get("type", "string"))
            table.add_row(Text(f"  {name}", style="bold"), kind, _default(declared), description)
        yield table
    yield Text("\nnodes", style=DIM)
    rows = tree_rows(dependencies_of(graph))
    width = max((len(row.prefix) + len(row.node_id) for row in rows), default=0)
    for row in rows:
        line = Text("  ", no_wrap=True, overflow="ellipsis")
        line.append(row.prefix, style=DIM)
        line.append(row.node_id, style="bold")
        line.append(" " * (width - len(row.prefix) - len(row.node_id)))
        spec = graph.specs[row.node_id]
        line.append(f"  {describe_action(spec)}", style="cyan")
        if spec.description:
            line.append(f"  {spec.description}", style=DIM)
        yield line


def _compile(definition: Mapping[str, Any]) -> Graph:
    """Compile a redacted definition. Redacted defaults are left out: *** does not fit every type."""
    from dagmaster.authoring.compiler.compile import compile_definition

    inputs: JsonObject = {
        name: {
            key: value for key, value in declared.items() if not (key == "default" and declared.get("secret"))
        }
        for name, declared in (definition.get("inputs") or {}).items()
    }
    return compile_definition({**definition, "inputs": inputs})


def _default(declared: Mapping[str, Any]) -> str:
    if declared.get("secret"):
        return "secret"
    if "default" in declared:
        return f"default {json.dumps(declared['default'], ensure_ascii=False)}"
    return "required" if declared.get("required", True) else "optional"
