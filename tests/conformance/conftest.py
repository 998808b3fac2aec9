"""Run every test in each world; coroutine tests run in the loop of their world."""

from __future__ import annotations

import inspect
from typing import TYPE_CHECKING, Any

import pytest

from tests.conformance.server import OLDER, older_server, shared_server
from tests.conformance.stores import MemoryWorld, PostgresWorld, in_world

if TYPE_CHECKING:
    from collections.abc import Iterator

    from tests.conformance.stores import World


@pytest.fixture(scope="session")
def server() -> Iterator[str]:
    with shared_server() as dsn:
        yield dsn


@pytest.fixture(scope="session")
def older() -> Iterator[str]:
    if OLDER is None:
        pytest.skip("the system has no PostgreSQL of its own")
    with older_server() as dsn:
        yield dsn


@pytest.fixture(params=["memory", "postgres", "older postgres"])
def world(request: pytest.FixtureRequest) -> World:
    if request.param == "memory":
        return MemoryWorld()
    return PostgresWorld(request.getfixturevalue("server" if request.param == "postgres" else "older"))


@pytest.hookimpl(tryfirst=True)
def pytest_pyfunc_call(pyfuncitem: pytest.Function) -> bool | None:
    if not inspect.iscoroutinefunction(pyfuncitem.obj):
        return None
    names: tuple[str, ...] = pyfuncitem._fixtureinfo.argnames
    arguments: dict[str, Any] = {name: pyfuncitem.funcargs[name] for name in names}
    in_world(pyfuncitem.obj)(**arguments)
    return True
