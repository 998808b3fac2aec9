"""Edges, dependency expressions, and the graph that they make."""

from __future__ import annotations

import textwrap

import pytest

from dagmaster.engine.graph import ConditionalSpec, Gate, GateKind, Leaf
from dagmaster.testing import all_of, any_of, branch_of, join
from tests.unit.authoring.compiled_workflows import (
    TASK,
    described,
    flow,
    graph_of,
    messages,
    nodes_of,
    problems_of,
    the_problem_of,
)


def requires(nodes: str) -> dict[str, Gate | None]:
    return {node_id: spec.requires for node_id, spec in nodes_of(nodes).items()}


ROUTE = f"""
a: {{{TASK}, next: route}}
route:
  type: conditional
  condition_field: "{{{{ nodes.a.output.n }}}}"
  branches:
    - {{name: small, condition: "< 10", next: s}}
    - {{name: large, default: true, next: [l, both]}}
s: {{{TASK}, next: both}}
l: {{{TASK}}}
both: {{{TASK}}}
"""


# ── Edges ───────────────────────────────────────────────────────────────────────────────────────────────────────────


def test_next_names_one_node():
    nodes = nodes_of(f"a: {{{TASK}, next: b}}\nb: {{{TASK}}}")
    assert nodes["b"].requires == join("a")
    assert nodes["a"].requires is None


def test_next_names_many_nodes():
    nodes = nodes_of(f"a: {{{TASK}, next: [b, c]}}\nb: {{{TASK}}}\nc: {{{TASK}}}")
    assert (nodes["b"].requires, nodes["c"].requires) == (join("a"), join("a"))


def test_two_edges_join():
    assert requires(f"a: {{{TASK}, next: c}}\nb: {{{TASK}, next: c}}\nc: {{{TASK}}}")["c"] == join("a", "b")


def test_an_edge_out_of_a_conditional_is_a_leaf_on_its_branch():
    requirements = requires(ROUTE)
    assert requirements["s"] == join(branch_of("route", "small"))
    assert requirements["l"] == join(branch_of("route", "large"))
    assert requirements["both"] == join(branch_of("route", "large"), "s")


def test_the_next_of_a_branch_may_be_a_list():
    route = nodes_of(ROUTE)["route"]
    assert isinstance(route, ConditionalSpec)
    assert [branch.next for branch in route.branches] == [("s",), ("l", "both")]


def test_a_branch_without_next_leads_nowhere():
    nodes = nodes_of("""
        a: {type: conditional, branches: [{condition: "1 == 1"}, {default: true}]}
    """)
    assert isinstance(nodes["a"], ConditionalSpec)
    assert [(branch.name, branch.next) for branch in nodes["a"].branches] == [
        ("branch_1", ()),
        ("default", ()),
    ]


def test_next_end_needs_no_declared_end():
    graph = graph_of(flow(f"a: {{{TASK}, next: END}}\nb: {{{TASK}}}"))
    assert list(graph.specs) == ["a", "b"]
    assert graph.result_nodes == ("a",)


def test_next_end_of_a_branch_needs_no_declared_end():
    graph = graph_of(
        flow(f"""
        a: {{type: conditional, branches: [{{condition: "1 == 1", next: END}}, {{default: true, next: [b, END]}}]}}
        b: {{{TASK}}}
    """)
    )
    assert graph.result_nodes == ("a",)


def test_next_end_leads_to_the_declared_end():
    graph = graph_of(flow(f"a: {{{TASK}, next: END}}\nEND: {{type: end}}"))
    assert graph.specs["END"].requires == join("a")
    assert graph.result_nodes == ("a",)


def test_without_an_end_the_result_is_that_of_the_last_nodes():
    assert graph_of(flow(f"a: {{{TASK}, next: [b, c]}}\nb: {{{TASK}}}\nc: {{{TASK}}}")).result_nodes == (
        "b",
        "c",
    )


def test_an_unknown_target_is_reported_with_the_nearest_node():
    problem = the_problem_of(flow(f"validate: {{{TASK}, next: publsh}}\npublish: {{{TASK}}}"))
    assert described(problem) == "3:45 unknown node 'publsh' | did you mean 'publish'?"
    assert problem.path == "nodes.validate.next"
    assert problem.text == "validate: {handler: work, queue: q, next: publsh}"


