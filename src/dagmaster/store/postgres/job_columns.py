"""The columns of jobs as parts of SQL, from their table in `ports.job_columns`."""

from __future__ import annotations

import json
from functools import cache
from operator import attrgetter
from typing import TYPE_CHECKING, Any, Final

from dagmaster.ports.job_columns import Use, column_names, columns_with

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from dagmaster.ports.job_columns import JobColumn
    from dagmaster.ports.job_records import NewJob

_SUBMITTED: Final = column_names(Use.SUBMIT)
_OF_CHILDREN: Final = tuple(name for name in column_names(Use.CHILD) if not name.startswith("parent_"))
_NEW: Final = tuple(f"new_{name}" for name in _SUBMITTED)
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


def submitted_columns(jobs: Sequence[NewJob]) -> dict[str, list[Any]]:
    """Return the parameters of `rows(new: …)`, the jobs of a submit: a list for each column.

    There is at least one job. A row for each job, and a list of each column of these, took thrice the time.
    """
    columns = dict(zip(_SUBMITTED, map(list, zip(*map(_submitted_values, jobs), strict=True)), strict=True))
    columns["id"] = list(map(int, columns["id"]))
    columns["resumed_from"] = [None if id_ is None else int(id_) for id_ in columns["resumed_from"]]
    columns["name"] = [name or None for name in columns["name"]]
    columns["redo"] = [json.dumps(redo) if redo else "[]" for redo in columns["redo"]]
    return dict(zip(_NEW, columns.values(), strict=True))


def child_row(job: NewJob) -> dict[str, Any]:
    """Return what a turn stores of a child job, apart from what it has of its parent."""
    assert job.parent is not None  # noqa: S101 - for mypy: a child has one
    row: dict[str, Any] = dict(zip(_OF_CHILDREN, _values_of_child(job), strict=True))
    row["id"] = int(job.id)
    row["resumed_from"] = None if job.resumed_from is None else int(job.resumed_from)
    row["parent_node_id"], row["parent_attempt"] = job.parent.node_id, job.parent.attempt
    row["job_id"] = int(job.parent.job_id)
    return row


def _parameter(column: JobColumn) -> str:
    return f"{column.name} {'text' if column.type == 'json' else column.type}"


def _stored(column: JobColumn) -> str:
    return f"{column.name}::json" if column.type == "json" else column.name


def _loaded(column: JobColumn, table: str = "") -> str:
    name = f"{table}{column.name}"
    return f"extract(epoch FROM {name})::float8 AS {column.name}" if column.type == "timestamptz" else name
