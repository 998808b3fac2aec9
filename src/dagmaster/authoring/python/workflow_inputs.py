"""Inputs of a workflow from the parameters of its function: the annotation is the schema."""

from __future__ import annotations

import inspect
import typing
from typing import TYPE_CHECKING, Annotated, Any, Final

from annotated_types import BaseMetadata
from pydantic import AfterValidator, BeforeValidator, PlainValidator, TypeAdapter, WrapValidator
from pydantic.errors import PydanticInvalidForJsonSchema, PydanticSchemaGenerationError, PydanticUserError
from pydantic.fields import FieldInfo
from pydantic.json_schema import GenerateJsonSchema
from pydantic_core import PydanticSerializationError, SchemaError, core_schema, to_jsonable_python

from dagmaster.authoring.input_schema import CONSTRAINT_FORMATS, CONSTRAINTS, TEXT_FORMATS
from dagmaster.authoring.python.futures import Future, InputOrigin
from dagmaster.authoring.python.places import place_of_input, reject
from dagmaster.errors import InputsInvalid, Problem
from dagmaster.sdk.type_hints import Unresolved, alternatives, resolve_annotations

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Mapping

    from pydantic.json_schema import JsonSchemaValue
    from pydantic_core.core_schema import WithDefaultSchema

    from dagmaster.errors import WorkflowInvalid

_KEYS: Final = ("pattern", "minimum", "maximum", "items", "properties", "description")
_CONDITIONS: Final = ("allOf", "anyOf", "oneOf", "not", "if", "dependentSchemas", "unevaluatedProperties")
"""Keywords of JSON Schema that an input cannot have, except inside of a model or a list."""
_ANY_TEXT: Final = frozenset({"path", "file-path", "directory-path", "binary", "password"})
"""Formats that every text has."""
_VALIDATORS: Final = (BaseMetadata, AfterValidator, BeforeValidator, PlainValidator, WrapValidator)
_LOOSE: Final = frozenset({"strict", "allow_inf_nan"})
"""Limits that every input has: values are JSON of the type itself."""
_TYPES: Final = frozenset({"string", "integer", "number", "boolean", "array", "object"})


def read_inputs(
    function: Callable[..., Any], local_names: Mapping[str, Any]
) -> tuple[dict[str, dict[str, Any]], dict[str, Future[Any]]]:
    """Return the inputs as in YAML, and the future that stands for each of them."""
    hints = resolve_annotations(function, local_names)
    inputs: dict[str, dict[str, Any]] = {}
    futures: dict[str, Future[Any]] = {}
    for parameter in inspect.signature(function).parameters.values():
        name = parameter.name
        if parameter.kind in (parameter.VAR_POSITIONAL, parameter.VAR_KEYWORD, parameter.POSITIONAL_ONLY):
            raise _reject(
                function, name, "cannot be an input: inputs have names", "write each input as a parameter"
            )
        if name not in hints:
            raise _reject(
                function, name, "has no annotation: an input has a type", f"for example {name}: str"
            )
        annotation = hints[name]
        if isinstance(annotation, Unresolved):
            raise _reject(
                function,
                name,
                f"has the annotation `{annotation.text}`, which cannot be read ({annotation.reason})",
                "import its names at the top of the module, outside of `if TYPE_CHECKING`",
            )
        definition, is_optional = _definition(function, name, annotation)
        future: Future[Any] = Future(InputOrigin(name))
        if parameter.default is not parameter.empty and parameter.default is not None:
            definition["default"] = _default(function, name, parameter.default)
        elif is_optional or parameter.default is None:
            # An input has a value or is absent; null is what the absent one is here.
            future = future.default(None)
        else:
            definition["required"] = True
        inputs[name] = definition
        futures[name] = future
    return inputs, futures


def to_inputs(values: Mapping[str, Any]) -> dict[str, Any]:
    """Return the inputs of a job as JSON: dates, models and enums are written as tasks read them.

    None: absent.
    """
    inputs: dict[str, Any] = {}
    for name, value in values.items():
        if value is None:
            continue
        try:
            inputs[name] = to_jsonable_python(value)
        except PydanticSerializationError:
            message = f"a value of type {type(value).__name__} is not JSON"
            raise InputsInvalid([Problem(message=message, path=name)]) from None
        except ValueError as error:
            message = f"the value is nested too deep, or contains itself ({error})"
            raise InputsInvalid([Problem(message=message, path=name)]) from None
    return inputs


class _InputSchema(GenerateJsonSchema):
    """Writes `default_factory=list` and `=dict` as a default: jobs get it.

    What other functions return may differ.
    """

    def default_schema(self, schema: WithDefaultSchema) -> JsonSchemaValue:
        factory = schema.get("default_factory")
        if factory in (list, dict):
            schema = core_schema.with_default_schema(schema["schema"], default=factory())
        return super().default_schema(schema)


def _definition(function: Callable[..., Any], name: str, annotation: Any) -> tuple[dict[str, Any], bool]:
    """Return an input as in YAML, and whether None is one of its values."""
    annotation = _without_future(annotation)
    is_optional = type(None) in alternatives(annotation)
    schema, lost = _read_type(function, name, annotation)
    if is_optional:
        schema = _without_null(schema)
    enum = schema.get("enum") or ([schema["const"]] if "const" in schema else None)
    text_format = schema.get("format")
    kind = text_format if text_format in TEXT_FORMATS else schema.get("type") or _type_of(enum)
    if kind not in _TYPES and kind not in TEXT_FORMATS:
        hint = (
            "an input is text, a number, true or false, a list, a mapping or a model; decide between types"
            " in a task"
        )
        raise _reject(function, name, f"has the type `{_name_of(annotation)}`, which is no input", hint)
    lost = lost or _unchecked_limit(schema)
    if lost is not None:
        raise _reject(
            function, name, f"has the limit {lost}, which is not checked of an input", "check it in a task"
        )
    optional_keys = {
        "enum": enum,
        "constraints": _constraints(schema),
        "secret": bool(schema.get("writeOnly")),
    }
    definition = {} if kind == "string" else {"type": kind}
    definition |= {key: schema[key] for key in _KEYS if key in schema}
    return definition | {key: value for key, value in optional_keys.items() if value}, is_optional


