"""Graphs that are built in code on PostgreSQL: stored by a context, run by real services or by `run_job_test`."""

from __future__ import annotations

import asyncio
import contextlib
from datetime import timedelta
from typing import TYPE_CHECKING, Any
from unittest import mock

import pytest

from dagmaster import (
    Context,
    Group,
    JobStatus,
    OrchContext,
    ResultCollector,
    RunningTask,
    TaskStatus,
    WorkerStatus,
    add_task_to_job,
    blocking,
    cancel_job,
    claim_next_task,
    create_job,
    create_task,
    deregister_worker,
    get_current_context,
    get_job,
    get_task,
    handler_task,
    health_check,
    list_dependencies,
    list_tasks,
    list_workers,
    register_worker,
    retry_failed_tasks,
    run_job_test,
    task,
    update_task_status,
    worker_heartbeat,
)
from dagmaster.application.diagnosis import why_job
from dagmaster.application.queries.events_and_logs import list_logs
from dagmaster.engine import backlog
from dagmaster.errors import JobAlreadyCancelled, LeaseLost, NodesRejected
from dagmaster.orchestrator.owned_job import OwnedJob
from dagmaster.sdk.handler_registry import handler
from dagmaster.store.postgres.orchestrator_store import PostgresOrchestratorStore
from dagmaster.store.postgres.read_store import PostgresReadStore
from tests.integration.runtime.runtime_world import Gate
from tests.integration.runtime.test_ownership import GATED, gated_by
from tests.patience import PATIENCE_SECONDS

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

    from tests.integration.runtime.runtime_world import World


ECHO, FLAKY = handler_task("echo"), handler_task("flaky")


async def double(x: Any = 0) -> Any:
    return [x, x]


def plain(x: Any = 0) -> Any:
    return x


