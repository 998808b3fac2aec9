"""Calls in a workflow function are nodes: the document is the one that YAML writes."""

from __future__ import annotations

from datetime import UTC, date, datetime, timedelta
from http import HTTPStatus
from typing import Any

import pytest

from dagmaster import (
    Future,
    RetryPolicy,
    all_of,
    any_of,
    approval,
    child_workflow,
    compile_text,
    conditional,
    end,
    expression,
    fan_in,
    fan_out,
    group,
    handler_task,
    join,
    start,
    task,
    wait,
    workflow,
)
from dagmaster.authoring.schema import NODE_MODELS
from dagmaster.errors import WorkflowInvalid
from dagmaster.testing import run_workflow
from tests.unit.authoring.python.graphs import double, echo, extract, nodes_of, problem_of, total


def test_a_call_is_a_node_and_a_future_as_an_argument_is_a_reference_and_a_dependency():
    @workflow
    def flow(day: date):
        rows = extract(day, count=2)
        return total(rows, "all")

    assert nodes_of(flow) == {
        "extract": {
            "handler": "tests.unit.authoring.python.graphs.extract",
            "params": {"day": "{{ inputs.day }}", "count": 2},
        },
        "total": {
            "handler": "tests.unit.authoring.python.graphs.total",
            "params": {"values": "{{ nodes.extract.output }}", "note": "all"},
            "depends_on": "extract",
        },
    }
    assert flow.document.data["outputs"] == {"result": "{{ nodes.total.output }}"}


def test_a_task_that_is_called_alone_is_the_function():
    assert extract(date(2026, 1, 1), 2) == [0, 1]
    assert total([1, 2]) == {"sum": 3, "note": ""}


def test_attributes_and_items_of_futures_are_paths():
    @workflow
    def flow():
        result = total.submit([1])
        echo([result.sum, result["note"], result["a b"][0], {"deep": result.x.y}])

    assert nodes_of(flow)["echo"]["params"]["value"] == [
        "{{ nodes.total.output.sum }}",
        "{{ nodes.total.output.note }}",
        "{{ nodes.total.output['a b'][0] }}",
        {"deep": "{{ nodes.total.output.x.y }}"},
    ]


def test_ids_are_names_of_functions_with_a_number_and_an_explicit_name_wins():
    @workflow
    def flow():
        for _ in range(3):
            echo(1)
        echo.with_options(name="echo_2")(1)
        echo.with_options(name="first")(1)

    assert list(nodes_of(flow)) == ["echo", "echo_3", "echo_4", "echo_2", "first"]


def test_a_retry_without_keys_is_a_policy_of_defaults_and_zero_is_not_a_policy():
    @workflow
    def flow() -> None:
        echo.with_options(name="defaults", retry={})(1)
        echo.with_options(name="none", retry=0)(1)

    nodes = nodes_of(flow)
    assert nodes["defaults"]["retry"] == {}
    assert nodes["none"]["retry"] == "none"


def test_an_explicit_name_is_unique():
    @workflow
    def flow():
        echo.with_options(name="one")(1)
        echo.with_options(name="one")(2)

    problem = problem_of(flow)
    assert "two nodes have the name 'one'" in problem.message
    assert problem.text == 'echo.with_options(name="one")(2)'


@pytest.mark.parametrize(
    "text",
    [
        "{{ inputs.day }}",
        "{% if %}",
        "{# #}",
        "{{{",
        "{{ '{{' }}",
        "{{{{%}}",
        "{ {{",
        "plain",
        "{'a': 1}",
        "",
    ],
)
def test_text_is_a_value_and_never_a_template(text):
    @workflow
    def flow():
        return echo([text, {"key": text}])

    assert flow.run() == [text, {"key": text}]


def test_map_is_a_fan_out_over_lists_and_results():
    @workflow
    def flow(day: date):
        fast = double.with_options(max_parallel=2, tolerate_failures="50%", queue="q", name="fast")
        return total(fast.map(extract(day)))

    nodes = nodes_of(flow)
    assert nodes["fast"] == {
        "type": "fan_out",
        "max_parallel": 2,
        "tolerate_failures": "50%",
        "source": "{{ nodes.extract.output }}",
        "task": {"handler": double.handler, "params": {"x": "{{ item }}"}, "queue": "q"},
        "depends_on": "extract",
    }
    assert nodes["total"]["params"] == {"values": "{{ nodes.fast.outputs }}"}
    assert flow.run(day=date(2026, 1, 1)) == {"sum": 6, "note": ""}


