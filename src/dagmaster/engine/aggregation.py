"""Aggregation of outputs by a fan-in. Plain functions on JSON values."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING, Any

from dagmaster.engine.graph import Aggregation

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from dagmaster.json_types import JsonObject, JsonValue


def aggregate(
    mode: Aggregation, outputs: Sequence[JsonValue], failed: Sequence[JsonValue] = ()
) -> JsonObject:
    """Aggregate the outputs of completed nodes, in index order; `collect_all` gets null for the others."""
    if mode in (Aggregation.COLLECT, Aggregation.COLLECT_ALL):
        collected: JsonObject = {"results": list(outputs), "count": len(outputs)}
        if failed:
            collected["failed"] = list(failed)
        return collected
    if mode is Aggregation.CONCAT:
        joined = [
            item
            for output in _flat(outputs)
            for value in _values(output)
            if isinstance(value, list)
            for item in value
        ]
        return {"results": joined, "count": len(joined)}
    if mode is Aggregation.SUM:
        numbers = [value for output in _flat(outputs) for value in _values(output) if _is_number(value)]
        total = math.fsum(numbers) if any(isinstance(number, float) for number in numbers) else sum(numbers)
        return {"total": total, "count": len(outputs)}
    chosen = outputs[:1] if mode is Aggregation.FIRST else outputs[-1:]
    return {"result": chosen[0] if chosen else None, "count": len(outputs)}


def _flat(outputs: Sequence[JsonValue]) -> Iterator[JsonValue]:
    """Yield the innermost outputs: a nested fan-out's outputs are lists of lists."""
    for output in outputs:
        if isinstance(output, list):
            yield from _flat(output)
        else:
            yield output


def _values(output: Any) -> list[Any]:
    # Keys are sorted: a stored JSON object does not keep its key order.
    return [output[key] for key in sorted(output)] if isinstance(output, dict) else []


def _is_number(value: JsonValue) -> bool:
    return isinstance(value, int | float) and not isinstance(value, bool)
