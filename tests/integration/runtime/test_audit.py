"""An audit of a consistent database finds nothing, and every corruption of its rows violates an invariant.

Each corruption is made in a transaction that is rolled back, with constraints and keys disabled.
"""

from __future__ import annotations

import asyncio
from collections import defaultdict
from typing import TYPE_CHECKING

import asyncpg
import pytest

from dagmaster.application.cursors import CursorKind, encode_cursor
from dagmaster.application.database_admin import AuditSummary, audit_batch
from dagmaster.application.output_audit import audit_outputs
from dagmaster.bootstrap.database_admin import open_database_admin
from dagmaster.cli.main import main
from dagmaster.errors import CursorInvalid, JobNotFound
from dagmaster.ports.database_config import DatabaseConfig
from dagmaster.settings import load_settings
from dagmaster.store.postgres.audit import INVARIANTS, SETTINGS, audit
from dagmaster.store.postgres.named_queries import queries
from tests.integration.runtime.runtime_world import owner_of

if TYPE_CHECKING:
    from asyncpg import Connection, Record

    from tests.integration.runtime.runtime_world import World

CHILD = "{workflow_id: child, nodes: {a: {handler: echo}}}"
SLOW_CHILD = "{workflow_id: slow, nodes: {w: {type: wait, signal: never}}}"
DONE = """{workflow_id: done, nodes: {
    w: {type: wait, signal: go, next: t},
    t: {handler: flaky, retry: {initial_delay_seconds: 0}, next: [p, c, x]},
    x: {handler: fail, retry: none, allow_failure: true},
    c: {type: workflow, workflow_id: child},
    p: {handler: make_chunks, params: {count: 3}, next: f},
    f: {type: fan_out, source: '{{ nodes.p.output.chunks }}', task: {handler: echo}, next: s},
    s: {type: fan_in, aggregation: collect}}}"""
OPEN = """{workflow_id: open, nodes: {
    w: {type: wait, signal: never},
    y: {type: approval, message: well},
    r: {handler: flaky, retry: {initial_delay_seconds: 3600, max_delay_seconds: 3600}},
    q: {handler: echo, queue: nobody},
    c: {type: workflow, workflow_id: slow},
    f: {type: fan_out, source: [1, 2, 3], max_parallel: 1, task: {handler: echo, queue: nobody}}}}"""

