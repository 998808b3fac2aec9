"""Bound the matching time of untrusted regular expressions.

Python's matcher backtracks. The number of ways to match a part is bounded from above by `factor * n **
degree` for a text of n characters. A repetition of something ambiguous has no such bound, and is rejected.
"""

from __future__ import annotations

import re
from functools import lru_cache
from re import _parser  # type: ignore[attr-defined,unused-ignore]
from typing import Any, Final, NamedTuple

MAX_PATTERN_TEXT: Final = 10_000
"""Characters of a text that a pattern is tried on, at most."""

_MAX_PATHS: Final = 30_000_000
_SHORTEST: Final = 64
# A repetition up to here has that many ways to match; a longer one is treated as unbounded.
_FEW: Final = 16
_REPEATS: Final = ("MAX_REPEAT", "MIN_REPEAT", "POSSESSIVE_REPEAT")
_SINGLE: Final = ("LITERAL", "NOT_LITERAL", "ANY", "IN")
_SPACES: Final = "".join(chr(code) for code in range(0x3001) if chr(code).isspace())
_CATEGORIES: Final = {"DIGIT": r"\d", "SPACE": r"\s", "WORD": r"\w"}

_Items = list[tuple[Any, Any]]


class _MatchBound(NamedTuple):
    factor: int
    degree: int


_ONE: Final = _MatchBound(1, 0)


class _UnboundedError(Exception):
    """A repetition of something that can match in several ways."""


@lru_cache(maxsize=1024)
def longest_text(pattern: str) -> int:
    """Return the longest text that matches in bounded time; 0 if unbounded.

    Raise `re.error` for an invalid pattern.
    """
    re.compile(pattern)
    items = _flatten(_parser.parse(pattern))
    is_anchored = bool(items) and str(items[0][0]) == "AT" and "BEGINNING" in str(items[0][1])
    try:
        factor, degree = _bound(items, None)
    except _UnboundedError:
        return 0
    degree += not is_anchored
    if factor > _MAX_PATHS:
        return 0
    longest = MAX_PATTERN_TEXT if not degree else int((_MAX_PATHS / factor) ** (1 / degree))
    return min(longest, MAX_PATTERN_TEXT) if longest >= _SHORTEST else 0


def _flatten(parsed: Any) -> _Items:
    """Return the items in sequence, with groups flattened."""
    items: _Items = []
    for kind, value in parsed:
        items += _flatten(value[-1]) if str(kind) == "SUBPATTERN" else [(kind, value)]
    return items


def _bound(items: _Items, after: tuple[Any, Any] | None) -> _MatchBound:
    """Bound the ways to match a sequence before the item that must follow it."""
    factor, degree = _ONE
    for index, (kind, value) in enumerate(items):
        following = items[index + 1] if index + 1 < len(items) else after
        more = _bound_of(str(kind), value, following)
        factor, degree = min(factor * more.factor, _MAX_PATHS + 1), degree + more.degree
    return _MatchBound(factor, degree)


def _bound_of(kind: str, value: Any, following: tuple[Any, Any] | None) -> _MatchBound:
    if kind in _REPEATS:
        return _bound_of_repeat(value[0], value[1], value[2], following)
    if kind == "BRANCH":
        return _bound_of_choice([_flatten(item) for item in value[1]], following)
    if kind == "GROUPREF_EXISTS":
        return _bound_of_choice([_flatten(item) for item in value[1:] if item is not None], following)
    if kind in ("ASSERT", "ASSERT_NOT"):
        return _bound(_flatten(value[1]), None)
    return _bound(_flatten(value), following) if kind == "ATOMIC_GROUP" else _ONE


def _bound_of_repeat(
    minimum: int, maximum: Any, parsed: Any, following: tuple[Any, Any] | None
) -> _MatchBound:
    body = _flatten(parsed)
    count = _MatchBound(int(maximum) - minimum + 1, 0) if int(maximum) - minimum < _FEW else _MatchBound(1, 1)
    if len(body) == 1 and str(body[0][0]) in _SINGLE:
        return _ONE if following is not None and _are_disjoint(body[0], following) else count
    if int(maximum) <= 1:
        inside = _bound(body, following)
        return _MatchBound(inside.factor * count.factor, inside.degree)
    if not body or parsed.getwidth()[0] == 0:
        raise _UnboundedError
    if _bound(body, body[0]) == _ONE:
        # Consecutive iterations are unambiguous. A partial last one adds no more ways than their number does.
        return _MatchBound(count.factor, 1) if _bound(body, None) != _ONE else count
    inside = _bound(body, None)
    if int(maximum) > _FEW or inside.degree:
        raise _UnboundedError
    return _MatchBound(min(inside.factor ** int(maximum) * count.factor, _MAX_PATHS + 1), 0)


def _bound_of_choice(choices: list[_Items], following: tuple[Any, Any] | None) -> _MatchBound:
    """Bound the ways to match an alternation.

    If alternatives start with different letters, at most one is explored.
    """
    every = [_bound(choice, following) for choice in choices]
    begins = {chr(choice[0][1]).casefold() for choice in choices if choice and str(choice[0][0]) == "LITERAL"}
    factors = [bound.factor for bound in every]
    return _MatchBound(
        max(factors) if len(begins) == len(choices) else sum(factors), max(bound.degree for bound in every)
    )


def _are_disjoint(one: tuple[Any, Any], other: tuple[Any, Any]) -> bool:
    """Return whether no text starts with both, so that the boundary between them is unambiguous."""
    if str(other[0]) in _REPEATS and other[1][0] > 0:
        inside = _flatten(other[1][2])
        return bool(inside) and _are_disjoint(one, inside[0])
    for this, that in ((one, other), (other, one)):
        letters = _letters(this)
        if letters and str(that[0]) in _SINGLE:
            spelled = {variant for letter in letters for variant in (letter, letter.lower(), letter.upper())}
            return not any(_matches(that, variant) for variant in spelled if len(variant) == 1)
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


def _matches(item: tuple[Any, Any], letter: str) -> bool:
    kind, value = str(item[0]), item[1]
    if kind == "IN":
        is_negated = str(value[0][0]) == "NEGATE"
        return any(_matches(item, letter) for item in value[is_negated:]) != is_negated
    if kind == "RANGE":
        return bool(value[0] <= ord(letter) <= value[1])
    if kind == "CATEGORY":
        name = str(value).removeprefix("CATEGORY_")
        matches = re.match(_CATEGORIES.get(name.removeprefix("NOT_"), "."), letter, re.DOTALL) is not None
        return matches != name.startswith("NOT_")
    if kind in ("LITERAL", "NOT_LITERAL"):
        return bool(value == ord(letter)) == (kind == "LITERAL")
    return True
