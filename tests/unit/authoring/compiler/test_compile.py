"""A file becomes a graph: every type of node, every key, every default; and all problems at once."""

from __future__ import annotations

import json
import textwrap
from pathlib import Path

import pytest
import yaml

from dagmaster.authoring.compiler.compile import compile_definition, compile_file, compile_text, content_hash
from dagmaster.engine.graph import (
    Aggregation,
    ApprovalSpec,
    ConditionalSpec,
    EndSpec,
    FanInSpec,
    FanOutSpec,
    Graph,
    OnFailure,
    OnItemError,
    OnTimeout,
    StartSpec,
    TaskSpec,
    Tolerance,
    WaitSpec,
    WorkflowSpec,
)
from dagmaster.engine.retry import NO_RETRY, Backoff, RetryPolicy
from dagmaster.errors import WorkflowInvalid
from dagmaster.testing import all_of
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
    spec_of_node,
    the_problem_of,
)

ROOT = Path(__file__).parents[4]
FILES = sorted([*ROOT.glob("workflows/*.yaml"), *ROOT.glob("examples/sources/*.yaml")])


# ── The file ────────────────────────────────────────────────────────────────────────────────────────────────────────


def test_a_file_has_an_id_a_name_a_version_and_what_else_is_said_about_it():
    graph = graph_of("""
        workflow_id: tiles.v-2
        name: Tiles
        version: 7
        description: Makes tiles.
        on_failure: cancel_running
        deadline_seconds: 600
        tags: [raster, night]
        nodes:
          a: {handler: work, queue: q}
    """)
    assert (graph.workflow_id, graph.name, graph.version, graph.description) == (
        "tiles.v-2",
        "Tiles",
        7,
        "Makes tiles.",
    )
    assert (graph.on_failure, graph.deadline_seconds) == (OnFailure.CANCEL_RUNNING, 600.0)
    assert graph.tags == ("raster", "night")


NOT_IMPLEMENTED = {
    "max_active_jobs": "{workflow_id: w, max_active_jobs: 1, nodes: {a: {handler: work, queue: q}}}",
    "nodes.a.pool": "{workflow_id: w, nodes: {a: {handler: work, queue: q, pool: licences}}}",
    "nodes.a.on_item_error": "{workflow_id: w, nodes: {a: {type: fan_out, source: [1], on_item_error: quarantine, task: {handler: work, queue: q}}}}",
    "nodes.a.task.task.pool": "{workflow_id: w, nodes: {a: {type: fan_out, source: [[1]], task: {type: fan_out, source: '{{ item }}', task: {handler: work, queue: q, pool: x}}}}}",
}


@pytest.mark.parametrize("path", NOT_IMPLEMENTED)
def test_a_key_without_effect_is_rejected_by_name(path):
    with pytest.raises(WorkflowInvalid) as caught:
        compile_text(NOT_IMPLEMENTED[path])
    (problem,) = caught.value.problems
    assert problem.path == path
    assert "is not implemented yet" in problem.message


NO_EFFECT = {
    "nodes.a.on_timeout": "{workflow_id: w, nodes: {a: {type: approval, on_timeout: approve}}}",
    "nodes.b.on_timeout": "{workflow_id: w, nodes: {b: {type: wait, signal: go, on_timeout: go_on}}}",
    "nodes.c.on_timeout": "{workflow_id: w, nodes: {c: {type: wait, seconds: 5, on_timeout: fail}}}",
    "nodes.d.tolerate_failures": "{workflow_id: w, nodes: {d: {type: fan_out, source: [1], on_item_error: tolerate, tolerate_failures: 3, task: {handler: work, queue: q}}}}",
    "nodes.e.fail_fast": "{workflow_id: w, nodes: {e: {type: fan_out, source: [1], on_item_error: tolerate, fail_fast: true, task: {handler: work, queue: q}}}}",
    "nodes.f.retry.initial_delay_seconds": "{workflow_id: w, nodes: {f: {handler: work, queue: q, retry: {initial_delay_seconds: 600}}}}",
    "nodes.g.task.retry.initial_delay_seconds": "{workflow_id: w, nodes: {g: {type: fan_out, source: [1], task: {handler: work, queue: q, retry: {initial_delay_seconds: 9, max_delay_seconds: 8}}}}}",
}


@pytest.mark.parametrize("path", NO_EFFECT)
def test_a_key_that_another_key_makes_ineffective_is_rejected(path):
    (problem,) = problems_of(NO_EFFECT[path])
    assert problem.path == path
    assert "has no effect" in problem.message


@pytest.mark.parametrize("text", [*NOT_IMPLEMENTED.values(), *NO_EFFECT.values()])
def test_a_stored_definition_with_such_a_key_still_loads(text):
    assert compile_definition(yaml.safe_load(text)).workflow_id == "w"


def test_what_is_not_said_has_its_default():
    graph = graph_of(f"{{workflow_id: w, nodes: {{a: {{{TASK}}}}}}}")
    assert (graph.name, graph.version, graph.description, graph.tags) == ("w", 1, "", ())
    assert (graph.on_failure, graph.deadline_seconds, graph.max_active_jobs) == (
        OnFailure.FINISH_RUNNING,
        None,
        None,
    )
    assert (graph.inputs, graph.outputs) == ({}, None)


@pytest.mark.parametrize("way", ["finish_running", "cancel_running", "continue"])
def test_on_failure_is_one_of_three(way):
    assert graph_of(f"{{workflow_id: w, on_failure: {way}, nodes: {{a: {{{TASK}}}}}}}").on_failure == way


def test_a_name_alone_is_the_id():
    graph = graph_of(f"{{name: process_raster, nodes: {{a: {{{TASK}}}}}}}")
    assert (graph.workflow_id, graph.name) == ("process_raster", "process_raster")


@pytest.mark.parametrize(
    ("name", "hint"), [("My flow", "my_flow"), ("7up", "my_workflow"), ("x" * 65, "x" * 64)]
)
def test_a_name_that_is_no_identifier_is_not_an_id(name, hint):
    problem = the_problem_of(f"{{name: {name}, nodes: {{a: {{{TASK}}}}}}}")
    assert problem.message.startswith("name alone is the id")
    assert (problem.path, problem.hint) == ("name", f"add workflow_id: {hint}")


def test_a_file_without_a_name_and_an_id_is_reported_to_have_one():
    problem = the_problem_of(f"nodes: {{a: {{{TASK}}}}}")
    assert problem.message == "missing key 'workflow_id'"


@pytest.mark.parametrize("written", ["a b", "7up", "''", "ä", "a/b", "x" * 65])
def test_an_id_is_made_of_letters_digits_and_some_signs(written):
    problem = the_problem_of(f"{{workflow_id: {written}, nodes: {{a: {{{TASK}}}}}}}")
    assert problem.message.startswith("workflow_id ")
    assert problem.path == "workflow_id"


