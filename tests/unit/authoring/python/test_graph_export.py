"""Tasks and groups of code as a workflow: its YAML is the graph of a job that is made of them, and runs like it."""

from __future__ import annotations

from dataclasses import replace
from itertools import pairwise
from typing import TYPE_CHECKING, Any

import pytest
from hypothesis import assume, given, reject
from hypothesis import strategies as st

from dagmaster import (
    Group,
    ResultCollector,
    Task,
    Workflow,
    blocking,
    compile_text,
    create_result_collector,
    create_task,
    load_workflow,
    task,
)
from dagmaster.authoring.added_nodes import PYTHON_DEFINITION, read_batch
from dagmaster.authoring.compiler.compile import compile_definition
from dagmaster.authoring.graph_parts import check_part
from dagmaster.authoring.python.graph_collection import collect
from dagmaster.engine.graph import FanInSpec, TaskSpec
from dagmaster.engine.growth import grow_graph
from dagmaster.errors import NodesRejected
from dagmaster.testing import run_workflow
from tests.unit.authoring.python.test_round_trip import NO_HANDLERS, VALUES, requires

if TYPE_CHECKING:
    from pathlib import Path

    from dagmaster.engine.graph import Graph, Spec

TEXTS = st.sampled_from(
    ["", "{{ nodes.x.output }}", "{{", "}} {{{ a }}}", "{% x %}", "${x}", "- a: b", "no", "1e3"]
)
JSON = VALUES | TEXTS | st.lists(TEXTS, max_size=2)


def echo(value: Any = None, **more: Any) -> Any:
    return {"value": value, **more} if more else value


@task(queue="light", retry=5)
def double(x: int) -> int:
    return 2 * x


@st.composite
def graphs(draw: st.DrawFn) -> list[Any]:
    """Return connected tasks, groups and a collector. Some make no graph: a member of a group may wait for it."""
    groups = [Group(f"group{number}") for number in range(draw(st.integers(0, 3)))]
    for inner, outer in pairwise(groups):
        if draw(st.booleans()):
            outer.add(inner)
    tasks: list[Task] = []
    collector: ResultCollector | None = None
    for number in range(draw(st.integers(1, 6))):
        results = [one for one in tasks if not one.allow_failure and draw(st.booleans())]
        arguments: list[Any] = [*results, *([collector] if collector is not None else [])]
        tasks.append(a_task(draw, number, arguments))
        for place in groups:
            if tasks[-1].group is None and draw(st.booleans()):
                place.add(tasks[-1])
            elif draw(st.booleans()):
                tasks[-1].depends_on(place)
        if collector is None and draw(st.booleans()):
            collector = create_result_collector(draw(st.permutations(tasks)))
    for before, after in pairwise(groups):
        if draw(st.booleans()):
            before >> after
    return [*tasks, *groups]


def a_task(draw: st.DrawFn, number: int, results: list[Any]) -> Task:
    kwargs = {"value": draw(JSON), "more": {"results": [0, *results]}} if results else {"value": draw(JSON)}
    return create_task(
        echo,
        draw(st.sampled_from([kwargs, {}])),
        name=draw(st.none() | st.just(f"task{number}")),
        queue=draw(st.sampled_from(["q", "other"])),
        retry=draw(st.sampled_from([None, "none", 4, {"max_attempts": 2, "backoff": "fixed"}])),
        timeout_seconds=draw(st.none() | st.integers(1, 99)),
        allow_failure=draw(st.booleans()),
    )


def graph_of_a_job(items: Any) -> Graph:
    """Return the graph of a job that is made of these items."""
    rows = check_part(collect(items).part)
    return grow_graph(compile_definition(PYTHON_DEFINITION), [read_batch(rows, (1,))])


def facts(graph: Graph) -> dict[str, Any]:
    """Return what the nodes mean, and the params that tasks get if each node has returned its name."""
    outputs = {
        "nodes": {
            name: {"output": {"results": name} if is_fan_in(spec) else name}
            for name, spec in graph.specs.items()
        }
    }
    return {name: (*fact(spec), params(spec, outputs)) for name, spec in graph.specs.items()}


def is_fan_in(spec: Spec) -> bool:
    return isinstance(spec, FanInSpec)


def fact(spec: Spec) -> Any:
    changes: dict[str, Any] = {"requires": None}
    if isinstance(spec, TaskSpec):
        changes["params"] = None
    return replace(spec, **changes), requires(spec.requires)


def params(spec: Spec, scope: Any) -> Any:
    return spec.params.resolve(scope) if isinstance(spec, TaskSpec) else None


def keys_in(value: Any) -> list[str]:
    inner = value.values() if isinstance(value, dict) else value if isinstance(value, list) else ()
    return [*(value if isinstance(value, dict) else ()), *(key for one in inner for key in keys_in(one))]


@given(graphs())
def test_the_yaml_of_random_tasks_and_groups_is_the_graph_of_their_job(items):
    try:
        graph = graph_of_a_job(items)
    except NodesRejected:
        reject()
    flow = Workflow.from_tasks("flow", items)
    assume(all("{{" not in key for task in items if isinstance(task, Task) for key in keys_in(task.kwargs)))
    compiled = compile_text(flow.to_yaml(), allow_missing_handlers=True).graph
    assert facts(compiled) == facts(graph)
    assert flow.compile().graph.content_hash == compiled.content_hash


