"""The conventions of the project: its constraints and its linter settings."""

from __future__ import annotations

import re
import tomllib
from pathlib import Path

ROOT = Path(__file__).parents[2]


def test_constraints_hold_names_and_versions_and_nothing_else():
    lines = (ROOT / "constraints.txt").read_text().splitlines()
    odd = [line for line in lines if not re.fullmatch(r"[A-Za-z0-9._-]+==[A-Za-z0-9.+!]+", line)]
    assert lines
    assert odd == []


def test_every_dependency_has_a_constraint():
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
    extras = project["optional-dependencies"]
    expected = project["dependencies"] + [each for extra in extras.values() for each in extra]
    expected = [each for each in expected if not each.startswith("dagmaster[")]
    constrained = {plain_name(line) for line in (ROOT / "constraints.txt").read_text().splitlines()}
    assert {plain_name(requirement) for requirement in expected} <= constrained


def test_a_rule_that_is_off_has_its_reason_next_to_it():
    text = (ROOT / "pyproject.toml").read_text()
    lint = text[text.index("[tool.ruff.lint]") : text.index("[tool.ruff.lint.flake8-type-checking]")]
    off = [line.strip() for line in lint.splitlines() if re.match(r'\s+"[A-Z]+\d*"', line)]
    assert off
    assert [line for line in off if not re.search(r"# \S", line)] == []


def plain_name(requirement: str) -> str:
    """Return the name in a requirement, as package indexes compare names."""
    name = re.split(r"[^A-Za-z0-9._-]", requirement, maxsplit=1)[0]
    return re.sub(r"[-_.]+", "-", name).lower()
