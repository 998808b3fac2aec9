"""JSON values as expressions see them: their kinds, their bounds, equality, one step into them, and their text.

A size is checked before the value is built. What does not fit is `EvaluationFailed`, with a sentence. This module
does not know Jinja, filters or scopes: it sees values only.
"""

from __future__ import annotations

import json
import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from dagmaster.errors import EvaluationFailed

MAX_TEXT = 1_048_576
"""Characters in a text that an operator, a filter or a template makes."""

MAX_ITEMS = 1_000_000
"""Items in a list that an operator or a filter makes; also the most children that a fan-out has."""

MAX_INTEGER_BITS = 1023
"""Bits of an integer: up to there it has a float, and its digits are far below Python's own limit."""

MAX_JSON_DEPTH = 256
"""Levels of a value that is written as JSON: below the depth at which Python's encoder gives up."""

MAX_KEYS_SHOWN = 20
"""Keys that an error about a missing one names."""

Path = tuple[str | int, ...]
"""Keys from a root to a value."""

NUMBERS: frozenset[Any] = frozenset({int, float})
"""The types of numbers. A boolean is none."""

ABSENT: Any = object()
"""What `pick` answers when there is nothing to pick."""

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
    """A value that is not there. `default` replaces it; anything else fails with the sentence."""

    sentence: str
    path: str = ""


def kind(value: Any) -> str:
    """The type of a value, in the words of `inputs`."""
    if value is None:
        return "null"
    return next((name for types, name in _KINDS if isinstance(value, types)), type(value).__name__)


def bounded(number: Any) -> Any:
    """The number itself, if it is finite and not too large."""
    if number.__class__ is int:
        if number.bit_length() > MAX_INTEGER_BITS:
            raise EvaluationFailed("the number is too large")
    elif not math.isfinite(number):
        raise EvaluationFailed("the result is not a finite number")
    return number


def fits(size: int, limit: int, what: str) -> None:
    """Refuse a value before it is made."""
    if size > limit:
        raise EvaluationFailed(f"the result is too large: more than {limit:,} {what}")


# ── equality ────────────────────────────────────────────────────────────────────────────────────────────────────────


def equal(left: Any, right: Any) -> bool:
    """Equality between JSON values. Unlike types are not equal."""
    # Python's `==` first: it is fast, and it is wrong only where it says yes to `True == 1`.
    if left != right:
        return False
    return isinstance(left, str) or bool(identity(left) == identity(right))


def identity(value: Any) -> Any:
    """A hashable stand-in: two values are equal when theirs are. `true` is not `1`, `1` is `1.0`."""
    if isinstance(value, bool):
        return (bool, value)
    if isinstance(value, list | tuple):
        return (list, tuple(map(identity, value)))
    if isinstance(value, Mapping):
        return (dict, frozenset((key, identity(item)) for key, item in value.items()))
    return value


# ── one step into a value ───────────────────────────────────────────────────────────────────────────────────────────


def pick(value: Any, key: Any) -> Any:
    """`value[key]`: a key of an object, an index or a slice of an array, a slice of a string; else `ABSENT`."""
    if isinstance(value, Mapping):
        return value[key] if isinstance(key, str) and key in value else ABSENT
    if isinstance(value, list | tuple):
        if key.__class__ is int:
            return value[key] if -len(value) <= key < len(value) else ABSENT
        if isinstance(key, slice):
            fits(len(range(*key.indices(len(value)))), MAX_ITEMS, "items")
            return list(value[key])
    if isinstance(value, str) and isinstance(key, slice):
        fits(len(range(*key.indices(len(value)))), MAX_TEXT, "characters")
        return value[key]
    return ABSENT


def missing(value: Any, path: Sequence[Any]) -> Missing:
    """Why the last key of the path is not in this value, which stands at the rest of the path."""
    full, there, key = path_text(path), path_text(path[:-1]), path[-1]
    if isinstance(key, slice):
        why = f"`{there}` is {kind(value)}, which has no slices"
    elif isinstance(value, Mapping) and isinstance(key, str):
        shown = ", ".join(str(name)[:60] for name in list(value)[:MAX_KEYS_SHOWN])
        more = f" and {len(value) - MAX_KEYS_SHOWN} more" if len(value) > MAX_KEYS_SHOWN else ""
        why = f"keys: {shown}{more}" if shown else "there are no keys"
    elif isinstance(value, list | tuple) and key.__class__ is int:
        why = f"`{there}` has {len(value)} items"
    elif isinstance(value, list | tuple | Mapping):
        why = f"`{there}` is {kind(value)}, and {kind(key)} is no key of that"
    else:
        why = f"`{there}` is {kind(value)}, which has no keys"
    return Missing(f"`{full}` is missing; {why}", full)


def path_text(path: Sequence[Any]) -> str:
    """A path as one writes it: `nodes.y.output.tiles[0]["a b"]`."""
    said = ""
    for key in path:
        if isinstance(key, str) and key.isidentifier():
            said += f".{key}" if said else key
        elif isinstance(key, slice):
            said += "[:]"
        elif isinstance(key, str | int | float | None):
            said += f"[{json.dumps(key, ensure_ascii=False)[:80]}]"
        else:
            said += f"[{kind(key)}]"
    return said


# ── text ────────────────────────────────────────────────────────────────────────────────────────────────────────────


def text_of(value: Any) -> str:
    """A value as it stands in text: a string as it is, everything else as compact JSON."""
    return value if isinstance(value, str) else json_text(value)


def json_text(value: Any, indent: int | None = None) -> str:
    """The value as JSON, compact unless an indent is given. Keys keep their order."""
    _measure(value, indent or 0)
    separators = (",", ":") if indent is None else (",", ": ")
    try:
        # `default=dict`: after the measuring, only a mapping that is not a dict can be unknown to the encoder.
        said = json.dumps(value, ensure_ascii=False, separators=separators, indent=indent, default=dict)
    except (ValueError, RecursionError) as error:
        raise EvaluationFailed(f"the value cannot be written as JSON: {error}") from error
    fits(len(said), MAX_TEXT, "characters")
    return said


def _measure(value: Any, indent: int) -> None:
    """Refuse what is not JSON, too deep, or longer than a text may be, without writing it."""
    size = 0
    waiting: list[tuple[Any, int]] = [(value, 1)]
    while waiting:
        item, depth = waiting.pop()
        if isinstance(item, Mapping | list | tuple):
            if depth > MAX_JSON_DEPTH:
                raise EvaluationFailed(f"the value is nested deeper than {MAX_JSON_DEPTH} levels")
            # A comma and an indent for each item. The bound comes before anything is put on the pile.
            size += 1 + len(item) * (1 + indent * depth)
            fits(size, MAX_TEXT, "characters")
            if isinstance(item, Mapping):
                size += sum(_key_size(key) for key in item)
                waiting.extend((child, depth + 1) for child in item.values())
            else:
                waiting.extend((child, depth + 1) for child in item)
        else:
            size += _scalar_size(item)
        fits(size, MAX_TEXT, "characters")


def _key_size(key: Any) -> int:
    if isinstance(key, str):
        return len(key) + 3
    raise EvaluationFailed(f"a key of an object is a string, not {kind(key)}")


def _scalar_size(value: Any) -> int:
    if isinstance(value, str):
        return len(value) + 2
    if value is None or isinstance(value, bool):
        return 4
    if value.__class__ in NUMBERS:
        bounded(value)
        return 1 if isinstance(value, float) else 1 + value.bit_length() * 3 // 10
    raise EvaluationFailed(f"{kind(value)} is not a JSON value")
