"""A diagram shows all there is, in order, and nothing that a node is called gets out of its text."""

from __future__ import annotations

import dataclasses
import itertools
import re
from pathlib import Path
from typing import TYPE_CHECKING, Any
from xml.etree import ElementTree as ET

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from dagmaster.authoring.compiler.compile import compile_file, compile_text
from dagmaster.authoring.diagram import layout
from dagmaster.authoring.diagram.diagram import mermaid, svg
from dagmaster.authoring.diagram.layout import Link, arrange
from dagmaster.testing.factories import (
    a_graph,
    all_of,
    any_of,
    approval,
    branch_of,
    conditional,
    end,
    fan_in,
    fan_out,
    group,
    member,
    start,
    task,
    wait,
    workflow,
)

if TYPE_CHECKING:
    from dagmaster.engine.graph import Graph, Leaf, Spec

WORKFLOWS = sorted((Path(__file__).parents[4] / "workflows").glob("*.yaml"))
NS = "{http://www.w3.org/2000/svg}"
HOSTILE = [
    "end", "graph", "style", 'a"b', "a]b", "<script>alert(1)</script>", "#35;", "#quot;", "a\nb", "\U0001f600", "%%{init}%%",
    "]]>", "&amp;", "-->", "a|b", "\\", "\0", "\ud800", "\ufffe", "</text></svg>", "' onload='x", "{{ x }}", "x;y", "",
]  # fmt: skip


def every_kind() -> Graph:
    return a_graph(
        begin=start(),
        check=task("begin", allow_failure=True),
        gate=approval("check", approvers="ops"),
        route=conditional("{{ nodes.check.output.size }}", {"small": "< 10", "large": None}, after="gate"),
        one=workflow("route.small", "publish"),
        many=fan_out("{{ nodes.check.output.tiles }}", after="route.large"),
        total=fan_in("many", "sum", over="many"),
        ready=wait("total", signal="tiles_ready"),
        join=task(any_of("one", "ready")),
        done=end("join"),
    )


def tree(graph: Graph) -> ET.Element:
    return ET.fromstring(svg(graph))


def cards(root: ET.Element) -> dict[str, ET.Element]:
    return {name: each for each in root.iter(f"{NS}g") if (name := each.get("data-node")) is not None}


def edges(root: ET.Element) -> list[ET.Element]:
    return [each for each in root.iter(f"{NS}path") if (each.get("class") or "").startswith("edge")]


def title(element: ET.Element) -> str:
    return element.findtext(f"{NS}title") or ""


def texts(element: ET.Element, style: str) -> list[str]:
    return ["".join(each.itertext()) for each in element.iter(f"{NS}text") if each.get("class") == style]


# ── Mermaid ──


def test_each_kind_has_its_shape_and_says_what_it_runs():
    lines = [line.strip() for line in mermaid(every_kind()).splitlines()]
    assert lines[:11] == [
        "flowchart TD",
        'n_begin(["begin"])',
        'n_check["check<br/>work"]',
        'n_gate{{"gate<br/>approval#58; ops"}}',
        'n_route{"route<br/>nodes.check.output.size"}',
        'n_one[["one<br/>publish"]]',
        'n_many[/"many<br/>each#58; work #215;N"\\]',
        'n_total[\\"total<br/>sum"/]',
        'n_ready("ready<br/>signal#58; tiles_ready")',
        'n_join["join<br/>work"]',
        'n_done(["done"])',
    ]


def test_a_group_joins_its_nodes_which_come_after_what_the_group_waits_for():
    graph = a_graph(
        x="", y="", clean=group("x y"), wash=member("clean"), dry=member("clean", "wash"), pack="clean"
    )
    lines = [line.strip() for line in mermaid(graph).splitlines()]
    assert 'n_clean((("clean<br/>group#58; 2 nodes")))' in lines
    assert [line for line in lines if "--" in line] == [
        "n_x --> n_wash",
        "n_y --> n_wash",
        "n_clean --> n_pack",
        "n_wash --> n_clean",
        "n_wash --> n_dry",
        "n_dry --> n_clean",
    ]
    assert list(cards(tree(graph))) == ["x", "y", "clean", "wash", "dry", "pack"]


def test_a_group_of_many_nodes_behind_many_dependencies_keeps_one_node_that_joins_them():
    sources: dict[str, Any] = {f"s{number}": "" for number in range(40)}
    members: dict[str, Any] = {f"m{number}": member("clean") for number in range(40)}
    graph = a_graph(**sources, clean=group(" ".join(sources)), **members)
    assert sum("-->" in line for line in mermaid(graph).splitlines()) == 3 * 40


