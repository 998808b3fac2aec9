"""Editing workflow files as text: the data become what the edit says, and every other line stays byte for byte."""

from __future__ import annotations

import difflib
import json
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from dagmaster.authoring.node_edits import (
    add_node,
    connect_nodes,
    disconnect_nodes,
    outline_nodes,
    remove_node,
    rename_node,
    set_field,
)
from dagmaster.authoring.source_document import read_document
from dagmaster.authoring.yaml import splices
from dagmaster.authoring.yaml.writer import write_inline, write_yaml
from dagmaster.errors import WorkflowEditRejected, WorkflowInvalid

FILE = """\
# Two steps.
name: tiles   # its name
nodes:
  # reads
  read:
    handler: "read"      # quoted
    next: [split, log]

  split:
    handler: split
    params: {a: "{{ nodes.read.output.x }}", b: 'nodes.read'}
    depends_on:
      - read # first
      - log
  # writes
  log: {handler: log}

  route:
    type: conditional
    depends_on: {all_of: [split, log]}
    branches:
      - name: big
        condition: nodes.read.output.n > 3
        next: write
      - default: true
  write:
    handler: write
outputs:
  x: "{{ nodes.read.output.x }} and {{ nodes.reader.output }}"
"""


def changes(text: str, edited: str) -> tuple[list[str], list[str]]:
    """Return the lines that an edit removed and added."""
    before, after = text.splitlines(), edited.splitlines()
    start = 0
    removed, added = [], []
    for tag, i, j, k, m in difflib.SequenceMatcher(a=before, b=after, autojunk=False).get_opcodes():
        if tag != "equal":
            removed += before[i:j]
            added += after[k:m]
        start = j
    assert start == len(before)
    return removed, added


def test_a_node_is_added_below_the_others_with_a_blank_line_if_they_have_one():
    edited = add_node(
        FILE, "check", {"handler": "check", "params": {"n": 1, "note": "a: b"}, "depends_on": ["write"]}
    )
    assert changes(FILE, edited) == (
        [],
        [
            "  check:",
            "    handler: check",
            "    params:",
            "      n: 1",
            '      note: "a: b"',
            "    depends_on: [write]",
        ],
    )


def test_a_node_is_renamed_wherever_it_is_named_and_in_expressions():
    removed, added = changes(FILE, rename_node(FILE, "read", "load"))
    assert removed == [line for line in FILE.splitlines() if "read" in line and line not in KEPT]
    assert added == [
        "  load:",
        """    params: {a: "{{ nodes.load.output.x }}", b: 'nodes.read'}""",
        "      - load # first",
        "        condition: nodes.load.output.n > 3",
        '  x: "{{ nodes.load.output.x }} and {{ nodes.reader.output }}"',
    ]


KEPT = ["  # reads", '    handler: "read"      # quoted']


def test_a_removed_node_takes_its_edges_along_and_no_comment_of_others():
    edited = remove_node(FILE, "log")
    assert changes(FILE, edited) == (
        [
            "    next: [split, log]",
            "      - log",
            "  log: {handler: log}",
            "    depends_on: {all_of: [split, log]}",
        ],
        ["    next: [split]", "    depends_on: {all_of: [split]}"],
    )


GROUPED = """\
name: w
nodes:
  clean: {type: group}
  a:
    handler: a
    group: clean
  b: {handler: b, depends_on: clean}
"""


def test_a_group_is_renamed_and_removed_where_nodes_name_it():
    assert changes(GROUPED, rename_node(GROUPED, "clean", "tidy"))[1] == [
        "  tidy: {type: group}",
        "    group: tidy",
        "  b: {handler: b, depends_on: tidy}",
    ]
    assert read_document(remove_node(GROUPED, "clean")).data["nodes"] == {
        "a": {"handler": "a"},
        "b": {"handler": "b"},
    }


def test_the_nodes_of_a_group_are_edges_to_it():
    assert outline_nodes(GROUPED)[1] == [("a", "clean"), ("clean", "b")]
    assert "group" not in read_document(disconnect_nodes(GROUPED, "a", "clean")).data["nodes"]["a"]


def test_the_last_name_of_a_list_takes_the_list_along():
    edited = remove_node(remove_node(FILE, "log"), "split")
    nodes = read_document(edited).data["nodes"]
    assert nodes["read"] == {"handler": "read"}
    assert "depends_on" not in nodes["route"]


