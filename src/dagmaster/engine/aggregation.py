"""Aggregation of outputs by a fan-in. Plain functions on JSON values."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING, Any, assert_never

from dagmaster.engine.graph import Aggregation

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from dagmaster.json_types import JsonObject, JsonValue


def aggregate(
    mode: Aggregation, outputs: Sequence[JsonValue], failed: Sequence[JsonValue] = ()
) -> JsonObject:
    """Aggregate the outputs of completed nodes, in index order; `collect_all` gets null for the others."""
    match mode:
        case Aggregation.CONCAT:
            return _concat(outputs)
        case Aggregation.SUM:
            return {"total": _sum(outputs), "count": len(outputs)}
        case Aggregation.FIRST:
            return {"result": next(iter(outputs), None), "count": len(outputs)}
        case Aggregation.LAST:
            return {"result": next(reversed(outputs), None), "count": len(outputs)}
        case Aggregation.COLLECT | Aggregation.COLLECT_ALL:
            return _collect(outputs, failed)
        case _:
            assert_never(mode)


def _collect(outputs: Sequence[JsonValue], failed: Sequence[JsonValue]) -> JsonObject:
    collected: JsonObject = {"results": list(outputs), "count": len(outputs)}
    if failed:
        collected["failed"] = list(failed)
    return collected


def _concat(outputs: Sequence[JsonValue]) -> JsonObject:
    lists = (value for value in _all_values(outputs) if isinstance(value, list))
    joined = [item for values in lists for item in values]
    return {"results": joined, "count": len(joined)}


def _sum(outputs: Sequence[JsonValue]) -> JsonValue:
    numbers = [value for value in _all_values(outputs) if _is_number(value)]
    # `fsum` adds no rounding errors, but turns a sum of whole numbers into a float.
    has_fraction = any(isinstance(number, float) for number in numbers)
    return math.fsum(numbers) if has_fraction else sum(numbers)


def _all_values(outputs: Sequence[JsonValue]) -> Iterator[Any]:
    for output in _flat(outputs):
        if isinstance(output, dict):
            # Keys are sorted: a stored JSON object does not keep its key order.
            for key in sorted(output):
                yield output[key]


def _flat(outputs: Sequence[JsonValue]) -> Iterator[JsonValue]:
    """Yield the innermost outputs: a nested fan-out's outputs are lists of lists."""
    for output in outputs:
        if isinstance(output, list):
            yield from _flat(output)
        else:
            yield output


def _is_number(value: JsonValue) -> bool:
    return isinstance(value, int | float) and not isinstance(value, bool)
