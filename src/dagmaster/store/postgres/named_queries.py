"""Named SQL: each query stands in a file, with a name and a sentence. Parameters are written `:name`.

An array crosses as text, `{1,2,NULL}`: the driver asks of each element whether it is an array itself, which was a
quarter of an orchestrator's time (2026-11, cProfile of a fan-out of 20,000: 94 such questions a task).
"""

from __future__ import annotations

import re
from dataclasses import dataclass, field
from functools import cache
from importlib import resources
from typing import TYPE_CHECKING, Any, Final

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping, Sequence

# Our tables and our clock, wherever the search path leads: a pooler lets no client set it.
_OURS: Final = re.compile(r"(?<![\w.])(dag_[a-z_]+|clock(?=\(\)))(?!\w)")
_NAME: Final = re.compile(r"^-- name: (\w+)\n-- (.+)$", re.MULTILINE)
_ROWS: Final = re.compile(r"unnest\(((?:\s*:[a-z_]+::\w+\[\],?)+)\)")
_PARAMETER: Final = re.compile(r"(?<!:):([a-z_]+)(::(?:bigint|integer|smallint|float8|boolean|text)\[\])?")


@dataclass(frozen=True, slots=True)
class Query:
    """A statement with numbered parameters, and their names in order."""

    name: str
    sentence: str
    sql: str
    parameters: tuple[str, ...]
    arrays: Mapping[str, str] = field(default_factory=dict)

    def arguments(self, given: Mapping[str, Any]) -> list[Any]:
        """Return the values of the parameters, in order."""
        arrays = self.arrays
        return [_SPELL[arrays[name]](given[name]) if name in arrays else given[name] for name in self.parameters]


@cache
def queries(file: str) -> Mapping[str, Query]:
    """Read a file of queries."""
    return {name: compiled(f"{file}.{name}", text, sentence) for name, sentence, text in _sections(file)}


@cache
def parts(file: str) -> Mapping[str, str]:
    """Read a file of parts, which are put together to queries."""
    return {name: text for name, _, text in _sections(file)}


def compiled(name: str, text: str, sentence: str = "") -> Query:
    """Compile a statement with numbered parameters."""
    places: dict[str, int] = {}
    arrays: dict[str, str] = {}

    def numbered(found: re.Match[str]) -> str:
        place = f"${places.setdefault(found[1], len(places) + 1)}"
        if found[2] is None:
            return place
        arrays[found[1]] = "texts" if found[2] == "::text[]" else "numbers"
        return f"{place}::text{found[2]}"

    return Query(name, sentence, _PARAMETER.sub(numbered, _OURS.sub(r"dagapp.\1", text)), tuple(places), arrays)


def of_one_row(text: str) -> str:
    """Return the same statement for one row: values stand where the arrays stood.

    PostgreSQL plans with values as with constants: there is nothing to read, to scan or to join. That takes a quarter
    off the turn of a chain, flush and all (2026-11, medians of 50: 1,230 to 895 µs).
    """
    return _ROWS.sub(lambda found: f"(VALUES ({found[1].replace('[]', '')}))", text)


def spell_numbers(numbers: Sequence[Any] | None) -> str | None:
    """Return an array of numbers as PostgreSQL reads it. Python's own spelling of a list is nearly that."""
    return None if numbers is None else "{" + repr(list(numbers))[1:-1].replace("None", "NULL") + "}"


def spell_texts(texts: Sequence[str | None] | None) -> str | None:
    """Return an array of texts as PostgreSQL reads it."""
    if texts is None:
        return None
    spelled = ["NULL" if text is None else '"' + text.replace("\\", "\\\\").replace('"', '\\"') + '"' for text in texts]
    return "{" + ",".join(spelled) + "}"


def ids_in(text: str | None) -> set[str]:
    """Ids that a statement gave as one text. Of an array the driver asks the server what it is: 5 ms a connection."""
    return set(text.split(",")) if text else set()


_SPELL: Final = {"numbers": spell_numbers, "texts": spell_texts}


def _sections(file: str) -> Iterable[tuple[str, str, str]]:
    text = (resources.files("dagmaster.store.postgres") / "sql" / f"{file}.sql").read_text(encoding="utf-8")
    found = list(_NAME.finditer(text))
    for place, head in enumerate(found):
        end = found[place + 1].start() if place + 1 < len(found) else len(text)
        yield head[1], head[2], text[head.end() : end].strip()