def test_expand_names_the_argument_and_partial_the_others():
    @workflow
    def flow():
        note = echo("n")
        return total.partial(note=note).expand(values=[[1], [2, 3]])

    node = nodes_of(flow)["total"]
    assert node["task"]["params"] == {"values": "{{ item }}", "note": "{{ nodes.echo.output }}"}
    assert node["depends_on"] == "echo"
    assert flow.run() == [{"sum": 1, "note": "n"}, {"sum": 5, "note": "n"}]


def test_fan_outs_nest_and_an_outer_item_is_known_inside():
    @workflow
    def flow():
        return fan_out(
            [[1, 2], [3]],
            lambda row: fan_out(row, lambda item: echo([item, row[0]]), max_parallel=1),
            fail_fast=True,
            name="rows",
        )

    assert nodes_of(flow)["rows"] == {
        "type": "fan_out",
        "source": [[1, 2], [3]],
        "task": {
            "type": "fan_out",
            "source": "{{ item }}",
            "task": {"handler": echo.handler, "params": {"value": ["{{ item }}", "{{ outer.item[0] }}"]}},
            "max_parallel": 1,
        },
        "fail_fast": True,
    }
    assert flow.run() == [[[1, 1], [2, 1]], [[3, 3]]]


def test_a_branch_runs_if_it_is_taken_and_any_of_has_the_value_of_the_one_that_ran():
    @workflow
    def flow(size: int):
        route = conditional(size, {"small": "< 10"}, default="large", name="route")
        with route["small"]:
            one = echo("small")
        with route["large"]:
            other = echo(echo("large"))
        return echo(any_of(one, other)), route.output.branch

    nodes = nodes_of(flow)
    assert nodes["route"]["branches"] == [
        {"name": "small", "condition": "< 10"},
        {"name": "large", "default": True},
    ]
    assert [nodes[name].get("depends_on") for name in ("echo", "echo_2", "echo_3", "echo_4")] == [
        "route.small",
        "route.large",
        "echo_2",
        {"any_of": ["echo", "echo_3"]},
    ]
    assert flow.run(size=1) == ["small", "small"]
    assert flow.run(size=10) == ["large", "large"]


def test_nodes_in_a_branch_of_a_branch_wait_for_the_inner_one():
    @workflow
    def flow(size: int):
        outer = conditional(size, {"a": "< 10"}, default="b", name="outer")
        with outer["a"]:
            inner = conditional(size, {"c": "< 5"}, default="d", name="inner")
            with inner["c"]:
                echo(1)
            echo(2)

    nodes = nodes_of(flow)
    assert [nodes[name]["depends_on"] for name in ("inner", "echo", "echo_2")] == [
        "outer.a",
        "inner.c",
        "outer.a",
    ]


def test_join_draws_edges():
    @workflow
    def flow(size: int):
        route = conditional(size, {"small": "< 10"}, default="large", name="route")
        with route["small"]:
            one = echo(1)
        echo.with_options(name="end", depends_on=join(one, route["large"]))("done")

    nodes = nodes_of(flow)
    assert nodes["echo"]["next"] == "end"
    assert nodes["route"]["branches"][1] == {"name": "large", "default": True, "next": "end"}
    assert "depends_on" not in nodes["end"]


def test_a_join_has_the_value_of_the_branch_that_ran():
    @workflow
    def flow(size: int):
        route = conditional(size, {"small": "< 10"}, default="large", name="route")
        with route["small"]:
            one = echo.submit(1)
        with route["large"]:
            other = echo.submit(2)
        return echo([join(one, other), size])

    nodes = nodes_of(flow)
    assert (nodes["echo"]["next"], nodes["echo_2"]["next"]) == ("echo_3", "echo_3")
    assert "depends_on" not in nodes["echo_3"]
    assert [flow.run(size=size)[0] for size in (1, 10)] == [1, 2]


