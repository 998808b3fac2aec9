"""The shape of the code: where a change goes, and how often a fact is typed."""

from __future__ import annotations

import ast
import re
from itertools import combinations
from pathlib import Path

from radon.complexity import cc_visit

from tests.meta.syntax_trees import syntax_tree

ROOT = Path(__file__).parents[2]
SOURCES = sorted((ROOT / "src").rglob("*.py"))
ROWS = (ROOT / "ARCHITECTURE.md").read_text(encoding="utf-8").split("## Where do I change")[1].splitlines()
MAX_FILES = 4
"""A change that a reader needs more places for has too many places."""


def files_of(row: str) -> int:
    """Count the files and folders that a row names."""
    named = re.findall(r"`([^`]+)`", row.split("|")[2])
    paths = [name for name in named if "/" in name or re.search(r"\.(py|sql|js|md|html|json|svg|txt)$", name)]
    return sum(len(braces[1].split(",")) if (braces := re.search(r"\{(.*)\}", path)) else 1 for path in paths)


def test_no_row_of_where_to_change_names_more_than_four_files():
    rows = [row for row in ROWS if row.startswith("| ") and "| here |" not in row]
    assert rows
    assert {row.split("|")[1].strip(): count for row in rows if (count := files_of(row)) > MAX_FILES} == {}


MAX_COMPLEXITY = 15
MAX_PAIRS = 20
"""Pairs of a boundary and what is behind it: a pydantic model and the engine's type, a stored row and its JSON.
Before another pair, let one class inherit from the other, or hold it."""
MIN_SHARED = 5
SHARE = 0.6


def test_no_function_has_more_branches_than_a_reader_keeps_in_mind():
    # Unlike ruff's count, this one has ternaries, boolean operators and comprehensions.
    functions = [
        (path.stem, block) for path in SOURCES for block in cc_visit(path.read_text(encoding="utf-8"))
    ]
    methods = [(path, one) for path, block in functions for one in getattr(block, "methods", [])]
    assert {
        f"{path}.{block.name}": block.complexity
        for path, block in functions + methods
        if block.letter != "C" and block.complexity > MAX_COMPLEXITY
    } == {}


def fields_of_classes() -> dict[str, set[str]]:
    """Return the annotated names of each class that has at least five."""
    fields = {}
    for path in SOURCES:
        for node in ast.walk(syntax_tree(path)):
            if isinstance(node, ast.ClassDef):
                names = {
                    part.target.id
                    for part in node.body
                    if isinstance(part, ast.AnnAssign) and isinstance(part.target, ast.Name)
                }
                if len(names) >= MIN_SHARED:
                    fields[f"{path.relative_to(ROOT)}: {node.name}"] = names
    return fields


def test_a_fact_is_typed_in_one_class():
    pairs = {
        f"{one}, {other}": sorted(shared)
        for (one, fields), (other, others) in combinations(fields_of_classes().items(), 2)
        if len(shared := fields & others) >= max(MIN_SHARED, SHARE * min(len(fields), len(others)))
    }
    assert len(pairs) <= MAX_PAIRS, pairs
