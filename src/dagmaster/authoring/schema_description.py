"""Describe a handler's input and output: its JSON Schema, field by field.

Used by the terminal and the reference pages.
"""

from __future__ import annotations

import json
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final

if TYPE_CHECKING:
    from collections.abc import Mapping

    from dagmaster.json_types import JsonValue

REQUIRED: Final = "required"


@dataclass(frozen=True, slots=True, kw_only=True)
class FieldDescription:
    """One field.

    `kind` is its type or its allowed values; `limits` its range; `default` may be `required`.
    """

    name: str
    kind: str
    limits: str = ""
    default: str = ""
    description: str = ""


def describe_fields(schema: Mapping[str, Any]) -> list[FieldDescription]:
    required = set(schema.get("required", ()))
    return [
        FieldDescription(
            name=name,
            kind=" or ".join(dict.fromkeys(_kind(one, schema) for one in _choices(field, schema))),
            limits=", ".join(
                dict.fromkeys(filter(None, (_limits(one) for one in (field, *_choices(field, schema)))))
            ),
            default=REQUIRED if name in required else _default(field),
            description=_description(field),
        )
        for name, field in schema.get("properties", {}).items()
    ]


def _description(field: Mapping[str, Any]) -> str:
    description = str(field.get("description", ""))
    setting = field.get("setting")
    return f"{description} DAGMASTER_{setting.upper()} sets another default." if setting else description


def takes_text(schema: Mapping[str, Any], name: str) -> bool:
    """Return whether a field takes text alone, or nothing."""
    field = schema.get("properties", {}).get(name)
    return field is not None and all(_is_text(one) for one in _choices(field, schema))


def _is_text(field: Mapping[str, Any]) -> bool:
    values = field.get("enum", [field["const"]] if "const" in field else None)
    return field.get("type") == "string" if values is None else all(isinstance(one, str) for one in values)


def _choices(field: Mapping[str, Any], schema: Mapping[str, Any]) -> list[Mapping[str, Any]]:
    """Return the alternatives of a field, without null."""
    choices = [_dereference(one, schema) for one in field.get("anyOf", [field])]
    return [one for one in choices if one.get("type") != "null"] or choices


def _dereference(field: Mapping[str, Any], schema: Mapping[str, Any]) -> Mapping[str, Any]:
    name = str(field.get("$ref", "")).removeprefix("#/$defs/")
    definition: Mapping[str, JsonValue] = schema.get("$defs", {}).get(name, field)
    return definition


def _kind(field: Mapping[str, Any], schema: Mapping[str, Any]) -> str:
    if "const" in field:
        return _value(field["const"])
    if "enum" in field:
        return " | ".join(_value(one) for one in field["enum"])
    kind = str(field.get("type", "any"))
    items = field.get("items")
    if kind == "array" and isinstance(items, dict) and items:
        return f"array of {' or '.join(dict.fromkeys(_kind(one, schema) for one in _choices(items, schema)))}"
    return kind


def _limits(field: Mapping[str, JsonValue]) -> str:
    """Describe the range and length limits. A minimum length of one is left out."""
    minimum, maximum = field.get("minimum", field.get("ge")), field.get("maximum", field.get("le"))
    above, below = field.get("exclusiveMinimum"), field.get("exclusiveMaximum")
    limits = {
        "at least": minimum,
        "above": above,
        "at most": maximum,
        "below": below,
        "a multiple of": field.get("multipleOf"),
    }
    parts = []
    if minimum is not None and maximum is not None:
        parts.append(f"{_value(minimum)} to {_value(maximum)}")
        del limits["at least"], limits["above"], limits["at most"]
    parts += [f"{words} {_value(limit)}" for words, limit in limits.items() if limit is not None]
    if "maxLength" in field:
        parts.append(f"at most {field['maxLength']:,} characters")
    if "pattern" in field:
        parts.append(f"as {field['pattern']}")
    fewest, greatest = field.get("minItems"), field.get("maxItems")
    if fewest is not None and fewest == greatest:
        parts.append(f"{fewest} of them")
    elif fewest:
        parts.append(f"at least {fewest}")
    if greatest is not None and fewest != greatest:
        parts.append(f"at most {greatest:,}")
    return ", ".join(parts)


def _default(field: Mapping[str, JsonValue]) -> str:
    value = field.get("default")
    return "" if value in (None, "", [], {}) else _value(value)


def _value(value: JsonValue) -> str:
    return value if isinstance(value, str) else json.dumps(value, ensure_ascii=False)