@pytest.mark.parametrize("key", ["next", "depends_on"])
def test_several_names_in_one_text_are_reported_to_be_a_list(key):
    problem = the_problem_of(flow(f"a: {{{TASK}}}\nb: {{{TASK}}}\nc: {{{TASK}, {key}: 'a, b'}}"))
    assert problem.hint == "write a list: [a, b]"


def test_each_unknown_target_of_a_list_is_reported_at_its_place():
    problems = problems_of(flow(f"a: {{{TASK}, next: [b, xx, yy]}}\nb: {{{TASK}}}"))
    assert [(problem.path, problem.column) for problem in problems] == [
        ("nodes.a.next[1]", 42),
        ("nodes.a.next[2]", 46),
    ]


@pytest.mark.parametrize("target", ["3", "true", "{b: 1}", "[[b]]"])
def test_a_target_is_a_name(target):
    problem = the_problem_of(flow(f"a: {{{TASK}, next: {target}}}\nb: {{{TASK}}}"))
    assert problem.message == "next is the name of a node, or a list of names"


def test_a_target_is_named_once():
    assert (
        the_problem_of(flow(f"a: {{{TASK}, next: [b, b]}}\nb: {{{TASK}}}")).message
        == "node 'b' is named twice"
    )


@pytest.mark.parametrize("key", ["next", "depends_on"])
def test_a_key_for_dependencies_that_is_empty_is_reported(key):
    problem = the_problem_of(flow(f"a: {{{TASK}}}\nb:\n  {key}:\n  handler: work\n  queue: q"))
    assert described(problem).startswith(f"5:{len(key) + 6} {key} is empty | ")


def test_the_end_and_the_conditional_have_no_next():
    problems = problems_of(
        flow(f"""
        a: {{{TASK}}}
        e: {{type: end, next: a}}
        c: {{type: conditional, next: a, branches: [{{default: true}}]}}
    """)
    )
    assert [described(problem) for problem in problems] == [
        "4:18 unknown key 'next' | nothing follows it",
        "5:26 unknown key 'next' | the next of a conditional belongs in its branches",
    ]


def test_two_branches_of_one_name_are_reported():
    problem = the_problem_of(
        flow("""
        c:
          type: conditional
          branches:
            - {name: x, condition: "1 == 1"}
            - {name: x, condition: "1 == 2"}
    """)
    )
    assert described(problem) == "7:9 branch 'x' appears twice | "


def test_a_conditional_has_one_default():
    problem = the_problem_of(flow("c: {type: conditional, branches: [{default: true}, {default: true}]}"))
    assert problem.message == "a conditional has one default"


# ── Dependency expressions ──────────────────────────────────────────────────────────────────────────────────────────


@pytest.mark.parametrize(
    ("written", "expected"),
    [
        ("a", all_of("a")),
        ("[a]", all_of("a")),
        ("[a, b]", all_of("a b")),
        ("{all_of: a}", all_of("a")),
        ("{all_of: [a]}", all_of("a")),
        ("{all_of: [a, b]}", all_of("a b")),
        ("{any_of: a}", any_of("a")),
        ("{any_of: [a, b]}", any_of("a b")),
        ("{all_of: [{any_of: [a, b]}, c]}", all_of(any_of("a b"), "c")),
        ("[{any_of: [a, b]}, c]", all_of(any_of("a b"), "c")),
        ("{any_of: [[a, b], c]}", any_of(all_of("a b"), "c")),
        ("{any_of: [{all_of: [a, b]}, {all_of: [b, c]}]}", any_of(all_of("a b"), all_of("b c"))),
        ("route.small", all_of("route.small")),
        ("route", all_of("route")),
        ("{any_of: [route.small, a]}", any_of("route.small", "a")),
        ("[route.small, route.large]", all_of("route.small route.large")),
        ("[{any_of: [a, b]}]", any_of("a b")),
        ("{all_of: {any_of: [a, b]}}", any_of("a b")),
    ],
)
def test_depends_on_is_an_expression(written, expected):
    requirements = requires(f"""
        a: {{{TASK}}}
        b: {{{TASK}}}
        c: {{{TASK}}}
        route: {{type: conditional, branches: [{{name: small, condition: "1 == 1"}}, {{name: large, default: true}}]}}
        x: {{{TASK}, depends_on: {written}}}
    """)
    assert requirements["x"] == expected


