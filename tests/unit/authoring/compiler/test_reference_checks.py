"""References: what they name exists, lies upstream, has that key, and is there or has a default."""

from __future__ import annotations

import pytest

from tests.unit.authoring.compiled_workflows import (
    HANDLERS,
    TASK,
    compile_flow,
    described,
    flow,
    graph_of,
    messages,
    problems_of,
    the_problem_of,
)


def task(*, after: str = "", **params: str) -> str:
    """Return a task in one line, with expressions for params."""
    written = ", ".join(f'{name}: "{{{{ {text} }}}}"' for name, text in params.items())
    return f"{{{TASK}, params: {{{written}}}{f', depends_on: {after}' if after else ''}}}"


# ── Names ───────────────────────────────────────────────────────────────────────────────────────────────────────────


def test_an_unknown_input_is_reported_with_the_nearest():
    problem = the_problem_of(
        flow(f"a: {task(x='inputs.sise')}", "inputs: {size: {type: integer, default: 1}}")
    )
    assert described(problem) == "3:48 unknown input 'sise' | did you mean 'size'?"
    assert problem.path == "nodes.a.params.x"


def test_an_input_that_is_not_declared_is_reported_to_be():
    assert the_problem_of(flow(f"a: {task(x='inputs.size')}")).hint == "declare it under inputs:"


def test_all_inputs_can_be_named_at_once():
    graph_of(flow(f"a: {task(x='inputs')}"))


def test_an_unknown_node_is_reported_with_the_nearest():
    problem = the_problem_of(
        flow(f"validate: {{{TASK}}}\nb: {task(after='validate', x='nodes.valdate.output.x')}")
    )
    assert described(problem) == "4:48 unknown node 'valdate' | did you mean 'validate'?"


def test_the_place_of_a_reference_is_where_it_stands_in_its_text():
    problem = the_problem_of(
        flow("a:\n  handler: work\n  queue: q\n  params:\n    x: 'from {{ 1 + inputs.y }} on'")
    )
    assert (problem.line, problem.column) == (7, 23)
    problem = the_problem_of(
        flow("c:\n  type: conditional\n  condition_field: inputs.y\n  branches: [{default: true}]")
    )
    assert (problem.line, problem.column) == (5, 22)


def test_a_node_that_is_not_upstream_is_reported():
    problem = the_problem_of(flow(f"a: {{{TASK}}}\nb: {task(x='nodes.a.output.x')}"))
    assert problem.message == "node 'b' refers to 'a', which is not upstream of it"
    assert problem.hint == "add 'a' to depends_on of 'b', or add an edge from it"


def test_a_node_downstream_is_not_upstream():
    problem = the_problem_of(flow(f"a: {task(x='nodes.b.status')}\nb: {task(after='a')}"))
    assert problem.message == "node 'a' refers to 'b', which is not upstream of it"


def test_a_node_does_not_refer_to_itself():
    assert the_problem_of(flow(f"a: {task(x='nodes.a.output.x')}")).message == "node 'a' refers to itself"


def test_a_node_far_upstream_can_be_named():
    graph_of(flow(f"a: {{{TASK}}}\nb: {task(after='a')}\nc: {task(after='b', x='nodes.a.output.x')}"))


@pytest.mark.parametrize("key", ["output", "output.x", "output['x'][0].y", "status", "error"])
def test_these_can_be_asked_of_a_node(key):
    graph_of(flow(f"a: {{{TASK}}}\nb: {task(after='a', x=f'nodes.a.{key}')}"))


@pytest.mark.parametrize("key", ["outputs", "failed"])
def test_outputs_and_failed_are_asked_of_fan_outs(key):
    fan = f"{{type: fan_out, source: [1], task: {{{TASK}}}}}"
    graph_of(flow(f"a: {fan}\nb: {task(after='a', x=f'nodes.a.{key}')}"))
    problem = the_problem_of(flow(f"a: {{{TASK}}}\nb: {task(after='a', x=f'nodes.a.{key}')}"))
    assert problem.message == f"node 'a' has no '{key}'"


@pytest.mark.parametrize(
    "text", ["nodes", "nodes.a", "nodes.a.result", "nodes['a']", "nodes.a[0]", "nodes[inputs.x].output"]
)
def test_nothing_else_can_be_asked_of_a_node(text):
    problems_of(
        flow(f"a: {{{TASK}}}\nb: {task(after='a', x=text)}", "inputs: {x: {type: string, default: a}}")
    )


