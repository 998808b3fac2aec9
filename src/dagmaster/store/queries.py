"""Named SQL: each query stands in a file, with a name and a sentence. Parameters are written `:name`."""

from __future__ import annotations

import re
from dataclasses import dataclass
from functools import cache
from importlib import resources
from typing import TYPE_CHECKING, Any, Final

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping

_NAME: Final = re.compile(r"^-- name: (\w+)\n-- (.+)$", re.MULTILINE)
_PARAMETER: Final = re.compile(r"(?<!:):([a-z_]+)")


@dataclass(frozen=True, slots=True)
class Query:
    """A statement with numbered parameters, and their names in order."""

    name: str
    sentence: str
    sql: str
    parameters: tuple[str, ...]

    def arguments(self, given: Mapping[str, Any]) -> list[Any]:
        """The values of the parameters, in order."""
        return [given[name] for name in self.parameters]


@cache
def queries(file: str) -> Mapping[str, Query]:
    """Read a file of queries."""
    return {name: compiled(f"{file}.{name}", text, sentence) for name, sentence, text in _sections(file)}


@cache
def parts(file: str) -> Mapping[str, str]:
    """Read a file of parts, which are put together to queries."""
    return {name: text for name, _, text in _sections(file)}


def compiled(name: str, text: str, sentence: str = "") -> Query:
    """Number the parameters of a statement."""
    numbers: dict[str, int] = {}
    sql = _PARAMETER.sub(lambda found: f"${numbers.setdefault(found[1], len(numbers) + 1)}", text)
    return Query(name, sentence, sql, tuple(numbers))


def _sections(file: str) -> Iterable[tuple[str, str, str]]:
    text = (resources.files("dagmaster.store") / "sql" / f"{file}.sql").read_text(encoding="utf-8")
    found = list(_NAME.finditer(text))
    for place, head in enumerate(found):
        end = found[place + 1].start() if place + 1 < len(found) else len(text)
        yield head[1], head[2], text[head.end() : end].strip()
