"""Bugs that are planted in the SQL, each noticed by the test that guards against it. A proof that the proof can fail."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

from tests.planted_bugs import NAME, PLANTED

TESTS = Path(__file__).parents[1]
SOME_FAILED = 1


@pytest.mark.parametrize("bug", PLANTED)
def test_a_bug_that_is_planted_in_the_sql_is_noticed(bug: str) -> None:
    test = PLANTED[bug].test
    where = "" if test.startswith("integration") else " and postgres and not older"
    file, _, name = test.partition("::")
    which = ["-k", f"{name}{where}", str(TESTS / file)]
    done = subprocess.run(
        [sys.executable, "-m", "pytest", "-q", "-x", "-n", "0", "-p", "no:cacheprovider", *which],
        cwd=TESTS.parent,
        env={**os.environ, NAME: bug},
        capture_output=True,
        text=True,
        timeout=120,
        check=False,
    )
    assert done.returncode == SOME_FAILED, f"{bug} was not noticed:\n{done.stdout}\n{done.stderr}"
    assert "1 failed" in done.stdout
    assert "has not" not in done.stdout, f"{bug} does not fit the SQL any more:\n{done.stdout}"