def _read_type(function: Callable[..., Any], name: str, annotation: Any) -> tuple[dict[str, Any], str | None]:
    """Return the JSON Schema of an annotation, and a limit of it that the schema does not have."""
    try:
        schema = TypeAdapter(annotation).json_schema(schema_generator=_InputSchema)
        lost = next(_lost_limits(annotation), None)
    except SchemaError as error:
        # pydantic compiles patterns by a linear engine, and says in its last line what is wrong.
        reason = str(error).strip().rpartition("\n")[2].removeprefix("error: ")
        raise _reject(function, name, f"has a type that is no input: {reason}", "") from None
    except (PydanticSchemaGenerationError, PydanticInvalidForJsonSchema, PydanticUserError) as error:
        reason = str(error).partition("\n")[0]
        raise _reject(function, name, f"has a type that is no input: {reason}", "") from None
    inlined: dict[str, Any] = _inlined(function, name, schema, schema.pop("$defs", {}), ())
    return inlined, lost


def _without_null(schema: dict[str, Any]) -> dict[str, Any]:
    """Return the schema of an optional value without null, if one other choice is left."""
    others = [choice for choice in schema.get("anyOf", ()) if choice != {"type": "null"}]
    if len(others) != 1:
        return schema
    rest = {key: part for key, part in schema.items() if key != "anyOf"}
    return {**rest, **others[0]}


def _constraints(schema: Mapping[str, Any]) -> dict[str, Any]:
    constraints = {key: schema[key] for key in CONSTRAINTS if key in schema}
    if schema.get("additionalProperties") is True:
        # Every dict has it, and every value fits.
        del constraints["additionalProperties"]
    if schema.get("format") not in CONSTRAINT_FORMATS:
        constraints.pop("format", None)
    return constraints


def _lost_limits(annotation: Any) -> Iterator[str]:
    """Yield the limits of an annotation that its JSON Schema does not have, such as the limits of a date."""
    if typing.get_origin(annotation) is not Annotated:
        return
    base, *metadata = typing.get_args(annotation)
    plain = TypeAdapter(base).json_schema()
    for item in metadata:
        for limit in item.metadata if isinstance(item, FieldInfo) else [item]:
            is_limit = isinstance(limit, _VALIDATORS) and not set(getattr(limit, "__dict__", ())) & _LOOSE
            if is_limit and TypeAdapter(Annotated[base, limit]).json_schema() == plain:
                yield repr(limit)


def _unchecked_limit(schema: Mapping[str, Any]) -> str | None:
    """Return a condition, or the format of a text, that nothing checks."""
    for key in _CONDITIONS:
        if key in schema:
            return key
    is_known = schema.get("format") in {None, *TEXT_FORMATS, *CONSTRAINT_FORMATS, *_ANY_TEXT}
    return None if is_known else f"format={schema['format']!r}"


def _without_future(annotation: Any) -> Any:
    """Return the type of the value: an input may be annotated as the future that it is in the function."""
    if typing.get_origin(annotation) is Future:
        return typing.get_args(annotation)[0]
    return annotation


def _inlined(
    function: Callable[..., Any],
    name: str,
    schema: Any,
    definitions: Mapping[str, Any],
    inside: tuple[str, ...],
) -> Any:
    """Return a JSON Schema without references and titles."""
    if isinstance(schema, list):
        return [_inlined(function, name, item, definitions, inside) for item in schema]
    if not isinstance(schema, dict):
        return schema
    reference = schema.get("$ref")
    if isinstance(reference, str):
        key = reference.rpartition("/")[2]
        if key in inside:
            raise _reject(function, name, f"has the type {key}, which contains itself", "make it a dict")
        rest = {word: item for word, item in schema.items() if word != "$ref"}
        return _inlined(function, name, {**definitions[key], **rest}, definitions, (*inside, key))
    return {
        key: {word: _inlined(function, name, part, definitions, inside) for word, part in item.items()}
        if key == "properties"
        else _inlined(function, name, item, definitions, inside)
        for key, item in schema.items()
        if key not in ("title", "discriminator")
    }


def _type_of(enum: list[Any] | None) -> str | None:
    """Return the type of the values of an enum, if they have one."""
    kinds = {type(value) for value in enum or ()}
    names = {str: "string", int: "integer", float: "number", bool: "boolean"}
    return names.get(kinds.pop()) if len(kinds) == 1 else None


def _default(function: Callable[..., Any], name: str, value: Any) -> Any:
    try:
        return to_jsonable_python(value)
    except PydanticSerializationError:
        raise _reject(
            function, name, f"has a default of type {type(value).__name__}, which is not JSON", ""
        ) from None


def _name_of(annotation: Any) -> str:
    return getattr(annotation, "__name__", None) if isinstance(annotation, type) else str(annotation)  # type: ignore[return-value]


def _reject(function: Callable[..., Any], name: str, problem: str, hint: str) -> WorkflowInvalid:
    return reject(
        f"parameter {name!r} of {function.__name__}() {problem}", hint, place=place_of_input(function, name)
    )
