"""Describe any object and truncate any value, for errors that are stored and shown.

A handler's exception may contain anything: objects whose `repr` fails, endless lists, megabytes. Nothing here
raises.
"""

from __future__ import annotations

import json
import math
from bisect import bisect_right
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

from dagmaster.engine.expressions.json_values import MAX_INTEGER_BITS
from dagmaster.text_format import storable_text

if TYPE_CHECKING:
    from collections.abc import Callable

    from dagmaster.json_types import JsonObject, JsonValue

MAX_DETAILS = 16 * 1024
"""The most characters of JSON, all ASCII, in the details of one error."""

MAX_TEXT = 2_000
MAX_KEY = 200
MAX_DEPTH = 16

CUT = "…"
"""Stands for what was left out: at the end of a text or a list, or as a key."""

# As `json.dumps` writes them: `"\u2026"`; a pair's `: ` and `, `; brackets, with space for a last `"\u2026":
# "\u2026"`.
_CUT_COST = 8
_PAIR_COST = 4
_OPEN_COST = 2 + 2 * _CUT_COST + _PAIR_COST

_name: Callable[[type], str] = type.__dict__["__name__"].__get__


def type_name(value: object) -> str:
    """Return the name of its type, whatever its metaclass does."""
    return storable_text(_name(type(value))[:MAX_KEY])


def describe(value: object, by: Callable[[Any], str] = str) -> str:
    """Return `str` or `repr` of a value; the name of its type if that fails."""
    try:
        return str.__str__(by(value))
    except BaseException:  # noqa: BLE001 - a handler's object may raise anything
        return type_name(value)


def truncate_details(details: object) -> JsonObject:
    """Return a dict as JSON of at most MAX_DETAILS characters.

    Values that are not JSON become their `repr`.
    """
    kept: JsonObject = {}
    try:
        if isinstance(details, Mapping):
            # One detail gets at most half of the space left, so that a long one does not displace those after
            # it.
            _fill(kept, details, MAX_DETAILS, 1, share=2)
    except BaseException:  # noqa: BLE001 - as above
        kept[CUT] = CUT
    return kept


def _clip(value: Any, space: int, depth: int) -> tuple[Any, int]:
    """Return the value truncated to `space` characters (at least _CUT_COST), and its length."""
    try:
        return _clip_kind(value, space, depth)
    except BaseException:  # noqa: BLE001 - as above
        return _clip_text(type_name(value), space)


def _clip_kind(value: Any, space: int, depth: int) -> tuple[Any, int]:
    if value is None or isinstance(value, bool):
        return value, _CUT_COST
    if isinstance(value, str):
        return _clip_text(value, space)
    if isinstance(value, int):
        number = int.__int__(value)
        if number.bit_length() <= MAX_INTEGER_BITS:
            return _clip_number(number, space)
    elif isinstance(value, float):
        if math.isfinite(value):
            return _clip_number(float.__float__(value), space)
    elif isinstance(value, Mapping | list | tuple):
        if depth > MAX_DEPTH or space < _OPEN_COST:
            return CUT, _CUT_COST
        kept: JsonObject | list[JsonValue] = {} if isinstance(value, Mapping) else []
        return kept, _fill(kept, value, space, depth)
    return _clip_text(describe(value, repr), space)


def _clip_number(number: float, space: int) -> tuple[Any, int]:
    cost = len(json.dumps(number))
    return (number, cost) if cost <= space else (CUT, _CUT_COST)


def _clip_text(text: str, space: int, max_characters: int = MAX_TEXT) -> tuple[str, int]:
    # Truncated first: cleaning makes no text shorter, and a huge text should not be copied.
    short = storable_text(str.__getitem__(text, slice(max_characters + 1)))
    cost = len(json.dumps(short))
    if len(short) <= max_characters and cost <= space:
        return short, cost
    short = short[: max_characters - 1]
    fits = bisect_right(range(1, len(short) + 1), space, key=lambda end: len(json.dumps(short[:end] + CUT)))
    return short[:fits] + CUT, len(json.dumps(short[:fits] + CUT))


def _fill(kept: dict[str, Any] | list[Any], value: Any, space: int, depth: int, *, share: int = 1) -> int:
    """Fill in what fits, with a mark if something was left out; return the length."""
    spent = _OPEN_COST
    whole = True
    try:
        for item in value.items() if isinstance(kept, dict) else value:
            key, item_cost = "", _PAIR_COST
            if isinstance(kept, dict):
                key, key_cost = _clip_text(
                    item[0] if isinstance(item[0], str) else describe(item[0]), MAX_DETAILS, MAX_KEY
                )
                item_cost += key_cost
            left = space - spent - item_cost
            if left < _CUT_COST:
                whole = False
                break
            one, cost = _clip(
                item[1] if isinstance(kept, dict) else item, max(left // share, _CUT_COST), depth + 1
            )
            spent += item_cost + cost
            if isinstance(kept, dict):
                kept[key] = one
            else:
                kept.append(one)
    except BaseException:  # noqa: BLE001 - as above
        whole = False
    if not whole and isinstance(kept, dict):
        kept[CUT] = CUT
    elif not whole and isinstance(kept, list):
        kept.append(CUT)
    return spent
