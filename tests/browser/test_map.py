"""The map of a job: states by colour and word, selections, the antimeridian, and the table as its equivalent."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any

from playwright.sync_api import expect

from tests.browser.elements import keep_texts, mount, next_frame, overlapping_texts

if TYPE_CHECKING:
    from playwright.sync_api import Page, Route

    from tests.browser.visitor import Visitor

SRC = "/api/v1/jobs/1/footprints"


def a_box(west: float, south: float, size: float = 1.0) -> list[list[list[float]]]:
    east, north = west + size, south + size
    ring = [[west, south], [east, south], [east, north], [west, north], [west, south]]
    return [[[x - 360 if x > 180 else x, y] for x, y in ring]]


def a_feature(number: int, west: float, south: float, status: str = "COMPLETED") -> dict[str, Any]:
    node_id = f"tiles[{number}]"
    properties = {"node_id": node_id, "status": status, "attempt": 1, "error": None}
    geometry = {"type": "Polygon", "coordinates": a_box(west, south)}
    return {"type": "Feature", "id": node_id, "geometry": geometry, "properties": properties}


def a_grid(columns: int, rows: int, west: float = 0.0) -> list[dict[str, Any]]:
    return [a_feature(x * rows + y, west + x, y) for x in range(columns) for y in range(rows)]


def open_map(visitor: Visitor, features: list[dict[str, Any]], **options: Any) -> Page:
    page = visitor.page("/ui/jobs", **options)

    def answer(route: Route) -> None:
        half = len(features) // 2
        is_second = "cursor=" in route.request.url
        body = {
            "features": features[half:] if is_second else features[:half],
            "next_cursor": None if is_second else "2",
        }
        route.fulfill(
            body=json.dumps({"type": "FeatureCollection", **body}), content_type="application/geo+json"
        )

    page.route("**/footprints*", answer)
    mount(page, "job-map", src=SRC)
    page.evaluate(
        """() => {
          window.events = [];
          for (const name of ["node-open", "nodes-selected"])
            document.addEventListener(name, (event) => window.events.push([name, event.detail.nodeId ?? event.detail.nodeIds]));
        }"""
    )
    expect(page.locator(".map-count")).to_have_text(f"{len(features):,} footprints")
    return page


def drag(page: Page, start: tuple[float, float], *points: tuple[float, float]) -> None:
    """Drag over the map; places are shares of its width and height."""
    box = page.locator("job-map canvas").bounding_box()
    assert box is not None
    places = [(box["x"] + box["width"] * x, box["y"] + box["height"] * y) for x, y in (start, *points)]
    page.mouse.move(*places[0])
    page.mouse.down()
    for place in places[1:]:
        page.mouse.move(*place, steps=4)
    page.mouse.up()


def selected(page: Page) -> list[str]:
    events: list[tuple[str, Any]] = page.evaluate("window.events")
    return next((ids for name, ids in reversed(events) if name == "nodes-selected"), [])


DELTA = "document.dispatchEvent(new CustomEvent('job-delta', { detail: { job: { job_id: '1' } } }))"
PLACES = """
workflow_id: places
version: 1
nodes:
  tiles:
    type: fan_out
    source: [{bbox: [0, 0, 1, 1]}, {bbox: [1, 0, 2, 1]}, {bbox: [2, 0, 3, 1]}]
    task: {handler: hang}
