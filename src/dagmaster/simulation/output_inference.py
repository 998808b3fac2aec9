"""Infer the shapes of node outputs from what a workflow reads of them: a text, a number, a list of objects.

Filters, operators, literals and the inputs of child workflows require a shape; a model of the handler's
output is the most certain. Without any of them, every value fits. This module does not know handlers, nor
which value is drawn.
"""

from __future__ import annotations

from contextlib import suppress
from dataclasses import dataclass
from itertools import pairwise
from typing import TYPE_CHECKING, Any, Final, cast

from jinja2 import Environment, TemplateSyntaxError
from jinja2 import nodes as ast

from dagmaster.engine.expressions.parser import parse
from dagmaster.engine.graph import ConditionalSpec, FanInSpec, FanOutSpec, TaskSpec, WaitSpec, WorkflowSpec
from dagmaster.simulation.value_schema import (
    GUESSED,
    PAST_TIME,
    REQUIRED,
    Kind,
    Requirement,
    Shape,
    kind_of,
    learn,
    requirement_of,
)

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping, Sequence

    from dagmaster.engine.expressions.templates import Template
    from dagmaster.engine.graph import Graph, Spec

_TEXT, _NUMBER, _LIST = (
    Requirement(kind=Kind.TEXT),
    Requirement(kind=Kind.NUMBER),
    Requirement(kind=Kind.LIST),
)
_NONEMPTY = Requirement(kind=Kind.LIST, min_items=1)
_CONDITION: Final = Requirement(kind=Kind.BOOLEAN, certainty=GUESSED)
# A wait until a time in the past ends at once.
_TIME_OF_WAIT: Final = Requirement(kind=Kind.TEXT, choices=(PAST_TIME,), only=True)
_ANY: Final = Requirement()
_FILTER_INPUTS: Final[Mapping[str, Requirement]] = {
    "length": Requirement(kind=Kind.TEXT, certainty=GUESSED),
    **dict.fromkeys(("lower", "upper", "trim", "replace", "basename"), _TEXT),
    **dict.fromkeys(("round", "abs"), _NUMBER),
    **dict.fromkeys(("int", "float"), Requirement(kind=Kind.NUMBER, certainty=GUESSED)),
    **dict.fromkeys(("sum", "join", "sort", "unique", "map"), _LIST),
    **dict.fromkeys(("first", "last", "min", "max"), _NONEMPTY),
}
_FILTER_OUTPUTS: Final[Mapping[str, Kind]] = {
    **dict.fromkeys(("lower", "upper", "trim", "replace", "basename", "join", "string", "tojson"), Kind.TEXT),
    **dict.fromkeys(("length", "int", "float", "round", "abs", "sum"), Kind.NUMBER),
    **dict.fromkeys(("sort", "unique", "map"), Kind.LIST),
}
_NUMERIC_FILTERS: Final = ("sum", "min", "max", "sort")
_ENVIRONMENT: Final = Environment()  # noqa: S701 - it parses; it never renders


@dataclass(frozen=True, slots=True)
class _Scope:
    """The scope of an expression: its node, its `value`, and the items of the fan-outs around it."""

    graph: Graph
    spec: Spec | None = None
    value: Template | None = None
    items: tuple[list[Shape], ...] = ()


