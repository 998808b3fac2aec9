"""Groups in the graph of a job: boxes around their members."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING

from playwright.sync_api import expect

from tests.browser.elements import a_graph, axe_violations, mount_graph
from tests.browser.test_graph import positions, set_states

if TYPE_CHECKING:
    from tests.browser.visitor import Visitor

NESTED = a_graph(
    {"fetch": "", "mask": "fetch", "ndvi": "mask", "ndwi": "mask", "stats": "indices", "publish": "process"},
    groups={"indices": "ndvi ndwi", "process": "mask indices stats"},
    name="nested",
)
CHECK_NESTING = """async (seeds) => {
    const folder = `${document.documentElement.dataset.assets}/graph`;
    const { layoutGraph } = await import(`${folder}/layout.js`);
    const { nestGroups } = await import(`${folder}/groups.js`);
    const problems = [];
    let boxes = 0;
    for (const seed of seeds) {
        let state = seed;
        const chance = () => (state = (state * 1103515245 + 12345) & 0x7fffffff) / 0x7fffffff;
        const count = 2 + Math.floor(chance() * 40);
        const groups = Math.floor(chance() * 6);
        const nodes = [];
        for (let g = 0; g < groups; g++) nodes.push({ node_id: `g${g}`, kind: "group", group: g && chance() < 0.4 ? `g${Math.floor(chance() * g)}` : null });
        for (let v = groups; v < groups + count; v++) {
            // Members are near each other, as a person writes them: else most groups are interlocked.
            const near = Math.floor(((v - groups) / count) * groups);
            nodes.push({ node_id: `n${v}`, kind: "task", group: groups && chance() < 0.7 ? `g${near}` : null });
        }
        const index = new Map(nodes.map(({ node_id }, i) => [node_id, i]));
        const links = [];
        const link = (source, target) => links.push({ source, target, branches: [], isAlternative: false });
        nodes.forEach(({ group }, i) => group && link(i, index.get(group)));
        for (let v = groups + 1; v < nodes.length; v++) for (let k = Math.floor(chance() * 3); k > 0; k--) {
            const before = groups + Math.floor(chance() * (v - groups));
            if (!links.some(({ source, target }) => source === before && target === v)) link(before, v);
        }
        const { parents, isBox, edges } = nestGroups(nodes, index, links);
        const isIn = (v, box) => { for (let p = parents[v]; p >= 0; p = parents[p]) if (p === box) return true; return false; };
        for (const { source, target } of links) {
            const isDrawn = edges.some((edge) => edge.source === source && edge.target === target);
            const isBefore = edges.some((edge) => edge.isEntry && edge.source === source && isIn(target, edge.target));
            if (!isDrawn && !isBefore && !(isBox[target] && isIn(source, target))) problems.push(`${seed}: ${source} to ${target} is lost`);
        }
        for (const { source, target, isEntry } of edges) {
            // It means: before every member that nothing in the box is before.
            if (isEntry) nodes.forEach((_, v) => {
                const sources = links.filter((known) => known.target === v).map((known) => known.source);
                if (isIn(v, target) && !isBox[v] && !sources.includes(source) && !sources.some((known) => isIn(known, target))) problems.push(`${seed}: ${source} is not before ${v}`);
            });
        }
        const widths = Float32Array.from(nodes, () => 80 + Math.floor(chance() * 200));
        const heights = Float32Array.from(nodes, () => (chance() < 0.2 ? 68 : 48));
        const graph = { widths, heights, parents, edges: Int32Array.from(edges.flatMap(({ source, target }) => [source, target])) };
        const layout = layoutGraph(graph);
        if (JSON.stringify(layoutGraph(graph)) !== JSON.stringify(layout)) problems.push(`${seed}: not deterministic`);
        for (let i = 0; i < layout.sizes.length; i += 3) [widths[layout.sizes[i]], heights[layout.sizes[i]]] = [layout.sizes[i + 1], layout.sizes[i + 2]];
        const { x, y } = layout;
        for (const { source, target } of edges) if (y[source] + heights[source] >= y[target]) problems.push(`${seed}: ${source} to ${target} does not point down`);
        edges.forEach(({ source, target }, e) => {
            const ways = layout.lanes[e];
            for (let i = 0; i < ways.length; i += 3) {
                if (ways[i + 1] > ways[i + 2]) problems.push(`${seed}: ${source} to ${target} goes up`);
                nodes.forEach((_, v) => {
                    const isBeside = (end, other) => { for (let p = parents[end]; p >= 0; p = parents[p]) if (isIn(v, p) && !isIn(other, p)) return true; return false; };
                    if (isBox[v] || v === source || v === target || !(isBeside(source, target) || isBeside(target, source))) return;
                    if (x[v] < ways[i] && ways[i] < x[v] + widths[v] && y[v] < ways[i + 2] && ways[i + 1] < y[v] + heights[v]) problems.push(`${seed}: ${source} to ${target} runs behind ${v}`);
                });
            }
        });
        for (let a = 0; a < nodes.length; a++) {
            boxes += isBox[a];
            if (!(x[a] >= 0 && x[a] + widths[a] <= layout.width + 1 && y[a] + heights[a] <= layout.height + 1)) problems.push(`${seed}: ${a} is outside`);
            const p = parents[a];
            if (p >= 0 && !(x[a] >= x[p] + 8 && x[a] + widths[a] <= x[p] + widths[p] - 8 && y[a] >= y[p] + 30 && y[a] + heights[a] <= y[p] + heights[p] - 8)) problems.push(`${seed}: ${a} is not in its box`);
            for (let b = 0; b < a; b++) {
                const isApart = x[a] + widths[a] <= x[b] || x[b] + widths[b] <= x[a] || y[a] + heights[a] <= y[b] || y[b] + heights[b] <= y[a];
                if (!isApart && !isIn(a, b) && !isIn(b, a)) problems.push(`${seed}: ${a} and ${b} overlap`);
            }
        }
    }
    return [problems, boxes > seeds.length];
}"""


def test_a_box_has_its_members_inside_and_nothing_else_and_no_edge_is_lost_or_hidden(visitor: Visitor):
    page = visitor.page("/ui/workflows")
    assert page.evaluate(CHECK_NESTING, list(range(1, 120))) == [[], True]


def test_groups_may_be_nested_deeper_than_the_stack_of_a_browser(visitor: Visitor):
    page = visitor.page("/ui/workflows")
    depths = """async (count) => {
        const { findDepths } = await import(`${document.documentElement.dataset.assets}/graph/groups.js`);
        const depths = findDepths(Int32Array.from({ length: count }, (_, i) => (i === count - 1 ? -1 : i + 1)));
        return [depths[0], depths[count - 1]];
    }"""
    assert page.evaluate(depths, 100_000) == [99_999, 0]


def test_a_group_is_a_box_whose_name_opens_it(visitor: Visitor):
    page = mount_graph(visitor, NESTED)
    boxes = page.locator(".dag-node.is-box")
    expect(boxes).to_have_count(2)
    before = positions(page)
    set_states(page, fetch="COMPLETED", mask="COMPLETED", ndvi="RUNNING", ndwi="COMPLETED")
    process = boxes.filter(has_text="process")
    expect(process).to_have_class(re.compile("tone-running"))
    expect(process.locator(".dag-node-detail")).to_have_text("group · 2 of 4 finished")
    expect(boxes.filter(has_text="indices").locator(".dag-node-detail")).to_have_text(
        "group · 1 of 2 finished"
    )
    set_states(page, ndvi="FAILED", indices="SKIPPED", stats="SKIPPED", process="SKIPPED")
    expect(process).to_have_class(re.compile("tone-skipped"))
    expect(process.locator(".dag-node-detail")).to_have_text("group · 4 nodes · skipped")
    assert positions(page) == before
    page.get_by_role("button", name=re.compile("^process,")).click()
    assert page.evaluate("opened") == ["process"]
    # All of it leads to the group, but for what follows.
    expect(page.locator(".dag-node.is-dimmed")).to_have_text(re.compile("publish"))
    page.keyboard.press("Escape")
    assert axe_violations(page, "dag-graph") == []


def test_what_is_before_a_group_has_one_edge_to_its_box_and_keys_reach_the_members(visitor: Visitor):
    page = mount_graph(visitor, NESTED)
    drawn = """async (graph) => {
        const { GraphModel } = await import(`${document.documentElement.dataset.assets}/graph/model.js`);
        const model = new GraphModel(graph);
        return Array.from({ length: model.edgeCount }, (_, e) => `${model.ids[model.edges[2 * e]]} ${model.ids[model.edges[2 * e + 1]]}`).sort();
    }"""
    assert page.evaluate(drawn, NESTED) == [
        "fetch process",
        "indices stats",
        "mask indices",
        "process publish",
    ]
    page.get_by_role("button", name=re.compile("^fetch,")).focus()
    for key, node in [
        ("Down", "mask"),
        ("Down", "ndvi"),
        ("Right", "ndwi"),
        ("Down", "indices"),
        ("Down", "stats"),
    ]:
        page.keyboard.press(f"Arrow{key}")
        expect(page.get_by_role("button", name=re.compile(f"^{node},"))).to_be_focused()


def test_a_group_with_something_else_between_its_members_stays_a_node(visitor: Visitor):
    page = mount_graph(visitor, a_graph({"a": "", "b": "a", "c": "b"}, groups={"g": "a c"}, name="tangled"))
    expect(page.locator(".dag-node")).to_have_count(4)
    expect(page.locator(".dag-node.is-box")).to_have_count(0)


def test_far_away_a_box_is_painted_and_can_be_clicked(visitor: Visitor):
    members = [f"tile_{number:03d}" for number in range(400)]
    graph = a_graph(dict.fromkeys(members, ""), groups={"tiles": " ".join(members)}, name="far")
    page = mount_graph(visitor, graph, reduced_motion="reduce")
    expect(page.locator(".dag-node.is-box")).to_have_count(0)
    corner = page.evaluate("""() => {
        const graph = document.querySelector("dag-graph");
        const { x, y } = graph.positions.get("tiles");
        const box = graph.view.getBoundingClientRect();
        const place = (value, offset) => offset + (value + 6) * graph.scale;
        const point = [place(x, graph.viewport.x), place(y, graph.viewport.y)];
        const canvas = graph.querySelector(".dag-canvas-edges");
        const ratio = canvas.width / box.width;
        const colour = canvas.getContext("2d").getImageData(point[0] * ratio, point[1] * ratio, 1, 1).data[3];
        return [box.left + point[0], box.top + point[1], colour];
    }""")
    assert corner[2] > 0
    page.mouse.click(corner[0], corner[1])
    assert page.evaluate("opened") == ["tiles"]
