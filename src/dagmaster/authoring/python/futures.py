"""Futures: values that are known when the job runs, as they stand for them while a graph is built.

A future is written into the document as an expression. What Python would have to know its value for (`if`,
`len`, a comparison) is an error at that line.
"""

# ruff: noqa: SLF001 - functions here read futures: a method would hide a key of the value

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass, fields, is_dataclass
from typing import TYPE_CHECKING, Any, Final, Generic, NoReturn, TypeAlias, TypeVar

from dagmaster.authoring.python.future_misuses import METHODS, MISUSES
from dagmaster.authoring.python.places import reject
from dagmaster.sdk.json_forms import NoJsonForm, json_form

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator, Sequence
    from typing import Self

    from dagmaster.authoring.python.graph_nodes import Branch, Conditional, Node, NodeGroup
    from dagmaster.authoring.python.places import Place
    from dagmaster.errors import WorkflowInvalid

T_co = TypeVar("T_co", covariant=True)
D = TypeVar("D")

Requirement: TypeAlias = "Node | Branch | Gate | str"
"""What a node waits for; text is the id of a node."""

Dependency: TypeAlias = "Future[Any] | NodeGroup | Branch | Conditional | Gate | str"
"""What an author writes as something to wait for."""

_IDENTIFIER: Final = re.compile(r"[A-Za-z_][A-Za-z0-9_]*")
_PATH: Final = re.compile(r"[\w.\[\]]+")
_CONTROL: Final = re.compile(r"[\\'\x00-\x1f\x7f]")
_OPENING: Final = re.compile(r"\{[{%#]")
_SCALARS: Final = (str, int, float, type(None))
NOTHING: Final[Any] = object()
MAX_DEPTH: Final = 100
"""How deep lists and mappings in an argument may be nested."""


@dataclass(frozen=True, slots=True)
class Scope:
    """Where an expression is: the ids of nodes, the number of fan-outs around it, the call with the value."""

    ids: Mapping[Node, str]
    nesting: int
    place: Place | None


class Origin:
    """What a future is the value of."""

    def text(self, scope: Scope) -> str:
        raise NotImplementedError

    def template(self, scope: Scope) -> str:
        return f"{{{{ {self.text(scope)} }}}}"

    def requirement(self) -> Requirement | None:
        return None


@dataclass(frozen=True, slots=True)
class InputOrigin(Origin):
    """An input of the workflow."""

    name: str

    def text(self, scope: Scope) -> str:  # noqa: ARG002 - the same everywhere
        return f"inputs.{self.name}"


@dataclass(frozen=True, slots=True)
class NodeOrigin(Origin):
    """A part of a node: its output, status or error; the outputs of a fan-out."""

    node: Node
    part: str

    def text(self, scope: Scope) -> str:
        if self.node not in scope.ids:
            raise reject(
                f"a future of {self.node.label!r} is used outside of the workflow that it belongs to",
                "pass it as an input of the other workflow, or return it",
                place=scope.place,
            )
        return f"nodes.{scope.ids[self.node]}.{self.part}"

    def requirement(self) -> Requirement | None:
        return self.node


@dataclass(frozen=True, slots=True)
class PartsOrigin(NodeOrigin):
    """A part of each output of a fan-out: its keys, the outermost first."""

    keys: tuple[str | int, ...]

    def text(self, scope: Scope) -> str:
        return NodeOrigin.text(self, scope) + "".join(
            f" | map(attribute={literal(key, scope)})" for key in self.keys
        )


@dataclass(frozen=True, slots=True)
class ItemOrigin(Origin):
    """The item of a fan-out; the outermost has level 1."""

    level: int

    def text(self, scope: Scope) -> str:
        """Return the path of the item as seen from the inner fan-outs."""
        if self.level > scope.nesting:
            raise reject(
                "the item of a fan-out is used outside of the function that gets it", place=scope.place
            )
        return "outer." * (scope.nesting - self.level) + "item"


@dataclass(frozen=True, slots=True)
class FirstOrigin(Origin):
    """The first of several values that is there. `kind`: how its nodes are waited for, `any_of` or `join`."""

    kind: str
    members: tuple[Dependency, ...]

    def text(self, scope: Scope) -> str:
        """Return the members, each the default of the one before it."""
        text = "none"
        for member in reversed(self.members):
            if not isinstance(member, Future):
                message = f"this {self.kind} has no value: one of its members is not a future"
                raise reject(message, place=scope.place)
            text = f"{write_text(member, scope)} | default({text})"
        return text

    def requirement(self) -> Requirement | None:
        return Gate(self.kind, self.members)


