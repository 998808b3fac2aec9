"""Workflow inputs: their validation."""

from __future__ import annotations

import contextlib
import json
import math
import re
from collections import Counter
from dataclasses import replace
from functools import lru_cache
from typing import TYPE_CHECKING, Any, Final

from jsonschema import Draft202012Validator
from jsonschema.exceptions import SchemaError

from dagmaster.authoring.input_defaults import fill_defaults, has_defaults
from dagmaster.authoring.input_schema import (
    CONSTRAINT_FORMATS,
    CONSTRAINTS,
    TEXT_FORMATS,
    input_schema,
    inputs_schema,
)
from dagmaster.authoring.input_validator import input_validator
from dagmaster.authoring.regex_safety import MAX_PATTERN_TEXT, longest_text
from dagmaster.authoring.source_document import document_from_data, entries
from dagmaster.authoring.validation_messages import MAX_PROBLEMS
from dagmaster.errors import InputsInvalid, Problem, WorkflowInvalid
from dagmaster.errors.source_map import format_path, truncate
from dagmaster.errors.suggestions import did_you_mean

if TYPE_CHECKING:
    from collections.abc import Mapping
    from collections.abc import Set as AbstractSet

    from dagmaster.authoring.schema import InputModel
    from dagmaster.authoring.source_document import Document, Path
    from dagmaster.engine.graph import Graph
    from dagmaster.json_types import JsonObject, JsonValue

_NUMBERS: Final = frozenset({"integer", "number"})
_GO_WITH: Final[dict[str, frozenset[str]]] = {
    "pattern": frozenset({"string", *TEXT_FORMATS}),
    "minimum": _NUMBERS,
    "maximum": _NUMBERS,
    "items": frozenset({"array"}),
    "properties": frozenset({"object"}),
}
_REFERENCES: Final = frozenset({"$ref", "$dynamicRef", "$recursiveRef", "$id", "$schema"})
_TYPES: Final = {
    "string": "text",
    "integer": "a whole number",
    "number": "a number",
    "boolean": "true or false",
    "array": "a list",
    "object": "a mapping",
    "null": "null",
    "uri": "a URI (scheme://…)",
    "date": "a date, as 2026-01-31",
    "date-time": "a date-time with its zone, as 2026-01-31T06:00:00Z",
}


def accept_inputs(graph: Graph, values: Mapping[str, JsonValue]) -> JsonObject:
    """Return the inputs of a job with all defaults applied; raise `InputsInvalid` with every problem."""
    if not values and not graph.inputs:
        return {}
    try:
        document_from_data(dict(values))
    except WorkflowInvalid as invalid:
        raise InputsInvalid([replace(problem, file="") for problem in invalid.problems]) from None
    inputs = _with_defaults(values, graph.inputs)
    problems = input_problems(graph.inputs, inputs)
    if problems:
        raise InputsInvalid(problems)
    return {name: _with_inner_defaults(value, graph.inputs[name]) for name, value in inputs.items()}


def input_problems(
    definitions: Mapping[str, Mapping[str, JsonValue]], values: Mapping[str, JsonValue]
) -> list[Problem]:
    """Return what is wrong with the inputs of a job: unknown names, missing values, wrong values."""
    problems = [
        Problem(message=f"unknown input {name!r}", path=name, hint=did_you_mean(name, definitions))
        for name in values
        if name not in definitions
    ]
    known = _with_defaults(
        {name: value for name, value in values.items() if name in definitions}, definitions
    )
    for error in _validator(json.dumps(inputs_schema(definitions))).iter_errors(known):
        problems += _describe_errors(error, definitions)
    return list(dict.fromkeys(problems))


def _with_defaults(
    values: Mapping[str, JsonValue], definitions: Mapping[str, Mapping[str, JsonValue]]
) -> dict[str, JsonValue]:
    defaults = {
        name: definition["default"] for name, definition in definitions.items() if "default" in definition
    }
    return {**defaults, **values}


def _with_inner_defaults(value: Any, definition: Mapping[str, Any]) -> JsonValue:
    schema = input_schema(definition) if isinstance(value, dict | list) else {}
    return fill_defaults(value, schema, _fits) if has_defaults(schema) else value


def _fits(value: Any, schema: Any) -> bool:
    return bool(input_validator(schema).is_valid(value))


def parse_input(graph: Graph, name: str, text: str) -> Any:
    """Parse an input from a command line by its type: JSON unless it is text."""
    return parse_input_text(str(graph.inputs.get(name, {}).get("type", "string")), text)


def parse_input_text(kind: str, text: str) -> Any:
    """Parse the text of an input of a type: JSON unless it is text.

    What is not JSON stays text, and does not fit.
    """
    if kind == "string" or kind in TEXT_FORMATS:
        return text
    try:
        return read_json(text)
    except (ValueError, RecursionError):
        return text


