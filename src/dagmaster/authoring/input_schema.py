"""The JSON Schema of workflow inputs. It imports no validator: readers show it."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    from collections.abc import Mapping

    from dagmaster.json_types import JsonObject, JsonValue


TEXT_FORMATS: Final = frozenset({"uri", "date", "date-time"})
"""Types of inputs that are text in a format."""
_TEXTS: Final = frozenset({"string", *TEXT_FORMATS})
_NUMBERS: Final = frozenset({"integer", "number"})
_ARRAY: Final = frozenset({"array"})
_OBJECT: Final = frozenset({"object"})
CONSTRAINT_FORMATS: Final = frozenset({"uuid", "time", "duration", "ipv4", "ipv6"})
"""What `format` of `constraints` may be, besides the formats that are types."""
CONSTRAINTS: Final[dict[str, frozenset[str]]] = {
    **dict.fromkeys(("minLength", "maxLength"), _TEXTS),
    "format": frozenset({"string"}),
    **dict.fromkeys(("exclusiveMinimum", "exclusiveMaximum", "multipleOf"), _NUMBERS),
    **dict.fromkeys(("minItems", "maxItems", "uniqueItems", "prefixItems"), _ARRAY),
    **dict.fromkeys(("contains", "minContains", "maxContains"), _ARRAY),
    **dict.fromkeys(("required", "additionalProperties", "minProperties", "maxProperties"), _OBJECT),
    **dict.fromkeys(("patternProperties", "propertyNames", "dependentRequired"), _OBJECT),
}
"""The keywords of JSON Schema in `constraints` of an input, with the types that they go with."""


def inputs_schema(inputs: Mapping[str, Mapping[str, JsonValue]]) -> JsonObject:
    """Return the JSON Schema of all inputs, for forms, the API and validation."""
    return {
        "type": "object",
        "properties": {name: input_schema(definition) for name, definition in inputs.items()},
        "required": [
            name
            for name, definition in inputs.items()
            if definition.get("required") and "default" not in definition
        ],
        "additionalProperties": False,
    }


def input_schema(definition: Mapping[str, JsonValue]) -> JsonObject:
    kind = definition.get("type", "string")
    schema: JsonObject = {"type": "string", "format": kind} if kind in TEXT_FORMATS else {"type": kind}
    for key in ("default", "enum", "pattern", "minimum", "maximum", "items", "properties", "description"):
        if definition.get(key) not in (None, ""):
            schema[key] = definition[key]
    constraints = definition.get("constraints")
    if isinstance(constraints, dict):
        schema |= constraints
    if definition.get("secret"):
        schema["writeOnly"] = True
    return schema