# What is done to the rows, and the invariants that it violates. {done}, {open} and {child} are jobs.
HELD = "UPDATE dag_task_queue SET lease_token = 1, claimed_at = clock(), worker_id ="
# An orchestrator lives for an hour, and it owns what is open.
ALIVE = "UPDATE dag_orchestrators SET stopped_at = NULL, heartbeat_at = clock(), started_at = clock() - interval '1 hour'"
OWNED = f"{ALIVE}; UPDATE dag_jobs SET owner_id = (SELECT owner_id FROM dag_orchestrators) WHERE finished_at IS NULL"
AN_HOUR_AGO = "UPDATE dag_job_events SET at = at - interval '1 hour'"
CORRUPTIONS: dict[str, tuple[str, set[str]]] = {
    "an event is gone": (
        "DELETE FROM dag_job_events WHERE job_id = {done} AND type = 'SignalReceived'",
        {"events_have_no_gaps"},
    ),
    "an event is to come": (
        "UPDATE dag_jobs SET event_seq = event_seq + 1 WHERE id = {open}",
        {"events_have_no_gaps"},
    ),
    "something happens after the end": (
        (
            "UPDATE dag_jobs SET event_seq = event_seq + 1 WHERE id = {done};"
            " INSERT INTO dag_job_events (job_id, seq, type, at, by) SELECT id, event_seq, 'SignalReceived', clock(), 'ada'"
            " FROM dag_jobs WHERE id = {done}"
        ),
        {"events_are_in_order"},
    ),
    "a job that never started": (
        "UPDATE dag_job_events SET type = 'CommandRejected' WHERE job_id = {done} AND type = 'JobStarted'",
        {"events_are_in_order"},
    ),
    "a dead owner wrote": (
        "UPDATE dag_job_events SET by = 'orchestrator 1' WHERE job_id = {done} AND node_id = 'p' AND type = 'NodeDispatched'",
        {"only_the_owner_writes"},
    ),
    "a claim in an epoch of before": (
        "UPDATE dag_job_events SET data = '{{\"epoch\": 0}}' WHERE job_id = {done} AND type = 'JobClaimed'",
        {"only_the_owner_writes"},
    ),
    "a claim that the job does not know": (
        "UPDATE dag_jobs SET owner_epoch = 0 WHERE id = {done}",
        {"only_the_owner_writes"},
    ),
    "a node that failed in silence": (
        "UPDATE dag_node_states SET status = 'FAILED', output = NULL, error = '{{}}' WHERE job_id = {done} AND node_id = 's'",
        {"node_states_match_events"},
    ),
    "an attempt that made a result of another job": (
        "UPDATE dag_job_events SET data = '{{\"reused_from\": {{}}}}' WHERE job_id = {done} AND node_id = 't' AND type = 'NodeCompleted'",
        {"node_states_match_events"},
    ),
    "a node without a row": (
        "DELETE FROM dag_node_states WHERE job_id = {done} AND node_id = 's'",
        {"node_states_match_events"},
    ),
    "a node that began in silence": (
        (
            "UPDATE dag_node_states SET status = 'DISPATCHED', attempt = 1, task_id = 1, wake_at = clock()"
            " WHERE job_id = {open} AND node_id = 'f__2'"
        ),
        {"node_states_match_events"},
    ),
    "a completion that is told again": (
        "UPDATE dag_job_events SET type = 'NodeCompleted', node_id = 's' WHERE job_id = {done} AND type = 'SignalReceived'",
        {"nodes_complete_once"},
    ),
    "two nodes in one place": (
        "UPDATE dag_node_states SET finished_seq = 1 WHERE job_id = {done} AND node_id = 's'",
        {"nodes_complete_once"},
    ),
    "an output is gone": (
        "UPDATE dag_node_states SET output = NULL, output_ref = NULL WHERE job_id = {done} AND node_id = 't'",
        {"only_completed_nodes_have_outputs"},
    ),
    "an output before the end": (
        "UPDATE dag_node_states SET output = '1' WHERE job_id = {open} AND node_id = 'q'",
        {"only_completed_nodes_have_outputs"},
    ),
    "a task that is reported and queued": (
        (
            "INSERT INTO dag_task_results (job_id, node_id, attempt, task_id, queue, status, dispatched_at, reported_at)"
            " SELECT job_id, node_id, attempt, task_id, queue, 'LOST', clock(), clock() FROM dag_task_queue WHERE node_id = 'q'"
        ),
        {"tasks_are_stored_once"},
    ),
    "a task that is nowhere": (
        "DELETE FROM dag_task_queue WHERE node_id = 'q'",
        {"tasks_are_stored_once", "open_nodes_can_progress"},
    ),
    "an attempt that never was": (
        (
            "INSERT INTO dag_task_queue (task_id, job_id, node_id, attempt, queue, priority, handler, params, timeout_seconds, dispatched_at)"
            " SELECT 7, job_id, node_id, 2, queue, priority, handler, params, 1, clock() FROM dag_task_queue WHERE node_id = 'q'"
        ),
        {"tasks_are_stored_once", "queued_tasks_match_nodes"},
    ),
    "an attempt is missing": (
        "UPDATE dag_node_states SET attempt = 2 WHERE job_id = {done} AND node_id = 'x'",
        {"attempts_have_no_gaps"},
    ),
    "an attempt that ended otherwise": (
        "UPDATE dag_task_attempts SET status = 'RELEASED' WHERE job_id = {done} AND node_id = 'p'",
        {"attempts_match_events"},
    ),
    "an attempt that ended twice": (
        (
            "UPDATE dag_job_events SET type = 'AttemptReleased', node_id = 'p', attempt = 1, data = NULL"
            " WHERE job_id = {done} AND type = 'SignalReceived'"
        ),
        {"attempts_match_events"},
    ),
    "a try that was not counted": (
        "UPDATE dag_node_states SET failed_attempts = 0 WHERE job_id = {done} AND node_id = 't'",
        {"attempt_counters_match_attempts"},
    ),
    "a loss that never was": (
        "UPDATE dag_node_states SET lost_attempts = 1 WHERE job_id = {done} AND node_id = 'p'",
        {"attempt_counters_match_attempts"},
    ),
    "a task that is held by an unknown worker": (
        f"{HELD} 1 WHERE node_id = 'q'",
        {"queued_tasks_match_nodes"},
    ),
    "a task of another attempt": (
        "UPDATE dag_node_states SET task_id = 1 WHERE job_id = {open} AND node_id = 'q'",
        {"queued_tasks_match_nodes", "open_nodes_can_progress"},
    ),
    "a rest without an end": (
        "UPDATE dag_node_states SET wake_at = NULL WHERE job_id = {open} AND node_id = 'r'",
        {"open_nodes_can_progress"},
    ),
    "a wait for nothing": (
        "UPDATE dag_job_events SET data = '{{\"until\": \"2026\"}}' WHERE job_id = {open} AND type = 'NodeWaiting'",
        {"open_nodes_can_progress"},
    ),
    "a fan-out with nothing under way": (
        (
            "UPDATE dag_node_states SET parent_node_id = 'f', status = 'PENDING', attempt = 0, task_id = NULL"
            " WHERE job_id = {open} AND node_id = 'f__0'; DELETE FROM dag_task_queue WHERE node_id = 'f__0';"
            " UPDATE dag_job_events SET type = 'CommandRejected' WHERE job_id = {open} AND node_id = 'f__0'"
        ),
        {"open_nodes_can_progress"},
    ),
    "a child job that is gone": (
        "UPDATE dag_jobs SET parent_attempt = 9 WHERE parent_job_id = {open}",
        {"open_nodes_can_progress", "child_jobs_match_events"},
    ),
    "an owner that is not registered": (
        "UPDATE dag_jobs SET owner_id = 1 WHERE id = {open}",
        {"claims_can_expire"},
    ),
    "an owner that was expired long ago": (
        (
            "UPDATE dag_jobs SET owner_id = (SELECT min(owner_id) FROM dag_orchestrators) WHERE id = {open};"
            " UPDATE dag_orchestrators SET stopped_at = clock() - interval '2 hours'"
        ),
        {"claims_can_expire"},
    ),
    "a task of a worker that was expired long ago": (
        (
            f"{HELD} (SELECT min(worker_id) FROM dag_workers) WHERE node_id = 'q';"
            " UPDATE dag_workers SET stopped_at = clock() - interval '2 hours'"
        ),
        {"claims_can_expire"},
    ),
    "an error of a job that completed": (
        "UPDATE dag_jobs SET error = '{{}}' WHERE id = {done}",
        {"finished_jobs_are_consistent"},
    ),
    "an end that was not told": (
        "UPDATE dag_jobs SET status = 'FAILED', error = '{{}}', result = NULL WHERE id = {done}",
        {"finished_jobs_are_consistent"},
    ),
    "a run that was not told": (
        "UPDATE dag_jobs SET run = 2 WHERE id = {done}",
        {"finished_jobs_are_consistent"},
    ),
    "a node that is open in a job that is over": (
        (
            "UPDATE dag_node_states SET status = 'WAITING', output = NULL, finished_seq = NULL"
            " WHERE job_id = {done} AND node_id = 'w';"
            " UPDATE dag_job_events SET type = 'NodeWaiting' WHERE job_id = {done} AND node_id = 'w' AND type = 'NodeCompleted'"
        ),
        {"finished_jobs_are_consistent"},
    ),
    "a child of a fan-out too few": (
        "UPDATE dag_node_states SET expanded_count = 4, source_count = 4 WHERE job_id = {done} AND node_id = 'f'",
        {"fan_outs_have_their_children"},
    ),
    "a child of a fan-out in another place": (
        "UPDATE dag_node_states SET fan_out_index = 7 WHERE job_id = {done} AND node_id = 'f__1'",
        {"fan_outs_have_their_children"},
    ),
    "a child job without an event": (
        "UPDATE dag_job_events SET data = '{{\"job_id\": \"1\"}}' WHERE job_id = {done} AND type = 'ChildJobStarted'",
        {"child_jobs_match_events"},
    ),
    "a key with two jobs": (
        ("DROP INDEX dag_jobs_key; UPDATE dag_jobs SET idempotency_key = 'k'"),
        {"idempotency_keys_are_unique"},
    ),
    "a job that is gone": ("DELETE FROM dag_jobs WHERE id = {child}", {"no_orphaned_rows"}),
    "an event of a job that never was": (
        "INSERT INTO dag_job_events (job_id, seq, type, at, by) VALUES (1, 7, 'JobFinished', clock(), 'ada')",
        {"events_are_in_order", "no_orphaned_rows"},
    ),
    "a task of a job that never was": (
        "UPDATE dag_task_queue SET job_id = 9000000000000000000 WHERE node_id = 'q'",
        {"tasks_are_stored_once", "open_nodes_can_progress", "queued_tasks_match_nodes", "no_orphaned_rows"},
    ),
    "a report of a job that never was": (
        (
            "INSERT INTO dag_task_results (job_id, node_id, attempt, task_id, queue, status, dispatched_at, reported_at)"
            " VALUES (1, 'n', 1, 1, 'q', 'LOST', clock(), clock())"
        ),
        {"no_orphaned_rows"},
    ),
    "a task and a report of a job that is over": (
        (
            "INSERT INTO dag_task_results (job_id, node_id, attempt, task_id, queue, status, dispatched_at, reported_at)"
            " VALUES ({done}, 'p', 1, 1, 'q', 'LOST', clock(), clock());"
            " UPDATE dag_task_queue SET job_id = {done}, node_id = 'p' WHERE node_id = 'q'"
        ),
        {
            "tasks_are_stored_once",
            "open_nodes_can_progress",
            "queued_tasks_match_nodes",
            "finished_jobs_are_consistent",
        },
    ),
    "a child of no fan-out": (
        "UPDATE dag_node_states SET parent_node_id = 'g' WHERE job_id = {done} AND node_id = 's'",
        {"no_orphaned_rows"},
    ),
    "a command that is not processed": (
        (
            "INSERT INTO dag_inbox (job_id, kind, body, created_at) VALUES ({open}, 'cancel', '{{}}', clock() - interval '1 hour');"
            f" {OWNED}"
        ),
        {"commands_are_processed"},
    ),
    "a result that is not processed": (
        (
            "INSERT INTO dag_task_results (job_id, node_id, attempt, task_id, queue, status, dispatched_at, reported_at)"
            " SELECT job_id, node_id, attempt, task_id, queue, 'LOST', dispatched_at, clock() - interval '1 hour'"
            " FROM dag_task_queue WHERE node_id = 'q';"
            f" DELETE FROM dag_task_queue WHERE node_id = 'q'; {OWNED}"
        ),
        {"results_are_processed"},
    ),
    "a job that is not claimed": (f"{ALIVE}; {AN_HOUR_AGO}", {"jobs_are_claimed"}),
    "a job whose run is long gone": (
        (
            f"{ALIVE}; {AN_HOUR_AGO}; UPDATE dag_jobs SET queue = 'run:1' WHERE finished_at IS NULL;"
            " UPDATE dag_workers SET queues = '{{run:1}}', pid = 0, stopped_at = clock() - interval '1 hour'"
        ),
        {"jobs_are_claimed"},
    ),
}