def test_a_key_that_a_typed_handler_does_not_give_is_reported_with_the_nearest():
    problem = the_problem_of(
        flow(
            "a: {handler: measure, params: {path: x}}\nb: {handler: anything, queue: q, depends_on: a, params: "
            '{x: "{{ nodes.a.output.size_md }}"}}'
        ),
        handlers=HANDLERS,
    )
    assert problem.message == "the output of 'a' has no key 'size_md'"
    assert problem.hint == "did you mean 'size_mb'?"


def test_a_default_does_not_excuse_a_key_that_is_never_there():
    problem = the_problem_of(
        flow(
            "a: {handler: measure, params: {path: x}}\nb: {handler: anything, queue: q, depends_on: a, params: "
            '{x: "{{ nodes.a.output.nothing | default(1) }}"}}'
        ),
        handlers=HANDLERS,
    )
    assert problem.message == "the output of 'a' has no key 'nothing'"


def test_a_handler_without_types_may_give_any_key():
    graph_of(
        flow(
            "a: {handler: anything, queue: q}\nb: {handler: anything, queue: q, depends_on: a, params: "
            '{x: "{{ nodes.a.output.whatever }}"}}'
        ),
        handlers=HANDLERS,
    )


@pytest.mark.parametrize(
    ("node", "keys"),
    [
        ("{type: start}", ""),
        ("{type: conditional, branches: [{default: true}]}", "branch_taken branch value"),
        (f"{{type: fan_out, source: [1], task: {{{TASK}}}}}", "fan_out_count"),
        ("{type: approval}", "approved_by at comment"),
        ("{type: fan_in, depends_on: z}", "results count failed"),
        ("{type: fan_in, aggregation: concat, depends_on: z}", "results count"),
        ("{type: fan_in, aggregation: sum, depends_on: z}", "total count"),
        ("{type: fan_in, aggregation: first, depends_on: z}", "result count"),
        ("{type: fan_in, aggregation: last, depends_on: z}", "result count"),
    ],
)
def test_the_output_of_each_type_of_node_has_its_keys(node, keys):
    before = "" if "start" in node else f"z: {{{TASK}}}"
    for key in keys.split():
        graph_of(flow(f"{before}\na: {node}\nb: {task(after='a', x=f'nodes.a.output.{key}')}"))
    problem = the_problem_of(flow(f"{before}\na: {node}\nb: {task(after='a', x='nodes.a.output.zzz')}"))
    assert problem.message == "the output of 'a' has no key 'zzz'"


@pytest.mark.parametrize("node", ["{type: wait, signal: go}", "{type: workflow, workflow_id: other}"])
def test_a_signal_and_a_workflow_may_give_any_key(node):
    graph_of(flow(f"a: {node}\nb: {task(after='a', x='nodes.a.output.whatever')}"))


@pytest.mark.parametrize("text", ["job.id", "env.REGION", "env.ANY"])
def test_the_job_and_the_environment_can_be_named(text):
    graph_of(flow(f"a: {task(x=text)}", f'outputs: {{x: "{{{{ {text} }}}}"}}'))


def test_a_job_has_nothing_but_an_id():
    assert the_problem_of(flow(f"a: {task(x='job.name')}")).message == "job has no 'name'"


def test_an_input_that_may_be_absent_is_a_warning():
    text = flow(
        f"a: {task(x='inputs.size', y='inputs.size | default(1)')}", "inputs: {size: {type: integer}}"
    )
    (warning,) = compile_flow(text).warnings
    assert (warning.severity, warning.path) == ("warning", "nodes.a.params.x")
    assert warning.message == "input 'size' may be absent, and the run would fail here"


@pytest.mark.parametrize("keys", ["required: true", "default: 1", "required: true, default: 1"])
def test_an_input_that_is_always_present_is_not_a_warning(keys):
    text = flow(f"a: {task(x='inputs.size')}", f"inputs: {{size: {{type: integer, {keys}}}}}")
    assert compile_flow(text).warnings == ()


# ── Values that may be missing ──────────────────────────────────────────────────────────────────────────────────────

