"""Every promise can be broken, and is then told; a healthy job breaks none."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from dagmaster.engine import invariants as promises
from dagmaster.engine.invariants import PROMISES, violations
from dagmaster.engine.model import FanOut, Job
from dagmaster.engine.status import JobStatus, NodeStatus, SkipReason
from dagmaster.testing import Driver, a_job, approval, conditional, fan_out, task, wait

if TYPE_CHECKING:
    from collections.abc import Callable


def a_healthy_job() -> Job:
    """Return a job with a node in every kind of state: done, running, waiting for a retry, waiting, and pending."""
    driver = Driver(
        a_job(
            done="",
            b="done",
            rests=task(retry=2),
            route=conditional(branches={"way": None}),
            pause=wait(seconds=5),
            ask=approval(),
            f=fan_out([1, 2, 3], max_parallel=2),
            g=fan_out("{{ nodes.done.output }}", after="done"),
            last="b f",
        )
    )
    driver.starts()
    driver.succeeds("done", output=[1, 2])
    driver.fails("rests")
    driver.succeeds("g__0", "g__1")
    return driver.job


def fan(job: Job, node_id: str = "f") -> FanOut:
    found = job.nodes[node_id]
    assert isinstance(found, FanOut)
    return found


def stuck(job: Job) -> None:
    for node in job.nodes.values():
        node.status = NodeStatus.PENDING


def over_with_a_deadline(job: Job) -> None:
    job.status, job.deadline_at = JobStatus.FAILED, 1.0


BROKEN: dict[Callable[..., object], Callable[[Job], object]] = {
    promises.over_means_all_over: lambda job: setattr(job, "status", JobStatus.FAILED),
    promises.something_can_happen: stuck,
    promises.every_pause_ends: lambda job: setattr(job.nodes["pause"], "wake_at", None),
    promises.ending_starts_nothing: lambda job: setattr(job, "ending", True),
    promises.stopping_is_ending: lambda job: setattr(job, "stopping", True),
    promises.only_open_jobs_have_deadlines: over_with_a_deadline,
    promises.job_counters_are_exact: lambda job: setattr(job, "open", job.open + 1),
    promises.skipped_for_a_reason: lambda job: setattr(job.nodes["b"], "skip_reason", SkipReason.NOT_TAKEN),
    promises.finished_once: lambda job: setattr(job.nodes["done"], "finished_seq", job.nodes["route"].finished_seq),
    promises.only_open_nodes_wake: lambda job: setattr(job.nodes["last"], "wake_at", 1.0),
    promises.budgets_are_attempts: lambda job: setattr(job.nodes["rests"], "lost_attempts", 1),
    promises.held_means_an_attempt: lambda job: setattr(job.nodes["b"], "attempt", 0),
    promises.failed_with_an_error: lambda job: setattr(job.nodes["done"], "error", {"kind": "x"}),
    promises.branches_are_taken_by_conditionals: lambda job: setattr(job.nodes["route"], "branch", "no_way"),
    promises.upstream_is_a_leaf: lambda job: setattr(job.nodes["b"], "upstream", "route"),
    promises.settled_gates_act: lambda job: setattr(job.nodes["b"], "status", NodeStatus.PENDING),
    promises.children_have_their_places: lambda job: fan(job).children.reverse(),
    promises.fan_out_counters_are_exact: lambda job: setattr(fan(job), "active", 1),
    promises.no_child_is_passed_over: lambda job: setattr(fan(job), "cursor", 3),
    promises.completed_means_children_completed: lambda job: setattr(
        fan(job, "g").children[0], "status", NodeStatus.CANCELLED
    ),
    promises.over_fan_outs_have_no_open_children: lambda job: setattr(fan(job), "status", NodeStatus.FAILED),
    promises.children_wait_for_their_fan_out: lambda job: setattr(fan(job), "status", NodeStatus.PENDING),
    promises.max_parallel_holds: lambda job: setattr(fan(job).children[2], "status", NodeStatus.DISPATCHED),
    promises.no_place_stays_free: lambda job: setattr(fan(job), "active", 0),
    promises.stopped_fan_outs_start_nothing: lambda job: setattr(fan(job), "stopped", True),
    promises.dormant_children_are_superseded: lambda job: setattr(fan(job, "g"), "expanded", 1),
}


def test_a_healthy_job_breaks_no_promise():
    assert violations(a_healthy_job()) == []


def test_every_promise_is_broken_below():
    assert [check for _, check in PROMISES] == list(BROKEN)


@pytest.mark.parametrize("check", BROKEN, ids=[check.__name__ for check in BROKEN])
def test_a_broken_promise_is_told_in_its_own_words(check):
    job = a_healthy_job()
    BROKEN[check](job)
    assert any(said.startswith(f"{check.__doc__} Not so: ") for said in violations(job))
