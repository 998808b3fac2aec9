"""Values that the engine makes of other values have the bounds of an output."""

from __future__ import annotations

import json
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from dagmaster.engine import json_size
from dagmaster.engine.json_size import check_size, preview
from dagmaster.errors import EvaluationFailed

scalars = st.none() | st.booleans() | st.integers(-(10**6), 10**6) | st.text(max_size=20)
values = st.recursive(
    scalars,
    lambda inner: st.lists(inner, max_size=5) | st.dictionaries(st.text(max_size=5), inner, max_size=5),
)


@given(values)
def test_a_small_value_fits(value):
    check_size(value, "it")


def test_a_value_that_names_its_parts_over_and_over_is_measured_as_it_would_be_written():
    value: Any = ["x" * 1000] * 10
    for _ in range(3):
        value = [value] * 10
    known = json_size._Measure("it").size(value, 0)[0]
    written = len(json.dumps(value))
    assert written * 0.9 < known < written * 1.1


def test_a_few_nodes_cannot_name_more_than_fits_anywhere():
    value: Any = ["x"]
    for _ in range(12):
        value = [value] * 100
    with pytest.raises(EvaluationFailed, match="the result is larger than 256 MiB"):
        check_size(value, "the result")


@pytest.mark.parametrize(("levels", "fits"), [(256, True), (257, False), (100_000, False)])
def test_a_value_is_at_most_256_levels_deep(levels, fits):
    value: Any = 1
    for _ in range(levels):
        value = [value]
    if fits:
        check_size(value, "it")
    else:
        with pytest.raises(EvaluationFailed, match="nested deeper than 256"):
            check_size(value, "it")


def test_a_part_that_was_measured_higher_up_is_not_too_deep_by_chance():
    low: Any = 1
    for _ in range(200):
        low = [low]
    high: Any = low
    for _ in range(100):
        high = [high]
    with pytest.raises(EvaluationFailed, match="nested deeper"):
        check_size([low, high], "it")


def test_only_the_beginning_of_a_value_is_shown():
    assert preview("a" * 1000) == repr("a" * 200)
    assert len(preview(list(range(1_000_000)))) <= 200
