"""Queries about jobs, put together from the conditions that a filter sets. See `sql/job_list.sql`."""

from __future__ import annotations

import sys
from functools import cache
from itertools import product
from typing import TYPE_CHECKING, Any, Final, assert_never

from dagmaster.engine.status import TERMINAL_JOB, JobStatus
from dagmaster.ports.ids import EPOCH_MS
from dagmaster.ports.job_columns import JOB_COLUMNS
from dagmaster.ports.job_filter import JOB_FILTER, Match, active_fields
from dagmaster.ports.tenants import DEFAULT_TENANT
from dagmaster.store.postgres.named_queries import Query, compile_query, parts

if TYPE_CHECKING:
    from collections.abc import Iterable

    from dagmaster.engine.status import NodeStatus
    from dagmaster.json_types import JsonObject
    from dagmaster.ports.job_filter import JobFilter

MAX_BIGINT: Final = 2**63 - 1
MAX_INTEGER: Final = 2**31 - 1
_ID_DIGITS: Final = 19
_TIME_SHIFT: Final = 22
# Ids are made with the database's clock, as far as a process knows it.
_CLOCK_SLACK_SECONDS: Final = 60.0
LAST_SECOND: Final = 253402300799.0
_SURROGATES: Final = range(0xD800, 0xE000)

_NEWEST_FIRST: Final = "DESC"
_NAMES: Final = ("own_name", "default_name")
_TEXT_PREFIXES: Final = ("own_name_prefix", "default_name_prefix", "submitter_prefix", "correlation_prefix")
_TYPES: Final = {column.name: column.type for column in JOB_COLUMNS}
_Alternatives = tuple[tuple[str, ...], ...]


class JobQuery:
    """A filter as conditions of SQL and their parameters. One that no job can match has no query."""

    def __init__(self, job_filter: JobFilter, *, after_id: str | None = None) -> None:
        self.params: dict[str, Any] = {}
        self.is_empty = False
        self._conditions: list[str] = []
        # One of each is met: each combination is a branch of the query, which uses its own index.
        self._alternatives: list[tuple[str, ...]] = []
        self._statuses = tuple(status for status in JobStatus if status in job_filter.statuses)
        if after_id is not None:
            self._add_number("after", "after_id", bigint(after_id))
        for name, declared, value in active_fields(job_filter):
            self._add(name, declared.match, value)

    def page(self, limit: int, *, oldest_first: bool = False) -> tuple[Query, JsonObject]:
        """Return the query for the newest or the oldest jobs that match, and its parameters."""
        order = "ASC" if oldest_first else _NEWEST_FIRST
        query = _page_query(tuple(self._conditions), tuple(self._alternatives), self._statuses, order)
        return query, {**self.params, "limit": limit}

    def counts(self) -> tuple[Query, JsonObject]:
        """Return the query for the number of jobs by displayed status, and its parameters."""
        query = _counts_query(tuple(self._conditions), tuple(self._alternatives), self._statuses)
        return query, self.params

    def _add(self, name: str, match: Match, value: Any) -> None:
        match match:
            case Match.STATUS:
                pass  # The query has a branch for each.
            case Match.PREFIX:
                if value:
                    self._add_prefix(value)
            case Match.NUMBER:
                self._add_number(name, name, value, MAX_INTEGER)
            case Match.ID:
                self._add_number(name, name, bigint(value))
            case Match.IDS:
                self._conditions.append(name)
                self.params[name] = [number for number in map(bigint, value) if number is not None]
            case Match.AFTER | Match.BEFORE:
                self._add_time(name, match, value)
            case Match.TEXT:
                self._add_text(name, value)
            case _:
                assert_never(match)

    def _add_number(self, condition: str, param: str, value: int | None, largest: int = MAX_BIGINT) -> None:
        self._conditions.append(condition)
        self.params[param] = value
        self.is_empty |= value is None or not 0 <= value <= largest

    def _add_time(self, name: str, match: Match, seconds: float) -> None:
        """Add a bound of a time, and of the id, which begins with the time at which the job was made."""
        self._conditions.append(name)
        at = self.params[name] = clamp_time(seconds)
        slack = -_CLOCK_SLACK_SECONDS if match is Match.AFTER else _CLOCK_SLACK_SECONDS
        # A job was made before it finished: no bound follows from when it finished at the earliest.
        if name != "finished_after":
            self.params[f"{name}_id"] = first_id(at + slack)

    def _add_text(self, name: str, text: str) -> None:
        if name == "submitted_by" and not text:
            self._conditions.append("no_submitter")
            return
        if name == "tenant" and text == DEFAULT_TENANT:
            self._conditions.append("default_tenant")
            return
        if name == "name":
            self._alternatives.append(_NAMES)
        else:
            self._conditions.append(name)
        self.params[name] = text
        self.is_empty |= not is_storable(text)

    def _add_prefix(self, text: str) -> None:
        prefixes: tuple[str, ...] = _TEXT_PREFIXES
        self.params["prefix"], self.params["prefix_end"] = text, end_of_prefix(text)
        self.is_empty |= not is_storable(text)
        if text.isascii() and text.isdecimal() and text[0] != "0" and bigint(text) is not None:
            prefixes = (*_TEXT_PREFIXES, "id_prefix")
            self.params["id_prefix"] = int(text)
        self._alternatives.append(prefixes)


