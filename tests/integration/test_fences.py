"""What holds when two connections meet: each test stops one of them in the middle of its transaction."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, Any

import pytest

from dagmaster.engine.status import AttemptStatus
from dagmaster.errors import DatabaseUnavailable
from dagmaster.ports.audit_events import AuditEvent, EventType
from dagmaster.ports.job_records import Accepted
from dagmaster.ports.json_text import JsonText
from dagmaster.ports.task_ledger import TaskReport
from dagmaster.ports.turn_records import Withdrawal
from dagmaster.store.postgres.worker_store import claim_query
from tests import patience
from tests.conformance.jobs import ONE, Scene, a_job, a_task, a_turn, stops_of, submitted, wait_for_event
from tests.conformance.stores import PostgresWorld, in_world

if TYPE_CHECKING:
    from collections.abc import Awaitable

    import asyncpg

    from dagmaster.store.postgres.worker_store import PostgresWorkerStore


@pytest.fixture
def world(postgres: str) -> PostgresWorld:
    return PostgresWorld(postgres)


async def at_once(work: Awaitable[Any]) -> Any:
    async with asyncio.timeout(patience.PATIENCE_SECONDS):
        return await work


async def until_waiting(world: PostgresWorld, many: int = 1) -> None:
    """Wait until so many statements wait for a lock."""
    sql = "SELECT count(*) FROM pg_stat_activity WHERE datname = current_database() AND wait_event_type = 'Lock'"
    async with asyncio.timeout(patience.PATIENCE_SECONDS):
        while await world._admin.fetchval(sql) < many:  # noqa: ASYNC110 - the database does not notify of lock waits
            await asyncio.sleep(0.005)


async def begin_claim(connection: asyncpg.Connection[asyncpg.Record], worker: PostgresWorkerStore) -> None:
    """Claim a task as a worker, without committing yet."""
    query = claim_query("ready")
    params = {
        "queues": ["q"], "limit": 10, "other_slots": 10, "process_bound": [], "process_slots": 0, "isolates": False, "scan_limit": 10, "foreign_handlers": [], "worker_id": worker.worker_id, "token": 7,
    }  # fmt: skip
    await connection.execute("BEGIN")
    assert len(await connection.fetch(query.sql, *query.arguments(params))) == 1


async def locked(connection: asyncpg.Connection[asyncpg.Record], task_id: str) -> None:
    """Hold a task's row."""
    await connection.execute("BEGIN")
    await connection.execute(f"SELECT FROM dag_task_queue WHERE task_id = {task_id} FOR UPDATE")


# ── Claims ──


@in_world
async def test_a_claim_of_jobs_skips_what_is_locked_and_does_not_wait(world):
    client, orchestrator, elsewhere = await world.client(), await world.orchestrator(), await world.connect()
    one, two = await submitted(world, client), await submitted(world, client)
    await elsewhere.execute("BEGIN")
    await elsewhere.execute(f"SELECT FROM dag_jobs WHERE id = {one} FOR UPDATE")
    assert [job.row.id for job in await at_once(orchestrator.claim(10))] == [two]
    await elsewhere.execute("COMMIT")
    assert [job.row.id for job in await orchestrator.claim(10)] == [one]


@in_world
async def test_a_claim_of_tasks_skips_what_is_locked_and_does_not_wait(world):
    scene, worker, elsewhere = await Scene.begin(world), await world.worker("q"), await world.connect()
    one, two = await scene.dispatch("a"), await scene.dispatch("b")
    await locked(elsewhere, one)
    assert [task.task_id for task in await at_once(worker.claim(10))] == [two]
    await elsewhere.execute("COMMIT")
    assert [task.task_id for task in await worker.claim(10)] == [one]


# ── Reports ──


@pytest.mark.parametrize("first", ["report", "lose"])
@in_world
async def test_a_report_that_races_with_giving_its_worker_up_counts_once(world, first):
    scene, worker, elsewhere = await Scene.begin(world), await world.worker("q"), await world.connect()
    await scene.dispatch("a")
    (task,) = await worker.claim(1)
    await world.move(7)
    await locked(elsewhere, task.task_id)
    report = worker.report(
        [TaskReport(task.task_id, task.token, AttemptStatus.COMPLETED, output=JsonText("1"))]
    )
    lose = scene.orchestrator.mark_lost_tasks()
    tasks: dict[str, asyncio.Task[Any]] = {}
    for name, work in (
        (("report", report), ("lose", lose)) if first == "report" else (("lose", lose), ("report", report))
    ):
        tasks[name] = asyncio.create_task(work)
        await until_waiting(world, len(tasks))
    await elsewhere.execute("COMMIT")
    taken, lost = await tasks["report"], await tasks["lose"]
    assert (taken == {task.task_id}) != (len(lost) == 1)
    assert await scene.results() == [("a", 1, "COMPLETED" if taken else "LOST")]
    assert await world.queued() == set()


