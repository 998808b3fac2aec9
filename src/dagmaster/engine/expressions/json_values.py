"""JSON values in expressions: their types, their bounds, equality, access by key, and their text.

A size is checked before the value is built; a value that is too large raises `EvaluationFailed`. This module
does not know Jinja, filters or scopes.
"""

from __future__ import annotations

import json
import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from dagmaster.errors import EvaluationFailed
from dagmaster.text_format import format_count

if TYPE_CHECKING:
    from dagmaster.json_types import JsonValue

MAX_TEXT = 1_048_576
"""Characters in a text that an operator, a filter or a template creates."""

MAX_ITEMS = 1_000_000
"""Items in a list that an operator or a filter creates; also the most children that a fan-out has."""

MAX_INTEGER_BITS = 1023
"""Bits of an integer: up to there it converts to a float, and its digits are far below Python's own limit."""

MAX_JSON_DEPTH = 256
"""Levels of a value that is written as JSON: below the depth at which Python's encoder fails."""

MAX_KEYS_SHOWN = 20
"""Keys listed in an error about a missing key."""

Path = tuple[str | int, ...]
"""Keys from a root to a value."""

NUMBERS: frozenset[Any] = frozenset({int, float})
"""The types of numbers. A boolean is not a number."""

ABSENT: Any = object()
"""The result of `pick` if there is no such key."""

_KINDS: tuple[tuple[type | tuple[type, ...], str], ...] = (
    (bool, "boolean"),
    (int, "integer"),
    (float, "number"),
    (str, "string"),
    ((list, tuple), "array"),
    (Mapping, "object"),
)


@dataclass(frozen=True, slots=True)
class Missing:
    """A missing value. `default` replaces it; anything else fails with the sentence."""

    sentence: str
    path: str = ""


def json_type(value: Any) -> str:
    if value is None:
        return "null"
    return next((name for types, name in _KINDS if isinstance(value, types)), type(value).__name__)


def bounded(number: Any) -> Any:
    """Return the number if it is finite and not too large, else raise."""
    if number.__class__ is int:
        if number.bit_length() > MAX_INTEGER_BITS:
            raise EvaluationFailed("the number is too large")
    elif not math.isfinite(number):
        raise EvaluationFailed("the result is not a finite number")
    return number


def check_limit(size: int, limit: int, unit: str) -> None:
    """Raise `EvaluationFailed` before a value that is too large is created."""
    if size > limit:
        raise EvaluationFailed(f"the result is too large: more than {limit:,} {unit}")


# ── equality ────────────────────────────────────────────────────────────────────────────────────────────────


def equal(left: JsonValue, right: JsonValue) -> bool:
    """Return whether two JSON values are equal. Values of different types are not."""
    # Python's `==` first: it is fast, and wrong only for `True == 1`.
    if left != right:
        return False
    return isinstance(left, str) or bool(identity(left) == identity(right))


def identity(value: Any) -> Any:
    """Return a hashable key: two values are equal when their keys are. `true` is not `1`, `1` is `1.0`."""
    if isinstance(value, bool):
        return (bool, value)
    if isinstance(value, list | tuple):
        return (list, tuple(map(identity, value)))
    if isinstance(value, Mapping):
        return (dict, frozenset((key, identity(item)) for key, item in value.items()))
    return value


# ── one step into a value ───────────────────────────────────────────────────────────────────────────────────


def pick(value: Any, key: Any) -> Any:
    """Return `value[key]` of an object, an array or a string (slices only); else `ABSENT`."""
    if isinstance(value, Mapping):
        return value[key] if isinstance(key, str) and key in value else ABSENT
    if isinstance(value, list | tuple):
        if key.__class__ is int:
            return value[key] if -len(value) <= key < len(value) else ABSENT
        if isinstance(key, slice):
            check_limit(len(range(*key.indices(len(value)))), MAX_ITEMS, "items")
            return list(value[key])
    if isinstance(value, str) and isinstance(key, slice):
        check_limit(len(range(*key.indices(len(value)))), MAX_TEXT, "characters")
        return value[key]
    return ABSENT


