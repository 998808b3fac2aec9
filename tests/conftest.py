"""Hypothesis profiles, and the PostgreSQL that all tests of a run share.

HYPOTHESIS_PROFILE is `ci`, the default, `quick`, `dev` or `soak`.
"""

from __future__ import annotations

import asyncio
import gc
import os
import signal
from typing import TYPE_CHECKING

import pytest
from _pytest.unraisableexception import collect_unraisable
from hypothesis import HealthCheck, settings

from tests import server_folders
from tests.environment import LOG_DIR

if TYPE_CHECKING:
    from collections.abc import Generator, Iterator

os.environ[LOG_DIR] = "off"

# A shell starts background jobs with SIGINT ignored, and every child process inherits that: a test that sends SIGINT
# would wait forever.
if signal.getsignal(signal.SIGINT) is signal.SIG_IGN:
    signal.signal(signal.SIGINT, signal.default_int_handler)

# What is imported and collected stays until the end of the run: scanning it for garbage again and again took a third of
# the CPU time of the collection, in each process of a run (2026-11: 9 instead of 6 s).
gc.disable()


def pytest_collection_finish() -> None:
    """Start the garbage collector, which never scans what was imported until now."""
    gc.freeze()
    # The compiler asks for it to learn whether anything is frozen. It is counted one by one: 10 ms a call.
    gc.get_freeze_count = lambda: 1
    gc.enable()


@pytest.hookimpl(wrapper=True)
def pytest_runtest_teardown(item: pytest.Item) -> Generator[None]:
    """Collect the garbage of a test: a socket, file or event loop that it left open fails this test and no later one.

    What lives on is frozen, so that this scans only the objects of one test.
    """
    try:
        return (yield)
    finally:
        getattr(item, "funcargs", {}).clear()
        gc.collect()
        gc.freeze()
        collect_unraisable(item.config)


# A slow machine is not a failure: no deadlines, no health check for slow data.
SLOW = [HealthCheck.too_slow]

# The same examples in every run, so that a red build is red for everyone. `make soak` tries new ones.
settings.register_profile("ci", derandomize=True, deadline=None, max_examples=60, suppress_health_check=SLOW)

# `make unit`: the first examples of `ci`.
settings.register_profile(
    "quick", derandomize=True, deadline=None, max_examples=10, suppress_health_check=SLOW
)

# New examples in every run, few of them; failed ones are kept in .hypothesis and tried first.
settings.register_profile("dev", deadline=None, max_examples=30, print_blob=True, suppress_health_check=SLOW)

# Many new examples; tests/soak.py passes the seed.
settings.register_profile(
    "soak",
    deadline=None,
    max_examples=150,
    print_blob=True,
    suppress_health_check=SLOW,
)

settings.load_profile(os.environ.get("HYPOTHESIS_PROFILE", "ci"))


# ── PostgreSQL ──


@pytest.fixture(scope="session")
def postgres() -> Iterator[str]:
    """Provide the DSN of a server that all processes of a test run share; it is up until their last test has ended."""
    from tests.conformance.server import shared_server

    with shared_server() as dsn:
        yield dsn


@pytest.fixture(scope="session")
def older_postgres() -> Iterator[str]:
    """Provide the DSN of a server of the system's PostgreSQL, which is older than the embedded one."""
    from tests.conformance.server import older_server

    with older_server() as dsn:
        yield dsn


@pytest.fixture
def dsn(postgres: str) -> Iterator[str]:
    """Provide the DSN of an empty, migrated database."""
    from tests.conformance.server import dsn_of, release_database, take_database

    name = asyncio.run(take_database(postgres))
    yield dsn_of(postgres, name)
    asyncio.run(release_database(postgres, name))


def pytest_unconfigure() -> None:
    server_folders.remove_run_folder()
