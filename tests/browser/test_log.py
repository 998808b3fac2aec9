"""The log of a job: the end first, pages on demand, search on the server, links to lines, colours, following."""

from __future__ import annotations

import json
import re
from dataclasses import replace
from typing import TYPE_CHECKING, Any

import pytest
from playwright.sync_api import expect

from dagmaster.worker.task_log_capture import capture
from tests.browser.elements import mount
from tests.browser.test_faults import database_of
from tests.browser.test_live import HIDE
from tests.browser.visitor import COUNT_SOURCES

if TYPE_CHECKING:
    from playwright.sync_api import Page

    from tests.browser.visitor import Visitor

LINES = 12_000
WORKFLOW = """
workflow_id: talkative
version: 1
inputs: {lines: {type: integer, default: 10}, asks: {type: boolean, default: false}}
nodes:
  talk: {handler: talk, params: {lines: "{{ inputs.lines }}"}, next: ask}
  ask:
    type: conditional
    condition_field: "{{ inputs.asks }}"
    branches: [{name: ask, condition: "value == true", next: wait}, {default: true}]
  wait: {type: approval, next: last}
  last: {handler: talk, params: {lines: 1}}
"""


WRITTEN: dict[tuple[str, int], str] = {}
"""The jobs that have written a number of lines on a server: to write 12,000 takes longer than to read them."""


@pytest.fixture
def job(visitor: Visitor) -> Any:
    """Return a function that runs a job which writes lines, and returns its id."""
    visitor.api.post("/api/v1/workflows", json={"text": WORKFLOW}).raise_for_status()

    def run(lines: int, *, asks: bool = False) -> str:
        place = (visitor.server.url, lines)
        if not asks and place in WRITTEN:
            return WRITTEN[place]
        # Here, not around the test: pytest replaces the streams between setup and call.
        with capture():
            job_id = visitor.submit("talkative", lines=lines, asks=asks)
            visitor.until(job_id, "WAITING" if asks else "COMPLETED")
        return job_id if asks else WRITTEN.setdefault(place, job_id)

    return run


def open_log(visitor: Visitor, job_id: str, fragment: str = "", **options: Any) -> Page:
    page = visitor.page(f"/ui/jobs{fragment}", **options)
    follow = {} if visitor.job(job_id)["status"] == "COMPLETED" else {"follow": ""}
    mount(page, "log-view", src=f"/api/v1/jobs/{job_id}/logs", **follow)
    expect(page.locator(".log-line").last).to_be_attached()
    page.locator("log-view:not([aria-busy])").wait_for()
    return page


def scroll_to(page: Page, place: str) -> None:
    page.evaluate(
        f"(() => {{ const box = document.querySelector('.log-lines'); box.scrollTop = {place}; }})()"
    )


def test_the_end_is_shown_first_and_older_pages_when_the_reader_scrolls_up(visitor: Visitor, job: Any):
    page = open_log(visitor, job(LINES))
    expect(page.locator(".log-line").last).to_contain_text(f"line {LINES - 1}")
    expect(page.locator(".log-line").last).to_be_in_viewport()
    assert "line 0 " not in (page.locator(".log-lines").text_content() or "")
    first = page.locator(".log-line").first.text_content()
    scroll_to(page, "0")
    page.wait_for_function("first => document.querySelector('.log-line').textContent !== first", arg=first)
    page.get_by_role("button", name="Start").click()
    expect(page.locator(".log-line").first).to_contain_text("line 0 ")
    expect(page.locator(".log-line").first).to_be_in_viewport()


def test_a_window_of_the_log_is_kept_not_all_of_it(visitor: Visitor, job: Any):
    page = open_log(visitor, job(LINES))
    page.get_by_role("button", name="Start").click()
    expect(page.locator(".log-line").first).to_contain_text("line 0 ")
    for _ in range(200):
        if (page.locator(".log-line").last.text_content() or "").endswith(f"line {LINES - 1} of the log"):
            break
        scroll_to(page, "box.scrollHeight")
        page.wait_for_function("!document.querySelector('log-view').hasAttribute('aria-busy')")
    expect(page.locator(".log-line").last).to_contain_text(f"line {LINES - 1} ")
    assert page.locator(".log-line").count() < LINES * 0.9
    numbers = [
        int(number)
        for number in re.findall(r"line (\d+) of", (page.locator(".log-lines").text_content() or ""))
    ]
    assert numbers == list(range(numbers[0], LINES)), "no line is missing or repeated"


