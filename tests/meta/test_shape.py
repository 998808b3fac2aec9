"""The shape of the code: where a change goes, and how often a fact is typed."""

from __future__ import annotations

import re
from pathlib import Path

ROOT = Path(__file__).parents[2]
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
