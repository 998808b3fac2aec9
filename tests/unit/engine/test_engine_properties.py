"""Whatever happens, in whatever order: the engine does what the documents say, and a reload changes nothing."""

from __future__ import annotations

import zlib
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from dagmaster.engine import events as ev
from dagmaster.engine.graph import ApprovalSpec, Graph, TaskSpec, WaitSpec, WorkflowSpec
from dagmaster.engine.model import Job, Node
from dagmaster.engine.status import TERMINAL_JOB, JobStatus, NodeStatus
from dagmaster.testing import Driver
from tests.unit.engine.engine_proof import Proof, batches_of
from tests.unit.engine.random_workflows import AT, BOOM, Chance, Drawn, Seeded, Workflows, pick


@given(data=st.data())
def test_every_history_is_one_that_the_documents_allow(data):
    """Small worlds, which shrink well."""
    chance = Drawn(data)
    live_a_life(chance, steps=chance.number(1, 30))


@pytest.mark.slow
@given(seed=st.integers(0, 2**32))
def test_every_long_history_is_one_that_the_documents_allow(seed):
    """Large worlds from a seed: many more steps a second than hypothesis can draw."""
    for part in range(4):
        live_a_life(Seeded(seed * 4 + part), steps=60)


def live_a_life(chance: Chance, *, steps: int) -> None:
    """Run a random history, compare it with the reference at every step, and continue to the end of the job."""
    workflows = Workflows(chance)
    graph = workflows.graph()
    batch = pick(chance, [2, 3, 5000])
    with batches_of(batch):
        proof = Proof(graph, workflows.specs, batch=batch)
        proof.live(chance, steps=steps)
        proof.live_to_the_end(chance)


# ── Confluence ──────────────────────────────────────────────────────────────────────────────────────────────────────


@given(data=st.data(), salt=st.integers(0, 1000), seed=st.integers(0, 2**32))
def test_the_order_of_reports_does_not_change_how_a_job_ends(data, salt, seed):
    """Each node has its fate. Nothing but the order differs, so nothing but the order may."""
    graph = Workflows(Drawn(data), orderly=True).graph()
    with batches_of(2):
        ends = [fates_in_some_order(graph, salt, Seeded(seed + turn)) for turn in range(3)]
    assert ends[0] == ends[1] == ends[2]


def fates_in_some_order(graph: Graph, salt: int, chance: Chance) -> dict[str, Any]:
    driver = Driver(Job("job", graph))
    driver.start()
    while driver.job.status not in TERMINAL_JOB:
        options = [result for node in driver.job.nodes.values() if (result := fate(node, salt)) is not None]
        event, output = pick(chance, options)
        if isinstance(event, ev.TimerFired) and event.node is not None:
            driver.now = max(driver.now, driver.job.nodes[event.node].wake_at or 0.0)
        driver.apply(event, output=output)
    ended: dict[str, Any] = {
        node.id: (node.status, node.skip_reason, node.branch) for node in driver.job.nodes.values()
    }
    return ended | {"the job": driver.job.status}


def fate(node: Node, salt: int) -> tuple[ev.EngineEvent, Any] | None:
    """Return the next event of this node: always the same for the same node."""
    luck = zlib.crc32(f"{salt} {node.id}".encode())
    output = {"n": luck % 4, "l": list(range(luck % 3))}
    spec = node.spec
    if node.wake_at is not None:
        return ev.TimerFired(node.id), None
    if node.status is NodeStatus.DISPATCHED and isinstance(spec, TaskSpec):
        if luck % 5 == 0:
            return ev.TaskFailed(node.id, node.attempt, BOOM, permanent=luck % 2 == 0), None
        return ev.TaskSucceeded(node.id, node.attempt), output
    if node.status is NodeStatus.RUNNING and isinstance(spec, WorkflowSpec):
        return ev.ChildJobFinished(
            node.id, node.attempt, JobStatus.FAILED if luck % 5 == 0 else JobStatus.COMPLETED, output
        ), None
    if node.status is NodeStatus.WAITING and isinstance(spec, ApprovalSpec):
        answer = ev.Rejected if luck % 3 == 0 else ev.Approved
        return answer(node.id, "ada", AT), None
    if node.status is NodeStatus.WAITING and isinstance(spec, WaitSpec) and spec.signal is not None:
        return ev.SignalReceived(spec.signal, {"n": 1, "l": [1]}), None
    return None