class Shapes:
    """The shapes of the outputs of all nodes of some workflows, by node."""

    def __init__(self, graphs: Sequence[Graph]) -> None:
        self.of: dict[str, Shape] = {}
        self._same_kind: list[tuple[Any, Any, _Scope]] = []
        self._children: dict[str, int] = {}
        self._graphs = {graph.workflow_id: graph for graph in graphs}
        for graph in graphs:
            for spec in graph.specs.values():
                self._spec(spec, _Scope(graph, spec))
            if graph.outputs is not None:
                self._value(graph.outputs.source, _ANY, _Scope(graph))
            self._count_children(graph)
        # What one shape learns may be passed on to another, and from there to a third one.
        for _ in range(3):
            self._unify_operands()
            self._propagate_to_children(graphs)

    def typed(self, node: str, schema: Mapping[str, Any]) -> None:
        learn(self.of.setdefault(node, Shape()), schema)

    # ── Specs ──

    def _spec(self, spec: Spec, scope: _Scope) -> None:
        match spec:
            case TaskSpec():
                self._value(spec.params.source, _ANY, scope)
            case FanOutSpec():
                self._value(spec.source.source, _LIST, scope)
                inside = [shape.inside() for shape in self._named(spec.source.source, scope)]
                self._spec(spec.child, _Scope(scope.graph, scope.spec, None, (*scope.items, inside)))
            case WorkflowSpec():
                self._child_inputs(spec, scope)
            case WaitSpec():
                if spec.seconds is not None:
                    self._value(spec.seconds.source, _NUMBER, scope)
                if spec.until is not None:
                    self._value(spec.until.source, _TIME_OF_WAIT, scope)
            case ConditionalSpec():
                self._conditions(spec, scope)
            case _:
                return

    def _child_inputs(self, spec: WorkflowSpec, scope: _Scope) -> None:
        child = self._graphs.get(spec.workflow_id)
        if not isinstance(spec.inputs.source, dict):
            return
        for name, value in spec.inputs.source.items():
            declared = None if child is None else child.inputs.get(name)
            # An input without a type is a string.
            schema = {} if declared is None else {"type": "string", **declared}
            self._value(value, requirement_of(schema), scope)

    def _conditions(self, spec: ConditionalSpec, scope: _Scope) -> None:
        if spec.condition_field is not None:
            self._value(spec.condition_field.source, _ANY, scope)
        inside = _Scope(scope.graph, spec, spec.condition_field)
        for branch in spec.branches:
            if branch.condition is not None:
                self._expression(parse(branch.condition.text), Requirement(certainty=GUESSED), inside)

    def _value(self, value: Any, requirement: Requirement, scope: _Scope) -> None:
        if isinstance(value, dict | list):
            for item in value.values() if isinstance(value, dict) else value:
                self._value(item, _ANY, scope)
            return
        expressions = _expressions(value)
        for expression in expressions:
            self._expression(expression, requirement if _is_whole(value, expressions) else _ANY, scope)

    # ── Requirements of expressions ──

    def _expression(self, node: Any, requirement: Requirement, scope: _Scope) -> None:
        match node:
            case ast.Name() | ast.Getattr() | ast.Getitem():
                self._path(node, requirement, scope)
            case ast.Filter():
                self._filter(node, requirement, scope)
            case ast.Compare():
                self._compare(node, scope)
            case ast.BinExpr() if node.operator == "+":
                self._sum(node, requirement, scope)
            case ast.BinExpr():
                self._expression(node.left, _NUMBER, scope)
                is_divided = node.operator in ("/", "//", "%")
                self._expression(node.right, Requirement(kind=Kind.NUMBER, nonzero=is_divided), scope)
            case ast.Neg() | ast.Pos():
                self._expression(node.node, _NUMBER, scope)
            case ast.CondExpr():
                self._expression(node.test, _CONDITION, scope)
                self._expression(node.expr1, requirement, scope)
                self._expression(node.expr2, requirement, scope)
            case ast.And() | ast.Or() | ast.Not():
                for inner in node.iter_child_nodes():
                    self._expression(inner, _CONDITION, scope)
            case _:
                for inner in node.iter_child_nodes():
                    self._expression(inner, _ANY, scope)

    def _path(self, node: Any, requirement: Requirement, scope: _Scope) -> None:
        for shape in self._paths(node, scope):
            shape.require(requirement)
        root = _root(node)
        if not isinstance(root, ast.Name):
            self._expression(root, _ANY, scope)
        elif root.name == "value" and scope.value is not None:
            # `value` stands for another expression: what is required of it is required of that.
            self._value(scope.value.source, requirement if node is root else _ANY, scope)

    def _sum(self, node: Any, requirement: Requirement, scope: _Scope) -> None:
        """Require one kind of both sides of a `+`, which adds numbers, texts or lists."""
        kind = _kind(node.left) or _kind(node.right) or requirement.kind
        for side in (node.left, node.right):
            self._expression(side, Requirement(kind=kind), scope)
        if kind is None:
            self._same_kind.append((node.left, node.right, scope))

    def _filter(self, node: ast.Filter, requirement: Requirement, scope: _Scope) -> None:
        operand: Any = node.node
        if node.name == "default":
            fallback = next((argument for argument in node.args if isinstance(argument, ast.Const)), None)
            if requirement.kind is None and fallback is not None:
                requirement = Requirement(kind=_kind(fallback), certainty=GUESSED)
        else:
            requirement = _FILTER_INPUTS.get(node.name, _ANY)
        self._expression(operand, requirement, scope)
        if node.name in _NUMERIC_FILTERS:
            for shape in self._denoted(operand, scope):
                shape.inside().require(Requirement(kind=Kind.NUMBER, certainty=GUESSED))
        if node.name == "map":
            self._require_part(node, scope)
        for argument in node.args:
            self._expression(
                argument, _FILTER_INPUTS.get(node.name, _ANY) if node.name == "replace" else _ANY, scope
            )

    def _require_part(self, node: ast.Filter, scope: _Scope) -> None:
        """Let each item of a list have the key that `map(attribute=…)` takes."""
        key = next((argument.value for argument in cast("list[ast.Keyword]", node.kwargs)), None)
        if isinstance(key, ast.Const):
            for shape in self._denoted(ast.Getitem(node.node, ast.Const(0), "load"), scope):
                shape.at(key.value)

    def _compare(self, node: ast.Compare, scope: _Scope) -> None:
        sides = [node.expr, *(operand.expr for operand in node.ops)]
        for operand, (left, right) in zip(node.ops, pairwise(sides), strict=True):
            if operand.op in ("in", "notin"):
                literals = [item.value for item in getattr(right, "items", ()) if isinstance(item, ast.Const)]
                kind = kind_of(literals[0]) if literals else None
                self._expression(
                    left, Requirement(kind=kind, certainty=GUESSED, choices=tuple(literals)), scope
                )
                self._expression(right, Requirement(kind=Kind.LIST, certainty=GUESSED), scope)
                continue
            kind = _kind(left) or _kind(right)
            if kind is None and operand.op not in ("eq", "ne"):
                self._same_kind.append((left, right, scope))
            for side, other in ((left, right), (right, left)):
                choices = _choices(other.value, operand.op) if isinstance(other, ast.Const) else ()
                certainty = GUESSED if operand.op in ("eq", "ne") else REQUIRED
                self._expression(side, Requirement(kind=kind, certainty=certainty, choices=choices), scope)

    # ── Shapes of expressions ──

    def _named(self, value: Any, scope: _Scope) -> list[Shape]:
        expressions = _expressions(value)
        return self._denoted(expressions[0], scope) if _is_whole(value, expressions) else []

    def _denoted(self, node: Any, scope: _Scope) -> list[Shape]:
        match node:
            case ast.Name() | ast.Getattr() | ast.Getitem():
                return self._paths(node, scope)
            case ast.Filter() if node.name in ("default", "sort", "unique"):
                return self._denoted(node.node, scope)
            case ast.BinExpr() if node.operator == "+":
                return [*self._denoted(node.left, scope), *self._denoted(node.right, scope)]
            case ast.CondExpr():
                return [*self._denoted(node.expr1, scope), *self._denoted(node.expr2, scope)]
            case _:
                return []

    def _paths(self, node: Any, scope: _Scope) -> list[Shape]:
        """Return the shapes at a path; none if a key is computed."""
        keys: list[str | int] = []
        while isinstance(node, ast.Getattr | ast.Getitem):
            key: Any = node.attr if isinstance(node, ast.Getattr) else node.arg
            if isinstance(key, ast.Slice):
                node = node.node
                continue
            value = key.value if isinstance(key, ast.Const) else key
            if isinstance(value, bool) or not isinstance(value, str | int):
                return []
            keys.append(value)
            node = node.node
        if not isinstance(node, ast.Name):
            return []
        return self._at([node.name, *reversed(keys)], scope)

    def _at(self, path: list[str | int], scope: _Scope) -> list[Shape]:
        # `outer.outer.item` is the item of the fan-out two levels further out.
        level = next((number for number, key in enumerate(path) if key != "outer"), len(path))
        match path[level:]:
            case ["item", *keys] if level < len(scope.items):
                shapes = scope.items[-1 - level]
            case _ if level:
                return []
            case ["nodes", str(name), "output" | "outputs" as field, *keys]:
                shapes, keys = self._of_node(name, str(field), keys, scope.graph)
            case ["upstream", "output", *keys] if scope.spec is not None and scope.spec.requires is not None:
                leaves = scope.spec.requires.leaves()
                shapes = [self.of.setdefault(leaf.node, Shape()) for leaf in leaves]
            case ["value", *keys] if scope.value is not None:
                shapes = self._named(scope.value.source, _Scope(scope.graph, scope.spec))
            case _:
                return []
        for key in keys:
            shapes = [shape.at(key) for shape in shapes]
        return shapes

    def _of_node(
        self, name: str, field: str, keys: list[str | int], graph: Graph
    ) -> tuple[list[Shape], list[str | int]]:
        spec = graph.specs.get(name)
        if isinstance(spec, FanInSpec) and spec.over is not None and keys[:1] == ["results"]:
            name, field, keys = spec.over, "outputs", keys[1:]
        if field == "output":
            return [self.of.setdefault(name, Shape())], keys
        if not keys or not isinstance(keys[0], int):
            return [], []
        # The mock of a child has the shape of its fan-out.
        self._children[name] = max(self._children.get(name, 0), keys[0] + 1, -keys[0])
        return [self.of.setdefault(name, Shape())], keys[1:]

    # ── Propagation ──

    def _count_children(self, graph: Graph) -> None:
        """Require as many items of a fan-out as its readers index."""
        for name, min_items in self._children.items():
            spec = graph.specs.get(name)
            if isinstance(spec, FanOutSpec):
                for shape in self._named(spec.source.source, _Scope(graph, spec)):
                    shape.require(Requirement(min_items=min_items))

    def _unify_operands(self) -> None:
        """Give both operands of a sum or a comparison the same kind: numbers, if nothing is known."""
        for left, right, scope in self._same_kind:
            both = [*self._denoted(left, scope), *self._denoted(right, scope)]
            known = [shape.known for shape in both]
            most_certain = max(known, key=lambda one: one.certainty, default=Shape().known)
            for shape in both:
                shape.require(
                    Requirement(
                        kind=most_certain.kind or Kind.NUMBER, certainty=most_certain.certainty or GUESSED
                    )
                )

    def _propagate_to_children(self, graphs: Sequence[Graph]) -> None:
        """Pass requirements on a child job's outputs on to the nodes that these are computed from."""
        for spec in [spec for graph in graphs for spec in graph.specs.values()]:
            inner = spec.child if isinstance(spec, FanOutSpec) else spec
            child = self._graphs.get(inner.workflow_id) if isinstance(inner, WorkflowSpec) else None
            if child is None or child.outputs is None or not isinstance(child.outputs.source, dict):
                continue
            for key, shape in list(self.of.get(spec.id, Shape()).keys.items()):
                for target in self._named(child.outputs.source.get(key), _Scope(child)):
                    if target is not shape:
                        target.absorb(shape)