def read_json(text: str) -> JsonValue:
    """Parse JSON strictly; raise ValueError for NaN, overflowing numbers (1e999) and duplicate keys."""
    value: JsonValue = json.loads(
        text, parse_float=_parse_float, parse_constant=_reject_constant, object_pairs_hook=_reject_duplicates
    )
    return value


def check_inputs(
    document: Document,
    inputs: Mapping[str, InputModel],
    wrong: AbstractSet[str] = frozenset(),
    *,
    is_stored: bool = False,
) -> list[Problem]:
    """Check input definitions and their defaults. Those in `wrong` are reported already.

    `is_stored`: not the defaults, which were valid when the definition was published.
    """
    problems: list[Problem] = []
    for name, model in inputs.items():
        path: Path = ("inputs", name)
        if not re.fullmatch(r"[A-Za-z_][A-Za-z0-9_]*", name):
            message = "an input's name is made of letters, digits and _, and starts with no digit"
            problems.append(document.problem(message, path, at_key=True))
        elif name not in wrong and len(problems) <= MAX_PROBLEMS:
            problems += _check_keys(document, model, path) or (
                [] if is_stored else _check_values(document, model, path)
            )
    return problems


def _check_keys(document: Document, model: InputModel, path: Path) -> list[Problem]:
    """Check that the keys of an input go together, and make a JSON Schema."""
    problems: list[Problem] = []
    for key, kinds in _GO_WITH.items():
        if getattr(model, key) is not None and model.type not in kinds:
            message = f"{key} goes with type {' or '.join(sorted(kinds))}, not with {model.type}"
            problems.append(document.problem(message, (*path, key), at_key=True))
    if model.pattern is not None:
        problems += _check_pattern(document, model.pattern, (*path, "pattern"))
    if model.minimum is not None and model.maximum is not None and model.minimum > model.maximum:
        problems.append(document.problem("minimum is more than maximum: no number fits", (*path, "minimum")))
    problems += _check_constraints(document, model, (*path, "constraints"))
    # Only these contain user-written JSON Schema; checking every input took a third of the compile time.
    written = {key: getattr(model, key) for key in ("items", "properties", "constraints")}
    for key, value in written.items():
        problems += _check_written(document, value, path, key)
    if problems or all(value is None for value in written.values()):
        return problems
    return _check_schema(document, model, path)


def _check_written(document: Document, value: JsonValue, path: Path, key: str) -> list[Problem]:
    """Check the patterns and references in JSON Schema that a user wrote."""
    problems: list[Problem] = []
    for place, pattern, longest in _patterns_in(value):
        # An invalid pattern is reported later, as a schema error.
        with contextlib.suppress(re.error, OverflowError, RecursionError):
            re.compile(pattern)
            problems += _check_pattern(document, pattern, (*path, key, *place), longest)
    for place in _references_in(value):
        message = f"{format_path((key, *place))}: references are not allowed in this schema"
        problems.append(document.problem(message, (*path, key)))
    return problems


def _check_schema(document: Document, model: InputModel, path: Path) -> list[Problem]:
    schema = input_schema(model.model_dump(exclude_unset=True, exclude={"default", "enum"}))
    try:
        Draft202012Validator.check_schema(schema)
    except SchemaError as error:
        # The best match of many errors is deep inside; its path locates it in the file.
        inside = tuple(error.absolute_path)
        if inside and inside[0] in CONSTRAINTS:
            inside = ("constraints", *inside)
        message = f"not a JSON Schema: {truncate(error.message, 200)}"
        return [document.problem(message, (*path, *inside))]
    return []


def _check_constraints(document: Document, model: InputModel, path: Path) -> list[Problem]:
    problems: list[Problem] = []
    for key, value in (model.constraints or {}).items():
        kinds = CONSTRAINTS.get(key)
        if kinds is None:
            hint = did_you_mean(key, CONSTRAINTS)
            problems.append(
                document.problem(
                    f"{key!r} is not a constraint of inputs", (*path, key), at_key=True, hint=hint
                )
            )
        elif model.type not in kinds:
            message = f"{key} goes with type {' or '.join(sorted(kinds))}, not with {model.type}"
            problems.append(document.problem(message, (*path, key), at_key=True))
        elif key == "format" and value not in sorted(CONSTRAINT_FORMATS):
            message = (
                f"format is one of {', '.join(sorted(CONSTRAINT_FORMATS))}; uri, date and date-time are types"
            )
            problems.append(document.problem(message, (*path, key)))
    return problems


def _check_pattern(document: Document, pattern: str, path: Path, longest: int = 1) -> list[Problem]:
    """Check that a pattern is valid and that matching is bounded."""
    try:
        if longest_text(pattern) >= longest:
            return []
    except (re.error, OverflowError, RecursionError) as error:
        return [document.problem(f"pattern is not a regular expression: {error}", path)]
    message = "matching this pattern may never end: do not repeat a repetition or an alternation"
    hint = "put a separator between the repetitions, as in ^[a-z]+(-[a-z]+)*$"
    return [document.problem(message, path, hint=hint)]