# What looks like a standstill, and is none.
HEALTH = {
    "a recent result": CORRUPTIONS["a result that is not processed"][0].replace(
        "clock() - interval '1 hour' FROM", "clock() FROM"
    ),
    "a result without a live owner": CORRUPTIONS["a result that is not processed"][0]
    + "; UPDATE dag_orchestrators SET heartbeat_at = clock() - interval '1 hour'",
    "a job without a live orchestrator": (
        f"{AN_HOUR_AGO}; UPDATE dag_orchestrators SET stopped_at = clock() - interval '1 hour'"
    ),
    "a job of which something was told a moment ago": ALIVE,
    "a job whose owner left a moment ago": (
        f"{ALIVE}; {AN_HOUR_AGO};"
        " INSERT INTO dag_orchestrators (owner_id, host, pid, version, started_at, heartbeat_at, stopped_at)"
        " VALUES (7, 'h', 1, '1', clock(), clock(), clock()); UPDATE dag_jobs SET previous_owner_id = 7"
    ),
    "a job of a run that lives": (
        f"{ALIVE}; {AN_HOUR_AGO}; UPDATE dag_jobs SET queue = 'run:1';"
        " UPDATE dag_workers SET queues = '{{run:1}}', pid = 0, stopped_at = NULL, heartbeat_at = clock()"
    ),
    "a job next to a run that lives": (
        f"{ALIVE}; {AN_HOUR_AGO};"
        " UPDATE dag_workers SET queues = '{{run:1}}', stopped_at = NULL, heartbeat_at = clock()"
    ),
}


