"""Whatever is resumed with whatever inputs: it ends as if it had been run from the beginning, and runs what it must.

The handlers of these worlds leave something behind that no output shows, as one does that writes a file: what a node
left depends on its params and on what all before it left. A result is stale if that is another.
"""

from __future__ import annotations

import asyncio
import json
import zlib
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from hypothesis import given
from hypothesis import strategies as st

from dagmaster.authoring.compiler.compile import compile_text
from dagmaster.engine.events import BacklogDue, EngineEvent, JobStarted, TaskFailed, TaskSucceeded, TimerFired
from dagmaster.engine.model import FanOut, Job, Node
from dagmaster.engine.status import TERMINAL_JOB, NodeStatus
from dagmaster.orchestrator.expression_scopes import ExpressionScopes
from dagmaster.orchestrator.result_reuse import ResultReuse
from dagmaster.orchestrator.turn import run_turn
from dagmaster.ports.reusable_results import KnownHandlers, SourceJob, SourceNode
from tests.unit.engine.engine_proof import batches_of
from tests.unit.engine.random_workflows import Chance, Seeded, happens, pick
from tests.unit.orchestrator.turn_rows import TurnRows

if TYPE_CHECKING:
    from collections.abc import Collection, Mapping

    from dagmaster.engine.graph import Graph
    from dagmaster.orchestrator.turn import ResolvedTask

BOOM = {"kind": "error", "message": "boom"}


@dataclass
class Lived:
    """A job that is over: what ran in it, and what each node left behind."""

    job: Job
    store: TurnRows
    ran: list[str] = field(default_factory=list)
    left: dict[str, Any] = field(default_factory=dict)
    reused: dict[str, str] = field(default_factory=dict)
    versions: list[str] = field(default_factory=lambda: ["1"])
    """Of the handler: the one that is found first, and what is deployed each time after it is asked for."""

    def ends(self) -> dict[str, Any]:
        """How each node ended, with what it gave and left."""
        outputs = self.store.jobs[self.job.id].outputs
        return {
            node.id: (node.status, node.branch, outputs.get(node.id), self.left.get(node.id))
            for node in self.job.nodes.values()
        }

    def past(self) -> SourceJob:
        done = [node for node in self.job.nodes.values() if node.status is NodeStatus.COMPLETED]
        nodes = [SourceNode(n.id, n.fingerprint, n.handler_version, n.attempt) for n in done if n.fingerprint]
        return SourceJob(self.job.id, nodes)

    async def known_handlers(self) -> KnownHandlers:
        now, *later = self.versions
        self.versions = later or [now]
        return KnownHandlers({"h": frozenset({now})})

    async def load_source_outputs(self, job_id: str, nodes: Collection[SourceNode]) -> Mapping[str, Any]:
        return {node.node_id: self.store.jobs[job_id].outputs[node.node_id] for node in nodes}


def live(
    graph: Graph,
    inputs: dict[str, Any],
    *,
    name: str = "1",
    after: Lived | None = None,
    redo: tuple[str, ...] = (),
    salt: int = 0,
    version: str = "1",
    deploys: tuple[str, ...] = (),
) -> Lived:
    """Run a job to its end; with `after`, as the one that is resumed from that."""
    job, store = Job(name, graph), TurnRows()
    store.add(job)
    lived = Lived(job, store)
    past = None
    if after is not None:
        after.versions = [version, *deploys]
        past = after.past()
    reuse = ResultReuse(job, inputs, source=past, reusable=after, redo=redo)  # type: ignore[arg-type]
    asyncio.run(_lived(lived, inputs, reuse, after, salt, version))
    return lived


async def _lived(  # noqa: PLR0917 - what a life is lived with
    lived: Lived, inputs: dict[str, Any], reuse: ResultReuse, after: Lived | None, salt: int, version: str
) -> None:
    job, store = lived.job, lived.store
    events: list[EngineEvent] = [JobStarted()]
    reported: dict[tuple[str, int], Any] = {}
    while events:
        scopes = ExpressionScopes(job, inputs, {})
        writes = await run_turn(
            job, events, reported=reported, scopes=scopes, values=store, now=0.0, reuse=reuse
        )
        store.save(job, writes)
        for decision in writes.decisions:
            source = getattr(decision, "reused", None)
            if source is not None and after is not None:
                lived.reused[decision.node] = source.node  # type: ignore[union-attr, index]
                lived.left[decision.node] = after.left[source.node]  # type: ignore[union-attr, index]
        events, reported = [], {}
        for task in writes.tasks:
            lived.ran.append(task.node)
            lived.left[task.node] = zlib.crc32(
                repr((task.params, before(lived, job.nodes[task.node]))).encode()
            )
            events.append(outcome(task, salt, version))
            reported[task.node, task.attempt] = {"n": zlib.crc32(task.text.encode()) % 3, "l": [1, 2]}
        events += [
            TimerFired(n.id) for n in job.nodes.values() if isinstance(n, FanOut) and n.wake_at is not None
        ]
        events += [BacklogDue()] if job.backlog else []
    assert job.status in TERMINAL_JOB


def before(lived: Lived, node: Node) -> list[Any]:
    """Return the results of everything upstream of a node, at any distance."""
    collected: list[Any] = []
    for leaf, _ in sorted(lived.job.leaves(node.top.id), key=lambda each: each[0].node):
        other = lived.job.nodes[leaf.node]
        children = other.children[: other.expanded] if isinstance(other, FanOut) else []
        mine = lived.left.get(other.id) if other.status is NodeStatus.COMPLETED else None
        collected.append((other.id, mine, [(c.status.value, lived.left.get(c.id)) for c in children]))
        if mine is None and not children:
            collected.append(before(lived, other))
    return collected