@pytest.mark.parametrize("text", ["[a]", "just text", "3", "~", ""])
def test_a_file_is_a_mapping(text):
    problem = the_problem_of(text)
    assert problem.line == 1
    assert "mapping" in problem.message or "empty" in problem.message


def test_a_file_has_nodes():
    assert the_problem_of("workflow_id: w").message == "missing key 'nodes'"
    assert the_problem_of("{workflow_id: w, nodes: {}}").message == "a workflow has at least one node"
    assert (
        the_problem_of("{workflow_id: w, nodes: [a]}").message
        == "nodes is a mapping (key: value), not a list"
    )
    assert (
        the_problem_of("{workflow_id: w, nodes: }").message
        == "nodes is a mapping (key: value), but it is empty"
    )


@pytest.mark.parametrize("node_id", ["a__b", "__a", "a__", "____"])
def test_two_underscores_are_reserved_for_children(node_id):
    problem = the_problem_of(flow(f"{node_id}: {{{TASK}}}"))
    assert problem.message == "a node id has no '__': that is how children are named"
    assert (problem.line, problem.column) == (3, 3)


@pytest.mark.parametrize("node_id", ["1a", "a b", "a-b", "a.b", "''", "ä", '"a\\n"', "x" * 101])
def test_a_node_id_is_an_identifier(node_id):
    problem = the_problem_of(flow(f"{node_id}: {{{TASK}}}"))
    assert (
        problem.message == "a node id is made of letters, digits and _, at most 100, and starts with no digit"
    )


@pytest.mark.parametrize("node_id", ["a", "_", "_a_1", "START", "x" * 100])
def test_these_are_node_ids(node_id):
    assert list(nodes_of(f"{node_id}: {{{TASK}}}")) == [node_id]


# ── Every type of node ──────────────────────────────────────────────────────────────────────────────────────────────


def test_a_start_and_an_end_have_a_description():
    nodes = nodes_of(f"""
        START: {{type: start, description: In., next: a}}
        a: {{{TASK}, next: END}}
        END: {{type: end, description: Out.}}
    """)
    assert isinstance(nodes["START"], StartSpec)
    assert isinstance(nodes["END"], EndSpec)
    assert [nodes[node].description for node in ("START", "END")] == ["In.", "Out."]


def test_a_task_has_these_keys():
    spec = nodes_of("""
        before: {handler: work, queue: q}
        a:
          type: task
          description: Works.
          depends_on: before
          next: END
          handler: work
          queue: fast
          params: {x: "{{ nodes.before.output.x }}", y: [1, 2.5, true, null, text]}
          timeout_seconds: 90
          dispatch_timeout_seconds: 30.5
          retry: {max_attempts: 5, backoff: linear, initial_delay_seconds: 1, max_delay_seconds: 9, jitter: false, max_lost: 0}
          allow_failure: true
    """)["a"]
    assert isinstance(spec, TaskSpec)
    assert (spec.description, spec.requires) == ("Works.", all_of("before"))
    assert (spec.handler, spec.queue, spec.timeout_seconds, spec.dispatch_timeout_seconds) == (
        "work",
        "fast",
        90.0,
        30.5,
    )
    assert spec.params.resolve({"nodes": {"before": {"output": {"x": 4}}}}) == {
        "x": 4,
        "y": [1, 2.5, True, None, "text"],
    }
    assert spec.retry == RetryPolicy(
        max_attempts=5,
        backoff=Backoff.LINEAR,
        initial_delay_seconds=1.0,
        max_delay_seconds=9.0,
        jitter=False,
        max_lost=0,
    )
    assert spec.allow_failure is True


def test_a_node_without_a_type_is_a_task():
    assert isinstance(spec_of_node(f"{{{TASK}}}"), TaskSpec)


def test_a_conditional_has_a_field_and_branches_with_the_default_last_wherever_it_stands():
    spec = nodes_of("""
        a: {handler: work, queue: q, next: c}
        c:
          type: conditional
          description: Which way?
          condition_field: "{{ nodes.a.output.n }}"
          branches:
            - {name: rest, default: true, next: END}
            - {name: small, condition: "< 10", next: END}
            - {condition: "10 <= value < 100", next: END}
    """)["c"]
    assert isinstance(spec, ConditionalSpec)
    assert spec.condition_field is not None
    assert [branch.name for branch in spec.branches] == ["small", "branch_3", "rest"]
    assert [branch.condition is None for branch in spec.branches] == [False, False, True]
    assert spec.refs == (("nodes", "a", "output"),)


def test_the_field_of_a_conditional_needs_no_braces():
    with_braces, without = (
        nodes_of(f"""
            a: {{{TASK}, next: c}}
            c: {{type: conditional, condition_field: "{field}", branches: [{{default: true}}]}}
        """)["c"]
        for field in ("{{ nodes.a.output.n }}", "nodes.a.output.n")
    )
    assert isinstance(with_braces, ConditionalSpec)
    assert isinstance(without, ConditionalSpec)
    assert with_braces.refs == without.refs


def test_a_fan_out_has_these_keys():
    spec = spec_of_node("""{
        type: fan_out, source: [1, 2], max_parallel: 4, tolerate_failures: "2%", on_item_error: fail,
        fail_fast: true, description: All., task: {handler: work, queue: q, params: {x: "{{ item }}", i: "{{ index }}"}}}
    """)
    assert isinstance(spec, FanOutSpec)
    assert spec.source.resolve({}) == [1, 2]
    assert (spec.max_parallel, spec.tolerance, spec.fail_fast) == (4, Tolerance(percent=2.0), True)
    assert spec.on_item_error is OnItemError.FAIL
    assert isinstance(spec.child, TaskSpec)
    assert spec.child.params.resolve({"item": "x", "index": 1}) == {"x": "x", "i": 1}


def test_a_fan_out_has_defaults():
    spec = spec_of_node(f"{{type: fan_out, source: [], task: {{{TASK}}}}}")
    assert (spec.max_parallel, spec.tolerance, spec.fail_fast, spec.on_item_error) == (
        None,
        Tolerance(),
        False,
        "fail",
    )


@pytest.mark.parametrize(
    ("child", "kind"),
    [
        (f"{{{TASK}}}", TaskSpec),
        (f"{{type: task, {TASK}}}", TaskSpec),
        (f"{{type: fan_out, source: '{{{{ item }}}}', task: {{{TASK}}}}}", FanOutSpec),
        ("{type: workflow, workflow_id: other, inputs: {x: '{{ item }}'}}", WorkflowSpec),
    ],
)
def test_a_fan_out_runs_a_task_a_fan_out_or_a_workflow(child, kind):
    assert type(spec_of_node(f"{{type: fan_out, source: [1], task: {child}}}").child) is kind