async def populate(world: World) -> dict[str, str]:
    """Two jobs and their children: one has finished, the other has an open node of every kind. No service is alive."""
    await world.publish(CHILD)
    await world.publish(SLOW_CHILD)
    orchestrator = await world.orchestrator()
    worker = await world.worker("default", "q")
    done, opened = await world.submit(DONE), await world.submit(OPEN)
    await world.until_node(done, "w", "WAITING")
    await world.send(done, "signal", name="go", payload={})
    assert (await world.finished(done)).status == "COMPLETED"
    await world.until_node(opened, "r", "READY")
    await world.until_node(opened, "c", "RUNNING")
    await world.until(
        "SELECT count(*) = 1 FROM dag_node_states WHERE status = 'WAITING' AND job_id <> $1", int(opened)
    )
    child = await world.value("SELECT id FROM dag_jobs WHERE parent_job_id = $1", int(done))
    for each in (worker, orchestrator):
        await world.stop(each)
    return {"done": done, "open": opened, "child": str(child)}


async def violated_after(world: World, done: dict[str, str]) -> dict[str, set[str]]:
    """Return the invariants that are violated after each of these changes to consistent rows."""
    jobs = await populate(world)
    result = {}
    connection = await asyncpg.connect(world.dsn, server_settings={"search_path": "dagapp"})
    try:
        sound = await audit(connection)
        assert sound.violations == ()
        assert (sound.jobs, sound.nodes > 15, sound.events > 40) == (4, True, True)
        for what, statements in done.items():
            transaction = connection.transaction()
            await transaction.start()
            await connection.execute("SET LOCAL session_replication_role = replica")
            await connection.execute(statements.format(**jobs))
            violations = [(await audit(connection, jobs_at_once=size)).violations for size in (1, 1000)]
            together, one_by_one = ({each.invariant for each in some} for some in violations)
            assert together == one_by_one, what
            result[what] = together
            await transaction.rollback()
    finally:
        await connection.close()
    return result


