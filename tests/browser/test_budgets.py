"""What a page costs: bytes of scripts and styles, and where requests go."""

from __future__ import annotations

import gzip
from typing import TYPE_CHECKING

from playwright.sync_api import expect

if TYPE_CHECKING:
    from playwright.sync_api import Response, Route

    from tests.browser.visitor import Visitor

MAX_SCRIPTS = 60 * 1024
MAX_STYLES = 20 * 1024


def test_the_page_of_a_job_needs_few_bytes_and_nothing_from_elsewhere(visitor: Visitor):
    job_id = visitor.submit("tiles", count=4)
    visitor.until(job_id, "COMPLETED")
    page = visitor.page(None)
    foreign: list[str] = []

    def stop_foreign(route: Route) -> None:
        if route.request.url.startswith(visitor.server.url):
            route.continue_()
        else:
            foreign.append(route.request.url)
            route.abort()

    page.route("**/*", stop_foreign)
    bodies: dict[str, bytes] = {}

    def keep(response: Response) -> None:
        if response.url.endswith((".js", ".css")):
            bodies[response.url] = response.body()

    page.on("response", keep)
    ready = {
        "": ".dag-node",
        "/timeline": "job-timeline canvas",
        "/logs": "log-view .log-lines",
        "/map": "main",
    }
    for tab, element in ready.items():
        bodies.clear()
        page.goto(f"/ui/jobs/{job_id}{tab}")
        expect(page.locator(element).first).to_be_visible()
        sizes = {url: len(gzip.compress(body)) for url, body in bodies.items()}
        scripts = sum(size for url, size in sizes.items() if url.endswith(".js"))
        assert scripts <= MAX_SCRIPTS, (tab, sizes)
        assert sum(size for url, size in sizes.items() if url.endswith(".css")) <= MAX_STYLES, (tab, sizes)
    assert foreign == []