def test_arrows_say_their_branch_and_arrows_of_any_of_are_dashed():
    lines = [line.strip() for line in mermaid(every_kind()).splitlines()]
    assert lines[11:] == [
        "n_begin --> n_check",
        "n_check --> n_gate",
        "n_gate --> n_route",
        'n_route -->|"small"| n_one',
        'n_route -->|"large"| n_many',
        'n_one -.->|"any"| n_join',
        "n_many --> n_total",
        "n_total --> n_ready",
        'n_ready -.->|"any"| n_join',
        "n_join --> n_done",
    ]


def test_two_branches_to_one_node_are_one_arrow_with_both_names():
    graph = a_graph(
        r=conditional("{{ inputs.n }}", {"b": "< 1", "a": "< 2", "c": None}), x=any_of("r.a", "r.b"), y="r.c"
    )
    assert 'n_r -.->|"any#58; b, a"| n_x' in mermaid(graph)


def test_what_is_wanted_anyway_is_not_dashed_because_it_also_stands_in_an_any_of():
    graph = a_graph(a="", b="", c=all_of("a", any_of("a", "b")))
    assert "n_a --> n_c" in mermaid(graph)
    assert 'n_b -.->|"any"| n_c' in mermaid(graph)


def test_a_nested_fan_out_shows_what_runs_in_the_end_and_how_often_when_that_is_known():
    graph = a_graph(a=fan_out([1, 2, 3], fan_out("{{ item }}", workflow("", "publish"))))
    assert "each#58; publish #215;N #215;3" in mermaid(graph)


def test_no_start_and_no_end_are_drawn_that_nobody_wrote():
    graph = compile_text("name: flow\nnodes:\n  only: {handler: echo, queue: q, next: END}\n").graph
    assert mermaid(graph) == 'flowchart TD\n    n_only["only<br/>echo"]\n'
    assert list(cards(tree(graph))) == ["only"]


@pytest.mark.parametrize("word", HOSTILE)
def test_no_name_gets_out_of_its_label_in_mermaid(word: str):
    graph = named(word)
    plain = re.compile(
        r'    (n_\w+|x\d+)(\["[\w #;,.<>/-]*"\]|\{"[\w #;,.<>/-]*"\}| -\.?->(\|"[\w #;,.-]*"\|)? (n_\w+|x\d+))'
    )
    lines = mermaid(graph).splitlines()
    assert lines[0] == "flowchart TD"
    assert len(lines) == 1 + len(graph.specs) + 2
    assert [line for line in lines[1:] if not plain.fullmatch(line)] == []
    assert [line for line in lines if re.search(r"<(?!br/>)", line)] == []


# ── SVG ──


@pytest.mark.parametrize("path", WORKFLOWS, ids=lambda path: path.stem)
def test_every_workflow_that_is_shipped_is_drawn_whole(path: Path):
    graph = compile_file(path).graph
    root = tree(graph)
    assert list(cards(root)) == list(graph.specs)
    assert len(edges(root)) == sum(
        len({leaf.node for leaf in s.requires.leaves()}) for s in graph.specs.values() if s.requires
    )


def test_every_node_and_every_edge_is_in_the_picture():
    root = tree(every_kind())
    assert {name: texts(card, "name") for name, card in cards(root).items()} == {
        n: [n] for n in every_kind().specs
    }
    assert [title(edge).splitlines()[0] for edge in edges(root)] == [
        "begin → check", "check → gate", "gate → route", "route → one", "route → many", "one → join (any of)",
        "many → total", "total → ready", "ready → join (any of)", "join → done",
    ]  # fmt: skip


def test_branches_are_labels_whose_titles_have_the_condition():
    labels = [each for each in tree(every_kind()).iter(f"{NS}text") if each.get("class") == "label"]
    assert [each[0].tail for each in labels] == ["small", "large"]
    assert [title(each) for each in labels] == [
        "route → one\nsmall: value < 10",
        "route → many\nlarge: default",
    ]


def test_edges_of_any_of_are_dashed_and_their_target_says_any():
    root = tree(every_kind())
    dashed = [title(edge) for edge in edges(root) if edge.get("class") == "edge any"]
    assert dashed == ["one → join (any of)", "ready → join (any of)"]
    assert texts(cards(root)["join"], "word") == ["any"]
    assert texts(cards(root)["check"], "word") == ["may fail"]


def test_a_fan_out_is_a_stack():
    cards_by_id = cards(tree(every_kind()))
    sheets = {
        name: sum(each.get("class") == "card" for each in card.iter(f"{NS}rect"))
        for name, card in cards_by_id.items()
    }
    assert sheets["many"] == 3
    assert sheets["check"] == 1


