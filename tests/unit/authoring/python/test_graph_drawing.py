"""Graphs of tasks and groups as notebooks show them."""

from __future__ import annotations

import re

import pytest

from dagmaster import Group, Task, blocking, create_result_collector, create_task, draw, task, workflow
from dagmaster.authoring.python import graph_drawing
from dagmaster.errors import NodesRejected


def step(value: int = 0, more: object = None) -> int:
    return value


def names_in(svg: str | None) -> set[str]:
    return set(re.findall(r'data-node="([^"]+)"', svg or ""))


def a_graph() -> tuple[Task, Group, Task]:
    extract, load = create_task(step, name="extract"), create_task(step, name="load")
    clean = Group("clean", [create_task(step, {"value": extract}) for _ in range(2)])
    extract >> clean >> load
    return extract, clean, load


def test_a_task_and_a_group_draw_everything_that_they_are_connected_to():
    extract, clean, load = a_graph()
    for item in (extract, clean, load):
        assert names_in(item._repr_svg_()) == {"extract", "clean", "step", "step_2", "load"}
    assert names_in(create_result_collector([extract, load])._repr_svg_()) >= {"collect", "extract", "load"}


def test_a_list_and_unconnected_parts_are_drawn():
    alone = Task("no_such_module.load", name="alone")
    drawing = draw([*a_graph(), [alone]])
    assert names_in(drawing._repr_svg_()) == {"extract", "clean", "step", "step_2", "load", "alone"}
    assert drawing.svg.startswith("<svg")
    assert names_in(draw(alone, create_task(step)).svg) == {"alone", "step"}


def test_a_graph_looks_the_same_after_it_was_applied():
    extract, clean, load = a_graph()
    before = clean._repr_svg_()
    with blocking.OrchContext(in_memory=True) as context:
        job = context.create_job("drawn", load)
        assert clean._repr_svg_() == before
        later = context.apply(create_task(step, {"value": extract}), job.id)
        assert names_in(later._repr_svg_()) == {"extract", "clean", "step", "step_2", "load", later.node_id}
        blocking.run_job_test(job)


def test_a_cycle_is_spelled_out():
    first, second = create_task(step, name="first"), create_task(step, name="second")
    first >> second >> first
    with pytest.raises(NodesRejected, match=r"first.*second"):
        draw(first)
    # A notebook would print a traceback.
    assert first._repr_svg_() is None


def test_a_large_graph_is_not_drawn(monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr(graph_drawing, "MAX_NODES", 4)
    extract, clean, _ = a_graph()
    assert clean._repr_svg_() is None
    with pytest.raises(NodesRejected, match="5 nodes, and a drawing at most 4"):
        draw(extract)


def test_a_workflow_draws_itself():
    @task
    def one() -> int:
        return 1

    @workflow
    def flow():
        return one()

    assert "one" in names_in(flow._repr_svg_())
