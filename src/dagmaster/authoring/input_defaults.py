"""Defaults inside of inputs: what an object leaves out has the `default` of its JSON Schema, at any depth."""

from __future__ import annotations

import copy
from typing import TYPE_CHECKING, Any, Final

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from dagmaster.json_types import JsonValue

_INNER: Final = ("items", "prefixItems", "additionalProperties", "anyOf")
"""Keywords that have the schemas of parts of a value, besides `properties`."""


def has_defaults(schema: Any) -> bool:
    """Return whether a schema has a default for a key of an object."""
    if isinstance(schema, list):
        return any(map(has_defaults, schema))
    if not isinstance(schema, dict):
        return False
    properties = schema.get("properties")
    keys = list(properties.values()) if isinstance(properties, dict) else []
    return any(isinstance(one, dict) and "default" in one for one in keys) or any(
        has_defaults(part) for part in [*keys, *(schema.get(key) for key in _INNER)]
    )


def fill_defaults(value: Any, schema: Any, fits: Callable[[Any, Any], bool]) -> JsonValue:
    """Return a copy of a value with the defaults of its schema for the keys that it leaves out.

    A default that does not fit its own schema (`fits(default, schema)`) stays out: pydantic does not check
    it, either.
    """
    if not isinstance(schema, dict):
        return value  # type: ignore[no-any-return]
    if isinstance(value, dict):
        return _fill_object(value, _choose(schema, "object"), fits)
    if isinstance(value, list):
        chosen = _choose(schema, "array")
        first = chosen.get("prefixItems", [])
        schemas = [*first, *[chosen.get("items")] * (len(value) - len(first))]
        return [fill_defaults(item, inner, fits) for item, inner in zip(value, schemas, strict=False)]
    return value  # type: ignore[no-any-return]


def _fill_object(
    value: dict[str, Any], schema: Mapping[str, Any], fits: Callable[[Any, Any], bool]
) -> dict[str, JsonValue]:
    properties = schema.get("properties", {})
    others = schema.get("additionalProperties")
    filled = {key: fill_defaults(item, properties.get(key, others), fits) for key, item in value.items()}
    for key, inner in properties.items():
        if (
            key not in value
            and isinstance(inner, dict)
            and "default" in inner
            and fits(inner["default"], inner)
        ):
            filled[key] = fill_defaults(copy.deepcopy(inner["default"]), inner, fits)
    return filled


def _choose(schema: dict[str, Any], kind: str) -> Mapping[str, Any]:
    """Return the schema of a value of this type: of alternatives the only one, as in `Area | None`."""
    choices = [one for one in schema.get("anyOf", ()) if isinstance(one, dict) and one.get("type") == kind]
    return choices[0] if len(choices) == 1 else schema
