"""A moment as a user writes it."""

from __future__ import annotations

import pytest

from dagmaster.errors import PermanentError
from dagmaster.geo.stac_rules import users_moment


@pytest.mark.parametrize(
    ("text", "moment"),
    [
        ("2020", "2020-01-01T00:00:00Z"),
        ("2020-07", "2020-07-01T00:00:00Z"),
        (" 2020-07-13 ", "2020-07-13T00:00:00Z"),
        ("2020-07-13T10:00", "2020-07-13T10:00:00Z"),
        ("2020-07-13T10:00:00+02:00", "2020-07-13T08:00:00Z"),
    ],
)
def test_a_year_a_month_and_a_day_are_their_first_moment(text, moment):
    assert users_moment(text) == moment


@pytest.mark.parametrize("text", ["2020-13", "0000", "20", "soon", ""])
def test_what_is_no_moment_is_the_users_mistake(text):
    with pytest.raises(PermanentError, match=r"no moment|not a moment") as refused:
        users_moment(text)
    assert refused.value.kind == "invalid_input"