@in_world
async def test_a_report_of_a_task_whose_row_changes_meanwhile_is_accepted_with_the_change(world):
    scene, worker, elsewhere = await Scene.begin(world), await world.worker("q"), await world.connect()
    await scene.write(tasks=[a_task(world, node) for node in ("a", "b")])
    one, two = await worker.claim(2)
    await elsewhere.execute("BEGIN")
    await elsewhere.execute("UPDATE dag_task_queue SET progress = '0.5'")
    reported = asyncio.create_task(
        worker.report([TaskReport(one.task_id, one.token, AttemptStatus.FAILED, error="{}")])
    )
    released = asyncio.create_task(
        worker.release([TaskReport(two.task_id, two.token, AttemptStatus.RELEASED)])
    )
    await until_waiting(world)
    await elsewhere.execute("COMMIT")
    assert (await reported, await released) == ({one.task_id}, {two.task_id})
    assert await world.queued() == {two.task_id}
    (result,) = await scene.orchestrator.read_results(10)
    await scene.write(results=[result.id])
    (attempt,) = await world.attempts(scene.job_id)
    assert (attempt.node, attempt.progress) == ("a", 0.5)
    assert [task.task_id for task in await worker.claim(1)] == [two.task_id]


@in_world
async def test_a_turn_with_results_that_were_read_before_the_connection_was_lost_is_not_committed(world):
    """The server may have crashed and lost them: they are not flushed when they are read."""
    scene, worker = await Scene.begin(world), await world.worker("q")
    await scene.dispatch("a")
    (task,) = await worker.claim(1)
    await worker.report([TaskReport(task.task_id, task.token, AttemptStatus.FAILED, error="{}")])
    (result,) = await scene.orchestrator.read_results(10)
    others = "WHERE datname = current_database() AND pid <> pg_backend_pid()"
    await world._admin.execute(f"SELECT pg_terminate_backend(pid, 5000) FROM pg_stat_activity {others}")
    with pytest.raises(DatabaseUnavailable):
        await scene.write(results=[result.id])
    with pytest.raises(DatabaseUnavailable, match="the connection was lost since its data were read"):
        await scene.write(results=[result.id])
    assert await world.attempts(scene.job_id) == []
    (result,) = await scene.orchestrator.read_results(10)
    await scene.write(results=[result.id])
    assert [attempt.node for attempt in await world.attempts(scene.job_id)] == ["a"]


@in_world
async def test_tasks_claimed_by_a_worker_while_it_is_expired_are_lost_in_the_end(world):
    scene, worker, elsewhere = await Scene.begin(world), await world.worker("q"), await world.connect()
    await scene.dispatch("a")
    await begin_claim(elsewhere, worker)
    await world.move(7)
    await scene.orchestrator.mark_lost_tasks()
    await elsewhere.execute("COMMIT")
    # Whether the claim still counted or not: a worker must be able to run the task.
    await scene.orchestrator.mark_lost_tasks()
    assert await worker.heartbeat([], {}) is None
    other = await world.worker("q")
    assert await scene.results() == [("a", 1, "LOST")] or len(await other.claim(1)) == 1


@in_world
async def test_a_report_and_a_stop_of_the_same_tasks_do_not_fail_each_other(world):
    await world._admin.execute(f"ALTER DATABASE {world.name} SET deadlock_timeout = '50ms'")
    scene, worker, elsewhere = await Scene.begin(world), await world.worker("q"), await world.connect()
    tasks = [a_task(world, "a", attempt=number) for number in (1, 2, 3)]
    await scene.write(tasks=tasks)
    one, between, two = await worker.claim(3)
    await locked(elsewhere, between.task_id)
    reports = [
        TaskReport(task.task_id, task.token, AttemptStatus.COMPLETED, output=JsonText("1"))
        for task in (one, between, two)
    ]
    report = asyncio.create_task(worker.report(reports))
    await until_waiting(world)
    turn = a_turn(await scene.now(), stops=[two.task_id, one.task_id])
    stop = asyncio.create_task(scene.orchestrator.commit_turns([turn], scene.orchestrator.clock.now()))
    await until_waiting(world, 2)
    await elsewhere.execute("COMMIT")
    message = await asyncio.gather(report, stop, return_exceptions=True)
    assert list(message) == [{one.task_id, between.task_id, two.task_id}, {scene.job_id}]


# ── Stops and withdrawals ──


@in_world
async def test_a_stop_that_meets_a_claim_waits_for_it_and_reaches_the_worker(world):
    scene, worker, elsewhere = await Scene.begin(world), await world.worker("q"), await world.connect()
    task = await scene.dispatch("a")
    await begin_claim(elsewhere, worker)
    stop = asyncio.create_task(scene.write(stops=[task]))
    await until_waiting(world)
    await elsewhere.execute("COMMIT")
    await stop
    await wait_for_event(worker.stops)
    assert await scene.orchestrator.release_stopped() == 0
    assert await stops_of(worker, [task], {}) == {task}