@pytest.mark.parametrize("kind", ["start", "end", "conditional", "fan_in", "approval", "wait", "3", "~"])
def test_a_fan_out_runs_nothing_else(kind):
    problem = the_problem_of(flow(f"a:\n  type: fan_out\n  source: [1]\n  task: {{type: {kind}}}"))
    assert problem.message.startswith("a fan-out runs a task, a fan_out or a workflow, ")
    assert problem.path == "nodes.a.task.type"


@pytest.mark.parametrize("key", ["depends_on", "next"])
def test_the_task_of_a_fan_out_has_no_edges(key):
    problem = the_problem_of(
        flow(f"a: {{type: fan_out, source: [1], task: {{{TASK}, {key}: b}}}}\nb: {{{TASK}}}")
    )
    assert (problem.message, problem.hint) == (f"a fan-out's task has no {key!r}", "move it to the fan-out")


def nested(levels: int) -> str:
    written = f"{{{TASK}}}"
    for _ in range(levels):
        written = f"{{type: fan_out, source: [1], task: {written}}}"
    return written


def test_fan_outs_nest_three_deep():
    assert spec_of_node(nested(3)).child.child.child.handler == "work"


def test_fan_outs_nest_no_deeper():
    problem = the_problem_of(flow(f"a: {nested(4)}"))
    assert problem.message == "fan-outs nest at most 3 deep"
    assert problem.path == "nodes.a.task.task.task.task"


@pytest.mark.parametrize(
    ("written", "expected"),
    [
        ("0", Tolerance()),
        ("5", Tolerance(count=5)),
        ("'2%'", Tolerance(percent=2.0)),
        ("2.5%", Tolerance(percent=2.5)),
        ("0%", Tolerance(percent=0.0)),
        ("100%", Tolerance(percent=100.0)),
    ],
)
def test_failures_are_tolerated_by_count_or_by_share(written, expected):
    assert (
        spec_of_node(
            f"{{type: fan_out, source: [], tolerate_failures: {written}, task: {{{TASK}}}}}"
        ).tolerance
        == expected
    )


@pytest.mark.parametrize(
    "written", ["-1", "1.5", "true", "many", "101%", "-2%", "2 %", "'%'", "[1]", "'٣%'", "'5%\\n'"]
)
def test_another_tolerance_is_refused(written):
    problem = the_problem_of(
        flow(f"a: {{type: fan_out, source: [], tolerate_failures: {written}, task: {{{TASK}}}}}")
    )
    assert problem.message.startswith("tolerate_failures is a count, or a share from '0%' to '100%', not ")


@pytest.mark.parametrize(
    ("source", "message", "hint"),
    [
        (
            "nodes.a.output",
            "source is a list, or an expression that evaluates to a list",
            "write '{{ nodes.a.output }}'",
        ),
        ("5", "source is a list, or an expression that evaluates to a list, not the number 5", ""),
        ("{a: 1}", "source is a list, or an expression that evaluates to a list, not a mapping", ""),
        ("~", "source is empty", "fill it in, or remove the key"),
    ],
)
def test_the_source_of_a_fan_out_is_a_list_or_an_expression(source, message, hint):
    problem = the_problem_of(flow(f"a: {{type: fan_out, source: {source}, task: {{{TASK}}}}}"))
    assert (problem.message, problem.hint) == (message, hint)


OVER_INPUT = """
workflow_id: w
inputs: {count: {type: integer, required: true}, tiles: {type: array, required: true}}
nodes:
  a:
    type: fan_out
    source: "{{ inputs.tiles }}"
    task: {type: fan_out, source: "{{ inputs.%s }}", task: {handler: echo, queue: q}}
"""


def test_a_fan_out_over_an_input_needs_an_array():
    problem = the_problem_of(OVER_INPUT % "count")
    assert problem.message == "a fan-out runs over a list, and the input 'count' is of type integer"
    assert (problem.path, problem.hint) == ("nodes.a.task.source", "declare it as a list (type: array)")
    for source in ("tiles", "count | default([])"):
        assert compile_flow(OVER_INPUT % source).warnings == ()


def test_a_stored_fan_out_over_another_input_still_loads():
    assert compile_definition(yaml.safe_load(OVER_INPUT % "count")).workflow_id == "w"


@pytest.mark.parametrize("way", ["collect", "concat", "sum", "first", "last"])
def test_a_fan_in_aggregates_in_one_of_five_ways(way):
    spec = nodes_of(f"a: {{{TASK}, next: f}}\nf: {{type: fan_in, aggregation: {way}}}")["f"]
    assert isinstance(spec, FanInSpec)
    assert spec.aggregation is Aggregation(way)


def test_a_fan_in_collects_unless_told_otherwise():
    spec = nodes_of(f"a: {{{TASK}, next: f}}\nf: {{type: fan_in}}")["f"]
    assert isinstance(spec, FanInSpec)
    assert spec.aggregation is Aggregation.COLLECT


def test_a_fan_in_after_one_fan_out_aggregates_its_children():
    spec = nodes_of(f"a: {{type: fan_out, source: [1], task: {{{TASK}}}, next: f}}\nf: {{type: fan_in}}")["f"]
    assert isinstance(spec, FanInSpec)
    assert (spec.over, spec.sources) == ("a", ("a",))


def test_another_fan_in_aggregates_one_output_per_upstream_node_in_file_order():
    spec = nodes_of(f"""
        a: {{type: fan_out, source: [1], task: {{{TASK}}}}}
        b: {{{TASK}}}
        f: {{type: fan_in, depends_on: [b, a]}}
    """)["f"]
    assert isinstance(spec, FanInSpec)
    assert (spec.over, spec.sources) == (None, ("a", "b"))


def test_a_fan_in_with_nothing_before_it_is_reported():
    problem = the_problem_of(flow(f"a: {{{TASK}}}\nf: {{type: fan_in}}"))
    assert problem.message == "a fan_in aggregates the nodes before it, and there are none"


def test_a_workflow_has_an_id_a_version_and_inputs():
    spec = spec_of_node("{type: workflow, workflow_id: other, version: 3, inputs: {x: '{{ job.id }}'}}")
    assert isinstance(spec, WorkflowSpec)
    assert (spec.workflow_id, spec.version) == ("other", 3)
    assert spec.inputs.resolve({"job": {"id": "j"}}) == {"x": "j"}


def test_an_approval_has_these_keys():
    spec = spec_of_node(
        "{type: approval, approvers: [ada, bob], message: 'Go, {{ job.id }}?', timeout_seconds: 60, on_timeout: approve}"
    )
    assert isinstance(spec, ApprovalSpec)
    assert (spec.approvers, spec.timeout_seconds, spec.on_timeout) == (
        ("ada", "bob"),
        60.0,
        OnTimeout.APPROVE,
    )
    assert spec.message.resolve({"job": {"id": "j"}}) == "Go, j?"


