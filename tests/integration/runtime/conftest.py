"""A test here is a coroutine, and lives in its world's loop."""

from __future__ import annotations

import asyncio
import inspect
from typing import TYPE_CHECKING, Any

import pytest

from dagmaster.store.embedded.server import EmbeddedPostgres
from tests.integration.runtime.runtime_world import World
from tests.patience import PATIENCE_SECONDS
from tests.server_folders import copy_migrated_cluster, server_folder

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path


@pytest.fixture
def place() -> Iterator[Path]:
    """Provide a folder that the user of the server may enter."""
    with server_folder() as folder:
        yield folder


@pytest.fixture(scope="module")
def own_server() -> Iterator[EmbeddedPostgres]:
    """Provide a server that may be killed, with fsync on: accepted work is on the disk."""
    with server_folder() as folder:
        copy_migrated_cluster(folder / "data")
        embedded = EmbeddedPostgres(folder / "data")
        try:
            embedded.start()
            yield embedded
        finally:
            embedded.stop()


@pytest.fixture
def world(postgres: str, place: Path) -> World:
    return World(postgres, place)


@pytest.hookimpl(tryfirst=True)
def pytest_pyfunc_call(pyfuncitem: pytest.Function) -> bool | None:
    if not inspect.iscoroutinefunction(pyfuncitem.obj):
        return None
    names: tuple[str, ...] = pyfuncitem._fixtureinfo.argnames
    arguments: dict[str, Any] = {name: pyfuncitem.funcargs[name] for name in names}
    asyncio.run(_run_in_world(pyfuncitem.obj, arguments))
    return True


async def _run_in_world(test: Any, arguments: dict[str, Any]) -> None:
    world: World = arguments["world"]
    await world.open()
    try:
        async with asyncio.timeout(2 * PATIENCE_SECONDS):
            await test(**arguments)
    except BaseException as error:
        # What the test found comes first; the world is put away nevertheless.
        try:
            await world.close()
        except Exception as more:  # noqa: BLE001 - told with the first
            error.add_note(f"and then: {more!r}")
        raise
    await world.close()
