"""YAML and Python write the same graphs: each can be read from, and written as, the other."""

from __future__ import annotations

import copy
import json
from contextlib import nullcontext
from dataclasses import replace
from datetime import date, datetime
from inspect import Parameter, Signature
from pathlib import Path
from typing import Annotated, Any, Literal

import pytest
from hypothesis import given
from hypothesis import strategies as st
from pydantic import TypeAdapter, WithJsonSchema

from dagmaster import (
    Registry,
    all_of,
    any_of,
    approval,
    child_workflow,
    compile_file,
    compile_text,
    conditional,
    end,
    expression,
    fan_in,
    fan_out,
    group,
    handler_task,
    join,
    load_workflow,
    start,
    wait,
    workflow,
)
from dagmaster.authoring.compiler.compile import compile_document
from dagmaster.authoring.input_schema import input_schema
from dagmaster.authoring.source_document import document_from_data, read_document
from dagmaster.authoring.yaml.writer import write_yaml
from dagmaster.engine.graph import Gate, GateKind, Graph, Leaf
from tests.unit.authoring.workflow_strategies import workflows

SHIPPED = sorted(Path("workflows").glob("*.yaml"))
NO_HANDLERS = Registry(default_queue="default")
AWKWARD = "no|1e3|0o17|0x1f|12:30:00|010|~|null|.inf|1_000|+1|- a|a: b|#|| x |=|2026-01-01|\n|a\nb\n|tab\tx|'|\"|\\|{{ a }}|*a|&a|!x|%x|@x|`x|?|>|True|yes|0o7|2026-01-01T00:00:00Z|a\r\nb|\r|\t|\ufeffa|a\ufeff|a\x7fb|\x80\x85\x9f|a\u2028b\nc|\u2029|\ufffe|a\nb\uffff\nc|\U0001ffff|\x1f\n|a\n\x7f|a\nb\u2028\n"
# All that JSON in the database can have: neither NUL nor halves of surrogate pairs.
TEXTS = (
    st.text(st.characters(exclude_categories=["Cs"], exclude_characters="\0"), max_size=20)
    | st.text(st.sampled_from(" \t\r\n\x7f\x85\u2028\ufeff\ufffea"), max_size=8)
    | st.sampled_from(AWKWARD.split("|"))
)
VALUES = st.recursive(
    st.none()
    | st.booleans()
    | st.integers(-(2**70), 2**70)
    | st.floats(allow_nan=False, allow_infinity=False)
    | TEXTS,
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(TEXTS, inner, max_size=4),
    max_leaves=12,
)


_PLAIN: list[Any] = [str, int, float, bool, list[str], date, datetime, Literal["a", "b"]]
TYPES: dict[str, Any] = {json.dumps(TypeAdapter(kind).json_schema(), sort_keys=True): kind for kind in _PLAIN}
"""The types of Python that are inputs as they stand, by their JSON Schema. Others are written as a schema."""


@given(st.dictionaries(TEXTS.filter(bool), VALUES, min_size=1, max_size=4))
def test_written_yaml_is_read_back_as_the_same_data(data):
    assert read_document(write_yaml(data)).data == data


@given(workflows())
def test_a_random_workflow_is_the_same_graph_after_it_was_written_as_yaml(tmp_path_factory, data):
    graph = compile_document(document_from_data(data)).graph
    file = tmp_path_factory.mktemp("flow") / "flow.yaml"
    file.write_text(write_yaml(data), encoding="utf-8")
    again = load_workflow(file)
    assert again.compile(NO_HANDLERS, allow_missing_handlers=True).graph.content_hash == graph.content_hash
    assert compile_text(again.to_yaml()).graph.content_hash == graph.content_hash


@given(workflows())
@pytest.mark.slow
def test_a_random_workflow_can_be_written_in_python_and_is_the_same_graph(data):
    graph = compile_document(document_from_data(data)).graph
    written = in_python(data)
    assert facts(written.compile(NO_HANDLERS, allow_missing_handlers=True).graph) == facts(graph)
    assert facts(compile_text(written.to_yaml()).graph) == facts(graph)


@pytest.mark.parametrize("file", SHIPPED, ids=lambda file: file.stem)
def test_every_shipped_workflow_is_the_same_graph_as_yaml_and_in_python(file):
    options: dict[str, Any] = {"handlers": NO_HANDLERS, "allow_missing_handlers": True}
    graph = compile_file(file, **options).graph
    loaded = load_workflow(file)
    assert loaded.compile(**options).graph.content_hash == graph.content_hash
    assert compile_text(loaded.to_yaml(), **options).graph.content_hash == graph.content_hash
    written = in_python(loaded.document.data)
    assert facts(written.compile(**options).graph) == facts(graph)
    assert facts(compile_text(written.to_yaml(), **options).graph) == facts(graph)


def test_the_shipped_workflows_are_there():
    assert len(SHIPPED) > 5


# ── The same workflow, written by calls ──


def in_python(data: dict[str, Any]) -> Any:
    """Write a document by calls of the Python functions, in the order of its nodes."""
    keys = ("name", "version", "description", "on_failure", "deadline_seconds", "tags")

    def body(**_inputs: Any) -> Any:
        Calls(copy.deepcopy(data["nodes"])).make()
        return as_value(data["outputs"]) if "outputs" in data else None

    parameters = [parameter_of(name, definition) for name, definition in data.get("inputs", {}).items()]
    body.__signature__ = Signature(parameters)  # type: ignore[attr-defined]
    body.__annotations__ = {parameter.name: parameter.annotation for parameter in parameters}
    head = {key: data[key] for key in keys if key in data}
    return workflow(workflow_id=data.get("workflow_id") or data["name"], **head)(body)