def test_an_approval_has_defaults():
    spec = spec_of_node("{type: approval}")
    assert (spec.approvers, spec.timeout_seconds, spec.on_timeout) == ((), None, OnTimeout.REJECT)


def test_a_wait_is_for_seconds_for_a_time_or_for_a_signal():
    assert spec_of_node("{type: wait, seconds: 5}").seconds.resolve({}) == 5
    assert spec_of_node("{type: wait, seconds: '{{ 2 * 3 }}'}").seconds.resolve({}) == 6
    assert (
        spec_of_node("{type: wait, until: 2026-01-31T06:00:00Z}").until.resolve({}) == "2026-01-31T06:00:00Z"
    )
    spec = spec_of_node("{type: wait, signal: go, timeout_seconds: 9, on_timeout: go_on}")
    assert isinstance(spec, WaitSpec)
    assert (spec.signal, spec.timeout_seconds, spec.on_timeout) == ("go", 9.0, OnTimeout.GO_ON)
    assert spec_of_node("{type: wait, signal: go}").on_timeout is OnTimeout.FAIL


@pytest.mark.parametrize(
    ("keys", "message"),
    [
        ("", "a wait has exactly one of seconds, until, signal"),
        (", seconds: 1, signal: go", "a wait has exactly one of seconds, until, signal"),
        (
            ", seconds: 1, timeout_seconds: 3",
            "timeout_seconds goes with signal: a wait for a time ends by itself",
        ),
        (", seconds: soon", "seconds is a number or an expression, not the text 'soon'"),
        (", seconds: true", "seconds is a number or an expression, not true"),
        (", seconds: [1]", "seconds is a number or an expression, not a list"),
        (", seconds: -1", "seconds is a number from 0 to 3,162,240,000"),
        (", seconds: 1e12", "seconds is a number from 0 to 3,162,240,000"),
        (
            ", until: tomorrow",
            "until is a date-time with its zone, or an expression, not the text 'tomorrow'",
        ),
        (
            ", until: 2026-01-01T00:00:00",
            "until is a date-time with its zone, or an expression, not the text ",
        ),
        (", signal: go, on_timeout: approve", "on_timeout is one of go_on, fail, not 'approve'"),
    ],
)
def test_a_wait_that_could_not_end_is_refused(keys, message):
    assert the_problem_of(flow(f"a: {{type: wait{keys}}}")).message.startswith(message)


@pytest.mark.parametrize(
    ("kind", "message"), [("taks", "unknown node type 'taks'"), ("3", "type is text, not the number 3")]
)
def test_another_type_is_refused(kind, message):
    problem = the_problem_of(flow(f"a: {{type: {kind}, {TASK}}}"))
    assert problem.message == message
    assert problem.path == "nodes.a.type"


def test_a_node_is_a_mapping():
    problem = the_problem_of(flow("a: echo"))
    assert described(problem) == (
        "3:6 a node is a mapping (type, handler, params, next …), not the text 'echo' | for example: {handler: echo}"
    )


# ── Defaults, and the handler's own ─────────────────────────────────────────────────────────────────────────────────


def test_a_queue_has_no_default():
    problem = the_problem_of(flow("a:\n  handler: work"))
    assert described(problem) == (
        "3:3 missing key 'queue' | name the queue that the workers of this task serve (or set DAGMASTER_DEFAULT_QUEUE)"
    )


def test_a_task_takes_queue_timeout_and_retry_from_its_handler():
    spec = spec_of_node("{handler: measure, params: {path: x}}", handlers=HANDLERS)
    assert (spec.queue, spec.timeout_seconds, spec.retry.max_attempts) == ("own-queue", 120.0, 7)


def test_what_the_node_says_goes_before_what_its_handler_says():
    spec = spec_of_node(
        "{handler: measure, params: {path: x}, queue: mine, timeout_seconds: 5, retry: {backoff: fixed}}",
        handlers=HANDLERS,
    )
    assert (spec.queue, spec.timeout_seconds) == ("mine", 5.0)
    assert spec.retry == RetryPolicy(backoff=Backoff.FIXED)


def test_a_handler_without_a_queue_leaves_it_to_the_node():
    problem = the_problem_of(flow("a: {handler: anything}"), handlers=HANDLERS)
    assert problem.message == "missing key 'queue'"


def test_a_task_without_its_own_and_its_handlers_takes_the_defaults():
    spec = spec_of_node("{handler: anything, queue: q}", handlers=HANDLERS)
    assert (spec.timeout_seconds, spec.dispatch_timeout_seconds) == (3600.0, None)
    assert spec.retry == RetryPolicy(
        max_attempts=3,
        backoff=Backoff.EXPONENTIAL,
        initial_delay_seconds=5.0,
        max_delay_seconds=300.0,
        jitter=True,
        max_lost=3,
    )
    assert (spec.allow_failure, spec.pool, spec.params.resolve({})) == (False, None, {})


@pytest.mark.parametrize("seconds", ["1", "86400", "0.5e1"])
def test_a_timeout_is_from_a_second_to_a_day(seconds):
    assert spec_of_node(f"{{{TASK}, timeout_seconds: {seconds}}}").timeout_seconds == float(seconds)


@pytest.mark.parametrize(
    ("seconds", "message"),
    [
        ("0", "timeout_seconds is at least 1"),
        ("0.9", "timeout_seconds is at least 1"),
        ("-5", "timeout_seconds is at least 1"),
        ("86401", "timeout_seconds is at most 86,400"),
        ("'60'", "timeout_seconds is a number, not the text '60'"),
        ("1h", "timeout_seconds is a number, not the text '1h'"),
        ("true", "timeout_seconds is a number, not true"),
        ("[1]", "timeout_seconds is a number, not a list"),
        ("~", "timeout_seconds is empty"),
    ],
)
def test_another_timeout_is_refused(seconds, message):
    problem = the_problem_of(flow(f"a: {{{TASK}, timeout_seconds: {seconds}}}"))
    assert (problem.message, problem.path) == (message, "nodes.a.timeout_seconds")


def test_retry_none_is_one_attempt():
    assert spec_of_node(f"{{{TASK}, retry: none}}").retry == NO_RETRY
    assert spec_of_node("{handler: once, queue: q}", handlers=HANDLERS).retry == NO_RETRY


def test_retry_fills_what_is_not_said():
    assert spec_of_node(f"{{{TASK}, retry: {{max_attempts: 9}}}}").retry == RetryPolicy(max_attempts=9)
    assert spec_of_node(f"{{{TASK}, retry: {{}}}}").retry == RetryPolicy()


