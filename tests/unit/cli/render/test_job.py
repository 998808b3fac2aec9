"""How jobs and nodes look: the icon says the status without colour, and a line fits the screen."""

from __future__ import annotations

import pytest

from dagmaster.application.node_lookup import dependencies_of
from dagmaster.cli.render.job import (
    ICONS,
    JOB_ICONS,
    FanOutLine,
    JobLine,
    NodeLine,
    detail_lines,
    render_node,
    screen,
)
from dagmaster.cli.render.text import duration
from dagmaster.cli.render.tree import Tree
from dagmaster.engine.status import JobStatus, NodeStatus
from dagmaster.ports.handler_reports import Progress
from dagmaster.text_format import age, format_error
from tests.unit.application.world import graph
from tests.unit.cli.render.drawing import drawn


def test_every_status_has_its_own_icon():
    assert {icon for icon, _ in ICONS.values()} == {ICONS[status][0] for status in NodeStatus}
    assert len({icon for icon, _ in ICONS.values()}) == len(NodeStatus)
    assert set(JobStatus) <= set(JOB_ICONS)


def test_a_line_shows_the_action_of_a_node_and_its_duration():
    view = NodeLine("fetch", NodeStatus.COMPLETED, "echo", attempt=2, started=1.0, ended=3.5)
    assert drawn(render_node(view, "├─ ", 9.0, width=12)) == "├─ ✔ fetch      echo  attempt 2  2.5 s"


def test_the_duration_of_a_running_node_follows_the_clock():
    view = NodeLine("fetch", NodeStatus.RUNNING, started=1.0, progress=Progress(1, 4, "page 1"))
    assert drawn(render_node(view, "", 6.0)) == "▶ fetch  ━━━━━───────────────  25% page 1  5.0 s"


def test_failures_in_the_bar_of_a_fan_out_are_visible_without_colour():
    fan = FanOutLine(total=1000, completed=500, failed=100, in_flight=350, running=50, rate=100.0)
    text = drawn(
        render_node(NodeLine("tiles", NodeStatus.RUNNING, "fan_out", fan_out=fan), "", 0.0), width=120
    )
    assert (
        text
        == "▶ tiles  fan_out  ━━━━━━━━━━┅┅──────── 600/1,000  100 failed  100/s  4 s left  50 running  300 queued"
    )


def test_claimed_children_of_a_fan_out_are_neither_running_nor_queued():
    fan = FanOutLine(total=10, in_flight=9, claimed=3, running=2)
    text = drawn(render_node(NodeLine("tiles", NodeStatus.RUNNING, fan_out=fan), "", 0.0), width=120)
    assert text.endswith("0/10  2 running  3 claimed  4 queued")


def test_a_cancelled_fan_out_counts_its_children_by_status():
    fan = FanOutLine(total=10, completed=3, failed=1, stopped=6, cancelled=5, running=0)
    text = drawn(render_node(NodeLine("tiles", NodeStatus.CANCELLED, fan_out=fan), "", 0.0), width=120)
    assert text.endswith("10/10  3 completed  1 failed  5 cancelled  1 skipped")


def test_an_empty_fan_out_has_no_bar():
    assert (
        drawn(render_node(NodeLine("tiles", NodeStatus.COMPLETED, fan_out=FanOutLine(total=0)), "", 0.0))
        == "✔ tiles"
    )


def test_a_line_is_cut_rather_than_wrapped():
    view = NodeLine("fetch", NodeStatus.FAILED, error={"kind": "x", "message": "m" * 500})
    lines = drawn(render_node(view, "", 0.0), width=80).splitlines()
    assert len(lines) == 1
    assert lines[0].endswith("…")


@pytest.mark.parametrize(
    ("status", "text"), [(NodeStatus.READY, "waits for retry after: E: no"), (NodeStatus.FAILED, "E: no")]
)
def test_an_error_is_shown_with_its_type(status, text):
    view = NodeLine("a", status, error={"kind": "error", "type": "E", "message": "no\nmore"})
    assert [line for line, _ in detail_lines(view)] == [text]


def test_an_error_kind_of_the_handler_is_shown_without_its_type():
    assert format_error({"kind": "no_data", "type": "PermanentError", "message": "empty"}) == "empty"
    assert format_error({}) == ""


@pytest.mark.parametrize(
    ("seconds", "text"),
    [
        (0.0, "0 ms"),
        (0.25, "250 ms"),
        (59.94, "59.9 s"),
        (61, "1 min 1 s"),
        (7260, "2 h 1 min"),
        (180000, "2 d 2 h"),
    ],
)
def test_durations_have_two_units(seconds, text):
    assert duration(seconds) == text


@pytest.mark.parametrize(
    ("seconds", "text"), [(-1, "0 s"), (59, "59 s"), (61, "1 min"), (7200, "2 h"), (1e6, "11 d")]
)
def test_ages_have_one_unit(seconds, text):
    assert age(seconds) == text


def chain(length: int) -> dict[str, tuple[str, ...]]:
    return {f"n{number}": (f"n{number - 1}",) if number else () for number in range(length)}


def shown(tree: Tree, height: int, *hints: str) -> list[str]:
    job = JobLine("chain v1", "RUNNING", 1, 9, 2.0, hints=hints)
    drawing = screen(
        job, tree, lambda node_id: NodeLine(node_id, NodeStatus.PENDING), size=(80, height), now=0.0
    )
    return drawn(drawing).splitlines()


def test_a_small_job_is_shown_as_a_whole():
    lines = shown(Tree(dependencies_of(graph())), 30)
    assert lines == [
        "· fetch", "├─ · tiles", "└─ · release", "   · after", "", "▶ chain v1  running  1/9 nodes  2.0 s"
    ]  # fmt: skip


def test_hints_are_shown_below_the_tree():
    assert shown(Tree(dependencies_of(graph())), 30, "do this")[-1] == "  do this"


def test_a_large_job_fits_the_screen_and_shows_active_and_failed_nodes():
    tree = Tree(chain(500))
    for number in range(300):
        tree.mark(f"n{number}", NodeStatus.COMPLETED)
    tree.mark("n7", NodeStatus.FAILED)
    tree.mark("n300", NodeStatus.RUNNING)
    lines = shown(tree, 20)
    assert len(lines) < 20
    assert lines[0] == "… 485 more nodes"
    assert lines[1] == "· n7"
    assert "· n300" in lines


def test_many_failures_leave_lines_for_active_nodes():
    tree = Tree(chain(500))
    for number in range(400):
        tree.mark(f"n{number}", NodeStatus.FAILED)
    tree.mark("n450", NodeStatus.DISPATCHED)
    assert "· n450" in shown(tree, 20)


def test_a_reopened_node_is_not_finished():
    tree = Tree(chain(3))
    tree.mark("n1", NodeStatus.FAILED)
    tree.mark("n1", NodeStatus.PENDING)
    assert (tree.finished, tree.failed, tree.active) == (set(), set(), set())
