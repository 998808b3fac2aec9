"""The inputs of a workflow: their JSON Schema, and whether what was given fits."""

from __future__ import annotations

import contextlib
import json
import re
from dataclasses import replace
from datetime import datetime
from functools import lru_cache
from typing import TYPE_CHECKING, Any, Final
from urllib.parse import urlsplit

from jsonschema import Draft202012Validator, FormatChecker
from jsonschema.exceptions import SchemaError, ValidationError
from jsonschema.validators import extend

from dagmaster.authoring.regex_safety import MAX_PATTERN_TEXT, longest_text
from dagmaster.authoring.source_document import document_of
from dagmaster.authoring.source_map import shortened, spell_path
from dagmaster.authoring.suggestions import did_you_mean
from dagmaster.authoring.validation_messages import MAX_PROBLEMS
from dagmaster.errors import InputsInvalid, Problem, WorkflowInvalid

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping
    from collections.abc import Set as AbstractSet

    from dagmaster.authoring.schema import InputModel
    from dagmaster.authoring.source_document import Document, Path
    from dagmaster.engine.graph import Graph

_FORMATS: Final = FormatChecker(formats=())
_NUMBERS: Final = frozenset({"integer", "number"})
_GO_WITH: Final[dict[str, frozenset[str]]] = {
    "pattern": frozenset({"string", "uri", "date-time"}),
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
    "date-time": "a date-time with its zone, as 2026-01-31T06:00:00Z",
}


@_FORMATS.checks("uri")
def _is_uri(value: object) -> bool:
    if not isinstance(value, str):
        return True
    try:
        parts = urlsplit(value)
    except ValueError:
        return False
    return bool(parts.scheme and (parts.netloc or parts.path)) and not re.search(r"[\s\x00-\x1f]", value)


@_FORMATS.checks("date-time")
def _is_date_time(value: object) -> bool:
    if not isinstance(value, str):
        return True
    try:
        return datetime.fromisoformat(value).tzinfo is not None and "T" in value.upper()
    except ValueError:
        return False


def _matches(_validator: Any, pattern: str, value: Any, _schema: Any) -> Iterator[ValidationError]:
    """Try a pattern, on no longer a text than it ends on soon."""
    if not isinstance(value, str):
        return
    longest = longest_text(pattern)
    if len(value) > longest:
        yield ValidationError(f"the text is too long for its pattern: at most {longest:,} characters")
    elif not re.search(pattern, value):
        yield ValidationError("the text does not match its pattern")


_Validator: Any = extend(Draft202012Validator, {"pattern": _matches})  # type: ignore[no-untyped-call]


def schema_of_inputs(inputs: Mapping[str, Mapping[str, Any]]) -> dict[str, Any]:
    """Give the JSON Schema of all inputs: for the submit form, the API, and the check at the door."""
    return {
        "type": "object",
        "properties": {name: _schema_of_input(definition) for name, definition in inputs.items()},
        "required": [name for name, each in inputs.items() if each.get("required") and "default" not in each],
        "additionalProperties": False,
    }


def _schema_of_input(definition: Mapping[str, Any]) -> dict[str, Any]:
    kind = definition.get("type", "string")
    schema: dict[str, Any] = {"type": "string", "format": kind} if kind in ("uri", "date-time") else {"type": kind}
    for key in ("default", "enum", "pattern", "minimum", "maximum", "items", "properties", "description"):
        if definition.get(key) not in (None, ""):
            schema[key] = definition[key]
    if definition.get("secret"):
        schema["writeOnly"] = True
    return schema


def accept_inputs(graph: Graph, given: Mapping[str, Any]) -> dict[str, Any]:
    """Give the inputs of a job: what was given, with defaults. What does not fit is `InputsInvalid`, all of it."""
    if not given and not graph.inputs:
        return {}
    try:
        document_of(dict(given))
    except WorkflowInvalid as invalid:
        raise InputsInvalid([replace(problem, file="") for problem in invalid.problems]) from None
    problems = [
        Problem(message=f"unknown input {name!r}", path=name, hint=did_you_mean(name, graph.inputs))
        for name in given
        if name not in graph.inputs
    ]
    inputs = {name: each["default"] for name, each in graph.inputs.items() if "default" in each}
    inputs.update({name: value for name, value in given.items() if name in graph.inputs})
    validator = _validator(graph.content_hash, json.dumps(schema_of_inputs(graph.inputs)))
    for error in validator.iter_errors(inputs):
        problems += _problems_of(error, graph)
    if problems:
        raise InputsInvalid(list(dict.fromkeys(problems)))
    return inputs