@pytest.mark.parametrize(
    ("retry", "message"),
    [
        ("3", "retry is a mapping (key: value) or none, not the number 3"),
        ("never", "retry is a mapping (key: value) or none, not the text 'never'"),
        ("{max_attempts: 0}", "max_attempts is at least 1"),
        ("{max_attempts: 2.5}", "max_attempts is a whole number, not the number 2.5"),
        ("{max_attempt: 2}", "unknown key 'max_attempt'"),
        ("{backoff: expo}", "backoff is one of exponential, linear, fixed, not 'expo'"),
        ("{initial_delay_seconds: -1}", "initial_delay_seconds is at least 0"),
        ("{jitter: 1}", "jitter is true or false, not the number 1"),
        ("{max_lost: -1}", "max_lost is at least 0"),
        ("~", "retry is empty"),
    ],
)
def test_another_retry_is_refused(retry, message):
    assert the_problem_of(flow(f"a: {{{TASK}, retry: {retry}}}")).message == message


# ── Handlers ────────────────────────────────────────────────────────────────────────────────────────────────────────


def test_a_handler_that_is_not_there_is_an_error_with_the_nearest_name():
    problem = the_problem_of(flow("a: {handler: mesure, queue: q}"), handlers=HANDLERS)
    assert described(problem) == "3:16 unknown handler 'mesure' | did you mean 'measure'?"
    assert problem.severity == "error"


def test_a_handler_that_is_like_no_other_is_an_error_with_what_to_do():
    problem = the_problem_of(flow("a: {handler: zzz, queue: q}"), handlers=HANDLERS)
    assert problem.hint == "name the module or file that has it: --handlers, or handlers= in a test"


def test_a_handler_that_is_not_there_can_be_a_warning():
    compiled = compile_flow(
        flow("a: {handler: elsewhere, queue: q}"), handlers=HANDLERS, allow_missing_handlers=True
    )
    (warning,) = compiled.warnings
    assert (warning.severity, warning.message) == ("warning", "unknown handler 'elsewhere'")


def test_a_task_whose_handler_is_missing_needs_a_queue():
    problems = problems_of(flow("a: {handler: elsewhere}"), handlers=HANDLERS, allow_missing_handlers=True)
    assert [problem.message for problem in problems if problem.severity == "error"] == ["missing key 'queue'"]


def test_a_task_whose_handler_is_mistyped_has_that_problem_only():
    # The right one may have a queue.
    assert (
        the_problem_of(flow("a: {handler: mesure}"), handlers=HANDLERS).message == "unknown handler 'mesure'"
    )


def test_an_alias_names_the_same_handler():
    problem = the_problem_of(
        flow("a: {handler: trim, queue: q, params: {path: x, size: 1}}"), handlers=HANDLERS
    )
    assert problem.message == "handler 'crop' has no param 'size'"


def test_a_param_that_a_typed_handler_does_not_have_is_reported_with_the_nearest():
    problem = the_problem_of(
        flow("a: {handler: crop, queue: q, params: {path: x, margn: 1}}"), handlers=HANDLERS
    )
    assert described(problem) == "3:50 handler 'crop' has no param 'margn' | did you mean 'margin'?"
    assert problem.path == "nodes.a.params.margn"


def test_a_param_that_a_typed_handler_needs_is_reported():
    problem = the_problem_of(flow("a:\n  handler: measure"), handlers=HANDLERS)
    assert described(problem) == "3:3 handler 'measure' needs 'path' | add under params: path: …"
    problem = the_problem_of(
        flow("a:\n  handler: crop\n  queue: q\n  params: {margin: 2}"), handlers=HANDLERS
    )
    assert described(problem).startswith("6:5 handler 'crop' needs 'path'")


def test_a_list_that_is_too_short_is_reported_how_long_it_has_to_be():
    node = "a: {handler: crop, queue: q, params: {path: x, bbox: [1, 2, 3]}}"
    assert the_problem_of(flow(node), handlers=HANDLERS).message == "bbox needs at least 4 entries"


def test_a_mistyped_param_is_not_also_reported_as_missing():
    problem = the_problem_of(flow("a: {handler: crop, queue: q, params: {pth: x}}"), handlers=HANDLERS)
    assert problem.message == "handler 'crop' has no param 'pth'"


def test_a_handler_that_takes_anything_is_not_asked():
    nodes_of("a: {handler: anything, queue: q, params: {whatever: 1}}", handlers=HANDLERS)


def test_the_task_of_a_fan_out_is_checked_against_its_handler():
    problems = problems_of(
        flow(
            "a: {type: fan_out, source: [1], task: {type: fan_out, source: [1], task: {handler: crop, params: {x: 1}}}}"
        ),
        handlers=HANDLERS,
    )
    assert set(messages(problems)) == {
        "handler 'crop' has no param 'x'",
        "handler 'crop' needs 'path'",
        "missing key 'queue'",
    }
    assert {problem.path for problem in problems} == {
        "nodes.a.task.task",
        "nodes.a.task.task.params",
        "nodes.a.task.task.params.x",
    }


# ── Unknown keys ────────────────────────────────────────────────────────────────────────────────────────────────────


@pytest.mark.parametrize(
    ("text", "place", "path", "offending", "hint"),
    [
        ("workflow_id: w\nnodez: {}\nnodes: {a: {handler: work, queue: q}}", (2, 1), "nodez", "nodez: {}", "nodes"),
        ("workflow_id: w\nnodes:\n  a:\n    handlr: work\n    queue: q", (4, 5), "nodes.a.handlr", "handlr: work", "handler"),
        ("workflow_id: w\nnodes:\n  a: {handler: work, queue: q, time_out: 3}", (3, 32), "nodes.a.time_out", "a: {handler: work, queue: q, time_out: 3}", "timeout_seconds"),
        (
            "workflow_id: w\nnodes:\n  c:\n    type: conditional\n    branches:\n      - condtion: '1 == 1'",
            (6, 9), "nodes.c.branches[0].condtion", "- condtion: '1 == 1'", "condition",
        ),
        ("workflow_id: w\ninputs:\n  x: {tpye: string}\nnodes: {a: {handler: work, queue: q}}", (3, 7), "inputs.x.tpye", "x: {tpye: string}", "type"),
        ("workflow_id: w\nnodes:\n  a: {handler: work, queue: q, retry: {backof: fixed}}", (3, 40), "nodes.a.retry.backof", "a: {handler: work, queue: q, retry: {backof: fixed}}", "backoff"),
        (
            "workflow_id: w\nnodes:\n  f:\n    type: fan_out\n    source: [1]\n    task:\n      handler: work\n      quue: q",
            (8, 7), "nodes.f.task.quue", "quue: q", "queue",
        ),
        ("workflow_id: w\nnodes:\n  f: {type: fan_out, sorce: [1], task: {handler: work, queue: q}}", (3, 22), "nodes.f.sorce", "f: {type: fan_out, sorce: [1], task: {handler: work, queue: q}}", "source"),
    ],
)  # fmt: skip
def test_an_unknown_key_anywhere_is_reported_with_the_nearest_its_place_and_what_was_written(
    text, place, path, offending, hint
):
    problem = the_problem_of(text)
    assert problem.message == f"unknown key {path.rpartition('.')[2]!r}"
    assert ((problem.line, problem.column), problem.path, problem.text) == (place, path, offending)
    assert (problem.file, problem.hint) == ("flow.yaml", f"did you mean {hint!r}?")


