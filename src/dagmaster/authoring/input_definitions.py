"""The definitions of workflow inputs: keys that go together, valid schemas, patterns and defaults."""

from __future__ import annotations

import re
from functools import partial
from itertools import islice
from typing import TYPE_CHECKING, Any, Final

from dagmaster.authoring.check_budget import CheckBudget, CheckStopped
from dagmaster.authoring.input_schema import CONSTRAINT_FORMATS, CONSTRAINTS, TEXT_FORMATS, input_schema
from dagmaster.authoring.input_validator import UNSUPPORTED, find_schema_error, input_validator
from dagmaster.authoring.inputs import MAX_PROBLEMS, describe_mismatch
from dagmaster.authoring.source_document import entries
from dagmaster.authoring.validation_messages import MAX_PROBLEMS as MAX_FILE_PROBLEMS
from dagmaster.errors.source_map import format_path, truncate
from dagmaster.errors.suggestions import did_you_mean
from dagmaster.patterns import PatternRefused, compile_pattern

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Mapping
    from collections.abc import Set as AbstractSet

    from dagmaster.authoring.schema import InputModel
    from dagmaster.authoring.source_document import Document, Path
    from dagmaster.errors import Problem
    from dagmaster.json_types import JsonValue

    _Check = Callable[[Document, InputModel, Path], list[Problem]]

MAX_PATTERNS: Final = 200
"""Patterns of one input. Each takes up to a millisecond to compile."""
_NUMBERS: Final = frozenset({"integer", "number"})
_GO_WITH: Final[dict[str, frozenset[str]]] = {
    "pattern": frozenset({"string", *TEXT_FORMATS}),
    "minimum": _NUMBERS,
    "maximum": _NUMBERS,
    "items": frozenset({"array"}),
    "properties": frozenset({"object"}),
}
_WRITTEN: Final = ("items", "properties", "constraints")
_REFERENCES: Final = frozenset({"$ref", "$dynamicRef", "$recursiveRef", "$id", "$schema"})


def check_inputs(
    document: Document,
    inputs: Mapping[str, InputModel],
    wrong: AbstractSet[str] = frozenset(),
    *,
    is_stored: bool = False,
    is_published: bool = False,
) -> list[Problem]:
    """Check input definitions and their defaults. Those in `wrong` are reported already.

    `is_stored`: not the defaults, which were valid when the definition was written. `is_published`: nor its
    patterns. One that is refused since then concerns those who submit its jobs, and no other.
    """
    problems: list[Problem] = []
    budget = CheckBudget()
    for name, model in inputs.items():
        path: Path = ("inputs", name)
        if not re.fullmatch(r"[A-Za-z_][A-Za-z0-9_]*", name):
            message = "an input's name is made of letters, digits and _, and starts with no digit"
            problems.append(document.problem(message, path, at_key=True))
        elif name not in wrong and len(problems) <= MAX_FILE_PROBLEMS:
            checks: list[_Check] = [_check_keys] if is_published else [_check_keys, _check_patterns]
            checks += [partial(_check_schema, budget)]
            checks += [] if is_stored else [partial(_check_values, budget)]
            try:
                # Each expects that those before it found nothing.
                problems += next(filter(None, (check(document, model, path) for check in checks)), [])
            except CheckStopped as stopped:
                message = f"{stopped}: make the schemas, defaults and enums of the inputs smaller"
                return [*problems, document.problem(message, path, at_key=True)]
    return problems


def _check_keys(document: Document, model: InputModel, path: Path) -> list[Problem]:
    """Check that the keys of an input go together."""
    problems: list[Problem] = []
    for key, kinds in _GO_WITH.items():
        if getattr(model, key) is not None and model.type not in kinds:
            message = f"{key} goes with type {' or '.join(sorted(kinds))}, not with {model.type}"
            problems.append(document.problem(message, (*path, key), at_key=True))
    if model.minimum is not None and model.maximum is not None and model.minimum > model.maximum:
        problems.append(document.problem("minimum is more than maximum: no number fits", (*path, "minimum")))
    problems += _check_constraints(document, model, (*path, "constraints"))
    for key in _WRITTEN:
        for place in _keys_in(getattr(model, key), _REFERENCES, is_text=True):
            message = f"{format_path((key, *place))}: references are not allowed in this schema"
            problems.append(document.problem(message, (*path, key)))
    return problems


