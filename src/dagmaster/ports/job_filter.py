"""The filter of lists of jobs. Each of its fields is declared once.

Both stores, HTTP parameters, the page, the options of `jobs list` and clients read the declarations.
"""

from __future__ import annotations

from dataclasses import dataclass, field, fields
from enum import Enum, auto
from typing import TYPE_CHECKING, Any, Final, NamedTuple

from dagmaster.ports.job_options import MAX_CORRELATION_ID, MAX_KEY, MAX_NAME, MAX_SUBMITTER
from dagmaster.ports.tenants import MAX_TENANT

if TYPE_CHECKING:
    from dagmaster.engine.status import JobStatus

MAX_WORKFLOW_ID: Final = 64


class Match(Enum):
    """How a value is written, and compared with the column."""

    STATUS = auto()
    """One of these names; repeatable."""
    TEXT = auto()
    NUMBER = auto()
    ID = auto()
    IDS = auto()
    """One of these ids; repeatable."""
    AFTER = auto()
    """A time; the column is at or after it."""
    BEFORE = auto()
    PREFIX = auto()
    """The id, the name, the submitter or the correlation id begins with it."""


class FilterField(NamedTuple):
    """A field of a filter.

    `parameter`: its name in query strings. Without an `option` the command line has none.
    """

    match: Match
    help: str
    parameter: str
    option: str
    metavar: str
    max_length: int
    column: str


def _field(
    match: Match,
    help_text: str,
    *,
    parameter: str = "",
    option: str = "",
    metavar: str = "TEXT",
    max_length: int = 100,
    column: str = "",
) -> Any:
    default: Any = frozenset() if match in (Match.STATUS, Match.IDS) else None
    declared = FilterField(match, help_text, parameter, option, metavar, max_length, column)
    return field(default=default, metadata={"filter": declared})


@dataclass(frozen=True, slots=True, kw_only=True)
class TenantFilter:
    """A filter of what belongs to tenants."""

    tenant: str | None = _field(
        Match.TEXT,
        "Only jobs of this tenant.",
        option="--tenant",
        metavar="NAME",
        max_length=MAX_TENANT,
    )


@dataclass(frozen=True, slots=True, kw_only=True)
class JobFilter(TenantFilter):
    """A filter of jobs. Fields that are None or empty do not filter; all others must match."""

    statuses: frozenset[JobStatus] = _field(
        Match.STATUS, "Only jobs with this status. Repeatable.", parameter="status", option="--status"
    )
    workflow_id: str | None = _field(
        Match.TEXT,
        "Only jobs of this workflow.",
        option="--workflow",
        metavar="ID",
        max_length=MAX_WORKFLOW_ID,
    )
    version: int | None = _field(
        Match.NUMBER, "Only jobs of this version of the workflow.", option="--version"
    )
    name: str | None = _field(
        Match.TEXT, "Only jobs with this name.", option="--name", metavar="NAME", max_length=MAX_NAME
    )
    submitted_by: str | None = _field(
        Match.TEXT,
        "Only jobs that this user or service submitted.",
        option="--submitter",
        metavar="NAME",
        max_length=MAX_SUBMITTER,
    )
    correlation_id: str | None = _field(
        Match.TEXT,
        "Only jobs with this correlation id.",
        option="--correlation-id",
        metavar="ID",
        max_length=MAX_CORRELATION_ID,
    )
    idempotency_key: str | None = _field(
        Match.TEXT,
        "Only the job that was submitted with this key.",
        option="--idempotency-key",
        metavar="KEY",
        max_length=MAX_KEY,
    )
    parent_job_id: str | None = _field(
        Match.ID, "Only child jobs of this job.", option="--parent", metavar="JOB"
    )
    created_after: float | None = _field(
        Match.AFTER,
        "Only jobs submitted after this: 15m, 2h, 1d, a date.",
        parameter="since",
        option="--since",
        metavar="TIME",
        column="created_at",
    )
    created_before: float | None = _field(
        Match.BEFORE,
        "Only jobs submitted before this.",
        parameter="until",
        option="--until",
        metavar="TIME",
        column="created_at",
    )
    finished_after: float | None = _field(
        Match.AFTER,
        "Only jobs finished after this.",
        parameter="finished_since",
        option="--finished-since",
        metavar="TIME",
        column="finished_at",
    )
    finished_before: float | None = _field(
        Match.BEFORE,
        "Only jobs finished before this.",
        parameter="finished_until",
        option="--finished-until",
        metavar="TIME",
        column="finished_at",
    )
    resumed_from: frozenset[str] = _field(Match.IDS, "Jobs that were resumed from one of these jobs.")
    text: str | None = _field(
        Match.PREFIX,
        "The id, name, submitter or correlation id starts with this.",
        option="--text",
        metavar="PREFIX",
        max_length=MAX_NAME,
    )


def _declared() -> dict[str, FilterField]:
    declared = {one.name: one.metadata["filter"] for one in fields(JobFilter)}
    return {
        name: one._replace(parameter=one.parameter or name, column=one.column or name)
        for name, one in declared.items()
    }


JOB_FILTER: Final[dict[str, FilterField]] = _declared()
"""The declarations of the fields of `JobFilter`, by their names."""


def active_fields(job_filter: JobFilter) -> list[tuple[str, FilterField, Any]]:
    values = [(name, one, getattr(job_filter, name)) for name, one in JOB_FILTER.items()]
    return [(name, one, value) for name, one, value in values if value is not None and value != frozenset()]