def parse_input(graph: Graph, name: str, text: str) -> Any:
    """Read an input from a command line: as its type says; JSON unless it is text."""
    kind = graph.inputs.get(name, {}).get("type", "string")
    if kind in ("string", "uri", "date-time"):
        return text
    try:
        return read_json(text)
    except (ValueError, RecursionError):
        return text


def read_json(text: str) -> Any:
    """Read JSON strictly, else ValueError: no NaN, no number that has no value (1e999), no key twice."""
    value = json.loads(text, parse_constant=_refuse_constant, object_pairs_hook=_refuse_duplicates)
    json.dumps(value, allow_nan=False)
    return value


def problems_of_inputs(
    document: Document, inputs: Mapping[str, InputModel], wrong: AbstractSet[str] = frozenset()
) -> list[Problem]:
    """Check that input definitions make sense, and that defaults fit them. `wrong` ones are known to make none."""
    problems: list[Problem] = []
    for name, model in inputs.items():
        path: Path = ("inputs", name)
        if not re.fullmatch(r"[A-Za-z_][A-Za-z0-9_]*", name):
            message = "an input's name is made of letters, digits and _, and starts with no digit"
            problems.append(document.problem(message, path, at_key=True))
        elif name not in wrong and len(problems) <= MAX_PROBLEMS:
            problems += _problems_of_keys(document, model, path) or _problems_of_values(document, model, path)
    return problems


def _problems_of_keys(document: Document, model: InputModel, path: Path) -> list[Problem]:
    """Check that the keys of an input go together, and make a JSON Schema."""
    found: list[Problem] = []
    for key, kinds in _GO_WITH.items():
        if getattr(model, key) is not None and model.type not in kinds:
            message = f"{key} goes with type {' or '.join(sorted(kinds))}, and this is of type {model.type}"
            found.append(document.problem(message, (*path, key), at_key=True))
    if model.pattern is not None:
        found += _problems_of_pattern(document, model.pattern, (*path, "pattern"))
    if model.minimum is not None and model.maximum is not None and model.minimum > model.maximum:
        found.append(document.problem("minimum is more than maximum: no number fits", (*path, "minimum")))
    for key in ("items", "properties"):
        for place, pattern, longest in _patterns_in(getattr(model, key)):
            # What is no pattern at all is told below, as the schema's mistake that it is.
            with contextlib.suppress(re.error, OverflowError, RecursionError):
                re.compile(pattern)
                found += _problems_of_pattern(document, pattern, (*path, key, *place), longest)
        found += [
            document.problem(
                f"{spell_path((key, *place))}: a schema here stands alone, without references", (*path, key)
            )
            for place in _references_in(getattr(model, key))
        ]
    # Only these two hold what somebody wrote as JSON Schema; checking every input took a third of a file's time.
    if found or (model.items is None and model.properties is None):
        return found
    schema = _schema_of_input(model.model_dump(exclude_unset=True, exclude={"default", "enum"}))
    try:
        Draft202012Validator.check_schema(schema)
    except SchemaError as error:
        # The best error of many is deep inside; where it is in the file is the place of what it looked at.
        inside = tuple(error.absolute_path)
        found.append(document.problem(f"not a JSON Schema: {shortened(error.message, 200)}", (*path, *inside)))
    return found


def _problems_of_pattern(document: Document, pattern: str, path: Path, longest: int = 1) -> list[Problem]:
    """Check that a pattern is one, and ends on every text; in reasonable time, if that is not too long."""
    try:
        if longest_text(pattern) >= longest:
            return []
    except (re.error, OverflowError, RecursionError) as error:
        return [document.problem(f"pattern is not a regular expression: {error}", path)]
    message = "this pattern may never end on some texts: do not repeat a repetition, or a choice"
    hint = "put something between the repetitions that is in none of them, as in ^[a-z]+(-[a-z]+)*$"
    return [document.problem(message, path, hint=hint)]


