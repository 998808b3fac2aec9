"""Run every test in each world; coroutine tests run in the loop of their world."""

from __future__ import annotations

import inspect
from typing import TYPE_CHECKING, Any

import pytest

from tests.conformance.stores import MemoryWorld, PostgresWorld, RoleWorld, in_world

if TYPE_CHECKING:
    from tests.conformance.stores import World


WORKER_TESTS = frozenset(
    f"tests.conformance.test_{name}"
    for name in ("tasks", "claimed_tasks", "task_starts", "added_nodes", "drains")
)
"""The tests of a worker's store: they run also with a worker that has the role dagmaster_worker."""


def pytest_generate_tests(metafunc: pytest.Metafunc) -> None:
    """Parametrize tests by their worlds. One may name them itself: for a case that a store does not have."""
    is_named = any("world" in mark.args[0] for mark in metafunc.definition.iter_markers("parametrize"))
    is_catalog = metafunc.module.__name__ == "tests.conformance.test_catalog"
    if "world" in metafunc.fixturenames and not is_named and not is_catalog:
        worlds = ["memory", "postgres", "older postgres"]
        worlds += ["worker role"] * (metafunc.module.__name__ in WORKER_TESTS)
        metafunc.parametrize("world", worlds, indirect=True)


@pytest.fixture
def world(request: pytest.FixtureRequest) -> World:
    if request.param == "memory":
        return MemoryWorld()
    if request.param == "worker role":
        return RoleWorld(request.getfixturevalue("postgres"))
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
