"""Parse the JSON of a record into the record: the inverse of `to_dict()`, made from the types of fields.

Keys that this version does not know are ignored: a newer server may send more. Fields that are not part of
the JSON are derived from the others, and from the time at which the answer was made, or have their defaults.
"""

from __future__ import annotations

import types
from collections.abc import Callable, Mapping
from dataclasses import fields
from datetime import datetime
from enum import IntEnum, StrEnum
from typing import Any, TypeVar, Union, get_args, get_origin

from dagmaster.errors import Problem, ServerAnswerInvalid
from dagmaster.records.page import Page
from dagmaster.records.record import Record, Timestamp, shown_types
from dagmaster.records.redacted import SecretRecord, mark_redacted

R = TypeVar("R", bound=Record)
Parser = Callable[[Any, float], Any]


def parse_record(record: type[R], document: Any, *, read_at: float) -> R:
    """Return the record of a document; raise `ServerAnswerInvalid` if it is not one.

    `read_at`: when it was made.
    """
    try:
        parsed: R = _parser(record)(document, read_at)
    except (AttributeError, KeyError, TypeError, ValueError) as error:
        raise ServerAnswerInvalid(
            f"the answer is not a {record.documented_name} as this version of dagmaster knows it"
            f" ({type(error).__name__}:"
            f" {error}). Is the server of another version?"
        ) from error
    return parsed


def parse_page(record: type[R], document: Any, *, read_at: float) -> Page[R]:
    if not isinstance(document, dict) or not isinstance(document.get("items"), list):
        raise ServerAnswerInvalid(f"the answer is not a page of {record.documented_name}")
    items = tuple(parse_record(record, item, read_at=read_at) for item in document["items"])
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
    elif isinstance(hint, type) and issubclass(hint, IntEnum):
        parser = _numbered_enum_parser(hint)
    elif isinstance(hint, type) and issubclass(hint, Record | Problem):
        parser = _object_parser(hint)
    return parser


def _object_parser(record: type[Any]) -> Parser:
    parsers = [(name, _parser(hint)) for name, hint in shown_types(record).items()]
    names = {field.name for field in fields(record)}
    derivations = [
        (field.name, field.metadata["derived"]) for field in fields(record) if "derived" in field.metadata
    ]
    to_fields = record.parse_fields if issubclass(record, Record) else lambda document: document

    def parse(document: Any, read_at: float) -> Any:
        document = to_fields(document)
        values = {name: parser(document[name], read_at) for name, parser in parsers}
        more = {name: derive(values, read_at) for name, derive in derivations}
        parsed = record(**{name: value for name, value in values.items() if name in names}, **more)
        return mark_redacted(parsed) if isinstance(parsed, SecretRecord) else parsed

    return parse


def _union_parser(arguments: tuple[Any, ...]) -> Parser:
    """Return a parser that takes the first type that fits.

    A value that only a newer version knows may stay text.
    """
    parsers = [_parser(argument) for argument in arguments if argument is not type(None)]
    *first, last = parsers
    if not first:
        return lambda value, read_at: None if value is None else last(value, read_at)

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


def _numbered_enum_parser(of: type[IntEnum]) -> Parser:
    members = {member.name.lower(): member for member in of}
    return lambda value, _read_at: members[value]


def _parse_time(value: Any, _read_at: float) -> float:
    return datetime.fromisoformat(value).timestamp()


def _as_it_is(value: Any, _read_at: float) -> Any:
    return value