def missing(value: Any, path: Sequence[Any]) -> Missing:
    """Return a `Missing` that says why the last key of the path is not in this value, its parent."""
    full, parent, key = path_text(path), path_text(path[:-1]), path[-1]
    if isinstance(key, slice):
        why = f"`{parent}` is {json_type(value)}, which has no slices"
    elif isinstance(value, Mapping) and isinstance(key, str):
        shown = ", ".join(str(name)[:60] for name in list(value)[:MAX_KEYS_SHOWN])
        more = f" and {len(value) - MAX_KEYS_SHOWN} more" if len(value) > MAX_KEYS_SHOWN else ""
        why = f"keys: {shown}{more}" if shown else "there are no keys"
    elif isinstance(value, list | tuple) and key.__class__ is int:
        why = f"`{parent}` has {format_count(len(value), 'item')}"
    elif isinstance(value, list | tuple | Mapping):
        why = f"`{parent}` is {json_type(value)}, which has no {json_type(key)} keys"
    else:
        why = f"`{parent}` is {json_type(value)}, which has no keys"
    return Missing(f"`{full}` is missing; {why}", full)


def path_text(path: Sequence[Any]) -> str:
    """Format a path: `nodes.y.output.tiles[0]["a b"]`."""
    text = ""
    for key in path:
        if isinstance(key, str) and key.isidentifier():
            text += f".{key}" if text else key
        elif isinstance(key, slice):
            text += "[:]"
        elif isinstance(key, str | int | float | None):
            text += f"[{json.dumps(key, ensure_ascii=False)[:80]}]"
        else:
            text += f"[{json_type(key)}]"
    return text


# ── text ────────────────────────────────────────────────────────────────────────────────────────────────────


def text_of(value: JsonValue) -> str:
    """Format a value inside text: a string as it is, everything else as compact JSON."""
    return value if isinstance(value, str) else json_text(value)


def json_text(value: JsonValue, indent: int | None = None) -> str:
    """Format a value as JSON, compact unless an indent is given. Keys keep their order."""
    _measure(value, indent or 0)
    separators = (",", ":") if indent is None else (",", ": ")
    try:
        # `default=dict`: after the measurement, only a mapping that is not a dict can be unknown to the
        # encoder.
        text = json.dumps(value, ensure_ascii=False, separators=separators, indent=indent, default=dict)
    except (ValueError, RecursionError) as error:
        raise EvaluationFailed(f"the value cannot be written as JSON: {error}") from error
    check_limit(len(text), MAX_TEXT, "characters")
    return text


def _measure(value: JsonValue, indent: int) -> None:
    """Raise `EvaluationFailed` for a value that is not JSON, too deep or too long, without writing it."""
    size = 0
    waiting: list[tuple[JsonValue, int]] = [(value, 1)]
    while waiting:
        item, depth = waiting.pop()
        if isinstance(item, Mapping | list | tuple):
            if depth > MAX_JSON_DEPTH:
                raise EvaluationFailed(f"the value is nested deeper than {MAX_JSON_DEPTH} levels")
            # A comma and an indent for each item. The check comes before anything is pushed on the stack.
            size += 1 + len(item) * (1 + indent * depth)
            check_limit(size, MAX_TEXT, "characters")
            if isinstance(item, Mapping):
                size += sum(_key_size(key) for key in item)
                waiting.extend((child, depth + 1) for child in item.values())
            else:
                waiting.extend((child, depth + 1) for child in item)
        else:
            size += _scalar_size(item)
        check_limit(size, MAX_TEXT, "characters")


def _key_size(key: object) -> int:
    if isinstance(key, str):
        return len(key) + 3
    raise EvaluationFailed(f"a key of an object is a string, not {json_type(key)}")


def _scalar_size(value: Any) -> int:
    if isinstance(value, str):
        return len(value) + 2
    if value is None or isinstance(value, bool):
        return 4
    if value.__class__ in NUMBERS:
        bounded(value)
        return 1 if isinstance(value, float) else 1 + value.bit_length() * 3 // 10
    raise EvaluationFailed(f"{json_type(value)} is not a JSON value")
