"""The kinds of nodes: what readers, drawings and the editor show of each.

A test compares the table with the schema.

The keys of a kind are its model in `schema`, its fields its spec in `engine.graph`, its start a function in
`engine.node_start`; in Python it is a function in `python.node_functions`.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from enum import Enum, auto
from typing import TYPE_CHECKING, Any, Final

from dagmaster.engine.graph import FanOutSpec, Kind
from dagmaster.engine.groups import members
from dagmaster.text_format import format_count

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from dagmaster.engine.expressions.templates import Template
    from dagmaster.engine.graph import ConditionalSpec, GroupSpec, Spec, WaitSpec, WorkflowSpec
    from dagmaster.json_types import JsonObject

_TIMES: Final = "\N{MULTIPLICATION SIGN}"


class Outline(Enum):
    """The outline of a card."""

    CARD = auto()
    PILL = auto()
    HEXAGON = auto()
    ROUND = auto()
    STACK = auto()
    DOUBLE = auto()


def _no_detail(_: Any) -> str:
    return ""


@dataclass(frozen=True, slots=True, kw_only=True)
class NodeKind:
    """One kind of node."""

    colours: tuple[str, str]
    """In light and in dark."""
    icon: str
    """In lines, 17 by 17."""
    brackets: tuple[str, str]
    """Of Mermaid."""
    outline: Outline = Outline.CARD
    detail: Callable[[Any], str] = _no_detail
    """Describes a node in a few words, from its spec."""
    output_keys: frozenset[str] | None = None
    """The keys of its output; None: that depends on the node."""
    template: JsonObject | None = None
    """What a new node in the editor starts with; None: the editor offers none."""


def describe_spec(spec: Spec) -> str:
    """Describe a node in a few words; empty for a start or an end."""
    return NODE_KINDS[spec.kind].detail(spec)


def _describe_fan_out(spec: FanOutSpec) -> str:
    return f"each: {_each(spec)}"


def _each(spec: FanOutSpec) -> str:
    """Describe what runs for each item, with the count if the list is literal."""
    items = spec.source.source
    times = len(items) if spec.source.is_constant and isinstance(items, list) else "N"
    inner = _each(spec.child) if isinstance(spec.child, FanOutSpec) else describe_spec(spec.child)
    return f"{inner} {_TIMES}{times}"


def _describe_conditional(spec: ConditionalSpec) -> str:
    return "conditional" if spec.condition_field is None else source_text(spec.condition_field)


def _describe_workflow(spec: WorkflowSpec) -> str:
    return spec.workflow_id if spec.version is None else f"{spec.workflow_id} v{spec.version}"


def _describe_wait(spec: WaitSpec) -> str:
    if spec.signal is not None:
        return f"signal: {spec.signal}"
    if spec.seconds is not None:
        return f"wait: {source_text(spec.seconds)} s"
    return "wait" if spec.until is None else f"until: {source_text(spec.until)}"


def _describe_group(spec: GroupSpec) -> str:
    return f"group: {format_count(len(members(spec)), 'node')}"


def source_text(template: Template) -> str:
    """Return a value as written, without the braces of a single expression."""
    lone = re.fullmatch(r"\s*\{\{((?:(?!\}\}).)*)\}\}\s*", str(template.source), re.DOTALL)
    return lone[1].strip() if lone else str(template.source)


_VIOLET: Final = ("#7c4ddb", "#b495ff")
_GREY: Final = ("#5b6776", "#9aa7b8")

NODE_KINDS: Final[Mapping[Kind, NodeKind]] = {
    Kind.START: NodeKind(
        colours=("#0f9d6c", "#3fcf9b"),
        icon="M6 4l7 4.5-7 4.5z",
        brackets=("([", "])"),
        outline=Outline.PILL,
        output_keys=frozenset(),
    ),
    Kind.END: NodeKind(
        colours=_GREY,
        icon="M4.5 4.5h8v8h-8z",
        brackets=("([", "])"),
        outline=Outline.PILL,
        output_keys=frozenset(),
    ),
    Kind.TASK: NodeKind(
        colours=("#2f6fe4", "#6ea4ff"),
        icon="M3.5 5l4 3.5-4 3.5M9 12.5h5",
        brackets=("[", "]"),
        detail=lambda spec: spec.handler,
        template={},
    ),
    Kind.CONDITIONAL: NodeKind(
        colours=("#c77700", "#f2b04c"),
        icon="M8.5 2.5v4M8.5 6.5c0 4-4.5 3-4.5 7M8.5 6.5c0 4 4.5 3 4.5 7",
        brackets=("{", "}"),
        outline=Outline.HEXAGON,
        detail=_describe_conditional,
        output_keys=frozenset({"branch_taken", "branch", "value"}),
        template={
            "condition_field": "{{ inputs.count }}",
            "branches": [{"name": "default", "default": True}],
        },
    ),
    Kind.FAN_OUT: NodeKind(
        colours=_VIOLET,
        icon="M8.5 2.5v12M8.5 6c0 4-5 3-5 8.5M8.5 6c0 4 5 3 5 8.5",
        brackets=("[/", "\\]"),
        outline=Outline.STACK,
        detail=_describe_fan_out,
        output_keys=frozenset({"fan_out_count"}),
        template={"source": [1, 2, 3]},
    ),
    Kind.FAN_IN: NodeKind(
        colours=_VIOLET,
        icon="M8.5 2.5v12M8.5 11c0-4-5-3-5-8.5M8.5 11c0-4 5-3 5-8.5",
        brackets=("[\\", "/]"),
        detail=lambda spec: spec.aggregation.value,
        template={},
    ),
    Kind.WORKFLOW: NodeKind(
        colours=("#0b8ba3", "#45c8de"),
        icon="M2.5 2.5h5v5h-5zM9.5 9.5h5v5h-5zM5 7.5v4.5h4.5",
        brackets=("[[", "]]"),
        outline=Outline.DOUBLE,
        detail=_describe_workflow,
        template={},
    ),
    Kind.APPROVAL: NodeKind(
        colours=("#cf3a6b", "#ff86ab"),
        icon="M2.5 9l4 4 8-8.5",
        brackets=("{{", "}}"),
        outline=Outline.ROUND,
        detail=lambda spec: f"approval: {', '.join(spec.approvers)}" if spec.approvers else "approval",
        output_keys=frozenset({"approved_by", "at", "comment"}),
        template={},
    ),
    Kind.WAIT: NodeKind(
        colours=("#a8632c", "#e0a070"),
        icon="M8.5 2.5a6 6 0 1 0 .01 0M8.5 5v3.7l2.5 1.5",
        brackets=("(", ")"),
        outline=Outline.ROUND,
        detail=_describe_wait,
        template={"seconds": 60},
    ),
    Kind.GROUP: NodeKind(
        colours=_GREY,
        icon="M2.5 4.5v-2h2M12.5 2.5h2v2M14.5 12.5v2h-2M4.5 14.5h-2v-2"
        "M5.5 5.5h2.5v2.5h-2.5zM9 9h2.5v2.5h-2.5z",
        brackets=("(((", ")))"),
        detail=_describe_group,
        output_keys=frozenset(),
        template={},
    ),
}
