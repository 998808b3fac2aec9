"""Values that are drawn as a JSON schema requires."""

from __future__ import annotations

import random
from typing import Any

import pytest

from dagmaster.simulation.value_schema import PAST_TIME, Shape, learn

DAYS = ["2024-02-29", "2025-07-01"]


def drawn(schema: dict[str, Any]) -> set[Any]:
    """Return the values that are drawn of a schema."""
    shape = Shape()
    learn(shape, schema)
    rng = random.Random(1)
    return {shape.draw(rng) for _ in range(50)}


@pytest.mark.parametrize(
    ("more", "values"),
    [({"enum": DAYS}, set(DAYS)), ({"const": DAYS[0]}, {DAYS[0]}), ({}, {"2026-01-31"})],
)
def test_a_date_is_one_of_its_choices(more, values):
    assert drawn({"type": "string", "format": "date", **more}) == values


def test_a_time_is_one_of_its_choices():
    schema = {"type": "string", "format": "date-time"}
    assert drawn(schema) == {PAST_TIME}
    assert drawn({**schema, "enum": ["2020-01-01T00:00:00Z"]}) == {"2020-01-01T00:00:00Z"}