async def test_each_corruption_violates_exactly_the_expected_invariants(world: World):
    violations = await violated_after(
        world, {what: statements for what, (statements, _) in CORRUPTIONS.items()}
    )
    assert violations == {what: invariants for what, (_, invariants) in CORRUPTIONS.items()}


async def test_what_will_progress_by_itself_or_has_no_service_that_could_is_no_violation(world: World):
    violations = await violated_after(world, HEALTH)
    assert violations == {what: set() for what in HEALTH}


@pytest.mark.parametrize("invariant", INVARIANTS)
def test_every_invariant_has_a_corruption_that_violates_it_alone(invariant):
    assert {invariant} in [invariants for _, invariants in CORRUPTIONS.values()]


async def test_no_check_compares_all_rows_of_a_job_with_all_others(world: World):
    """Merged by the id of the job alone, 10,000 nodes are compared with 10,000 attempts each."""
    await populate(world)
    connection = await asyncpg.connect(world.dsn, server_settings={"search_path": "dagapp"})
    known = {
        "low": 0,
        "high": 2**63 - 1,
        "limit": 10,
        "at_once": 10,
        "events_at_once": 10,
        "has_open_jobs": True,
    }
    try:
        async with connection.transaction():
            for name, value in SETTINGS.items():
                await connection.execute(f"SET LOCAL {name} = {value}")
            plans = [
                await connection.fetch(
                    f"EXPLAIN {query.sql}", *query.arguments(defaultdict(lambda: 1.0, known))
                )
                for query in queries("audit").values()
            ]
    finally:
        await connection.close()
    assert [line for plan in plans for (line,) in plan if "Merge" in line and "Join" in line] == []


