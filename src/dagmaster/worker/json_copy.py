"""Copy a value as plain JSON before it is stored or sent.

A copy, because a handler may keep changing what it returned or received. What has one obvious form in JSON
gets it; any other value that is not JSON is an error with its path.
"""

from __future__ import annotations

import json
import math
from collections.abc import Mapping
from typing import Any

from dagmaster.engine.expressions.json_values import MAX_INTEGER_BITS, MAX_JSON_DEPTH
from dagmaster.engine.json_size import MAX_OUTPUT_BYTES
from dagmaster.errors import PermanentError
from dagmaster.errors.source_map import format_path, truncate
from dagmaster.sdk.json_forms import NoJsonForm, json_form, short_repr

MAX_PATH_SHOWN = 200

# The most bytes of one item without its characters, `"":-1.7976931348623157e+308,`, and of one character,
# `\u0001`.
_BYTES_A_VALUE = 30
_BYTES_A_CHARACTER = 6
_FIXED: frozenset[Any] = frozenset({bool, type(None)})
_SMALL = 2**63
# Up to this many items, checking each is cheaper than collecting the types of all; at 16 it is equal
# (2026-11).
_FEW = 8
_TOO_LARGE = f"is larger than {MAX_OUTPUT_BYTES // 1024 // 1024} MiB"


def json_copy(value: Any, *, kind: str, subject: str) -> Any:
    """Return the value as new dicts and lists of JSON types; raise PermanentError about `subject`."""
    copier = _Copier()
    try:
        copied = copier.copy(value, 1)
        if copier.upper_bound() > MAX_OUTPUT_BYTES:
            _measure(copied)
    except _NotJsonError as wrong:
        path = truncate(format_path(tuple(reversed(wrong.path))), MAX_PATH_SHOWN)
        place = f"{subject}: `{path}`" if path else subject
        raise PermanentError(f"{place} {wrong.message}", kind=kind, path=path) from None
    return copied


class _NotJsonError(Exception):
    """Raised where the bad value is; each level on the way up adds its key.

    A good value pays for no path.
    """

    def __init__(self, message: str) -> None:
        super().__init__(message)
        self.message = message
        self.path: list[str | int] = []


class _Copier:
    """Copies one value and counts it.

    The count is cheap; the exact size is measured only if it could be too much.
    """

    __slots__ = ("characters", "values")

    def __init__(self) -> None:
        self.values = 0
        self.characters = 0

    def upper_bound(self) -> int:
        return self.values * _BYTES_A_VALUE + self.characters * _BYTES_A_CHARACTER

    def copy(self, value: Any, depth: int) -> Any:
        kind = value.__class__
        if kind is str:
            return self._text(value)
        if kind is list:
            return self._array(value, depth)
        if kind is dict:
            return self._object(value, depth)
        if kind in _FIXED:
            return value
        if kind is int:
            return self._integer(value)
        if kind is float:
            if not math.isfinite(value):
                raise _NotJsonError(f"is {value}, which is not a valid JSON number")
            return value
        return self._convert_subclass(value, depth)

    def _object(self, value: Mapping[Any, Any], depth: int) -> dict[str, Any]:
        self._count(len(value), depth)
        copied: dict[str, Any] = {}
        key: Any = ""
        try:
            for key, item in value.items():
                name = self._text(key if key.__class__ is str else _key(key))
                # Most values are small integers, and a call costs more than this check.
                small = item.__class__ is int and -_SMALL <= item < _SMALL
                copied[name] = item if small else self.copy(item, depth + 1)
        except _NotJsonError as wrong:
            wrong.path.append(key if isinstance(key, str) else short_repr(key))
            raise
        return copied

    def _array(self, value: list[Any], depth: int) -> list[Any]:
        self._count(len(value), depth)
        if len(value) > _FEW and _plain_numbers(value):
            return value.copy()
        copied: list[Any] = []
        try:
            for item in value:
                small = item.__class__ is int and -_SMALL <= item < _SMALL
                copied.append(item if small else self.copy(item, depth + 1))
        except _NotJsonError as wrong:
            wrong.path.append(len(copied))
            raise
        return copied

    def _text(self, value: str) -> str:
        self.characters += len(value)
        if not value.isascii():
            try:
                value.encode()
            except UnicodeEncodeError:
                raise _NotJsonError("has an unpaired surrogate") from None
        if "\0" in value:
            raise _NotJsonError("has a NUL character, which PostgreSQL cannot store")
        return value

    def _integer(self, value: int) -> int:
        if -_SMALL <= value < _SMALL:
            return value
        if value.bit_length() > MAX_INTEGER_BITS:
            raise _NotJsonError(f"is a number of more than {MAX_INTEGER_BITS} bits")
        self.characters += value.bit_length() // 3
        return value

    def _convert_subclass(self, value: Any, depth: int) -> Any:
        """Convert tuples, subclasses of JSON types (OrderedDict, numpy's float64), dates, models, etc."""
        if isinstance(value, str):
            return self._text(str.__str__(value))
        if isinstance(value, int):
            return self._integer(int.__int__(value))
        if isinstance(value, float):
            return self.copy(float.__float__(value), depth)
        if isinstance(value, Mapping):
            return self._object(value, depth)
        if isinstance(value, list | tuple):
            return self._array(list(value), depth)
        try:
            form = json_form(value)
        except NoJsonForm as reason:
            raise _NotJsonError(str(reason)) from None
        return self.copy(form, depth)

    def _count(self, values: int, depth: int) -> None:
        if depth > MAX_JSON_DEPTH:
            raise _NotJsonError(f"is nested deeper than {MAX_JSON_DEPTH} levels, or contains itself")
        self.values += values
        # An item has at least one character and a comma. Shared parts can be endless without being deep.
        if self.values * 2 + self.characters > MAX_OUTPUT_BYTES:
            raise _NotJsonError(_TOO_LARGE)


def _plain_numbers(value: list[Any]) -> bool:
    """Return whether a list has only small integers or finite floats, and needs no check per item."""
    kinds = set(map(type, value))
    if kinds == {int}:
        return bool(min(value) >= -_SMALL and max(value) < _SMALL)
    return kinds == {float} and all(map(math.isfinite, value))


def _key(key: Any) -> str:
    if isinstance(key, str):
        return str.__str__(key)
    raise _NotJsonError(f"is a key of type {type(key).__name__}, and keys are text")


def _measure(value: Any) -> None:
    if len(json.dumps(value, ensure_ascii=False, separators=(",", ":")).encode()) > MAX_OUTPUT_BYTES:
        raise _NotJsonError(_TOO_LARGE)
