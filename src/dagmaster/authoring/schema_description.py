"""What a handler takes and gives, in words: its JSON Schema, told field by field.

For a terminal and for the reference pages: both say the same.
"""

from __future__ import annotations

import json
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final

if TYPE_CHECKING:
    from collections.abc import Mapping

REQUIRED: Final = "required"


@dataclass(frozen=True, slots=True, kw_only=True)
class FieldWords:
    """One field. `kind` is its type, or the values it may have; `limits` its range; `default` may be `required`."""

    name: str
    kind: str
    limits: str = ""
    default: str = ""
    description: str = ""


def field_words(schema: Mapping[str, Any]) -> list[FieldWords]:
    """The fields of an object, in order."""
    required = set(schema.get("required", ()))
    return [
        FieldWords(
            name=name,
            kind=" or ".join(dict.fromkeys(_kind(one, schema) for one in _choices(field, schema))),
            limits=", ".join(dict.fromkeys(filter(None, (_limits(one) for one in (field, *_choices(field, schema)))))),
            default=REQUIRED if name in required else _default(field),
            description=str(field.get("description", "")),
        )
        for name, field in schema.get("properties", {}).items()
    ]


def wants_text(schema: Mapping[str, Any], name: str) -> bool:
    """Whether a field takes text alone, or nothing."""
    field = schema.get("properties", {}).get(name)
    return field is not None and all(_is_text(one) for one in _choices(field, schema))


def _is_text(field: Mapping[str, Any]) -> bool:
    values = field.get("enum", [field["const"]] if "const" in field else None)
    return field.get("type") == "string" if values is None else all(isinstance(one, str) for one in values)


def _choices(field: Mapping[str, Any], schema: Mapping[str, Any]) -> list[Mapping[str, Any]]:
    """What it may be, each. Null is how an optional field is left out, and not told."""
    said = [_looked_up(one, schema) for one in field.get("anyOf", [field])]
    return [one for one in said if one.get("type") != "null"] or said


def _looked_up(field: Mapping[str, Any], schema: Mapping[str, Any]) -> Mapping[str, Any]:
    name = str(field.get("$ref", "")).removeprefix("#/$defs/")
    found: Mapping[str, Any] = schema.get("$defs", {}).get(name, field)
    return found


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


def _limits(field: Mapping[str, Any]) -> str:
    """Between what it lies. A length is told where it says something: not that a text is not empty."""
    least, most = field.get("minimum", field.get("ge")), field.get("maximum", field.get("le"))
    above, below = field.get("exclusiveMinimum"), field.get("exclusiveMaximum")
    said = []
    if least is not None and most is not None:
        said.append(f"{_value(least)} to {_value(most)}")
    else:
        said += [f"at least {_value(least)}"] if least is not None else []
        said += [f"above {_value(above)}"] if above is not None else []
        said += [f"at most {_value(most)}"] if most is not None else []
    said += [f"below {_value(below)}"] if below is not None else []
    said += [f"a multiple of {_value(field['multipleOf'])}"] if "multipleOf" in field else []
    said += [f"at most {field['maxLength']:,} letters"] if "maxLength" in field else []
    said += [f"as {field['pattern']}"] if "pattern" in field else []
    fewest, greatest = field.get("minItems"), field.get("maxItems")
    if fewest is not None and fewest == greatest:
        said.append(f"{fewest} of them")
    else:
        said += [f"at least {fewest}"] if fewest else []
        said += [f"at most {greatest:,}"] if greatest is not None else []
    return ", ".join(said)


def _default(field: Mapping[str, Any]) -> str:
    value = field.get("default")
    return "" if value in (None, "", [], {}) else _value(value)


def _value(value: Any) -> str:
    return value if isinstance(value, str) else json.dumps(value, ensure_ascii=False)