@pytest.mark.parametrize(
    ("node", "hint"),
    [
        (f"{{{TASK}, branches: []}}", "'branches' goes with type: conditional"),
        (f"{{{TASK}, signal: go}}", "'signal' goes with type: wait"),
        ("{type: wait, seconds: 1, queue: q}", "'queue' goes with type: task"),
        (
            f"{{type: fan_out, source: [], retry: none, task: {{{TASK}}}}}",
            "'retry' goes into the task of the fan-out",
        ),
    ],
)
def test_a_key_of_another_type_of_node_is_reported_where_it_belongs(node, hint):
    problem = the_problem_of(flow(f"a: {node}"))
    assert problem.message.startswith("unknown key ")
    assert problem.hint == hint


# ── Values that do not fit ──────────────────────────────────────────────────────────────────────────────────────────


@pytest.mark.parametrize(
    ("node", "message", "hint"),
    [
        (f"{{{TASK}, params: [1]}}", "params is a mapping (key: value), not a list", "write each param under its name: size: '{{ … }}'"),
        (f"{{{TASK}, params: }}", "params is a mapping (key: value), but it is empty", "fill it in, or remove the key"),
        (f"{{{TASK}, allow_failure: yes}}", "allow_failure is true or false, not the text 'yes'", "write true: in YAML 1.2 'yes' is text"),
        ("{handler: 5, queue: q}", "handler is text, not the number 5", 'put it in quotes: "5"'),
        ("{handler: '', queue: q}", "handler is empty", ""),
        (f"{{{TASK}, description: [a]}}", "description is text, not a list", ""),
        (f"{{{TASK}, description: 3}}", "description is text, not the number 3", 'put it in quotes: "3"'),
        ("{type: approval, approvers: ada}", "approvers is a list, not the text 'ada'", "write [ada]"),
        ("{type: approval, approvers: [ada, 7]}", "approvers[1] is text, not the number 7", 'put it in quotes: "7"'),
        ("{type: approval, on_timeout: aprove}", "on_timeout is one of approve, reject, not 'aprove'", "did you mean 'approve'?"),
        ("{type: workflow, workflow_id: a b}", "workflow_id is made of letters, digits and _ . -, and starts with a letter or _", "for example: a_b"),
        ("{type: workflow, workflow_id: w, version: '1'}", "version is a whole number, not the text '1'", "remove the quotes"),
        ("{type: workflow, workflow_id: w, version: 0}", "version is at least 1", ""),
        ("{type: conditional, branches: []}", "branches needs at least one entry", ""),
        ("{type: conditional, branches: [5]}", "branches[0] is a mapping (key: value), not the number 5", ""),
        ("{type: conditional, branches: [{name: x}]}", "a branch has either a condition or `default: true`", ""),
        ("{type: conditional, branches: [{name: x y, default: true}]}", "name is made of letters, digits and _, and starts with no digit", "for example: x_y"),
        (f"{{type: fan_out, source: [], max_parallel: 0, task: {{{TASK}}}}}", "max_parallel is at least 1", ""),
        ("{type: fan_out, source: [], task: work}", "task is a mapping (key: value), not the text 'work'", "name the task for each item: task: {handler: …}"),
    ],
)  # fmt: skip
def test_a_value_of_the_wrong_kind_is_reported_in_plain_words(node, message, hint):
    problem = the_problem_of(flow(f"a: {node}"))
    assert (problem.message, problem.hint) == (message, hint)


@pytest.mark.parametrize(
    ("key", "message"),
    [
        ("version: 1.5", "version is a whole number, not the number 1.5"),
        ("version: 99999999999", "version is at most 2,147,483,647"),
        ("deadline_seconds: 0", "deadline_seconds is more than 0"),
        ("tags: night", "tags is a list, not the text 'night'"),
        ("on_failure: stop", "on_failure is one of finish_running, cancel_running, continue, not 'stop'"),
        ("outputs: [a]", "outputs is a mapping (key: value), not a list"),
        ("inputs: [a]", "inputs is a mapping (key: value), not a list"),
        ("inputs: {x: string}", "input 'x' is a mapping (key: value), not the text 'string'"),
    ],
)
def test_a_key_of_the_file_with_the_wrong_kind_of_value_is_reported_in_plain_words(key, message):
    assert the_problem_of(flow(f"a: {{{TASK}}}", key)).message == message


# ── Conditions ──────────────────────────────────────────────────────────────────────────────────────────────────────


def condition(text: str, field: str = "nodes.a.output.size") -> str:
    return flow(f"""
        a: {{{TASK}, next: c}}
        c:
          type: conditional
          condition_field: {field}
          branches: [{{condition: "{text}"}}, {{default: true}}]
    """)


@pytest.mark.parametrize(
    "text", ["< 100", "in ['a', 'b']", "100 <= value < 1000", "{{ value == 1 }}", "> 100MB", "value is none"]
)
def test_these_are_conditions(text):
    graph_of(condition(text))


@pytest.mark.parametrize("text", ["= 5", "< ", "vlaue > 3", "value.upper()", "{% if value %}"])
def test_these_are_not_conditions(text):
    problem = the_problem_of(condition(text))
    assert (problem.path, problem.line) == ("nodes.c.branches[0].condition", 7)


@pytest.mark.parametrize(
    "field",
    ["nodes.a.output.size_mb", "'{{ nodes.a.output.size_mb | default(0) }}'", "nodes.a.output['size_mb']"],
)
def test_a_unit_against_a_field_that_counts_megabytes_is_an_error_that_says_why(field):
    problem = the_problem_of(condition("< 100MB", field))
    assert problem.message == "`size_mb` counts megabytes, and 100MB is 100000000 bytes: write `< 100`"


@pytest.mark.parametrize(
    "field",
    ["nodes.a.output.size", "nodes.a.output.size_mb * 1000000", "'{{ nodes.a.output.size_mb * 1000000 }}'"],
)
def test_a_unit_against_a_field_that_counts_bytes_is_right(field):
    graph_of(condition("< 100MB", field))


@pytest.mark.parametrize("text", ["< 100", "value == 3", "{{ value > 1 }}"])
def test_a_condition_on_value_needs_a_field(text):
    problem = the_problem_of(flow(f'c: {{type: conditional, branches: [{{condition: "{text}"}}]}}'))
    assert problem.message == "the condition has nothing to compare with"
    assert "condition_field" in problem.hint


