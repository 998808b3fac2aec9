"""What a workflow reads of its nodes, and so what their outputs have to be like: a text, a number, a list of objects.

A filter says it, an operator, a literal beside it, the input of a child workflow; a model of the handler's output says
it best. Where nothing does, anything will do. This module does not know handlers, nor which value is drawn.
"""

from __future__ import annotations

from contextlib import suppress
from dataclasses import dataclass
from itertools import pairwise
from typing import TYPE_CHECKING, Any, Final

from jinja2 import Environment, TemplateSyntaxError
from jinja2 import nodes as ast

from dagmaster.engine.expressions.parser import parse
from dagmaster.engine.graph import ConditionalSpec, FanInSpec, FanOutSpec, TaskSpec, WaitSpec, WorkflowSpec
from dagmaster.simulation.value_schema import GUESS, LONG_AGO, SAID, Kind, Shape, Wanted, kind_of, learn, wanted_by

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping, Sequence

    from dagmaster.engine.expressions.templates import Template
    from dagmaster.engine.graph import Graph, Spec

_TEXT, _NUMBER, _LIST = Wanted(kind=Kind.TEXT), Wanted(kind=Kind.NUMBER), Wanted(kind=Kind.LIST)
_SOME = Wanted(kind=Kind.LIST, least=1)
_ANY: Final = Wanted()
_TAKES: Final[Mapping[str, Wanted]] = {
    "length": Wanted(kind=Kind.TEXT, sure=GUESS),
    **dict.fromkeys(("lower", "upper", "trim", "replace", "basename"), _TEXT),
    **dict.fromkeys(("round", "abs"), _NUMBER),
    **dict.fromkeys(("int", "float"), Wanted(kind=Kind.NUMBER, sure=GUESS)),
    **dict.fromkeys(("sum", "join", "sort", "unique"), _LIST),
    **dict.fromkeys(("first", "last", "min", "max"), _SOME),
}
_GIVES: Final[Mapping[str, Kind]] = {
    **dict.fromkeys(("lower", "upper", "trim", "replace", "basename", "join", "string", "tojson"), Kind.TEXT),
    **dict.fromkeys(("length", "int", "float", "round", "abs", "sum"), Kind.NUMBER),
    **dict.fromkeys(("sort", "unique"), Kind.LIST),
}
_OF_NUMBERS: Final = ("sum", "min", "max", "sort")
_ENVIRONMENT: Final = Environment()  # noqa: S701 - it parses; it never renders


@dataclass(frozen=True, slots=True)
class _Scope:
    """Where an expression stands: its node, what `value` is there, and the lists of the fan-outs around it."""

    graph: Graph
    spec: Spec | None = None
    value: Template | None = None
    items: tuple[list[Shape], ...] = ()


