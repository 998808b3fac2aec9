"""Bugs that are planted in the SQL: the test that guards against each of them fails. The tests can fail."""

from __future__ import annotations

import importlib
from typing import TYPE_CHECKING

import pytest

from dagmaster.errors import OwnershipLost, StatementFailed
from tests import patience
from tests.conformance.stores import PostgresWorld, in_world
from tests.planted_bugs import PLANTED, planted

if TYPE_CHECKING:
    from collections.abc import Callable


def guard_of(bug: str) -> Callable[..., None]:
    """Return the test that guards against a bug."""
    file, _, name = PLANTED[bug].test.partition("::")
    module = importlib.import_module(f"tests.{file.removesuffix('.py').replace('/', '.')}")
    test = getattr(module, name)
    # A test of the conformance suite is a coroutine; others are wrapped where they are defined.
    return test if hasattr(test, "__wrapped__") else in_world(test)


@pytest.mark.parametrize("bug", PLANTED)
def test_a_bug_that_is_planted_in_the_sql_is_noticed(
    postgres: str, bug: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    guard, options = guard_of(bug), PLANTED[bug].options
    # What a bug makes its test wait for never happens.
    monkeypatch.setattr(patience, "PATIENCE_SECONDS", 2.0)
    with (
        planted(bug),
        pytest.raises((AssertionError, TimeoutError, ValueError, OwnershipLost, StatementFailed)),
    ):
        guard(world=PostgresWorld(postgres), **options)
    monkeypatch.undo()
    # Without the bug it passes: what was noticed is the bug.
    guard(world=PostgresWorld(postgres), **options)
