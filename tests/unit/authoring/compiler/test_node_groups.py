"""Groups in workflow files: how they are declared, what their nodes wait for, and what can be wrong with them."""

from __future__ import annotations

from typing import Any, cast

import pytest

from dagmaster.authoring.compiler.compile import compile_definition
from dagmaster.engine.graph import FanInSpec, GroupSpec
from dagmaster.engine.groups import members
from dagmaster.testing import all_of, any_of, join
from tests.unit.authoring.compiled_workflows import (
    HANDLERS,
    TASK,
    compile_flow,
    described,
    flow,
    graph_of,
    messages,
    nodes_of,
    problems_of,
    the_problem_of,
)

BREAK = "remove one of these dependencies to break the cycle"


def test_nodes_of_a_group_wait_for_what_the_group_waits_for_and_others_for_the_group():
    nodes = nodes_of(f"""
        first: {{{TASK}}}
        clean: {{type: group, depends_on: first, description: Clean}}
        a: {{{TASK}, group: clean}}
        b: {{{TASK}, group: clean, depends_on: a}}
        load: {{{TASK}, depends_on: clean}}
    """)
    assert isinstance(nodes["clean"], GroupSpec)
    assert nodes["clean"].requires == join("a", "b")
    assert (nodes["a"].group, nodes["a"].requires) == ("clean", all_of("first"))
    assert nodes["b"].requires == all_of("a")
    assert nodes["load"].requires == all_of("clean")


def test_a_group_that_waits_for_several_nodes_has_a_node_that_joins_them():
    graph = graph_of(
        flow(f"""
        x: {{{TASK}}}
        y: {{{TASK}}}
        clean: {{type: group, depends_on: {{any_of: [x, y]}}}}
        a: {{{TASK}, group: clean}}
    """)
    )
    assert graph.specs["clean__start"].requires == any_of("x", "y")
    assert graph.specs["a"].requires == all_of("clean__start")
    assert "clean__start" not in graph.definition["nodes"]


def test_edges_may_lead_to_a_group_and_from_a_group():
    nodes = nodes_of(f"""
        x: {{{TASK}, next: clean}}
        clean: {{type: group, next: [load]}}
        a: {{{TASK}, group: clean}}
        load: {{{TASK}}}
    """)
    assert nodes["a"].requires == all_of("x")
    assert nodes["load"].requires == join("clean")


def test_a_group_that_no_node_declares_is_declared_by_its_first_node():
    graph = graph_of(flow(f"x: {{{TASK}}}\na: {{{TASK}, group: clean}}\nb: {{{TASK}, depends_on: clean}}"))
    assert list(graph.specs) == ["x", "clean", "a", "b"]
    assert members(graph.specs["clean"]) == ["a"]
    declared = graph_of(
        flow(
            f"x: {{{TASK}}}\nclean: {{type: group}}\na: {{{TASK}, group: clean}}\nb: {{{TASK}, depends_on: clean}}"
        )
    )
    assert declared.content_hash == graph.content_hash


def test_groups_nest_and_may_be_declared_below_their_nodes():
    nodes = nodes_of(f"""
        a: {{{TASK}, group: inner}}
        inner: {{type: group, group: outer}}
        outer: {{type: group, depends_on: x}}
        x: {{{TASK}}}
    """)
    assert members(nodes["outer"]) == ["inner"]
    assert nodes["a"].requires == all_of("x")


def test_groups_of_a_file_may_be_nested_5000_deep():
    inner = "\n".join(f"g{depth}: {{type: group, group: g{depth + 1}}}" for depth in range(5_000))
    nodes = nodes_of(
        f"x: {{{TASK}}}\na: {{{TASK}, group: g0}}\n{inner}\ng5000: {{type: group, depends_on: x}}"
    )
    assert nodes["a"].requires == all_of("x")


def test_a_stored_definition_with_groups_compiles_to_the_same_graph():
    graph = graph_of(
        flow(
            f"x: {{{TASK}}}\ny: {{{TASK}}}\ng: {{type: group, depends_on: [x, y]}}\na: {{{TASK}, group: g}}\nb: {{{TASK}, group: other}}"
        )
    )
    again = compile_definition(graph.definition)
    assert (again.content_hash, again.specs) == (graph.content_hash, graph.specs)