def _expressions(value: Any) -> list[Any]:
    if not isinstance(value, str) or "{{" not in value:
        return []
    with suppress(TemplateSyntaxError):
        body: Iterable[Any] = _ENVIRONMENT.parse(value).body
        return [node for output in body for node in getattr(output, "nodes", ()) if not _is_blank(node)]
    return []


def _is_blank(node: Any) -> bool:
    return isinstance(node, ast.TemplateData) and not node.data.strip()


def _is_whole(value: Any, expressions: list[Any]) -> bool:
    return (
        isinstance(value, str) and len(expressions) == 1 and not isinstance(expressions[0], ast.TemplateData)
    )


def _root(node: Any) -> Any:
    while isinstance(node, ast.Getattr | ast.Getitem):
        node = node.node
    return node


def _kind(node: Any) -> Kind | None:
    """Return the kind of an expression, if it does not depend on values."""
    match node:
        case ast.Const():
            return kind_of(node.value)
        case ast.List() | ast.Tuple():
            return Kind.LIST
        case ast.Dict():
            return Kind.OBJECT
        case ast.Filter():
            return _FILTER_OUTPUTS.get(node.name)
        case ast.Getitem() if isinstance(node.arg, ast.Slice):
            return _kind(node.node)
        case ast.BinExpr() if node.operator == "+":
            return _kind(node.left) or _kind(node.right)
        case ast.BinExpr() | ast.Neg() | ast.Pos():
            return Kind.NUMBER
        case _:
            return None


def _choices(value: Any, operator: str) -> tuple[Any, ...]:
    if isinstance(value, bool) or not isinstance(value, int | float):
        return (value,) if operator in ("eq", "ne") and value is not None else ()
    return (value - 1, value, value + 1)