@pytest.mark.parametrize(
    ("written", "message", "path"),
    [
        ("nobody", "unknown node 'nobody'", ""),
        ("[a, nobody]", "unknown node 'nobody'", "[1]"),
        ("{any_of: [a, nobody]}", "unknown node 'nobody'", ".any_of[1]"),
        ("{all_of: nobody}", "unknown node 'nobody'", ".all_of"),
        ("[]", "all_of is empty: name at least one node", ""),
        ("{any_of: []}", "any_of is empty: name at least one node", ".any_of"),
        ("{any: [a]}", "unknown key 'any'", ".any"),
        ("{any_of: [a], all_of: [a]}", "write one of any_of, all_of here; nest the other inside it", ""),
        ("{}", "write one of any_of, all_of here; nest the other inside it", ""),
        ("3", "depends_on is a node, a list of nodes, or {any_of: […]} or {all_of: […]}", ""),
        ("[a, 3]", "depends_on is a node, a list of nodes, or {any_of: […]} or {all_of: […]}", "[1]"),
        (
            "{any_of: ~}",
            "depends_on is a node, a list of nodes, or {any_of: […]} or {all_of: […]}",
            ".any_of",
        ),
        ("a.small", "'a' is not a conditional: it has no branch 'small'", ""),
        ("route.smal", "'route' has no branch 'smal'", ""),
        ("route.", "'route' has no branch ''", ""),
        ("route.small.x", "'route' has no branch 'small.x'", ""),
    ],
)
def test_an_expression_that_means_nothing_is_reported_at_its_place(written, message, path):
    problem = the_problem_of(
        flow(f"""
        a: {{{TASK}}}
        route: {{type: conditional, branches: [{{name: small, condition: "1 == 1"}}, {{name: large, default: true}}]}}
        x:
          {TASK.replace(", ", chr(10) + "          ")}
          depends_on: {written}
    """)
    )
    assert (problem.message, problem.path) == (message, f"nodes.x.depends_on{path}")
    assert problem.line == 8


def test_a_branch_that_is_not_there_is_reported_with_the_nearest():
    problem = the_problem_of(
        flow(f"""
        route: {{type: conditional, branches: [{{name: small, condition: "1 == 1"}}, {{name: large, default: true}}]}}
        x: {{{TASK}, depends_on: route.lrge}}
    """)
    )
    assert problem.hint == "did you mean 'large'?"


def test_expressions_nest_at_most_16_deep():
    deep = "a"
    for _ in range(17):
        deep = f"[{deep}, a]"
    problems = problems_of(flow(f"a: {{{TASK}}}\nx: {{{TASK}, depends_on: {deep}}}"))
    assert set(messages(problems)) == {"dependencies nest at most 16 deep"}


# ── One or the other ────────────────────────────────────────────────────────────────────────────────────────────────


def test_an_edge_into_a_node_whose_depends_on_does_not_name_its_source_is_an_error():
    problem = the_problem_of(flow(f"a: {{{TASK}, next: c}}\nb: {{{TASK}}}\nc: {{{TASK}, depends_on: b}}"))
    assert described(problem) == (
        "3:38 'c' has depends_on, which does not name 'a': this edge would have no effect"
        " | add 'a' to depends_on of 'c', or remove it here"
    )
    assert problem.path == "nodes.a.next"


@pytest.mark.parametrize("gate", ["a", "[a, b]", "{any_of: [b, a]}", "{any_of: [[a, b], b]}"])
def test_an_edge_into_a_node_whose_depends_on_names_its_source_means_what_depends_on_says(gate):
    requirements = requires(f"a: {{{TASK}, next: c}}\nb: {{{TASK}}}\nc: {{{TASK}, depends_on: {gate}}}")
    assert requirements["c"] is not None
    assert requirements["c"].kind is not GateKind.JOIN


