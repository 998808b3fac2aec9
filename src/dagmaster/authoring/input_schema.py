"""The JSON Schema of workflow inputs. It imports no validator: readers show it."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    from collections.abc import Mapping

    from dagmaster.json_types import JsonObject, JsonValue


TEXT_FORMATS: Final = frozenset({"uri", "date", "date-time"})
"""Types of inputs that are text in a format."""


def inputs_schema(inputs: Mapping[str, Mapping[str, JsonValue]]) -> JsonObject:
    """Return the JSON Schema of all inputs, for forms, the API and validation."""
    return {
        "type": "object",
        "properties": {name: input_schema(definition) for name, definition in inputs.items()},
        "required": [
            name for name, definition in inputs.items() if definition.get("required") and "default" not in definition
        ],
        "additionalProperties": False,
    }


def input_schema(definition: Mapping[str, JsonValue]) -> JsonObject:
    """Return the JSON Schema of one input."""
    kind = definition.get("type", "string")
    schema: JsonObject = {"type": "string", "format": kind} if kind in TEXT_FORMATS else {"type": kind}
    for key in ("default", "enum", "pattern", "minimum", "maximum", "items", "properties", "description"):
        if definition.get(key) not in (None, ""):
            schema[key] = definition[key]
    if definition.get("secret"):
        schema["writeOnly"] = True
    return schema
