"""The one reader of a node's definition: the spec of what was checked, without the rest of the graph.

A key of a definition is the field of that name in the spec. The compiler reads what it has checked, an
outline what is stored, and a batch what was added to a job. They differ in their values (`Values`):
templates, nothing, or values that are no templates.
"""

from __future__ import annotations

from dataclasses import fields
from functools import cache
from typing import TYPE_CHECKING, Any, Final, Protocol, cast

from dagmaster.engine.graph import (
    SPECS,
    Aggregation,
    Branch,
    DefaultLimits,
    Gate,
    GateKind,
    Kind,
    Leaf,
    OnItemError,
    OnTimeout,
    Spec,
    Tolerance,
)
from dagmaster.engine.retry import Backoff, RetryPolicy

if TYPE_CHECKING:
    from collections.abc import Callable, Container, Mapping, Sequence

    from dagmaster.engine.expressions.expression import Expression
    from dagmaster.engine.expressions.templates import Template

    Node = Mapping[str, Any]

NO_LIMITS: Final = DefaultLimits()
# What the graph says about a node, not its definition.
_GRAPH_FIELDS: Final = frozenset({"id", "requires", "group", "added_by", "entry", "over"})
_TEMPLATES: Final[Mapping[str, Any]] = {
    **dict.fromkeys(("condition_field", "source", "seconds", "until")),
    "params": {},
    "inputs": {},
    "message": "",
}
"""The keys that have expressions, and what they are if they are left out; None: nothing."""


class Values(Protocol):
    """Reads the values of a node that may be expressions."""

    def template(self, key: str, written: Any) -> Template:
        """Return the value of a key."""

    def condition(self, index: int, written: str) -> Expression | None:
        """Return the condition of a branch."""

    def of_child(self) -> Values:
        """Return what reads the values of the task of a fan-out."""


class NoValues:
    """Leaves values out: for readers, which evaluate nothing."""

    def template(self, key: str, written: Any) -> Template:  # noqa: ARG002 - as in the protocol
        return cast("Template", None)

    def condition(self, index: int, written: str) -> Expression | None:  # noqa: ARG002 - as in the protocol
        return None

    def of_child(self) -> Values:
        return self


def read_node(
    node_id: str,
    node: Node,
    values: Values,
    *,
    limits: DefaultLimits = NO_LIMITS,
    targets: Container[str] = (),
    **graph_fields: Any,
) -> Spec:
    """Return the spec of a node.

    `targets`: the nodes that it may lead to; `graph_fields`: what its edges say.
    """
    kind = Kind(node.get("type", Kind.TASK))
    read = dict(graph_fields)
    for name in _fields_of(kind):
        if name in _TEMPLATES:
            written = node.get(name, _TEMPLATES[name])
            read[name] = None if written is None else values.template(name, written)
        elif name in node:
            convert = _CONVERT.get(name)
            read[name] = node[name] if convert is None else convert(node[name])
    if kind is Kind.TASK:
        read.setdefault("timeout_seconds", limits.task_timeout_seconds)
        read.setdefault("retry", RetryPolicy(max_attempts=limits.task_max_attempts))
    elif kind is Kind.CONDITIONAL:
        branches = _read_branches(node, values, targets)
        read |= {"branches": branches, "refs": _refs_of(read["condition_field"], branches)}
    elif kind is Kind.FAN_OUT:
        read["tolerance"] = _read_tolerance(node.get("tolerate_failures", 0))
        child = node.get("task")
        read["child"] = None if child is None else read_node(node_id, child, values.of_child(), limits=limits)
    return SPECS[kind](id=node_id, **read)


@cache
def _fields_of(kind: Kind) -> tuple[str, ...]:
    return tuple(one.name for one in fields(SPECS[kind]) if one.name not in _GRAPH_FIELDS)


def read_retry(written: Mapping[str, Any]) -> RetryPolicy:
    return RetryPolicy(**{**written, "backoff": Backoff(written.get("backoff", Backoff.EXPONENTIAL))})


_CONVERT: Final[Mapping[str, Callable[[Any], Any]]] = {
    "retry": read_retry,
    "approvers": tuple,
    "sources": tuple,
    "on_timeout": OnTimeout,
    "on_item_error": OnItemError,
    "aggregation": Aggregation,
}
"""What makes the value of a field of a key, if it is another one."""


def _read_branches(node: Node, values: Values, targets: Container[str]) -> tuple[Branch, ...]:
    written = list(enumerate(node["branches"]))
    written.sort(key=lambda branch: bool(branch[1].get("default")))
    branches = []
    for index, branch in written:
        text = branch.get("condition")
        condition = None if text is None else values.condition(index, text)
        leads_to = tuple(target for target in names_in(branch.get("next")) if target in targets)
        name = branch_name(branch.get("name"), index, is_default=bool(branch.get("default")))
        branches.append(Branch(name, condition, leads_to))
    return tuple(branches)


def branch_name(name: str | None, index: int, *, is_default: bool) -> str:
    """Return the name of the branch at a position: that which it is given, else one that says what it is."""
    if name:
        return name
    return "default" if is_default else f"branch_{index + 1}"


def _refs_of(field: Template | None, branches: Sequence[Branch]) -> tuple[tuple[str | int, ...], ...]:
    """Return what a conditional reads, each path once."""
    conditions = [branch.condition for branch in branches if branch.condition is not None]
    refs = dict.fromkeys(() if field is None else field.refs)
    refs |= dict.fromkeys(ref for condition in conditions for ref in condition.refs if ref != ("value",))
    return tuple(refs)


def _read_tolerance(written: int | str) -> Tolerance:
    if isinstance(written, int):
        return Tolerance(count=written)
    return Tolerance(percent=float(written.removesuffix("%")))


def names_in(written: Any) -> list[str]:
    names = written if isinstance(written, list) else [written]
    return [name for name in names if isinstance(name, str)]


def read_gate(written: Any) -> Gate | Leaf:
    if isinstance(written, str):
        node, _, branch = written.partition(".")
        return Leaf(node, branch or None)
    kind, inner = (GateKind.ALL, written) if isinstance(written, list) else next(iter(written.items()))
    members = tuple(map(read_gate, inner if isinstance(inner, list) else [inner]))
    # A gate with one member equals that member.
    return members[0] if len(members) == 1 and isinstance(members[0], Gate) else Gate(GateKind(kind), members)


def as_gate(gate: Gate | Leaf) -> Gate:
    return gate if isinstance(gate, Gate) else Gate(GateKind.ALL, (gate,))
