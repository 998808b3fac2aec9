"""Every invariant can be violated, and the violation is reported; a healthy job violates none."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

import pytest

from dagmaster.engine import invariants
from dagmaster.engine.invariants import INVARIANTS, violations
from dagmaster.engine.model import FanOut, Job
from dagmaster.engine.status import JobStatus, NodeStatus, SkipReason
from dagmaster.testing import Driver, a_job, approval, conditional, fan_out, group, member, task, wait

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
            empty=group(),
            clean=group("done"),
            m=member("clean"),
        )
    )
    driver.start()
    driver.succeed("done", output=[1, 2])
    driver.fail("rests")
    driver.succeed("g__0", "g__1")
    return driver.job


def fan(job: Job, node_id: str = "f") -> FanOut:
    result = job.nodes[node_id]
    assert isinstance(result, FanOut)
    return result


def stuck(job: Job) -> None:
    for node in job.nodes.values():
        node.status = NodeStatus.PENDING


def finished_with_a_deadline(job: Job) -> None:
    job.status, job.deadline_at = JobStatus.FAILED, 1.0


VIOLATIONS: dict[Callable[..., object], Callable[[Job], object]] = {
    invariants._finished_jobs_have_finished_nodes: lambda job: setattr(job, "status", JobStatus.FAILED),
    invariants._running_jobs_can_advance: stuck,
    invariants._timed_waits_have_timers: lambda job: setattr(job.nodes["pause"], "wake_at", None),
    invariants._ending_jobs_start_nothing: lambda job: setattr(job, "ending", True),
    invariants._stopping_is_ending: lambda job: setattr(job, "stopping", True),
    invariants._only_open_jobs_have_deadlines: finished_with_a_deadline,
    invariants._job_counters_are_exact: lambda job: setattr(job, "open", job.open + 1),
    invariants._skipped_nodes_have_a_reason: lambda job: setattr(
        job.nodes["b"], "skip_reason", SkipReason.NOT_TAKEN
    ),
    invariants._finished_seqs_are_unique: lambda job: setattr(
        job.nodes["done"], "finished_seq", job.nodes["route"].finished_seq
    ),
    invariants._only_active_nodes_have_timers: lambda job: setattr(job.nodes["last"], "wake_at", 1.0),
    invariants._budgets_are_within_attempts: lambda job: setattr(job.nodes["rests"], "lost_attempts", 1),
    invariants._in_flight_nodes_have_an_attempt: lambda job: setattr(job.nodes["b"], "attempt", 0),
    invariants._failed_nodes_have_an_error: lambda job: setattr(job.nodes["done"], "error", {"kind": "x"}),
    invariants._stopped_nodes_have_a_request: lambda job: setattr(job.nodes["b"], "stopped", True),
    invariants._only_conditionals_have_branches: lambda job: setattr(job.nodes["route"], "branch", "no_way"),
    invariants._upstream_is_a_leaf: lambda job: setattr(job.nodes["b"], "upstream", "route"),
    invariants._settled_gates_move_their_node: lambda job: setattr(
        job.nodes["b"], "status", NodeStatus.PENDING
    ),
    invariants._gates_are_wired: lambda job: job.own_graph().wiring.gates.pop("last"),
    invariants._completed_groups_have_finished_members: lambda job: setattr(
        job.nodes["clean"], "status", NodeStatus.COMPLETED
    ),
    invariants._groups_wait_for_their_members: lambda job: job.own_graph().specs.update(  # type: ignore[attr-defined]
        m=replace(job.graph.specs["m"], group="empty")
    ),
    invariants._children_are_indexed: lambda job: fan(job).children.reverse(),
    invariants._fan_out_counters_are_exact: lambda job: setattr(fan(job), "active", 1),
    invariants._cursor_skips_no_pending_child: lambda job: setattr(fan(job), "cursor", 3),
    invariants._completed_fan_outs_have_finished_children: lambda job: setattr(
        fan(job, "g").children[0], "status", NodeStatus.CANCELLED
    ),
    invariants._finished_fan_outs_have_no_open_children: lambda job: setattr(
        fan(job), "status", NodeStatus.FAILED
    ),
    invariants._active_children_have_a_running_fan_out: lambda job: setattr(
        fan(job), "status", NodeStatus.PENDING
    ),
    invariants._max_parallel_is_respected: lambda job: setattr(
        fan(job).children[2], "status", NodeStatus.DISPATCHED
    ),
    invariants._no_slot_stays_free: lambda job: setattr(fan(job), "active", 0),
    invariants._stopped_fan_outs_start_nothing: lambda job: setattr(fan(job), "stopped", True),
    invariants._dormant_children_are_superseded: lambda job: setattr(fan(job, "g"), "expanded", 1),
    invariants._added_nodes_are_superseded_together: lambda job: setattr(
        job.nodes["b"], "skip_reason", SkipReason.SUPERSEDED
    ),
}


def test_a_healthy_job_violates_no_invariant():
    assert violations(a_healthy_job()) == []


def test_every_invariant_is_violated_below():
    assert [check for _, check in INVARIANTS] == list(VIOLATIONS)


@pytest.mark.parametrize(("sentence", "check"), INVARIANTS, ids=[check.__name__ for _, check in INVARIANTS])
def test_a_violation_is_reported_with_the_sentence_of_its_invariant(sentence, check):
    job = a_healthy_job()
    VIOLATIONS[check](job)
    assert any(violation.startswith(f"{sentence} Violated by: ") for violation in violations(job))