def test_a_value_that_is_upstream_already_is_not_a_separate_dependency():
    @workflow
    def flow(size: int):
        route = conditional(size, {"small": "< 10"}, default="large", name="route")
        with route["small"]:
            one = echo.submit(1)
            deep = echo.submit(one)
        with route["large"]:
            other = echo.submit(2)
        # Where the branch was not taken, there is a default: the node runs all the same.
        return echo.with_options(name="last", depends_on=any_of(deep, other))(
            [one.default(None), other.default(None)]
        )

    assert nodes_of(flow)["last"]["depends_on"] == {"any_of": ["echo_2", "echo_3"]}
    assert [flow.run(size=size) for size in (1, 10)] == [[1, None], [None, 2]]


def test_shifts_order_nodes_without_values():
    @workflow
    def flow():
        a, b, c, d, e = (echo.with_options(name=name)(0) for name in "abcde")
        a >> [b, c] >> d
        e << [d, a]

    nodes = nodes_of(flow)
    assert {name: node.get("depends_on") for name, node in nodes.items()} == {
        "a": None,
        "b": "a",
        "c": "a",
        "d": ["b", "c"],
        "e": ["d", "a"],
    }


def test_a_cycle_is_an_error_that_spells_it_out():
    @workflow
    def flow():
        a, b = echo.with_options(name="a")(0), echo.with_options(name="b")(0)
        a >> b >> a

    assert "a" in problem_of(flow).message
    assert "b" in problem_of(flow).message


def test_dependencies_can_be_any_expression():
    @workflow
    def flow():
        a, b, c = (echo.with_options(name=name)(0) for name in "abc")
        echo.with_options(name="d", depends_on=[any_of(a, all_of(b, c)), c])(a.default(None))

    assert nodes_of(flow)["d"]["depends_on"] == [{"any_of": ["a", {"all_of": ["b", "c"]}]}, "c"]


def test_all_node_types_and_keys_of_yaml_can_be_written():
    @workflow(
        workflow_id="all-keys",
        name="All keys",
        version=3,
        description="d",
        on_failure="continue",
        deadline_seconds=60,
        tags=["t"],
    )
    def flow(wait_seconds: float = 1.5):
        with group("outer", description="d"), group("group", description="d"):
            body(wait_seconds)

    def body(wait_seconds: Any) -> None:
        task_node = handler_task("raster.validate").with_options(
            name="task",
            description="d",
            queue="q",
            timeout_seconds=5,
            dispatch_timeout_seconds=6,
            retry=RetryPolicy(max_attempts=2),
            allow_failure=True,
            code_fingerprint="0123456789abcdef",
        )(uri="file:///x")
        route = conditional(
            task_node.node.status,
            {"ok": "== 'COMPLETED'"},
            default="bad",
            name="conditional",
            description="d",
        )
        asked = approval(
            expression("really? {{ why }}", why=task_node.node.error),
            approvers=["ada"],
            timeout_seconds=9,
            on_timeout="approve",
            name="approval",
            description="d",
            depends_on=route["ok"],
        )
        paused = wait(seconds=wait_seconds, name="wait", description="d", depends_on=asked)
        wait(until=datetime(2030, 1, 1, tzinfo=UTC), name="wait_until").after(asked)
        wait(signal="go", timeout_seconds=5, on_timeout="go_on", name="wait_signal")
        wait(seconds=timedelta(minutes=2), name="wait_long")
        items = (
            handler_task("stac.add")
            .partial(a=1)
            .with_options(
                name="fan_out",
                description="d",
                max_parallel=2,
                tolerate_failures=1,
                on_item_error="fail",
                fail_fast=True,
                depends_on=paused,
            )
            .expand(b=[1, 2])
        )
        fan_in(items, aggregation="concat", name="fan_in", description="d")
        end(name="end", description="d", depends_on=items)
        child_workflow("other", {"x": 1}, version=2, name="workflow", description="d", depends_on=items)

    @workflow
    def begun():
        echo.with_options(depends_on=join(start(name="start", description="d")))(0)

    begun.compile()
    graph = flow.compile(allow_missing_handlers=True).graph
    assert compile_text(
        flow.to_yaml(), handlers=flow.handlers("default"), allow_missing_handlers=True
    ).graph.content_hash == (graph.content_hash)
    written: dict[str, set[str]] = {}
    for node in (*flow.document.data["nodes"].values(), *begun.document.data["nodes"].values()):
        written.setdefault(node.get("type", "task"), {"type"}).update(node)
    # `next` is written by `join`; a pool is not implemented.
    for kind, model in NODE_MODELS.items():
        assert set(model.model_fields) - {"next", "pool", "depends_on"} <= written[kind], kind
    assert {"version", "name", "description", "on_failure", "deadline_seconds", "tags"} <= set(
        flow.document.data
    )