BRANCHES = f"""
first: {{{TASK}, next: route}}
route:
  type: conditional
  condition_field: "{{{{ nodes.first.output.n }}}}"
  branches: [{{name: small, condition: "< 10", next: s}}, {{name: large, default: true, next: l}}]
s: {{{TASK}, next: [s2, both]}}
s2: {{handler: work, queue: q, params: {{X}}}}
l: {{{TASK}, next: both}}
both: {{handler: work, queue: q, params: {{Y}}, next: last}}
last: {{handler: work, queue: q, params: {{Z}}}}
"""


def branching(*, on_branch: str = "1", joined: str = "1", last: str = "1", output: str = "1") -> str:
    nodes = BRANCHES
    for place, text in (("X", on_branch), ("Y", joined), ("Z", last)):
        nodes = nodes.replace(f"{{{place}}}", f'{{x: "{{{{ {text} }}}}"}}')
    return flow(nodes, f'outputs: {{x: "{{{{ {output} }}}}"}}')


@pytest.mark.parametrize(
    "text",
    [
        branching(joined="nodes.s.output.x"),
        branching(joined="nodes.l.output.x"),
        branching(last="nodes.s.output.x"),
        branching(last="nodes.l.output"),
        branching(output="nodes.s.output.x"),
        branching(output="nodes.s2.output"),
    ],
)
def test_a_branch_behind_its_conditional_may_be_missing(text):
    problem = the_problem_of(text)
    assert " may be missing: " in problem.message
    assert " may be skipped" in problem.message
    assert problem.hint == "write `| default(…)` behind it"


@pytest.mark.parametrize(
    "text",
    [
        branching(joined="nodes.s.output.x | default(1)", output="nodes.s.output.x | default('none')"),
        branching(joined="nodes.s.output.x | default(nodes.l.output.x | default(2))"),
        branching(joined="nodes.s.output.x is defined"),
        branching(joined="nodes.s.status", last="nodes.l.error", output="nodes.s.status"),
        branching(on_branch="nodes.s.output.x"),
        branching(
            on_branch="nodes.first.output.x", joined="nodes.first.output.x", last="nodes.first.output.x"
        ),
        branching(on_branch="nodes.route.output.branch", joined="nodes.route.output.value"),
        branching(last="nodes.both.output.x", output="nodes.both.output.x"),
        branching(output="nodes.first.output.x"),
    ],
)
def test_what_is_certain_or_guarded_needs_no_default(text):
    graph_of(text)


def test_a_diamond_of_plain_edges_needs_no_default():
    graph_of(
        flow(f"""
        a: {{{TASK}, next: [b, c]}}
        b: {{{TASK}, next: d}}
        c: {{{TASK}, next: d}}
        d: {task(x="nodes.a.output.x", y="nodes.b.output.x", z="nodes.c.output.x")}
    """, 'outputs: {a: "{{ nodes.a.output.x }}", b: "{{ nodes.b.output.x }}", d: "{{ nodes.d.output.x }}"}')
    )  # fmt: skip


def test_nested_conditionals_need_a_default_only_where_a_branch_may_be_skipped():
    text = """
        outer: {type: conditional, branches: [{name: yes, condition: "1 == 1", next: inner}, {default: true, next: c}]}
        inner: {type: conditional, branches: [{name: yes, condition: "1 == 1", next: a}, {default: true, next: b}]}
        a: {handler: work, queue: q, next: both}
        b: {handler: work, queue: q, next: both}
        both: {handler: work, queue: q, params: {x: "{{ nodes.inner.output.branch }}"}, next: end}
        c: {handler: work, queue: q, next: end}
        end: {handler: work, queue: q, params: {x: "{{ nodes.outer.output.branch }}", y: EXPRESSION}}
    """
    graph_of(flow(text.replace("EXPRESSION", "1"), 'outputs: {x: "{{ nodes.end.output.x }}"}'))
    for node in ("inner", "a", "both", "c"):
        problem = the_problem_of(flow(text.replace("EXPRESSION", f'"{{{{ nodes.{node}.output.value }}}}"')))
        assert f"'{node}' may be skipped" in problem.message or "has no key" in problem.message


