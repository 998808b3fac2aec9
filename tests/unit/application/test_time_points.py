"""Times of filters: spans before now, dates and times."""

from __future__ import annotations

import datetime as dt

import pytest

from dagmaster.application.time_points import parse_time

NOW = dt.datetime(2026, 11, 16, 12, tzinfo=dt.UTC).timestamp()


@pytest.mark.parametrize(
    ("text", "seconds"), [("90s", 90), ("15m", 900), (" 2h ", 7200), ("1.5d", 129_600), ("1w", 604_800)]
)
def test_a_span_is_before_now(text, seconds):
    assert parse_time(text, NOW) == NOW - seconds


def test_a_time_has_its_zone():
    assert parse_time("2026-11-16T12:00:00Z", NOW) == parse_time("2026-11-16T13:00:00+01:00", 0.0) == NOW


@pytest.mark.parametrize(
    "text", ["", "yesterday", "5x", "2026-13-01", "0001-01-01T00:00:00+23:00", "9" * 400 + "s", "1h1h"]
)
def test_another_text_is_rejected_with_examples(text):
    with pytest.raises(ValueError, match="is not a time: write a span before now"):
        parse_time(text, NOW)