async def test_an_audit_takes_jobs_in_batches_each_in_a_separate_transaction(
    world: World, monkeypatch: pytest.MonkeyPatch
):
    await populate(world)
    connection = await asyncpg.connect(world.dsn, server_settings={"search_path": "dagapp"})
    steps: list[tuple[int, int]] = []

    def note(done: int, total: int) -> None:
        assert not connection.is_in_transaction()
        steps.append((done, total))

    try:
        await audit(connection, jobs_at_once=3, on_progress=note)
        assert steps == [(3, 4), (4, 4)]
        steps.clear()
        # A batch has a bounded number of events, too, but at least one job.
        monkeypatch.setattr("dagmaster.store.postgres.audit.EVENTS_AT_ONCE", 1)
        await audit(connection, on_progress=note)
        assert steps == [(1, 4), (2, 4), (3, 4), (4, 4)]
    finally:
        await connection.close()


async def test_an_audit_lists_a_bounded_number_of_violations_of_each_invariant(
    world: World, monkeypatch: pytest.MonkeyPatch
):
    await populate(world)
    monkeypatch.setattr("dagmaster.store.postgres.audit.MAX_VIOLATIONS", 3)
    connection = await asyncpg.connect(world.dsn, server_settings={"search_path": "dagapp"})
    transaction = connection.transaction()
    await transaction.start()
    try:
        await connection.execute("UPDATE dag_jobs SET event_seq = 99")
        violations = (await audit(connection, jobs_at_once=2)).violations
        assert [violation.invariant for violation in violations] == ["events_have_no_gaps"] * 3
    finally:
        await transaction.rollback()
        await connection.close()


