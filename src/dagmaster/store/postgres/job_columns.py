"""The columns of jobs as parts of SQL, from their table in `ports.job_columns`."""

from __future__ import annotations

import json
from functools import cache
from operator import attrgetter
from typing import TYPE_CHECKING, Any, Final

from dagmaster.ports.job_columns import Use, column_names, columns_with

if TYPE_CHECKING:
    from collections.abc import Mapping

    from dagmaster.ports.job_columns import JobColumn
    from dagmaster.ports.job_records import NewJob

_SUBMITTED: Final = column_names(Use.SUBMIT)
_OF_CHILDREN: Final = tuple(name for name in column_names(Use.CHILD) if not name.startswith("parent_"))
_submitted_values = attrgetter(*_SUBMITTED)
_values_of_child = attrgetter(*_OF_CHILDREN)


@cache
def fragments() -> Mapping[str, str]:
    """Return the parts of statements that the table makes: SQL files have them as `{@name}`."""
    submitted, child = columns_with(Use.SUBMIT), columns_with(Use.CHILD)
    inherited = column_names(Use.INHERIT)
    return {
        "submitted_rows": ", ".join(map(_parameter, submitted)),
        "submitted_columns": ", ".join(_SUBMITTED),
        "submitted_values": ", ".join(_stored(column) for column in submitted),
        "child_rows": ", ".join(map(_parameter, child)),
        "child_columns": ", ".join((*column_names(Use.CHILD), *inherited)),
        "child_values": ", ".join(
            (*(f"n.{_stored(column)}" for column in child), *(f"p.{name}" for name in inherited))
        ),
        "claimed_columns": ", ".join(_loaded(column) for column in columns_with(Use.CLAIM)),
        "shown_columns": ", ".join(_loaded(column, "j.") for column in columns_with(Use.SHOW)),
    }


def submitted_row(job: NewJob) -> dict[str, Any]:
    row = dict(zip(_SUBMITTED, _submitted_values(job), strict=True))
    row["name"] = job.name or None
    row["redo"] = json.dumps(job.redo) if job.redo else "[]"
    return _with_ids(row)


def child_row(job: NewJob) -> dict[str, Any]:
    """Return what a turn stores of a child job, apart from what it has of its parent."""
    assert job.parent is not None  # noqa: S101 - for mypy: a child has one
    row = _with_ids(dict(zip(_OF_CHILDREN, _values_of_child(job), strict=True)))
    row["parent_node_id"], row["parent_attempt"] = job.parent.node_id, job.parent.attempt
    row["job_id"] = int(job.parent.job_id)
    return row


def _with_ids(row: dict[str, Any]) -> dict[str, Any]:
    row["id"] = int(row["id"])
    row["resumed_from"] = None if row["resumed_from"] is None else int(row["resumed_from"])
    return row


def _parameter(column: JobColumn) -> str:
    return f"{column.name} {'text' if column.type == 'json' else column.type}"


def _stored(column: JobColumn) -> str:
    return f"{column.name}::json" if column.type == "json" else column.name


def _loaded(column: JobColumn, table: str = "") -> str:
    name = f"{table}{column.name}"
    return f"extract(epoch FROM {name})::float8 AS {column.name}" if column.type == "timestamptz" else name
