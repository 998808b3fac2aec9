"""A turn: events in, everything that is to be written out."""

from __future__ import annotations

import asyncio
from typing import Any

from dagmaster.authoring.compiler.compile import compile_text
from dagmaster.engine.advance import advance
from dagmaster.engine.events import EngineEvent, JobStarted, TaskSucceeded
from dagmaster.engine.expressions.secret_parts import SecretText
from dagmaster.engine.model import Job
from dagmaster.orchestrator.expression_scopes import ExpressionScopes
from dagmaster.orchestrator.turn import TurnResult, recover, run_turn
from tests.unit.orchestrator.turn_rows import TurnRows


class TurnHarness:
    """A job, its store, and what loads there were."""

    def __init__(self, text: str, inputs: dict[str, Any] | None = None) -> None:
        self.store = TurnRows()
        self.inputs = inputs or {}
        self.job = Job("1", compile_text(text).graph)
        self.store.add(self.job)
        self.loads: list[set[Any]] = []

    async def load_outputs(self, job_id: str, node_ids: Any) -> Any:
        self.loads.append(set(node_ids))
        return await self.store.load_outputs(job_id, node_ids)

    async def load(self, job_id: str, keys: Any) -> Any:
        self.loads.append(set(keys))
        return await self.store.load(job_id, keys)

    async def resolve_value(self, value: Any) -> Any:
        return await self.store.resolve_value(value)

    async def blob_bytes(self, job_id: str, node_ids: Any, reported: Any = ()) -> int:
        return await self.store.blob_bytes(job_id, node_ids, reported)

    def turn(self, *events: EngineEvent, reported: dict[tuple[str, int], Any] | None = None) -> TurnResult:
        scopes = ExpressionScopes(self.job, self.inputs, {})
        work = run_turn(self.job, events, reported=reported or {}, scopes=scopes, values=self, now=0.0)
        writes = asyncio.run(work)
        self.store.save(self.job, writes)
        return writes


FAN = """
name: fan
nodes:
  plan: {handler: h, queue: q, next: work}
  work: {type: fan_out, source: "{{ nodes.plan.output.items }}", task: {handler: h, queue: q, params: {i: "{{ item }}", n: "{{ nodes.plan.output.n }}"}}, next: all}
  all: {type: fan_in, aggregation: sum, next: last}
  last: {handler: h, queue: q, params: {total: "{{ nodes.all.output.total }}"}}
"""


def test_a_turn_loads_once_however_many_children_it_starts():
    harness = TurnHarness(FAN)
    harness.turn(JobStarted())
    writes = harness.turn(
        TaskSucceeded("plan", 1), reported={("plan", 1): {"items": list(range(500)), "n": 7}}
    )
    assert [task.params for task in writes.tasks] == [{"i": i, "n": 7} for i in range(500)]
    assert len(harness.loads) <= 2


def test_what_a_turn_itself_decided_is_there_for_the_nodes_after_it():
    harness = TurnHarness(FAN)
    harness.turn(JobStarted())
    harness.turn(TaskSucceeded("plan", 1), reported={("plan", 1): {"items": [1, 2], "n": 0}})
    both = {("work__0", 1): {"v": 1}, ("work__1", 1): {"v": 2}}
    writes = harness.turn(TaskSucceeded("work__0", 1), TaskSucceeded("work__1", 1), reported=both)
    assert writes.outputs["all"] == {"total": 3, "count": 2}
    assert [(task.node, task.params) for task in writes.tasks] == [("last", {"total": 3})]


def test_an_output_becomes_real_only_if_the_engine_takes_it():
    harness = TurnHarness("{name: n, nodes: {a: {handler: h, queue: q}}}")
    harness.turn(JobStarted())
    writes = harness.turn(TaskSucceeded("a", 2), reported={("a", 2): {"stale": True}})
    assert writes.outputs == {}
    assert harness.store.jobs["1"].outputs == {}


def test_a_job_that_was_loaded_in_the_middle_is_taken_up():
    harness = TurnHarness(FAN)
    advance(harness.job, JobStarted(), 0.0)
    harness.store.jobs["1"].outputs["plan"] = {"items": [5], "n": 1}
    # The process dies after the engine asked for values and before anybody answered.
    advance(harness.job, TaskSucceeded("plan", 1), 0.0)
    writes = TurnResult(changed=harness.job.drain_changed())
    harness.store.save(harness.job, writes)
    harness.store.jobs["1"].outputs["plan"] = {"items": [5], "n": 1}
    harness.job = harness.store.rebuild("1")
    scopes = ExpressionScopes(harness.job, {}, {})
    taken = asyncio.run(recover(harness.job, scopes=scopes, values=harness, now=0.0))
    assert [(task.node, task.params) for task in taken.tasks] == [("work__0", {"i": 5, "n": 1})]


def test_a_secret_leaves_the_orchestrator_as_a_name():
    harness = TurnHarness(
        "{name: n, nodes: {a: {handler: h, queue: q, params: {t: 'Bearer {{ secrets.TOKEN }}'}}}}"
    )
    (task,) = harness.turn(JobStarted()).tasks
    assert isinstance(task.params["t"], SecretText)
