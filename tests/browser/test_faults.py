"""What goes wrong around a page: a job that is removed, a large output, long and unusual names, a page of another origin."""

from __future__ import annotations

import threading
from functools import partial
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import TYPE_CHECKING

import pytest
from playwright.sync_api import expect

from dagmaster.ui.site import page_scopes

if TYPE_CHECKING:
    from collections.abc import Iterator

    from dagmaster.store.memory.database import MemoryDatabase
    from tests.browser.visitor import Visitor
    from tests.unit.http.loopback import Loopback

NAMES = (
    "n" * 128,
    "صورة_القمر_الصناعي_للفيضان " * 4,
    "🛰🌍 tiles 🔥" * 10,
)
SIZE = 200 * 2**20


def database_of(server: Loopback) -> MemoryDatabase:
    return server.services.application.read._database  # type: ignore[attr-defined, no-any-return]


def test_a_job_that_is_removed_says_so_and_its_address_is_explained(visitor: Visitor):
    job_id = visitor.submit("hang")
    visitor.until(job_id, "RUNNING")
    page = visitor.page(f"/ui/jobs/{job_id}")
    expect(page.locator("[data-live]")).to_have_text("live")
    page.route(f"**/api/v1/jobs/{job_id}**", lambda route: route.fulfill(status=404))
    page.context.set_offline(offline=True)
    page.context.set_offline(offline=False)
    expect(page.locator("[data-banner]")).to_contain_text("This job was removed")
    expect(page.get_by_role("heading", name="hang")).to_be_visible()
    visitor.api.post(f"/api/v1/jobs/{job_id}/cancel")
    page.goto("/ui/jobs/1")
    expect(page.get_by_role("heading", name="Not found")).to_be_visible()
    expect(page.get_by_role("main").get_by_role("link").first).to_be_visible()
    visitor.problems.clear()  # 404 is in the console


def test_an_output_of_200_mb_is_offered_for_download_and_never_read(visitor: Visitor):
    """Without a limit, the page would read it, and the stream would send it."""
    job_id = visitor.submit("large")
    visitor.until(job_id, "COMPLETED")
    database = database_of(visitor.server)
    small = {name: data for name, data in database.blobs.blobs.items() if job_id in name}
    assert small
    database.blobs.blobs |= dict.fromkeys(small, b" " * SIZE)
    page = visitor.page(f"/ui/jobs/{job_id}/nodes/make")
    output = page.get_by_role("region", name="Output")
    expect(output).to_contain_text(f"{SIZE}")
    expect(output).to_contain_text("too large to be shown here: download it")
    with page.expect_download() as started:
        output.get_by_role("link", name="JSON").click()
    assert started.value.suggested_filename == f"job-{job_id}-make-output.json"
    assert started.value.path().stat().st_size == SIZE
    database.blobs.blobs |= small
    page.reload()
    assert 64_000 < len(output.locator("pre").inner_text()) < 66_000
    expect(output.get_by_role("link", name="Download all of it")).to_be_visible()


@pytest.mark.parametrize("width", [320, 1280])
def test_long_and_unusual_names_stay_in_their_place(visitor: Visitor, width: int):
    body = {"workflow_id": "tiles", "inputs": {"count": 2, "fails": True}, "correlation_id": "c" * 64}
    jobs = [
        visitor.api.post("/api/v1/jobs", json={**body, "name": name.strip()}).json()["job_id"]
        for name in NAMES
    ]
    for job_id in jobs:
        visitor.until(job_id, "FAILED")
    page = visitor.page(None, viewport={"width": width, "height": 740})
    for path in (
        "/ui/",
        "/ui/jobs",
        *(f"/ui/jobs/{job_id}" for job_id in jobs),
        f"/ui/jobs/{jobs[0]}/resume",
    ):
        page.goto(path)
        assert page.evaluate("document.documentElement.scrollWidth") <= width, path
    page.goto(f"/ui/jobs/{jobs[1]}")
    expect(page.get_by_role("heading", level=1)).to_have_text(NAMES[1].strip())


class Foreign(BaseHTTPRequestHandler):
    """A page of another origin. The same host: its requests are of the same site, so the cookie is sent."""

    def __init__(self, target: str, *args: object) -> None:
        self._target = target
        super().__init__(*args)  # type: ignore[arg-type]

    def do_GET(self) -> None:
        form = f'<form method=post action="{self._target}/ui/logout"><button>win</button></form>'
        self.send_response(200)
        self.send_header("Content-Type", "text/html")
        self.end_headers()
        self.wfile.write(
            f"<!doctype html><title>x</title>{form}<iframe src='{self._target}/ui/'></iframe>".encode()
        )

    def log_message(self, *_: object) -> None:
        """Write nothing."""


@pytest.fixture
def foreign(visitor: Visitor) -> Iterator[str]:
    server = ThreadingHTTPServer(("127.0.0.1", 0), partial(Foreign, visitor.server.url))
    threading.Thread(target=server.serve_forever, daemon=True).start()
    yield f"http://127.0.0.1:{server.server_port}/"
    server.shutdown()
    server.server_close()


def test_a_page_of_another_origin_changes_nothing_reads_nothing_and_frames_nothing(
    visitor: Visitor, foreign: str
):
    page = visitor.page("/ui/")
    page.goto(foreign)
    assert page.frame_locator("iframe").locator("nav").count() == 0
    statuses: list[tuple[str, int]] = []
    page.on("response", lambda response: statuses.append((response.url, response.status)))
    names = {
        "job_id": "1",
        "node_id": "a",
        "workflow_id": "tiles",
        "name": "x",
        "key_id": "x",
        "session_id": "x",
        "callback_id": "x",
        "service_id": "1",
    }
    paths = [path.format(**names) for method, path in page_scopes() if method == "POST"]
    page.evaluate(
        """async ([origin, paths]) => {
            for (const path of paths) {
                await fetch(origin + path, { method: "POST", mode: "no-cors", credentials: "include", body: new URLSearchParams({ token: "x" }) });
            }
        }""",
        [visitor.server.url, paths],
    )
    assert [(url.removeprefix(visitor.server.url), status) for url, status in statuses] == [
        (path, 403) for path in paths
    ]
    read = "(url) => fetch(url, { credentials: 'include' }).then((answer) => answer.text(), () => 'blocked')"
    assert page.evaluate(read, f"{visitor.server.url}/api/v1/jobs") == "blocked"
    page.get_by_role("button", name="win").click()
    expect(page.get_by_text("was not sent by a page of this server")).to_be_visible()
    page.goto(f"{visitor.server.url}/ui/jobs")
    expect(page.get_by_role("navigation", name="Main")).to_be_visible()
    visitor.problems.clear()  # what the browser blocked