class Shapes:
    """The shapes of the outputs of all nodes of some workflows, by node."""

    def __init__(self, graphs: Sequence[Graph]) -> None:
        self.of: dict[str, Shape] = {}
        self._alike: list[tuple[Any, Any, _Scope]] = []
        self._children: dict[str, int] = {}
        self._graphs = {graph.workflow_id: graph for graph in graphs}
        for graph in graphs:
            for spec in graph.specs.values():
                self._spec(spec, _Scope(graph, spec))
            if graph.outputs is not None:
                self._value(graph.outputs.source, _ANY, _Scope(graph))
            self._count_children(graph)
        # What one learns the other is told, which may tell another.
        for _ in range(3):
            self._tell_alike()
            self._tell_children(graphs)

    def typed(self, node: str, schema: Mapping[str, Any]) -> None:
        """Learn the JSON schema of a node's output."""
        learn(self.of.setdefault(node, Shape()), schema)

    # ── Where expressions stand ──

    def _spec(self, spec: Spec, scope: _Scope) -> None:
        match spec:
            case TaskSpec():
                self._value(spec.params.source, _ANY, scope)
            case FanOutSpec():
                self._value(spec.source.source, _LIST, scope)
                inside = [shape.inside() for shape in self._named(spec.source.source, scope)]
                self._spec(spec.child, _Scope(scope.graph, scope.spec, None, (*scope.items, inside)))
            case WorkflowSpec():
                child = self._graphs.get(spec.workflow_id)
                given = spec.inputs.source if isinstance(spec.inputs.source, dict) else {}
                for name, value in given.items():
                    # An input that does not say its type is a string.
                    accepted = None if child is None else child.inputs.get(name)
                    schema = {} if accepted is None else {"type": "string", **accepted}
                    self._value(value, wanted_by(schema), scope)
            case WaitSpec():
                if spec.seconds is not None:
                    self._value(spec.seconds.source, _NUMBER, scope)
                if spec.until is not None:
                    self._value(spec.until.source, Wanted(kind=Kind.TEXT, choices=(LONG_AGO,), only=True), scope)
            case ConditionalSpec():
                if spec.condition_field is not None:
                    self._value(spec.condition_field.source, _ANY, scope)
                inside_it = _Scope(scope.graph, spec, spec.condition_field)
                for branch in spec.branches:
                    if branch.condition is not None:
                        self._expression(parse(branch.condition.text), Wanted(sure=GUESS), inside_it)
            case _:
                return

    def _value(self, value: Any, wanted: Wanted, scope: _Scope) -> None:
        if isinstance(value, dict | list):
            for each in value.values() if isinstance(value, dict) else value:
                self._value(each, _ANY, scope)
            return
        found = _expressions(value)
        for each in found:
            self._expression(each, wanted if _is_whole(value, found) else _ANY, scope)

    # ── What expressions ask for ──

    def _expression(self, node: Any, wanted: Wanted, scope: _Scope) -> None:  # noqa: PLR0912, C901 - one for each kind
        match node:
            case ast.Name() | ast.Getattr() | ast.Getitem():
                for shape in self._paths(node, scope):
                    shape.want(wanted)
                root = _root(node)
                if not isinstance(root, ast.Name):
                    self._expression(root, _ANY, scope)
                elif root.name == "value" and scope.value is not None:
                    self._value(scope.value.source, wanted if node is root else _ANY, scope)
            case ast.Filter():
                self._filter(node, wanted, scope)
            case ast.Compare():
                self._compare(node, scope)
            case ast.BinExpr() if node.operator == "+":
                kind = _kind(node.left) or _kind(node.right) or wanted.kind
                for side in (node.left, node.right):
                    self._expression(side, Wanted(kind=kind), scope)
                if kind is None:
                    self._alike.append((node.left, node.right, scope))
            case ast.BinExpr():
                self._expression(node.left, _NUMBER, scope)
                is_divided = node.operator in ("/", "//", "%")
                self._expression(node.right, Wanted(kind=Kind.NUMBER, nonzero=is_divided), scope)
            case ast.Neg() | ast.Pos():
                self._expression(node.node, _NUMBER, scope)
            case ast.CondExpr():
                self._expression(node.test, Wanted(kind=Kind.BOOLEAN, sure=GUESS), scope)
                self._expression(node.expr1, wanted, scope)
                self._expression(node.expr2, wanted, scope)
            case ast.And() | ast.Or():
                for side in (node.left, node.right):
                    self._expression(side, Wanted(kind=Kind.BOOLEAN, sure=GUESS), scope)
            case ast.Not():
                self._expression(node.node, Wanted(kind=Kind.BOOLEAN, sure=GUESS), scope)
            case _:
                for inner in node.iter_child_nodes():
                    self._expression(inner, _ANY, scope)

    def _filter(self, node: ast.Filter, wanted: Wanted, scope: _Scope) -> None:
        asked: Any = node.node
        if node.name == "default":
            fallback = next((each for each in node.args if isinstance(each, ast.Const)), None)
            if wanted.kind is None and fallback is not None:
                wanted = Wanted(kind=_kind(fallback), sure=GUESS)
        else:
            wanted = _TAKES.get(node.name, _ANY)
        self._expression(asked, wanted, scope)
        if node.name in _OF_NUMBERS:
            for shape in self._denoted(asked, scope):
                shape.inside().want(Wanted(kind=Kind.NUMBER, sure=GUESS))
        for argument in node.args:
            self._expression(argument, _TAKES.get(node.name, _ANY) if node.name == "replace" else _ANY, scope)

    def _compare(self, node: ast.Compare, scope: _Scope) -> None:
        sides = [node.expr, *(operand.expr for operand in node.ops)]
        for operand, (left, right) in zip(node.ops, pairwise(sides), strict=True):
            if operand.op in ("in", "notin"):
                named = [each.value for each in getattr(right, "items", ()) if isinstance(each, ast.Const)]
                kind = kind_of(named[0]) if named else None
                self._expression(left, Wanted(kind=kind, sure=GUESS, choices=tuple(named)), scope)
                self._expression(right, Wanted(kind=Kind.LIST, sure=GUESS), scope)
                continue
            kind = _kind(left) or _kind(right)
            if kind is None and operand.op not in ("eq", "ne"):
                self._alike.append((left, right, scope))
            for side, other in ((left, right), (right, left)):
                choices = _choices(other.value, operand.op) if isinstance(other, ast.Const) else ()
                sure = GUESS if operand.op in ("eq", "ne") else SAID
                self._expression(side, Wanted(kind=kind, sure=sure, choices=choices), scope)

    # ── Which shapes expressions name ──

    def _named(self, value: Any, scope: _Scope) -> list[Shape]:
        found = _expressions(value)
        return self._denoted(found[0], scope) if _is_whole(value, found) else []

    def _denoted(self, node: Any, scope: _Scope) -> list[Shape]:
        """Return the shapes whose value an expression gives, or a part of it."""
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
        """Return the shapes at a path; at one whose key is computed, none."""
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
        match path:
            case ["nodes", str(name), "output" | "outputs" as what, *keys]:
                found, keys = self._of_node(name, str(what), keys, scope.graph)
            case ["upstream", "output" | "outputs" as what, *keys]:
                requires = None if scope.spec is None else scope.spec.requires
                leaves = [] if requires is None else requires.leaves()
                found = [self.of.setdefault(leaf.node, Shape()) for leaf in leaves] if what == "output" else []
            case ["item", *keys] if scope.items:
                found = scope.items[-1]
            case ["outer", *_]:
                level = next((number for number, key in enumerate(path) if key != "outer"), len(path))
                is_item = level < min(len(path), len(scope.items)) and path[level] == "item"
                found, keys = (scope.items[-1 - level], path[level + 1 :]) if is_item else ([], [])
            case ["value", *keys] if scope.value is not None:
                found = self._named(scope.value.source, _Scope(scope.graph, scope.spec))
            case _:
                return []
        for key in keys:
            found = [shape.at(key) for shape in found]
        return found

    def _of_node(
        self, name: str, what: str, keys: list[str | int], graph: Graph
    ) -> tuple[list[Shape], list[str | int]]:
        spec = graph.specs.get(name)
        if isinstance(spec, FanInSpec) and spec.over is not None and keys[:1] == ["results"]:
            name, what, keys = spec.over, "outputs", keys[1:]
        if what == "output":
            return [self.of.setdefault(name, Shape())], keys
        if not keys or not isinstance(keys[0], int):
            return [], []
        # The mock of a child has the shape of its fan-out.
        self._children[name] = max(self._children.get(name, 0), keys[0] + 1, -keys[0])
        return [self.of.setdefault(name, Shape())], keys[1:]

    # ── What one place tells another ──

    def _count_children(self, graph: Graph) -> None:
        """Return where the third child is read, there are three."""
        for name, least in self._children.items():
            spec = graph.specs.get(name)
            if isinstance(spec, FanOutSpec):
                for shape in self._named(spec.source.source, _Scope(graph, spec)):
                    shape.want(Wanted(least=least))

    def _tell_alike(self) -> None:
        """Two sides of a sum, and of a comparison, are of one kind; if nobody says which, they are numbers."""
        for left, right, scope in self._alike:
            both = [*self._denoted(left, scope), *self._denoted(right, scope)]
            surest = max(both, key=lambda shape: shape.sure, default=Shape())
            for shape in both:
                shape.want(Wanted(kind=surest.kind or Kind.NUMBER, sure=surest.sure or GUESS))

    def _tell_children(self, graphs: Sequence[Graph]) -> None:
        """Pass what is read of a child job on to the nodes that its outputs are made of."""
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
    """Return the expressions in a text."""
    if not isinstance(value, str) or "{{" not in value:
        return []
    with suppress(TemplateSyntaxError):
        body: Iterable[Any] = _ENVIRONMENT.parse(value).body
        return [each for output in body for each in getattr(output, "nodes", ()) if not _is_blank(each)]
    return []


