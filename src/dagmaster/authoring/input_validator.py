"""The JSON Schema validator of input values: every keyword takes its steps from a budget.

Patterns are matched in linear time, equal values are found by their canonical text, multiples are exact. What
jsonschema itself does by comparing each with each, or with Python's `re`, is replaced here.
"""

from __future__ import annotations

import json
import re
from datetime import date, datetime, time, timedelta
from functools import cache, partial
from ipaddress import IPv4Address, IPv6Address
from typing import TYPE_CHECKING, Any, Final
from urllib.parse import urlsplit
from uuid import UUID

from jsonschema import Draft202012Validator, FormatChecker
from jsonschema.exceptions import ValidationError
from jsonschema.validators import extend
from jsonschema_specifications import REGISTRY
from pydantic import TypeAdapter
from referencing import Registry
from referencing.jsonschema import DRAFT202012

from dagmaster.authoring.input_schema import CONSTRAINT_FORMATS
from dagmaster.errors.source_map import truncate
from dagmaster.patterns import PatternRefused, compile_pattern

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator, Mapping

    from dagmaster.authoring.check_budget import CheckBudget
    from dagmaster.json_types import JsonValue
    from dagmaster.patterns import LinearPattern

    _Keyword = Callable[[Any, Any, Any, Any], Iterable[ValidationError] | None]

UNSUPPORTED: Final = ("unevaluatedItems", "unevaluatedProperties")
"""Keywords that check parts of a value again and again, and mean little without references."""
_EACH_PART: Final = frozenset(
    {"items", "contains", "propertyNames", "additionalProperties", "patternProperties", "uniqueItems"}
)
"""Keywords that look at each part of a value, however little they do with it."""
_BY_TEXT: Final = frozenset({"enum", "const"})
"""Keywords whose value is made to text once, and then found by it."""
_WORK_PER_STEP: Final = 1_000
"""Instructions of a pattern, on one byte each, in the time of a step."""
_SHOWN_KEYS: Final = 10
_SPECIFICATION: Final = "https://json-schema.org/draft/2020-12/"
_COUNTED: Final = "https://dagmaster.invalid/2020-12/"
_FORMATS: Final = FormatChecker(formats=())


@_FORMATS.checks("uri")
def _is_uri(value: object) -> bool:
    if not isinstance(value, str):
        return True
    try:
        parts = urlsplit(value)
    except ValueError:
        return False
    return bool(parts.scheme and (parts.netloc or parts.path)) and not re.search(r"[\s\x00-\x1f]", value)


@_FORMATS.checks("date")
def _is_date(value: object) -> bool:
    if not isinstance(value, str):
        return True
    try:
        # It also reads other spellings, such as 20260131.
        return date.fromisoformat(value).isoformat() == value
    except ValueError:
        return False


@_FORMATS.checks("date-time")
def _is_date_time(value: object) -> bool:
    if not isinstance(value, str):
        return True
    try:
        return datetime.fromisoformat(value).tzinfo is not None and "T" in value.upper()
    except ValueError:
        return False


_READERS: Final[dict[str, Callable[[str], object]]] = {
    "uuid": UUID,
    "time": time.fromisoformat,
    "duration": TypeAdapter(timedelta).validate_python,
    "ipv4": IPv4Address,
    "ipv6": IPv6Address,
}


def _is_readable(value: object, *, name: str) -> bool:
    return not isinstance(value, str) or bool(_READERS[name](value) is not None)


for _name in CONSTRAINT_FORMATS:
    _FORMATS.checks(_name, raises=ValueError)(partial(_is_readable, name=_name))


# ── Keywords ────────────────────────────────────────────────────────────────────────────────────────────────


class Uncheckable(Exception):
    """A schema that was published and is not checked any more: a pattern that is refused today."""