@in_world
async def test_a_claim_that_meets_a_stop_does_not_get_the_task(world):
    scene, worker, elsewhere = await Scene.begin(world), await world.worker("q"), await world.connect()
    task = await scene.dispatch("a")
    await elsewhere.execute("BEGIN")
    await elsewhere.execute(f"UPDATE dag_task_queue SET stop_requested_at = clock() WHERE task_id = {task}")
    assert await at_once(worker.claim(1)) == []
    await elsewhere.execute("COMMIT")
    assert await worker.claim(1) == []


@in_world
async def test_a_withdrawal_that_meets_a_claim_leaves_the_task_to_the_worker(world):
    scene, worker, elsewhere = await Scene.begin(world), await world.worker("q"), await world.connect()
    task = await scene.dispatch("a")
    await begin_claim(elsewhere, worker)
    taken_back = asyncio.create_task(scene.write(withdrawals=[Withdrawal(task, AttemptStatus.RELEASED)]))
    await until_waiting(world)
    await elsewhere.execute("COMMIT")
    await taken_back
    assert await scene.results() == []
    assert await worker.report([TaskReport(task, 7, AttemptStatus.COMPLETED, output=JsonText("1"))]) == {task}


# ── Turns ──


@in_world
async def test_a_turn_that_meets_the_loss_of_its_job_writes_nothing_of_it(world):
    scene, elsewhere = await Scene.begin(world), await world.connect()
    other = await Scene.begin(world, scene.orchestrator)
    lost, kept = [
        a_turn(await each.now(), tasks=[a_task(world)], events=[AuditEvent(EventType.JOB_STARTED)])
        for each in (scene, other)
    ]
    await elsewhere.execute("BEGIN")
    await elsewhere.execute(f"UPDATE dag_jobs SET owner_id = NULL WHERE id = {scene.job_id}")
    write = asyncio.create_task(scene.orchestrator.commit_turns([lost, kept], scene.orchestrator.clock.now()))
    await until_waiting(world)
    await elsewhere.execute("COMMIT")
    assert await write == {other.job_id}
    assert await world.queued() == {kept.tasks[0].task_id}
    assert [event.type for event in await world.events(scene.job_id)] == ["JobSubmitted", "JobClaimed"]
    assert (await world.job(scene.job_id)).status == "PENDING"


@pytest.mark.parametrize("end", ["COMMIT", "ROLLBACK"])
@in_world
async def test_a_turn_with_notified_results_waits_for_a_concurrent_turn_and_is_rejected_if_that_commits(
    world, end
):
    scene, worker, elsewhere = await Scene.begin(world), await world.worker("q"), await world.connect()
    await scene.dispatch("a")
    (task,) = await worker.claim(1)
    scene.orchestrator.wakeup.clear()
    await worker.report([TaskReport(task.task_id, task.token, AttemptStatus.COMPLETED, output=JsonText("1"))])
    await wait_for_event(scene.orchestrator.wakeup)
    (pushed,) = scene.orchestrator.notified_results
    turn = a_turn(
        await scene.now(),
        results=[pushed.id],
        notified_results=[pushed],
        events=[AuditEvent(EventType.JOB_STARTED)],
    )
    # As an owner that was believed dead does, whose turn is under way.
    await elsewhere.execute("BEGIN")
    await elsewhere.execute(f"UPDATE dag_jobs SET event_seq = event_seq + 1 WHERE id = {scene.job_id}")
    await elsewhere.execute(f"DELETE FROM dag_task_results WHERE id = {pushed.id}")
    write = asyncio.create_task(scene.orchestrator.commit_turns([turn], scene.orchestrator.clock.now()))
    await until_waiting(world)
    await elsewhere.execute(end)
    written = end == "ROLLBACK"
    assert await write == ({scene.job_id} if written else set())
    assert len(await world.attempts(scene.job_id)) == written
    assert len(await world.events(scene.job_id)) == 2 + written


# ── Submits ──


@pytest.mark.parametrize("end", ["COMMIT", "ROLLBACK"])
@in_world
async def test_a_submit_waits_for_another_of_its_key_and_goes_by_what_became_of_it(world, end):
    client, elsewhere = await world.client(), await world.connect()
    await client.put_graph(ONE.content_hash, "{}")
    first, second = a_job(world, idempotency_key="k"), a_job(world, idempotency_key="k")
    await elsewhere.execute("BEGIN")
    await elsewhere.execute(
        "INSERT INTO dag_jobs (id, name, workflow_id, version, content_hash, inputs, idempotency_key, created_at)"
        f" VALUES ({first.id}, 'one', 'one', 1, '{ONE.content_hash}', '{{}}', 'k', now())"
    )
    submit = asyncio.create_task(client.submit([second]))
    await until_waiting(world)
    await elsewhere.execute(end)
    is_new = end == "ROLLBACK"
    assert await submit == [Accepted(second.id if is_new else first.id, is_new=is_new)]
