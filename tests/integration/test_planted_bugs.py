"""Bugs that are planted in the SQL: the test that guards against each of them fails. The tests can fail."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from tests.conformance.server import shared_server
from tests.planted_bugs import NAME, PLANTED

if TYPE_CHECKING:
    from collections.abc import Iterator

TESTS = Path(__file__).parents[1]
SOME_FAILED = 1


@pytest.fixture(scope="module", autouse=True)
def _server() -> Iterator[None]:
    """Keep the run's server up for the test runs that are started here: they do not start their own."""
    with shared_server():
        yield


@pytest.mark.parametrize("bug", PLANTED)
def test_a_bug_that_is_planted_in_the_sql_is_noticed(bug: str) -> None:
    test = PLANTED[bug].test
    variants = "" if test.startswith("integration") else " and postgres and not older"
    file, _, name = test.partition("::")
    selection = ["-k", f"{name}{variants}", str(TESTS / file)]
    run = subprocess.run(
        [sys.executable, "-m", "pytest", "-q", "-x", "-n", "0", "-p", "no:cacheprovider", *selection],
        cwd=TESTS.parent,
        env={**os.environ, NAME: bug},
        capture_output=True,
        text=True,
        timeout=120,
        check=False,
    )
    assert run.returncode == SOME_FAILED, f"{bug} was not noticed:\n{run.stdout}\n{run.stderr}"
    assert "1 failed" in run.stdout
    assert "has not" not in run.stdout, f"{bug} does not fit the SQL any more:\n{run.stdout}"
