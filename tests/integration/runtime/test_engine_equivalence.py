"""A workflow gives the same on the whole stack as in one process, where the engine alone decides."""

from __future__ import annotations

import asyncio
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

from dagmaster.sdk.handler_registry import handler
from dagmaster.testing import run_workflow
from tests.integration.runtime.runtime_world import Gate

if TYPE_CHECKING:
    from dagmaster.orchestrator.turn import ApprovalRequest
    from dagmaster.testing import JobReport
    from tests.integration.runtime.runtime_world import World

WORKFLOWS = Path(__file__).parents[3] / "workflows"
# Those that need no data: the others are tried in tests/acceptance, on real scenes.
SHIPPED = {
    name: (WORKFLOWS / f"{name}.yaml").read_text()
    for name in ("approval", "demo", "echo_test", "fan_out", "fan_out_test", "hello_world")
}


class Ada:
    """Says yes."""

    async def approval(self, request: ApprovalRequest) -> tuple[bool, str, str]:
        return True, "ada", "fine"


def seen(report: JobReport) -> dict[str, Any]:
    """Return what must be equal; the times of day are not."""

    def cleaned(value: Any) -> Any:
        if isinstance(value, dict):
            return {
                key: "then" if key in ("at", "waited_until") else cleaned(item) for key, item in value.items()
            }
        if isinstance(value, list):
            return [cleaned(item) for item in value]
        return value.replace(report.job_id, "this job") if isinstance(value, str) else value

    # In one process a node that nothing happened to is listed as well.
    nodes = {name: cleaned(node) for name, node in report.nodes.items() if node["status"] != "PENDING"}
    return {
        "status": report.status,
        "result": cleaned(report.result),
        "error": cleaned(report.error),
        "nodes": {name: nodes[name] for name in sorted(nodes)},
    }


async def both(world: World, text: str, inputs: dict[str, Any] | None = None) -> JobReport:
    """Run it both ways, compare, and give the report of the whole stack."""
    alone = await asyncio.to_thread(
        run_workflow, text, inputs or {}, handlers=world.registry(), answers=Ada()
    )
    await world.start()
    job = await world.submit(text, inputs)
    if "type: approval" in text:
        await world.until_event(job, "ApprovalRequested")
        await world.send(job, "approve", by="ada", node="release", comment="fine")
    report = await world.finished(job)
    assert seen(report) == seen(alone)
    return report


@pytest.mark.parametrize("name", sorted(SHIPPED))
async def test_every_shipped_workflow_has_the_same_result_as_in_one_process(world: World, name: str):
    text = SHIPPED[name]
    inputs = {"demo": {"tasks": 30}, "fan_out": {"count": 300}}.get(name, {})
    text = text.replace("seconds: 0.1", "seconds: 0").replace(
        "initial_delay_seconds: 0.5", "initial_delay_seconds: 0.05"
    )
    assert (await both(world, text, inputs)).status == "COMPLETED"


CHAIN = """
name: chain
nodes:
  a: {handler: echo, params: {n: 1}}
  b: {handler: echo, depends_on: a, params: {before: "{{ nodes.a.output.echoed_params.n }}"}}
  c: {handler: echo, depends_on: b, params: {before: "{{ upstream.output.echoed_params.before + 1 }}"}}
outputs: {last: "{{ nodes.c.output.echoed_params.before }}"}
"""

NESTED = """
name: nested
nodes:
  rows:
    type: fan_out
    source: [[1, 2, 3], [], [4]]
    task:
      type: fan_out
      source: "{{ item }}"
      task: {handler: echo, params: {n: "{{ item }}", row: "{{ outer.index }}", column: "{{ index }}"}}
    next: all
  all: {type: fan_in, aggregation: collect}
outputs: {outputs: "{{ nodes.rows.outputs }}", all: "{{ nodes.all.output }}"}
"""

BRANCHES = """
name: branches
inputs: {size: {type: integer, required: true}}
nodes:
  look: {handler: size_check, params: {size_mb: "{{ inputs.size }}"}, next: route}
  route:
    type: conditional
    condition_field: "{{ nodes.look.output.size_mb }}"
    branches:
      - {name: small, condition: "< 100", next: light}
      - {name: large, condition: "100 <= value < 1000", next: [heavy, note]}
  light: {handler: echo, next: join}
  heavy: {handler: echo, next: join}
  note: {handler: echo}
  join: {handler: echo, params: {branch: "{{ nodes.route.output.branch }}"}}
"""

TOLERANT = """
name: tolerant
inputs: {tolerated: {type: integer, default: 1}}
nodes:
  fan:
    type: fan_out
    source: [false, true, false]
    tolerate_failures: %s
    task: {handler: %s, params: {message: "{{ index }}", permanent: true}, retry: none}
    next: sum
  sum: {type: fan_in, aggregation: collect}
"""

CAUGHT = """
name: caught
nodes:
  risky: {handler: fail, params: {message: no luck, permanent: true}, allow_failure: true, next: route}
  route:
    type: conditional
    condition_field: "{{ nodes.risky.status }}"
    branches: [{name: bad, condition: "== 'FAILED'", next: repair}, {default: true, name: good, next: go_on}]
  repair: {handler: echo, params: {why: "{{ nodes.risky.error.message }}"}}
  go_on: {handler: echo}
"""