"""


def test_selected_tiles_of_a_running_job_are_cancelled_and_one_runs_again(visitor: Visitor):
    visitor.api.post("/api/v1/workflows", json={"text": PLACES}).raise_for_status()
    job_id = visitor.api.post("/api/v1/jobs", json={"workflow_id": "places"}).json()["job_id"]
    visitor.until(job_id, "RUNNING")
    page = visitor.page(f"/ui/jobs/{job_id}/map")
    expect(page.locator(".map-count")).to_have_text("3 footprints")
    offered = page.locator("[data-map-actions]").get_by_role("link")
    page.get_by_label("Select tiles__0").check()
    page.get_by_label("Select tiles__2").check()
    offered.get_by_text("Cancel", exact=True).click()
    dialog = page.get_by_role("dialog", name="Cancel 2 nodes")
    dialog.get_by_role("button", name="Cancel 2 nodes").click()
    failed = page.locator("job-map tbody tr", has_text="failed")
    expect(failed).to_have_count(2)
    # The other one runs on, and of these two one runs again.
    page.get_by_label("Select tiles__0").check()
    page.get_by_label("Select tiles__1").check()
    offered.get_by_text("Retry", exact=True).click()
    dialog = page.get_by_role("dialog", name="Retry tiles__0")
    expect(dialog).to_contain_text("1 of 2 selected nodes stays as it is")
    dialog.get_by_role("button", name="Retry tiles__0").click()
    expect(failed).to_have_count(1)
    page.goto(f"/ui/jobs/{job_id}/nodes/tiles__2")
    expect(page.get_by_label("Why")).to_contain_text("was cancelled by")
    visitor.api.post(f"/api/v1/jobs/{job_id}/cancel").raise_for_status()


def test_a_change_while_footprints_are_read_is_read_again(visitor: Visitor):
    page = visitor.page("/ui/jobs")
    page.clock.install()
    statuses: list[str] = []

    def answer(route: Route) -> None:
        statuses.append("FAILED" if len(statuses) > 1 else "RUNNING")
        body = {"features": [a_feature(0, 0, 0, statuses[-1])], "next_cursor": None}
        if len(statuses) == 2:
            # The node fails after it was read, and before the answer arrives.
            page.evaluate(DELTA)
        route.fulfill(body=json.dumps(body), content_type="application/geo+json")

    page.route("**/footprints*", answer)
    mount(page, "job-map", src=SRC, **{"job-id": "1"})
    row = page.locator("job-map tbody tr")
    expect(row).to_contain_text("running")
    page.evaluate(DELTA)
    for number in (2, 3):
        with page.expect_response("**/footprints*"):
            page.clock.run_for(5_000)
        expect(page.locator("job-map[aria-busy]")).to_have_count(0)
        assert len(statuses) == number
    expect(row).to_contain_text("failed")


def test_a_change_between_the_footprints_and_the_stream_is_shown(visitor: Visitor):
    page = visitor.page("/ui/jobs")
    page.clock.install()
    statuses = iter(["RUNNING", "FAILED"])

    def answer(route: Route) -> None:
        body = {"features": [a_feature(0, 0, 0, next(statuses))], "next_cursor": None}
        route.fulfill(body=json.dumps(body), content_type="application/geo+json")

    page.route("**/footprints*", answer)
    mount(page, "job-map", src=SRC, **{"job-id": "1"})
    row = page.locator("job-map tbody tr")
    expect(row).to_contain_text("running")
    page.evaluate("document.dispatchEvent(new CustomEvent('job-snapshot', { detail: { job_id: '1' } }))")
    page.clock.run_for(5_000)
    expect(row).to_contain_text("failed")


def test_more_selected_tiles_than_a_link_can_name_are_counted_before_the_click(visitor: Visitor):
    boxes = ", ".join(f"{{bbox: [{x}, 0, {x + 1}, 1]}}" for x in range(201))
    text = PLACES.replace("workflow_id: places", "workflow_id: many_places")
    text = text.replace(text[text.index("source: ") : text.index("    task:")], f"source: [{boxes}]\n")
    visitor.api.post("/api/v1/workflows", json={"text": text}).raise_for_status()
    job_id = visitor.api.post("/api/v1/jobs", json={"workflow_id": "many_places"}).json()["job_id"]
    visitor.until(job_id, "RUNNING")
    page = visitor.page(f"/ui/jobs/{job_id}/map")
    expect(page.locator(".map-count")).to_have_text("201 footprints")
    actions = page.locator("[data-map-actions]")
    page.get_by_label("Select tiles__0").check()
    expect(actions.get_by_text("At most 200 nodes at once")).to_be_hidden()
    page.get_by_label("Select all shown").check()
    expect(actions.get_by_text("At most 200 nodes at once")).to_be_visible()
    actions.get_by_role("link", name="Cancel the first 200 of 201").click()
    expect(page.get_by_role("dialog", name="Cancel 200 nodes")).to_be_visible()
    visitor.api.post(f"/api/v1/jobs/{job_id}/cancel").raise_for_status()


def test_labels_of_degrees_do_not_overlap_on_a_narrow_screen(visitor: Visitor):
    page = open_map(visitor, a_grid(4, 4, west=-122.0), viewport={"width": 360, "height": 740})
    keep_texts(page)
    for _ in range(12):
        page.evaluate("window.texts = []")
        page.get_by_role("button", name="Zoom in").click()
        next_frame(page)
        assert page.evaluate("window.texts.length") > 1
        assert overlapping_texts(page) == []


def test_states_have_different_colours_where_colours_are_forced(visitor: Visitor):
    features = a_grid(4, 4)
    features[9]["properties"]["status"] = "FAILED"
    page = open_map(visitor, features, forced_colors="active")
    colours = """() => {
        const canvas = document.querySelector("job-map canvas");
        const { data } = canvas.getContext("2d").getImageData(0, 0, canvas.width, canvas.height);
        const isRed = (i) => data[i] > data[i + 1] + 40 && data[i] > data[i + 2] + 40;
        const isGreen = (i) => data[i + 1] > data[i] + 20 && data[i + 1] > data[i + 2] + 20;
        const places = [...Array(data.length / 4).keys()].map((i) => 4 * i);
        return [places.some(isRed), places.some(isGreen)];
    }"""
    assert page.evaluate(colours) == [True, True]


def test_all_pages_are_shown_and_failed_ones_come_first_in_the_table(visitor: Visitor):
    features = a_grid(4, 4)
    features[9]["properties"]["status"] = "FAILED"
    page = open_map(visitor, features)
    expect(page.locator("tbody tr").first).to_contain_text("tiles[9]")
    expect(page.locator("tbody tr").first.locator(".status")).to_have_text("failed")
    expect(page.locator(".map-legend")).to_contain_text("completed 15")
    page.get_by_role("button", name="failed 1").click()
    expect(page.locator("tbody tr")).to_have_count(1)


def test_states_that_change_are_drawn_and_counted(visitor: Visitor):
    page = open_map(visitor, a_grid(4, 4))
    before = page.evaluate("document.querySelector('job-map canvas').toDataURL()")
    page.evaluate("document.querySelector('job-map').setStates(new Map([['tiles[3]', {status: 'FAILED'}]]))")
    expect(page.locator(".map-legend")).to_contain_text("failed 1")
    page.wait_for_function(
        "before => document.querySelector('job-map canvas').toDataURL() !== before", arg=before
    )


def test_a_box_and_a_lasso_select_tiles(visitor: Visitor):
    page = open_map(visitor, a_grid(4, 4))
    page.get_by_role("button", name="Box").click()
    drag(page, (0.02, 0.12), (0.98, 0.88))
    expect(page.locator(".map-count")).to_have_text("16 of 16 selected")
    assert len(selected(page)) == 16
    page.get_by_role("button", name="Lasso").click()
    drag(page, (0.02, 0.09), (0.5, 0.09), (0.5, 0.91), (0.02, 0.91), (0.02, 0.1))
    expect(page.locator(".map-count")).to_have_text("8 of 16 selected")
    assert set(selected(page)) == {f"tiles[{number}]" for number in range(8)}
    page.get_by_role("button", name="Lasso").press("Escape")
    expect(page.locator(".map-count")).to_have_text("16 footprints")


def test_everything_can_be_done_in_the_table_with_a_keyboard(visitor: Visitor):
    page = open_map(visitor, a_grid(2, 2))
    page.get_by_label("Select tiles[1]").focus()
    page.keyboard.press("Space")
    assert selected(page) == ["tiles[1]"]
    page.keyboard.press("Tab")
    page.keyboard.press("Enter")
    assert page.evaluate("window.events.at(-1)") == ["node-open", "tiles[1]"]
    page.get_by_label("Select all shown").check()
    assert len(selected(page)) == 4


def test_tiles_at_both_sides_of_the_antimeridian_are_close_together(visitor: Visitor):
    features = [a_feature(number, 176.5 + number, 0) for number in range(8)]
    page = open_map(visitor, features)
    page.get_by_role("button", name="Box").click()
    # A narrow box around the middle has the tile across 180° and its neighbours, not those at the other end of the Earth.
    drag(page, (0.45, 0.1), (0.55, 0.9))
    assert set(selected(page)) <= {"tiles[3]", "tiles[4]"}
    assert selected(page) != []


def test_five_thousand_tiles_are_drawn_and_listed_in_part(visitor: Visitor):
    page = open_map(visitor, a_grid(100, 50))
    expect(page.locator("tbody tr")).to_have_count(100)
    page.get_by_role("button", name="Show more").click()
    expect(page.locator("tbody tr")).to_have_count(600)
    page.get_by_label("Select all shown").check()
    expect(page.locator(".map-count")).to_have_text("5,000 of 5,000 selected")


def test_the_map_fits_a_narrow_screen(visitor: Visitor):
    page = open_map(visitor, a_grid(4, 4), viewport={"width": 360, "height": 740})
    assert page.evaluate("document.documentElement.scrollWidth") <= 360