@pytest.mark.parametrize(
    ("source", "target", "line"),
    [
        ("write", "split", "      - write"),
        ("write", "route", "    depends_on: {all_of: [split, log, write]}"),
        ("read", "write", "    next: [split, log, write]"),
        ("split", "read", "    depends_on: split"),
        ("route.default", "write", "        next: write"),
    ],
)
def test_an_edge_is_written_as_the_others_of_its_target_are(source, target, line):
    removed, added = changes(FILE, connect_nodes(FILE, source, target))
    assert added == [line]
    assert len(removed) <= 1


@pytest.mark.parametrize(("source", "target"), [("read", "split"), ("log", "route"), ("route.big", "write")])
def test_an_edge_that_exists_is_not_written_again(source, target):
    assert connect_nodes(FILE, source, target) == FILE


def test_an_edge_is_removed_wherever_it_is_written():
    removed, added = changes(FILE, disconnect_nodes(FILE, "read", "split"))
    assert (removed, added) == (["    next: [split, log]", "      - read # first"], ["    next: [log]"])
    assert changes(FILE, disconnect_nodes(FILE, "route.big", "write"))[0] == ["        next: write"]
    assert disconnect_nodes(FILE, "route.default", "write") == FILE


@pytest.mark.parametrize(
    ("node_id", "key", "value", "expected"),
    [
        ("read", "handler", "load", (['    handler: "read"      # quoted'], ['    handler: "load"      # quoted'])),
        ("write", "description", "Two\nlines", ([], ["    description: |-", "      Two", "      lines"])),
        ("write", "queue", "on", ([], ['    queue: "on"'])),
        ("log", "queue", "big", (["  log: {handler: log}"], ["  log: {handler: log, queue: big}"])),
        ("split", "depends_on", None, (["    depends_on:", "      - read # first", "      - log"], [])),
        ("split", "depends_on", "log", (["    depends_on:", "      - read # first", "      - log"], ["    depends_on: log"])),
        ("write", "retry", {"max_attempts": 3}, ([], ["    retry:", "      max_attempts: 3"])),
        ("write", "nothing", None, ([], [])),
    ],
)  # fmt: skip
def test_a_key_of_a_node_is_set_or_removed(node_id, key, value, expected):
    assert changes(FILE, set_field(FILE, node_id, key, value)) == expected


@pytest.mark.parametrize(
    "text", ["name: x\nnodes:\n", "name: x\nnodes: null # none\n", "name: x\nnodes: {}", "name: x"]
)
def test_the_first_node_is_added(text):
    edited = add_node(text, "a", {"handler": "h"})
    assert read_document(edited).data == {"name": "x", "nodes": {"a": {"handler": "h"}}}
    assert edited.splitlines()[-2:] == ["  a:", "    handler: h"]


def test_line_ends_and_byte_order_marks_are_kept():
    text = "\ufeff" + FILE.replace("\n", "\r\n")
    edited = add_node(text, "z", {"handler": "h"})
    assert edited.startswith("\ufeff# Two")
    assert edited.replace("\r\n", "") == add_node(FILE, "z", {"handler": "h"}).replace("\n", "").join(
        ["\ufeff", ""]
    )


@pytest.mark.parametrize(
    ("edit", "message"),
    [
        (lambda: add_node(FILE, "read", {}), "there is a node 'read' already"),
        (lambda: add_node(FILE, "two words", {}), "no name of a node"),
        (lambda: add_node(FILE, "a" * 65, {}), "no name of a node"),
        (lambda: rename_node(FILE, "read", "log"), "there is a node 'log' already"),
        (lambda: remove_node(FILE, "reed"), "there is no node 'reed'"),
        (lambda: remove_node("nodes: {a: {handler: h}}", "a"), "is the only node"),
        (lambda: connect_nodes(FILE, "read", "read"), "cannot come after itself"),
        (
            lambda: connect_nodes(FILE, "route.small", "write"),
            "route chooses a branch: connect one of big, default",
        ),
        (lambda: connect_nodes("nodes: {a: {}, b: {depends_on: {any_of: [c]}}}", "a", "b"), "any of several"),
        (lambda: add_node("[1]", "a", {}), "not a mapping"),
        (lambda: add_node("nodes: [1]", "a", {}), "`nodes` is not a mapping"),
        (lambda: remove_node("nodes: {a: {} # why\n, b: {}}", "a"), "edit the text"),
    ],
)
def test_what_cannot_be_edited_is_rejected_with_its_reason(edit, message):
    with pytest.raises(WorkflowEditRejected, match=message):
        edit()