def outcome(task: ResolvedTask, salt: int, version: str) -> EngineEvent:
    """Return the same outcome for the same task."""
    if zlib.crc32(f"{salt} {task.node.partition('__')[0]} {task.text}".encode()) % 7 == 0:
        return TaskFailed(task.node, task.attempt, BOOM, permanent=True)
    return TaskSucceeded(task.node, task.attempt, version)


def a_workflow(chance: Chance) -> Graph:
    """Tasks, fan-outs, folds and branches in some order, with params from inputs and from what is before."""
    nodes: dict[str, Any] = {}
    for number in range(chance.number(1, 7)):
        names = [name for name in nodes if "_" not in name]
        after = sorted({pick(chance, names) for _ in range(chance.number(0, 2))}) if names else []
        node: dict[str, Any] = {"depends_on": after} if after else {}
        tasks = [
            name for name in after if nodes[name].get("handler") and not nodes[name].get("allow_failure")
        ]
        params = {"i": pick(chance, ["{{ inputs.x }}", "{{ inputs.y }}", 1])}
        if tasks and happens(chance, 60):
            params["n"] = f"{{{{ nodes.{pick(chance, tasks)}.output.n }}}}"
        task = {"handler": "h", "queue": "q", "retry": "none"}
        kind = chance.number(0, 9)
        if kind >= 7:
            sources: list[Any] = ["{{ inputs.l }}", [3, 4]]
            if tasks:
                sources.append(f"{{{{ nodes.{tasks[0]}.output.l }}}}")
            child = {**task, "params": {"item": "{{ item }}", "i": params["i"]}}
            tolerate = pick(chance, [0, 1])
            node |= {
                "type": "fan_out",
                "source": pick(chance, sources),
                "task": child,
                "tolerate_failures": tolerate,
            }
        elif kind == 6 and after:
            node |= {"type": "fan_in", "aggregation": "collect"}
        else:
            node |= {**task, "params": params}
            if happens(chance, 15):
                node["allow_failure"] = True
        nodes[f"n{number}"] = node
    document = {
        "name": "random",
        "on_failure": "continue",
        "inputs": {"x": {"type": "integer"}, "y": {"type": "integer"}, "l": {"type": "array"}},
        "nodes": nodes,
    }
    return compile_text(json.dumps(document)).graph


def some_inputs(chance: Chance) -> dict[str, Any]:
    return {
        "x": chance.number(0, 1),
        "y": chance.number(0, 1),
        "l": [chance.number(0, 3) for _ in range(chance.number(0, 3))],
    }


@given(seed=st.integers(0, 2**32))
def test_the_same_again_runs_exactly_what_did_not_complete(seed):
    chance = Seeded(seed)
    graph, inputs, salt = a_workflow(chance), some_inputs(chance), chance.number(0, 99)
    first = live(graph, inputs, salt=salt)
    again = live(graph, inputs, name="2", after=first, salt=salt)
    failed = {node_id for node_id in first.ran if first.job.nodes[node_id].status is not NodeStatus.COMPLETED}
    # Two children of one list that are the same are the same.
    assert set(again.ran) == failed
    assert again.ends() == first.ends()


@given(seed=st.integers(0, 2**32))
def test_a_resumed_job_ends_as_one_that_was_run_from_the_beginning(seed):
    chance = Seeded(seed)
    graph, other = a_workflow(chance), a_workflow(chance)
    graph = graph if happens(chance, 30) else other
    salt, version = chance.number(0, 99), pick(chance, ["1", "1", "2"])
    with batches_of(2):
        first = live(pick(chance, [graph, other]), some_inputs(chance), salt=salt)
        inputs = some_inputs(chance)
        again = live(graph, inputs, name="2", after=first, salt=salt, version=version)
        third = live(graph, inputs, name="3", after=again, salt=salt, version=version)
        fresh = live(graph, inputs, name="4", salt=salt, version=version)
    assert again.ends() == fresh.ends() == third.ends()
    assert set(again.ran) | set(again.reused) == set(fresh.ran)
    if version != "1":
        assert not again.reused


@given(seed=st.integers(0, 2**32))
def test_what_is_named_runs_with_all_that_follows_and_nothing_else_does(seed):
    chance = Seeded(seed)
    graph, inputs = a_workflow(chance), some_inputs(chance)
    first = live(graph, inputs, salt=-1)
    named = pick(chance, list(graph.specs))
    again = live(graph, inputs, name="2", after=first, redo=(named,), salt=-1)
    follow, pending = {named}, [named]
    while pending:
        for dependent in graph.wiring.dependents.get(pending.pop(), ()):
            if dependent.node not in follow:
                follow.add(dependent.node)
                pending.append(dependent.node)
    failed = {node_id for node_id in first.ran if first.job.nodes[node_id].status is not NodeStatus.COMPLETED}
    expected = {node_id for node_id in first.ran if node_id.partition("__")[0] in follow} | failed
    assert set(again.ran) == expected


def test_what_starts_after_a_deploy_is_made_again_whatever_was_so_when_the_job_began():
    task = {"handler": "h", "queue": "q"}
    nodes = {"a": task, "b": {**task, "depends_on": ["a"]}, "c": {**task, "depends_on": ["b"]}}
    graph = compile_text(json.dumps({"name": "chain", "nodes": nodes})).graph
    first = live(graph, {})
    assert first.ran == ["a", "b", "c"]
    again = live(graph, {}, name="2", after=first, deploys=("2",))
    assert (list(again.reused), again.ran) == (["a"], ["b", "c"])
    back = live(graph, {}, name="3", after=first, version="2", deploys=("1",))
    assert (list(back.reused), back.ran) == ([], ["a", "b", "c"])