def test_in_any_of_the_others_may_be_open():
    text = f"""
        a: {{{TASK}}}
        b: {{{TASK}}}
        c: {task(after="{any_of: [a, b]}", x="EXPRESSION")}
    """
    problem = the_problem_of(flow(text.replace("EXPRESSION", "nodes.a.output.x")))
    assert (
        problem.message == "nodes.a.output.x may be missing: 'a' may be skipped or still open when 'c' runs"
    )
    graph_of(flow(text.replace("EXPRESSION", "nodes.a.output.x | default(1)")))
    graph_of(flow(text.replace("EXPRESSION", "upstream.output.x")))


@pytest.mark.parametrize("key", ["output", "output.x"])
def test_the_output_of_a_node_that_may_fail_needs_a_default(key):
    nodes = f"a: {{{TASK}, allow_failure: true}}\nb: {task(after='a', x='EXPRESSION')}"
    for text in (f"nodes.a.{key}", f"upstream.{key}"):
        problem = the_problem_of(flow(nodes.replace("EXPRESSION", text)))
        assert problem.message == f"{text} may be missing: 'a' may fail (allow_failure)"
        graph_of(flow(nodes.replace("EXPRESSION", f"{text} | default(1)")))
    problem = the_problem_of(
        flow(f"a: {{{TASK}, allow_failure: true}}", f'outputs: {{x: "{{{{ nodes.a.{key} }}}}"}}')
    )
    assert "may fail" in problem.message


def test_the_status_and_the_error_of_a_node_that_may_fail_can_always_be_read():
    graph_of(
        flow(f"""
        a: {{{TASK}, allow_failure: true, next: catch}}
        catch:
          type: conditional
          condition_field: "{{{{ nodes.a.status }}}}"
          branches:
            - {{name: failed, condition: "== 'FAILED'", next: repair}}
            - {{name: fine, default: true, next: go_on}}
        repair: {task(x="nodes.a.error")}
        go_on: {task(x="nodes.a.output.x | default(0)", y="upstream.output.branch")}
    """)
    )


def test_the_outputs_of_a_fan_out_that_may_be_skipped_need_a_default():
    nodes = f"""
        c: {{type: conditional, branches: [{{condition: "1 == 1", next: fan}}, {{default: true, next: d}}]}}
        fan: {{type: fan_out, source: [1], task: {{{TASK}}}, next: d}}
        d: {task(x="EXPRESSION")}
    """
    for text in ("nodes.fan.outputs", "nodes.fan.failed", "nodes.fan.output.fan_out_count"):
        assert "may be skipped" in the_problem_of(flow(nodes.replace("EXPRESSION", text))).message
        graph_of(flow(nodes.replace("EXPRESSION", f"{text} | default([])")))


@pytest.mark.parametrize(
    "node",
    [
        "{type: fan_out, source: 'REF', task: {handler: work, queue: q}}",
        "{type: fan_out, source: [1], task: {handler: work, queue: q, params: {x: 'REF'}}}",
        "{type: conditional, condition_field: 'REF', branches: [{default: true}]}",
        "{type: conditional, branches: [{condition: 'REF == 1'}, {default: true}]}",
        "{type: workflow, workflow_id: other, inputs: {x: 'REF'}}",
        "{type: approval, message: 'Go, REF?'}",
        "{type: wait, seconds: 'REF'}",
        "{type: wait, until: 'REF'}",
    ],
)
def test_references_are_checked_wherever_an_expression_may_stand(node):
    wrong = {
        "nodes.nobody.output": "unknown node 'nobody'",
        "nodes.late.output": "node 'x' refers to 'late', which is not upstream of it",
        "inputs.nothing": "unknown input 'nothing'",
        "nodes.soft.output.x": "nodes.soft.output.x may be missing: 'soft' may fail (allow_failure)",
    }
    for path, message in wrong.items():
        text = path if "condition: 'REF" in node else f"{{{{ {path} }}}}"
        nodes = f"""
            late: {{{TASK}, depends_on: x}}
            soft: {{{TASK}, allow_failure: true, next: x}}
            x: {node.replace("REF", text)}
        """
        problem = the_problem_of(flow(nodes))
        assert (problem.message, problem.line) == (message, 5)


# ── upstream ────────────────────────────────────────────────────────────────────────────────────────────────────────


