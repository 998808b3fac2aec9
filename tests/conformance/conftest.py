"""Run every test in each world; coroutine tests run in the loop of their world."""

from __future__ import annotations

import inspect
from typing import TYPE_CHECKING, Any

import pytest

from tests.conformance.stores import MemoryWorld, PostgresWorld, in_world

if TYPE_CHECKING:
    from tests.conformance.stores import World


@pytest.fixture(params=["memory", "postgres", "older postgres"])
def world(request: pytest.FixtureRequest) -> World:
    if request.param == "memory":
        return MemoryWorld()
    return PostgresWorld(
        request.getfixturevalue("postgres" if request.param == "postgres" else "older_postgres")
    )


@pytest.hookimpl(tryfirst=True)
def pytest_pyfunc_call(pyfuncitem: pytest.Function) -> bool | None:
    if not inspect.iscoroutinefunction(pyfuncitem.obj):
        return None
    names: tuple[str, ...] = pyfuncitem._fixtureinfo.argnames
    arguments: dict[str, Any] = {name: pyfuncitem.funcargs[name] for name in names}
    in_world(pyfuncitem.obj)(**arguments)
    return True
