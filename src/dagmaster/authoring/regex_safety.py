"""Bound the matching time of untrusted regular expressions.

Python's matcher backtracks. The ways to match a part are bounded from above by `factor * n ** degree` for a text of n
characters. A repetition of something ambiguous has no such bound, and is rejected.
"""

from __future__ import annotations

import re
from functools import lru_cache
from re import _parser  # type: ignore[attr-defined]
from typing import Any, Final, NamedTuple

MAX_PATTERN_TEXT: Final = 10_000
"""Characters of a text that a pattern is tried on, at most."""

_MOST_WAYS: Final = 30_000_000
_SHORTEST: Final = 64
# A repetition up to here has so many ways; a longer one may as well be endless.
_FEW: Final = 16
_REPEATS: Final = ("MAX_REPEAT", "MIN_REPEAT", "POSSESSIVE_REPEAT")
_SINGLE: Final = ("LITERAL", "NOT_LITERAL", "ANY", "IN")
_SPACES: Final = "".join(chr(code) for code in range(0x3001) if chr(code).isspace())
_CATEGORIES: Final = {"DIGIT": r"\d", "SPACE": r"\s", "WORD": r"\w"}

_Items = list[tuple[Any, Any]]


class _Ways(NamedTuple):
    factor: int
    degree: int


_ONE: Final = _Ways(1, 0)


class _EndlessError(Exception):
    """A repetition of something that can match in several ways."""


@lru_cache(maxsize=1024)
def longest_text(pattern: str) -> int:
    """Return the longest text that matches in bounded time; 0 if unbounded. Raise `re.error` for an invalid pattern."""
    re.compile(pattern)
    items = _flat(_parser.parse(pattern))
    is_anchored = bool(items) and str(items[0][0]) == "AT" and "BEGINNING" in str(items[0][1])
    try:
        factor, degree = _ways(items, None)
    except _EndlessError:
        return 0
    degree += not is_anchored
    if factor > _MOST_WAYS:
        return 0
    longest = MAX_PATTERN_TEXT if not degree else int((_MOST_WAYS / factor) ** (1 / degree))
    return min(longest, MAX_PATTERN_TEXT) if longest >= _SHORTEST else 0


def _flat(parsed: Any) -> _Items:
    """Return the items in sequence, with groups flattened."""
    items: _Items = []
    for kind, value in parsed:
        items += _flat(value[-1]) if str(kind) == "SUBPATTERN" else [(kind, value)]
    return items


def _ways(items: _Items, after: tuple[Any, Any] | None) -> _Ways:
    """Count the ways to match a sequence before the item that must follow it."""
    factor, degree = _ONE
    for index, (kind, value) in enumerate(items):
        following = items[index + 1] if index + 1 < len(items) else after
        more = _ways_of(str(kind), value, following)
        factor, degree = min(factor * more.factor, _MOST_WAYS + 1), degree + more.degree
    return _Ways(factor, degree)


def _ways_of(kind: str, value: Any, following: tuple[Any, Any] | None) -> _Ways:
    if kind in _REPEATS:
        return _ways_of_repeat(value[0], value[1], value[2], following)
    if kind == "BRANCH":
        return _ways_of_choice([_flat(item) for item in value[1]], following)
    if kind == "GROUPREF_EXISTS":
        return _ways_of_choice([_flat(item) for item in value[1:] if item is not None], following)
    if kind in ("ASSERT", "ASSERT_NOT"):
        return _ways(_flat(value[1]), None)
    return _ways(_flat(value), following) if kind == "ATOMIC_GROUP" else _ONE


def _ways_of_repeat(minimum: int, maximum: Any, parsed: Any, following: tuple[Any, Any] | None) -> _Ways:
    body = _flat(parsed)
    count = _Ways(int(maximum) - minimum + 1, 0) if int(maximum) - minimum < _FEW else _Ways(1, 1)
    if len(body) == 1 and str(body[0][0]) in _SINGLE:
        return _ONE if following is not None and _are_disjoint(body[0], following) else count
    if int(maximum) <= 1:
        inside = _ways(body, following)
        return _Ways(inside.factor * count.factor, inside.degree)
    if not body or parsed.getwidth()[0] == 0:
        raise _EndlessError
    if _ways(body, body[0]) == _ONE:
        # Each round can be told from the next. How much of the last one there is adds no more than their number does.
        return _Ways(count.factor, 1) if _ways(body, None) != _ONE else count
    inside = _ways(body, None)
    if int(maximum) > _FEW or inside.degree:
        raise _EndlessError
    return _Ways(min(inside.factor ** int(maximum) * count.factor, _MOST_WAYS + 1), 0)


def _ways_of_choice(choices: list[_Items], following: tuple[Any, Any] | None) -> _Ways:
    """Count the ways to match an alternation. If alternatives start with different letters, at most one is explored."""
    every = [_ways(choice, following) for choice in choices]
    begins = {chr(choice[0][1]).casefold() for choice in choices if choice and str(choice[0][0]) == "LITERAL"}
    factors = [ways.factor for ways in every]
    return _Ways(max(factors) if len(begins) == len(choices) else sum(factors), max(ways.degree for ways in every))


def _are_disjoint(one: tuple[Any, Any], other: tuple[Any, Any]) -> bool:
    """Return whether no text starts with both, so that the boundary between them is unambiguous."""
    if str(other[0]) in _REPEATS and other[1][0] > 0:
        inside = _flat(other[1][2])
        return bool(inside) and _are_disjoint(one, inside[0])
    for this, that in ((one, other), (other, one)):
        letters = _letters(this)
        if letters and str(that[0]) in _SINGLE:
            spelled = {variant for letter in letters for variant in (letter, letter.lower(), letter.upper())}
            return not any(_has(that, variant) for variant in spelled if len(variant) == 1)
    return False


def _letters(item: tuple[Any, Any]) -> str:
    """Return the characters the item matches, if they are few; else nothing."""
    kind, value = str(item[0]), item[1]
    if kind == "LITERAL":
        return chr(value)
    if kind == "RANGE" and value[1] - value[0] < _FEW * _FEW:
        return "".join(map(chr, range(value[0], value[1] + 1)))
    if kind == "CATEGORY" and str(value) == "CATEGORY_SPACE":
        return _SPACES
    inside = [_letters(item) for item in value] if kind == "IN" else []
    return "".join(inside) if all(inside) else ""


def _has(item: tuple[Any, Any], letter: str) -> bool:
    """Return whether the item matches a letter."""
    kind, value = str(item[0]), item[1]
    if kind == "IN":
        is_negated = str(value[0][0]) == "NEGATE"
        return any(_has(item, letter) for item in value[is_negated:]) != is_negated
    if kind == "RANGE":
        return bool(value[0] <= ord(letter) <= value[1])
    if kind == "CATEGORY":
        name = str(value).removeprefix("CATEGORY_")
        matches = re.match(_CATEGORIES.get(name.removeprefix("NOT_"), "."), letter, re.DOTALL) is not None
        return matches != name.startswith("NOT_")
    if kind in ("LITERAL", "NOT_LITERAL"):
        return bool(value == ord(letter)) == (kind == "LITERAL")
    return True
