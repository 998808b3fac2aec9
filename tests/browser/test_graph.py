"""The graph of a job: layout, what is seen of it, statuses, keys."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Any

import pytest
from playwright.sync_api import expect

from tests.browser.elements import a_graph, a_large_graph, axe_violations, mount_graph, next_frame

if TYPE_CHECKING:
    from playwright.sync_api import Page

    from tests.browser.visitor import Visitor

DIAMOND = {"start": "", "left": "start", "right": "start", "end": "left right"}
CHECK_LAYOUT = """async (seeds) => {
    const { layoutGraph } = await import(`${document.documentElement.dataset.assets}/graph/layout.js`);
    const problems = [];
    for (const seed of seeds) {
        let state = seed;
        const chance = () => (state = (state * 1103515245 + 12345) & 0x7fffffff) / 0x7fffffff;
        const count = 1 + Math.floor(chance() * (seed % 7 ? 60 : 900));
        const widths = Float32Array.from({ length: count }, () => 80 + Math.floor(chance() * 200));
        const heights = Float32Array.from({ length: count }, () => (chance() < 0.2 ? 68 : 48));
        const edges = [];
        for (let v = 1; v < count; v++) for (let k = Math.floor(chance() * 4); k > 0; k--) edges.push(Math.floor(chance() * v), v);
        const graph = { widths, heights, edges: Int32Array.from(edges) };
        const layout = layoutGraph(graph);
        const { x, y } = layout;
        if (JSON.stringify(layoutGraph(graph)) !== JSON.stringify(layout)) problems.push(`${seed}: not deterministic`);
        for (let e = 0; e < edges.length; e += 2) {
            if (y[edges[e]] + heights[edges[e]] >= y[edges[e + 1]]) problems.push(`${seed}: an edge does not point down`);
        }
        for (let a = 0; a < count; a++) {
            if (!(x[a] >= 0 && x[a] + widths[a] <= layout.width + 1)) problems.push(`${seed}: ${a} is outside`);
            for (let b = 0; b < a; b++) {
                const isApart = x[a] + widths[a] <= x[b] || x[b] + widths[b] <= x[a] || y[a] + heights[a] <= y[b] || y[b] + heights[b] <= y[a];
                if (!isApart) problems.push(`${seed}: ${a} and ${b} overlap`);
            }
        }
    }
    return problems;
}"""


def set_states(page: Page, **statuses: Any) -> None:
    states = {
        node: {"status": status} if isinstance(status, str) else status for node, status in statuses.items()
    }
    page.evaluate("(states) => document.querySelector('dag-graph').setStates(states)", states)
    next_frame(page)


def positions(page: Page) -> list[Any]:
    places: list[Any] = page.evaluate("[...document.querySelector('dag-graph').positions].flat()")
    return places


def test_boxes_do_not_overlap_edges_point_down_and_the_layout_is_deterministic(visitor: Visitor):
    page = visitor.page("/ui/workflows")
    assert page.evaluate(CHECK_LAYOUT, list(range(1, 60))) == []


def test_a_parent_is_centred_over_its_children(visitor: Visitor):
    page = mount_graph(visitor, a_graph(DIAMOND))
    place = dict(zip(*[iter(positions(page))] * 2, strict=True))
    assert place["left"]["x"] < place["start"]["x"] < place["right"]["x"]
    assert abs(place["left"]["x"] + place["right"]["x"] - 2 * place["start"]["x"]) <= 2
    assert place["start"]["y"] < place["left"]["y"] == place["right"]["y"] < place["end"]["y"]


def test_a_status_changes_the_look_of_a_node_and_moves_nothing(visitor: Visitor):
    page = mount_graph(visitor, a_graph(DIAMOND))
    before = positions(page)
    set_states(page, start="COMPLETED", left="RUNNING", right="FAILED")
    left = page.locator(".dag-node", has_text="left")
    expect(left).to_have_class(re.compile("tone-running"))
    expect(left.get_by_role("button")).to_have_accessible_name(
        "left, raster.clip, running, 1 before, 1 after"
    )
    page.evaluate("document.querySelector('dag-graph').updateNodeStatus('left', 'COMPLETED')")
    expect(left).to_have_class(re.compile("tone-ok"))
    expect(left).to_contain_text("completed")
    assert positions(page) == before


def test_states_that_come_before_the_graph_are_kept(visitor: Visitor):
    page = mount_graph(visitor, a_graph(DIAMOND))
    page.evaluate("""() => {
        const element = document.createElement("dag-graph");
        element.setAttribute("job-id", "7");
        document.querySelector("main").replaceChildren(element);
        document.dispatchEvent(new CustomEvent("job-snapshot", { detail: { job_id: "7", nodes: { end: { status: "FAILED" } } } }));
        document.dispatchEvent(new CustomEvent("job-snapshot", { detail: { job_id: "8", nodes: { left: { status: "FAILED" } } } }));
        element.setAttribute("src", "/api/v1/jobs/7/graph");
    }""")
    expect(page.locator(".dag-node", has_text="end")).to_have_class(re.compile("tone-failed"))
    expect(page.locator(".dag-node", has_text="left")).to_have_class(re.compile("tone-pending"))


SEND = """([type, detail]) => document.dispatchEvent(new CustomEvent(type, { detail }))"""


def test_what_workers_have_claimed_and_begun_is_shown_though_no_event_says_so(visitor: Visitor):
    page = mount_graph(visitor, a_graph({"clip": "", "tiles": "clip"}, kinds={"tiles": "fan_out"}))
    counts = {"total": 40, "counts": {"COMPLETED": 10, "DISPATCHED": 3, "PENDING": 27}}
    nodes = {"clip": {"status": "DISPATCHED"}, "tiles": {"status": "RUNNING", "children": counts}}
    page.evaluate(SEND, ["job-snapshot", {"job_id": "7", "nodes": nodes}])
    states = {"clip": "RUNNING", "tiles__10": "RUNNING", "tiles__11": "RUNNING", "tiles__12": "CLAIMED"}
    tasks = [{"job_id": "7", "node_id": node_id, "status": status} for node_id, status in states.items()]
    page.evaluate(SEND, ["job-tasks", {"tasks": tasks}])
    expect(page.locator(".dag-node", has_text="clip").first).to_have_class(re.compile("tone-running"))
    children = page.get_by_role("button", name="List the children of tiles")
    expect(children).to_have_text("40 · 10 ok · 2 running")
    expect(children).to_have_attribute("title", "40 · 10 ok · 2 running · 1 claimed · 27 pending")
    page.evaluate(SEND, ["job-tasks", {"tasks": [{**tasks[1], "status": "CLAIMED"}] * 100}])
    next_frame(page)
    expect(children).to_have_text("40 · 10 ok · 2 running")


def test_arrow_keys_walk_the_edges_and_enter_opens(visitor: Visitor):
    page = mount_graph(visitor, a_graph(DIAMOND))
    page.get_by_role("button", name="start,").focus()
    for key, node in [
        ("ArrowDown", "left"),
        ("ArrowRight", "right"),
        ("ArrowDown", "end"),
        ("ArrowUp", "left"),
        ("ArrowUp", "start"),
        ("ArrowUp", "start"),
    ]:
        page.keyboard.press(key)
        expect(page.get_by_role("button", name=f"{node},")).to_be_focused()
    page.keyboard.press("Enter")
    assert page.evaluate("opened") == ["start"]
    tabbable = page.locator(".dag-node-main[tabindex='0']")
    expect(tabbable).to_have_count(1)


def test_a_click_opens_a_node_and_stresses_the_path_to_it(visitor: Visitor):
    page = mount_graph(visitor, a_graph(DIAMOND))
    page.get_by_role("button", name="left,").click()
    assert page.evaluate("opened") == ["left"]
    expect(page.locator(".dag-node.is-dimmed")).to_have_count(2)
    page.keyboard.press("Escape")
    expect(page.locator(".dag-node.is-dimmed")).to_have_count(0)


def test_a_drag_moves_the_view_and_opens_nothing(visitor: Visitor):
    page = mount_graph(visitor, a_graph(DIAMOND))
    box = page.get_by_role("button", name="left,").bounding_box()
    assert box is not None
    page.mouse.move(box["x"] + 20, box["y"] + 20)
    page.mouse.down()
    page.mouse.move(box["x"] + 80, box["y"] + 60, steps=4)
    page.mouse.up()
    next_frame(page)
    after = page.get_by_role("button", name="left,").bounding_box()
    assert after is not None
    assert after["x"] - box["x"] == pytest.approx(60, abs=2)
    assert after["y"] - box["y"] == pytest.approx(40, abs=2)
    assert page.evaluate("opened") == []


def test_wheel_keys_and_buttons_zoom(visitor: Visitor):
    page = mount_graph(visitor, a_graph(DIAMOND), reduced_motion="reduce")
    scale = "document.querySelector('dag-graph').scale"
    fitted = page.evaluate(scale)
    page.get_by_role("button", name="Zoom in (+)").click()
    assert page.evaluate(scale) > fitted
    page.locator(".dag-view").hover()
    page.mouse.wheel(0, 400)
    page.wait_for_function(f"() => {scale} < {fitted * 1.2}")
    page.get_by_role("button", name="start,").focus()
    page.keyboard.press("0")
    assert page.evaluate(scale) == fitted


def test_a_fan_out_shows_counts_and_opens_a_paged_list(visitor: Visitor):
    page = mount_graph(visitor, a_graph({"plan": "", "tiles": "plan"}, kinds={"tiles": "fan_out"}))
    pages = [
        {"items": [a_child(number) for number in range(50)], "next_cursor": "more"},
        {"items": [a_child(number) for number in range(50, 60)], "next_cursor": None},
    ]
    page.route(
        "**/nodes/tiles/children*", lambda route: route.fulfill(json=pages["cursor=" in route.request.url])
    )
    counts = {"total": 512, "counts": {"COMPLETED": 480, "RUNNING": 30, "FAILED": 2}}
    set_states(page, plan="COMPLETED", tiles={"status": "RUNNING", "counts": counts})
    children = page.get_by_role("button", name="List the children of tiles")
    expect(children).to_have_text("512 · 480 ok · 30 running · 2 failed")
    children.click()
    panel = page.get_by_role("region", name="Children of tiles")
    expect(panel.get_by_role("listitem")).to_have_count(50)
    panel.get_by_role("button", name="Show more").click()
    expect(panel.get_by_role("listitem")).to_have_count(60)
    expect(panel.get_by_text("no data").first).to_be_visible()
    panel.get_by_role("button", name="tiles__3").first.click()
    assert page.evaluate("opened") == ["tiles__3"]
    page.keyboard.press("Escape")
    expect(panel).to_be_hidden()
    expect(page.get_by_role("button", name="tiles,")).to_be_focused()


def a_child(number: int) -> dict[str, Any]:
    error = {"message": "no data"} if number % 2 else None
    return {
        "node_id": f"tiles__{number}",
        "status": "FAILED" if error else "COMPLETED",
        "attempt": 1,
        "error": error,
    }


def test_the_bar_of_a_fan_out_is_empty_until_a_child_has_finished(visitor: Visitor):
    page = mount_graph(visitor, a_graph({"tiles": ""}, kinds={"tiles": "fan_out"}))
    filled = (
        "[...document.querySelectorAll('.dag-node-bar i')].reduce((sum, part) => sum + part.offsetWidth, 0)"
    )
    set_states(page, tiles={"status": "RUNNING", "counts": {"total": 8, "counts": {"RUNNING": 8}}})
    assert page.evaluate(filled) == 0
    set_states(
        page, tiles={"status": "RUNNING", "counts": {"total": 8, "counts": {"RUNNING": 4, "COMPLETED": 4}}}
    )
    assert page.evaluate(filled) > 50


def test_of_5000_nodes_at_most_300_are_elements_and_a_node_can_be_reached(visitor: Visitor):
    page = mount_graph(visitor, a_large_graph(5000, 80))
    elements = page.locator(".dag-node")
    expect(elements).to_have_count(1)
    page.evaluate("document.querySelector('dag-graph').focusNode('step_02345')")
    expect(page.get_by_role("button", name="step_02345,")).to_be_focused()
    next_frame(page)
    assert 4 < elements.count() <= 300
    page.keyboard.press("ArrowUp")
    expect(page.get_by_role("button", name="step_02345,")).not_to_be_focused()
    expect(page.locator(".dag-minimap")).to_be_visible()


def test_a_layout_is_kept_for_the_next_visit_of_the_tab(visitor: Visitor):
    page = mount_graph(visitor, a_graph(DIAMOND))
    before = positions(page)
    assert page.evaluate("Object.keys(sessionStorage).filter((key) => key.includes('flow-4')).length") == 1
    page.evaluate("""() => new Promise((resolve) => {
        window.Worker = null;
        const element = document.createElement("dag-graph");
        element.addEventListener("graph-ready", resolve);
        element.setAttribute("src", "/api/v1/jobs/7/graph");
        document.querySelector("main").replaceChildren(element);
    })""")
    assert positions(page) == before


def test_a_graph_that_cannot_be_loaded_says_so_and_is_loaded_again(visitor: Visitor):
    page = mount_graph(visitor, a_graph(DIAMOND))
    answers = [500, 200]
    page.unroute("**/api/v1/jobs/7/graph")
    page.route(
        "**/api/v1/jobs/7/graph?again",
        lambda route: route.fulfill(status=answers.pop(0), json=a_graph({"one": ""})),
    )
    page.evaluate("document.querySelector('dag-graph').setAttribute('src', '/api/v1/jobs/7/graph?again')")
    expect(page.get_by_text("The graph cannot be shown: the server answered 500.")).to_be_visible()
    page.get_by_role("button", name="Try again").click()
    expect(page.get_by_role("button", name="one,")).to_be_visible()
    visitor.problems.clear()  # the answer 500 is in the console


def test_names_of_every_kind_are_text(visitor: Visitor):
    names = ["<img src=x onerror=alert(1)>", "x" * 200, "مرحبا", "tile 🛰"]
    page = mount_graph(visitor, a_graph(dict.fromkeys(names, "")))
    for name in names:
        assert page.locator(".dag-node-main", has_text=name).get_attribute("title")
    expect(page.locator(".dag-node img")).to_have_count(0)


def test_a_picture_follows_the_theme_and_forced_colours(visitor: Visitor):
    page = mount_graph(visitor, a_large_graph(400, 20), color_scheme="light")
    set_states(page, **{f"step_{number:05d}": "COMPLETED" for number in range(400)})
    read = """() => {
        const canvas = document.querySelector(".dag-canvas-boxes");
        const data = canvas.getContext("2d").getImageData(0, 0, canvas.width, canvas.height).data;
        const colours = new Map();
        for (let i = 0; i < data.length; i += 4) {
            if (data[i + 3] < 255) continue;
            const key = `${data[i]} ${data[i + 1]} ${data[i + 2]}`;
            colours.set(key, (colours.get(key) ?? 0) + 1);
        }
        return [...colours].sort((a, b) => b[1] - a[1])[0][0];
    }"""
    light = page.evaluate(read)
    page.emulate_media(color_scheme="dark")
    next_frame(page)
    dark = page.evaluate(read)
    assert light != dark
    page.emulate_media(forced_colors="active")
    next_frame(page)
    assert page.evaluate(read) not in (light, dark)


@pytest.mark.parametrize("color_scheme", ["light", "dark"])
def test_graph_and_list_of_children_have_no_accessibility_violations(visitor: Visitor, color_scheme: str):
    graph = a_graph(
        {**DIAMOND, "tiles": "end", "ask": "tiles"}, kinds={"tiles": "fan_out", "ask": "approval"}
    )
    page = mount_graph(visitor, graph, color_scheme=color_scheme, reduced_motion="reduce")
    page.route("**/children*", lambda route: route.fulfill(json={"items": [a_child(1)], "next_cursor": None}))
    counts = {"total": 3, "counts": {"COMPLETED": 1, "RUNNING": 1, "FAILED": 1}}
    set_states(
        page,
        start="COMPLETED",
        left="FAILED",
        right="SKIPPED",
        end="RUNNING",
        tiles={"status": "RUNNING", "counts": counts},
        ask="WAITING",
    )
    assert axe_violations(page, "dag-graph") == []
    page.get_by_role("button", name="List the children of tiles").click()
    expect(page.locator(".dag-child")).to_have_count(1)
    assert axe_violations(page, "dag-graph") == []


@pytest.mark.parametrize(("reduced_motion", "moves"), [("no-preference", True), ("reduce", False)])
def test_active_edges_move_only_where_motion_is_allowed(visitor: Visitor, reduced_motion: str, moves: bool):
    page = mount_graph(visitor, a_graph(DIAMOND), reduced_motion=reduced_motion)
    set_states(page, start="COMPLETED", left="RUNNING")
    next_frame(page)
    next_frame(page)
    painted = page.evaluate("""() => {
        const canvas = document.querySelector(".dag-canvas-motion");
        const data = canvas.getContext("2d").getImageData(0, 0, canvas.width, canvas.height).data;
        return data.some((value) => value > 0);
    }""")
    assert painted is moves
    running = page.locator(".dag-node.tone-running .icon")
    assert (running.evaluate("(icon) => getComputedStyle(icon).animationName") != "none") is moves
