"""The JSON Schema of a record, made from the types of what its JSON shows."""

from __future__ import annotations

import types
from collections.abc import Mapping
from enum import IntEnum, StrEnum
from typing import TYPE_CHECKING, Any, Final, Union, get_args, get_origin

from dagmaster.records.record import Record, Timestamp, shown_types

if TYPE_CHECKING:
    from dagmaster.errors import Problem

_PLAIN: Final[dict[Any, dict[str, Any]]] = {
    str: {"type": "string"},
    int: {"type": "integer"},
    float: {"type": "number"},
    bool: {"type": "boolean"},
    type(None): {"type": "null"},
    Timestamp: {"type": "string", "format": "date-time"},
    Any: {},
}


def schema_name(record: type[Any]) -> str:
    name: str = record.documented_name if issubclass(record, Record) else record.__name__
    return name


def record_schema(record: type[Record | Problem]) -> dict[str, Any]:
    types_by_name = shown_types(record)
    schema = {
        "type": "object",
        "description": " ".join((record.__doc__ or "").split()),
        "properties": {name: _schema(hint) for name, hint in types_by_name.items()},
        "required": list(types_by_name),
        "additionalProperties": False,
    }
    return record.complete_schema(schema) if issubclass(record, Record) else schema


def page_schema(name: str) -> dict[str, Any]:
    """Return the schema of a page of the record that is documented under a name."""
    items = {"type": "array", "items": {"$ref": f"#/$defs/{name}"}}
    return {
        "type": "object",
        "description": f"A page of {name}. `next_cursor` is null on the last page.",
        "properties": {"items": items, "next_cursor": {"anyOf": [{"type": "string"}, {"type": "null"}]}},
        "required": ["items", "next_cursor"],
        "additionalProperties": False,
    }


def _schema(hint: Any) -> dict[str, Any]:
    if hint in _PLAIN:
        return dict(_PLAIN[hint])
    origin, arguments = get_origin(hint), get_args(hint)
    if origin in (Union, types.UnionType):
        return {"anyOf": [_schema(argument) for argument in arguments]}
    if origin is tuple:
        return {"type": "array", "items": _schema(arguments[0])}
    if origin in (dict, Mapping):
        return {"type": "object", "additionalProperties": _schema(arguments[1]) or True}
    if issubclass(hint, StrEnum):
        return {"enum": [member.value for member in hint]}
    if issubclass(hint, IntEnum):
        return {"enum": [member.name.lower() for member in hint]}
    return {"$ref": f"#/$defs/{schema_name(hint)}"}
