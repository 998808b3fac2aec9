"""How large a value is when it is written as JSON. Parts that are shared count as often as they stand in it."""

from __future__ import annotations

import reprlib
from typing import Any, Final

from dagmaster.engine.expressions.json_values import MAX_JSON_DEPTH
from dagmaster.errors import EvaluationFailed

# The largest output of a node, whoever makes it.
MAX_OUTPUT_BYTES: Final = 256 * 1024 * 1024
_NUMBER: Final = 8


def check_size(value: Any, what: str) -> None:
    """Refuse a value that is larger or deeper than an output may be.

    Values made of other values share their parts, so a few nodes could name more than fits into any store. Each shared
    part is measured once: the time is that of what is in memory, not of what would be written.
    """
    _Measure(what).size(value, 0)


class _Measure:
    """One measurement. Keeps the size and the height of each container by its identity, which outlives the call."""

    __slots__ = ("_known", "_what")

    def __init__(self, what: str) -> None:
        self._what = what
        self._known: dict[int, tuple[int, int]] = {}

    def size(self, value: Any, depth: int) -> tuple[int, int]:
        """Give the size and the height of a value that stands so deep."""
        if isinstance(value, str):
            return len(value) + 2, 0
        if not isinstance(value, list | dict):
            return _NUMBER, 0
        known = self._known.get(id(value))
        if known is None:
            if depth >= MAX_JSON_DEPTH:
                self._too_deep()
            size, height = 2, 0
            for item in value.values() if isinstance(value, dict) else value:
                inner, below = self.size(item, depth + 1)
                size += inner + 1
                height = max(height, below + 1)
            if isinstance(value, dict):
                size += sum(len(key) + 3 for key in value)
            known = self._known[id(value)] = (size, height)
        if depth + known[1] > MAX_JSON_DEPTH:
            self._too_deep()
        if known[0] > MAX_OUTPUT_BYTES:
            raise EvaluationFailed(f"{self._what} is larger than {MAX_OUTPUT_BYTES // 2**20} MiB as JSON")
        return known

    def _too_deep(self) -> None:
        raise EvaluationFailed(f"{self._what} is nested deeper than {MAX_JSON_DEPTH} levels")


_SHOWN_CHARACTERS: Final = 200


def shown(value: Any) -> str:
    """Spell the beginning of a value for a message, without spelling all of it first."""
    if isinstance(value, str):
        return repr(value[:_SHOWN_CHARACTERS])
    return reprlib.repr(value)[:_SHOWN_CHARACTERS]