def use_database(world: World, place: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Let the settings name the database of the test."""
    monkeypatch.setenv("DAGMASTER_DATABASE_URL", world.dsn)
    monkeypatch.setenv("DAGMASTER_BLOB_DIR", str(place / "blobs"))


async def test_a_graph_runs_in_this_process_on_the_database_of_the_settings(
    world: World, place: Path, monkeypatch: pytest.MonkeyPatch
):
    use_database(world, place, monkeypatch)
    first = create_task(double, {"x": 1}, queue="q")
    group = Group(
        "g", [create_task(plain, {"x": first}, queue="q"), create_task(plain, {"x": None}, queue="q")]
    )
    last = create_task(double, {"x": {"all": ResultCollector(group.tasks)}}, queue="q")
    async with OrchContext() as context:
        job = await create_job("nightly", last)
        await context.apply(create_task(plain, {"x": last}, queue="q", name="added"))
        run_job_test(job)
        assert job.status is JobStatus.COMPLETED
        assert (await get_task(last.id)).result == [{"all": [[1, 1], None]}] * 2
    assert (await get_job(job.id)).status is JobStatus.COMPLETED


async def test_the_logs_of_a_graph_in_code_are_files_called_after_its_tasks(
    world: World, place: Path, monkeypatch: pytest.MonkeyPatch
):
    use_database(world, place, monkeypatch)
    await world.orchestrator()
    await world.worker(log_dir=place / "logs")
    flaky = create_task(
        FLAKY, {"fail_times": 1}, queue="q", retry={"max_attempts": 3, "initial_delay_seconds": 0.01}
    )
    # One without a result of another task, one with it, one that is added later.
    tasks = [flaky, create_task(ECHO, {"value": flaky}, queue="q"), create_task(ECHO, {"n": 2}, queue="q")]
    async with OrchContext() as context:
        job = await context.create_job("logged", tasks[:2])
        await context.apply(tasks[2])
    await world.finished(str(job.id))
    assert {path.name for path in (place / "logs").iterdir()} == {f"{task.id}.log" for task in tasks}
    lines = (place / "logs" / f"{flaky.id}.log").read_text().splitlines()
    attempts = (await get_task(flaky.id)).attempts
    assert attempts > 1
    assert [line.partition(" (task")[0] for line in lines if line.startswith("====")] == [
        f"==== flaky: attempt {attempt}" for attempt in range(1, attempts + 1)
    ]


async def test_a_function_that_no_worker_can_import_is_rejected_with_its_line(
    world: World, place: Path, monkeypatch: pytest.MonkeyPatch
):
    def inner() -> int:
        return 1

    use_database(world, place, monkeypatch)
    async with OrchContext() as context:
        for function in (inner, lambda: 1, task(inner)):
            with pytest.raises(
                NodesRejected, match=r"cannot import a lambda.*made at .*test_python_graphs\.py:\d+\)"
            ):
                await create_job("nested", create_task(function, queue="q"))
        job = await create_job("open", create_task(plain, queue="q"))
        with pytest.raises(NodesRejected, match="cannot import a lambda"):
            await context.apply(create_task(inner, queue="q"))
        with pytest.raises(NodesRejected, match="cannot import a lambda"):
            await add_task_to_job(job.id, inner, queue="q")
    async with OrchContext(local=True):
        assert run_job_test(await create_job("here", create_task(inner, queue="q"))).result == 1


def say(text: str) -> None:
    print(text)  # noqa: T201 - what a task prints is its log


async def test_what_tasks_of_run_job_test_print_is_stored_and_printed(
    world: World, place: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
):
    use_database(world, place, monkeypatch)
    async with OrchContext() as context:
        job = run_job_test(await create_job("loud", create_task(say, {"text": "a line"}, queue="q")))
        logs = await context.backend.call(list_logs, str(job.id))
    assert [log.text for log in logs.items] == ["a line\n"]
    assert capsys.readouterr().out == "a line\n"


async def test_the_jobs_of_a_local_context_are_left_to_it_until_it_exits(
    world: World, place: Path, monkeypatch: pytest.MonkeyPatch
):
    use_database(world, place, monkeypatch)
    orchestrator = await world.orchestrator()
    await world.worker()
    async with OrchContext(local=True) as context:
        job = await create_job("local", create_task(double, {"x": 1}, queue="q"))
        left = await context.create_job("left", create_task(ECHO, {"n": 2}, queue="q"))
        # The fleet looks at both: it runs another job meanwhile.
        other = await world.submit("{name: other, nodes: {a: {handler: echo, queue: q}}}")
        await world.finished(other)
        assert not {str(job.id), str(left.id)} & orchestrator.jobs.keys()
        run_job_test(job)
        assert (job.status, job.result) == (JobStatus.COMPLETED, [1, 1])
        assert (await get_job(left.id)).status is JobStatus.PENDING
    assert (await world.finished(str(left.id))).status == "COMPLETED"


async def test_a_local_context_does_not_wait_for_an_owner_of_its_jobs(
    world: World, place: Path, monkeypatch: pytest.MonkeyPatch
):
    use_database(world, place, monkeypatch)
    monkeypatch.setattr("dagmaster.session.context.WAIT_SECONDS", 600.0)
    await world.orchestrator()
    async with asyncio.timeout(PATIENCE_SECONDS), OrchContext(local=True) as context:
        first = create_task(double, {"x": 1}, queue="q", name="first")
        job = await create_job("local", first)
        before = create_task(double, {"x": 1}, queue="q", name="before")
        before >> first
        await context.apply(before)
        await add_task_to_job(job.id, double, {"x": 2}, queue="q", name="after")
        assert sorted(run_job_test(job).result) == ["after", "first"]
        cancelled = await create_job("cancelled", create_task(double, {"x": 1}, queue="q"))
        await cancel_job(cancelled.id)
        assert run_job_test(cancelled).status is JobStatus.CANCELLED


async def test_applies_at_the_same_time_may_share_a_task(
    world: World, place: Path, monkeypatch: pytest.MonkeyPatch
):
    use_database(world, place, monkeypatch)
    async with OrchContext(local=True) as context:
        job = await create_job("shared", create_task(plain, queue="q", name="first"))
        shared = create_task(plain, {"x": 5}, queue="q", name="shared")
        users = [create_task(plain, {"x": shared}, queue="q", name=f"user_{number}") for number in range(3)]
        # A generator can be read once.
        generators = [(task for task in [user]) for user in users]
        await asyncio.gather(*map(context.apply, generators), context.apply(shared), context.apply(shared))
        assert run_job_test(job).result == {"first": 0, "user_0": 5, "user_1": 5, "user_2": 5}


async def test_a_fleet_runs_what_a_context_releases(
    world: World, place: Path, monkeypatch: pytest.MonkeyPatch
):
    use_database(world, place, monkeypatch)
    await world.orchestrator()
    await world.worker()
    async with OrchContext() as context:
        group = Group("g", [create_task(ECHO, {"n": 1}, queue="q", name="one")])
        after = create_task(ECHO, {"n": 2}, queue="q", name="after")
        group >> after
        job = await context.create_job("held", [group, after])
        await world.until_node(str(job.id), "one", "COMPLETED")
        # The group is not complete while it can be filled.
        group.add(create_task(ECHO, {"n": 3}, queue="q", name="late"))
        await context.apply(group)
        await world.until_node(str(job.id), "late", "COMPLETED")
        assert (await get_job(job.id)).status in {JobStatus.RUNNING, JobStatus.WAITING}
        assert (await get_task(after.id)).status is TaskStatus.PENDING
    report = await world.finished(str(job.id))
    assert report.status == "COMPLETED"
    assert report.nodes["after"]["status"] == "COMPLETED"


async def test_an_exception_cancels_a_job_in_its_own_context_and_releases_it_in_another(
    world: World, place: Path, monkeypatch: pytest.MonkeyPatch
):
    job: Any = None

    async def create_half() -> None:
        nonlocal job
        async with OrchContext() as context:
            job = await context.create_job("half", create_task(ECHO, {"n": 1}, queue="q", name="one"))
            with pytest.raises(KeyError):
                await add_half(job.id)
            await context.apply(create_task(ECHO, {"n": 3}, queue="q", name="three"))
            await world.until_node(str(job.id), "three", "COMPLETED")
            raise ValueError("before the last task is added")

    async def add_half(job_id: int) -> None:
        async with OrchContext(job_id=job_id) as context:
            await context.apply(create_task(ECHO, {"n": 2}, queue="q", name="two"))
            raise KeyError("two")

    use_database(world, place, monkeypatch)
    await world.orchestrator()
    await world.worker()
    with pytest.raises(ValueError, match="before the last"):
        await create_half()
    assert (await world.finished(str(job.id))).status == "CANCELLED"
    (event,) = await world.events(str(job.id), "CancelRequested")
    assert "the code that makes this job raised ValueError: its graph may be half built" in event["data"]
    await retry_failed_tasks(job.id)
    report = await world.finished(str(job.id))
    assert (report.status, {report.nodes[name]["status"] for name in ("one", "two", "three")}) == (
        "COMPLETED",
        {"COMPLETED"},
    )


async def test_a_job_that_failed_in_its_context_is_resumed_without_the_hold(
    world: World, place: Path, monkeypatch: pytest.MonkeyPatch
):
    use_database(world, place, monkeypatch)
    await world.orchestrator()
    await world.worker()
    async with OrchContext() as context:
        broken = create_task(FLAKY, {"fail_times": 1}, queue="q", name="broken", retry="none")
        job = await context.create_job("fails", broken)
        assert (await world.finished(str(job.id))).status == "FAILED"
    await retry_failed_tasks(job.id)
    assert (await world.finished(str(job.id), run=2)).status == "COMPLETED"


async def test_a_job_outside_of_a_context_starts_at_once_and_grows_from_outside(
    world: World, place: Path, monkeypatch: pytest.MonkeyPatch
):
    use_database(world, place, monkeypatch)
    job = await create_job(
        "plain", [create_task(ECHO, queue="q"), create_task(ECHO, queue="q", name="named")]
    )
    added = await add_task_to_job(job.id, ECHO, {"n": 5}, queue="q")
    applied = await Context(job_id=job.id).apply([create_task(ECHO, queue="q", name="applied")])
    assert [task.node_id for task in applied] == ["applied"]
    with pytest.raises(NodesRejected, match="'named' already"):
        await add_task_to_job(job.id, ECHO, queue="q", name="named")
    await world.orchestrator()
    await world.worker()
    report = await world.finished(str(job.id))
    assert report.status == "COMPLETED"
    assert sorted(report.nodes) == sorted(
        ["context_hold_b3_1", "applied", "echo", "named", str(added.node_id)]
    )


async def test_the_next_owner_starts_what_the_last_one_had_not_started(
    world: World, place: Path, monkeypatch: pytest.MonkeyPatch
):
    use_database(world, place, monkeypatch)
    monkeypatch.setattr(backlog, "START_BATCH", 2)
    job = await create_job("many", [create_task(ECHO, {"n": number}, queue="q") for number in range(7)])
    with mock.patch.object(OwnedJob, "timers_after", return_value=()):
        # It starts a first slice, and no other.
        first = await world.orchestrator()
        await world.until_event(str(job.id), "NodeDispatched")
        await world.stop(first)
    assert await world.value("SELECT count(*) FROM dag_node_states WHERE job_id = $1", job.id) == 2
    await world.orchestrator()
    await world.worker()
    report = await world.finished(str(job.id))
    assert (report.status, len(report.nodes)) == ("COMPLETED", 7)
    assert len(await world.events(str(job.id), "NodeDispatched")) == 7


async def wait_for_nodes() -> None:
    context = get_current_context()
    assert isinstance(context, RunningTask)
    context.apply(create_task(ECHO, name="extra"), at_once=True).wait()


async def add_without_await() -> None:
    blocking.add_task_to_job(get_current_context().job_id or 0, ECHO, {"n": 1})


@pytest.mark.parametrize("function", [wait_for_nodes, add_without_await])
async def test_an_async_task_of_a_worker_awaits_what_it_adds_as_in_a_run_in_one_process(
    world: World, place: Path, monkeypatch: pytest.MonkeyPatch, function: Callable[..., Any]
):
    use_database(world, place, monkeypatch)
    world.modules.append(__name__)
    await world.orchestrator()
    await world.worker()
    job = await create_job("blocks", create_task(function, queue="q", name="adds"))
    report = await world.finished(str(job.id))
    assert (report.status, report.nodes["adds"]["attempts"]) == ("FAILED", 1)
    assert "Await it: `await " in str((await get_job(job.id)).error)


async def test_a_task_without_a_queue_is_rejected_on_a_database_of_an_operator(
    world: World, place: Path, monkeypatch: pytest.MonkeyPatch
):
    use_database(world, place, monkeypatch)
    with pytest.raises(NodesRejected, match=r"task echo .*has no queue"):
        await create_job("no queue", create_task(ECHO))


async def test_workers_of_code_are_alive_while_they_call(
    world: World, place: Path, monkeypatch: pytest.MonkeyPatch
):
    use_database(world, place, monkeypatch)
    async with OrchContext():
        worker = await register_worker("worker-01", 12345)
        await worker_heartbeat(worker.id)
        (shown,) = await list_workers(status=WorkerStatus.ACTIVE)
        assert (shown.id, shown.hostname) == (worker.id, "worker-01")
        assert worker.started_at - timedelta(minutes=1) < shown.started_at <= shown.last_heartbeat
        health = await health_check()
        assert (health["database"], health["orchestrators"], bool(health)) == (True, False, False)


async def test_health_names_tasks_of_a_killed_worker_until_an_orchestrator_reclaims_them(
    world: World, place: Path, monkeypatch: pytest.MonkeyPatch
):
    use_database(world, place, monkeypatch)
    gate = Gate()
    world.handlers.append(gated_by(gate))
    worker, owner = await world.worker(), await world.orchestrator()
    job = await world.submit(GATED)
    await world.until_claimed()
    healthy = await health_check()
    assert healthy, healthy.details
    await world.kill(owner)
    await world.kill(worker)
    assert (await health_check())["stale_tasks"], "an orchestrator has time to reclaim them"
    await world.silence(worker)
    health = await health_check()
    assert (health["database"], health["stale_tasks"]) == (True, False)
    assert health.details["stale_tasks"] == "1 task of dead workers not reclaimed: an orchestrator does that"
    gate.open()
    await world.silence(owner)
    await world.orchestrator()
    await world.worker()
    assert (await world.finished(job)).status == "COMPLETED"
    assert (await health_check())["stale_tasks"]


async def test_code_claims_and_reports_tasks_over_the_database(
    world: World, place: Path, monkeypatch: pytest.MonkeyPatch
):
    use_database(world, place, monkeypatch)
    await world.orchestrator()
    worker = await register_worker(handlers=["outside.double"], queues=["q"])
    first = create_task("outside.double", {"x": [1]}, queue="q")
    job = await create_job("claimed", create_task("outside.double", {"x": first}, queue="q", name="last"))
    results: list[Any] = [[1, 1], None]
    given = []
    for result in results:
        claimed = await claim_next_task(worker.id, wait_seconds=30)
        assert claimed is not None
        given.append(claimed.kwargs)
        await update_task_status(claimed.id, "completed", result)
    assert given == [{"x": [1]}, {"x": [1, 1]}]
    report = await world.finished(str(job.id))
    assert (report.status, (await get_task(first.id)).worker_id) == ("COMPLETED", worker.id)
    assert [one.status for one in await list_tasks(job.id)] == ["COMPLETED", "COMPLETED"]
    assert len(await list_dependencies(job.id)) == 1
    # Another one that another process, or nobody, holds.
    with pytest.raises(LeaseLost):
        await update_task_status(first.id, "failed", error="late")
    assert await deregister_worker(worker.id)
    assert not await worker_heartbeat(worker.id)


async def test_a_job_whose_tasks_have_ended_is_completed_when_its_context_ends(
    world: World, place: Path, monkeypatch: pytest.MonkeyPatch
):
    use_database(world, place, monkeypatch)
    await world.orchestrator()
    await world.worker()
    async with OrchContext() as context:
        job = await create_job("open", create_task(ECHO, {"n": 1}, queue="q"))
        await world.until_event(str(job.id), "NodeCompleted")
        assert (await get_job(job.id)).status is JobStatus.WAITING
        why = await context.backend.call(why_job, str(job.id))
        assert "its context is open at" in str(why.to_dict())
        is_waiting = asyncio.Event()
        read_commands, pending_commands = (
            PostgresOrchestratorStore.read_commands,
            PostgresReadStore.pending_commands,
        )

        async def read_late(*args: Any, **kwargs: Any) -> Any:
            """Read commands later than the context ends."""
            await is_waiting.wait()
            return await read_commands(*args, **kwargs)

        async def note_pending(*args: Any, **kwargs: Any) -> Any:
            is_waiting.set()
            return await pending_commands(*args, **kwargs)

        monkeypatch.setattr(PostgresOrchestratorStore, "read_commands", read_late)
        monkeypatch.setattr(PostgresReadStore, "pending_commands", note_pending)
    status = (await get_job(job.id)).status
    is_waiting.set()
    assert status is JobStatus.COMPLETED


async def test_a_job_that_nobody_owns_is_cancelled_at_once_and_only_once(
    world: World, place: Path, monkeypatch: pytest.MonkeyPatch
):
    use_database(world, place, monkeypatch)
    other = await create_job("other", create_task(ECHO, queue="q"))
    job = await create_job("plain", create_task(ECHO, queue="q"))
    cancelled = await cancel_job(job.id, comment="wrong day")
    assert (cancelled.status, cancelled.is_finished) == (JobStatus.CANCELLED, True)
    with pytest.raises(
        JobAlreadyCancelled, match=rf"job {job.id} was cancelled already: .*jobs why {job.id}"
    ):
        await cancel_job(job.id)
    # Nothing else was decided, and what was cancelled can run all the same.
    assert (await get_job(other.id)).status is JobStatus.PENDING
    await retry_failed_tasks(job.id)
    await world.orchestrator()
    await world.worker()
    assert (await world.finished(str(job.id), run=2)).status == "COMPLETED"


async def test_a_cancel_of_a_job_that_runs_returns_when_it_is_decided_and_the_next_one_is_refused(
    world: World, place: Path, monkeypatch: pytest.MonkeyPatch
):
    use_database(world, place, monkeypatch)
    gate = Gate()

    @handler("stubborn", queue="q")
    async def stubborn() -> None:
        while not gate.is_open:
            with contextlib.suppress(asyncio.CancelledError):
                await gate.wait()

    world.handlers.append(stubborn)
    await world.orchestrator()
    await world.worker()
    job = await create_job("gated", create_task(handler_task("stubborn"), queue="q"))
    await world.until_claimed()
    cancelled = await cancel_job(job.id)
    assert not cancelled.is_finished
    with pytest.raises(JobAlreadyCancelled, match="is being cancelled already"):
        await cancel_job(job.id)
    gate.open()
    assert (await world.finished(str(job.id))).status == "CANCELLED"


async def test_a_reserved_job_is_cancelled_at_once_also_next_to_a_fleet(
    world: World, place: Path, monkeypatch: pytest.MonkeyPatch
):
    use_database(world, place, monkeypatch)
    await world.orchestrator()
    async with OrchContext(local=True):
        job = await create_job("local", create_task(plain, queue="q"))
        assert (await cancel_job(job.id)).status is JobStatus.CANCELLED
        assert run_job_test(job).status is JobStatus.CANCELLED