@pytest.mark.parametrize(
    "after",
    [
        "a",
        "[a]",
        "{all_of: a}",
        "{any_of: [a, b]}",
        "{any_of: [[a, b], c]}",
        "[{any_of: [a, b]}]",
        "route.small",
    ],
)
def test_upstream_is_allowed_with_one_leaf_and_with_any_of(after):
    graph_of(
        flow(f"""
        a: {{{TASK}}}
        b: {{{TASK}}}
        c: {{{TASK}}}
        route: {{type: conditional, branches: [{{name: small, condition: "1 == 1"}}, {{default: true}}]}}
        x: {task(after=after, x="upstream.output", y="upstream.status", z="upstream.error")}
    """)
    )


def test_upstream_is_allowed_with_edges():
    graph_of(flow(f"a: {{{TASK}, next: x}}\nb: {{{TASK}, next: x}}\nx: {task(x='upstream.output.x')}"))


@pytest.mark.parametrize("after", ["[a, b]", "{all_of: [a, b]}", "[{any_of: [a, b]}, c]"])
def test_upstream_is_refused_for_all_of_over_more_than_one(after):
    problem = the_problem_of(
        flow(f"a: {{{TASK}}}\nb: {{{TASK}}}\nc: {{{TASK}}}\nx: {task(after=after, x='upstream.output.x')}")
    )
    assert problem.message == "upstream is one node, and this one waits for several"
    assert problem.hint == "name the node: nodes.a.output"


def test_a_node_that_depends_on_nothing_has_no_upstream():
    problem = the_problem_of(flow(f"a: {task(x='upstream.output.x')}"))
    assert problem.message == "there is no upstream here: the node depends on nothing"


def test_the_result_of_a_job_has_no_upstream():
    problem = the_problem_of(flow(f"a: {{{TASK}}}", 'outputs: {x: "{{ upstream.output }}"}'))
    assert problem.message == "there is no `upstream` here"


@pytest.mark.parametrize("key", ["outputs", "failed", "result"])
def test_nothing_else_can_be_asked_of_upstream(key):
    problem = the_problem_of(flow(f"a: {{{TASK}}}\nb: {task(after='a', x=f'upstream.{key}')}"))
    assert f"has no `{key}`" in problem.message or f"has no '{key}'" in problem.message


def typed(expression: str) -> str:
    return flow(f"""
        a: {{handler: measure, params: {{path: x}}}}
        b: {{type: approval}}
        c: {{handler: anything, queue: q, depends_on: {{any_of: [a, b]}}, params: {{x: "{{{{ {expression} }}}}"}}}}
    """)


def test_a_key_of_upstream_is_one_that_each_of_them_gives():
    problem = the_problem_of(typed("upstream.output.size_mb"), handlers=HANDLERS)
    assert problem.message == "the output of 'b' has no key 'size_mb'"


def test_with_a_default_it_is_enough_that_one_of_them_gives_it():
    graph_of(typed("upstream.output.size_mb | default(0)"), handlers=HANDLERS)
    assert (
        "has no key 'zzz'"
        in the_problem_of(typed("upstream.output.zzz | default(0)"), handlers=HANDLERS).message
    )


# ── item, index, outer ──────────────────────────────────────────────────────────────────────────────────────────────


def fan_out(*expressions: str) -> str:
    """Fan-outs in one another, the last expression in the task of the innermost."""
    child = f"{{{TASK}, params: {{x: '{{{{ {expressions[-1]} }}}}'}}}}"
    for text in reversed(expressions[:-1]):
        child = f"{{type: fan_out, source: '{{{{ {text} }}}}', task: {child}}}"
    return flow(
        f"a: {{{TASK}}}\nf: {{type: fan_out, depends_on: a, source: '{{{{ nodes.a.output }}}}', task: {child}}}"
    )


@pytest.mark.parametrize(
    "text",
    [
        fan_out("item"),
        fan_out("index"),
        fan_out("item.x[0]"),
        fan_out("item.outer.item"),
        fan_out("item", "outer.item"),
        fan_out("item.list", "outer.index + index"),
        fan_out("item", "outer.item.outer.outer"),
        fan_out("item", "outer.item", "outer.outer.item"),
        fan_out("item", "item", "outer.outer.index"),
        fan_out("nodes.a.output.list", "nodes.a.output.x"),
        fan_out("upstream.output.x"),
    ],
)
def test_item_and_index_belong_to_the_innermost_fan_out_and_outer_goes_out(text):
    graph_of(text)


