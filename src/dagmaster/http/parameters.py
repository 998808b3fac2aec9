"""Parameters that several routes have: pages, filters, waiting."""

from __future__ import annotations

import inspect
import time
from collections.abc import Iterable
from typing import Annotated, Any

from fastapi import Depends, Header, Path, Query
from pydantic import Field, StringConstraints, WithJsonSchema

from dagmaster.application.job_filters import parse_job_filter
from dagmaster.application.time_points import parse_time
from dagmaster.application.views import JobStatus, NodeStatus
from dagmaster.errors import QueryInvalid
from dagmaster.ports.job_filter import JOB_FILTER, FilterField, JobFilter, Match

_DIGITS = r"^[0-9]{1,19}$"
MAX_ID = 300
"""The longest id of a node: a child of a fan-out of a fan-out has all their names."""

JobId = Annotated[
    str, Path(max_length=20, description="The id of a job; `last`: the newest one that the caller submitted.")
]
NodeId = Annotated[str, Path(max_length=MAX_ID)]
NodeIds = Annotated[
    list[Annotated[str, Query(max_length=MAX_ID)]] | None,
    Query(max_length=200, description="Repeatable: of these nodes."),
]
WorkflowId = Annotated[str, Path(max_length=64)]
KeySet = Annotated[str, Path(pattern=r"^[0-9a-f]{8}(-[0-9a-f]{4}){3}-[0-9a-f]{12}$")]
Cursor = Annotated[str | None, Query(max_length=2_000, description="`next_cursor` of the page before.")]
Limit = Annotated[int, Query(ge=1, le=1_000, description="The number of items of a page.")]
Version = Annotated[int | None, Query(ge=1, le=2**31 - 1, description="Default: the active version.")]


def one_of(words: Iterable[str]) -> WithJsonSchema:
    """Describe a text that is one of these words. Its parser checks it, and takes any case."""
    return WithJsonSchema({"type": "string", "enum": sorted(map(str, words))})


Statuses = Annotated[
    list[Annotated[str, one_of(NodeStatus)]] | None,
    Query(max_length=20, description="Repeatable; in any case."),
]
JobStatuses = Annotated[
    list[Annotated[str, one_of(JobStatus)]] | None,
    Query(max_length=20, description="Repeatable; in any case."),
]
Time = Annotated[
    str | None, Query(max_length=100, description="RFC 3339, a date, or an age as 90s, 15m, 2h, 1d, 1w.")
]
InputTexts = Annotated[
    dict[str, str],
    Field(description="Inputs as text, parsed as the workflow declares them: what a form or a shell has."),
]
DryRun = Annotated[bool, Query(description="Only show what would run.")]
IfMatch = Annotated[
    str | None,
    Header(
        alias="If-Match",
        max_length=2_000,
        description="The ETag of the workflow that the change is based on. 412 if it has changed since.",
    ),
]
IfNoneMatch = Annotated[
    str | None,
    Header(alias="If-None-Match", max_length=2_000, description="`*`: 412 if the workflow exists already."),
]
WaitSeconds = Annotated[
    float, Query(ge=0, le=30, description="How long to wait for the effect of the command.")
]


def _annotation(one: FilterField) -> Any:
    if one.match is Match.STATUS:
        return JobStatuses
    if one.match is Match.NUMBER:
        return Annotated[int | None, Query(ge=1, le=2**31 - 1)]
    if one.match is Match.IDS:
        return Annotated[
            list[Annotated[str, StringConstraints(pattern=_DIGITS)]] | None,
            Query(max_length=100, description=one.help),
        ]
    if one.match is Match.ID:
        return Annotated[str | None, Query(pattern=_DIGITS)]
    if one.match in (Match.AFTER, Match.BEFORE):
        return Time
    return Annotated[str | None, Query(max_length=one.max_length, description=one.help)]


async def job_filter(**parameters: Any) -> JobFilter:
    return parse_job_filter(now=time.time(), **parameters)


# FastAPI reads the parameters of a request from the signature.
job_filter.__signature__ = inspect.Signature(  # type: ignore[attr-defined]
    [
        inspect.Parameter(
            one.parameter, inspect.Parameter.KEYWORD_ONLY, default=None, annotation=_annotation(one)
        )
        for one in JOB_FILTER.values()
    ]
)
Jobs = Annotated[JobFilter, Depends(job_filter)]


def parse_node_statuses(texts: list[str] | None) -> frozenset[NodeStatus]:
    """Return statuses of nodes; raise `QueryInvalid` for another word."""
    try:
        return frozenset(NodeStatus(text.upper()) for text in texts or ())
    except ValueError:
        names = ", ".join(status.lower() for status in NodeStatus)
        raise QueryInvalid(f"not a status of a node: {names}", field="status") from None


def parse_optional_time(name: str, text: str | None) -> float | None:
    """Return a point in time; raise `QueryInvalid` with the name of the parameter."""
    try:
        return None if text is None else parse_time(text, time.time())
    except ValueError as error:
        raise QueryInvalid(str(error), field=name) from error