def parameter_of(name: str, definition: dict[str, Any]) -> Parameter:
    """Return the parameter of a function that is this input: its type has the schema, and it may have a default."""
    schema = {key: value for key, value in input_schema(definition).items() if key != "default"}
    default = definition.get("default", Parameter.empty if definition.get("required") else None)
    annotation = TYPES.get(json.dumps(schema, sort_keys=True)) or Annotated[Any, WithJsonSchema(schema)]
    return Parameter(name, Parameter.KEYWORD_ONLY, annotation=annotation, default=default)


def as_value(value: Any) -> Any:
    """Return a value of a file as it is written in Python: text with braces is an expression."""
    if isinstance(value, str):
        return expression(value) if "{{" in value else value
    if isinstance(value, dict):
        return {key: as_value(item) for key, item in value.items()}
    return [as_value(item) for item in value] if isinstance(value, list) else value


class Calls:
    """The calls that make the nodes of a document."""

    def __init__(self, nodes: dict[str, Any]) -> None:
        self.nodes = nodes
        self.made: dict[str, Any] = {}
        self.edges: dict[str, list[str]] = {}
        for name, node in nodes.items():
            for target in listed(node.get("next")):
                self.edges.setdefault(target, []).append(name)
            for number, branch in enumerate(node.get("branches", ()), 1):
                # The names that branches without one have.
                branch.setdefault("name", "default" if branch.get("default") else f"branch_{number}")
                for target in listed(branch.get("next")):
                    self.edges.setdefault(target, []).append(f"{name}.{branch['name']}")

    def make(self) -> None:
        for name, node in self.nodes.items():
            rest = {
                key: value
                for key, value in node.items()
                if key not in ("type", "next", "depends_on", "group")
            }
            options = {"name": name, "depends_on": self.dependency(name, node)}
            around = node.get("group")
            if around is not None and around not in self.made:
                self.made[around] = group(around)
            with self.made[around] if around is not None else nullcontext():
                self.made[name] = self.call(node.get("type", "task"), rest, options)

    def call(self, kind: str, node: dict[str, Any], options: dict[str, Any]) -> Any:
        """Make one node, or the task of a fan-out, which has no options."""
        if kind == "task":
            params = node.pop("params", {})
            return handler_task(node.pop("handler")).with_options(**node, **options)(**as_value(params))
        if kind == "workflow":
            return child_workflow(
                node.pop("workflow_id"), as_value(node.pop("inputs", {})), **node, **options
            )
        if kind == "fan_out":
            child = dict(node.pop("task"))
            each = lambda _: self.call(child.pop("type", "task"), child, {})  # noqa: E731 - as it is written
            return fan_out(as_value(node.pop("source")), each, **node, **options)
        if kind == "conditional":
            branches = node.pop("branches")
            default = next((branch["name"] for branch in branches if branch.get("default")), None)
            conditions = {branch["name"]: branch["condition"] for branch in branches if "condition" in branch}
            return conditional(
                expression(node.pop("condition_field")), conditions, default=default, **node, **options
            )
        if kind == "fan_in":
            depends_on = options.pop("depends_on")
            return fan_in(*listed(depends_on), **node, **options)
        if kind == "start":
            options.pop("depends_on")
        make: Any = {"approval": approval, "end": end, "group": group, "start": start, "wait": wait}[kind]
        return make(**{key: as_value(value) for key, value in node.items()}, **options)

    def dependency(self, name: str, node: dict[str, Any]) -> Any:
        if "depends_on" in node:
            return self.gate(node["depends_on"])
        return join(*(self.gate(source) for source in self.edges[name])) if name in self.edges else None

    def gate(self, written: Any) -> Any:
        if isinstance(written, list):
            return [
                all_of(*listed(self.gate(member))) if isinstance(member, list) else self.gate(member)
                for member in written
            ]
        if isinstance(written, dict):
            ((kind, members),) = written.items()
            return (any_of if kind == "any_of" else all_of)(*listed(self.gate(listed(members))))
        name, _, branch = written.partition(".")
        made = self.made.get(name)
        if made is None:
            return written
        return made[branch] if branch else made


def listed(value: Any) -> list[Any]:
    return [] if value is None else value if isinstance(value, list) else [value]


def facts(graph: Graph) -> Any:
    """Return what a graph means: the order of dependencies, and how they are nested, does not count."""
    return (
        graph.workflow_id,
        graph.version,
        graph.name,
        graph.description,
        {name: input_fact(definition) for name, definition in graph.inputs.items()},
        set(graph.result_nodes),
        graph.on_failure,
        graph.deadline_seconds,
        graph.tags,
        None if graph.outputs is None else graph.outputs.source,
        {name: (replace(spec, requires=None), requires(spec.requires)) for name, spec in graph.specs.items()},
    )


def input_fact(definition: Any) -> Any:
    """Return what an input means: one with a default need not be required."""
    return {
        key: value for key, value in definition.items() if key != "required" or "default" not in definition
    }


def requires(gate: Gate | Leaf | None) -> Any:
    """Return a gate whose members have no order: an all_of in an all_of, and a gate of one member, are that member's."""
    if not isinstance(gate, Gate):
        return gate
    members: set[Any] = set()
    for member in map(requires, gate.members):
        is_same = not isinstance(member, Leaf) and member[0] is gate.kind and gate.kind is not GateKind.JOIN
        members |= member[1] if is_same else {member}
    return next(iter(members)) if len(members) == 1 else (gate.kind, frozenset(members))