@cache
def job_query() -> Query:
    texts = parts("job_list")
    return compile_query(
        "job_list.one", _fill("one", records=_fill("records", values=texts["values"], order=_NEWEST_FIRST))
    )


@cache
def jobs_query() -> Query:
    return compile_query(
        "job_list.some", _fill("some", records=_fill("records", values="", order=_NEWEST_FIRST))
    )


@cache
def newest_jobs_query() -> Query:
    return compile_query(
        "job_list.newest", _fill("newest", records=_fill("records", values="", order=_NEWEST_FIRST))
    )


@cache
def _page_query(
    conditions: tuple[str, ...], alternatives: _Alternatives, statuses: tuple[JobStatus, ...], order: str
) -> Query:
    matches = _matches((*conditions, "visible"), alternatives)
    branches = [branch for match in matches for branch in _branches(match, statuses)]
    # One job may match by its name and by its submitter.
    union = "\nUNION\n" if len(matches) > 1 else "\nUNION ALL\n"
    text = _fill("page", branches=union.join(branches), records=_fill("records", values=""))
    return compile_query("job_list.page", text.replace("{order}", order))


@cache
def _counts_query(
    conditions: tuple[str, ...], alternatives: _Alternatives, statuses: tuple[JobStatus, ...]
) -> Query:
    visible, hidden = (_matches((*conditions, name), alternatives) for name in ("visible", "hidden"))
    matches = _matches(conditions, alternatives)
    finished = "finished_jobs_once" if len(matches) > 1 else "finished_jobs"
    text = _fill(
        "counts",
        open_jobs="\nUNION\n".join(_fill("open_jobs", **match) for match in visible),
        finished_jobs="\nUNION\n".join(_fill(finished, **match) for match in matches),
        hidden_jobs="\nUNION\n".join(_fill(finished, **match) for match in hidden),
        only=_fill("only", statuses=literals(statuses)) if statuses else "true",
    )
    return compile_query("job_list.counts", text)


def _matches(conditions: tuple[str, ...], alternatives: _Alternatives) -> list[dict[str, str]]:
    equalities = {name: _equality(name) for name in JOB_FILTER}
    texts = {**equalities, **parts("job_list"), "id_prefix": _id_prefix()}
    return [
        {
            "source": texts["jobs"],
            "conditions": " AND ".join(texts[name] for name in (*conditions, *chosen)) or "true",
        }
        for chosen in product(*alternatives)
    ]


def _equality(name: str) -> str:
    declared = JOB_FILTER[name]
    return _fill("equality", column=declared.column, value=f":{name}::{_TYPES.get(declared.column, 'text')}")


def _id_prefix() -> str:
    ranges = [_fill("id_range", scale=str(10**digits)) for digits in range(_ID_DIGITS)]
    return _fill("id_prefix", ranges=" OR ".join(ranges))


def _branches(match: dict[str, str], statuses: tuple[JobStatus, ...]) -> Iterable[str]:
    """Give a limited query for each status that has its own index, and one for all open ones."""
    if not statuses:
        yield _fill("branch", **match)
    for status in statuses:
        if status in TERMINAL_JOB:
            conditions = f"{match['conditions']} AND {_fill('status', status=status)}"
            yield _fill("branch", source=match["source"], conditions=conditions)
    if not TERMINAL_JOB.issuperset(statuses):
        yield _fill("open_branch", open_jobs=_fill("open_jobs", **match), statuses=literals(statuses))


def _fill(name: str, **values: str) -> str:
    text = parts("job_list")[name]
    for placeholder, value in values.items():
        text = text.replace(f"{{{placeholder}}}", value)
    return text


def literals(statuses: Iterable[JobStatus | NodeStatus]) -> str:
    return ", ".join(f"'{status}'" for status in statuses)


def bigint(text: str) -> int | None:
    """Return the number of an id; None if no row can have it."""
    if not (text.isascii() and text.isdecimal()):
        return None
    # Compared by its length first: a number of a million digits takes seconds to read.
    digits = text.lstrip("0") or "0"
    if len(digits) > _ID_DIGITS:
        return None
    number = int(digits)
    return number if number <= MAX_BIGINT else None


def clamp_time(seconds: float) -> float:
    """Return a time that PostgreSQL can hold."""
    return min(max(seconds, 0.0), LAST_SECOND)


def clamp_integer(number: float | str) -> int:
    """Return a part of a position that PostgreSQL can compare integers with; -1 is before all of them."""
    return min(max(int(number), -1), MAX_INTEGER)


def is_storable(text: str) -> bool:
    """Return whether PostgreSQL can hold this text: it has no NUL and no half of a surrogate pair."""
    try:
        text.encode()
    except UnicodeEncodeError:
        return False
    return "\0" not in text


def end_of_prefix(prefix: str) -> str | None:
    """Return the first text after all that begin with the prefix, by code points; None if no text follows."""
    for place in range(len(prefix) - 1, -1, -1):
        code = ord(prefix[place])
        if code < sys.maxunicode:
            code = _SURROGATES.stop if code + 1 in _SURROGATES else code + 1
            return prefix[:place] + chr(code)
    return None


def first_id(seconds: float) -> int:
    """Return the smallest id that can be made at a time."""
    return min(max(int(seconds * 1000) - EPOCH_MS, 0) << _TIME_SHIFT, MAX_BIGINT)
