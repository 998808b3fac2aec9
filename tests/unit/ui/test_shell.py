"""The shell of pages: navigation by scope, static files, notices, error pages."""

from __future__ import annotations

import asyncio
import gzip
import re
from pathlib import Path

import pytest

import dagmaster.ui
from dagmaster.application.views import AttemptStatus, JobStatus, NodeStatus
from dagmaster.errors import DatabaseUnavailable, JobNotFound
from dagmaster.ports.api_keys import Scope
from dagmaster.ui.assets import Assets
from dagmaster.ui.navigation import FEATURES, NAVIGATION, TERMS, Mode, navigation_for
from dagmaster.ui.pages.messages import error_page
from dagmaster.ui.pages.times import duration, format_seconds, moment
from dagmaster.ui.rendering import status_look
from tests.unit.ui.page_client import opened_pages, text_of

FOLDER = Path(dagmaster.ui.__file__).parent
TEMPLATES = sorted((FOLDER / "templates").rglob("*.html"))
TONES = {"ok", "running", "waiting", "failed", "skipped", "pending", "warning"}


def test_the_navigation_has_only_pages_that_exist_and_that_the_viewer_may_see():
    served = {("GET", "/ui/"): Scope.READ, ("GET", "/ui/keys"): Scope.ADMIN}
    assert [item.path for section in navigation_for({Scope.READ}, served) for item in section.items] == [
        "/ui/"
    ]
    assert [item.path for section in navigation_for({Scope.ADMIN}, served) for item in section.items] == [
        "/ui/",
        "/ui/keys",
    ]
    assert navigation_for({Scope.WORK}, served) == ()


def test_every_mode_has_features_and_terms_and_no_two_pages_the_same_shortcut():
    assert set(FEATURES) == set(TERMS) == set(Mode)
    keys = [item.keys for item in NAVIGATION if item.keys]
    assert len(keys) == len(set(keys))


@pytest.mark.parametrize("status", [*JobStatus, *NodeStatus, *AttemptStatus])
def test_every_status_has_a_word_an_icon_and_one_of_seven_tones(status):
    look = status_look(status)
    assert look.word == status.lower()
    assert look.tone in TONES
    assert f'id="{look.icon}"' in (FOLDER / "static" / "icons.svg").read_text(encoding="utf-8")


def test_every_icon_that_a_template_names_exists():
    icons = set(re.findall(r'id="([\w-]+)"', (FOLDER / "static" / "icons.svg").read_text(encoding="utf-8")))
    for template in TEMPLATES:
        for name in re.findall(r'ui\.(?:icon|empty)\("([\w-]+)"', template.read_text(encoding="utf-8")):
            assert name in icons, (template.name, name)


def test_no_template_has_an_inline_script_style_or_handler():
    for template in TEMPLATES:
        text = template.read_text(encoding="utf-8")
        assert not re.search(r"\sstyle=|\son\w+=|<style|javascript:|\|\s*safe\b", text), template.name
        assert not re.search(r"<script(?![^>]*src=)", text), template.name


def test_no_script_makes_html_of_text():
    for script in (FOLDER / "static").rglob("*.js"):
        text = script.read_text(encoding="utf-8")
        assert not re.search(
            r"innerHTML|outerHTML|insertAdjacentHTML|document\.write|\beval\(|new Function", text
        ), script.name


def test_static_files_are_kept_by_their_hash():
    async def main() -> None:
        base = Assets().base
        async with opened_pages() as pages:
            answer = await pages.get(f"{base}/style.css")
            assert answer.headers["content-type"].startswith("text/css")
            assert "immutable" in answer.headers["cache-control"]
            again = await pages.get(f"{base}/style.css", **{"If-None-Match": answer.headers["etag"]})
            assert (again.status_code, again.content) == (304, b"")
            # A page of the server before this one asks for its own version.
            older = await pages.get("/ui/static/0123456789ab/app.js")
            assert (older.status_code, older.headers["cache-control"]) == (200, "no-cache")
            assert older.headers["content-type"].startswith("text/javascript")
            for path in ("../site.py", "..%2Fsite.py", "elements/../../site.py", "missing.js"):
                assert (await pages.get(f"{base}/{path}")).status_code == 404, path

    asyncio.run(main())


def test_the_root_leads_to_the_web_page():
    async def main() -> None:
        async with opened_pages() as pages:
            for path in ("/", "/ui"):
                answer = await pages.get(path)
                assert (answer.status_code, answer.headers["location"]) == (303, "/ui/")

    asyncio.run(main())


def test_an_error_page_says_what_happened_and_what_to_do():
    page = error_page(JobNotFound("there is no job '7'"), 404, "r1")
    assert (page.title, page.sentence, page.retries) == ("Not found", "There is no job '7'.", False)
    assert error_page(DatabaseUnavailable("the database cannot be reached"), 503, "r1").retries


