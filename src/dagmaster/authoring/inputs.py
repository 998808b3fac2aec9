"""Workflow inputs: their validation."""

from __future__ import annotations

import json
from dataclasses import replace
from functools import lru_cache
from itertools import islice
from typing import TYPE_CHECKING, Any, Final

from dagmaster.authoring.check_budget import CheckBudget, CheckStopped
from dagmaster.authoring.input_defaults import DefaultsFiller, has_defaults
from dagmaster.authoring.input_schema import TEXT_FORMATS, input_schema, inputs_schema
from dagmaster.authoring.input_validator import Uncheckable, input_validator, with_budget
from dagmaster.authoring.source_document import document_from_data
from dagmaster.errors import InputsInvalid, Problem, WorkflowInvalid
from dagmaster.errors.source_map import format_path, truncate
from dagmaster.errors.suggestions import LONGEST_NAME, MAX_CANDIDATES, MAX_HINTS, did_you_mean
from dagmaster.json_types import read_json
from dagmaster.patterns import compile_pattern

if TYPE_CHECKING:
    from collections.abc import Mapping

    from dagmaster.authoring.source_document import Path
    from dagmaster.engine.graph import Graph
    from dagmaster.json_types import JsonObject, JsonValue

MAX_PROBLEMS: Final = 100
"""Problems of the inputs of one job that are collected."""
HINT_CHARACTERS_PER_STEP: Final = 2
"""Characters of a name that are compared with another name in the time of a step: 64 take 150 µs."""
_SHOWN_CHARACTERS: Final = 120
_SHOWN_CHOICES: Final = 100
_ENCODER: Final = json.JSONEncoder(ensure_ascii=False)
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


def accept_inputs(
    graph: Graph, values: Mapping[str, JsonValue], budget: CheckBudget | None = None
) -> JsonObject:
    """Return the inputs of a job with all defaults applied; raise `InputsInvalid` with the first problems.

    With a budget, `CheckStopped` is raised at its end: who gives one decides what follows.
    """
    return accept_values(graph.inputs, values, budget)


def accept_values(
    definitions: Mapping[str, Mapping[str, JsonValue]],
    values: Mapping[str, JsonValue],
    budget: CheckBudget | None = None,
) -> JsonObject:
    """Do what `accept_inputs` does, with the definitions of the inputs."""
    if not values and not definitions:
        return {}
    if budget is not None:
        # Who gives one has no time to read a megabyte.
        _count_values(values, budget)
    try:
        document_from_data(dict(values))
    except WorkflowInvalid as invalid:
        raise InputsInvalid([replace(problem, file="") for problem in invalid.problems]) from None
    inputs = _with_defaults(values, definitions)
    problems = input_problems(definitions, inputs, budget)
    if problems:
        raise InputsInvalid(problems)
    filled: JsonObject = {}
    for name, value in inputs.items():
        try:
            filled[name] = _with_inner_defaults(value, definitions[name], budget or CheckBudget())
        except CheckStopped as stopped:
            if budget is not None:
                raise
            raise InputsInvalid([_stopped(stopped, name)]) from None
    return filled


def check_types(definitions: Mapping[str, Mapping[str, JsonValue]], secrets: Mapping[str, JsonValue]) -> None:
    """Check secrets that the caller did not send: their types alone; raise `InputsInvalid`.

    Other constraints are chosen by an author, who would learn from the answer what the secret is.
    """
    types: dict[str, JsonObject] = {}
    for name in secrets:
        kind = definitions[name].get("type", "string")
        types[name] = {"type": "string" if kind in TEXT_FORMATS else kind, "secret": True}
    problems = input_problems(types, secrets) if secrets else []
    if problems:
        raise InputsInvalid(problems)


def _count_values(value: Any, budget: CheckBudget) -> None:
    """Take a step for each value and its characters; raise `CheckStopped` before all of them are seen."""
    left = [value]
    while left:
        item = left.pop()
        if isinstance(item, str):
            budget.spend_text(len(item))
        elif isinstance(item, dict):
            budget.spend(1 + len(item))
            budget.spend_text(sum(map(len, item)))
            left += item.values()
        elif isinstance(item, list):
            budget.spend(1 + len(item))
            left += item


def input_problems(
    definitions: Mapping[str, Mapping[str, JsonValue]],
    values: Mapping[str, JsonValue],
    budget: CheckBudget | None = None,
) -> list[Problem]:
    """Return what is wrong with the inputs of a job: unknown names, missing values, wrong values."""
    steps = budget or CheckBudget()
    problems = _unknown_names(definitions, values, steps)
    known = _with_defaults(
        {name: value for name, value in values.items() if name in definitions}, definitions
    )
    schema = inputs_schema(definitions)
    validator = with_budget(_validator(json.dumps(schema)), steps)
    properties: Any = schema["properties"]
    for name, value in known.items():
        try:
            for error in validator.descend(value, properties[name], path=name):
                problems += _describe_errors(error, definitions)
                if len(problems) > MAX_PROBLEMS:
                    return [*dict.fromkeys(problems[:MAX_PROBLEMS]), _more_problems()]
        except Uncheckable as error:
            problems.append(
                Problem(
                    message=f"the value cannot be checked: {error}",
                    path=name,
                    hint="publish the workflow again with another schema of this input",
                )
            )
        except CheckStopped as stopped:
            if budget is not None:
                raise
            return [*dict.fromkeys(problems), _stopped(stopped, name)]
    required: Any = schema["required"]
    problems += [_missing(name, (), definitions) for name in required if name not in known]
    return list(dict.fromkeys(problems))