def test_a_stored_definition_may_have_what_was_valid_when_it_was_published():
    graph = graph_of(
        flow(
            f"a: {{{TASK}, group: g}}\nload: {{{TASK}, depends_on: g, params: {{x: '{{{{ nodes.a.output }}}}'}}}}"
        )
    )
    nodes = cast("dict[str, Any]", graph.definition["nodes"])
    old = {
        **graph.definition,
        "nodes": {**nodes, "load": {**nodes["load"], "params": {"x": "{{ nodes.g.output }}"}}},
    }
    old["inputs"] = {
        "day": {"type": "array", "items": {"type": "string", "format": "date"}, "default": ["20260131"]}
    }
    assert set(compile_definition(old).specs) == set(graph.specs)


def test_every_node_but_a_start_can_be_in_a_group():
    nodes = nodes_of(f"""
        t: {{{TASK}, group: g}}
        c: {{type: conditional, group: g, branches: [{{default: true}}]}}
        f: {{type: fan_out, group: g, source: [1], task: {{{TASK}}}}}
        i: {{type: fan_in, group: g, depends_on: f}}
        w: {{type: workflow, group: g, workflow_id: other}}
        p: {{type: approval, group: g}}
        s: {{type: wait, group: g, seconds: 1}}
        e: {{type: end, group: g, depends_on: t}}
        h: {{type: group, group: g}}
    """)
    assert members(nodes["g"]) == ["t", "c", "f", "i", "w", "p", "s", "e", "h"]
    problem = the_problem_of(flow(f"s: {{type: start, group: g}}\na: {{{TASK}, depends_on: s}}"))
    assert "unknown key 'group'" in problem.message


# ── Values ──


def test_values_of_nodes_in_a_group_are_there_behind_the_group():
    compile_flow(
        flow(f"""
            m: {{handler: measure, group: clean, params: {{path: x}}}}
            load: {{{TASK}, depends_on: clean, params: {{x: "{{{{ nodes.m.output.path }}}}"}}}}
        """),
        handlers=HANDLERS,
        allow_missing_handlers=True,
    )


def test_a_value_of_a_node_that_may_be_skipped_needs_a_default_behind_its_group():
    problem = the_problem_of(
        flow(f"""
        route: {{type: conditional, branches: [{{name: x, condition: "1 == 1"}}, {{default: true}}]}}
        a: {{{TASK}, group: g}}
        b: {{{TASK}, group: g, depends_on: route.x}}
        load: {{{TASK}, depends_on: g, params: {{x: "{{{{ nodes.b.output.y }}}}"}}}}
    """)
    )
    assert (
        problem.message
        == "nodes.b.output.y may be missing: 'b' may be skipped or still open when 'load' runs"
    )


@pytest.mark.parametrize(
    "reference", ["nodes.g.output.y", "nodes.g.output", "nodes.g.output | default(1)", "upstream.output"]
)
def test_a_group_has_no_output(reference):
    problem = the_problem_of(
        flow(f"""
        a: {{{TASK}, group: g}}
        b: {{{TASK}, group: g}}
        load: {{{TASK}, depends_on: g, params: {{x: "{{{{ {reference} }}}}"}}}}
    """)
    )
    assert problem.message == "'g' is a group, and a group has no output"
    assert problem.hint == "name a node that is in it: nodes.a.output or nodes.b.output"
    assert problem.path == "nodes.load.params.x"
    assert problem.line


def test_upstream_of_a_node_in_a_group_is_the_node_that_the_group_waits_for():
    nodes = f"""
        x: {{{TASK}}}
        y: {{{TASK}}}
        g: {{type: group, depends_on: %s}}
        a: {{{TASK}, group: g, params: {{x: "{{{{ upstream.output.z }}}}"}}}}
        b: {{{TASK}, group: g, depends_on: a, params: {{x: "{{{{ upstream.output.z }}}}"}}}}
    """
    compile_flow(flow(nodes % "x"))
    problem = the_problem_of(flow(nodes % "[x, y]"))
    assert problem.message == "upstream is one node, and this one waits for several"
    assert problem.hint == "name the node: nodes.x.output"