def _is_blank(node: Any) -> bool:
    return isinstance(node, ast.TemplateData) and not node.data.strip()


def _is_whole(value: Any, found: list[Any]) -> bool:
    """Return whether a text is one expression, whose value it has."""
    return isinstance(value, str) and len(found) == 1 and not isinstance(found[0], ast.TemplateData)


def _root(node: Any) -> Any:
    while isinstance(node, ast.Getattr | ast.Getitem):
        node = node.node
    return node


def _kind(node: Any) -> Kind | None:
    """Return the kind that an expression has, whatever its paths hold."""
    match node:
        case ast.Const():
            return kind_of(node.value)
        case ast.List() | ast.Tuple():
            return Kind.LIST
        case ast.Dict():
            return Kind.OBJECT
        case ast.Filter():
            return _GIVES.get(node.name)
        case ast.Getitem() if isinstance(node.arg, ast.Slice):
            return _kind(node.node)
        case ast.BinExpr() if node.operator == "+":
            return _kind(node.left) or _kind(node.right)
        case ast.BinExpr() | ast.Neg() | ast.Pos():
            return Kind.NUMBER
        case _:
            return None


def _choices(value: Any, operator: str) -> tuple[Any, ...]:
    """Values on both sides of a comparison."""
    if isinstance(value, bool) or not isinstance(value, int | float):
        return (value,) if operator in ("eq", "ne") and value is not None else ()
    return (value - 1, value, value + 1)