def test_a_condition_that_names_its_values_needs_no_field():
    graph_of("""
        workflow_id: w
        inputs: {n: {type: integer, default: 1}}
        nodes: {c: {type: conditional, branches: [{condition: "inputs.n > 3"}, {default: true}]}}
    """)


# ── All problems at once ────────────────────────────────────────────────────────────────────────────────────────────

TWELVE = """\
workflow_id: many
verison: 2
inputs:
  size: {type: integer, default: big}
  area: {type: string, patern: x}
nodes:
  START: {type: start, next: check}
  check:
    handler: mesure
    params: {path: "{{ inputs.sise }}"}
    next: [route, nowhere]
  route:
    type: conditional
    condition_field: "{{ nodes.check.output.size }}"
    branches:
      - {name: small, condition: "< ", next: small}
      - {name: large, default: true, next: large}
  small:
    handler: anything
    queue: q
    timeout_seconds: 0
    next: both
  large:
    handler: anything
    queue: q
    params:
      x: "{{ nodes.small.output.x }}"
    next: both
  both:
    handler: crop
    queue: q
    params: {path: "{{ nodes.small.output.x }}"}
  lost:
    handler: anything
    queue: q
  tiles:
    type: fan_out
    source: "{{ nodes.check.output.list }}"
    depends_on: check
    task: {handler: anything, queue: q, params: {x: "{{ itme }}"}}
outputs:
  x: "{{ nodes.large.output.y }}"
"""


def test_all_problems_are_reported_at_once_each_at_its_line():
    problems = problems_of(TWELVE, handlers=HANDLERS)
    assert [(problem.line, problem.message) for problem in problems] == [
        (2, "unknown key 'verison'"),
        (4, 'the default does not fit: "big" is not a whole number'),
        (5, "unknown key 'patern'"),
        (9, "unknown handler 'mesure'"),
        (10, "unknown input 'sise'"),
        (11, "unknown node 'nowhere'"),
        (16, "the expression cannot be parsed: unexpected 'end of expression'"),
        (21, "timeout_seconds is at least 1"),
        (27, "node 'large' refers to 'small', which is not upstream of it"),
        (32, "nodes.small.output.x may be missing: 'small' may be skipped or still open when 'both' runs"),
        (33, "node 'lost' cannot be reached from 'START'"),
        (40, "there is no `itme` here"),
        (42, "nodes.large.output.y may be missing: 'large' may be skipped"),
    ]
    lines = TWELVE.splitlines()
    assert all(problem.text == lines[problem.line - 1].strip() for problem in problems)
    assert all(problem.file == "flow.yaml" and problem.column > 0 for problem in problems)


def test_problems_stand_in_the_order_of_the_file():
    problems = problems_of(TWELVE, handlers=HANDLERS)
    assert list(problems) == sorted(problems, key=lambda problem: (problem.line, problem.column))


def test_a_mistake_in_one_param_hides_none_in_another():
    problems = problems_of(
        flow(f"""
        a: {{{TASK}, params: {{x: "{{{{ inputs.a ", y: ["{{{{ inputs.b }}}}"], z: "{{{{ nodes.c.output }}}}"}}}}
        b: {{{TASK}, retry: {{max_attempts: 0}}, timeout_seconds: 0, params: {{x: "{{{{ inputs.d }}}}"}}}}
    """)
    )
    assert messages(problems) == [
        "the expression does not end",
        "unknown input 'b'",
        "unknown node 'c'",
        "max_attempts is at least 1",
        "timeout_seconds is at least 1",
        "unknown input 'd'",
    ]


def test_what_a_mistyped_key_says_is_checked_at_its_place():
    problems = problems_of(flow('a:\n  handler: work\n  queue: q\n  parms: {x: "{{ inputs.b }}"}'))
    assert [described(problem) for problem in problems] == [
        "6:5 unknown key 'parms' | did you mean 'params'?",
        "6:20 unknown input 'b' | declare it under inputs:",
    ]


# ── Nodes that never run ────────────────────────────────────────────────────────────────────────────────────────────


def test_a_node_that_wants_two_branches_of_one_conditional_is_a_warning():
    compiled = compile_flow(
        flow(f"""
        c: {{type: conditional, branches: [{{condition: "1 == 1", next: a}}, {{default: true, next: b}}]}}
        a: {{{TASK}}}
        b: {{{TASK}}}
        both: {{{TASK}, depends_on: [a, b], next: after}}
        after: {{{TASK}}}
    """)
    )
    (warning,) = compiled.warnings
    assert warning.message == "node 'both' never runs: no choice of branches satisfies its dependencies"
    assert (warning.severity, warning.path) == ("warning", "nodes.both.depends_on")
    assert "any_of" in warning.hint


# ── Versions and hashes ─────────────────────────────────────────────────────────────────────────────────────────────

WHOLE = """\
workflow_id: whole
name: Whole
version: 3
description: Everything.
on_failure: continue
deadline_seconds: 600
tags: [a, b]
inputs:
  size: {type: integer, default: 3, minimum: 1}
  area: {type: string, required: true, description: Where.}
nodes:
  START: {type: start, next: first}
  first:
    handler: work
    queue: q
    params: {x: "{{ inputs.size }}", y: [1, {z: 2.5}]}
    timeout_seconds: 60
    retry: {max_attempts: 2, backoff: fixed}
    next: route
  route:
    type: conditional
    condition_field: "{{ nodes.first.output.n }}"
    branches:
      - {name: small, condition: "< 10", next: wait}
      - {name: large, default: true, next: [tiles, other]}
  wait: {type: wait, seconds: 5, next: END}
  tiles:
    type: fan_out
    source: "{{ nodes.first.output.list }}"
    max_parallel: 4
    tolerate_failures: 2%
    task: {handler: work, queue: q, params: {item: "{{ item }}"}}
    next: sum
  sum: {type: fan_in, aggregation: sum, next: END}
  other: {type: workflow, workflow_id: other, version: 2, inputs: {x: 1}, next: ask}
  ask: {type: approval, approvers: [ada], message: "Go?", next: END}
  END: {type: end}
outputs:
  total: "{{ nodes.sum.output.count | default(0) }}"
"""


def test_comments_and_spaces_do_not_change_the_hash():
    changed = "# A comment.\n" + WHOLE.replace("    handler: work\n", "    handler: work  # the worker\n\n")
    changed = changed.replace("[a, b]", "\n  - a\n  - 'b'")
    assert changed != WHOLE
    assert graph_of(changed).content_hash == graph_of(WHOLE).content_hash


