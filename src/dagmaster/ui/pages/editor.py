"""The editor of workflows: the text, its problems, and its graph, drawn even while the text is wrong."""

from __future__ import annotations

import hashlib
import json
from dataclasses import dataclass
from graphlib import CycleError, TopologicalSorter
from typing import TYPE_CHECKING, Any, Final

from dagmaster.application.commands.validation import validate_text
from dagmaster.application.queries.graphs import graph_view
from dagmaster.authoring import node_edits, schema
from dagmaster.authoring.node_kinds import NODE_KINDS
from dagmaster.authoring.yaml.writer import write_yaml
from dagmaster.errors import DagmasterError, WorkflowEditRejected, WorkflowInvalid
from dagmaster.sdk.handler_definitions import PublishedHandlers
from dagmaster.sdk.retry_options import RetryModel

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence

    from dagmaster.application.views import HandlerRecord, ValidationResult, WorkflowRecord
    from dagmaster.json_types import JsonObject

NEW: Final = """\
# A workflow: its nodes run handlers, and come after each other by `next` or `depends_on`.
workflow_id: my_workflow
name: My workflow
version: 1

inputs:
  count:
    type: integer
    default: 3

nodes:
  first:
    handler: echo
    queue: default
    params:
      value: "{{ inputs.count }}"
    next: second

  second:
    handler: echo
    queue: default
    params:
      value: "{{ nodes.first.output }}"
"""
EDIT_FIELDS: Final = ("edit", "node_id", "source", "target", "new_id", "key", "value")
SETTABLE: Final = ("handler", "description", "queue")
_TEMPLATES: Final = {kind.value: one.template for kind, one in NODE_KINDS.items() if one.template is not None}
KINDS: Final = tuple(_TEMPLATES)
_MODELS: Final = (
    *(model for kind, model in schema.NODE_MODELS.items() if kind in KINDS),
    schema.BranchModel,
    RetryModel,
    schema.InputModel,
    schema.WorkflowModel,
)
_EXPRESSIONS: Final = {
    "item": "the item of a fan-out",
    "index": "the position of the item",
    "job.id": "the id of the job",
}


@dataclass(frozen=True, slots=True, kw_only=True)
class EditorPage:
    """The page. `problems` are problems of the text, for the editor and as lines for people."""

    title: str
    text: str
    workflow_id: str = ""
    version: int | None = None
    state: str = ""
    """What was published when the text was opened: a change by another caller is not overwritten."""
    workflows: tuple[str, ...] = ()
    handlers: tuple[str, ...] = ()
    kinds: tuple[str, ...] = KINDS
    problems: tuple[str, ...] = ()
    text_problems: str = "[]"
    message: str = ""
    """What stands in the way of publishing, besides the problems of the text."""
    is_valid: bool = False
    can_publish: bool = False


def editor_page(
    text: str,
    workflows: Sequence[WorkflowRecord],
    handlers: Sequence[HandlerRecord],
    *,
    workflow_id: str = "",
    version: int | None = None,
    state: str = "",
    result: ValidationResult | None = None,
    message: str = "",
    can_publish: bool = False,
) -> EditorPage:
    problems = () if result is None else result.problems
    return EditorPage(
        title=f"Edit {workflow_id}" if workflow_id else "Editor",
        text=text,
        workflow_id=workflow_id,
        version=version,
        state=state,
        workflows=tuple(view.workflow_id for view in workflows),
        handlers=tuple(view.name for view in handlers),
        problems=tuple(map(str, problems)),
        text_problems=json.dumps([problem.to_dict() for problem in problems]),
        message=message,
        is_valid=result is not None and result.is_valid,
        can_publish=can_publish,
    )


def definition_text(definition: JsonObject) -> str:
    """Return a stored definition as a file: its keys in the order in which people write them."""
    workflow = _in_order(definition, schema.WorkflowModel)
    nodes: Any = definition.get("nodes") or {}
    workflow["nodes"] = {
        node_id: {
            key: value
            for key, value in _in_order(node, schema.TaskModel).items()
            if (key, value) != ("type", "task")
        }
        for node_id, node in nodes.items()
    }
    return write_yaml(workflow)


def check_draft(text: str, documents: list[JsonObject], default_queue: str | None) -> JsonObject:
    """Return what the editor shows of a text, in a check process."""
    handlers = PublishedHandlers(documents, default_queue)
    return draft_document(text, validate_text(text, handlers, allow_missing_handlers=True))


def edit_draft(text: str, fields: dict[str, str], node: JsonObject) -> JsonObject:
    """Return a text with one change to a node, or the error, in a check process.

    `fields` are the `EDIT_FIELDS`; `node` is what an added node starts with.
    """
    return _text_or_error(lambda: _edited(text, fields, node))


def version_draft(text: str, version: int) -> JsonObject:
    """Return a text with another version, or the error, in a check process."""
    return _text_or_error(lambda: node_edits.set_version(text, version))


def _text_or_error(edit: Callable[[], str]) -> JsonObject:
    try:
        return {"text": edit()}
    except WorkflowInvalid:
        return {"error": "correct the problems of the text first: it cannot be read"}
    except WorkflowEditRejected as error:
        return {"error": str(error)}


