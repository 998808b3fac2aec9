"""Suggest the nearest valid name for a misspelt one.

Names come from callers, and difflib's cost grows with the product of the lengths: every suggestion is
bounded by `LONGEST_NAME` and `MAX_CANDIDATES`. Who checks many names asks for at most `MAX_HINTS`
suggestions.
"""

from __future__ import annotations

from difflib import get_close_matches
from heapq import nsmallest
from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    from collections.abc import Iterable

LONGEST_NAME: Final = 64
"""A longer text is no misspelt name."""
MAX_CANDIDATES: Final = 200
"""Names that one suggestion compares. Of more, those with the same first letter and a similar length."""
MAX_HINTS: Final = 3
"""Suggestions for the names of one request or document."""
# A shorter abbreviation is ambiguous: `de` could be anything.
SHORTEST_PREFIX = 3
FEW_NAMES = 12


def nearest(wrong: str, right: Iterable[str]) -> str | None:
    """Return the nearest name, or None. Case is ignored; `-` and spaces equal `_`."""
    if not wrong or len(wrong) > LONGEST_NAME:
        return None
    folded: dict[str, str] = {}
    for name in sorted(right):
        if len(name) <= LONGEST_NAME:
            folded.setdefault(_folded(name), name)
    key = _folded(wrong)
    close = get_close_matches(key, _candidates(key, folded), n=1)
    if close:
        return folded[close[0]]
    return _abbreviated(key, folded)


def did_you_mean(wrong: str, right: Iterable[str]) -> str:
    """Return a hint: `did you mean 'queue'?`, the valid names if they are few, or nothing."""
    names = sorted(set(right))
    near = nearest(wrong, names)
    if near is not None:
        return f"did you mean {near!r}?"
    if 0 < len(names) <= FEW_NAMES:
        return f"one of: {', '.join(names)}"
    return ""


def similar_handlers(wrong: str, names: Iterable[str]) -> list[str]:
    """Return the names of handlers that may be meant: of the same module, and similar ones of others."""
    module, _, function = wrong.rpartition(".")
    if not module:
        return list(names)
    parts = [(name, *name.rpartition(".")[::2]) for name in names]
    return [
        name
        for name, *other in parts
        if other[0] == module or all(map(_are_similar, (module, function), other))
    ]


def _are_similar(wrong: str, right: str) -> bool:
    return nearest(wrong, [right]) is not None


def _candidates(key: str, folded: dict[str, str]) -> list[str]:
    if len(folded) <= MAX_CANDIDATES:
        return list(folded)
    return nsmallest(
        MAX_CANDIDATES, folded, key=lambda name: (name[:1] != key[:1], abs(len(name) - len(key)), name)
    )


def _folded(name: str) -> str:
    return name.casefold().replace("-", "_").replace(" ", "_")


def _abbreviated(key: str, folded: dict[str, str]) -> str | None:
    """Return the only name with the same beginning: `desc` for `description`, `retry_policy` for `retry`."""
    begins = [
        name
        for spelled, name in folded.items()
        if min(len(key), len(spelled)) >= SHORTEST_PREFIX
        and (spelled.startswith(key) or key.startswith(spelled))
    ]
    return begins[0] if len(begins) == 1 else None
