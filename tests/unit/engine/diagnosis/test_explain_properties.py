"""Whatever happens to a job: each of its nodes has a reason, each chain of causes has an end, and the job has one, too."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from dagmaster.engine.diagnosis.context import ChildJob, DiagnosisContext, InFlightTask, QueueState, Service
from dagmaster.engine.diagnosis.explain import THE_JOB, Why
from dagmaster.engine.diagnosis.reasons import ReasonCode
from dagmaster.engine.model import FanOut
from dagmaster.engine.status import TERMINAL_JOB, JobStatus, NodeStatus
from tests.unit.engine.engine_proof import Proof, batches_of
from tests.unit.engine.random_workflows import Chance, Drawn, Seeded, Workflows, pick

OF_OPEN = frozenset(
    {
        ReasonCode.NO_WORKER, ReasonCode.APPROVAL, ReasonCode.SIGNAL, ReasonCode.WORKER_DIED, ReasonCode.WORKER_SILENT,
        ReasonCode.RETRY, ReasonCode.STOPPING, ReasonCode.CHILD_JOB, ReasonCode.RUNNING,
        ReasonCode.CLAIMED, ReasonCode.QUEUED, ReasonCode.REPORTED, ReasonCode.DECIDING, ReasonCode.WAIT_UNTIL,
        ReasonCode.CHILDREN, ReasonCode.MAX_PARALLEL, ReasonCode.NODES, ReasonCode.NOT_STARTED,
    }
)  # fmt: skip
OF_JOBS = frozenset(code for code in ReasonCode if code.value.startswith(("job_", "owner_"))) | {
    ReasonCode.NO_ORCHESTRATOR, ReasonCode.NO_OWNER, ReasonCode.ADVANCE_FAILED,
}  # fmt: skip
OF_OVER = frozenset(ReasonCode) - OF_OPEN - OF_JOBS
BY_STATUS = {
    NodeStatus.COMPLETED: {ReasonCode.COMPLETED},
    NodeStatus.CANCELLED: {ReasonCode.CANCELLED, ReasonCode.FAN_OUT_STOPPED},
}


class ExplainedProof(Proof):
    """A proof that asks for every reason after every step."""

    chance: Chance

    def step(self, event: Any, output: Any = None) -> Any:
        decided = super().step(event, output)
        check(Why(self.driver.rebuild(), surroundings(self, self.chance)), self.needs.keys())
        return decided


def surroundings(proof: Proof, chance: Chance) -> DiagnosisContext:
    """Return a possible context of a job: every task in a queue, at a worker, or reported."""
    now = proof.driver.now
    tasks: dict[str, InFlightTask] = {}
    children: dict[str, ChildJob] = {}
    for node in proof.job.nodes.values():
        if node.status is NodeStatus.DISPATCHED:
            place = chance.number(0, 4)
            silent = pick(chance, [0.0, 4.0, 9.0])
            worker = (
                Service(id="3", where="h:3", silent_seconds=silent, lease_seconds=6.0) if place > 1 else None
            )
            if place:
                started_at = pick(chance, [now, None])
                tasks[node.id] = InFlightTask(
                    queue="default", dispatched_at=now, worker=worker, claimed_at=now, started_at=started_at
                )
        elif node.status is NodeStatus.RUNNING and not isinstance(node, FanOut):
            children[node.id] = ChildJob(id="7", status=pick(chance, ["PENDING", "RUNNING", "COMPLETED"]))
    owner = Service(id="1", where="h:1", silent_seconds=pick(chance, [0.0, 9.0, 20.0]), lease_seconds=15.0)
    return DiagnosisContext(
        now=now,
        owner=pick(chance, [owner, owner, None]),
        orchestrators=chance.number(0, 1),
        tasks=tasks,
        child_jobs=children,
        queues={"default": QueueState(workers=chance.number(0, 1), slots=4)},
        outputs=proof.driver.outputs,
    )


def check(why: Why, needs: Any) -> None:
    for node in why.job.nodes.values():
        reason = why.reason_for(node.id)
        assert reason.sentence
        assert reason.code in (OF_OVER if node.is_terminal else OF_OPEN), (node.id, node.status, reason)
        assert reason.code in BY_STATUS.get(node.status, ReasonCode), (node.id, node.status, reason)
        assert all(each in why.job.nodes and each != node.id for each in reason.because)
        assert "__start" not in reason.sentence
        if reason.code is ReasonCode.DECIDING and node.status is NodeStatus.READY:
            # What the owner is said to decide is what it was asked for.
            assert node.id in needs
        # Nothing waits for what is over.
        if reason.code is ReasonCode.NODES:
            assert not any(why.job.nodes[each].is_terminal for each in reason.because)
        links = why.chain(node.id)
        root = links[-1] if links[-1].subject != THE_JOB else links[-2]
        assert not root.reason.because
        assert len({link.subject for link in links}) == len(links)
    head = why.head()
    assert head.sentence
    assert sum(group.count for group in why.groups()) == sum(1 for _ in why.nodes())
    if why.job.status in TERMINAL_JOB:
        assert head.code in OF_JOBS
    elif why.job.status is JobStatus.RUNNING and why.blocked() is None and not why.job.ending:
        assert head.code in OF_OPEN


def live(chance: Chance, steps: int) -> None:
    workflows = Workflows(chance)
    graph = workflows.graph()
    batch = pick(chance, [2, 3, 5000])
    with batches_of(batch):
        proof = ExplainedProof(graph, workflows.specs, batch=batch)
        proof.chance = chance
        check(Why(proof.job, surroundings(proof, chance)), ())
        proof.live(chance, steps=steps)
        proof.live_to_the_end(chance)


@given(data=st.data())
def test_every_node_of_a_small_job_has_a_reason_at_every_step(data):
    chance = Drawn(data)
    live(chance, steps=chance.number(1, 20))


@pytest.mark.slow
@given(seed=st.integers(0, 2**32))
def test_every_node_of_a_large_job_has_a_reason_at_every_step(seed):
    live(Seeded(seed), steps=40)