def test_a_bug_shows_the_id_of_the_request_and_no_detail(monkeypatch):
    from dagmaster.ui.routes import overview

    async def fail(*_: object, **__: object) -> None:
        raise RuntimeError("canary of a secret")

    monkeypatch.setattr(overview, "fleet", fail)

    async def main() -> None:
        async with opened_pages() as pages:
            answer = await pages.get("/ui/", **{"X-Request-ID": "request-77"})
            assert answer.status_code == 500
            assert "request-77" in answer.text
            assert "canary" not in answer.text

    asyncio.run(main())


def test_a_key_in_the_address_logs_in_by_itself_in_mode_dev_only():
    """Elsewhere a link on another site could log a visitor in with its own key."""

    async def main() -> None:
        for mode in Mode:
            async with opened_pages(mode=mode) as pages:
                pages.key = ""
                assert ('data-login="auto"' in (await pages.get("/ui/login")).text) is (mode is Mode.DEV)

    asyncio.run(main())


def test_without_jobs_the_overview_teaches_and_with_jobs_it_lists_them():
    async def main() -> None:
        async with opened_pages(mode=Mode.DEV) as pages:
            await pages.api.publish()
            text = text_of((await pages.get("/ui/")).text)
            assert "Nothing has run here yet" in text
            assert "dagmaster submit hello" in text
            for name in ("demo", "alpha"):
                await pages.api.publish(
                    f"workflow_id: {name}\nversion: 1\nnodes: {{end: {{type: wait, seconds: 1}}}}"
                )
            first = re.search(r'class="button button-primary" href="([^"]+)"', (await pages.get("/ui/")).text)
            assert first is not None
            assert first[1] == "/ui/submit?workflow_id=demo"
            job_id = (await pages.api.post("/api/v1/jobs", {"workflow_id": "hello"})).json()["job_id"]
            await pages.api.until(job_id, "WAITING")
            text = text_of((await pages.get("/ui/")).text)
            assert "Nothing runs" in text
            assert "Recent jobs" in text
            assert job_id in text

    asyncio.run(main())


def test_a_fragment_is_the_content_of_a_page_alone():
    async def main() -> None:
        async with opened_pages() as pages:
            whole, part = (
                (await pages.get("/ui/")).text,
                (await pages.get("/ui/", **{"X-Fragment": "1"})).text,
            )
            assert part.strip() in whole
            assert "<html" not in part
            assert "sidebar" not in part

    asyncio.run(main())


@pytest.mark.parametrize(
    ("seconds", "text"),
    [
        (0.0, "0 ms"),
        (0.34, "340 ms"),
        (1.24, "1.2 s"),
        (59.9, "59 s"),
        (192, "3 min 12 s"),
        (7500, "2 h 05 min"),
        (273_600, "3 d 4 h"),
    ],
)
def test_a_duration_has_its_two_largest_units(seconds, text):
    assert format_seconds(seconds) == text


def test_a_duration_ticks_until_its_end():
    running = duration(100.0, None, 160.0)
    assert running is not None
    assert (running.text, running.since) == ("1 min 00 s", "1970-01-01T00:01:40Z")
    over = duration(100.0, 101.5, 160.0)
    assert over is not None
    assert (over.text, over.since) == ("1.5 s", "")
    assert duration(None, None, 5.0) is None


def test_a_moment_is_relative_and_exact():
    at = moment(0.0, 3600.0)
    assert at is not None
    assert (at.relative, at.absolute, at.iso) == (
        "1 h ago",
        "1970-01-01 00:00:00 UTC",
        "1970-01-01T00:00:00Z",
    )
    later = moment(90.0, 0.0)
    assert later is not None
    assert later.relative == "in 1 min"


def modules_of(name: str) -> set[str]:
    """Return a module, and all that it imports."""
    static, known, pending = FOLDER / "static", set[str](), [name]
    while pending:
        module = pending.pop()
        if module in known:
            continue
        known.add(module)
        if module.endswith(".js"):
            text = (static / module).read_text(encoding="utf-8")
            paths = re.findall(r"""(?:from\s+|new URL\()["'](\.[^"']+)["']""", text)
            pending += [
                str((static / module).parent.joinpath(path).resolve().relative_to(static.resolve()))
                for path in paths
            ]
    return known


@pytest.mark.parametrize("element", ["dag-graph", "job-timeline", "log-view"])
def test_the_page_of_a_job_is_light(element):
    modules = modules_of("app.js") | modules_of("job.js") | modules_of(f"elements/{element}.js")
    sizes = {name: len(gzip.compress((FOLDER / "static" / name).read_bytes(), 6)) for name in modules}
    assert sum(sizes.values()) <= 60_000, sizes
    assert len(gzip.compress((FOLDER / "static" / "style.css").read_bytes(), 6)) <= 20_000
