"""What a new run would do. The dry run of a new job is in tests/integration/runtime/test_resume.py."""

from __future__ import annotations

from dataclasses import replace

import pytest

from dagmaster.engine.events import ResumeRequested, RetryRequested, TaskSucceeded
from dagmaster.engine.resume_plan import ResumeContext, ReuseKind, plan_rerun, with_descendants
from dagmaster.testing import Driver, a_job, a_spec, conditional, fan_in, fan_out, join, nodes_added, task

SAME = ResumeContext()


def plan(
    driver: Driver, event: ResumeRequested | RetryRequested | None = None, around: ResumeContext = SAME
) -> dict[str, tuple[str, str]]:
    """Return the planned fate of every node; the job itself does not change."""
    resume_plan = plan_rerun(driver.rebuild(), event or ResumeRequested(), 0.0, around)
    assert not isinstance(resume_plan, str), resume_plan
    return {each.node: (each.kind.value, each.reason) for each in resume_plan}


def failed() -> Driver:
    driver = Driver(a_job(a="", b="a", c="b", d="a"))
    driver.start()
    driver.succeed("a")
    driver.succeed("d")
    driver.fail("b", permanent=True)
    return driver


def test_what_failed_is_redone_and_what_follows_and_the_rest_is_reused():
    assert plan(failed()) == {
        "a": ("reused", "completed"),
        "b": ("redone", "failed"),
        "c": ("redone", "depends on `b`, which is redone"),
        "d": ("reused", "completed"),
    }


def test_what_a_node_had_added_is_redone_if_it_is_added_again():
    driver = Driver(a_job(a="", b="a"))
    driver.start()
    added = nodes_added(replace(a_spec("c", ""), added_by="a")).batch
    driver.apply(TaskSucceeded("a", 1, added=added))
    driver.succeed_all()
    resume_plan = plan_rerun(driver.rebuild(), ResumeRequested(("a",)), 0.0, SAME)
    assert not isinstance(resume_plan, str)
    assert {each.node: (each.kind.value, each.is_added_again) for each in resume_plan} == {
        "a": ("redone", False), "b": ("redone", False), "c": ("redone", True)
    }  # fmt: skip
    driver.resume("a")
    driver.succeed_all()
    assert plan(driver, ResumeRequested(("b",))).keys() == {"a", "b"}


def test_what_is_named_is_redone_with_all_that_follows():
    resume_plan = plan(failed(), ResumeRequested(("a",)), ResumeContext(named=frozenset({"a"})))
    assert resume_plan == {
        "a": ("redone", "named to be redone"),
        "b": ("redone", "failed"),
        "c": ("redone", "depends on `b`, which is redone"),
        "d": ("redone", "depends on `a`, which is redone"),
    }


def test_a_plan_changes_nothing():
    driver = failed()
    before = driver.rows()
    plan(driver)
    assert driver.rows() == before


def test_one_failed_child_of_a_hundred_is_named_and_the_others_are_counted():
    driver = Driver(a_job(tiles=fan_out(list(range(100)), task()), all=fan_in("tiles", over="tiles")))
    driver.start()
    driver.succeed(*[f"tiles__{n}" for n in range(100) if n != 47])
    driver.fail("tiles__47", permanent=True)
    expected = {
        "tiles": ("redone", "99 of 100 children reused, 1 redone: tiles__47 failed"),
        "all": ("redone", "depends on `tiles`, which is redone"),
    }
    assert plan(driver) == plan(driver, RetryRequested(("tiles__47",))) == expected


def test_many_failed_children_with_one_reason_are_counted():
    driver = Driver(a_job(tiles=fan_out(list(range(9)), task())))
    driver.start()
    driver.fail(*[f"tiles__{n}" for n in range(9)], permanent=True)
    message = "0 of 9 children reused, 9 redone: tiles__0, tiles__1, tiles__2 and 6 more: failed"
    assert plan(driver) == {"tiles": ("redone", message)}


