"""Python values that JSON lacks and that have one obvious form in it: one rule for arguments and results.

Text for a date, a time, a duration, a UUID, a path or a decimal; the value of an enum; what a pydantic model
or a dataclass has in its fields. A set has no order, bytes have no characters, a generator can be read once:
these, and all other types, are refused.
"""

from __future__ import annotations

import reprlib
from dataclasses import fields, is_dataclass
from datetime import date, time, timedelta
from decimal import Decimal
from enum import Enum
from pathlib import PurePath
from typing import Any, Final
from uuid import UUID

from pydantic_core import PydanticSerializationError, to_jsonable_python

_TEXTS: Final = (date, time, timedelta, UUID, Decimal)
_HINTS: Final[tuple[tuple[tuple[type, ...], str], ...]] = (
    ((set, frozenset), " (make it a list, as with sorted(…))"),
    ((bytes, bytearray, memoryview), " (decode it, or write it to a file and pass its path)"),
)
_SHORT: Final = reprlib.Repr()
_SHORT.maxstring = _SHORT.maxother = 60
_MAX_SHOWN: Final = 100


class NoJsonForm(Exception):
    """The text is the rest of a sentence about the value."""


def json_form(value: Any) -> Any:
    """Return what a value is in JSON, or raise `NoJsonForm`: the outermost level only, not its items."""
    kind = type(value)
    serializer = getattr(kind, "__pydantic_serializer__", None)
    try:
        if serializer is not None:
            return serializer.to_python(value, mode="json", by_alias=True, warnings=False)
        if isinstance(value, _TEXTS):
            return to_jsonable_python(value)
    except (PydanticSerializationError, ValueError) as error:
        raise NoJsonForm(f"is of type {kind.__name__}, which cannot be written as JSON: {error}") from None
    if isinstance(value, PurePath):
        return str(value)
    if isinstance(value, Enum):
        return value.value
    if isinstance(value, int | float):
        return int.__int__(value) if isinstance(value, int) else float.__float__(value)
    if is_dataclass(kind):
        return {one.name: getattr(value, one.name) for one in fields(kind)}
    hint = next((hint for kinds, hint in _HINTS if isinstance(value, kinds)), "")
    raise NoJsonForm(f"is of type {kind.__name__}, which JSON does not have{hint}")


def short_repr(value: Any) -> str:
    """Return the start of the `repr` of any value, also of one that is huge, too deep or broken."""
    try:
        return _SHORT.repr(value)[:_MAX_SHOWN]
    except Exception:  # noqa: BLE001 - the code of a class of the caller
        return f"<{type(value).__name__}>"