def _check_patterns(document: Document, model: InputModel, path: Path) -> list[Problem]:
    """Check that each pattern can be matched in linear time."""
    patterns: list[tuple[Path, str]] = [] if model.pattern is None else [(("pattern",), model.pattern)]
    for key in _WRITTEN:
        patterns += [((key, *place), pattern) for place, pattern in _patterns_in(getattr(model, key))]
    problems: list[Problem] = []
    for place, pattern in patterns[:MAX_PATTERNS]:
        try:
            compile_pattern(pattern)
        except PatternRefused as refused:
            problems.append(document.problem(refused.args[0], (*path, *place), hint=refused.hint))
        if len(problems) > MAX_PROBLEMS:
            break
    if len(patterns) > MAX_PATTERNS:
        message = f"an input has at most {MAX_PATTERNS:,} patterns, not {len(patterns):,}"
        problems.append(document.problem(message, path, at_key=True))
    for key in _WRITTEN:
        for place in _keys_in(getattr(model, key), frozenset(UNSUPPORTED)):
            message = f"{format_path((key, *place))} is not supported in the schema of an input"
            hint = "write additionalProperties, items or maxItems next to the keys that it is about"
            problems.append(document.problem(message, (*path, key, *place), hint=hint))
    return problems


def _check_schema(budget: CheckBudget, document: Document, model: InputModel, path: Path) -> list[Problem]:
    # Only these contain JSON Schema that a user wrote; checking every input took a third of the compile time.
    if all(getattr(model, key) is None for key in _WRITTEN):
        return []
    schema = input_schema(model.model_dump(exclude_unset=True, exclude={"default", "enum"}))
    error = find_schema_error(schema, budget)
    if error is None:
        return []
    # The best match of many errors is deep inside; its path locates it in the file.
    inside = tuple(error.absolute_path)
    if inside and inside[0] in CONSTRAINTS:
        inside = ("constraints", *inside)
    return [document.problem(f"not a JSON Schema: {truncate(error.message, 200)}", (*path, *inside))]


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


def _patterns_in(schema: JsonValue, place: Path = ()) -> Iterator[tuple[Path, str]]:
    """Yield the patterns in a schema, with their places."""
    for key, inner in entries(schema):
        if key == "pattern" and isinstance(inner, str):
            yield (*place, key), inner
        elif key == "patternProperties" and isinstance(inner, dict):
            yield from (((*place, key, pattern), pattern) for pattern in inner)
        yield from _patterns_in(inner, (*place, key))


def _check_values(budget: CheckBudget, document: Document, model: InputModel, path: Path) -> list[Problem]:
    """Check that the default and each enum value fit."""
    problems: list[Problem] = []
    definition = model.model_dump(exclude_unset=True)
    if model.enum is not None:
        alone = input_validator(input_schema({**definition, "enum": None}), budget)
        for index, value in enumerate(model.enum):
            reasons = _reasons(alone, value)
            problems += [document.problem(f"enum: {reason}", (*path, "enum", index)) for reason in reasons]
            if len(problems) > MAX_PROBLEMS:
                return problems
    if "default" in model.model_fields_set:
        hint = (
            "leave it out, and write `| default(…)` where the input is used" if model.default is None else ""
        )
        problems += [
            document.problem(f"the default does not fit: {reason}", (*path, "default"), hint=hint)
            for reason in _reasons(input_validator(input_schema(definition), budget), model.default)
        ]
    return problems


def _reasons(validator: Any, value: JsonValue) -> list[str]:
    return [describe_mismatch(error) for error in islice(validator.iter_errors(value), MAX_PROBLEMS)]


def _keys_in(
    schema: JsonValue, names: AbstractSet[str], place: Path = (), *, is_text: bool = False
) -> Iterator[Path]:
    """Yield the paths of these keys in a schema, or of those with a text.

    References could point anywhere, or at themselves.
    """
    for key, inner in entries(schema):
        if key in names and (not is_text or isinstance(inner, str)):
            yield (*place, key)
        yield from _keys_in(inner, names, (*place, key), is_text=is_text)
