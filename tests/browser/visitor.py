"""A visitor of the web page: a context of the browser with a key, and the API behind the page."""

from __future__ import annotations

import contextlib
import os
from typing import TYPE_CHECKING, Any, Final

import httpx
from playwright.sync_api import Error as PlaywrightError
from playwright.sync_api import expect

from dagmaster.http.auth import SESSION_COOKIE
from tests.patience import PATIENCE_SECONDS

if TYPE_CHECKING:
    from pathlib import Path

    from playwright.sync_api import Browser, BrowserContext, ConsoleMessage, Page

    from dagmaster.ports.api_keys import Scope
    from tests.unit.http.loopback import Loopback

KEEPS_TRACES: Final = os.environ.get("TRACES") == "1"
"""Whether a failed test leaves a trace of Playwright, too. Recording the page at each step takes a fifth of all time."""
COUNT_SOURCES = """
    window.sources = [];
    window.EventSource = class extends EventSource {
        constructor(url) { super(url); window.sources.push(this); }
    };
"""
"""A script that keeps every EventSource of a page in `sources`."""
expect.set_options(timeout=PATIENCE_SECONDS * 1000)


class Visitor:
    """Opens pages. `problems`: what the console of the browser reports, scripts that fail and blocked requests."""

    def __init__(self, browser: Browser, server: Loopback) -> None:
        self._browser = browser
        self.server = server
        self.problems: list[str] = []
        self.api = httpx.Client(
            base_url=server.url,
            headers={"Authorization": f"Bearer {server.key}"},
            timeout=PATIENCE_SECONDS,
            trust_env=False,
        )
        self._contexts: list[BrowserContext] = []

    def page(
        self,
        path: str | None = "/ui/",
        *,
        scopes: tuple[Scope, ...] = (),
        key: str | None = "",
        **options: Any,
    ) -> Page:
        """Open a page as a caller with some scopes, else with admin; with `key=None` without a session."""
        options.setdefault("viewport", {"width": 1280, "height": 900})
        # Requests of a page with a service worker cannot be intercepted by a test.
        options.setdefault("service_workers", "block")
        context = self._browser.new_context(base_url=self.server.url, **options)
        context.set_default_timeout(PATIENCE_SECONDS * 1000)
        self._contexts.append(context)
        if KEEPS_TRACES:
            context.tracing.start(snapshots=True)
        value = key or (self.server.make_key(*scopes) if scopes else self.server.key)
        if key is not None:
            context.add_cookies(
                [
                    {
                        "name": SESSION_COOKIE,
                        "value": self.server.start_session(value),
                        "url": self.server.url,
                        "sameSite": "Strict",
                        "httpOnly": True,
                    }
                ]
            )
        page = context.new_page()
        page.on("console", self._on_console)
        page.on("pageerror", lambda error: self.problems.append(f"script: {error}"))
        if path is not None:
            page.goto(path)
        return page

    def submit(self, workflow_id: str, **inputs: Any) -> str:
        """Submit a job; return its id."""
        answer = self.api.post("/api/v1/jobs", json={"workflow_id": workflow_id, "inputs": inputs})
        assert answer.status_code == 202, answer.text
        return str(answer.json()["job_id"])

    def until(self, job_id: str, *statuses: str) -> dict[str, Any]:
        """Wait until a job has a status; return it."""
        with self.api.stream("GET", f"/api/v1/jobs/{job_id}/stream") as response:
            for line in response.iter_lines():
                if line.startswith(("event:", "data:", "id:")) or not line:
                    job = self.job(job_id)
                    if job["status"] in statuses:
                        return job
        job = self.job(job_id)
        assert job["status"] in statuses, job["status"]
        return job

    def job(self, job_id: str) -> dict[str, Any]:
        """Return a job."""
        answer = self.api.get(f"/api/v1/jobs/{job_id}")
        assert answer.status_code == 200, answer.text
        document: dict[str, Any] = answer.json()
        return document

    def close(self, failure: Path | None) -> None:
        """Close all pages; a failure leaves a picture and the HTML of the last one, and its trace if there is one."""
        for number, context in enumerate(reversed(self._contexts)):
            keeps = failure if number == 0 else None
            if KEEPS_TRACES:
                context.tracing.stop(path=keeps and keeps.with_suffix(".zip"))
            if keeps is not None:
                _keep_pages(context, keeps)
            context.close()
        self.api.close()

    def _on_console(self, message: ConsoleMessage) -> None:
        if message.type == "error":
            self.problems.append(f"console: {message.text}")


def _keep_pages(context: BrowserContext, path: Path) -> None:
    """Write what the pages of a context show. A page that cannot answer any more is left out."""
    path.parent.mkdir(parents=True, exist_ok=True)
    for page in context.pages:
        with contextlib.suppress(PlaywrightError):
            path.with_suffix(".html").write_text(page.content())
            page.screenshot(path=path.with_suffix(".png"), full_page=True)
