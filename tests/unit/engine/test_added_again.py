"""Random histories of jobs whose tasks add nodes and are run again: nothing is stuck, and a reload changes nothing."""

from __future__ import annotations

import random
from dataclasses import replace
from typing import TYPE_CHECKING, Any

import pytest

from dagmaster.engine.events import NodesAdded, TaskSucceeded
from dagmaster.engine.invariants import violations
from dagmaster.engine.status import TERMINAL_JOB, JobStatus, NodeStatus
from dagmaster.testing import Driver, a_job, a_spec, fan_in, fan_out, group, member, nodes_added, wait

if TYPE_CHECKING:
    from dagmaster.engine.growth import NodeBatch
    from dagmaster.engine.model import Job

NAMES = [f"n{number}" for number in range(5)]
GROUPS = ["g0", "g1"]
STEPS = 40


class History:
    """A job to which drawn things happen. Adders use the same names, and refer to each other's nodes."""

    def __init__(self, seed: int) -> None:
        self.rng = random.Random(seed)
        on_failure = self.rng.choice(["continue", "finish_running"])
        self.driver = Driver(
            a_job(
                on_failure=on_failure, a="", b="", slow="", c="a", r="slow", last="c r", sg=group("a"), m=member("sg"),
                f=fan_out([1, 2], after="b"),
            )
        )  # fmt: skip
        self.driver.start()

    def batch(self, adder: str) -> NodeBatch:
        rng, nodes = self.rng, dict[str, Any]()
        existing = [node.id for node in self.driver.job.nodes.values() if node.parent is None]
        if rng.random() < 0.4:
            nodes[rng.choice(GROUPS)] = group(rng.choice(["", "a", "slow", "a slow"]))
        for name in rng.sample(NAMES, rng.randint(1, 3)):
            after = " ".join(dict.fromkeys(rng.sample([*existing, *nodes], rng.randint(0, 2))))
            kind = rng.random()
            made = (
                fan_in(after)
                if kind < 0.15 and after
                else wait(signal="go", after=after)
                if kind < 0.25
                else after
            )
            groups = [one for one in (*nodes, *existing) if one in GROUPS or one == "sg"]
            nodes[name] = member(rng.choice(groups), made) if groups and rng.random() < 0.4 else made
        links = {rng.choice(["last", "r", "c"]): rng.choice(list(nodes))} if rng.random() < 0.4 else None
        specs = [replace(a_spec(node_id, node), added_by=adder) for node_id, node in nodes.items()]
        return nodes_added(*specs, links=links).batch

    def step(self) -> None:
        driver, rng = self.driver, self.rng
        job = driver.job
        if job.status in TERMINAL_JOB:
            driver.resume(*rng.sample(sorted(job.nodes), rng.randint(0, 2)))
            return
        running = driver.dispatched()
        match rng.random() if running else 1.0:
            case chance if chance < 0.35:
                node = rng.choice(running)
                driver.apply(TaskSucceeded(node, job.nodes[node].attempt, added=self.batch(node)))
            case chance if chance < 0.5:
                node = rng.choice(running)
                driver.apply(NodesAdded(self.batch(node), node))
            case chance if chance < 0.8:
                driver.succeed(rng.choice(running))
            case chance if chance < 0.9:
                driver.fail(rng.choice(running), permanent=True)
            case chance if chance < 0.93:
                driver.cancel()
            case _:
                driver.signal("go")

    def check(self) -> None:
        job, rebuilt = self.driver.job, self.driver.rebuild()
        assert violations(job) == []
        assert violations(rebuilt) == []
        assert (open_gates(job), job.open, job.failed) == (open_gates(rebuilt), rebuilt.open, rebuilt.failed)
        is_waiting = any(
            node.status is NodeStatus.WAITING or node.wake_at is not None for node in job.nodes.values()
        )
        assert job.status is not JobStatus.RUNNING or self.driver.dispatched() or is_waiting, (
            "nothing would end it"
        )
        if self.rng.random() < 0.15:
            self.driver.job = rebuilt


def open_gates(job: Job) -> dict[str, list[int]]:
    return {
        node_id: list(counts)
        for node_id, counts in job.counts.items()
        if any(counts) and job.nodes[node_id].status is NodeStatus.PENDING
    }


@pytest.mark.parametrize(
    "seed", [*range(150), pytest.param(896, id="a node of this run in a superseded group")]
)
def test_nodes_that_are_added_again_neither_block_nor_differ_after_a_reload(seed: int):
    history = History(seed)
    for _ in range(STEPS):
        history.step()
        history.check()