async def test_an_audit_in_calls_of_a_batch_each_finds_what_one_in_a_single_call_finds(
    world: World, monkeypatch: pytest.MonkeyPatch
):
    jobs = await populate(world)
    connection = await asyncpg.connect(world.dsn, server_settings={"search_path": "dagapp"})
    monkeypatch.setattr("dagmaster.store.postgres.audit.JOBS_AT_ONCE", 3)
    monkeypatch.setattr("dagmaster.store.postgres.audit.TASKS_AT_ONCE", 1)
    config = DatabaseConfig(dsn=world.dsn)
    async with open_database_admin(config, load_settings(), world.blobs) as admin:
        try:
            await connection.execute("UPDATE dag_jobs SET event_seq = event_seq + 90")
            whole = await audit(connection)
            summary, cursors = AuditSummary(), list[str | None]()
            while not cursors or cursors[-1] is not None:
                batch = await audit_batch(admin, cursor=cursors[-1] if cursors else None)
                assert batch.jobs_total == (None if cursors else 4)
                summary.add(batch)
                cursors.append(batch.next_cursor)
            one = await audit_batch(admin, job_id=jobs["done"])
        finally:
            await connection.execute("UPDATE dag_jobs SET event_seq = event_seq - 90")
            await connection.close()
        view = summary.view()
        assert len(cursors) > 4
        assert {(each.job_id, each.invariant, each.message) for each in view.violations} == {
            (each.job_id, each.invariant, each.message) for each in whole.violations
        }
        assert (view.jobs_total, view.nodes_total, view.events_total) == (
            whole.jobs,
            whole.nodes,
            whole.events,
        )
        assert (view.is_valid, view.invariants_total) == (False, whole.invariants)
        assert ({each.job_id for each in one.violations}, one.next_cursor) == ({jobs["done"]}, None)
        for job_id in ("1", "x", "9" * 20):
            with pytest.raises(JobNotFound):
                await audit_batch(admin, job_id=job_id)
        # A position that no audit is at.
        for position in (("workers", 1), ("jobs", 2**63)):
            with pytest.raises(CursorInvalid):
                await audit_batch(admin, cursor=encode_cursor(CursorKind.INVARIANTS, position))


def test_an_invariant_of_several_tables_has_one_rule():
    files = [queries(file) for file in ("audit", "audit_queue", "audit_results")]
    for invariant in INVARIANTS:
        assert len({file[invariant].description for file in files if invariant in file}) == 1


async def test_the_audit_of_one_job_reports_only_that_job(world: World):
    await world.start()
    first, second = [(await world.run("{name: n, nodes: {a: {handler: echo}}}")).job_id for _ in range(2)]
    connection = await asyncpg.connect(world.dsn, server_settings={"search_path": "dagapp"})
    transaction = connection.transaction()
    await transaction.start()
    try:
        await connection.execute("UPDATE dag_jobs SET event_seq = 99")
        for job in (first, second):
            (result,) = (await audit(connection, job_id=job)).violations
            assert (result.job_id, result.invariant) == (job, "events_have_no_gaps")
            assert str(result).startswith(
                f"events_have_no_gaps: job {job} has 6 events from 1 to 6, and its event_seq is 99"
            )
            assert (
                result.rule
                == "The events of a job are numbered from 1 to its event_seq, and none is missing."
            )
    finally:
        await transaction.rollback()
        await connection.close()


async def test_what_was_asked_by_another_orchestrator_is_no_write_of_it(
    world: World, monkeypatch: pytest.MonkeyPatch
):
    await world.publish(SLOW_CHILD)
    first = await world.orchestrator()
    parent = await world.submit("{workflow_id: parent, nodes: {c: {type: workflow, workflow_id: slow}}}")
    await world.until("SELECT count(*) = 1 FROM dag_node_states WHERE status = 'WAITING'")
    child = str(await world.value("SELECT id FROM dag_jobs WHERE parent_job_id = $1", int(parent)))
    await world.stop(first)

    # Who claims passes over what is locked: one gets the child, and then wants nothing more; another gets the parent.
    looked = asyncio.Event()

    async def claims_nothing(*_given: object) -> list[object]:
        looked.set()
        return []

    connection = await asyncpg.connect(world.dsn, server_settings={"search_path": "dagapp"})
    try:
        async with connection.transaction():
            await connection.execute("SELECT FROM dag_jobs WHERE id = $1 FOR UPDATE", int(parent))
            owner_of_child = await world.orchestrator()
            await world.until("SELECT owner_id IS NOT NULL FROM dag_jobs WHERE id = $1", int(child))
            monkeypatch.setattr(owner_of_child.store, "claim", claims_nothing)
            await looked.wait()
        owner_of_parent = await world.orchestrator()
        await world.until(
            "SELECT owner_id = $2 FROM dag_jobs WHERE id = $1", int(parent), owner_of(owner_of_parent)
        )
        # And a person may have any name.
        await world.send(child, "approve", by="orchestrator Ada", node="w")
        await world.until_event(child, "CommandRejected")
        await world.send(parent, "cancel")
        assert (await world.finished(parent)).status == "CANCELLED"
        assert (await world.finished(child)).status == "CANCELLED"
        events = await world.events(child, "CommandRejected", "CancelRequested", "JobFinished")
        assert [(row["type"], row["by"]) for row in events] == [
            ("CommandRejected", "orchestrator Ada"),
            ("CancelRequested", f"orchestrator {owner_of(owner_of_parent)}"),
            ("JobFinished", f"orchestrator {owner_of(owner_of_child)}"),
        ]
        assert (await audit(connection)).violations == ()
    finally:
        await connection.close()