class _Formats(FormatChecker):
    """The formats, with the budget of one check: validators of inner schemas inherit it from their parent."""

    def __init__(self, budget: CheckBudget) -> None:
        self.checkers = _FORMATS.checkers
        self.budget = budget


def _counted(name: str, keyword: _Keyword) -> _Keyword:
    """Return a keyword that takes its steps from the budget of the check."""

    def check(validator: Any, value: Any, instance: Any, schema: Any) -> Iterator[ValidationError]:
        budget: CheckBudget = validator.format_checker.budget
        steps = 1
        if isinstance(value, list | dict) and name not in _BY_TEXT:
            steps += len(value)
        if isinstance(instance, list | dict) and name in _EACH_PART:
            steps += len(instance)
        budget.spend(steps)
        for error in keyword(validator, value, instance, schema) or ():
            # Its message may show the whole value.
            budget.spend_text(len(error.message))
            yield error

    return check


def _matches(validator: Any, pattern: str, value: JsonValue, _schema: JsonValue) -> Iterator[ValidationError]:
    if not isinstance(value, str):
        return
    compiled = _compile(pattern)
    if not compiled.fits(value):
        longest = compiled.longest_text
        yield ValidationError(f"the text is too long for its pattern: at most {longest:,} bytes of UTF-8")
    elif not _search(validator, compiled, value):
        yield ValidationError("the text does not match its pattern")


def _compile(pattern: str) -> LinearPattern:
    try:
        return compile_pattern(pattern)
    except PatternRefused as refused:
        raise Uncheckable(f"its pattern {truncate(pattern, 100)} is refused: {refused}") from None


