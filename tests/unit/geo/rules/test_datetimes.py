"""Datetimes as users write them."""

from __future__ import annotations

import pytest

from dagmaster.errors import PermanentError
from dagmaster.geo.rules.datetimes import normalize_datetime


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("2020", "2020-01-01T00:00:00Z"),
        ("2020-07", "2020-07-01T00:00:00Z"),
        (" 2020-07-13 ", "2020-07-13T00:00:00Z"),
        ("2020-07-13T10:00", "2020-07-13T10:00:00Z"),
        ("2020-07-13T10:00:00+02:00", "2020-07-13T08:00:00Z"),
    ],
)
def test_a_year_a_month_and_a_day_mean_their_first_moment(text, expected):
    assert normalize_datetime(text) == expected


@pytest.mark.parametrize("text", ["2020-13", "0000", "20", "soon", ""])
def test_text_that_is_not_a_datetime_is_invalid_input(text):
    with pytest.raises(
        PermanentError, match=r"which is not in the calendar: correct it|write it as"
    ) as refused:
        normalize_datetime(text)
    assert refused.value.kind == "invalid_input"
