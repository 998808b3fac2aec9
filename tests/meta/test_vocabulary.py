"""The project uses the field's words: terms that newcomers stumbled over appear neither in prose nor as names.

`python -m tests.meta.test_vocabulary` prints what is left, per directory.
"""

from __future__ import annotations

import ast
import re
from collections import defaultdict
from pathlib import Path
from typing import TYPE_CHECKING, Final

import pytest

from tests.meta.syntax_trees import syntax_tree

if TYPE_CHECKING:
    from collections.abc import Iterator

ROOT: Final = Path(__file__).parents[2]
PLACES: Final = ("src", "docs", "bench", "tests", "README.md", "ARCHITECTURE.md", "CONTRIBUTING.md")

WORDS: Final = {
    "anew": "again, from scratch",
    "bed": "harness, stack",
    "bury": "expire",
    "buried": "expired",
    "desk": "harness",
    "happenings": "engine events",
    "house": "sandbox; conventions",
    "kin": "related, similar",
    "lookout": "poll schedule",
    "mend": "repair",
    "mended": "repaired",
    "mends": "repairs",
    "onlooker": "reader",
    "onlookers": "readers",
    "rehearsal": "dry run",
    "rehearse": "dry run, measure",
    "rehearsed": "dry run, measured",
    "shelf": "harness, store, catalog",
    "somebody": "name the actor",
    "whoever": "name the actor",
}
"""Words that prose, comments and names do without, and what to write instead."""

NAMES: Final = {
    "beside": "temp_path, sibling",
    "found": "the noun: rows, matches, paths",
    "gave": "output",
    "given": "the noun: params, arguments",
    "grown": "extended",
    "happening": "event",
    "heard": "messages",
    "kin": "related",
    "said": "output, message",
    "told": "message, report",
    "wanted": "expected, limit",
    "whoever": "the noun",
}
"""Names that no variable, argument or attribute has: they are fine in prose, and say nothing about a value."""

NOT_CLEANED_YET: Final[dict[str, frozenset[str]]] = {
    # An output of catalog handlers is named `found`.
    "src/dagmaster/geo": frozenset(["found"]),
}
"""Words and names that a directory still has. Remove them here as they go."""


PHRASES: Final = {
    r"\bbeside\b": (5, "next to; besides; in addition to"),
    r"\bthose of\b": (20, "the noun again, or a possessive"),
    r"\bis none\b": (6, "without one; no X; does not exist"),
    r", too\b(?! (deep|large|long|small))": (6, "also"),
    r"\bof (its|their) own\b": (10, "separate, dedicated, its own X"),
}
"""Turns of phrase that other projects do without: how often they may be in code and documents, and what to write."""


def scanned() -> Iterator[Path]:
    for place in PLACES:
        path = ROOT / place
        yield from sorted(path.rglob("*")) if path.is_dir() else [path]


def words_of(path: Path) -> Iterator[tuple[int, str]]:
    """Yield the banned words of a text file with their lines; parts of names count, too."""
    for number, line in enumerate(path.read_text(encoding="utf-8").splitlines(), 1):
        for word in re.findall(r"[a-z]+", re.sub(r"([a-z])([A-Z])", r"\1 \2", line).lower()):
            if word in WORDS:
                yield number, word


def names_of(path: Path) -> Iterator[tuple[int, str]]:
    """Yield the banned names that a Python file binds, with their lines."""
    for node in ast.walk(syntax_tree(path)):
        match node:
            case (
                ast.Name(id=name, ctx=ast.Store())
                | ast.Attribute(attr=name, ctx=ast.Store())
                | ast.arg(arg=name)
            ):
                if name.strip("_") in NAMES:
                    yield node.lineno, name.strip("_")


def directory_of(path: Path) -> str:
    """Return the unit of the list above: a package of `src/dagmaster`, another top-level folder, or a file."""
    parts = path.relative_to(ROOT).parts
    depth = 3 if parts[0] == "src" else 1
    return "/".join(parts[:depth])


def occurrences() -> dict[str, dict[str, list[str]]]:
    """Return places (`path:line`) by directory and word."""
    places: dict[str, dict[str, list[str]]] = defaultdict(lambda: defaultdict(list))
    for path in scanned():
        if path.suffix not in (".py", ".sql", ".md") or path == Path(__file__):
            continue
        # In tests, the names of variables are free.
        has_names = path.suffix == ".py" and directory_of(path) != "tests"
        bindings = names_of(path) if has_names else ()
        for line, word in [*words_of(path), *bindings]:
            places[directory_of(path)][word].append(f"{path.relative_to(ROOT)}:{line}")
    return places


@pytest.fixture(scope="module")
def places() -> dict[str, dict[str, list[str]]]:
    return occurrences()


def test_no_banned_word_is_used(places):
    problems = [
        f"{lines[0]}: {word!r} ({len(lines)} times in {directory}); write: {WORDS.get(word) or NAMES[word]}"
        for directory, words in places.items()
        for word, lines in words.items()
        if word not in NOT_CLEANED_YET.get(directory, ())
    ]
    assert problems == []


@pytest.mark.parametrize("phrase", PHRASES)
def test_a_turn_of_phrase_is_rare(phrase):
    limit, better = PHRASES[phrase]
    places = [
        f"{path.relative_to(ROOT)}:{number}"
        for path in scanned()
        if path.suffix in (".py", ".sql", ".md", ".html") and directory_of(path) not in ("bench", "tests")
        # A migration stays as it was run, and the names of figures are compared with earlier ones.
        if path.name != "figures.md" and "migrations" not in path.parts
        for number, line in enumerate(path.read_text(encoding="utf-8").splitlines(), 1)
        if re.search(phrase, line)
    ]
    assert len(places) <= limit, f"write: {better}"


def test_a_banned_name_and_a_banned_word_are_found(tmp_path):
    file = tmp_path / "module.py"
    file.write_text("def is_buried(told):\n    # whoever calls\n    said = told\n    return said.found\n")
    assert [*words_of(file)] == [(1, "buried"), (2, "whoever")]
    assert sorted(names_of(file)) == [(1, "told"), (3, "said")]


if __name__ == "__main__":
    for directory, words in sorted(occurrences().items()):
        print(directory, {word: len(lines) for word, lines in sorted(words.items())})  # noqa: T201 - its output is its result
