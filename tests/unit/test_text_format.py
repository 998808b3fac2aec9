"""What sentences are made of."""

from __future__ import annotations

import re
from datetime import datetime
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

import dagmaster
from dagmaster.text_format import (
    error_text,
    format_error,
    format_rfc3339,
    format_seconds,
    library_words,
    seconds_between,
)

TIMES = st.floats(min_value=1.7e9, max_value=1.9e9)


@given(TIMES, st.floats(min_value=-1.0, max_value=10.0))
def test_a_reader_of_two_times_computes_the_same_seconds_between_them(began, seconds):
    ended = began + seconds
    read = [datetime.fromisoformat(format_rfc3339(at)).timestamp() for at in (began, ended)]
    assert seconds_between(*read) == seconds_between(began, ended) >= 0.0


@pytest.mark.parametrize(
    ("words", "expected"),
    [
        ("", ""),
        ("bad  file.\n", " (GDAL: bad file)"),
        ("'/scratch/task-1/source.shp' is broken", " (GDAL: 'source.shp' is broken)"),
        ("/a/b/c.tif: TIFFReadDirectory: failed", " (GDAL: c.tif: TIFFReadDirectory: failed)"),
        ("see https://example.com/a/b", " (GDAL: see https://example.com/a/b)"),
        ("expected 1/2 of it", " (GDAL: expected 1/2 of it)"),
        ("sqlite3_prepare_v2(SELECT 1) failed: file is not a database", ""),
        ("x" * 300, f" (GDAL: {'x' * 199}…)"),
    ],
)
def test_the_words_of_a_library_follow_ours_in_one_line_without_paths(words, expected):
    assert library_words("GDAL", words) == expected


@pytest.mark.parametrize(
    ("error", "expected"),
    [
        ({"kind": "error", "type": "KeyError", "message": "'k'"}, "KeyError: 'k'"),
        ({"kind": "error", "type": "KeyError", "message": "KeyError: 'k'"}, "KeyError: 'k'"),
        ({"kind": "no_data", "type": "HandlerError", "message": "no tile"}, "no tile"),
        ({"kind": "error", "message": "no tile"}, "no tile"),
        ({}, ""),
    ],
)
def test_an_error_has_the_name_of_its_exception_unless_the_handler_chose_a_kind(error, expected):
    assert error_text(error) == format_error(error) == expected


def test_an_error_in_one_line_is_its_first_line():
    error = {"kind": "error", "type": "ValueError", "message": "no\nyes"}
    assert (error_text(error), format_error(error)) == ("ValueError: no\nyes", "ValueError: no")


def test_seconds_have_their_number():
    texts = [format_seconds(seconds) for seconds in (1, 1.0, 0.5, 2, 86_400)]
    assert texts == ["1 second", "1 second", "0.5 seconds", "2 seconds", "86,400 seconds"]


def test_no_message_counts_without_the_function_for_it():
    """One file is no "1 files": `format_count` and `format_seconds` know the number."""
    counted = re.compile(r"\{len\([^{}]*\)(?::,)?\} [a-z]+(?<!s)s\b|\{[^{}]*\} seconds\b")
    source = Path(dagmaster.__file__).parent
    wrong = [
        f"{file.relative_to(source)}: {match[0]}"
        for file in source.rglob("*.py")
        for match in counted.finditer(file.read_text(encoding="utf-8"))
        if file.name != "text_format.py"
    ]
    assert wrong == []
