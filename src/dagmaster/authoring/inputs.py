"""The inputs of a workflow: their JSON Schema, and whether what was given fits."""

from __future__ import annotations

import json
import re
from datetime import datetime
from functools import lru_cache
from typing import TYPE_CHECKING, Any, Final
from urllib.parse import urlsplit

from jsonschema import Draft202012Validator, FormatChecker
from jsonschema.exceptions import SchemaError

from dagmaster.authoring.names import did_you_mean
from dagmaster.authoring.source import spell_path
from dagmaster.errors import InputsInvalid, Problem

if TYPE_CHECKING:
    from collections.abc import Mapping

    from dagmaster.authoring.document import Document
    from dagmaster.authoring.schema import InputModel
    from dagmaster.engine.graph import Graph

_FORMATS: Final = FormatChecker(formats=())
_NUMBERS: Final = frozenset({"integer", "number"})


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
    problems = [
        Problem(message=f"unknown input {name!r}", path=name, hint=did_you_mean(name, graph.inputs))
        for name in given
        if name not in graph.inputs
    ]
    inputs = {name: each["default"] for name, each in graph.inputs.items() if "default" in each}
    inputs.update({name: value for name, value in given.items() if name in graph.inputs})
    problems += [
        Problem(message=_say(error, graph), path=_path_of(error), text=_text_of(error.instance))
        for error in _validator(graph.content_hash, json.dumps(schema_of_inputs(graph.inputs))).iter_errors(inputs)
    ]
    if problems:
        raise InputsInvalid(problems)
    return inputs


def parse_input(graph: Graph, name: str, text: str) -> Any:
    """Read an input from a command line: as its type says; JSON unless it is text."""
    kind = graph.inputs.get(name, {}).get("type", "string")
    if kind in ("string", "uri", "date-time"):
        return text
    try:
        return json.loads(text, parse_constant=_refuse_constant)
    except ValueError:
        return text


def problems_of_inputs(document: Document, inputs: Mapping[str, InputModel]) -> list[Problem]:
    """Check that input definitions make sense, and that defaults fit them."""
    problems: list[Problem] = []
    for name, model in inputs.items():
        path = ("inputs", name)
        if not re.fullmatch(r"[A-Za-z_][A-Za-z0-9_]*", name):
            message = "an input's name is made of letters, digits and _, and starts with no digit"
            problems.append(document.problem(message, path, at_key=True))
            continue
        if model.pattern is not None:
            try:
                re.compile(model.pattern)
            except re.error as error:
                problems.append(document.problem(f"pattern: {error}", (*path, "pattern")))
                continue
        definition = model.model_dump(exclude_unset=True)
        try:
            schema = _schema_of_input(definition)
            Draft202012Validator.check_schema(schema)
        except SchemaError as error:
            problems.append(document.problem(f"not a JSON Schema: {error.message}", path))
            continue
        if definition.get("default") is not None:
            validator = Draft202012Validator(schema, format_checker=_FORMATS)
            problems += [
                document.problem(f"the default does not fit: {error.message}", (*path, "default"))
                for error in validator.iter_errors(model.default)
            ]
    return problems


@lru_cache(maxsize=64)
def _validator(_content_hash: str, schema: str) -> Draft202012Validator:
    return Draft202012Validator(json.loads(schema), format_checker=_FORMATS)


def _say(error: Any, graph: Graph) -> str:
    if error.validator == "required":
        missing = next(name for name in error.validator_value if name not in error.instance)
        told = graph.inputs.get(missing, {}).get("description", "") if not error.absolute_path else ""
        return f"missing input {missing!r}" + (f" ({told})" if told else "")
    message = str(error.message)
    return message if len(message) <= 300 else message[:300] + "…"  # noqa: PLR2004 - a screen's worth


def _path_of(error: Any) -> str:
    return spell_path(tuple(error.absolute_path))


def _text_of(instance: Any) -> str:
    text = json.dumps(instance, ensure_ascii=False, default=str)
    return "" if isinstance(instance, dict) else text[:120]


def _refuse_constant(name: str) -> Any:
    raise ValueError(f"{name} is not JSON")