def test_a_text_that_is_not_yaml_has_its_problems():
    with pytest.raises(WorkflowInvalid):
        add_node("nodes: [", "a", {})


# ── Properties: files in any style ──

IDS = ["a", "b", "c", "d"]
VALUES = st.sampled_from(
    [1, True, "text", "{{ nodes.a.output }}", "nodes.b", "# no comment", ["x", "y"], {"k": "v"}, ""]
)
STYLES = st.sampled_from(["block", "flow", "quoted"])


@st.composite
def workflows(draw: Any) -> dict[str, Any]:
    nodes: dict[str, Any] = {}
    for node_id in draw(st.lists(st.sampled_from(IDS), min_size=2, max_size=4, unique=True)):
        node: dict[str, Any] = {"handler": draw(st.sampled_from(["h", "read.file", "no"]))}
        others = [other for other in IDS if other != node_id]
        names = st.lists(st.sampled_from(others), min_size=1, max_size=3, unique=True)
        for key in draw(st.lists(st.sampled_from(["params", "depends_on", "next", "group"]), unique=True)):
            if key == "params":
                node["params"] = draw(st.dictionaries(st.sampled_from(["p", "q", "r"]), VALUES, max_size=3))
            elif key == "group":
                node["depends_on"] = {"all_of": draw(names)}
            else:
                node[key] = draw(st.one_of(names, st.sampled_from(others)))
        nodes[node_id] = node
    return {"name": "w", "nodes": nodes, **draw(st.fixed_dictionaries({}, optional={"tags": st.just(["t"])}))}


@st.composite
def texts(draw: Any) -> str:
    """Write a workflow in a style drawn for each part, with comments and blank lines between."""
    data = draw(workflows())

    def write(value: Any, indent: str) -> str:
        style = draw(STYLES)
        if not isinstance(value, dict | list) or not value or style != "block":
            return f" {write_inline(value, quoted=style == 'quoted')}{draw(comments())}"
        lines: str = draw(comments())
        for item in value:
            if draw(st.integers(0, 5)) == 0:
                lines += draw(st.sampled_from(["\n", f"\n{indent}# about - it: x", "\n\n  # two"]))
            key = "-" if isinstance(value, list) else write_inline(item, quoted=draw(st.booleans())) + ":"
            lines += f"\n{indent}{key}" + write(
                item if isinstance(value, list) else value[item], indent + "  "
            )
        return lines

    def comments() -> Any:
        return st.sampled_from(["", "", "", "  # a comment"])

    ending: str = draw(st.sampled_from(["", "# end\n"]))
    text = "".join(f"{key}:{write(value, '  ')}\n" for key, value in data.items()) + ending
    assert read_document(text).data == data
    return text if draw(st.booleans()) else text.removesuffix("\n")


def edited_or_rejected(edit: Any, text: str, *arguments: Any) -> Any:
    """Return the text that an edit makes, None where it refuses: then nothing was changed."""
    try:
        return edit(text, *arguments)
    except WorkflowEditRejected:
        return None


def assert_other_lines_stay(text: str, edited: str, names: tuple[str, ...]) -> None:
    removed, _ = changes(text, edited)
    for line in removed:
        assert not line.strip().startswith("#"), f"a comment was removed: {line!r}"
        assert any(name in line for name in names), f"another line was changed: {line!r}"


@given(texts())
def test_an_added_node_leaves_every_line_but_that_of_a_flow_mapping(text):
    expected = read_document(text).data
    expected["nodes"]["new"] = {"handler": "x", "params": {"n": 1}}
    edited = add_node(text, "new", {"handler": "x", "params": {"n": 1}})
    assert read_document(edited).data == expected
    removed, _ = changes(text, edited)
    assert len(removed) <= 1
    assert edited.count("#") == text.count("#")