def test_a_fan_in_aggregates_a_group_and_not_what_its_own_group_waits_for():
    nodes = nodes_of(f"""
        x: {{{TASK}}}
        g: {{type: group}}
        a: {{{TASK}, group: g}}
        h: {{type: group, depends_on: x}}
        all: {{type: fan_in, depends_on: g, group: h}}
        alone: {{type: fan_in, group: h}}
    """)
    assert isinstance(nodes["all"], FanInSpec)
    assert isinstance(nodes["alone"], FanInSpec)
    assert nodes["all"].sources == ("g",)
    assert nodes["alone"].sources == ("x",)


@pytest.mark.parametrize(
    "end", ["", "e: {type: end, depends_on: g}", "e: {type: end, group: g, depends_on: [b, c]}"]
)
def test_the_result_is_that_of_the_last_nodes_of_a_group(end):
    graph = graph_of(
        flow(
            f"a: {{{TASK}, group: g}}\nb: {{{TASK}, group: g, depends_on: a}}\nc: {{{TASK}, group: g}}\n{end}"
        )
    )
    assert graph.result_nodes == ("b", "c")


# ── Problems ──


@pytest.mark.parametrize(
    ("nodes", "problem"),
    [
        (
            f"a: {{{TASK}}}\nclean: {{type: group}}\nb: {{{TASK}, group: a}}",
            "5:39 'a' is a task, not a group | one of: clean",
        ),
        (
            "one: {type: group, group: two}\ntwo: {type: group, group: one}",
            "3:29 group 'one' contains itself: one → two → one | ",
        ),
        (
            f"clean: {{type: group, depends_on: b}}\na: {{{TASK}, group: clean}}\nb: {{{TASK}, depends_on: a}}",
            f"4:3 cycle: a → b → a (a is in the group clean, which depends on b) | {BREAK}",
        ),
        (
            f"x: {{{TASK}}}\nclean: {{type: group, depends_on: [x, b]}}\na: {{{TASK}, group: clean}}\nb: {{{TASK}, depends_on: a}}",
            f"4:3 cycle: clean → a → b → clean | {BREAK}",
        ),
        (
            f"a: {{{TASK}, group: clean, depends_on: clean}}",
            f"3:32 cycle: clean → a → clean | {BREAK}",
        ),
        (
            f"a: {{{TASK}, group: cl__ean}}",
            "3:39 the name of a group has no '__': that is how children are named | for example: cl_ean",
        ),
        (
            f"f: {{type: fan_out, source: [1], task: {{{TASK}, group: g}}}}",
            "3:67 a fan-out's task has no 'group' | move it to the fan-out",
        ),
        (
            f"clean: {{type: group}}\na: {{{TASK}, depends_on: claen}}",
            "4:44 unknown node 'claen' | did you mean 'clean'?",
        ),
        (
            f"s: {{type: start, next: x}}\nx: {{{TASK}}}\ng: {{type: group}}\na: {{{TASK}, group: g}}",
            "6:3 node 'a' cannot be reached from 's' | add it to the next of a node before it, or give it depends_on",
        ),
    ],
)
def test_a_mistake_with_groups_is_one_problem(nodes, problem):
    assert described(the_problem_of(flow(nodes))) == problem


def test_a_group_with_a_name_like_another_one_is_a_warning():
    compiled = compile_flow(
        flow(f"clean: {{type: group}}\na: {{{TASK}, group: clean}}\nb: {{{TASK}, group: claen}}")
    )
    (warning,) = compiled.warnings
    assert warning.message == "group 'claen' is declared here, and 'clean' is another group"
    assert "did you mean 'clean'?" in warning.hint


def test_a_group_that_cannot_be_read_is_reported_once():
    problems = problems_of(
        flow(f"clean: 5\na: {{{TASK}, group: clean}}\nb: {{{TASK}, depends_on: [a, clean]}}")
    )
    assert len(messages(problems)) == 1


def test_a_group_that_never_runs_is_named_by_its_name():
    compiled = compile_flow(
        flow(f"""
        route: {{type: conditional, branches: [{{name: x, condition: "1 == 1"}}, {{name: y, default: true}}]}}
        g: {{type: group, depends_on: [route.x, route.y]}}
        a: {{{TASK}, group: g}}
        b: {{{TASK}, depends_on: g}}
    """)
    )
    assert [problem.message for problem in compiled.warnings] == [
        "node 'g' never runs: no choice of branches satisfies its dependencies"
    ]