def _search(validator: Any, pattern: LinearPattern, text: str) -> bool:
    validator.format_checker.budget.spend(1 + pattern.work(text) // _WORK_PER_STEP)
    return pattern.search(text)


def _check_matching_keys(
    validator: Any, patterns: dict[str, Any], value: JsonValue, _schema: JsonValue
) -> Iterator[ValidationError]:
    if not isinstance(value, dict):
        return
    for pattern, inner in patterns.items():
        compiled = _compile(pattern)
        for key, item in value.items():
            if _search(validator, compiled, key):
                yield from validator.descend(item, inner, path=key, schema_path=pattern)


def _check_other_keys(
    validator: Any, inner: Any, value: JsonValue, schema: dict[str, Any]
) -> Iterator[ValidationError]:
    """Check the keys that neither `properties` nor `patternProperties` have."""
    if not isinstance(value, dict):
        return
    properties = schema.get("properties", {})
    patterns = [_compile(pattern) for pattern in schema.get("patternProperties", {})]
    others = [
        key
        for key in value
        if key not in properties and not any(_search(validator, pattern, key) for pattern in patterns)
    ]
    if isinstance(inner, dict):
        for key in others:
            yield from validator.descend(value[key], inner, path=key)
    elif inner is False and others:
        shown = ", ".join(repr(truncate(key)) for key in others[:_SHOWN_KEYS])
        shown += ", …" if len(others) > _SHOWN_KEYS else ""
        were = "was" if len(others) == 1 else "were"
        yield ValidationError(f"Additional properties are not allowed ({shown} {were} unexpected)")


def _is_unique(
    validator: Any, is_unique: JsonValue, value: JsonValue, _schema: JsonValue
) -> Iterator[ValidationError]:
    if not is_unique or not isinstance(value, list):
        return
    budget: CheckBudget = validator.format_checker.budget
    seen: dict[str, int] = {}
    for position, item in enumerate(value):
        first = seen.setdefault(budget.canonical(item), position)
        if first != position:
            yield ValidationError(f"its items {first} and {position} are equal: each must be unique")
            return


def _is_one_of(
    validator: Any, choices: list[JsonValue], value: JsonValue, _schema: JsonValue
) -> Iterator[ValidationError]:
    budget: CheckBudget = validator.format_checker.budget
    if budget.canonical(value) not in budget.allowed(choices):
        yield ValidationError("the value is not one of the allowed ones")


def _is_the_one(
    validator: Any, constant: JsonValue, value: JsonValue, _schema: JsonValue
) -> Iterator[ValidationError]:
    budget: CheckBudget = validator.format_checker.budget
    if budget.canonical(value) != budget.constant(constant):
        yield ValidationError(f"{truncate(repr(constant), 100)} was expected")


def _requires(
    validator: Any, dependencies: dict[str, Any], value: JsonValue, _schema: JsonValue
) -> Iterator[ValidationError]:
    if not isinstance(value, dict):
        return
    for key, needed in dependencies.items():
        if key in value:
            validator.format_checker.budget.spend(len(needed))
            missing = (name for name in needed if name not in value)
            yield from (ValidationError(f"{name!r} is a dependency of {key!r}") for name in missing)


def _refuse(
    _validator: Any, _value: JsonValue, _instance: JsonValue, _schema: JsonValue
) -> Iterator[ValidationError]:
    raise Uncheckable(f"its schema has a keyword that is not supported: {' or '.join(UNSUPPORTED)}")


def _is_multiple(
    _validator: object, step: float, value: JsonValue, _schema: JsonValue
) -> Iterator[ValidationError]:
    """Compare floats as pydantic does, with a tolerance: 0.3 is a multiple of 0.1."""
    if isinstance(value, bool) or not isinstance(value, int | float):
        return
    try:
        remainder = value % step
    except OverflowError:
        yield ValidationError(f"the number is too large to be a multiple of {step}")
        return
    is_whole = isinstance(remainder, int)
    if remainder if is_whole else min(remainder, step - remainder) > abs(value) / 1e9:
        yield ValidationError(f"{value} is not a multiple of {step}")


_KEYWORDS: Final[dict[str, _Keyword]] = {
    **Draft202012Validator.VALIDATORS,
    **dict.fromkeys(UNSUPPORTED, _refuse),
    "pattern": _matches,
    "patternProperties": _check_matching_keys,
    "additionalProperties": _check_other_keys,
    "uniqueItems": _is_unique,
    "enum": _is_one_of,
    "const": _is_the_one,
    "dependentRequired": _requires,
    "multipleOf": _is_multiple,
}
_Validator: Any = extend(  # type: ignore[no-untyped-call]
    Draft202012Validator, {name: _counted(name, keyword) for name, keyword in _KEYWORDS.items()}
)


# ── Validators ──────────────────────────────────────────────────────────────────────────────────────────────


def input_validator(schema: Mapping[str, Any], budget: CheckBudget) -> Any:
    """Return the validator of a JSON Schema, for one check."""
    return _Validator(schema, format_checker=_Formats(budget))


def with_budget(validator: Any, budget: CheckBudget) -> Any:
    """Return a validator for another check: to make one from its schema takes longer."""
    return validator.evolve(format_checker=_Formats(budget))


def find_schema_error(schema: Mapping[str, Any], budget: CheckBudget) -> ValidationError | None:
    """Return what keeps a document from being a JSON Schema; None if it is one.

    Not `check_schema`: it compares each with each, and compiles patterns with Python's `re`.
    """
    error: ValidationError | None = next(with_budget(_meta_validator(), budget).iter_errors(schema), None)
    return error


@cache
def _meta_validator() -> Any:
    # Under their own names and with their `$schema`, jsonschema would check them by its own validators.
    documents: dict[str, Any] = {}
    for uri in REGISTRY:
        if uri.startswith(_SPECIFICATION):
            document = json.loads(json.dumps(REGISTRY.contents(uri)).replace(_SPECIFICATION, _COUNTED))
            del document["$schema"]
            documents[document["$id"]] = document
    registry: Registry[Any] = Registry().with_resources(
        [(uri, DRAFT202012.create_resource(document)) for uri, document in documents.items()]
    )
    return _Validator(documents[f"{_COUNTED}schema"], registry=registry)