@pytest.mark.parametrize(("gate", "fits"), [("route", True), ("route.small", True), ("route.large", False)])
def test_an_edge_out_of_a_branch_is_named_by_that_branch_or_by_its_conditional(gate, fits):
    text = flow(f"""
        route:
          type: conditional
          branches: [{{name: small, condition: "1 == 1", next: x}}, {{name: large, default: true}}]
        x: {{{TASK}, depends_on: {gate}}}
    """)
    if fits:
        assert graph_of(text).specs["x"].requires == Gate(GateKind.ALL, (Leaf(*gate.split(".")),))
    else:
        assert "does not name 'route.small'" in the_problem_of(text).message


def test_an_edge_to_the_declared_end_counts_as_any_other():
    problem = the_problem_of(
        flow(f"a: {{{TASK}, next: END}}\nb: {{{TASK}}}\nEND: {{type: end, depends_on: b}}"),
    )
    assert "does not name 'a'" in problem.message


# ── The whole ───────────────────────────────────────────────────────────────────────────────────────────────────────


def test_a_cycle_is_spelled_out_in_the_order_of_the_work_from_the_first_in_the_file():
    problem = the_problem_of(
        flow(f"""
        z: {{{TASK}, next: a}}
        a: {{{TASK}, next: b}}
        b: {{{TASK}, next: c}}
        c: {{{TASK}, next: a}}
        d: {{{TASK}, depends_on: c}}
    """)
    )
    assert (
        described(problem) == "4:3 cycle: a → b → c → a | remove one of these dependencies to break the cycle"
    )


def test_a_node_that_waits_for_itself_is_a_cycle():
    assert the_problem_of(flow(f"a: {{{TASK}, next: a}}")).message == "cycle: a → a"


def test_every_cycle_is_reported():
    problems = problems_of(
        flow(f"""
        a: {{{TASK}, depends_on: b}}
        b: {{{TASK}, depends_on: a}}
        c: {{{TASK}, depends_on: [d, b]}}
        d: {{{TASK}, depends_on: c}}
        e: {{{TASK}, depends_on: e}}
        f: {{{TASK}, depends_on: [c, e]}}
    """)
    )
    assert messages(problems) == ["cycle: a → b → a", "cycle: c → d → c", "cycle: e → e"]


def test_a_cycle_through_a_branch_or_an_any_of_is_a_cycle():
    problems = problems_of(
        flow(f"""
        a: {{{TASK}, depends_on: {{any_of: [b, c]}}}}
        b: {{type: conditional, depends_on: a, branches: [{{name: back, condition: "1 == 1"}}, {{default: true}}]}}
        c: {{{TASK}}}
        d: {{{TASK}, depends_on: e.back}}
        e: {{type: conditional, depends_on: d, branches: [{{name: back, condition: "1 == 1"}}]}}
    """)
    )
    assert messages(problems) == ["cycle: a → b → a", "cycle: d → e → d"]


def test_a_node_that_cannot_be_reached_from_the_start_is_an_error():
    problem = the_problem_of(
        flow(f"""
        START: {{type: start, next: a}}
        a: {{{TASK}}}
        lost: {{{TASK}}}
    """)
    )
    assert described(problem) == (
        "5:3 node 'lost' cannot be reached from 'START' | add it to the next of a node before it, or give it depends_on"
    )


def test_what_follows_a_node_that_cannot_be_reached_cannot_be_either():
    problems = problems_of(
        flow(f"""
        START: {{type: start, next: a}}
        a: {{{TASK}}}
        ab: {{{TASK}, next: abc}}
        abc: {{{TASK}}}
    """)
    )
    assert [problem.path for problem in problems] == ["nodes.ab", "nodes.abc"]


def test_a_node_is_reached_by_edges_by_depends_on_and_by_branches():
    graph_of(
        flow(f"""
        START: {{type: start, next: a}}
        a: {{{TASK}}}
        b: {{{TASK}, depends_on: a}}
        c: {{type: conditional, depends_on: b, branches: [{{name: x, condition: "1 == 1", next: d}}]}}
        d: {{{TASK}}}
        e: {{{TASK}, depends_on: c.x}}
        f: {{{TASK}, depends_on: START}}
        END: {{type: end, depends_on: [d, e, f]}}
    """)
    )


