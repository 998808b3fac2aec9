"""A model from a JSON Schema: params are checked, and mistakes described, as with the handler's model.

The schema may come from anyone. What is not understood is not checked: a wrong problem is worse than none. So
are its patterns, which `patterns` matches: pydantic's engine is also linear, but compiles for seconds.
"""

from __future__ import annotations

from contextlib import suppress
from functools import partial
from typing import TYPE_CHECKING, Annotated, Any, Final, Literal, Union

from pydantic import AfterValidator, BaseModel, ConfigDict, Field, create_model
from pydantic_core import PydanticKnownError

from dagmaster.patterns import PatternRefused, compile_pattern

if TYPE_CHECKING:
    from collections.abc import Mapping

MAX_DEPTH: Final = 12
MAX_PARTS: Final = 2_000
"""How many parts of a schema are read: definitions may refer to each other."""
_SCALARS: Final[dict[str, Any]] = {
    "string": str,
    "integer": int,
    "number": float,
    "boolean": bool,
    "null": None,
}
_LIMITS: Final[dict[str, dict[str, str]]] = {
    "string": {"minLength": "min_length", "maxLength": "max_length"},
    "integer": {"minimum": "ge", "exclusiveMinimum": "gt", "maximum": "le", "exclusiveMaximum": "lt"},
    "array": {"minItems": "min_length", "maxItems": "max_length"},
}
_LIMITS["number"] = _LIMITS["integer"]


def model_from_schema(schema: Mapping[str, Any]) -> type[BaseModel] | None:
    """Return a model of an object; None if the schema is of another type, or cannot be used."""
    try:
        return _Reader(schema).model(schema, "Params", extra="allow")
    except Exception:  # noqa: BLE001 - pydantic rejects a type in many ways; then nothing is checked
        return None


class _Reader:
    """Reads one schema with its definitions."""

    def __init__(self, root: Mapping[str, Any]) -> None:
        definitions = root.get("$defs")
        self._definitions: Mapping[str, Any] = definitions if isinstance(definitions, dict) else {}
        self._parts = 0

    def model(
        self, schema: Mapping[str, Any], name: str, *, extra: Literal["allow", "forbid"], depth: int = 0
    ) -> type[BaseModel] | None:
        properties = schema.get("properties")
        if not isinstance(properties, dict):
            return None
        required = schema.get("required") or ()
        fields: dict[str, Any] = {}
        for number, (key, part) in enumerate(properties.items()):
            # Under another name: `json` and `schema` are good names of params, and methods of every model.
            fields[f"field_{number}"] = (
                Annotated[self.type_of(part, depth + 1), Field(alias=key)],
                ... if key in required else None,
            )
        return create_model(name, __config__=ConfigDict(extra=extra), **fields)

    def type_of(self, schema: Any, depth: int) -> Any:
        self._parts += 1
        if not isinstance(schema, dict) or depth > MAX_DEPTH or self._parts > MAX_PARTS:
            return Any
        if "$ref" in schema:
            name = str(schema["$ref"]).removeprefix("#/$defs/")
            return self.type_of(self._definitions.get(name), depth + 1)
        if "enum" in schema or "const" in schema:
            return _literal(schema.get("enum", [schema.get("const")]))
        if "allOf" in schema:
            match schema["allOf"]:
                case [part]:
                    return self.type_of(part, depth + 1)
            return Any
        options, kind = schema.get("anyOf", schema.get("oneOf")), schema.get("type")
        if isinstance(options, list) and options:
            return self._union(options, depth)
        if isinstance(kind, list) and kind:
            return self._union([{**schema, "type": one} for one in kind], depth)
        return self._plain(kind, schema, depth)

    def _union(self, options: list[Any], depth: int) -> Any:
        types = tuple(self.type_of(option, depth + 1) for option in options)
        return Union[types]  # noqa: UP007 - made of a tuple

    def _plain(self, kind: Any, schema: Mapping[str, Any], depth: int) -> Any:
        if kind == "string" and "format" in schema:
            # A date, a path, a URL: pydantic reads more spellings of them than a schema says.
            return Any
        if kind == "object":
            return self._object(schema, depth)
        if kind == "array":
            # A schema does not say whether the handler takes a list, a tuple or a set.
            items = Any if "prefixItems" in schema else self.type_of(schema.get("items"), depth + 1)
            return _limited(list.__class_getitem__(items), kind, schema)
        return _limited(_SCALARS[kind], kind, schema) if kind in _SCALARS else Any

    def _object(self, schema: Mapping[str, Any], depth: int) -> Any:
        is_closed = schema.get("additionalProperties") is False
        model = self.model(schema, "Part", extra="forbid" if is_closed else "allow", depth=depth)
        if model is not None:
            return model
        values = schema.get("additionalProperties")
        return dict.__class_getitem__(
            (str, self.type_of(values, depth + 1) if isinstance(values, dict) else Any)
        )


def _literal(values: Any) -> Any:
    is_plain = (
        isinstance(values, list)
        and values
        and all(type(value) in (str, int, bool, type(None)) for value in values)
    )
    return Literal[tuple(values)] if is_plain else Any


def _limited(base: Any, kind: str, schema: Mapping[str, Any]) -> Any:
    limits = {name: schema[key] for key, name in _LIMITS.get(kind, {}).items() if key in schema}
    limited = Annotated[base, Field(**limits)] if limits else base
    if kind == "string" and isinstance(schema.get("pattern"), str):
        return Annotated[limited, AfterValidator(partial(_check_pattern, pattern=schema["pattern"]))]
    return limited


def _check_pattern(text: str, *, pattern: str) -> str:
    """Match a text as the handler's model does, where its regular expressions and ours mean the same."""
    with suppress(PatternRefused):
        # Beyond ASCII they differ in what a digit, a letter and a word are.
        if pattern.isascii() and text.isascii():
            compiled = compile_pattern(pattern)
            if compiled.fits(text) and not compiled.search(text):
                raise PydanticKnownError("string_pattern_mismatch", {"pattern": pattern})
    return text