async def test_a_chain_hands_values_on(world: World):
    assert (await both(world, CHAIN)).result == {"last": 2}


async def test_outputs_of_an_inner_fan_out_of_earlier_turns_are_not_lost(world: World):
    gate = Gate()

    @handler("slow_second", queue="q")
    async def slow_second(n: int) -> dict[str, int]:
        if n == 2:
            await gate.wait()
        return {"n": n}

    world.handlers.append(slow_second)
    await world.start()
    text = "{name: n, nodes: {rows: {type: fan_out, source: [[1, 2]], task: {type: fan_out, source: '{{ item }}', task: {handler: slow_second, params: {n: '{{ item }}'}}}}}, outputs: {all: '{{ nodes.rows.outputs }}'}}"
    job = await world.submit(text)
    await world.until_node(job, "rows__0__0", "COMPLETED")
    gate.open()
    assert (await world.finished(job)).result == {"all": [[{"n": 1}, {"n": 2}]]}


async def test_nested_fan_outs_give_lists_of_lists_in_order(world: World):
    report = await both(world, NESTED)
    inner = [[output["echoed_params"]["n"] for output in row] for row in report.result["outputs"]]
    assert inner == [[1, 2, 3], [], [4]]


@pytest.mark.parametrize(("size", "taken"), [(5, "light"), (500, "heavy")])
async def test_a_conditional_takes_one_branch_and_the_join_runs_once(world: World, size: int, taken: str):
    report = await both(world, BRANCHES, {"size": size})
    assert report.status == "COMPLETED"
    other = {"light": "heavy", "heavy": "light"}[taken]
    assert (report.nodes[taken]["status"], report.nodes[other]["status"]) == ("COMPLETED", "SKIPPED")
    assert report.nodes["join"]["attempts"] == 1


async def test_a_conditional_without_a_match_fails_with_the_value(world: World):
    report = await both(world, BRANCHES, {"size": 5000})
    assert report.status == "FAILED"
    assert "5000" in report.nodes["route"]["error"]["message"]


async def test_a_failure_that_is_allowed_can_be_caught(world: World):
    report = await both(world, CAUGHT)
    assert report.status == "COMPLETED"
    assert report.nodes["repair"]["output"] == {"echoed_params": {"why": "no luck"}}
    assert report.nodes["go_on"]["status"] == "SKIPPED"


@pytest.mark.parametrize(("tolerated", "status"), [(0, "FAILED"), (3, "COMPLETED")])
async def test_a_fan_out_tolerates_the_configured_number_of_failures(
    world: World, tolerated: int, status: str
):
    report = await both(world, TOLERANT % (tolerated, "fail"))
    assert report.status == status
    assert report.nodes["sum"]["status"] == ("COMPLETED" if status == "COMPLETED" else "SKIPPED")


async def test_the_failure_of_one_child_lets_the_others_run_to_their_end(world: World):
    text = """
name: one_of_many
nodes:
  fan:
    type: fan_out
    source: [3, 0, 3, 3]
    tolerate_failures: "25%"
    task: {handler: flaky, params: {fail_times: "{{ 0 if item else 9 }}"}, retry: none}
outputs: {failed: "{{ nodes.fan.failed }}", outputs: "{{ nodes.fan.outputs }}"}
"""
    report = await both(world, text)
    assert report.status == "COMPLETED"
    assert [each["index"] for each in report.result["failed"]] == [1]
    assert report.result["outputs"] == [{"attempt": 1}, None, {"attempt": 1}, {"attempt": 1}]


@pytest.mark.parametrize("on_failure", ["finish_running", "cancel_running", "continue"])
async def test_nodes_after_a_failure_follow_the_workflow_file(world: World, on_failure: str):
    # No wait is this long, unless the failure stops nothing.
    seconds = 0.05 if on_failure == "continue" else 600
    text = f"""
name: rest
on_failure: {on_failure}
nodes:
  bad: {{handler: fail, params: {{permanent: true}}, next: after}}
  after: {{handler: echo}}
  good: {{type: wait, seconds: {seconds}, next: more}}
  more: {{handler: echo}}
"""
    report = await both(world, text)
    assert report.status == "FAILED"
    assert report.nodes["after"]["status"] == "SKIPPED"
    assert report.nodes["more"]["status"] == ("COMPLETED" if on_failure == "continue" else "SKIPPED")


async def test_a_source_that_is_no_list_fails_the_fan_out_with_what_it_is(world: World):
    text = "{name: n, nodes: {a: {handler: echo, params: {n: 7}, next: fan}, fan: {type: fan_out, source: '{{ nodes.a.output.echoed_params.n }}', task: {handler: echo}}}}"
    report = await both(world, text)
    assert report.status == "FAILED"
    assert "7" in report.nodes["fan"]["error"]["message"]


async def test_an_expression_that_fails_at_run_time_fails_the_node_with_its_path(world: World):
    text = '{name: n, nodes: {a: {handler: echo, params: {n: 7}, next: b}, b: {handler: echo, params: {deep: ["{{ nodes.a.output.echoed_params.m }}"]}}}}'
    report = await both(world, text)
    assert report.nodes["b"]["status"] == "FAILED"
    error = report.nodes["b"]["error"]
    assert "deep" in str(error)
    assert "m" in error["message"]