# ── Groups ──


def test_nodes_that_are_made_in_a_group_are_in_it_and_others_wait_for_it():
    @workflow
    def flow():
        first = echo.with_options(name="first")(0)
        with group("clean", description="Clean up") as clean:
            echo.with_options(name="a")(0)
            with group("inner"):
                echo.with_options(name="b")(0)
        last = echo.with_options(name="last")(0)
        first >> clean >> last

    nodes = nodes_of(flow)
    assert nodes["clean"] == {"type": "group", "description": "Clean up", "depends_on": "first"}
    assert [nodes[name].get("group") for name in ("a", "inner", "b", "last")] == [
        "clean",
        "clean",
        "inner",
        None,
    ]
    assert nodes["last"]["depends_on"] == "clean"
    flow.compile()


def test_groups_and_futures_can_be_ordered_in_any_mix():
    @workflow
    def flow():
        a, b, c, d = (echo.with_options(name=name)(0) for name in "abcd")
        g, h = group("g"), group("h", depends_on=a)
        [a, g] >> b
        [c, h] << g
        d << [g, h]
        with g:
            echo.with_options(name="e")(0)

    nodes = nodes_of(flow)
    written = {name: nodes[name].get("depends_on") for name in "bchd"}
    assert written == {"b": ["a", "g"], "c": "g", "h": ["a", "g"], "d": ["g", "h"]}
    assert nodes["e"]["group"] == "g"


def test_a_value_from_a_node_that_the_group_waits_for_is_no_further_dependency():
    @workflow
    def flow():
        a, b = echo.with_options(name="a")(0), echo.with_options(name="b")(0)
        with group("g", depends_on=[a, b]):
            echo.with_options(name="c")(a)
        with group("h", depends_on=b):
            echo.with_options(name="d")(a)

    assert "depends_on" not in nodes_of(flow)["c"]
    assert nodes_of(flow)["d"]["depends_on"] == "a"


def test_a_value_of_a_node_in_a_group_needs_no_dependency_behind_the_group():
    @workflow
    def flow():
        with group("g") as g:
            a = echo.with_options(name="a")(0)
        echo.with_options(name="b", depends_on=g)(a)

    assert nodes_of(flow)["b"]["depends_on"] == "g"
    flow.compile()


def test_a_group_in_a_branch_runs_only_if_the_branch_is_taken():
    @workflow
    def flow(n: int):
        route = conditional(n, {"small": "< 5"}, default="large", name="route")
        with route["small"], group("g"):
            echo.with_options(name="a")(0)
        with group("h"), route["large"]:
            echo.with_options(name="b")(0)

    nodes = nodes_of(flow)
    assert (nodes["g"]["depends_on"], nodes["a"].get("depends_on")) == ("route.small", None)
    assert (nodes["h"].get("depends_on"), nodes["b"]["depends_on"]) == (None, "route.large")


def test_the_items_of_a_fan_out_are_in_the_group_of_the_fan_out():
    @workflow
    def flow():
        with group("g"):
            echo.with_options(name="many").map([1, 2])

    assert nodes_of(flow)["many"]["group"] == "g"
    assert "group" not in nodes_of(flow)["many"]["task"]


def test_a_fan_in_aggregates_a_group():
    @workflow
    def flow():
        with group("g") as g:
            echo.with_options(name="a")(0)
            echo.with_options(name="b")(0)
        return fan_in(g, name="all")["count"]

    assert nodes_of(flow)["all"]["depends_on"] == "g"
    assert flow.run() == 2


def test_a_cycle_through_a_group_is_an_error_that_spells_it_out():
    @workflow
    def flow():
        last = echo.with_options(name="last")(0)
        with group("g", depends_on=last):
            echo.with_options(name="a")(0) >> last

    assert "cycle: last → a → last (a is in the group g, which depends on last)" in problem_of(flow).message