def _patterns_in(schema: JsonValue, place: Path = ()) -> list[tuple[Path, str, int]]:
    """Return the patterns in a schema, and the text length that each must handle: keys are unbounded."""
    patterns: list[tuple[Path, str, int]] = []
    for key, inner in entries(schema):
        if key == "pattern" and isinstance(inner, str):
            patterns.append(((*place, key), inner, 1))
        elif key == "patternProperties" and isinstance(inner, dict):
            patterns += [((*place, key, pattern), pattern, MAX_PATTERN_TEXT) for pattern in inner]
        patterns += _patterns_in(inner, (*place, key))
    return patterns


def _check_values(document: Document, model: InputModel, path: Path) -> list[Problem]:
    """Check that the default and each enum value fit."""
    problems: list[Problem] = []
    definition = model.model_dump(exclude_unset=True)
    if model.enum is not None:
        alone = input_validator(input_schema({**definition, "enum": None}))
        for index, value in enumerate(model.enum):
            reasons = [_describe_mismatch(error) for error in alone.iter_errors(value)]
            problems += [document.problem(f"enum: {reason}", (*path, "enum", index)) for reason in reasons]
    if "default" in model.model_fields_set:
        validator = input_validator(input_schema(definition))
        reasons = [_describe_mismatch(error) for error in validator.iter_errors(model.default)]
        hint = (
            "leave it out, and write `| default(…)` where the input is used" if model.default is None else ""
        )
        problems += [
            document.problem(f"the default does not fit: {reason}", (*path, "default"), hint=hint)
            for reason in reasons
        ]
    return problems


def _references_in(schema: JsonValue, place: Path = ()) -> list[Path]:
    """Return the paths of `$ref` and similar keys: they could point anywhere, or at themselves."""
    references: list[Path] = []
    for key, inner in entries(schema):
        if key in _REFERENCES and isinstance(inner, str):
            references.append((*place, key))
        references += _references_in(inner, (*place, key))
    return references


@lru_cache(maxsize=64)
def _validator(schema: str) -> Any:
    return input_validator(json.loads(schema))


def _describe_errors(error: Any, definitions: Mapping[str, Mapping[str, Any]]) -> list[Problem]:
    """Describe what does not fit, without the values of secrets."""
    place = tuple(error.absolute_path)
    if error.validator == "required":
        missing = [name for name in error.validator_value if name not in error.instance]
        return [_missing(name, place, definitions) for name in missing]
    if place and definitions[place[0]].get("secret"):
        return [Problem(message=f"the value does not fit ({error.validator})", path=format_path(place))]
    return [
        Problem(message=_describe_mismatch(error), path=format_path(place), text=_text_of(error.instance))
    ]


def _missing(name: str, place: Path, definitions: Mapping[str, Mapping[str, Any]]) -> Problem:
    if place:
        return Problem(message=f"missing key {name!r}", path=format_path(place))
    description = definitions[name].get("description", "")
    return Problem(
        message=f"missing input {name!r}" + (f" ({description})" if description else ""), path=name
    )


def _describe_mismatch(error: Any) -> str:
    """Describe a JSON Schema error in plain words."""
    expected, value = error.validator_value, _text_of(error.instance) or "a mapping"
    match error.validator:
        case "type":
            return f"{value} is not {_expected_types(expected, error.schema.get('format'))}"
        case "format":
            return f"{value} is not {_TYPES.get(str(expected), str(expected))}"
        case "enum":
            choices = ", ".join(_text_of(name) or "{…}" for name in expected)
            return f"{value} is not one of {truncate(choices, 200)}"
        case "pattern" if len(error.instance) <= longest_text(expected):
            return f"{value} does not match the pattern {expected}"
        case "minimum":
            return f"{value} is less than {_number(expected)}"
        case "maximum":
            return f"{value} is more than {_number(expected)}"
    return truncate(str(error.message), 300)


def _expected_types(expected: Any, text_format: Any) -> str:
    named = expected if isinstance(expected, list) else [expected]
    if text_format in _TYPES:
        # A date is text of this format.
        named = [text_format if name == "string" else name for name in named]
    return " or ".join(_TYPES.get(name, name) for name in map(str, named))


def _number(limit: float) -> float:
    return int(limit) if limit == int(limit) else limit


def _text_of(instance: Any) -> str:
    return "" if isinstance(instance, dict) else truncate(json.dumps(instance, ensure_ascii=False), 120)


def _reject_constant(name: str) -> JsonValue:
    raise ValueError(f"{name} is not JSON")


def _parse_float(text: str) -> float:
    value = float(text)
    if math.isinf(value):
        raise ValueError(f"the number {text[:50]} is too large")
    return value


def _reject_duplicates(pairs: list[tuple[str, JsonValue]]) -> JsonObject:
    mapping = dict(pairs)
    if len(mapping) < len(pairs):
        ((key, _),) = Counter(key for key, _ in pairs).most_common(1)
        raise ValueError(f"key {key[:100]!r} appears twice")
    return mapping