def test_the_picture_stands_alone_and_can_be_read_aloud():
    text = svg(every_kind())
    root = ET.fromstring(text)
    assert root.get("role") == "img"
    assert root[0].tag == f"{NS}title"
    assert root[0].text == "test_workflow"
    assert root[1].tag == f"{NS}desc"
    assert "version 1, 10 nodes" in (root[1].text or "")
    assert "prefers-color-scheme:dark" in text
    assert re.findall(r"https?://[^\"]*|<script|@import|<image|<foreignObject", text) == [
        "http://www.w3.org/2000/svg"
    ]
    assert all(ref.startswith("#") for ref in re.findall(r'href="([^"]*)"', text))


def test_long_text_is_shortened_and_its_title_has_all_of_it():
    name = "a_very_long_name_" * 8
    card = cards(tree(with_specs(task()(name))))[name]
    assert texts(card, "name")[0].endswith("…")
    assert len(texts(card, "name")[0]) < 40
    assert title(card).startswith(name)


@pytest.mark.parametrize("word", HOSTILE)
def test_no_name_gets_out_of_its_text_in_svg(word: str):
    graph = dataclasses.replace(named(word), name=word, description=word)
    root = tree(graph)
    known = {"svg", "title", "desc", "defs", "style", "marker", "path", "rect", "g", "text", "use"}
    assert {each.tag.removeprefix(NS) for each in root.iter()} <= known
    assert [key for each in root.iter() for key in each.attrib if key.startswith("on")] == []
    assert len(cards(root)) == len(graph.specs)
    assert len(edges(root)) == 2


def test_the_same_graph_is_drawn_the_same():
    assert svg(every_kind()) == svg(every_kind())


def test_a_workflow_without_nodes_is_an_empty_page():
    assert cards(tree(with_specs())) == {}


def named(word: str) -> Graph:
    """Return a graph with this text as a node, a handler, a description and a branch."""
    odd = dataclasses.replace(task()(word), description=word, handler=word)  # type: ignore[call-arg]
    choice = conditional(None, {word: None}, after=node(word))("choice")
    return with_specs(odd, choice, task(any_of(branch_of("choice", word)))("last"))


def node(node_id: str) -> Leaf:
    return branch_of(node_id, "")._replace(branch=None)


def with_specs(*specs: Spec) -> Graph:
    return dataclasses.replace(a_graph(), specs={spec.id: spec for spec in specs})


# ── Layout ──


@st.composite
def dags(draw: st.DrawFn) -> tuple[list[tuple[float, float]], list[Link]]:
    count = draw(st.integers(0, 24))
    sizes = draw(
        st.lists(
            st.tuples(st.integers(30, 240), st.sampled_from([36, 52, 60])), min_size=count, max_size=count
        )
    )
    names = draw(st.permutations(range(count)))
    pairs = list(itertools.combinations(range(count), 2))
    chosen = draw(st.lists(st.sampled_from(pairs), max_size=40, unique=True)) if pairs else []
    labels = draw(
        st.lists(st.sampled_from([0.0, 0.0, 40.0, 130.0]), min_size=len(chosen), max_size=len(chosen))
    )
    links = [Link(names[a], names[b], label) for (a, b), label in zip(chosen, labels, strict=True)]
    return [(float(width), float(height)) for width, height in sizes], links


@given(dags(), st.booleans())
@settings(max_examples=150, deadline=None)
def test_whatever_the_graph_no_two_boxes_meet_every_arrow_goes_down_and_none_runs_over_a_box(dag, few_lanes):
    sizes, links = dag
    with pytest.MonkeyPatch.context() as patch:
        if few_lanes:
            patch.setattr(layout, "_LANES", -len(sizes))
        result = arrange(sizes, links)
    assert [(box.width, box.height) for box in result.boxes] == sizes
    for one, other in itertools.combinations(result.boxes, 2):
        assert not covers(one, other.x, other.y, other.x + other.width, other.y + other.height)
    for box in result.boxes:
        assert -0.01 <= box.x <= box.x + box.width <= result.width + 0.01
        assert -0.01 <= box.y <= box.y + box.height <= result.height + 0.01
    for link, route in zip(links, result.routes, strict=True):
        source, target = result.boxes[link.source], result.boxes[link.target]
        assert source.y + source.height < target.y
        assert route[0].top == pytest.approx(source.y + source.height)
        assert route[-1].bottom == pytest.approx(target.y)
        for column in route:
            assert not any(covers(box, column.x, column.top, column.x, column.bottom) for box in result.boxes)
        for upper, lower in itertools.pairwise(route):
            left, right = sorted((upper.x, lower.x))
            assert upper.bottom < lower.top
            assert not any(covers(box, left, upper.bottom, right, lower.top) for box in result.boxes)