def test_without_a_start_every_node_without_a_dependency_starts():
    nodes = nodes_of(f"a: {{{TASK}}}\nb: {{{TASK}}}\nc: {{{TASK}, depends_on: [a, b]}}")
    assert [node_id for node_id, spec in nodes.items() if spec.requires is None] == ["a", "b"]


def test_there_is_at_most_one_start():
    problems = problems_of(
        flow(f"one: {{type: start, next: a}}\ntwo: {{type: start, next: a}}\na: {{{TASK}}}"),
    )
    assert described(problems[0]).startswith("4:3 a workflow has one start: 'one' is it | ")
    assert "next: [a, b]" in problems[0].hint


def test_nothing_leads_to_the_start():
    problems = problems_of(flow(f"START: {{type: start, next: a}}\na: {{{TASK}, next: START}}"))
    assert messages(problems) == ["nothing leads to the start: remove the edge from 'a'"]


def test_the_start_waits_for_nothing():
    problems = problems_of(flow(f"START: {{type: start, depends_on: a}}\na: {{{TASK}, depends_on: START}}"))
    assert [described(problem) for problem in problems] == [
        "3:24 unknown key 'depends_on' | a start node has no dependencies"
    ]


# ── One mistake, one problem ────────────────────────────────────────────────────────────────────────────────────────


@pytest.mark.parametrize(
    "nodes",
    [
        # A target that is mistyped: what it was is not unreachable besides, and what it gives is upstream.
        """
        START: {type: start, next: valdate}
        validate: {handler: work, queue: q, next: publish}
        publish: {handler: work, queue: q, params: {x: "{{ nodes.validate.output.x }}"}}
        """,
        # An expression that cannot be read says nothing of what the node refers to.
        """
        a: {handler: work, queue: q}
        b: {handler: work, queue: q, depends_on: [a, nobody]}
        c: {handler: work, queue: q, depends_on: b, params: {x: "{{ nodes.a.output.x }}", y: "{{ upstream.output.x }}"}}
        """,
        # A node that cannot be read might lead anywhere.
        """
        START: {type: start, next: a}
        a: echo
        b: {handler: work, queue: q, params: {x: "{{ nodes.a.output.x }}"}}
        c: {type: fan_in}
        """,
        # A key that is mistyped is read as what it was meant to be.
        """
        START: {type: start, nxt: a}
        a: {handler: work, queue: q, next: b}
        b: {handler: work, queue: q, params: {x: "{{ nodes.a.output.x }}"}}
        """,
        # So is a type.
        """
        a: {handler: work, queue: q, next: route}
        route: {type: conditonal, branches: [{name: x, condition: "1 == 1", next: b}]}
        b: {handler: work, queue: q, params: {x: "{{ nodes.route.output.branch }}"}}
        c: {handler: work, queue: q, depends_on: route.x}
        """,
        # A conditional whose branches cannot be read might have any branch.
        """
        route: {type: conditional, branches: 3}
        b: {handler: work, queue: q, depends_on: route.x, params: {x: "{{ nodes.route.output.branch }}"}}
        c: {handler: work, queue: q, params: {x: "{{ nodes.route.output.branch }}"}}
        """,
        # A cycle has no order: who is upstream of whom is not said.
        """
        a: {handler: work, queue: q, depends_on: b, params: {x: "{{ nodes.c.output.x }}"}}
        b: {handler: work, queue: q, depends_on: a}
        c: {handler: work, queue: q, depends_on: b, params: {x: "{{ nodes.a.output.x }}"}}
        """,
        # A task without a handler still has its edges.
        """
        START: {type: start, next: a}
        a: {queue: q, next: b}
        b: {handler: work, queue: q, params: {x: "{{ nodes.a.output.x }}"}}
        """,
    ],
)
def test_one_mistake_makes_one_problem(nodes):
    the_problem_of(flow(textwrap.dedent(nodes)))
