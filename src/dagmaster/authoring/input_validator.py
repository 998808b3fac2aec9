"""The JSON Schema validator of input values: formats, patterns whose matching ends, exact multiples."""

from __future__ import annotations

import re
from datetime import date, datetime, time, timedelta
from functools import partial
from ipaddress import IPv4Address, IPv6Address
from typing import TYPE_CHECKING, Any, Final
from urllib.parse import urlsplit
from uuid import UUID

from jsonschema import Draft202012Validator, FormatChecker
from jsonschema.exceptions import ValidationError
from jsonschema.validators import extend
from pydantic import TypeAdapter

from dagmaster.authoring.input_schema import CONSTRAINT_FORMATS
from dagmaster.authoring.regex_safety import longest_text

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Mapping

    from dagmaster.json_types import JsonValue

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


def _matches(
    _validator: object, pattern: str, value: JsonValue, _schema: JsonValue
) -> Iterator[ValidationError]:
    """Match a pattern against a text of bounded length."""
    if not isinstance(value, str):
        return
    longest = longest_text(pattern)
    if len(value) > longest:
        yield ValidationError(f"the text is too long for its pattern: at most {longest:,} characters")
    elif not re.search(pattern, value):
        yield ValidationError("the text does not match its pattern")


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


_Validator: Any = extend(  # type: ignore[no-untyped-call]
    Draft202012Validator, {"pattern": _matches, "multipleOf": _is_multiple}
)


def input_validator(schema: Mapping[str, Any]) -> Any:
    """Return the validator of a JSON Schema."""
    return _Validator(schema, format_checker=_FORMATS)
