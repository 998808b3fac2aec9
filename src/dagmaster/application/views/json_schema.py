"""The JSON Schema of every view, made from the types of its fields."""

from __future__ import annotations

import types
from collections.abc import Mapping
from dataclasses import fields
from enum import IntEnum, StrEnum
from typing import Any, Final, Union, get_args, get_origin

from dagmaster.application import views
from dagmaster.application.views.view import Timestamp, View, view_types
from dagmaster.errors import Problem
from dagmaster.ports.task_messages import message_schema

_PLAIN: Final[dict[Any, dict[str, Any]]] = {
    str: {"type": "string"},
    int: {"type": "integer"},
    float: {"type": "number"},
    bool: {"type": "boolean"},
    type(None): {"type": "null"},
    Timestamp: {"type": "string", "format": "date-time"},
    Any: {},
}


def view_schemas() -> dict[str, Any]:
    """Return one schema document with a definition for each view and for a page of each."""
    classes: list[Any] = [getattr(views, name) for name in views.__all__]
    shown = [
        view
        for view in classes
        if isinstance(view, type) and issubclass(view, View | Problem) and view is not View
    ]
    definitions: dict[str, Any] = {}
    for view in shown:
        definitions[view.__name__] = _SPECIAL.get(view.__name__, _object_schema)(view)
    for view in shown:
        if view.__name__.endswith("View"):
            definitions[f"{view.__name__}Page"] = _page_schema(view.__name__)
    message = message_schema()
    definitions |= {"TaskMessage": message, **message.pop("$defs")}
    del message["$schema"]
    return {
        "$schema": "https://json-schema.org/draft/2020-12/schema",
        "title": "Views of dagmaster",
        "description": "What `--json` prints and what an HTTP route sends. Every key is always present.",
        "$defs": definitions,
    }


def _object_schema(view: type[Any]) -> dict[str, Any]:
    hints = view_types(view)
    names = [field.name for field in fields(view) if not field.metadata.get("internal")]
    return {
        "type": "object",
        "description": " ".join((view.__doc__ or "").split()),
        "properties": {name: _schema(hints[name]) for name in names},
        "required": names,
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
    return {"$ref": f"#/$defs/{hint.__name__}"}


def _page_schema(name: str) -> dict[str, Any]:
    items = {"type": "array", "items": {"$ref": f"#/$defs/{name}"}}
    return {
        "type": "object",
        "description": f"A page of {name}. `next_cursor` is null on the last page.",
        "properties": {"items": items, "next_cursor": {"anyOf": [{"type": "string"}, {"type": "null"}]}},
        "required": ["items", "next_cursor"],
        "additionalProperties": False,
    }


def _feature_schema(view: type[Any]) -> dict[str, Any]:
    schema = _object_schema(view)
    del schema["properties"]["geometry"]
    schema["required"].remove("geometry")
    description = schema.pop("description")
    return {
        "type": "object",
        "description": description,
        "properties": {
            "type": {"const": "Feature"},
            "id": {"type": "string"},
            "geometry": {"type": "object"},
            "properties": schema,
        },
        "required": ["type", "id", "geometry", "properties"],
        "additionalProperties": False,
    }


def _collection_schema(view: type[Any]) -> dict[str, Any]:
    schema = _object_schema(view)
    schema["properties"] = {"type": {"const": "FeatureCollection"}, **schema["properties"]}
    schema["required"] = ["type", *schema["required"]]
    return schema


def _claimed_schema(view: type[Any]) -> dict[str, Any]:
    schema = _object_schema(view)
    schema["properties"]["tasks"]["items"] = {"$ref": "#/$defs/TaskMessage"}
    return schema


# The `to_dict()` of the first is GeoJSON; the last has messages, which are no views.
_SPECIAL: Final = {
    "FootprintView": _feature_schema,
    "FootprintsView": _collection_schema,
    "ClaimedTasksView": _claimed_schema,
}
