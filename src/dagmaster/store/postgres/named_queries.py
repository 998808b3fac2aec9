"""Named SQL: each query has a name and a description in its file. Parameters are written `:name`.

What several queries have in common is in `sql/fragments.sql`, or is made from the table of job columns, and
is written `{@name}`. Rows that a statement gets are written `rows(part: column type, …) AS n`: they are
arrays, or VALUES. `row(…)` is one row. Their parameters are `part_column`.

An array is sent as text, `{1,2,NULL}`: the driver checks of each element whether it is an array itself, which
was a quarter of an orchestrator's time (2026-11, cProfile of a fan-out of 20,000: 94 such checks a task).

An array that is unnested comes from a subquery, so that the planner does not see its length: behind a pooler
it plans with the values, and would scan a table rather than look up 500 rows in it.
"""

from __future__ import annotations

import re
from dataclasses import dataclass, field
from functools import cache
from importlib import resources
from operator import itemgetter
from typing import TYPE_CHECKING, Any, Final, cast

from dagmaster.store.postgres import job_columns

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Mapping, Sequence

    Params = Mapping[str, Any] | list[Any]
    """The parameters of a query by name, or its arguments in order: see `value_arguments`."""

# Our tables and our clock() are qualified: behind a pooler no client can set the search path.
_OURS: Final = re.compile(r"(?<![\w.])(dag_[a-z_]+|clock(?=\(\)))(?!\w)")
FRAGMENTS: Final = "fragments"
_FRAGMENT: Final = re.compile(r"\{@(\w+)\}")
_NAME: Final = re.compile(r"^-- name: (\w+)\n-- (.+)$", re.MULTILINE)
_ROWS_OF: Final = re.compile(r"\brow(s?)\((\w+): ([^()]+)\) AS (\w+)")
_ROWS: Final = re.compile(r"unnest\(((?:\s*:[a-z_]+::\w+\[\],?)+)\)")
_ROW_ARRAY: Final = re.compile(r":([a-z_]+)(::\w+)\[\]")
_PARAMETER: Final = re.compile(r"(?<!:):([a-z_]+)(::(?:bigint|integer|smallint|float8|boolean|text)\[\])?")


@dataclass(frozen=True, slots=True)
class Query:
    """A statement with numbered parameters, and their names in order."""

    name: str
    description: str
    sql: str
    parameters: tuple[str, ...]
    arrays: Mapping[str, str] = field(default_factory=dict)
    _select: Callable[[Mapping[str, Any]], tuple[Any, ...]] = field(init=False, repr=False, compare=False)
    _encoders: tuple[tuple[int, Callable[[Any], str | None]], ...] = field(
        init=False, repr=False, compare=False
    )

    def __post_init__(self) -> None:
        encoders = [
            (index, _ENCODERS[self.arrays[name]])
            for index, name in enumerate(self.parameters)
            if name in self.arrays
        ]
        object.__setattr__(self, "_select", _selector(self.parameters))
        object.__setattr__(self, "_encoders", tuple(encoders))

    def arguments(self, params: Params) -> list[Any]:
        if isinstance(params, list):
            return params
        arguments = list(self._select(params))
        for index, encode in self._encoders:
            arguments[index] = encode(arguments[index])
        return arguments


@cache
def queries(file: str) -> Mapping[str, Query]:
    return {
        name: compile_query(f"{file}.{name}", text, description)
        for name, description, text in _sections(file)
    }


@cache
def parts(file: str) -> Mapping[str, str]:
    """Read a file of parts, which are combined into queries."""
    return {name: text for name, _, text in _sections(file)}


def compile_query(name: str, text: str, description: str = "") -> Query:
    numbers: dict[str, int] = {}
    arrays: dict[str, str] = {}

    def number_params(match: re.Match[str]) -> str:
        parameter = f"${numbers.setdefault(match[1], len(numbers) + 1)}"
        if match[2] is None:
            return parameter
        arrays[match[1]] = "texts" if match[2] == "::text[]" else "numbers"
        return f"{parameter}::text{match[2]}"

    text = for_rows(text, 0)
    text = _ROWS.sub(lambda rows: _ROW_ARRAY.sub(r"(SELECT \g<0>)", rows[0]), _OURS.sub(r"dagapp.\1", text))
    return Query(name, description, _PARAMETER.sub(number_params, text), tuple(numbers), arrays)


def for_rows(text: str, count: int = 1) -> str:
    """Return a part of a statement with its `rows(…)` as VALUES for `count` rows; with 0, as arrays.

    PostgreSQL plans values as constants: there is nothing to scan or to join. That saves a quarter of the
    turn of a chain, including the flush (2026-11, medians of 50: 1,230 to 895 µs).
    """

    def rows_of(match: re.Match[str]) -> str:
        are_many, part, declared, alias = match.groups()
        columns = [column.split() for column in declared.split(",")]
        names = ", ".join(name for name, _ in columns)
        if are_many and not count:
            arrays = ", ".join(f":{part}_{name}::{type_}[]" for name, type_ in columns)
            return f"unnest({arrays}) AS {alias} ({names})"
        values = [
            ", ".join(f":{_in_row(f'{part}_{name}', row)}::{type_}" for name, type_ in columns)
            for row in range(count or 1)
        ]
        return f"(VALUES {', '.join(f'({row})' for row in values)}) AS {alias} ({names})"

    return _ROWS_OF.sub(rows_of, text)


