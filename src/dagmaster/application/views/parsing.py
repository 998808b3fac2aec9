"""Parse the JSON of a view back into the view: the inverse of `to_dict()`, made from the types of the fields.

Keys that this version does not know are ignored: a newer server may send more. Fields that are not part of
the JSON are derived from the others, and from the time at which the answer was made.
"""

from __future__ import annotations

import types
from collections.abc import Callable, Mapping
from dataclasses import fields
from datetime import datetime
from enum import StrEnum
from typing import Any, Final, TypeVar, Union, get_args, get_origin

from dagmaster.application.views.footprints import FootprintView
from dagmaster.application.views.page import Page
from dagmaster.application.views.view import Timestamp, View, view_types
from dagmaster.engine.status import NodeStatus
from dagmaster.errors import Problem, ServerAnswerInvalid

V = TypeVar("V", bound=View)
Parser = Callable[[Any, float], Any]


def parse_view(view: type[V], document: Any, *, read_at: float) -> V:
    """Return the view of a document; raise `ServerAnswerInvalid` if it is not one.

    `read_at`: when it was made.
    """
    try:
        parsed: V = _parser(view)(document, read_at)
    except (AttributeError, KeyError, TypeError, ValueError) as error:
        raise ServerAnswerInvalid(
            f"the answer is not a {view.__name__} as this version of dagmaster knows it"
            f" ({type(error).__name__}:"
            f" {error}). Is the server of another version?"
        ) from error
    return parsed


def parse_page(view: type[V], document: Any, *, read_at: float) -> Page[V]:
    """Return a page of views."""
    if not isinstance(document, dict) or not isinstance(document.get("items"), list):
        raise ServerAnswerInvalid(f"the answer is not a page of {view.__name__}")
    items = tuple(parse_view(view, item, read_at=read_at) for item in document["items"])
    return Page(items=items, next_cursor=document.get("next_cursor"))


_known: dict[Any, Parser] = {}


def _parser(hint: Any) -> Parser:
    """Return what turns JSON into a value of a type. It is made once."""
    if hint not in _known:
        _known[hint] = _make_parser(hint)
    return _known[hint]


def _make_parser(hint: Any) -> Parser:
    origin, arguments = get_origin(hint), get_args(hint)
    parser: Parser = _as_it_is
    if hint is Timestamp:
        parser = _parse_time
    elif origin in (Union, types.UnionType):
        parser = _union_parser(arguments)
    elif origin is tuple:
        parser = _tuple_parser(_parser(arguments[0]))
    elif origin is Mapping:
        parser = _mapping_parser(_parser(arguments[1]))
    elif isinstance(hint, type) and issubclass(hint, StrEnum):
        parser = _enum_parser(hint)
    elif hint is FootprintView:
        parser = _parse_feature
    elif isinstance(hint, type) and issubclass(hint, View | Problem):
        parser = _object_parser(hint)
    return parser


def _object_parser(view: type[Any]) -> Parser:
    hints = view_types(view)
    shown = [field for field in fields(view) if not field.metadata.get("internal")]
    parsers = [(field.name, _parser(hints[field.name])) for field in shown]
    internal = [field.name for field in fields(view) if field.metadata.get("internal")]

    def parse(document: Any, read_at: float) -> Any:
        values = {name: parser(document[name], read_at) for name, parser in parsers}
        return view(**values, **{name: _INTERNAL[name](values, read_at) for name in internal})

    return parse


def _union_parser(arguments: tuple[Any, ...]) -> Parser:
    """Return a parser that takes the first type that fits.

    A value that only a newer version knows may stay text.
    """
    parsers = [_parser(argument) for argument in arguments if argument is not type(None)]
    *first, last = parsers

    def parse(value: Any, read_at: float) -> Any:
        if value is None:
            return None
        for parser in first:
            try:
                return parser(value, read_at)
            except ValueError:
                continue
        return last(value, read_at)

    return parse


def _tuple_parser(item: Parser) -> Parser:
    return lambda value, read_at: tuple(item(part, read_at) for part in value)


def _mapping_parser(item: Parser) -> Parser:
    return lambda value, read_at: {key: item(part, read_at) for key, part in value.items()}


def _enum_parser(of: type[StrEnum]) -> Parser:
    return lambda value, _read_at: of(value)


def _parse_time(value: Any, _read_at: float) -> float:
    return datetime.fromisoformat(value).timestamp()


def _parse_feature(document: Any, read_at: float) -> FootprintView:
    values = {**document["properties"], "geometry": document["geometry"]}
    view: FootprintView = _object_parser(FootprintView)(values, read_at)
    return view


def _as_it_is(value: Any, _read_at: float) -> Any:
    return value


def _statuses(values: Mapping[str, Any], _read_at: float) -> dict[str, NodeStatus]:
    nodes = {node_id: values["nodes"][node_id] for node_id in values["dependencies"]}
    return {node_id: node.status for node_id, node in nodes.items() if node.status is not NodeStatus.PENDING}


def _fan_outs(values: Mapping[str, Any], _read_at: float) -> tuple[str, ...]:
    return tuple(node_id for node_id, node in values["nodes"].items() if node.children is not None)


_INTERNAL: Final[Mapping[str, Callable[[Mapping[str, Any], float], Any]]] = {
    "read_at": lambda _values, read_at: read_at,
    "statuses": _statuses,
    "fan_outs": _fan_outs,
    "graph": lambda _values, _read_at: None,
}
"""How each field that is not part of the JSON is derived."""