@dataclass(frozen=True, slots=True)
class Gate:
    """Dependencies: all are needed (`all_of`), one suffices (`any_of`), or all that are taken (`join`)."""

    kind: str
    members: tuple[Dependency, ...]


class Ordered:
    """What can be put into an order by `>>`, `<<` and `after`: the value of a node, or a group."""

    __slots__ = ()

    def after(self, *dependencies: Dependency) -> Self:
        """Start it after others."""
        raise NotImplementedError

    def __rshift__(self, other: D) -> D:
        """Order: `a >> b` starts b, or each of a list, after a."""
        for one in _ordered_in(other):
            one.after(self)  # type: ignore[arg-type]
        return other

    def __lshift__(self, other: Dependency | Sequence[Dependency]) -> Self:
        """Order: `a << b` starts a after b, or after each of a list."""
        return self.after(*(other if isinstance(other, list | tuple) else [other]))

    def __rrshift__(self, other: Sequence[Dependency]) -> Self:
        """Order: `[a, b] >> c` starts c after a and b."""
        return self.after(*other)

    def __rlshift__(self, other: D) -> D:
        """Order: `[a, b] << c` starts a and b after c."""
        return self >> other


class Future(Ordered, Generic[T_co]):
    """A value that is known when the job runs. Its attributes and items are also futures.

    Three names are methods and not keys of the value: `default`, `node` and `after`. Write `future["node"]`
    for such a key.
    """

    __slots__ = ("_default", "_keys", "_origin")

    def __init__(self, origin: Origin, keys: tuple[str | int, ...] = (), default: Any = NOTHING) -> None:
        self._origin = origin
        self._keys = keys
        self._default = default

    def default(self, value: D) -> Future[T_co | D]:
        """Use this value where one is missing: an input that is absent, the output of a node that failed."""
        return Future(self._origin, self._keys, value)

    @property
    def node(self) -> NodeState:
        """Return the state of the node that the value comes from: its status, its error."""
        if not isinstance(self._origin, NodeOrigin):
            raise reject("only the result of a node has a node")
        return NodeState(self._origin.node)

    def after(self, *dependencies: Dependency) -> Self:
        """Let the node of this value start after others, whose values it does not take."""
        if not isinstance(self._origin, NodeOrigin):
            raise reject("only the result of a node can be ordered after others")
        self._origin.node.after += dependencies
        return self

    def __getitem__(self, key: Any) -> Future[Any]:
        if type(key) not in (str, int):
            raise reject(
                "a key of a future is text or a whole number",
                "take the whole value in a @task, and choose there",
            )
        if self._default is not NOTHING:
            raise reject("the default comes last", "write future.key.default(…)")
        return Future(self._origin, (*self._keys, key))

    def __getattr__(self, name: str) -> Future[Any]:
        # Python and notebooks ask every object for such names.
        if name.startswith("_"):
            raise AttributeError(f"a future has no attribute {name!r}: write future[{name!r}] for a key")
        return self[name]

    def __repr__(self) -> str:
        origin = self._origin
        named = (
            origin.node.label
            if isinstance(origin, NodeOrigin)
            else type(origin).__name__.removesuffix("Origin")
        )
        return f"<Future {named}{''.join(f'[{key!r}]' for key in self._keys)}>"

    __hash__ = object.__hash__


class NodeState:
    """What can be read of a node besides its result, also when it failed."""

    def __init__(self, node: Node) -> None:
        self._node = node

    @property
    def status(self) -> Future[str]:
        """Return the status, such as COMPLETED or FAILED."""
        return Future(NodeOrigin(self._node, "status"))

    @property
    def error(self) -> Future[Any]:
        """Return the error; null without one."""
        return Future(NodeOrigin(self._node, "error"))

    @property
    def failed(self) -> Future[list[Any]]:
        """Return the failed items of a fan-out: a list of {index, error}."""
        if self._node.kind != "fan_out":
            raise reject("only a fan-out has failed items", "read .node.status or .node.error")
        return Future(NodeOrigin(self._node, "failed"))


def write_text(future: Future[Any], scope: Scope) -> str:
    text = future._origin.text(scope)
    keys = write_keys(future._keys, scope)
    if keys and not _PATH.fullmatch(text):
        text = f"({text})"
    default = future._default
    return text + keys if default is NOTHING else f"{text}{keys} | default({literal(default, scope)})"


def write_keys(keys: Iterable[str | int], scope: Scope) -> str:
    """Return the keys of a part of a value, as they follow the path of the value."""
    return "".join(
        f".{key}" if isinstance(key, str) and _IDENTIFIER.fullmatch(key) else f"[{literal(key, scope)}]"
        for key in keys
    )


