"""The types of JSON values, and the strict reading of JSON."""

from __future__ import annotations

import json
import math
from collections import Counter
from typing import TypeAlias

JsonValue: TypeAlias = "bool | int | float | str | list[JsonValue] | dict[str, JsonValue] | None"
JsonObject: TypeAlias = dict[str, JsonValue]


def read_json(text: str) -> JsonValue:
    """Parse JSON strictly; raise ValueError for NaN, overflowing numbers (1e999) and duplicate keys."""
    value: JsonValue = json.loads(
        text, parse_float=_parse_float, parse_constant=_reject_constant, object_pairs_hook=_reject_duplicates
    )
    return value


def _reject_constant(name: str) -> JsonValue:
    raise ValueError(f"{name} is not JSON")


def _parse_float(text: str) -> float:
    value = float(text)
    if math.isinf(value):
        raise ValueError(f"the number {text[:50]} is too large")
    return value


def _reject_duplicates(pairs: list[tuple[str, JsonValue]]) -> JsonObject:
    mapping = dict(pairs)
    if len(mapping) < len(pairs):
        ((key, _),) = Counter(key for key, _ in pairs).most_common(1)
        raise ValueError(f"key {key[:100]!r} appears twice")
    return mapping