def _patterns_in(schema: Any, place: Path = ()) -> list[tuple[Path, str, int]]:
    """Find the patterns in a schema, and how long a text each must end on: keys have no limit."""
    found: list[tuple[Path, str, int]] = []
    inside = schema.items() if isinstance(schema, dict) else enumerate(schema) if isinstance(schema, list) else ()
    for key, inner in inside:
        if key == "pattern" and isinstance(inner, str):
            found.append(((*place, key), inner, 1))
        elif key == "patternProperties" and isinstance(inner, dict):
            found += [((*place, key, pattern), pattern, MAX_PATTERN_TEXT) for pattern in inner]
        found += _patterns_in(inner, (*place, key))
    return found


def _problems_of_values(document: Document, model: InputModel, path: Path) -> list[Problem]:
    """Check that what is written as a value fits: the default, and each value of an enum."""
    found: list[Problem] = []
    definition = model.model_dump(exclude_unset=True)
    if model.enum is not None:
        alone = _Validator(_schema_of_input({**definition, "enum": None}), format_checker=_FORMATS)
        for place, value in enumerate(model.enum):
            said = [_unfit(error) for error in alone.iter_errors(value)]
            found += [document.problem(f"enum: {each}", (*path, "enum", place)) for each in said]
    if "default" in model.model_fields_set:
        validator = _Validator(_schema_of_input(definition), format_checker=_FORMATS)
        said = [_unfit(error) for error in validator.iter_errors(model.default)]
        hint = "leave it out, and write `| default(…)` where the input is used" if model.default is None else ""
        found += [document.problem(f"the default does not fit: {each}", (*path, "default"), hint=hint) for each in said]
    return found


def _references_in(schema: Any, place: Path = ()) -> list[Path]:
    """Find `$ref` and its like. What they point at could be anywhere, even on another machine, or be themselves."""
    if isinstance(schema, dict):
        found = [(*place, key) for key in schema if key in _REFERENCES and isinstance(schema[key], str)]
        return found + [each for key, inner in schema.items() for each in _references_in(inner, (*place, key))]
    inside = enumerate(schema) if isinstance(schema, list) else ()
    return [each for key, inner in inside for each in _references_in(inner, (*place, key))]


@lru_cache(maxsize=64)
def _validator(_content_hash: str, schema: str) -> Any:
    return _Validator(json.loads(schema), format_checker=_FORMATS)


def _problems_of(error: Any, graph: Graph) -> list[Problem]:
    """Say what does not fit. The value of a secret is not repeated."""
    place = tuple(error.absolute_path)
    if error.validator == "required":
        missing = [name for name in error.validator_value if name not in error.instance]
        return [_missing(name, place, graph) for name in missing]
    if place and graph.inputs[place[0]].get("secret"):
        return [Problem(message=f"the value does not fit ({error.validator})", path=spell_path(place))]
    return [Problem(message=_unfit(error), path=spell_path(place), text=_text_of(error.instance))]


def _missing(name: str, place: Path, graph: Graph) -> Problem:
    if place:
        return Problem(message=f"missing key {name!r}", path=spell_path(place))
    told = graph.inputs[name].get("description", "")
    return Problem(message=f"missing input {name!r}" + (f" ({told})" if told else ""), path=name)


def _unfit(error: Any) -> str:
    """Say an error of JSON Schema as people would."""
    wanted, value = error.validator_value, _text_of(error.instance) or "a mapping"
    if error.validator == "type":
        named = wanted if isinstance(wanted, list) else [wanted]
        return f"{value} is not {' or '.join(_TYPES.get(str(each), str(each)) for each in named)}"
    if error.validator == "format":
        return f"{value} is not {_TYPES.get(str(wanted), str(wanted))}"
    if error.validator == "enum":
        return f"{value} is not one of {shortened(', '.join(_text_of(each) or '{…}' for each in wanted), 200)}"
    if error.validator == "pattern" and len(error.instance) <= longest_text(wanted):
        return f"{value} does not match the pattern {wanted}"
    if error.validator in ("minimum", "maximum"):
        limit = int(wanted) if wanted == int(wanted) else wanted
        return f"{value} is {'less' if error.validator == 'minimum' else 'more'} than {limit}"
    return shortened(str(error.message), 300)


def _text_of(instance: Any) -> str:
    return "" if isinstance(instance, dict) else shortened(json.dumps(instance, ensure_ascii=False), 120)


def _refuse_constant(name: str) -> Any:
    raise ValueError(f"{name} is not JSON")


def _refuse_duplicates(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    found = dict(pairs)
    if len(found) < len(pairs):
        keys = [key for key, _ in pairs]
        raise ValueError(f"key {next(key for key in keys if keys.count(key) > 1)!r} is there twice")
    return found
