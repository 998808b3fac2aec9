"""Defaults inside of inputs: what an object leaves out has the `default` of its JSON Schema, at any depth."""

from __future__ import annotations

import copy
import json
from typing import TYPE_CHECKING, Any, Final

from dagmaster.authoring.input_validator import input_validator

if TYPE_CHECKING:
    from collections.abc import Mapping

    from dagmaster.authoring.check_budget import CheckBudget
    from dagmaster.json_types import JsonValue

_INNER: Final = ("items", "prefixItems", "additionalProperties", "anyOf")
"""Keywords that have the schemas of parts of a value, besides `properties`."""
_BYTES_PER_STEP: Final = 8
"""Bytes of a default that is copied in the time of a step: 2 million steps add at most 16 MB to inputs."""


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


class DefaultsFiller:
    """Fills defaults in within the budget of one check."""

    def __init__(self, budget: CheckBudget) -> None:
        self._budget = budget
        # By the identity of the schema, which lives as long as the check: the default, and its size.
        self._fitting: dict[int, bool] = {}
        self._sizes: dict[int, int] = {}

    def fill(self, value: Any, schema: Any) -> JsonValue:
        """Return a copy of a value with the defaults of its schema for the keys that it leaves out.

        A default that does not fit its own schema stays out: pydantic does not check it, either.
        """
        self._budget.spend(1)
        if isinstance(schema, dict) and isinstance(value, dict):
            return self._fill_object(value, _choose(schema, "object"))
        if isinstance(schema, dict) and isinstance(value, list):
            chosen = _choose(schema, "array")
            first = chosen.get("prefixItems", [])
            schemas = [*first, *[chosen.get("items")] * (len(value) - len(first))]
            return [self.fill(item, inner) for item, inner in zip(value, schemas, strict=False)]
        return value  # type: ignore[no-any-return]

    def _fill_object(self, value: dict[str, Any], schema: Mapping[str, Any]) -> dict[str, JsonValue]:
        properties = schema.get("properties", {})
        others = schema.get("additionalProperties")
        self._budget.spend(len(properties))
        filled = {key: self.fill(item, properties.get(key, others)) for key, item in value.items()}
        for key, inner in properties.items():
            if key not in value and isinstance(inner, dict) and "default" in inner and self._fits(inner):
                filled[key] = self.fill(self._copy(inner), inner)
        return filled

    def _fits(self, schema: dict[str, Any]) -> bool:
        if id(schema) not in self._fitting:
            self._fitting[id(schema)] = input_validator(schema, self._budget).is_valid(schema["default"])
        return self._fitting[id(schema)]

    def _copy(self, schema: dict[str, Any]) -> Any:
        """Return the default: every object of a list gets a copy, and all of them are stored."""
        default = schema["default"]
        if not isinstance(default, str | list | dict):
            return default
        if id(schema) not in self._sizes:
            self._sizes[id(schema)] = len(json.dumps(default))
        self._budget.spend(1 + self._sizes[id(schema)] // _BYTES_PER_STEP)
        return copy.deepcopy(default)


def _choose(schema: dict[str, Any], kind: str) -> Mapping[str, Any]:
    """Return the schema of a value of this type: of alternatives the only one, as in `Area | None`."""
    choices = [one for one in schema.get("anyOf", ()) if isinstance(one, dict) and one.get("type") == kind]
    return choices[0] if len(choices) == 1 else schema