_PARAMETERS: Final[dict[tuple[str, int], tuple[str, ...]]] = {}


def _parameters(part: str, row: Mapping[str, Any], number: int = 0) -> tuple[str, ...]:
    """Return the parameters of a row. All rows of a part have the same names in the same order."""
    names = _PARAMETERS.get((part, number))
    if names is None:
        names = _PARAMETERS[part, number] = tuple(_in_row(f"{part}_{name}", number) for name in row)
    return names


def _in_row(name: str, row: int) -> str:
    return name + "_next" * row


def array_parameters(part: str, rows: Sequence[Mapping[str, Any]], params: dict[str, Any]) -> None:
    """Add the parameters of `rows(part: …)` as arrays. There is at least one row."""
    columns = zip(*[row.values() for row in rows], strict=True)
    params.update(zip(_parameters(part, rows[0]), map(list, columns), strict=True))


_ORDERS: Final[dict[tuple[str, ...], tuple[int, Callable[[Sequence[Any]], tuple[Any, ...]]]]] = {}


def value_arguments(
    query: Query, others: Mapping[str, Any], rows: Mapping[str, Sequence[Mapping[str, Any]]]
) -> list[Any]:
    """Return the arguments of a query whose `rows(…)` are all VALUES; `others`: its other parameters.

    They are the same as by `value_parameters` and names, of which a turn of a chain has 110: that took 25 µs,
    and this takes 14 (2026-11, statement and arguments, in process).
    """
    values = list(others.values())
    for part_rows in rows.values():
        for row in part_rows:
            values += row.values()
    # How many rows a part has follows from the statement.
    key = (query.sql, *others, *rows)
    if key not in _ORDERS:
        names = list(others)
        for part, part_rows in rows.items():
            for number, row in enumerate(part_rows):
                names += _parameters(part, row, number)
        _ORDERS[key] = len(names), _selector([names.index(name) for name in query.parameters])
    count, select = _ORDERS[key]
    if len(values) != count:
        raise ValueError(f"{query.name}: {count} parameters, and another number of values")
    return list(select(values))


def _selector(keys: Sequence[Any]) -> Callable[[Any], tuple[Any, ...]]:
    """Return a function that returns the values of these keys, of a mapping or a list."""
    if len(keys) > 1:
        return itemgetter(*keys)
    return lambda values: tuple(values[key] for key in keys)


def value_parameters(part: str, rows: Sequence[Mapping[str, Any]], params: dict[str, Any]) -> None:
    for number, row in enumerate(rows):
        params.update(zip(_parameters(part, row, number), row.values(), strict=True))


def encode_numbers(numbers: Sequence[Any] | None) -> str | None:
    """Return an array of numbers as PostgreSQL parses it. The repr of a list is nearly that."""
    return None if numbers is None else "{" + repr(list(numbers))[1:-1].replace("None", "NULL") + "}"


def encode_texts(texts: Sequence[str | None] | str | None) -> str | None:
    """Return an array of texts as PostgreSQL parses it. A text is an encoded array already."""
    if texts is None or isinstance(texts, str):
        return texts
    items = list(texts)
    if not items:
        return "{}"
    if items.count(items[0]) == len(items):
        # As most columns of many jobs: 1 instead of 16 µs for a hundred.
        return "{" + ",".join([_quote(items[0])] * len(items)) + "}"
    if None not in items:
        text = '","'.join(cast("list[str]", items))
        if "\\" not in text and text.count('"') == 2 * (len(items) - 1):
            # Nothing to escape, as in ids and names.
            return f'{{"{text}"}}'
    return "{" + ",".join(map(_quote, items)) + "}"


def _quote(text: str | None) -> str:
    return "NULL" if text is None else '"' + text.replace("\\", "\\\\").replace('"', '\\"') + '"'


def split_ids(text: str | None) -> set[str]:
    """Return ids that a statement returned as one text.

    For an array the driver queries its type: 5 ms a connection.
    """
    return set(text.split(",")) if text else set()


_ENCODERS: Final = {"numbers": encode_numbers, "texts": encode_texts}


def _sections(file: str) -> Iterable[tuple[str, str, str]]:
    text = (resources.files("dagmaster.store.postgres") / "sql" / f"{file}.sql").read_text(encoding="utf-8")
    known = {**job_columns.fragments(), **({} if file == FRAGMENTS else parts(FRAGMENTS))}

    def fill(section: str) -> str:
        return _FRAGMENT.sub(lambda match: known[match[1]], section)

    heads = list(_NAME.finditer(text))
    for head, following in zip(heads, [*heads[1:], None], strict=True):
        end = len(text) if following is None else following.start()
        section = fill(text[head.end() : end].strip())
        if file == FRAGMENTS:
            # Those that follow may have it.
            known[head[1]] = section
        yield head[1], head[2], section