LARGE = """{name: n, nodes: {
    a: {handler: make_chunks, params: {count: 20000}}}, outputs: {all: '{{ nodes.a.output }}'}}"""


async def test_outputs_that_are_newer_than_the_rows_of_their_job_are_found(world: World):
    """Rows are set back to what a standby has that has not received the last commits."""
    await world.start()
    job = (await world.run(LARGE)).job_id
    seq = await world.value("SELECT event_seq FROM dag_jobs")
    async with open_database_admin(DatabaseConfig(dsn=world.dsn), load_settings(), world.blobs) as admin:

        async def found() -> list[tuple[str, str | None, str]]:
            view = await audit_outputs(admin)
            assert view.is_valid is not bool(view.violations)
            return [(each.job_id, each.node_id, each.message) for each in view.violations]

        assert await found() == []
        await world.rows("UPDATE dag_node_states SET attempt = 0")
        assert await found() == [(job, "a", "has an output of attempt 1, and the database knows 0")]
        await world.rows("UPDATE dag_node_states SET attempt = 1")
        await world.rows("UPDATE dag_jobs SET event_seq = 1")
        ((_, path, message),) = await found()
        assert (path, message.endswith("and the job is at event 1 of epoch 1")) == ("result", True)
        await world.rows("UPDATE dag_jobs SET event_seq = $1", seq)
        await world.blobs.write("jobs/7/a/1-7123456789012.json", b"{}")
        assert await found() == [("7", "a", "has an output, and the database has no such job")]


async def lost_midway(connection: Connection[Record]) -> None:
    await connection.execute("SELECT pg_terminate_backend(pg_backend_pid())")


async def lost_before(connection: Connection[Record]) -> None:
    connection.terminate()
    await connection.execute("SELECT 1")


async def refused(connection: Connection[Record]) -> None:
    await connection.execute("SELECT nothing")


@pytest.mark.parametrize(
    ("happens", "code"),
    [(lost_midway, 3), (lost_before, 3), (refused, 70)],
)
async def test_an_audit_that_could_not_run_reports_no_violation(
    world: World, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], happens, code
):
    monkeypatch.setenv("DAGMASTER_DATABASE_URL", world.dsn)

    def exit_code() -> object:
        with pytest.raises(SystemExit) as left:
            main(["jobs", "audit"])
        return left.value.code

    with monkeypatch.context() as patched:
        check = "dagmaster.store.postgres.audit._Auditor.check_batch"
        patched.setattr(check, lambda auditor, *_given: happens(auditor._connection))
        assert await asyncio.to_thread(exit_code) == code
    assert capsys.readouterr().err.startswith("Error: ")


def test_the_help_of_an_audit_names_every_exit_code(capsys: pytest.CaptureFixture[str]):
    with pytest.raises(SystemExit):
        main(["jobs", "audit", "--help"])
    details = " ".join(capsys.readouterr().out.split("Exit codes:")[1].split())
    assert [word for word in details.split() if word.isdigit()] == ["0", "1", "2", "3", "130"]
