"""A name of a large output says which attempt or turn wrote it."""

from __future__ import annotations

import pytest

from dagmaster.ports.output_blobs import check_plain
from dagmaster.ports.output_names import OutputName, parse_output_name


@pytest.mark.parametrize(
    ("output", "is_attempt"),
    [
        (OutputName("1161", "tiles__47", 3, 7_123_456_789_012), True),
        (OutputName("1161", "result", 2, 40), False),
    ],
)
def test_a_name_is_read_as_it_was_written(output, is_attempt):
    name = check_plain(str(output))
    assert parse_output_name(name) == output
    assert output.is_attempt is is_attempt


@pytest.mark.parametrize(
    "name",
    ["", "jobs/1/a", "jobs/1/a/b/1-2.json", "jobs/x/a/1-2.json", "jobs/1/a/1.json", "jobs/1/a/1-y.json", "logs/1/a/1-2.json",
     "jobs/1/a/1-²2.json", f"jobs/{'9' * 30}/a/1-2.json"],
)  # fmt: skip
def test_a_name_that_no_service_gives_is_not_read(name):
    assert parse_output_name(name) is None
