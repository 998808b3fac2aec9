"""The text of options and query strings becomes one filter of jobs."""

from __future__ import annotations

import pytest

from dagmaster.application.job_filters import parse_job_filter
from dagmaster.engine.status import JobStatus
from dagmaster.errors import QueryInvalid
from dagmaster.ports.job_filter import JobFilter

NOW = 1_800_000_000.0


def test_text_becomes_the_values_of_a_filter():
    parsed = parse_job_filter(
        now=NOW,
        status=["failed", "RUNNING"],
        workflow_id="w",
        version="3",
        since="1h",
        finished_until="2h",
        text="a",
    )
    assert parsed == JobFilter(
        statuses=frozenset({JobStatus.FAILED, JobStatus.RUNNING}),
        workflow_id="w",
        version=3,
        created_after=NOW - 3600,
        finished_before=NOW - 7200,
        text="a",
    )


def test_without_fields_every_job_matches():
    assert parse_job_filter(now=NOW, text="") == JobFilter()


@pytest.mark.parametrize(
    ("fields", "message"),
    [
        ({"status": ["done"]}, "status: 'done' is not a status of a job: pending, running"),
        ({"workflow_id": "w", "version": "two"}, "version: 'two' is not a number"),
        (
            {"version": 2},
            "version: also name the workflow; versions of different workflows have nothing in common",
        ),
        ({"finished_since": "soon"}, "finished_since: 'soon' is not a time: write a span"),
    ],
)
def test_a_bad_value_is_reported_with_its_field(fields, message):
    with pytest.raises(QueryInvalid, match=message):
        parse_job_filter(now=NOW, **fields)
