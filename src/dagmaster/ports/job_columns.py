"""The table of the columns of jobs: what a submit sets, a child job gets, its owner loads, and is shown.

Both stores read it. Its statements name a column only where they do more with it than to copy it.
"""

from __future__ import annotations

from enum import Flag, auto
from typing import Final, Literal, NamedTuple

Type = Literal["bigint", "integer", "smallint", "boolean", "text", "json", "timestamptz"]


class Use(Flag):
    """What a column is copied by.

    `SUBMIT`, `CHILD` and `INHERIT` are fields of `NewJob` of the same names.
    """

    SUBMIT = auto()
    """The submit of a job sets it."""
    CHILD = auto()
    """The turn that starts a child job sets it."""
    INHERIT = auto()
    """A child job has that of its parent."""
    CLAIM = auto()
    """The orchestrator that claims the job loads it."""
    SHOW = auto()
    """Readers see it."""


class JobColumn(NamedTuple):
    """A column of jobs."""

    name: str
    type: Type
    uses: Use


_GIVEN: Final = Use.SUBMIT | Use.CHILD
_KEPT: Final = Use.SUBMIT | Use.INHERIT
_READ: Final = Use.CLAIM | Use.SHOW

JOB_COLUMNS: Final = (
    JobColumn("id", "bigint", _GIVEN | Use.CLAIM),
    JobColumn("workflow_id", "text", _GIVEN | _READ),
    JobColumn("version", "integer", _GIVEN | _READ),
    JobColumn("content_hash", "text", _GIVEN | _READ),
    JobColumn("inputs", "json", _GIVEN | Use.CLAIM),
    JobColumn("env", "json", _KEPT | Use.CLAIM),
    JobColumn("priority", "smallint", _KEPT | _READ),
    JobColumn("idempotency_key", "text", Use.SUBMIT | Use.SHOW),
    JobColumn("body_hash", "text", Use.SUBMIT),
    JobColumn("submitted_by", "text", _KEPT | Use.SHOW),
    JobColumn("submitter_label", "text", _KEPT | Use.SHOW),
    JobColumn("tenant", "text", _KEPT | _READ),
    JobColumn("correlation_id", "text", _KEPT | Use.SHOW),
    # Not shown, as its query may have a token; a job that continues another one has its address.
    JobColumn("callback_url", "text", Use.SUBMIT | Use.CLAIM),
    JobColumn("queue", "text", _KEPT | _READ),
    JobColumn("workflows", "json", _KEPT | Use.CLAIM),
    JobColumn("resumed_from", "bigint", _GIVEN | _READ),
    JobColumn("redo", "json", Use.SUBMIT | Use.CLAIM),
    JobColumn("name", "text", Use.SUBMIT),
    JobColumn("trace_parent", "text", _KEPT | Use.CLAIM),
    JobColumn("is_hidden", "boolean", _KEPT),
    JobColumn("parent_node_id", "text", Use.CHILD | _READ),
    JobColumn("parent_attempt", "integer", Use.CHILD | Use.CLAIM),
    # Set by turns.
    JobColumn("parent_job_id", "bigint", _READ),
    JobColumn("depth", "integer", Use.CLAIM),
    JobColumn("status", "text", Use.CLAIM),
    JobColumn("run", "integer", _READ),
    JobColumn("ending", "boolean", Use.CLAIM),
    JobColumn("stopping", "boolean", Use.CLAIM),
    JobColumn("deadline_passed", "boolean", Use.CLAIM),
    JobColumn("deadline_at", "timestamptz", _READ),
    JobColumn("signals", "json", Use.CLAIM),
    JobColumn("owner_epoch", "integer", Use.CLAIM),
    JobColumn("event_seq", "integer", _READ),
    JobColumn("error", "json", Use.SHOW),
    JobColumn("created_at", "timestamptz", Use.SHOW),
    JobColumn("updated_at", "timestamptz", Use.SHOW),
    JobColumn("started_at", "timestamptz", Use.SHOW),
    JobColumn("finished_at", "timestamptz", Use.SHOW),
)


def columns_with(*uses: Use) -> tuple[JobColumn, ...]:
    return tuple(column for column in JOB_COLUMNS if all(use in column.uses for use in uses))


def column_names(*uses: Use) -> tuple[str, ...]:
    return tuple(column.name for column in columns_with(*uses))
