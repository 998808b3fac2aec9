"""One browser at a time, a new context a test, and a server in memory whose jobs an orchestrator and a worker run."""

from __future__ import annotations

import contextlib
import os
import shutil
from pathlib import Path
from typing import TYPE_CHECKING, Any

import httpx
import pytest

from dagmaster.sdk.handler_registry import Registry
from dagmaster.ui.navigation import Mode
from dagmaster.ui.site import Site
from tests.browser.visitor import Visitor
from tests.browser.workflows import HANDLERS, WORKFLOWS
from tests.patience import PATIENCE_SECONDS
from tests.unit.http.loopback import serve

if TYPE_CHECKING:
    from collections.abc import Generator, Iterator

    from playwright.sync_api import Browser

    from tests.unit.http.loopback import Loopback

FAILURES = Path(__file__).parents[2] / ".pytest_cache" / "browser"
BROWSERS = ("chromium-headless-shell", "chromium")
MISSING = f"none of {', '.join(BROWSERS)} on PATH: `make packages` installs one; BROWSER=0 skips"
FAILED = pytest.StashKey[bool]()
RUN = contextlib.ExitStack()
RUNNING: list[Browser] = []
"""The browser, if it runs."""


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Mark the tests of this folder; skip them if that is asked for."""
    folder = f"{Path(__file__).parent}{os.sep}"
    for item in items:
        if not str(item.path).startswith(folder):
            continue
        item.add_marker(pytest.mark.browser)
        item.add_marker(pytest.mark.process)
        if os.environ.get("BROWSER") == "0":
            item.add_marker(pytest.mark.skip(reason="BROWSER=0: the web page is not tested in a browser"))


@pytest.fixture
def browser() -> Browser:
    """Return Chromium, which runs until a test of another folder comes next."""
    if not RUNNING:
        path = next(filter(None, map(shutil.which, BROWSERS)), None)
        if path is None:
            pytest.fail(MISSING)
        RUNNING.append(RUN.enter_context(_chromium(path)))
    return RUNNING[0]


@contextlib.contextmanager
def _chromium(path: str) -> Iterator[Browser]:
    from playwright.sync_api import sync_playwright

    with sync_playwright() as playwright:
        # Headless there is only an emulated GPU, which takes longer than none.
        arguments = ["--disable-gpu", *(["--no-sandbox"] if os.geteuid() == 0 else [])]
        chromium = playwright.chromium.launch(executable_path=path, args=arguments)
        yield chromium
        chromium.close()


@pytest.hookimpl(wrapper=True, tryfirst=True)
def pytest_runtest_teardown(nextitem: pytest.Item | None) -> Generator[None]:
    """Close the browser after the last test here: its event loop is that of the thread, and other tests would fail."""
    try:
        return (yield)
    finally:
        if nextitem is None or Path(__file__).parent not in nextitem.path.parents:
            RUNNING.clear()
            RUN.close()


@pytest.fixture(scope="session")
def server() -> Iterator[Loopback]:
    """Return a server with the workflows of `workflows.py`, in mode dev. It keeps its jobs for all tests of a run."""
    with serve(Registry(HANDLERS), Site(Mode.DEV)) as loopback:
        headers = {"Authorization": f"Bearer {loopback.key}"}
        for text in WORKFLOWS:
            answer = httpx.post(
                f"{loopback.url}/api/v1/workflows",
                json={"text": text},
                headers=headers,
                timeout=PATIENCE_SECONDS,
                trust_env=False,
            )
            assert answer.status_code == 201, answer.text
        yield loopback


@pytest.fixture
def visitor(browser: Browser, server: Loopback, request: pytest.FixtureRequest) -> Iterator[Visitor]:
    """Return a visitor. A test that fails leaves its last page; one whose browser reports errors fails."""
    visitor = Visitor(browser, server)
    yield visitor
    has_failed = request.node.stash.get(FAILED, False)
    visitor.close(FAILURES / request.node.name if has_failed else None)
    assert has_failed or visitor.problems == [], "the console of the browser has errors"


@pytest.hookimpl(wrapper=True)
def pytest_runtest_makereport(item: pytest.Item) -> Generator[None, Any, Any]:
    """Remember whether a test failed."""
    report = yield
    if report.when == "call" and report.failed:
        item.stash[FAILED] = True
    return report
