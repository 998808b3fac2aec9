"""The filter of a list of jobs, from the text of an option or of a query string."""

from __future__ import annotations

from typing import TYPE_CHECKING

from dagmaster.application.time_points import parse_time
from dagmaster.engine.status import JobStatus
from dagmaster.errors import QueryInvalid
from dagmaster.ports.read_store import JobFilter

if TYPE_CHECKING:
    from collections.abc import Iterable


def parse_job_filter(  # noqa: PLR0913 - a filter has many fields
    *,
    now: float,
    statuses: Iterable[str] = (),
    workflow_id: str | None = None,
    version: int | str | None = None,
    name: str | None = None,
    submitted_by: str | None = None,
    correlation_id: str | None = None,
    idempotency_key: str | None = None,
    parent_job_id: str | None = None,
    since: str | None = None,
    until: str | None = None,
    finished_since: str | None = None,
    finished_until: str | None = None,
    resumed_from: Iterable[str] = (),
    text: str | None = None,
) -> JobFilter:
    """Return the filter; raise `QueryInvalid` with the name of a field that is not valid."""
    if version is not None and workflow_id is None:
        raise QueryInvalid(
            "name the workflow, too; versions of different workflows have nothing in common", field="version"
        )
    return JobFilter(
        statuses=frozenset(map(parse_status, statuses)),
        workflow_id=workflow_id,
        version=_parse_version(version),
        name=name,
        submitted_by=submitted_by,
        correlation_id=correlation_id,
        idempotency_key=idempotency_key,
        parent_job_id=parent_job_id,
        created_after=_parse_time("since", since, now),
        created_before=_parse_time("until", until, now),
        finished_after=_parse_time("finished_since", finished_since, now),
        finished_before=_parse_time("finished_until", finished_until, now),
        resumed_from=frozenset(resumed_from),
        text=text or None,
    )


def parse_status(text: str) -> JobStatus:
    """Return the status of a job with this name, in any case; raise `QueryInvalid` with the names that exist."""
    try:
        return JobStatus(str(text).upper())
    except ValueError as error:
        names = ", ".join(status.lower() for status in JobStatus)
        raise QueryInvalid(
            f"{str(text)[:100]!r} is not a status of a job: {names}", field="status"
        ) from error


def _parse_version(version: int | str | None) -> int | None:
    try:
        return None if version is None else int(version)
    except ValueError as error:
        raise QueryInvalid(f"{str(version)[:100]!r} is not a number", field="version") from error


def _parse_time(field: str, text: str | None, now: float) -> float | None:
    try:
        return None if text is None else parse_time(text, now)
    except ValueError as error:
        raise QueryInvalid(str(error), field=field) from error
