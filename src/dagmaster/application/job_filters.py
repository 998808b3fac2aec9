"""The filter of a list of jobs, from the text of options, of a query string or of the page."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from dagmaster.application.time_points import parse_time
from dagmaster.engine.status import JobStatus
from dagmaster.errors import QueryInvalid
from dagmaster.ports.job_filter import JOB_FILTER, JobFilter, Match

if TYPE_CHECKING:
    from collections.abc import Callable


def parse_job_filter(*, now: float, **texts: Any) -> JobFilter:
    """Return the filter of these parameters; raise `QueryInvalid` with the name of one that is not valid."""
    if texts.get("version") is not None and texts.get("workflow_id") is None:
        raise QueryInvalid(
            "also name the workflow; versions of different workflows have nothing in common", field="version"
        )
    values = {}
    for name, one in JOB_FILTER.items():
        text = texts.pop(one.parameter, None)
        if text is not None:
            values[name] = _PARSERS[one.match](one.parameter, text, now)
    if texts:
        raise TypeError(f"a filter of jobs has no parameter {', '.join(texts)}")
    return JobFilter(**values)


def parse_status(text: str) -> JobStatus:
    """Return the job status with this name, in any case; raise `QueryInvalid` with the names that exist."""
    try:
        return JobStatus(str(text).upper())
    except ValueError as error:
        names = ", ".join(status.lower() for status in JobStatus)
        raise QueryInvalid(
            f"{str(text)[:100]!r} is not a status of a job: {names}", field="status"
        ) from error


def _parse_number(parameter: str, text: str | int, _now: float) -> int:
    try:
        return int(text)
    except ValueError as error:
        raise QueryInvalid(f"{str(text)[:100]!r} is not a number", field=parameter) from error


def _parse_time(parameter: str, text: str, now: float) -> float:
    try:
        return parse_time(text, now)
    except ValueError as error:
        raise QueryInvalid(str(error), field=parameter) from error


_PARSERS: dict[Match, Callable[[str, Any, float], Any]] = {
    Match.STATUS: lambda _parameter, texts, _now: frozenset(map(parse_status, texts)),
    Match.TEXT: lambda _parameter, text, _now: text,
    Match.NUMBER: _parse_number,
    Match.ID: lambda _parameter, text, _now: text,
    Match.IDS: lambda _parameter, texts, _now: frozenset(texts),
    Match.AFTER: _parse_time,
    Match.BEFORE: _parse_time,
    Match.PREFIX: lambda _parameter, text, _now: text or None,
}
