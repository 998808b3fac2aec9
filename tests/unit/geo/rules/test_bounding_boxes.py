"""Bounding boxes: their union, and longitudes on the antimeridian."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from dagmaster.geo.rules.bounding_boxes import bbox_union, wrap_longitude


def test_a_union_is_the_smallest_bbox_around_all():
    assert bbox_union([(0, 10, 5, 20)]) == (0, 10, 5, 20)
    assert bbox_union([(0, 10, 5, 20), [-3, 12, 1, 30]]) == (-3, 10, 5, 30)


@pytest.mark.parametrize("longitude", [180, -180, 540, 180 + 4e-7, -180 - 4e-7, 180 - 4e-7])
def test_a_longitude_on_the_antimeridian_is_180_in_the_east_of_a_bbox_and_minus_180_in_the_west(longitude):
    assert (wrap_longitude(longitude), wrap_longitude(longitude, is_east=True)) == (-180, 180)


@given(st.floats(-179.9, 179.9), st.integers(-3, 3), st.booleans())
def test_whole_turns_do_not_change_a_longitude(longitude, turns, is_east):
    assert wrap_longitude(longitude + 360 * turns, is_east=is_east) == pytest.approx(longitude, abs=1e-9)