def _unknown_names(
    definitions: Mapping[str, Any], values: Mapping[str, JsonValue], budget: CheckBudget
) -> list[Problem]:
    """Return the first names that are no inputs; the first of them have a hint, which takes steps."""
    problems: list[Problem] = []
    for name in islice((name for name in values if name not in definitions), MAX_PROBLEMS):
        hint = ""
        if len(problems) < MAX_HINTS:
            steps = 1 + min(len(name), LONGEST_NAME) // HINT_CHARACTERS_PER_STEP
            budget.spend(steps * min(len(definitions), MAX_CANDIDATES))
            hint = did_you_mean(name, definitions)
        problems.append(Problem(message=f"unknown input {name!r}", path=name, hint=hint))
    return problems


def _stopped(stopped: CheckStopped, name: str) -> Problem:
    return Problem(
        message=f"the check of input {name!r} was stopped after {stopped.limit:,} steps",
        path=name,
        hint="make the value or its schema smaller: a step is one keyword of the schema on one part of it",
    )


def _more_problems() -> Problem:
    return Problem(message=f"there are more problems: these are the first {MAX_PROBLEMS}")


def _with_defaults(
    values: Mapping[str, JsonValue], definitions: Mapping[str, Mapping[str, JsonValue]]
) -> dict[str, JsonValue]:
    defaults = {
        name: definition["default"] for name, definition in definitions.items() if "default" in definition
    }
    return {**defaults, **values}


def _with_inner_defaults(value: Any, definition: Mapping[str, Any], budget: CheckBudget) -> JsonValue:
    schema = input_schema(definition) if isinstance(value, dict | list) else {}
    return DefaultsFiller(budget).fill(value, schema) if has_defaults(schema) else value


def parse_input(graph: Graph, name: str, text: str) -> Any:
    """Parse an input from a command line by its type: JSON unless it is text."""
    return parse_input_text(str(graph.inputs.get(name, {}).get("type", "string")), text)


def parse_inputs(graph: Graph, texts: Mapping[str, str]) -> dict[str, Any]:
    """Parse inputs that are text, by their types."""
    return {name: parse_input(graph, name, text) for name, text in texts.items()}


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


@lru_cache(maxsize=64)
def _validator(schema: str) -> Any:
    return input_validator(json.loads(schema), CheckBudget())


def _describe_errors(error: Any, definitions: Mapping[str, Mapping[str, Any]]) -> list[Problem]:
    """Describe what does not fit, without the values of secrets."""
    place = tuple(error.absolute_path)
    if error.validator == "required":
        missing = [name for name in error.validator_value if name not in error.instance]
        return [_missing(name, place, definitions) for name in missing]
    if place and definitions[place[0]].get("secret"):
        return [Problem(message=f"the value does not fit ({error.validator})", path=format_path(place))]
    return [Problem(message=describe_mismatch(error), path=format_path(place), text=_text_of(error.instance))]


def _missing(name: str, place: Path, definitions: Mapping[str, Mapping[str, Any]]) -> Problem:
    if place:
        return Problem(message=f"missing key {name!r}", path=format_path(place))
    description = definitions[name].get("description", "")
    return Problem(
        message=f"missing input {name!r}" + (f" ({description})" if description else ""), path=name
    )


def describe_mismatch(error: Any) -> str:
    """Describe a JSON Schema error in plain words."""
    expected, value = error.validator_value, _text_of(error.instance) or "a mapping"
    match error.validator:
        case "type":
            return f"{value} is not {_expected_types(expected, error.schema.get('format'))}"
        case "format":
            return f"{value} is not {_TYPES.get(str(expected), str(expected))}"
        case "enum":
            choices = ", ".join(_text_of(name) or "{…}" for name in expected[:_SHOWN_CHOICES])
            return f"{value} is not one of {truncate(choices, 200)}"
        case "pattern" if compile_pattern(expected).fits(error.instance):
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
    if isinstance(instance, dict):
        return ""
    # Piece by piece: a list may be a megabyte, and have a hundred problems.
    pieces, length = [], 0
    for piece in _ENCODER.iterencode(instance):
        pieces.append(piece)
        length += len(piece)
        if length > _SHOWN_CHARACTERS:
            break
    return truncate("".join(pieces), _SHOWN_CHARACTERS)