def test_the_order_of_keys_does_not_change_the_hash():
    head, _, rest = WHOLE.partition("nodes:\n")
    nodes, _, outputs = rest.partition("outputs:\n")
    changed = f"outputs:\n{outputs}nodes:\n{nodes}{head}"
    changed = changed.replace(
        "{type: integer, default: 3, minimum: 1}", "{minimum: 1, default: 3, type: integer}"
    )
    changed = changed.replace(
        "{type: approval, approvers: [ada], message", "{approvers: [ada], type: approval, message"
    )
    changed = changed.replace(
        '{x: "{{ inputs.size }}", y: [1, {z: 2.5}]}', '{y: [1, {z: 2.5}], x: "{{ inputs.size }}"}'
    )
    changed = changed.replace("{max_attempts: 2, backoff: fixed}", "{backoff: fixed, max_attempts: 2}")
    changed = changed.replace(
        '{name: small, condition: "< 10", next: wait}', '{next: wait, condition: "< 10", name: small}'
    )
    assert graph_of(changed).content_hash == graph_of(WHOLE).content_hash


def test_a_default_that_is_written_out_does_not_change_the_hash():
    changed = WHOLE.replace("tags: [a, b]", "tags: [a, b]").replace(
        "{type: end}", "{type: end, description: ''}"
    )
    changed = changed.replace("    max_parallel: 4\n", "    max_parallel: 4\n    fail_fast: false\n")
    changed = changed.replace(
        "{max_attempts: 2, backoff: fixed}", "{max_attempts: 2, backoff: fixed, jitter: true}"
    )
    assert graph_of(changed).content_hash == graph_of(WHOLE).content_hash


@pytest.mark.parametrize(
    ("old", "new"),
    [
        ("workflow_id: whole", "workflow_id: other"),
        ("version: 3", "version: 4"),
        ("on_failure: continue", "on_failure: finish_running"),
        ("deadline_seconds: 600", "deadline_seconds: 601"),
        ("default: 3", "default: 4"),
        ("minimum: 1", "minimum: 2"),
        ("required: true, ", ""),
        ("handler: work\n", "handler: works\n"),
        ("queue: q\n", "queue: r\n"),
        ("{z: 2.5}", "{z: 2.25}"),
        ("y: [1,", "y: [true,"),
        ("timeout_seconds: 60\n", "timeout_seconds: 61\n"),
        ("max_attempts: 2", "max_attempts: 3"),
        ('"< 10"', '"<= 10"'),
        ("next: [tiles, other]", "next: [tiles, other, wait]"),
        ("name: small", "name: tiny"),
        ("seconds: 5", "seconds: 6"),
        ("max_parallel: 4", "max_parallel: 5"),
        ("tolerate_failures: 2%", "tolerate_failures: 3%"),
        ("aggregation: sum", "aggregation: last"),
        ("version: 2, inputs", "version: 3, inputs"),
        ("inputs: {x: 1}", "inputs: {x: 2}"),
        ("approvers: [ada]", "approvers: [bob]"),
        ("default(0)", "default(1)"),
        ("sum: {type: fan_in, aggregation: sum, next: END}", "sum: {type: fan_in, aggregation: sum}"),
    ],
)
def test_any_change_of_meaning_changes_the_hash(old, new):
    assert old in WHOLE
    assert graph_of(WHOLE.replace(old, new, 1)).content_hash != graph_of(WHOLE).content_hash


def test_the_order_of_nodes_changes_the_hash_because_a_fan_in_goes_by_it():
    one, other = (
        flow(f"{a}: {{{TASK}}}\n{b}: {{{TASK}}}\nf: {{type: fan_in, depends_on: [a, b]}}")
        for a, b in ("ab", "ba")
    )
    assert graph_of(one).content_hash != graph_of(other).content_hash


def same(one: Graph, other: Graph) -> bool:
    """Equal in everything that the engine reads."""
    parts = ("workflow_id", "version", "name", "description", "inputs", "specs", "outputs", "result_nodes")
    more = ("on_failure", "deadline_seconds", "max_active_jobs", "tags", "definition", "content_hash")
    return all(getattr(one, part) == getattr(other, part) for part in (*parts, *more)) and list(
        one.specs
    ) == list(other.specs)


def stored(graph: Graph) -> Graph:
    """Return the graph as it comes back from a store."""
    return compile_definition(json.loads(json.dumps(graph.definition)))


def test_workflows_ship():
    assert len(FILES) >= 10


@pytest.mark.parametrize("file", FILES, ids=lambda file: file.stem)
def test_every_workflow_that_ships_compiles_again_from_its_definition_to_the_same_graph(file):
    graph = compile_file(file, handlers=HANDLERS, allow_missing_handlers=True).graph
    assert same(stored(graph), graph)
    assert same(stored(stored(graph)), graph)


def test_a_definition_has_what_the_handlers_gave_so_that_it_needs_them_no_more():
    graph = graph_of(
        flow("""
        a: {handler: measure, params: {path: x}}
        b: {type: fan_out, source: [1], depends_on: a, task: {handler: measure, params: {path: x}}}
        c: {handler: once, queue: q, depends_on: b}
    """),
        handlers=HANDLERS,
    )
    again = stored(graph)
    assert same(again, graph)
    assert isinstance(again.specs["a"], TaskSpec)
    assert (again.specs["a"].queue, again.specs["a"].timeout_seconds) == ("own-queue", 120.0)
    assert isinstance(again.specs["c"], TaskSpec)
    assert again.specs["c"].retry == NO_RETRY


def test_the_whole_file_compiles_again_from_its_definition():
    graph = graph_of(WHOLE)
    assert same(stored(graph), graph)
    assert content_hash(graph.definition) == graph.content_hash


def test_a_definition_that_is_wrong_has_its_problems_with_paths():
    definition = json.loads(json.dumps(graph_of(WHOLE).definition))
    definition["nodes"]["first"]["queu"] = "x"
    with pytest.raises(WorkflowInvalid) as caught:
        compile_definition(definition)
    (problem,) = caught.value.problems
    assert (problem.path, problem.line, problem.file) == ("nodes.first.queu", 0, "<definition>")


@pytest.mark.slow
def test_a_file_of_ten_thousand_nodes_compiles():
    lines = ["workflow_id: large", "nodes:", "  n0: {handler: work, queue: q}"]
    lines += [
        f"  n{n}: {{handler: work, queue: q, depends_on: n{n - 1}, params: {{x: '{{{{ nodes.n{n // 2}.output.x }}}}'}}}}"
        for n in range(1, 10_000)
    ]
    assert len(graph_of("\n".join(lines)).specs) == 10_000


def test_a_file_of_many_mistakes_tells_them_all():
    nodes = "\n".join(
        f"n{n}: {{{TASK}, next: nobody{n}, params: {{x: '{{{{ inputs.x{n} }}}}'}}}}" for n in range(500)
    )
    assert len(problems_of(flow(textwrap.dedent(nodes)))) == 1000