def test_search_and_levels_are_asked_of_the_server(visitor: Visitor, job: Any):
    page = open_log(visitor, job(LINES))
    page.keyboard.press("Control+f")
    page.keyboard.type("LINE 777 ")
    expect(page.locator(".log-line")).to_have_count(1)
    expect(page.locator(".log-state")).to_have_text("1 matching line")
    page.locator(".log-line .log-time").click()
    expect(page.locator(".log-line[aria-current]")).to_contain_text("line 777 of")
    expect(page.locator(".log-line", has_text="line 778 of")).to_be_attached()
    page.get_by_label("Level").select_option("error")
    expect(page.locator(".log-state")).to_contain_text("matching line")
    for line in page.locator(".log-line .log-text").all_inner_texts():
        assert line.startswith(("ERROR", "Traceback", " ", "ValueError"))
    page.get_by_label("Search this log").fill("nothing like it")
    expect(page.locator(".log-state")).to_have_text("No line matches")
    page.get_by_label("Search this log").press("Escape")
    expect(page.locator(".log-line").first).to_be_attached()


def test_a_text_that_is_split_between_two_chunks_is_found_and_its_line_is_whole(visitor: Visitor, job: Any):
    job_id = job(20)
    logs = database_of(visitor.server).logs
    ((task_id, number), log) = next((key, log) for key, log in logs.items() if log.job_id == job_id)
    before, _, after = log.record.text.partition("e 7 of the log")
    position = (log.record.at, task_id, number + 1)
    rest = log.record._replace(text=f"f the log{after}", position=position)
    log.record = log.record._replace(text=f"{before}e 7 o")
    logs[task_id, number + 1] = replace(log, record=rest)
    page = open_log(visitor, job_id)
    page.get_by_label("Search this log").fill("line 7 of")
    expect(page.locator(".log-line")).to_have_count(1)
    page.locator(".log-line .log-time").click()
    expect(page.locator(".log-line[aria-current]")).to_contain_text("line 7 of the log")


def test_a_filter_of_what_comes_joins_the_parts_of_a_line(visitor: Visitor):
    page = visitor.page("/ui/jobs")
    item = {"job_id": "7", "node_id": "a", "attempt": 1, "at": "2026-11-17T10:00:00.500000Z"}
    chunks = [
        {**item, "text": text, "cursor": str(number)}
        for number, text in enumerate(["ERROR the nee", "dle is", " long\nother\n"])
    ]
    stream = "".join(f"event: log\ndata: {json.dumps(chunk)}\n\n" for chunk in chunks)
    empty: dict[str, Any] = {"items": [], "next_cursor": None}
    page.route("**/api/v1/jobs/7/logs?*", lambda route: route.fulfill(json=empty))
    page.route("**/api/v1/jobs/7/logs/lines?*", lambda route: route.fulfill(json=empty))
    page.route(
        "**/api/v1/jobs/7/stream?*logs=true*",
        lambda route: route.fulfill(content_type="text/event-stream", body=stream),
    )
    mount(page, "log-view", src="/api/v1/jobs/7/logs", follow="")
    page.get_by_label("Search this log").fill("needle")
    expect(page.locator(".log-line")).to_have_count(1)
    expect(page.locator(".log-line .log-text")).to_have_text("ERROR the needle is long")


def test_a_link_leads_to_its_line(visitor: Visitor, job: Any):
    job_id = job(3_000)
    page = open_log(visitor, job_id)
    page.get_by_label("Search this log").fill("line 1234 ")
    expect(page.locator(".log-line")).to_have_count(1)
    page.locator(".log-line .log-time").click()
    expect(page.locator(".log-line[aria-current]")).to_contain_text("line 1234 of")
    fragment = page.evaluate("location.hash")
    other = open_log(visitor, job_id, fragment)
    expect(other.locator(".log-line[aria-current]")).to_contain_text("line 1234 of")
    expect(other.locator(".log-line[aria-current]")).to_be_in_viewport()