@pytest.mark.parametrize(
    ("text", "message"),
    [
        (fan_out("outer.item"), "there is no `outer` here"),
        (fan_out("item", "outer.outer.item"), "outer.outer.item: there are not that many enclosing fan-outs"),
        (fan_out("outer.item", "item"), "there is no `outer` here"),
        (
            fan_out("item", "outer.outer.item", "item"),
            "outer.outer.item: there are not that many enclosing fan-outs",
        ),
        (fan_out("itme"), "there is no `itme` here"),
        (flow(f"a: {task(x='item')}"), "there is no `item` here"),
        (flow(f"a: {task(x='index')}"), "there is no `index` here"),
        (flow(f"a: {{{TASK}}}", 'outputs: {x: "{{ item }}"}'), "there is no `item` here"),
        (
            flow(f"f: {{type: fan_out, source: '{{{{ item }}}}', task: {{{TASK}}}}}"),
            "there is no `item` here",
        ),
    ],
)
def test_out_of_their_fan_out_they_mean_nothing(text, message):
    assert the_problem_of(text).message == message


def test_a_node_behind_a_fan_out_has_no_item():
    fan = f"{{type: fan_out, source: [1], task: {{{TASK}}}, next: b}}"
    assert the_problem_of(flow(f"f: {fan}\nb: {task(x='item')}")).message == "there is no `item` here"
    assert (
        the_problem_of(flow(f"f: {fan}\nb: {{{TASK}}}", 'outputs: {x: "{{ item }}"}')).message
        == "there is no `item` here"
    )


def test_the_children_of_a_fan_out_cannot_be_named():
    fan = f"f: {{type: fan_out, source: [1], task: {{{TASK}}}}}"
    assert (
        the_problem_of(flow(f"{fan}\nb: {task(after='f', x='nodes.f__0.output')}")).message
        == "unknown node 'f__0'"
    )
    graph_of(flow(f"{fan}\nb: {task(after='f', x='nodes.f.outputs[0]')}"))


# ── secrets ─────────────────────────────────────────────────────────────────────────────────────────────────────────


@pytest.mark.parametrize(
    "text",
    [
        flow(f"a: {task(x='secrets.KEY')}"),
        flow(f"a: {{{TASK}, params: {{x: [{{y: 'Bearer {{{{ secrets.KEY }}}}'}}]}}}}"),
        fan_out("secrets.KEY"),
        fan_out("item", "secrets.KEY"),
    ],
)
def test_secrets_stand_in_the_params_of_tasks(text):
    graph_of(text)


@pytest.mark.parametrize(
    "text",
    [
        flow(f"a: {{{TASK}}}", 'outputs: {x: "{{ secrets.KEY }}"}'),
        flow("a: {type: workflow, workflow_id: other, inputs: {x: '{{ secrets.KEY }}'}}"),
        flow("a: {type: approval, message: '{{ secrets.KEY }}'}"),
        flow("a: {type: wait, until: '{{ secrets.KEY }}'}"),
        flow("a: {type: conditional, condition_field: secrets.KEY, branches: [{default: true}]}"),
        flow("a: {type: conditional, branches: [{condition: 'secrets.KEY == 1'}]}"),
        flow(f"a: {{type: fan_out, source: '{{{{ secrets.KEY }}}}', task: {{{TASK}}}}}"),
    ],
)
def test_secrets_stand_nowhere_else(text):
    problem = the_problem_of(text)
    assert problem.message == "there is no `secrets` here"
    assert problem.hint == "secrets are only for the params of tasks: they are filled in on the worker"


@pytest.mark.parametrize("text", ["secrets.KEY | upper", "secrets.KEY + 'x'", "secrets", "secrets.KEY.x"])
def test_a_secret_stands_alone(text):
    assert len(problems_of(flow(f"a: {task(x=text)}"))) == 1


def test_every_reference_that_is_wrong_is_reported():
    problems = problems_of(flow(f"a: {task(x='inputs.b + inputs.c', y='nodes.d.output + nodes.a.output')}"))
    assert messages(problems) == [
        "unknown input 'b'",
        "unknown input 'c'",
        "unknown node 'd'",
        "node 'a' refers to itself",
    ]
