"""What clients send is what servers read."""

from __future__ import annotations

import asyncio
from dataclasses import fields

from dagmaster import JobFilter
from dagmaster.application.views import JobStatus
from dagmaster.client.request_bodies import job_query
from dagmaster.http.parameters import job_filter

EVERYTHING = JobFilter(
    statuses=frozenset({JobStatus.FAILED, JobStatus.WAITING}),
    workflow_id="tiles",
    version=3,
    name="nightly",
    submitted_by="ada",
    correlation_id="c-1",
    idempotency_key="k-1",
    parent_job_id="41",
    created_after=1_700_000_000.0,
    created_before=1_700_000_001.0,
    finished_after=1_700_000_002.0,
    finished_before=1_700_000_003.0,
    resumed_from=frozenset({"7", "8"}),
    tenant="acme",
    text="nig",
)


def test_a_server_reads_every_field_of_a_filter_that_a_client_sends():
    unset = JobFilter()
    assert [
        field.name for field in fields(unset) if getattr(EVERYTHING, field.name) == getattr(unset, field.name)
    ] == []
    assert asyncio.run(job_filter(**job_query(EVERYTHING))) == EVERYTHING
    assert asyncio.run(job_filter(**job_query(unset))) == unset
