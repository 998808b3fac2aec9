"""The timeline of a job: lanes, idle time, critical path, table, live changes."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pytest
from playwright.sync_api import expect

from tests.browser.elements import (
    TIMELINE,
    a_timeline,
    axe_violations,
    keep_texts,
    mount,
    mount_timeline,
    next_frame,
    overlapping_texts,
)

if TYPE_CHECKING:
    from playwright.sync_api import Page

    from tests.browser.visitor import Visitor

ROWS = [
    ("fetch", 1, "FAILED", "h:1", 0.0, 1.0, 3.0),
    ("fetch", 2, "COMPLETED", "h:2", 4.0, 4.5, 8.0),
    ("tiles", 0, "COMPLETED", None, None, None, 30.0),
    ("tiles__0", 1, "COMPLETED", "h:1", 8.0, 9.0, 20.0),
    ("tiles__1", 1, "COMPLETED", "h:1", 8.0, 10.0, 30.0),
    ("tiles__10", 1, "COMPLETED", "h:2", 8.0, 9.5, 12.0),
    ("tiles__2", 1, "COMPLETED", "h:2", 8.0, 12.5, 13.0),
    ("release", 0, "WAITING", None, None, 30.0, None),
]
CRITICAL = ["fetch", "tiles", "tiles__1"]


def evaluate(page: Page, pages: list[dict[str, Any]], body: str) -> Any:
    """Return what an expression about a model yields; `lanes(by, now, isCriticalOnly)` makes lanes."""
    return page.evaluate(
        """async (pages) => {
            const { Axis, TimelineModel, formatDuration } = await import(`${document.documentElement.dataset.assets}/timeline/model.js`);
            const model = new TimelineModel(pages);
            const lanes = (by, now = 60, only = false) => model.lanes(by, now, only);
            return (BODY);
        }""".replace("BODY", body),
        pages,
    )


def test_lanes_by_node_are_in_the_order_of_time_with_children_below_their_fan_out(visitor: Visitor):
    page = visitor.page("/ui/workflows")
    view = a_timeline(ROWS, critical_path=CRITICAL)
    names = evaluate(page, [view], "lanes('node').map((lane) => lane.label)")
    assert names == ["fetch", "tiles", "tiles__0", "tiles__1", "tiles__2", "tiles__10", "release"]
    bars = evaluate(
        page, [view], "lanes('node').map((lane) => lane.bars.map((bar) => [bar.begin, bar.started, bar.end]))"
    )
    assert bars[0] == [[0, 1, 3], [4, 4.5, 8]]
    assert bars[1] == [[8, 8, 30]], "a fan-out begins with its first child"
    assert bars[-1] == [[30, 30, 60]], "what is open ends now"
    only = evaluate(page, [view], "lanes('node', 60, true).map((lane) => lane.label)")
    assert only == CRITICAL


def test_lanes_by_worker_never_overlap(visitor: Visitor):
    page = visitor.page("/ui/workflows")
    view = a_timeline([*ROWS, ("late", 1, "DISPATCHED", None, 50.0, None, None)])
    lanes = evaluate(
        page,
        [view],
        "lanes('worker').map((lane) => [lane.label, lane.bars.map((bar) => bar.row.nodeId)])",
    )
    assert lanes == [
        ["h:1", ["fetch", "tiles__0"]],
        ["h:1", ["tiles__1"]],
        ["h:2", ["fetch", "tiles__10", "tiles__2"]],
        ["not claimed", ["late"]],
    ]


def test_idle_time_is_short_and_everything_else_keeps_its_length(visitor: Visitor):
    page = visitor.page("/ui/workflows")
    rows = [
        ("a", 1, "COMPLETED", "h:1", 0.0, 0.0, 10.0),
        ("b", 1, "COMPLETED", "h:1", 3600.0, 3600.0, 3610.0),
    ]
    view = a_timeline(rows, finished_seconds=3610.0)
    axis = "new Axis(lanes('node'))"
    assert evaluate(page, [view], f"{axis}.idle") == [[10, 3600]]
    at = evaluate(page, [view], f"[0, 10, 3600, 3610].map((time) => {axis}.position(time))")
    assert (at[1] - at[0], at[3] - at[2]) == (pytest.approx(10), pytest.approx(10))
    assert 0 < at[2] - at[1] < 2


@pytest.mark.parametrize("width", [360, 1280])
def test_no_text_overlaps_another_or_is_cut_off(visitor: Visitor, width: int):
    rows = [
        (f"make_large_tiles__{number}", 1, "COMPLETED", "h:1", start, start + 0.1, start + 1.0 + number / 7)
        for number, start in enumerate([0.0, 1.0, 2.0, 500.0, 501.0, 502.0, 900.0, 902.0, 1500.0])
    ]
    view = a_timeline(rows, status="COMPLETED", now_seconds=1600.0, finished_seconds=1502.2)
    page = mount_timeline(visitor, view, viewport={"width": width, "height": 740})
    keep_texts(page)
    for _ in range(4):
        page.evaluate("window.texts = []")
        page.get_by_role("button", name="Zoom in").click()
        next_frame(page)
        assert overlapping_texts(page) == []
        room = page.locator("job-timeline canvas").bounding_box()
        assert room is not None
        assert page.evaluate("Math.max(...window.texts.map(({ right }) => right))") <= room["width"]
    names = page.evaluate("window.texts.map(({ text }) => text).filter((text) => text.includes('__'))")
    assert [name.partition("__")[2] for name in names] == [str(number) for number in range(9)]


def test_durations_are_for_people(visitor: Visitor):
    page = visitor.page("/ui/workflows")
    seconds = [0, 0.35, 1.24, 59.9, 64, 3600, 7500, 90061]
    texts = evaluate(page, [a_timeline([])], f"{seconds}.map(formatDuration)")
    assert texts == ["0 ms", "350 ms", "1.2 s", "59 s", "1 min 4 s", "1 h", "2 h 5 min", "1 d 1 h"]


def test_keys_choose_a_row_and_enter_opens_it(visitor: Visitor):
    page = mount_timeline(visitor, a_timeline(ROWS, critical_path=CRITICAL))
    body = page.get_by_role("group", name="Timeline")
    body.focus()
    page.keyboard.press("ArrowDown")
    expect(page.locator("job-timeline .visually-hidden[role=status]")).to_have_text(
        "fetch, attempt 2, completed, queued 500 ms, ran 3.5 s, on h:2"
    )
    page.keyboard.press("End")
    page.keyboard.press("Enter")
    assert page.evaluate("opened") == ["release"]


def test_a_click_on_a_bar_opens_its_node_and_a_pointer_shows_its_times(visitor: Visitor):
    page = mount_timeline(visitor, a_timeline(ROWS))
    box = page.get_by_role("group", name="Timeline").bounding_box()
    assert box is not None
    # The second lane is the fan-out, about the middle of the axis.
    page.mouse.move(box["x"] + 240 + (box["width"] - 252) * 0.3, box["y"] + 26 + 24 + 12)
    expect(page.locator(".timeline-tip")).to_contain_text("tiles, completed")
    page.mouse.down()
    page.mouse.up()
    assert page.evaluate("opened") == ["tiles"]


def test_the_table_has_the_same_rows_and_pages(visitor: Visitor):
    rows = [
        (f"n{number:04d}", 1, "COMPLETED", "h:1", number, number + 0.5, number + 2.0) for number in range(250)
    ]
    page = mount_timeline(visitor, a_timeline(rows))
    page.get_by_role("button", name="Table").click()
    table = page.get_by_role("table", name="Attempts of the job")
    expect(table.get_by_role("row")).to_have_count(101)
    expect(table.get_by_role("row").nth(3)).to_have_text("n00021completedh:12.0 s500 ms1.5 s")
    page.get_by_role("button", name="Next").click()
    page.get_by_role("button", name="Next").click()
    expect(table.get_by_role("row")).to_have_count(51)
    expect(page.get_by_text("Page 3 of 3 · 250 rows")).to_be_visible()
    table.get_by_role("button", name="n0249").click()
    assert page.evaluate("opened") == ["n0249"]


def test_pages_of_the_api_are_read_to_the_end(visitor: Visitor):
    page = mount_timeline(
        visitor,
        a_timeline(ROWS[:3], next_cursor="two"),
        a_timeline(ROWS[3:5], next_cursor="three"),
        a_timeline(ROWS[5:]),
    )
    assert page.evaluate("document.querySelector('job-timeline').laneCount") == 7


def test_a_delta_is_shown_at_once(visitor: Visitor):
    page = mount_timeline(visitor, a_timeline(ROWS[:1]))
    page.evaluate("""() => {
        const event = (type, node_id, attempt, second, data = {}) => ({ type, node_id, attempt, at: `2026-11-17T10:00:${second}Z`, data });
        const job = { job_id: "7", finished_at: null };
        const events = [event("NodeDispatched", "next", 1, "10"), event("NodeDispatched", "other", 1, "11")];
        document.dispatchEvent(new CustomEvent("job-delta", { detail: { job, events, nodes: {} } }));
        const more = [event("AttemptStarted", "next", 1, "14", { started_at: "2026-11-17T10:00:12Z" }), event("NodeCompleted", "next", 1, "14")];
        document.dispatchEvent(new CustomEvent("job-delta", { detail: { job, events: more, nodes: {} } }));
        const foreign = { job: { job_id: "8", finished_at: null }, events: [event("NodeDispatched", "foreign", 1, "10")], nodes: {} };
        document.dispatchEvent(new CustomEvent("job-delta", { detail: foreign }));
    }""")
    page.get_by_role("button", name="Table").click()
    rows = page.get_by_role("table").get_by_role("row")
    expect(rows.nth(2)).to_have_text("next1completed10 s2.0 s2.0 s")
    expect(rows.nth(3)).to_contain_text("other1dispatched")
    expect(rows).to_have_count(4)


def test_what_ended_between_the_read_and_the_stream_is_shown(visitor: Visitor):
    page = visitor.page("/ui/jobs")
    page.clock.install()
    rows = [("fetch", 1, "RUNNING", "h:1", 0.0, 1.0, None)]
    ended = [*rows, ("late", 1, "FAILED", "h:1", 1.0, 1.0, 2.0)]
    answers = iter([a_timeline(rows), a_timeline(ended)])
    page.route(f"**{TIMELINE}*", lambda route: route.fulfill(json=next(answers)))
    mount(page, "job-timeline", src=TIMELINE)
    page.get_by_role("button", name="Table").click()
    lines = page.locator("job-timeline tbody tr")
    expect(lines).to_have_count(1)
    page.evaluate("document.dispatchEvent(new CustomEvent('job-snapshot', { detail: { job_id: '7' } }))")
    page.clock.run_for(5_000)
    expect(lines).to_have_count(2)


def test_a_finished_job_is_read_again_with_its_critical_path(visitor: Visitor):
    page = mount_timeline(visitor, a_timeline(ROWS))
    page.unroute(f"**{TIMELINE}*")
    last = a_timeline(ROWS, critical_path=CRITICAL, finished_seconds=40.0, status="COMPLETED")
    page.route(f"**{TIMELINE}*", lambda route: route.fulfill(json=last))
    with page.expect_response(f"**{TIMELINE}"):
        page.evaluate(
            """() => document.querySelector("job-timeline").apply({ job: { finished_at: "2026-11-17T10:00:40Z" }, events: [] })"""
        )
    page.get_by_label("critical path only").check()
    next_frame(page)
    assert page.evaluate("document.querySelector('job-timeline').laneCount") == len(CRITICAL)


def test_10000_rows_are_shown_and_scrolled_on_one_canvas(visitor: Visitor):
    rows = [
        (f"n{number:05d}", 1, "COMPLETED", f"h:{number % 8}", 0.0, number / 8, number / 8 + 1)
        for number in range(10_000)
    ]
    page = mount_timeline(visitor, a_timeline(rows))
    assert page.evaluate("document.querySelector('job-timeline').laneCount") == 10_000
    assert page.evaluate("document.querySelectorAll('job-timeline *').length") < 60
    page.get_by_role("group", name="Timeline").focus()
    page.keyboard.press("End")
    page.keyboard.press("Enter")
    assert page.evaluate("opened") == ["n09999"]


def test_a_job_of_which_nothing_has_run_says_so(visitor: Visitor):
    page = mount_timeline(visitor, a_timeline([]))
    expect(page.get_by_text("Nothing has run yet.")).to_be_visible()


@pytest.mark.parametrize("color_scheme", ["light", "dark"])
def test_timeline_and_table_have_no_accessibility_violations(visitor: Visitor, color_scheme: str):
    page = mount_timeline(visitor, a_timeline(ROWS, critical_path=CRITICAL), color_scheme=color_scheme)
    assert axe_violations(page, "job-timeline") == []
    page.get_by_role("button", name="Table").click()
    assert axe_violations(page, "job-timeline") == []
