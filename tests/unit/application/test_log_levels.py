"""Levels of log lines: records, their tracebacks, and printed text."""

from __future__ import annotations

import pytest

from dagmaster.application.log_levels import LogLevel, level_of, levels_from, with_levels
from dagmaster.worker.task_log_capture import FORMAT

LOG = """printed first
ERROR app: it broke
Traceback (most recent call last):
  File "a.py", line 1, in f
ValueError: no

During handling of the above exception, another exception occurred:

Traceback (most recent call last):
  File "b.py", line 2, in g
KeyError: 'x'
printed later
  indented print
WARNING app: two
  lines
INFO app: three"""


def test_a_traceback_has_the_level_of_its_record_and_printed_text_has_none():
    levels = [level for level, _ in with_levels(LOG.split("\n"))]
    error = LogLevel.ERROR
    assert levels == [None, *[error] * 10, None, None, LogLevel.WARNING, LogLevel.WARNING, LogLevel.INFO]


@pytest.mark.parametrize("level", list(LogLevel))
def test_the_level_of_a_line_is_read_as_workers_write_it(level):
    assert level_of(FORMAT % {"levelname": level.name, "name": "app", "message": "hello"}) is level


@pytest.mark.parametrize("line", ["", "ERRORS: 3", "info app: x", " ERROR app: x", "an ERROR"])
def test_other_lines_have_no_level(line):
    assert level_of(line) is None


def test_levels_are_ordered_by_severity():
    assert levels_from(LogLevel.ERROR) == (LogLevel.ERROR, LogLevel.CRITICAL)
    assert levels_from(LogLevel.DEBUG) == tuple(LogLevel)
