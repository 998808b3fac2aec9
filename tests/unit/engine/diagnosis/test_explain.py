"""The reasons of nodes and jobs: one test for each reason."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

from dagmaster.engine.diagnosis.context import (
    AdvanceFailure,
    ChildJob,
    DiagnosisContext,
    FinishedAttempt,
    InFlightTask,
    QueueState,
    Service,
)
from dagmaster.engine.diagnosis.explain import Why
from dagmaster.engine.diagnosis.reasons import MEANING, ReasonCode
from dagmaster.engine.events import (
    ChildJobFinished,
    DispatchRejected,
    ResolutionFailed,
    TaskFailed,
    TaskSucceeded,
)
from dagmaster.engine.retry import RetryPolicy
from dagmaster.engine.status import EXCLUSIVE_AFTER, JobStatus, NodeStatus
from dagmaster.testing import (
    Driver,
    a_job,
    a_spec,
    all_of,
    any_of,
    approval,
    conditional,
    fan_out,
    nodes_added,
    task,
    wait,
    workflow,
)

OWNER = Service(id="1", where="h:1", silent_seconds=1.0, lease_seconds=15.0)
WORKER = Service(id="3", where="h:3", silent_seconds=1.0, lease_seconds=6.0)
ROUTE = {"small": ("< 100", "s"), "large": (None, "l")}


def started(**nodes: Any) -> Driver:
    driver = Driver(a_job(**nodes), now=1000.0)
    driver.start()
    return driver


def why(driver: Driver, **around: Any) -> Why:
    values: dict[str, Any] = {"now": driver.now, "owner": OWNER, "outputs": driver.outputs} | around
    return Why(driver.rebuild(), DiagnosisContext(**values))


def reason_of(driver: Driver, node_id: str, **around: Any) -> tuple[str, str]:
    reason = why(driver, **around).reason_for(node_id)
    return reason.code.value, reason.sentence


def a_task(**facts: Any) -> InFlightTask:
    values: dict[str, Any] = {"queue": "light", "dispatched_at": 400.0} | facts
    return InFlightTask(**values)


def at_worker(worker: Service = WORKER, **facts: Any) -> dict[str, InFlightTask]:
    return {"a": a_task(**({"worker": worker, "claimed_at": 150.0, "started_at": 160.0} | facts))}


# ── The catalogue ──


def test_every_code_has_its_meaning():
    assert set(MEANING) == set(ReasonCode)


# ── Open nodes ──


def test_a_node_of_a_job_that_has_not_started_waits_for_that():
    driver = Driver(a_job(a=""))
    assert reason_of(driver, "a") == ("not_started", "waits for the job to start")
    assert why(driver).head().sentence == "is being advanced by the job's owner: its first nodes start next"


def test_a_node_waits_for_those_before_it():
    driver = started(a="", b="a", c="b", d="a b c")
    attempt = at_worker(started_at=160.0)
    assert reason_of(driver, "b", tasks=attempt) == (
        "nodes",
        "waits for a (which has been running for 14 min on worker h:3)",
    )
    assert reason_of(driver, "c") == ("nodes", "waits for b")
    assert reason_of(driver, "d") == ("nodes", "waits for a, b and c")


@pytest.mark.parametrize("fails", [False, True])
def test_a_node_that_waits_for_a_superseded_one_names_its_stand_in(fails):
    driver = started(on_failure="continue", a="", slow="", b="slow")
    added = nodes_added(replace(a_spec("c", ""), added_by="a"), links={"b": "c"}).batch
    driver.apply(TaskSucceeded("a", 1, added=added))
    driver.succeed_all()
    driver.resume("a")
    assert reason_of(driver, "c")[1] == "was skipped: a added it in an earlier run, and ran again"
    if fails:
        driver.fail("a", permanent=True)
    assert why(driver).reason_for("b").because == ("a",)


def test_a_node_that_one_of_two_satisfies_waits_for_either():
    driver = started(a="", b="", c=any_of("a", "b"), d=any_of("a", "b"))
    assert reason_of(driver, "c") == ("nodes", "waits for a or b")


def test_a_node_does_not_wait_for_what_its_gate_no_longer_needs():
    # The inner gate is satisfied: `d` does not depend on `b` any more.
    driver = started(a="", b="", c="", d=all_of(any_of("a b"), "c"))
    driver.succeed("a")
    assert why(driver).reason_for("d").because == ("c",)


def test_a_task_in_a_queue_that_no_worker_serves():
    driver = started(a="")
    code, sentence = reason_of(driver, "a", tasks={"a": a_task()}, queues={"light": QueueState()})
    assert (code, sentence) == (
        "no_worker",
        "has been queued on light for 10 min; no live worker serves this queue",
    )


def test_a_task_in_a_queue_whose_workers_all_drain():
    driver = started(a="")
    code, sentence = reason_of(driver, "a", tasks={"a": a_task()}, queues={"light": QueueState(draining=2)})
    assert code == "no_worker"
    assert sentence.endswith("; no worker claims from this queue: all 2 live workers are draining")


def test_a_task_on_a_worker_that_drains():
    driver = started(a="")
    worker = Service(id="3", where="h:3", silent_seconds=0.0, lease_seconds=6.0, is_draining=True)
    task = a_task(worker=worker, claimed_at=150.0, started_at=160.0)
    assert reason_of(driver, "a", tasks={"a": task}) == (
        "running",
        "has been running for 14 min on worker h:3 (draining)",
    )


def test_a_job_without_owner_while_all_orchestrators_drain():
    driver = started(a="")
    context = {"owner": None, "orchestrators": 0, "draining_orchestrators": 1}
    assert why(driver, **context).head().sentence == (
        "waits for an orchestrator; the only live orchestrator is draining"
    )


def test_a_task_that_must_run_alone_waits_for_an_idle_worker():
    driver = started(a="")
    for _ in range(EXCLUSIVE_AFTER):
        driver.lose("a", alone=False)
    state = QueueState(workers=1, slots=8, busy=3)
    code, sentence = reason_of(driver, "a", tasks={"a": a_task()}, queues={"light": state})
    assert code == "exclusive"
    assert sentence == (
        "has been waiting 10 min for a worker of light that runs nothing else, since workers died that ran it next to "
        "other tasks; 1 live worker, 3 of 8 slots busy"
    )
    assert reason_of(driver, "a", tasks={"a": a_task()}, queues={"light": QueueState()})[0] == "no_worker"


def test_a_task_of_a_dead_worker_needs_a_process():
    driver = started(a="")
    driver.lose("a", alone=False)
    state = QueueState(workers=1, slots=32, busy=6, processes=6, processes_busy=6)
    _, sentence = reason_of(driver, "a", tasks={"a": a_task()}, queues={"light": state})
    assert sentence.endswith(
        "are busy (DAGMASTER_PROCESSES); needs a process, since a worker died that ran it next to other tasks"
    )


def test_a_task_behind_others_in_its_queue():
    driver = started(a="")
    state = QueueState(workers=2, slots=8, busy=8)
    code, sentence = reason_of(driver, "a", tasks={"a": a_task(queue_position=313)}, queues={"light": state})
    assert code == "queued"
    assert sentence == (
        "has been queued on light for 10 min, position 313; 2 live workers, 8 of 8 slots busy"
    )


def test_a_plain_function_that_waits_for_a_process():
    driver = started(a="")
    state = QueueState(workers=1, slots=32, busy=7, processes=6, processes_busy=6)
    _, sentence = reason_of(driver, "a", tasks={"a": a_task()}, queues={"light": state})
    assert sentence.endswith(
        "7 of 32 slots busy, and its 6 processes for plain functions are busy (DAGMASTER_PROCESSES)"
    )


def test_a_task_with_a_dispatch_timeout_says_when_it_times_out():
    driver = started(a=task(dispatch_timeout_seconds=30.0))
    assert reason_of(driver, "a", tasks={"a": a_task()})[1].endswith(
        "no live worker serves this queue; times out in 30 s"
    )


def test_a_task_that_runs_says_where_since_when_and_how_far():
    driver = started(a=task(retry=3))
    driver.fail("a")
    driver.fire_timer("a")
    progress = {"current": 2, "total": 4, "message": "tile 2"}
    code, sentence = reason_of(driver, "a", tasks=at_worker(started_at=162.0, progress=progress))
    assert (code, sentence) == ("running", "has been running for 14 min on worker h:3, attempt 2: 50% tile 2")


def test_a_claimed_task_whose_handler_has_not_started_is_not_running():
    driver = started(a="")
    code, sentence = reason_of(driver, "a", tasks=at_worker(claimed_at=997.0, started_at=None))
    assert (code, sentence) == ("claimed", "was claimed by worker h:3 3 s ago and has not started")


def test_claimed_tasks_are_a_group_of_their_own():
    driver = started(a="", b="", c="")
    tasks = {name: at_worker(started_at=None)["a"] for name in "ab"} | {"c": at_worker()["a"]}
    groups = [(group.subject, group.sentence) for group in why(driver, tasks=tasks).groups()]
    assert groups == [
        ("c", "has been running for 14 min on worker h:3"),
        ("2 nodes", "were claimed by worker h:3 and have not started"),
    ]


def test_a_task_whose_worker_died():
    driver = started(a="")
    dead = Service(id="3", where="h:3", silent_seconds=7.0, lease_seconds=6.0)
    code, sentence = reason_of(driver, "a", tasks=at_worker(dead))
    assert (code, sentence) == (
        "worker_died",
        "was held by worker h:3, which died 7 s ago; it will be retried",
    )
    _, sentence = reason_of(driver, "a", tasks=at_worker(dead, stop_requested_at=300.0))
    assert (
        sentence
        == "was held by worker h:3, which died 7 s ago; it will not be retried, since it was asked to stop"
    )


def test_it_is_not_known_when_a_worker_died_whose_registration_was_pruned():
    pruned = Service(
        id="3", where="?", silent_seconds=0.0, lease_seconds=6.0, is_over=True, is_registered=False
    )
    _, sentence = reason_of(started(a=""), "a", tasks=at_worker(pruned))
    assert sentence == "was held by worker ?, which died long ago; it will be retried"


def test_a_task_whose_worker_is_silent():
    driver = started(a="")
    silent = Service(id="3", where="h:3", silent_seconds=4.0, lease_seconds=6.0)
    code, sentence = reason_of(driver, "a", tasks=at_worker(silent))
    assert code == "worker_silent"
    assert (
        sentence
        == "is held by worker h:3, whose last heartbeat was 4 s ago; if it is dead, the task is retried in 2 s"
    )


def test_a_task_that_was_reported_waits_for_the_owner():
    driver = started(a="")
    report = FinishedAttempt(attempt=1, status="COMPLETED", at=997.0)
    code, sentence = reason_of(driver, "a", reports={"a": report})
    assert (code, sentence) == (
        "reported",
        "was reported as COMPLETED 3 s ago; the job's owner processes the report next",
    )
    assert reason_of(driver, "a")[0] == "reported"
    # The report counts, not the task that was read a moment before.
    assert reason_of(driver, "a", reports={"a": report}, tasks=at_worker())[0] == "reported"


def test_a_task_that_was_asked_to_stop():
    driver = started(a="")
    driver.cancel()
    tasks = at_worker(stop_requested_at=995.0)
    assert reason_of(driver, "a", tasks=tasks) == (
        "stopping",
        "was asked to stop 5 s ago on worker h:3 and has not stopped yet",
    )
    head = why(driver, tasks=tasks, cancelled_by="alice", cancelled_at=995.0).head()
    assert head.code is ReasonCode.JOB_CANCELLED
    assert head.sentence == "is being cancelled: alice requested it 5 s ago, and 1 node is not finished yet"


def test_a_node_that_is_being_cancelled_says_by_whom():
    driver = started(a="", w=workflow(), f=fan_out([1, 2]))
    driver.cancel_nodes("a", "w", "f")
    assert reason_of(driver, "a", tasks=at_worker(stop_requested_at=995.0)) == (
        "stopping",
        "is being cancelled by ada; was asked to stop 5 s ago on worker h:3 and has not stopped yet",
    )
    running = {"w": ChildJob(id="77", status="RUNNING")}
    assert reason_of(driver, "w", child_jobs=running) == (
        "stopping",
        "is being cancelled by ada; waits for child job 77 (running)",
    )
    assert reason_of(driver, "f")[1].startswith(
        "is being cancelled by ada; waits for its children: 0 of 2 finished"
    )


def test_a_node_that_was_cancelled_alone_says_by_whom():
    driver = Driver(a_job(on_failure="continue", a="", b="a", f=fan_out([1, 2], max_parallel=1)))
    driver.start()
    driver.cancel_nodes("a", "f")
    driver.fail("a", message="disk full")
    driver.release("f__0")
    assert reason_of(driver, "a") == ("node_cancelled", "was cancelled by ada; it ended with: disk full")
    assert reason_of(driver, "b")[1] == "was skipped: a failed"
    assert reason_of(driver, "f") == ("node_cancelled", "was cancelled by ada")
    assert reason_of(driver, "f__1") == ("fan_out_stopped", "was cancelled: f was cancelled by ada")


def test_a_task_between_two_tries_waits_for_a_retry():
    driver = started(a=task(retry=RetryPolicy(max_attempts=3, initial_delay_seconds=40, jitter=False)))
    driver.fail("a", message="Timeout")
    assert reason_of(driver, "a") == ("retry", "waits for a retry: attempt 2 of 3 in 40 s, after Timeout")


def test_an_approval_names_the_approvers_and_the_question():
    driver = started(a=approval(approvers="ada bob", timeout_seconds=120.0))
    code, sentence = reason_of(driver, "a", approval_messages={"a": "Release it?"})
    assert (code, sentence) == (
        "approval",
        "waits for approval by ada or bob: Release it?; times out in 2 min",
    )


def test_a_wait_for_a_signal_or_a_time():
    driver = started(a=wait(signal="go"), b=wait(seconds=90))
    assert reason_of(driver, "a") == ("signal", "waits for signal go")
    assert reason_of(driver, "b") == ("wait_until", "waits for another 1 min")


def test_a_node_waits_for_its_child_job_until_that_is_finished():
    driver = started(a=workflow())
    running = {"a": ChildJob(id="77", status="RUNNING")}
    assert reason_of(driver, "a", child_jobs=running) == ("child_job", "waits for child job 77 (running)")
    finished = {"a": ChildJob(id="77", status="FAILED")}
    assert reason_of(driver, "a", child_jobs=finished)[0] == "deciding"
    assert reason_of(driver, "a")[0] == "deciding"


def test_a_fan_out_waits_for_its_children_and_those_for_a_slot():
    driver = started(f=fan_out([1, 2, 3, 4], max_parallel=2))
    driver.succeed("f__0")
    reasons = why(driver, tasks={"f__1": at_worker()["a"]})
    assert (
        reasons.reason_for("f__3").sentence
        == "waits for a slot: 2 children of f are active, and max_parallel is 2"
    )
    assert reasons.reason_for("f").sentence == (
        "waits for its children: 1 of 4 finished; 1 running, 1 reported, 1 waiting for a slot"
    )
    assert reasons.reason_for("f").because[0] == "f__1"


def test_children_of_a_fan_out_that_is_opened_again_wait_for_it():
    driver = started(a="", f=fan_out([1, 2], after="a"))
    driver.succeed("a")
    # As a new run leaves them: it reopens a fan-out with its children and its upstream nodes.
    for node_id in ("a", "f", "f__0", "f__1"):
        driver.job.nodes[node_id].status = NodeStatus.PENDING
    driver.job.derive()
    result = Why(driver.job, DiagnosisContext(now=driver.now, owner=OWNER))
    assert [link.subject for link in result.chain("f__0")] == ["f__0", "f", "a"]


def test_a_node_whose_values_are_loaded_is_being_advanced():
    driver = Driver(a_job(a="", f=fan_out("{{ nodes.a.output.l }}", after="a")), now=1000.0)
    driver.start()
    driver.step(TaskSucceeded("a", 1), output={"l": [1]})
    assert reason_of(driver, "f") == ("deciding", "is being advanced by the job's owner")


# ── Finished nodes ──


def test_a_completed_task_says_where_and_how_long():
    driver = started(a="", b="a")
    driver.succeed("a")
    attempts = {"a": FinishedAttempt(attempt=1, status="COMPLETED", at=999.0, seconds=3.0, where="h:2")}
    assert reason_of(driver, "a", attempts=attempts) == ("completed", "completed on worker h:2 in 3.0 s")


def test_a_node_that_is_not_a_task_says_how_it_completed():
    driver = started(
        r=conditional("{{ nodes.a.output.n }}", ROUTE, after="a"),
        a="",
        q=approval(),
        w=workflow(),
        f=fan_out([1, 2]),
    )
    driver.succeed("a", output={"n": 150})
    driver.approve("q", by="ada")
    driver.finish_child_job("w")
    driver.succeed("f__0", "f__1")
    children = {"w": ChildJob(id="7", status="COMPLETED")}
    assert reason_of(driver, "r")[1] == "completed: took branch large (value = 150)"
    assert reason_of(driver, "q")[1] == "completed: approved by ada"
    assert reason_of(driver, "w", child_jobs=children)[1] == "completed: child job 7 completed"
    assert reason_of(driver, "f")[1] == "completed: all 2 children"


def test_a_failure_says_the_error_and_the_tries():
    driver = started(a=task(retry=2), b=task(retry=3), c="", on_failure="continue")
    driver.fail("a", message="no disk")
    driver.fire_timer("a")
    driver.fail("a", message="no disk")
    driver.fail("b", permanent=True, message="bad file")
    assert reason_of(driver, "a") == ("failed", "failed: no disk (attempt 2 of 2, no retries left)")
    assert reason_of(driver, "b") == ("failed", "failed: bad file (attempt 1 of 3, not retried)")


def test_a_node_that_lost_too_many_workers():
    driver = started(a=task(retry=RetryPolicy(max_lost=1)))
    driver.lose("a")
    driver.lose("a")
    assert reason_of(driver, "a") == ("lost", "failed: lost with its worker 2 times (max_lost 1)")


def test_a_task_that_no_worker_claimed_in_time():
    driver = started(a=task(dispatch_timeout_seconds=30.0))
    error = {"kind": "dispatch_timeout", "message": "no worker claimed it from queue default within 30 s"}
    driver.apply(TaskFailed("a", 1, error))
    code, sentence = reason_of(driver, "a")
    assert code == "dispatch_timeout"
    assert sentence == "failed: no worker claimed it from queue default within 30 s (no retries configured)"


def test_details_of_a_handler_do_not_replace_its_message():
    driver = started(a=task())
    error = {"kind": "corrupt", "message": "tile 7 is corrupt", "details": "see 7.log"}
    driver.apply(TaskFailed("a", 1, error, permanent=True))
    assert "tile 7 is corrupt" in reason_of(driver, "a")[1]
    driver = started(a=task())
    driver.apply(TaskFailed("a", 1, {**error, "kind": "unknown_handler"}, permanent=True))
    assert reason_of(driver, "a")[1].startswith("failed: see 7.log")


def test_a_handler_that_uses_a_kind_of_the_engine_is_not_mistaken_for_it():
    driver = started(a="", b="", on_failure="continue")
    driver.apply(TaskFailed("a", 1, {"kind": "lost", "message": "I lost my keys"}, permanent=True))
    driver.apply(DispatchRejected("b", 1, {"kind": "rejected", "message": "no such handler"}))
    assert reason_of(driver, "a")[0] == "failed"
    assert reason_of(driver, "b") == ("failed", "failed: no such handler (not retried)")


def test_an_approval_that_was_rejected_or_not_answered():
    driver = started(a=approval(), b=approval(timeout_seconds=60), on_failure="continue")
    driver.reject("a", by="bob", comment="not yet")
    driver.fire_timer("b")
    assert reason_of(driver, "a") == ("rejected", "failed: rejected by bob: not yet")
    assert reason_of(driver, "b") == ("no_answer", "failed: no answer within 60 s")


def test_a_signal_that_did_not_arrive():
    driver = started(a=wait(signal="go", timeout_seconds=9))
    driver.fire_timer("a")
    assert reason_of(driver, "a") == ("no_signal", "failed: no signal 'go' within 9 s")


def test_an_expression_that_could_not_be_evaluated():
    driver = started(a="")
    driver.apply(ResolutionFailed("a", "params.x", "`nodes.b.output` is missing"))
    assert reason_of(driver, "a") == ("unresolved", "failed: `nodes.b.output` is missing")


def test_a_fan_out_that_failed_leads_to_its_children():
    driver = started(f=fan_out([1, 2, 3]), g="f")
    driver.fail("f__1", message="no data")
    driver.succeed("f__0", "f__2")
    reasons = why(driver)
    assert [link.subject for link in reasons.chain("g")] == ["g", "f", "f__1"]
    assert reasons.reason_for("f").code is ReasonCode.CHILDREN_FAILED
    assert reasons.reason_for("f__1").sentence == "failed: no data (no retries configured)"


def test_a_job_that_failed_by_a_fan_out_starts_with_the_error_of_the_child():
    driver = started(f=fan_out([1, 2, 3]))
    driver.fail("f__1", message="no data [file:///x.tif]")
    driver.succeed("f__0", "f__2")
    error = {"kind": "node_failed", "message": "node f failed: 1 of 3 children failed: f__1", "node": "f"}
    head = why(driver, error=error).head()
    assert head.sentence == f"failed at f__1: no data [file:///x.tif] ({error['message']})"
    assert (head.data["root"], head.because) == ("f__1", ("f",))


def test_a_child_job_that_failed_is_named():
    driver = started(a=workflow())
    driver.finish_child_job("a", "FAILED")
    reason = why(driver, child_jobs={"a": ChildJob(id="7", status="FAILED")}).reason_for("a")
    assert (reason.code, reason.data["job_id"]) == (ReasonCode.CHILD_JOB_FAILED, "7")
    assert reason.sentence == "failed: child job 7: the child job is FAILED"


def test_a_missing_handler_of_a_child_job_is_explained_as_in_the_child_job():
    driver = started(a=workflow())
    missing = {
        "kind": "unknown_handler",
        "message": "no worker has it",
        "details": "start one with `--handlers sales`",
    }
    error = {"kind": "node_failed", "message": "node b failed: no worker has it", "cause": missing}
    for _ in range(2):
        error = {
            "kind": "node_failed",
            "message": "node a failed",
            "cause": {"kind": "child_job", "cause": error},
        }
    driver.apply(ChildJobFinished("a", driver.job.nodes["a"].attempt, JobStatus.FAILED, None, error))
    reason = why(driver, child_jobs={"a": ChildJob(id="7", status="FAILED")}).reason_for("a")
    assert reason.sentence == "failed: child job 7: start one with `--handlers sales`"


def test_a_branch_that_was_not_taken_shows_the_value_and_the_condition():
    ways: dict[str, Any] = {"tiny": "< 10", "mid": "< 200", "big": "> 100", "rest": None}
    route = conditional("{{ nodes.a.output.n }}", ways, after="a")
    driver = started(a="", r=route, t="r.tiny", m="r.mid", b="r.big", e="r.rest", after="t")
    driver.succeed("a", output={"n": 150})
    assert reason_of(driver, "t") == (
        "branch_not_taken",
        "was skipped: value = 150, branch tiny (value < 10) was false; r took mid",
    )
    assert reason_of(driver, "b")[1] == "was skipped: value = 150, r took branch mid before evaluating big"
    assert (
        reason_of(driver, "e")[1]
        == "was skipped: value = 150, r took branch mid, so the default rest was not needed"
    )
    assert reason_of(driver, "after") == ("upstream_skipped", "was skipped: t was skipped")
    assert why(driver).reason_for("t").data["value"] == 150
    assert [link.subject for link in why(driver).chain("after")] == ["after", "t"]


def test_a_condition_without_a_field_shows_the_values_it_read():
    route = conditional(None, {"yes": "nodes.a.output.n > 5", "no": None}, after="a")
    driver = started(a="", r=route, y="r.yes", n="r.no")
    driver.succeed("a", output={"n": 3})
    assert reason_of(driver, "y")[1] == (
        "was skipped: nodes.a.output.n = 3, branch yes (nodes.a.output.n > 5) was false; r took no"
    )


def test_a_node_downstream_of_a_failure_names_it():
    driver = started(a="", b="a", c="b", d="", on_failure="continue")
    driver.fail("a")
    assert reason_of(driver, "b") == ("upstream_failed", "was skipped: a failed")
    assert reason_of(driver, "c") == ("upstream_failed", "was skipped: b did not run")
    assert [link.subject for link in why(driver).chain("c")] == ["c", "b", "a"]


def test_a_node_that_had_not_started_when_the_job_failed_names_the_failed_node():
    driver = started(a="", b="", c="b")
    driver.fail("a", message="no disk")
    assert reason_of(driver, "c") == ("ended_early", "was skipped: a failed, and the job ended")
    head = why(driver).head()
    assert (head.code, head.because) == (ReasonCode.JOB_FAILED, ("a",))
    assert head.sentence == "is failing because a failed (no disk): 1 node is not finished yet"


def test_a_cancelled_node_says_who_cancelled_it():
    driver = started(a="", b="a")
    driver.cancel()
    driver.release("a")
    around = {"cancelled_by": "alice", "cancelled_at": 820.0}
    assert reason_of(driver, "b", **around) == (
        "cancelled",
        "was cancelled: the job was cancelled by alice 3 min ago",
    )
    assert why(driver, **around).head().sentence == "was cancelled by alice 3 min ago"


def test_a_child_that_a_fail_fast_fan_out_cancelled_leads_to_it():
    driver = started(f=fan_out([1, 2, 3], max_parallel=2, fail_fast=True))
    driver.fail("f__0")
    assert reason_of(driver, "f__2") == ("fan_out_stopped", "was cancelled: too many children of f failed")
    driver.release("f__1")
    assert [link.subject for link in why(driver).chain("f__2")] == ["f__2", "f", "f__0"]


def test_a_child_that_an_earlier_run_left_behind_is_superseded():
    driver = started(a="", f=fan_out("{{ nodes.a.output.l }}", after="a"))
    driver.succeed("a", output={"l": [1, 2]})
    driver.succeed("f__0", "f__1")
    driver.resume("a")
    driver.succeed("a", output={"l": [1]})
    assert reason_of(driver, "f__1")[0] == "superseded"
    assert "f__1" not in {node.id for node in why(driver).nodes()}


# ── The job ──


def test_a_job_without_an_owner():
    driver = Driver(a_job(a=""), now=1000.0)
    reasons = why(driver, owner=None, orchestrators=0).head()
    assert (reasons.code, reasons.sentence) == (
        ReasonCode.NO_ORCHESTRATOR,
        "waits for an orchestrator; none is alive",
    )
    reasons = why(driver, owner=None, orchestrators=2).head()
    assert (reasons.code, reasons.sentence) == (ReasonCode.NO_OWNER, "waits for an orchestrator; 2 are alive")


def test_a_job_whose_owner_died_or_is_silent():
    driver = started(a="")
    silent = Service(id="2", where="h:2", silent_seconds=9.0, lease_seconds=15.0)
    reasons = why(driver, owner=silent)
    assert reasons.head().code is ReasonCode.OWNER_SILENT
    assert (
        reasons.head().sentence
        == "is owned by h:2, whose last heartbeat was 9 s ago; if it is dead, another orchestrator takes over in 6 s"
    )
    dead = Service(id="2", where="h:2", silent_seconds=16.0, lease_seconds=15.0)
    assert why(driver, owner=dead).head().code is ReasonCode.OWNER_DIED
    assert why(driver, owner=dead, orchestrators=0).head().sentence == (
        "waits for an orchestrator; its owner h:2 died 16 s ago, and none is alive"
    )
    assert [link.subject for link in why(driver, owner=dead).chain("a")] == ["a", "the job"]


def test_a_job_that_its_owner_cannot_advance():
    reasons = why(
        started(a=""), advance_failure=AdvanceFailure(error="KeyError", retry_in_seconds=12.0)
    ).head()
    assert reasons.code is ReasonCode.ADVANCE_FAILED
    assert (
        reasons.sentence
        == "could not be advanced by its owner h:1: KeyError; the owner's log has the details, and it retries in 12 s"
    )


def test_a_finished_job_says_how_it_ended():
    driver = started(a="")
    driver.succeed("a")
    assert why(driver, finished_at=940.0).head().sentence == "completed 1 min ago"
    driver = started(a="")
    driver.fail("a", message="no disk")
    head = why(driver, error=driver.error).head()
    assert (head.code, head.sentence, head.because) == (
        ReasonCode.JOB_FAILED,
        "failed: node a failed: no disk",
        ("a",),
    )


def test_a_job_past_its_deadline_says_so():
    driver = started(a="", b="a", deadline_seconds=60)
    driver.fire_timer()
    assert why(driver).head().code is ReasonCode.JOB_DEADLINE
    assert reason_of(driver, "b") == ("ended_early", "was skipped: the job exceeded its deadline")
    driver.release("a")
    assert why(driver, error=driver.error).head().code is ReasonCode.JOB_DEADLINE
    assert reason_of(driver, "a")[1] == "was cancelled: the job exceeded its deadline"


def test_a_reason_that_needs_an_operator_comes_first():
    driver = started(run="", stuck="", asked=approval(), tried=task(retry=3), last="run stuck asked tried")
    driver.fail("tried")
    tasks = {"run": at_worker()["a"], "stuck": a_task()}
    reasons = why(driver, tasks=tasks)
    assert [group.examples[0] for group in reasons.groups()] == ["stuck", "asked", "tried", "run", "last"]
    assert (
        reasons.head().sentence
        == "stuck has been queued on light for 10 min; no live worker serves this queue"
    )


def test_a_chain_follows_the_cause_whose_root_matters_most():
    driver = started(a="", b="", c="b", d="a c")
    tasks = {"a": at_worker()["a"], "b": a_task()}
    assert [link.subject for link in why(driver, tasks=tasks).chain("d")] == ["d", "c", "b"]


def test_nodes_with_the_same_reason_are_one_group():
    driver = started(f=fan_out(list(range(10_000))), g=fan_out([1, 2]))
    while driver.job.nodes["f"].wake_at is not None:
        driver.fire_timer("f")
    reasons = why(driver, tasks={node_id: a_task() for node_id in driver.dispatched()})
    groups = [(group.subject, group.sentence) for group in reasons.groups()]
    assert groups[0] == ("10,000 children of f", "are queued on light; no live worker serves this queue")
    assert groups[1] == ("2 children of g", "are queued on light; no live worker serves this queue")
    assert (
        reasons.head().sentence
        == "10,000 children of f are queued on light; no live worker serves this queue"
    )
    assert len(groups) == 4


def test_a_long_chain_is_followed_to_its_end():
    nodes = {f"n{i}": "" if i == 0 else f"n{i - 1}" for i in range(5_000)}
    driver = started(**nodes)
    reasons = why(driver, tasks={"n0": a_task()})
    assert len(reasons.chain("n4999")) == 5_000