def test_a_group_is_used_in_a_workflow_only():
    with pytest.raises(WorkflowInvalid, match="a group is part of a graph"):
        group("clean")


# ── Other workflows ──


def test_a_workflow_that_is_called_is_a_child_job():
    @workflow
    def square(x: int):
        return echo([x])

    @workflow
    def flow(n: int) -> Any:
        first = square.with_options(name="first")(n)
        return {"first": first[0], "each": fan_out([1, 2], square)}

    assert nodes_of(flow)["first"] == {
        "type": "workflow",
        "workflow_id": "square",
        "inputs": {"x": "{{ inputs.n }}"},
    }
    assert flow.run(n=4) == {"first": 4, "each": [[1], [2]]}


MEASURED = {"size": [1, {"of area": 2}], "name": "a"}


@workflow
def measure(x: Future[int]) -> Future[str]:
    return expression("{{ a.name }}{{ x }}", a=echo.submit(MEASURED), x=x)


@workflow
def describe(x: Future[int]) -> dict[str, Future[Any]]:
    return {"name": echo(x), "size": echo.submit(1)}


@pytest.mark.parametrize(
    ("each", "expected"),
    [
        (measure, ["a1", "a2"]),
        (describe, [{"name": 1, "size": 1}, {"name": 2, "size": 1}]),
        (lambda x: describe(x).name, [1, 2]),
        (lambda x: echo({"item": x})["item"], [1, 2]),
        (lambda x: echo([x, MEASURED])[1]["size"][-1]["of area"], [2, 2]),
        (lambda x: echo.map([x, 5])[1], [5, 5]),
    ],
)
def test_a_fan_out_gives_what_its_function_returns_of_each_result(each, expected, tmp_path):
    @workflow
    def flow():
        results = fan_out([1, 2], each)
        return {"all": results, "passed": echo(results), "last": results[-1], "filled": results.default([])}

    assert flow.run() == {"all": expected, "passed": expected, "last": expected[-1], "filled": expected}
    for member in flow.family():
        (tmp_path / f"{member.workflow_id}.yaml").write_text(member.to_yaml())
    report = run_workflow(tmp_path / "flow.yaml", handlers=flow.handlers())
    assert report.result == flow.run()


def test_a_part_of_a_tolerated_failure_of_a_fan_out_is_null():
    @task(retry="none")
    def fail_at_two(x: int) -> dict[str, int]:
        return {"x": 1 // (2 - x)}

    @workflow
    def flow():
        return fan_out([1, 2], lambda x: fail_at_two(x)["x"], on_item_error="tolerate")

    assert flow.run() == [1, None]


@pytest.mark.parametrize(
    "value",
    [
        {"{{ k }}": 1},
        {"a": [{"{{k": {"{{ x }}'\"\\": "{{ t }}\n\u2028", "none": None, "yes": True, "empty": [{}]}}]},
        {"{{": {"{{": {"b": {}}}, "}}": 1.5, "{%": HTTPStatus.OK},
    ],
)
def test_a_key_with_braces_is_a_key(value):
    @workflow
    def flow(day: Future[date]):
        return echo([value, {"{{ future }}": day, "at": {"plain": date(2026, 1, 2)}}])

    expected = [value, {"{{ future }}": "2026-01-01", "at": {"plain": "2026-01-02"}}]
    assert flow.run(day="2026-01-01") == expected
    report = run_workflow(flow.to_yaml(), {"day": "2026-01-01"}, handlers=flow.handlers())
    assert report.result == {"result": expected}


def test_expressions_take_futures_by_name():
    @workflow
    def flow(name: Future[str]):
        size = total.submit([1, 2])
        return echo(
            [
                expression("{{ name }}-{{ size.sum }}.tif", name=name, size=size),
                expression("size.sum + 1", size=size),
                expression("{{ (a | length) * 2 }}", a=echo([1]).default([])),
            ]
        )

    assert nodes_of(flow)["echo_2"]["depends_on"] == ["total", "echo"]
    assert flow.run(name="x") == ["x-3.tif", 4, 2]


def test_futures_are_typed_at_run_time_by_their_tasks():
    @workflow
    def flow(day: Future[date]):
        return extract(day)

    assert flow.run(day="2026-01-01") == [0, 1, 2]