def test_what_is_written_later_is_appended_and_the_reader_stays_where_they_are(visitor: Visitor, job: Any):
    job_id = job(400, asks=True)
    page = open_log(visitor, job_id)
    expect(page.locator(".log-state")).to_have_text("Live")
    scroll_to(page, "100")
    expect(page.get_by_role("button", name="Follow")).to_have_attribute("aria-pressed", "false")
    with capture():
        visitor.api.post(f"/api/v1/jobs/{job_id}/nodes/wait/approve", json={}).raise_for_status()
        visitor.until(job_id, "COMPLETED")
    more = page.get_by_role("button", name="new line")
    expect(more).to_be_visible()
    more.click()
    expect(page.locator(".log-node").last).to_have_text("last")
    expect(page.locator(".log-line").last).to_be_in_viewport()
    expect(page.locator(".log-state")).to_have_text("")


def test_the_log_tab_has_one_connection_and_a_restart_of_the_server_loses_and_repeats_no_line(
    visitor: Visitor, job: Any
):
    job_id = job(400, asks=True)
    page = visitor.page(None)
    page.add_init_script(COUNT_SOURCES)
    page.goto(f"/ui/jobs/{job_id}/logs")
    expect(page.locator(".log-state")).to_have_text("Live")
    are_open = (
        "sources.filter((source) => source.readyState !== 2).map((source) => new URL(source.url).pathname)"
    )
    assert page.evaluate(are_open) == [f"/api/v1/jobs/{job_id}/stream"]
    page.evaluate(HIDE, True)
    assert page.evaluate(are_open) == []
    visitor.server.restart()
    page.evaluate(HIDE, False)
    page.wait_for_function("() => sources.at(-1).readyState === 1")
    visitor.server.restart()
    with capture():
        visitor.api.post(f"/api/v1/jobs/{job_id}/nodes/wait/approve", json={}).raise_for_status()
        visitor.until(job_id, "COMPLETED")
    expect(page.locator(".log-node").last).to_have_text("last")
    expect(page.locator(".log-state")).to_have_text("")
    assert page.evaluate(are_open) == []
    text = page.locator(".log-lines").text_content() or ""
    assert re.findall(r"line (\d+) of", text) == [*map(str, range(400)), "0"], (
        "each line is there once, in order"
    )
    visitor.problems.clear()  # the connections that were cut off are in the console


def test_colours_come_from_our_parser_and_markup_stays_text(visitor: Visitor, job: Any):
    page = open_log(visitor, job(10))
    line = page.locator(".log-line", has_text="coloured")
    expect(line.locator(".ansi-bold.ansi-fg2")).to_have_text("green")
    expect(line.locator(".log-text")).to_have_text("green and <img src=x onerror=alert(1)> coloured")
    assert page.locator("log-view img").count() == 0


ESCAPES = {
    "plain": [["plain", "", ""]],
    "\x1b[1;31mred\x1b[0m end": [["red", "ansi-bold ansi-fg1", ""], [" end", "", ""]],
    "\x1b[38;5;196mx\x1b[39my": [["x", "", "rgb(255 0 0)"], ["y", "", ""]],
    "\x1b[38;2;1;2;300mx": [["x", "", "rgb(1 2 255)"]],
    "\x1b[2K\x1b[1Gdone": [["done", "", ""]],
    "10%\r50%\r100%": [["100%", "", ""]],
    "\x1b]8;;http://x\x07link\x1b]8;;\x07": [["link", "", ""]],
    "\x1b[4munder\x1b[24m\x07 bell": [["under", "ansi-underline", ""], [" bell", "", ""]],
    "\x1b[97mwhite\x1b[m\x1b[100m grey": [["white", "ansi-fg15", ""], [" grey", "ansi-bg8", ""]],
}


def test_escapes_become_classes_and_colours(visitor: Visitor):
    page = visitor.page("/ui/jobs")
    assert list(ESCAPES.values()) == page.evaluate(
        """async (lines) => {
          const {parseAnsi} = await import(`${document.documentElement.dataset.assets}/elements/log-view.js`);
          return lines.map((line) => parseAnsi(line).flatMap(({text, classes, color}) => text ? [[text, classes.join(" "), color]] : []));
        }""",
        list(ESCAPES),
    )