def test_failed_children_of_a_fan_out_that_runs_are_redone_and_other_failures_left():
    driver = Driver(a_job(tiles=fan_out(list(range(5)), task())))
    driver.start()
    driver.succeed("tiles__0")
    driver.fail("tiles__1", "tiles__2", permanent=True)
    message = "1 of 5 children reused, 3 left as they are, 1 redone: tiles__1 failed"
    assert plan(driver, RetryRequested(("tiles__1",))) == {"tiles": ("redone", message)}


def test_a_retry_leaves_other_failures_as_they_are():
    driver = Driver(a_job(a="", b="", c="a"))
    driver.start()
    driver.fail("a", permanent=True)
    driver.fail("b", permanent=True)
    assert plan(driver, RetryRequested(("a",)))["b"] == ("reused", "is kept as FAILED")


def test_what_was_not_taken_stays_so_and_a_failure_that_is_allowed_is_settled():
    driver = Driver(
        a_job(
            a=task(allow_failure=True),
            which=conditional(None, {"no": "false", "yes": None}, "a"),
            left=join("which.no"),
            right=join("which.yes"),
        )
    )
    driver.start()
    driver.fail("a", permanent=True)
    driver.fail("right", permanent=True)
    assert plan(driver) == {
        "a": ("reused", "failed, which is allowed"),
        "which": ("reused", "completed"),
        "left": ("reused", "was not taken"),
        "right": ("redone", "failed"),
    }


def test_a_result_of_an_older_handler_stays_and_is_reported():
    driver = failed()
    handler = driver.job.nodes["a"].spec.handler  # type: ignore[attr-defined]
    around = ResumeContext(versions={handler: frozenset({"3"})})
    _, reason = plan(driver, around=around)["a"]
    assert reason == f"completed; handler `{handler}` is version 3 now, was None: name a to redo it"


def test_what_no_live_worker_can_do_is_impossible():
    driver = failed()
    handler = driver.job.nodes["a"].spec.handler  # type: ignore[attr-defined]
    resume_plan = plan(driver, around=ResumeContext(served=frozenset({"another"})))
    assert resume_plan["b"] == (ReuseKind.IMPOSSIBLE.value, f"no live worker has the handler `{handler}`")


@pytest.mark.parametrize("status", ["running", "completed"])
def test_why_there_is_no_new_run(status: str):
    driver = Driver(a_job(a=""))
    driver.start()
    if status == "completed":
        driver.succeed("a")
    resume_plan = plan_rerun(driver.rebuild(), ResumeRequested(), 0.0, SAME)
    assert isinstance(resume_plan, str)
    assert ("not finished" if status == "running" else "nothing to rerun") in resume_plan


def test_all_that_follows_is_found_at_any_distance():
    graph = a_job(a="", b="a", c="b", d="").graph
    assert with_descendants(graph, ["a"]) == {"a", "b", "c"}
    assert with_descendants(graph, []) == set()


def test_children_that_are_made_again_are_counted():
    driver = Driver(a_job(plan="", tiles=fan_out("{{ nodes.plan.output }}", after="plan")))
    driver.start()
    driver.succeed("plan", output=[1, 2, 3])
    driver.succeed("tiles__0")
    driver.succeed("tiles__1")
    driver.fail("tiles__2", permanent=True)
    around = ResumeContext(named=frozenset({"plan"}))
    resume_plan = plan_rerun(driver.rebuild(), ResumeRequested(("plan",)), 0.0, around)
    assert not isinstance(resume_plan, str)
    tiles = next(each for each in resume_plan if each.node == "tiles")
    assert tiles.reason == "failed: all children are redone (3 before)"
    assert tiles.children == (0, 3)


def test_a_node_that_rests_is_tried_at_once():
    driver = Driver(a_job(a=task(retry=3)))
    driver.start()
    driver.fail("a")
    resume_plan = plan(driver, RetryRequested(("a",)), ResumeContext(named=frozenset({"a"})))
    assert resume_plan == {"a": ("redone", "waits for a retry: retried at once")}
