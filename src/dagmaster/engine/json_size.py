"""The size of a value when it is written as JSON. Shared parts count once for each occurrence."""

from __future__ import annotations

import reprlib
from typing import TYPE_CHECKING, Final

from dagmaster.engine.expressions.json_values import MAX_JSON_DEPTH
from dagmaster.errors import EvaluationFailed

if TYPE_CHECKING:
    from collections.abc import Iterable

    from dagmaster.json_types import JsonValue

# The largest output of any node.
MAX_OUTPUT_BYTES: Final = 256 * 1024 * 1024
_NUMBER: Final = 8


def check_size(value: JsonValue, name: str) -> None:
    """Raise `EvaluationFailed` if a value is larger or nested deeper than an output may be.

    Values built from other values share their parts, so a few nodes could exceed any store. Each shared part
    is measured once: the cost is that of the value in memory, not of its JSON text.
    """
    _Measure(name).size(value, 0)


class _Measure:
    """One measurement.

    Keeps the size and the height of each container by its `id`, which is stable during the call.
    """

    __slots__ = ("_known", "_name")

    def __init__(self, name: str) -> None:
        self._name = name
        self._known: dict[int, tuple[int, int]] = {}

    def size(self, value: JsonValue, depth: int) -> tuple[int, int]:
        if isinstance(value, str):
            return len(value) + 2, 0
        if not isinstance(value, list | dict):
            return _NUMBER, 0
        known = self._known.get(id(value))
        if known is None:
            known = self._known[id(value)] = self._measure(value, depth)
        size, height = known
        if depth + height > MAX_JSON_DEPTH:
            self._too_deep()
        if size > MAX_OUTPUT_BYTES:
            raise EvaluationFailed(f"{self._name} is larger than {MAX_OUTPUT_BYTES // 2**20} MiB as JSON")
        return known

    def _measure(self, container: list[JsonValue] | dict[str, JsonValue], depth: int) -> tuple[int, int]:
        if depth >= MAX_JSON_DEPTH:
            self._too_deep()
        size, height = 2, 0
        items: Iterable[JsonValue] = container
        if isinstance(container, dict):
            items = container.values()
            size += sum(len(key) + 3 for key in container)
        for item in items:
            # No call for a text or a number: a list of 100,000 results is mostly these.
            kind = type(item)
            if kind is str:
                size += len(item) + 3  # type: ignore[arg-type]
            elif kind is not dict and kind is not list and not isinstance(item, str | list | dict):
                size += _NUMBER + 1
            else:
                inner, below = self.size(item, depth + 1)
                size += inner + 1
                height = max(height, below)
        return size, height + bool(container)

    def _too_deep(self) -> None:
        raise EvaluationFailed(f"{self._name} is nested deeper than {MAX_JSON_DEPTH} levels")


_PREVIEW_CHARACTERS: Final = 200


def preview(value: JsonValue) -> str:
    """Format the beginning of a value for a message, without formatting all of it."""
    if isinstance(value, str):
        return repr(value[:_PREVIEW_CHARACTERS])
    return reprlib.repr(value)[:_PREVIEW_CHARACTERS]