def covers(box: layout.Box, left: float, top: float, right: float, bottom: float) -> bool:
    across = box.x + 0.01 < right and left < box.x + box.width - 0.01
    return across and box.y + 0.01 < bottom and top < box.y + box.height - 0.01


@given(dags())
@settings(max_examples=60, deadline=None)
def test_whatever_the_graph_it_is_drawn(dag):
    sizes, links = dag
    before: dict[int, list[str]] = {}
    for link in links:
        before.setdefault(link.target, []).append(f"n{link.source}")
    graph = with_specs(*(task(" ".join(before.get(node, ())))(f"n{node}") for node in range(len(sizes))))
    root = tree(graph)
    assert len(cards(root)) == len(sizes)
    assert len(edges(root)) == len(links)
    assert mermaid(graph).count("-->") == len(links)


def test_the_picture_is_as_large_as_what_is_in_it():
    root = tree(a_graph(a="", b="a", c="a", d="b c"))
    _, _, width, height = map(float, (root.get("viewBox") or "").split())
    cards_by_id = [(float(x), float(y), card) for card in cards(root).values() for x, y in [place(card)]]
    right = max(x + float(next(card.iter(f"{NS}rect")).get("width") or 0) for x, _, card in cards_by_id)
    bottom = max(y + float(next(card.iter(f"{NS}rect")).get("height") or 0) for _, y, card in cards_by_id)
    assert (min(x for x, _, _ in cards_by_id), min(y for _, y, _ in cards_by_id)) == (0, 0)
    assert (width, height) == pytest.approx((right + 48, bottom + 48), abs=1)


def place(card: ET.Element) -> tuple[float, float]:
    x, y = re.findall(r"-?[\d.]+", card.get("transform") or "")
    return float(x), float(y)


def test_a_diamond_is_even_and_a_chain_is_straight():
    size = (100.0, 52.0)
    a, b, c, d = arrange([size] * 4, [Link(0, 1), Link(0, 2), Link(1, 3), Link(2, 3)]).boxes
    assert a.x == d.x == (b.x + c.x) / 2
    assert b.y == c.y
    chain = arrange([size] * 40, [Link(node, node + 1) for node in range(39)])
    assert {box.x for box in chain.boxes} == {0.0}


def test_an_odd_number_of_branches_has_a_straight_one_in_the_middle_however_wide_they_are():
    boxes = arrange([(100, 52), (200, 52), (80, 52), (150, 52), (90, 52)], [Link(0, n) for n in (1, 2, 3)]
                    + [Link(n, 4) for n in (1, 2, 3)]).boxes  # fmt: skip
    middles = [box.x + box.width / 2 for box in boxes]
    assert middles[0] == pytest.approx(middles[2]) == pytest.approx(middles[4])


def test_a_tree_is_drawn_without_a_crossing():
    links = [Link((node - 1) // 3, node) for node in reversed(range(1, 40))]
    part = layout._Part([(100.0, 52.0)] * 40, links)
    part.draw()
    assert part._crossings() == 0


def test_parts_that_have_nothing_to_do_with_each_other_fill_a_page_and_not_a_line():
    result = arrange([(120.0, 52.0)] * 400, [])
    assert 0.3 < result.width / result.height < 3


def test_labels_of_a_conditional_stand_clear_of_cards_and_of_each_other():
    names = [f"a_rather_long_name_{n}" for n in range(6)]
    route = conditional("{{ inputs.n }}", {**dict.fromkeys(names[:-1], "< 1"), names[-1]: None})("route")
    after = [task(f"route.{name}")(f"n{n}") for n, name in enumerate(names)]
    root = tree(with_specs(route, *after, task(any_of(f"n0 route.{names[0]}"))("last")))
    labels = [each for each in root.iter(f"{NS}text") if each.get("class") == "label"]
    places = [(float(each.get("x") or 0), float(each.get("y") or 0)) for each in labels]
    rows = {place(card)[1] for card in cards(root).values()}
    assert len(places) == 7
    assert all(y + 4 < row or y - 14 > row + 52 for _, y in places for row in rows)
    assert all(abs(x - u) > 120 or abs(y - v) > 14 for (x, y), (u, v) in itertools.combinations(places, 2))


@pytest.mark.slow
def test_arrows_over_thousands_of_layers_do_not_fill_the_page_with_lanes():
    count = 2_000
    links = [Link(n, n + 1) for n in range(count - 1)] + [Link(0, n) for n in range(2, count)]
    result = arrange([(100.0, 52.0)] * count, links)
    assert sum(map(len, result.routes)) <= 3 * len(links) + layout._LANES + count