def _edited(text: str, fields: dict[str, str], node: JsonObject) -> str:
    node_id, source, target = fields["node_id"], fields["source"], fields["target"]
    match fields["edit"]:
        case "add":
            added = node_edits.add_node(text, node_id, node)
            return node_edits.connect_nodes(added, source, node_id) if source else added
        case "remove":
            return node_edits.remove_node(text, node_id)
        case "rename":
            return node_edits.rename_node(text, node_id, fields["new_id"])
        case "connect":
            return node_edits.connect_nodes(text, source, target)
        case "disconnect":
            return node_edits.disconnect_nodes(text, source, target)
        case "set" if fields["key"] in SETTABLE:
            return node_edits.set_field(text, node_id, fields["key"], fields["value"] or None)
    raise WorkflowEditRejected("edit: add, remove, rename, connect, disconnect or set")


def draft_document(text: str, result: ValidationResult) -> dict[str, Any]:
    """Return what the editor shows of a text: problems, graph, nodes as written, names for completions."""
    try:
        nodes, edges = node_edits.outline_nodes(text)
    except DagmasterError:
        # Its problems say why.
        nodes, edges = {}, []
    graph = draw_draft(nodes, edges) if result.graph is None else graph_view(result.graph).to_dict()
    return {
        "is_valid": result.is_valid,
        "problems": [problem.to_dict() for problem in result.problems],
        "graph": graph if graph["nodes"] else None,
        "nodes": {node_id: node if isinstance(node, dict) else {} for node_id, node in nodes.items()},
        "edges": edges,
    }


def draw_draft(nodes: Mapping[str, Any], edges: Sequence[tuple[str, str]]) -> dict[str, Any]:
    """Return a graph, as the API sends it, of nodes that need not be valid. Edges of a cycle are left out."""
    known = _drawable_edges(nodes, edges)
    groups = {node_id: _field(node, "group") for node_id, node in nodes.items()}
    content = json.dumps(
        [[(node_id, _kind(node), groups[node_id]) for node_id, node in nodes.items()], known]
    )
    return {
        "workflow_id": "",
        "version": 0,
        "name": "the draft",
        "content_hash": f"draft-{hashlib.sha256(content.encode()).hexdigest()}",
        "nodes": [
            {
                "node_id": node_id,
                "kind": _kind(node),
                "action": str(_field(node, "handler") or _kind(node).replace("_", "-")),
                "handler": _field(node, "handler"),
                "description": str(_field(node, "description") or ""),
                "group": groups[node_id] if groups[node_id] in nodes else None,
            }
            for node_id, node in nodes.items()
        ],
        "edges": [
            {
                "source": source,
                "target": target,
                "branches": [branch] if branch else [],
                "is_alternative": False,
            }
            for source, branch, target in known
        ],
    }


def _drawable_edges(nodes: Mapping[str, Any], edges: Sequence[tuple[str, str]]) -> list[tuple[str, str, str]]:
    """Return source, branch and target of the edges between these nodes, without those that close a cycle."""
    parts = [(*source.partition(".")[::2], target) for source, target in edges]
    known = [
        (source, branch, target) for source, branch, target in parts if source in nodes and target in nodes
    ]
    while (cycle := _cycle([(source, target) for source, _, target in known])) is not None:
        known = [edge for edge in known if (edge[0], edge[2]) != cycle]
    return known


def completions(handlers: Sequence[HandlerRecord]) -> dict[str, Any]:
    """Return what the editor offers, whatever the text: keys of the file, handlers, expressions."""
    keys: dict[str, str] = {}
    for model in _MODELS:
        for name, declared in model.model_fields.items():
            keys.setdefault(name, declared.description or "")
    return {
        "items": [
            *({"label": name, "kind": "key", "detail": detail} for name, detail in sorted(keys.items())),
            *({"label": view.name, "kind": "handler", "detail": view.description} for view in handlers),
            *({"label": kind, "kind": "value", "after": "type", "detail": "kind of node"} for kind in KINDS),
            *(
                {"label": name, "kind": "expression", "detail": detail}
                for name, detail in _EXPRESSIONS.items()
            ),
        ]
    }


def new_node(kind: str, handler: str, handlers: Sequence[HandlerRecord] = ()) -> JsonObject:
    """Return the keys that a new node of a kind starts with.

    A handler without a queue gets one.
    """
    has_queue = any(view.queue for view in handlers if view.name == handler)
    run: JsonObject = {"handler": handler or "echo", **({} if has_queue else {"queue": "default"})}
    keys = _TEMPLATES.get(kind)
    if keys is None or kind == "task":
        return run
    node: JsonObject = {"type": kind, **keys}
    if kind == "fan_out":
        node["task"] = {**run, "params": {"value": "{{ item }}"}}
    elif kind == "workflow":
        node["workflow_id"] = handler or "another_workflow"
    return node


def _in_order(values: Mapping[str, Any], model: type[schema.FileModel]) -> dict[str, Any]:
    """Return values in the order of a model's keys, with its base's keys at the end, others before them."""
    ends = ("depends_on", "next")
    first = [name for name in ("workflow_id", "name", "type", *model.model_fields) if name not in ends]
    names = [*first, *(name for name in values if name not in first and name not in ends), *ends]
    return {name: values[name] for name in dict.fromkeys(names) if name in values}


def _cycle(edges: Sequence[tuple[str, str]]) -> tuple[str, str] | None:
    sorter: TopologicalSorter[str] = TopologicalSorter()
    for source, target in edges:
        sorter.add(target, source)
    try:
        sorter.prepare()
    except CycleError as error:
        first, second = error.args[1][:2]
        return first, second
    return None


def _kind(node: Any) -> str:
    kind = _field(node, "type")
    return kind if isinstance(kind, str) and kind in schema.NODE_MODELS else "task"


def _field(node: Any, key: str) -> Any:
    value = node.get(key) if isinstance(node, dict) else None
    return value if isinstance(value, str) else None