@given(texts(), st.sampled_from(IDS))
def test_a_renamed_node_changes_the_lines_that_name_it(text, node_id):
    data = read_document(text).data
    edited = edited_or_rejected(rename_node, text, node_id, "renamed")
    if node_id not in data["nodes"]:
        assert edited is None
        return
    assert edited is not None
    assert_other_lines_stay(text, edited, (node_id,))
    assert len(edited.splitlines()) == len(text.splitlines())
    assert rename_node(edited, "renamed", node_id).replace('"', "") == text.replace('"', "")


@given(texts(), st.sampled_from(IDS))
def test_a_removed_node_is_gone_with_its_edges_and_the_rest_is_equal(text, node_id):
    nodes = read_document(text).data["nodes"]
    edited = edited_or_rejected(remove_node, text, node_id)
    if edited is None:
        return
    rest = read_document(edited).data["nodes"]
    assert rest.keys() == nodes.keys() - {node_id}
    for name, node in rest.items():
        assert node.get("params") == nodes[name].get("params")
        assert f'"{node_id}"' not in json.dumps([node.get("depends_on"), node.get("next")])


@given(texts(), st.sampled_from(IDS), st.sampled_from(IDS))
def test_a_connection_can_be_made_and_removed(text, source, target):
    connected = edited_or_rejected(connect_nodes, text, source, target)
    if connected is None or connected == text:
        return
    assert connected.count("#") == text.count("#")
    assert len(changes(text, connected)[0]) <= 1
    removed = edited_or_rejected(disconnect_nodes, connected, source, target)
    if removed is not None:
        before, after = read_document(text).data["nodes"], read_document(removed).data["nodes"]
        assert after.keys() == before.keys()
        assert connect_nodes(removed, source, target) != removed


@given(texts(), st.sampled_from(IDS), st.sampled_from(["handler", "params", "queue"]), VALUES)
def test_a_set_key_changes_its_lines_alone(text, node_id, key, value):
    expected = read_document(text).data
    edited = edited_or_rejected(set_field, text, node_id, key, value)
    if edited is None:
        return
    expected["nodes"][node_id][key] = value
    assert read_document(edited).data == expected


@given(
    st.recursive(
        VALUES,
        lambda inner: (
            st.lists(inner, max_size=3)
            | st.dictionaries(st.sampled_from(["k", "on", "a b", "1"]), inner, max_size=3)
        ),
    )
)
def test_what_is_written_is_read_back(value):
    document = {"value": value, "lines": "a\n b\n", "edge": " a\n"}
    assert read_document(write_yaml(document)).data == document
    assert read_document(f"value: {write_inline(value)}").data == {"value": value}
    assert json.loads(write_inline(value, quoted=True)) == value


@pytest.mark.parametrize(
    "dependant",
    [
        "  {}:\n    handler: h\n    depends_on: [a]\n",
        "  {}:\n    depends_on: a\n",
        "  {}: {{depends_on: a}}\n",
    ],
)
def test_a_node_with_many_dependants_is_removed_in_one_pass(dependant, monkeypatch):
    read = []

    def counted(text):
        read.append(text)
        return read_document(text)

    monkeypatch.setattr(splices, "read_document", counted)
    text = "nodes:\n  a: {handler: h}\n" + "".join(dependant.format(f"b{n}") for n in range(400))
    nodes = read_document(remove_node(text, "a")).data["nodes"]
    assert len(nodes) == 400
    assert not any("depends_on" in node for node in nodes.values())
    # The text, without the references, without the node.
    assert len(read) == 3


@pytest.mark.parametrize("names", ["aba", "bab", "aab", "baa", "abaab", "aa", "acaacb"])
@pytest.mark.parametrize("style", ["[{}]", "\n      - {}"])
def test_names_that_stand_several_times_in_a_list_are_removed_at_once(names, style):
    separator = ", " if style.startswith("[") else "\n      - "
    text = (
        "nodes:\n  a: {handler: h}\n  b: {handler: h}\n  c: {handler: h}\n"
        f"  d:\n    handler: h\n    depends_on: {style.format(separator.join(names))}\n  e: {{handler: h}}\n"
    )
    node = read_document(remove_node(text, "a")).data["nodes"]["d"]
    assert node == {"handler": "h"} | (
        {"depends_on": list(names.replace("a", ""))} if set(names) > {"a"} else {}
    )