def write_template(future: Future[Any], scope: Scope) -> str:
    if future._keys or future._default is not NOTHING:
        return f"{{{{ {write_text(future, scope)} }}}}"
    return future._origin.template(scope)


def origin_of(future: Future[Any]) -> Origin:
    return future._origin


def part_of(future: Future[Any]) -> tuple[str | int, ...]:
    """Return the keys of the part that a future is of the result of a node; raise if it has a default."""
    if future._default is not NOTHING:
        raise reject(
            "a default cannot stand for a whole result here", "take the results in a @task, and decide there"
        )
    return future._keys


def futures_in(value: Any) -> Iterator[Future[Any]]:
    """Yield the futures inside a value: in lists, dicts, dataclasses and defaults, at any depth."""
    # No recursion: a value may be nested deeper than Python's stack, or contain itself.
    pending, seen = [value], set[int]()
    while pending:
        one = pending.pop()
        if isinstance(one, Future):
            yield one
            pending.append(one._default)
        elif isinstance(one, _SCALARS) or id(one) in seen:
            continue
        else:
            seen.add(id(one))
            pending += reversed(_items_of(one))


def _items_of(value: Any) -> list[Any]:
    if isinstance(value, list | tuple):
        return list(value)
    if isinstance(value, Mapping):
        return list(value.values())
    return [getattr(value, one.name) for one in fields(value)] if is_dataclass(type(value)) else []


def escape(text: str) -> str:
    """Return text as a template whose value is this text: braces are no expressions."""
    return _OPENING.sub(lambda braces: f"{{{{ '{braces[0]}' }}}}", text)


def _ordered_in(value: Any) -> list[Ordered]:
    ordered = list(value) if isinstance(value, list | tuple) else [value]
    if not all(isinstance(one, Ordered) for one in ordered):
        raise reject("only futures and groups are ordered by >> and <<")
    return ordered


def literal(value: Any, scope: Scope, depth: int = 0) -> str:
    if isinstance(value, Future):
        return write_text(value, scope)
    if value is None or isinstance(value, bool):
        return str(value).lower()
    if isinstance(value, int | float):
        # Of an enum, its number.
        return int.__repr__(value) if isinstance(value, int) else float.__repr__(value)
    if isinstance(value, str):
        return "'" + _CONTROL.sub(lambda sign: f"\\x{ord(sign[0]):02x}", value) + "'"
    if depth > MAX_DEPTH:
        raise reject(f"a default is nested more than {MAX_DEPTH} deep, or contains itself", place=scope.place)
    if isinstance(value, list | tuple):
        return f"[{', '.join(literal(item, scope, depth + 1) for item in value)}]"
    if isinstance(value, Mapping):
        pairs = (f"{literal(key, scope)}: {literal(item, scope, depth + 1)}" for key, item in value.items())
        return f"{{{', '.join(pairs)}}}"
    try:
        return literal(json_form(value), scope, depth)
    except NoJsonForm as reason:
        raise reject(f"a default {reason}", place=scope.place) from None


# ── What needs the value ──


def _refuse(what: str, hint: str) -> Callable[..., NoReturn]:
    def method(self: Future[Any], *_: Any) -> NoReturn:
        raise _unknown_value(self, what, hint)

    return method


def _refuse_call(self: Future[Any], *_: Any, **_named: Any) -> NoReturn:
    """Explain `future.get("key")` and `**future`, which calls `keys`: attributes are keys of the value."""
    *keys, name = self._keys or ("",)
    if name == "":
        raise reject(f"{_described(self)} is not a function", "call a @task with it, or in it")
    what, hint = METHODS.get(str(name), (".{}()", "call it in a @task"))
    whole: Future[Any] = Future(self._origin, tuple(keys))
    raise _unknown_value(whole, what.format(name), f"{hint}, or take the whole value in a @task")


def _unknown_value(future: Future[Any], what: str, hint: str) -> WorkflowInvalid:
    return reject(
        f"{what} needs the value of {_described(future)}, which is not known while the graph is built", hint
    )


def _described(future: Future[Any]) -> str:
    origin = future._origin
    keys = "".join(f"[{key!r}]" for key in future._keys)
    of = f"{keys} of " if keys else ""
    match origin:
        case NodeOrigin():
            return f"{of}the result of {origin.node.label!r} (line {origin.node.place.line})"
        case InputOrigin():
            return f"{of}the input {origin.name!r}"
        case ItemOrigin():
            return f"{of}the item of a fan-out"
    return f"{of}a future"


for _name, (_what, _hint) in MISUSES.items():
    setattr(Future, _name, _refuse(_what, _hint))
Future.__call__ = _refuse_call  # type: ignore[method-assign]