def etl() -> list[Any]:
    first = create_task(double, {"x": 4}, name="first")
    parts = Group("parts", [create_task(echo, {"value": number}) for number in (2, 1)])
    both = create_result_collector(parts.tasks[::-1], name="both")
    last = create_task(
        echo, {"value": {"text": "{{ inputs.x }}", "first": first, "both": [both]}}, name="last"
    )
    first >> parts >> last
    return [last]


def test_the_exported_file_runs_and_has_the_result_of_the_job(tmp_path: Path):
    flow = Workflow.from_tasks("etl", etl(), version=3, description="of tasks")
    with blocking.OrchContext(in_memory=True):
        job = blocking.run_job_test(blocking.create_job("etl", etl()))
    assert flow.run() == job.result == {"text": "{{ inputs.x }}", "first": 8, "both": [[1, 2]]}
    file = tmp_path / "etl.yaml"
    file.write_text(flow.to_yaml())
    loaded = load_workflow(file)
    assert loaded.to_yaml() == flow.to_yaml()
    graph = loaded.compile(NO_HANDLERS, allow_missing_handlers=True).graph
    assert (graph.workflow_id, graph.version, graph.description) == ("etl", 3, "of tasks")


def test_what_waits_for_the_items_is_part_of_the_workflow_as_of_the_job():
    def first_of_two() -> Task:
        first, last = (
            create_task(echo, {"value": 1}, name="first"),
            create_task(echo, {"value": 2}, name="last"),
        )
        first >> Group("rest", [last])
        return first

    flow = Workflow.from_tasks("flow", first_of_two())
    with blocking.OrchContext(in_memory=True):
        job = blocking.run_job_test(blocking.create_job("flow", first_of_two()))
    assert set(flow.document.data["nodes"]) == {"first", "rest", "last"}
    assert flow.run() == job.result == 2


def test_a_part_of_a_result_is_an_expression():
    source = create_task("m.f", queue="q", name="source")
    taker = create_task("m.f", {"x": source["a b"][0]["size"]}, queue="q", name="taker")
    text = Workflow.from_tasks("parts", [taker]).to_yaml()
    assert "{{ nodes.source.output['a b'][0].size }}" in text


def test_a_key_with_braces_is_also_a_value_in_the_file():
    source = create_task(echo, {"value": {"a": 5}}, name="source")
    value = [{"{{ x }}": source["a"], "text": "{{ y }}", "inner": {"{{": [source]}}]
    flow = Workflow.from_tasks("flow", create_task(echo, {"value": value}))
    expected = [{"{{ x }}": 5, "text": "{{ y }}", "inner": {"{{": [{"a": 5}]}}]
    assert flow.run() == expected
    assert run_workflow(flow.to_yaml(), handlers=flow.handlers()).result == expected


def test_tasks_without_a_queue_leave_it_to_the_operator():
    document = Workflow.from_tasks("flow", create_task(echo)).document.data
    assert document["nodes"] == {"echo": {"handler": f"{__name__}.echo"}}


def test_tasks_that_are_part_of_a_job_keep_the_names_of_their_nodes():
    items = etl()
    with blocking.OrchContext(in_memory=True):
        blocking.create_job("etl", items)
    assert set(Workflow.from_tasks("etl", items).document.data["nodes"]) == {
        *("first", "parts", "echo", "echo_2", "both", "last")
    }


def test_what_a_file_cannot_say_is_rejected():
    one, two = create_task(echo, name="one"), create_task(echo, name="two")
    forth, back = create_result_collector([one, two]), create_result_collector([two, one])
    with pytest.raises(NodesRejected, match="two collectors take results in opposite orders"):
        Workflow.from_tasks("flow", [forth, back]).to_yaml()
    with pytest.raises(NodesRejected, match="collects a result twice"):
        Workflow.from_tasks("flow", create_result_collector([one, one])).to_yaml()
    with pytest.raises(NodesRejected, match="none collects no results"):
        Workflow.from_tasks("flow", create_result_collector([], name="none")).to_yaml()
    with pytest.raises(NodesRejected, match="waits for two, whose result it does not collect"):
        Workflow.from_tasks("flow", create_result_collector([one]).depends_on(two)).to_yaml()
    risky = create_task(echo, name="risky", allow_failure=True)
    with pytest.raises(
        NodesRejected, match=r"user takes the result of risky, which may fail \(allow_failure\)"
    ):
        Workflow.from_tasks("flow", create_task(echo, {"value": risky}, name="user")).to_yaml()
    with pytest.raises(
        NodesRejected, match=r"task has the argument '\{\{ x \}\}': in a workflow file no name has"
    ):
        Workflow.from_tasks("flow", create_task("m.f", {"{{ x }}": 1}, name="task")).to_yaml()
    one >> two >> one
    with pytest.raises(NodesRejected, match="one → two → one"):
        Workflow.from_tasks("flow", one).to_yaml()


def test_a_workflow_of_tasks_belongs_to_the_file_that_makes_it(tmp_path: Path):
    file = tmp_path / "own.py"
    file.write_text(
        "from dagmaster import Workflow, create_task, task\n"
        "@task(queue='q')\ndef one() -> int: return 1\n"
        "nightly = Workflow.from_tasks('nightly', [create_task(one)])\n"
    )
    nightly = load_workflow(file)
    assert nightly.workflow_id == "nightly"
    assert nightly.run() == 1
