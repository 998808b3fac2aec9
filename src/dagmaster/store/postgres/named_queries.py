"""Named SQL: each query has a name and a description in its file. Parameters are written `:name`.

What several queries have in common is in `sql/fragments.sql`, and is written `{@name}`.

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
from typing import TYPE_CHECKING, Any, Final

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping, Sequence

# Our tables and our clock() are qualified: behind a pooler no client can set the search path.
_OURS: Final = re.compile(r"(?<![\w.])(dag_[a-z_]+|clock(?=\(\)))(?!\w)")
FRAGMENTS: Final = "fragments"
_FRAGMENT: Final = re.compile(r"\{@(\w+)\}")
_NAME: Final = re.compile(r"^-- name: (\w+)\n-- (.+)$", re.MULTILINE)
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

    def arguments(self, params: Mapping[str, Any]) -> list[Any]:
        """Return the values of the parameters, in order."""
        arrays = self.arrays
        return [
            _ENCODERS[arrays[name]](params[name]) if name in arrays else params[name]
            for name in self.parameters
        ]


@cache
def queries(file: str) -> Mapping[str, Query]:
    """Read a file of queries."""
    return {
        name: compile_query(f"{file}.{name}", text, description)
        for name, description, text in _sections(file)
    }


@cache
def parts(file: str) -> Mapping[str, str]:
    """Read a file of parts, which are combined into queries."""
    return {name: text for name, _, text in _sections(file)}


def compile_query(name: str, text: str, description: str = "") -> Query:
    """Compile a statement with numbered parameters."""
    numbers: dict[str, int] = {}
    arrays: dict[str, str] = {}

    def number_params(match: re.Match[str]) -> str:
        parameter = f"${numbers.setdefault(match[1], len(numbers) + 1)}"
        if match[2] is None:
            return parameter
        arrays[match[1]] = "texts" if match[2] == "::text[]" else "numbers"
        return f"{parameter}::text{match[2]}"

    text = _ROWS.sub(lambda rows: _ROW_ARRAY.sub(r"(SELECT \g<0>)", rows[0]), _OURS.sub(r"dagapp.\1", text))
    return Query(name, description, _PARAMETER.sub(number_params, text), tuple(numbers), arrays)


def for_rows(text: str, count: int = 1) -> str:
    """Return the same statement for `count` rows, with VALUES instead of arrays; `row_parameters` names the values.

    PostgreSQL plans values as constants: there is nothing to scan or to join. That saves a quarter of the
    turn of a chain, including the flush (2026-11, medians of 50: 1,230 to 895 µs).
    """
    return _ROWS.sub(
        lambda match: f"(VALUES {', '.join(_values(match[1], row) for row in range(count))})", text
    )


def _values(arrays: str, row: int) -> str:
    return f"({_ROW_ARRAY.sub(lambda array: f':{_in_row(array[1], row)}{array[2]}', arrays)})"


def row_parameters(names: tuple[str, ...], rows: Sequence[Sequence[Any]]) -> dict[str, Any]:
    """Return the parameters of a statement `for_rows`."""
    params: dict[str, Any] = {}
    for row, values in enumerate(rows):
        params.update(zip(_names_in_row(names, row), values, strict=True))
    return params


@cache
def _names_in_row(names: tuple[str, ...], row: int) -> tuple[str, ...]:
    return tuple(_in_row(name, row) for name in names)


def _in_row(name: str, row: int) -> str:
    return name + "_next" * row


def encode_numbers(numbers: Sequence[Any] | None) -> str | None:
    """Return an array of numbers as PostgreSQL parses it. The repr of a list is nearly that."""
    return None if numbers is None else "{" + repr(list(numbers))[1:-1].replace("None", "NULL") + "}"


def encode_texts(texts: Sequence[str | None] | str | None) -> str | None:
    """Return an array of texts as PostgreSQL parses it. A text is an encoded array already."""
    if texts is None or isinstance(texts, str):
        return texts
    quoted = [
        "NULL" if text is None else '"' + text.replace("\\", "\\\\").replace('"', '\\"') + '"'
        for text in texts
    ]
    return "{" + ",".join(quoted) + "}"


def split_ids(text: str | None) -> set[str]:
    """Return ids that a statement returned as one text.

    For an array the driver queries its type: 5 ms a connection.
    """
    return set(text.split(",")) if text else set()


_ENCODERS: Final = {"numbers": encode_numbers, "texts": encode_texts}


def _sections(file: str) -> Iterable[tuple[str, str, str]]:
    text = (resources.files("dagmaster.store.postgres") / "sql" / f"{file}.sql").read_text(encoding="utf-8")
    if file != FRAGMENTS:
        text = _FRAGMENT.sub(lambda match: parts(FRAGMENTS)[match[1]], text)
    heads = list(_NAME.finditer(text))
    for head, following in zip(heads, [*heads[1:], None], strict=True):
        end = len(text) if following is None else following.start()
        yield head[1], head[2], text[head.end() : end].strip()
