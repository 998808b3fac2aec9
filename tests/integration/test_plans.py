"""No statement of a service reads more rows than it needs, whatever statistics the planner has.

The tables are analyzed while they are empty, or while they are full; then services work on a few rows among many others.
The server reports the plan of each statement with the rows that every part of it handled (auto_explain).
"""

from __future__ import annotations

import json
from dataclasses import replace
from typing import TYPE_CHECKING, Any

import pytest

from dagmaster.engine.decisions import FinishJob
from dagmaster.engine.status import AttemptStatus, JobStatus
from dagmaster.orchestrator.inbox import result_event
from dagmaster.ports.audit_events import AuditEvent, EventType
from dagmaster.ports.audit_trail import AuditFilter
from dagmaster.ports.command_kinds import CommandKind
from dagmaster.ports.job_filter import JobFilter
from dagmaster.ports.job_records import ParentNode
from dagmaster.ports.json_text import JsonText
from dagmaster.ports.node_values import ValueKey, ValueKind
from dagmaster.ports.read_store import NodeFilter
from dagmaster.ports.remote_workers import NewWorker
from dagmaster.ports.task_journal import CheckpointWrite, LogChunk
from dagmaster.ports.task_ledger import TaskReport
from dagmaster.ports.turn_records import Withdrawal
from dagmaster.store.postgres.audit_trail import PostgresAuditTrail
from dagmaster.store.postgres.named_queries import parts, queries
from dagmaster.store.postgres.submit_statement import submit_statement
from dagmaster.store.postgres.turn_statement import PARTS
from dagmaster.store.postgres.worker_store import _REPORT_ONE
from tests.conformance.jobs import Played, a_job, a_task, a_turn, stops_of
from tests.conformance.stores import PostgresWorld, _sessions, in_world

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from dagmaster.ports.task_source import ClaimedTask
    from dagmaster.ports.turn_records import TurnCommit
    from dagmaster.store.postgres.connection import Connection
    from dagmaster.store.postgres.orchestrator_store import PostgresOrchestratorStore
    from dagmaster.store.postgres.worker_store import PostgresWorkerStore

CROWD = 5_000
"""How many rows each table has besides those of the job."""

BATCH = 100
"""How many rows of the job a statement is about."""

MOST = 2_000
"""How many rows any part of a plan may handle. A job has 500 nodes; a claim of jobs reads all 1,500 commands."""

FAN_OUT = f"{{name: fan, nodes: {{f: {{type: fan_out, source: {list(range(500))}, task: {{handler: h, queue: q}}}}}}}}"

FILL = """
INSERT INTO dag_graphs (content_hash, definition) VALUES ('g', '{}') ON CONFLICT DO NOTHING;
INSERT INTO dag_jobs (id, workflow_id, version, content_hash, inputs, status, owner_id, idempotency_key, created_at)
SELECT i, 'w', 1, 'g', '{}', 'RUNNING', $owner, 'key ' || i, clock() FROM generate_series(1, $crowd) AS i;
INSERT INTO dag_jobs (id, workflow_id, version, content_hash, inputs, status, created_at, finished_at)
SELECT $crowd + i, 'w', 1, 'g', '{}', 'COMPLETED', clock(), clock() FROM generate_series(1, $crowd) AS i;
INSERT INTO dag_node_states (job_id, node_id, status, attempt, task_id)
SELECT i, 'n', 'DISPATCHED', 1, i FROM generate_series(1, $crowd) AS i;
INSERT INTO dag_checkpoints (job_id, node_id, attempt, phase, data, saved_at)
SELECT i, 'n', 1, 'p', '1', clock() FROM generate_series(1, $crowd) AS i;
INSERT INTO dag_task_queue (task_id, job_id, node_id, attempt, queue, priority, handler, params, timeout_seconds,
                            dispatched_at, worker_id, lease_token, claimed_at)
SELECT i, i, 'n', 1, 'q', 1, 'h', '{}', 60, clock(), claim.by, claim.by, CASE WHEN claim.by = 1 THEN clock() END
FROM generate_series(1, $crowd) AS i CROSS JOIN LATERAL (SELECT CASE WHEN i % 5 = 0 THEN 1 END AS by) AS claim;
INSERT INTO dag_task_results (job_id, node_id, attempt, task_id, queue, status, dispatched_at, reported_at)
SELECT i, 'n', 2, i, 'q', 'COMPLETED', clock(), clock() FROM generate_series(1, $crowd) AS i;
INSERT INTO dag_inbox (job_id, kind, body, created_at)
SELECT i, 'signal', '{}', clock() FROM generate_series(1, $crowd * 3 / 10) AS i;
"""

UNOWNED = """
INSERT INTO dag_jobs (id, workflow_id, version, content_hash, inputs, priority, created_at)
SELECT 2 * $crowd + i, 'w', 1, 'g', '{}', 1, clock() FROM generate_series(1, $crowd) AS i
"""

# Statements about one row of a small table or of one key, and those of a stop or a drain.
SMALL = {
    "client.assign_queue", "client.put_graph", "client.put_workflow", "client.deactivate", "client.activate", "client.drain", "client.expire_process", "client.lock_workflow", "client.workflow_is",
    "client.undrain",
    "orchestrator.definition", "orchestrator.deregister", "orchestrator.find_workflow", "orchestrator.handler_versions",
    "orchestrator.heartbeat", "orchestrator.lease_machine", "orchestrator.register", "orchestrator.release_jobs", "orchestrator.release_machine",
    "worker.deregister", "worker.has_table_rights", "worker.register",
}  # fmt: skip
# Those that read the whole queue, because no index has the worker of a task, and that return every owned job.
SCANS = {"worker.reconcile", "orchestrator.mark_lost_tasks", "orchestrator.owned_job_ids"}


@pytest.fixture(params=["direct", "pooled", "older postgres"])
def world(request: pytest.FixtureRequest) -> PostgresWorld:
    """Provide a database, whose stores connect directly, or as behind a pooler."""
    server = request.getfixturevalue("older_postgres" if request.param.startswith("older") else "postgres")
    return PostgresWorld(server, is_pooled=request.param != "direct")


@pytest.mark.parametrize("statistics", ["of empty tables", "of tables that were full", "of full tables"])
@in_world
async def test_no_statement_of_a_service_reads_more_rows_than_it_needs(world, statistics):
    await check_plans(world, statistics)


@pytest.mark.parametrize("world", ["pooled", "older postgres"], indirect=True)
@in_world
async def test_no_statement_needs_the_settings_of_the_planner(world, monkeypatch):
    monkeypatch.setattr("dagmaster.store.postgres.session_settings._PLANS", {})
    await check_plans(world, "of empty tables")


@pytest.mark.parametrize("world", ["direct"], indirect=True)
@in_world
async def test_a_reader_of_a_job_does_not_read_the_whole_queue(world):
    await analyze_empty_tables(world, were_full=False)
    plans = Plans(world)
    played = await begin(world, plans)
    await played.worker.claim(BATCH)
    reader = await world.reader()
    await plans.watch()
    job_id = played.job_id
    nodes = await reader.list_nodes(NodeFilter(job_id=job_id), limit=BATCH)
    assert len(nodes) == BATCH
    assert len(await reader.nodes(job_id, [node.node_id for node in nodes])) == BATCH
    assert (await reader.child_counts(job_id, ["f"]))["f"].counts
    await reader.node_values(job_id, "f__1")
    assert len(await reader.attempts(job_id, "f__1")) == 1
    assert sum(queue.tasks for queue in await reader.backlog(job_id)) == 400
    assert {name for name, _ in plans.large()} == set(), plans.large()


@pytest.mark.parametrize("world", ["direct"], indirect=True)
@in_world
async def test_a_feed_reads_the_rows_of_its_jobs_only(world):
    await analyze_empty_tables(world, were_full=False)
    plans = Plans(world)
    played = await begin(world, plans)
    await played.worker.claim(BATCH)
    reader = await world.reader()
    jobs = [played.job_id, *map(str, range(1, BATCH))]
    async with reader.feed(lambda _job_id: None) as feed:
        await feed.jobs(jobs)
        # Its connection is open now.
        await plans.watch()
        before = len(plans.texts)
        assert len(await feed.jobs(jobs)) == BATCH
        events = await feed.events([(job_id, 0) for job_id in jobs], limit=BATCH)
        assert len(events[0]) == BATCH
        assert len(await feed.nodes([(job_id, "n") for job_id in jobs])) == BATCH - 1
        assert (await feed.child_counts([(job_id, "f") for job_id in jobs]))[played.job_id, "f"].counts
        assert len(await feed.claimed_tasks(jobs, limit=BATCH)) >= BATCH
        assert len(plans.texts) == before + 5
    assert {name for name, _ in plans.large()} == set(), plans.large()


@pytest.mark.parametrize("world", ["direct", "pooled", "older postgres"], indirect=True)
@in_world
async def test_no_statement_for_a_worker_that_speaks_http_reads_more_rows_than_it_needs(world):
    await analyze_empty_tables(world, were_full=False)
    plans = Plans(world)
    await begin(world, plans)
    workers, others = await world.remote_workers(), await world.remote_workers()
    await plans.watch()
    worker_id = await workers.register(
        NewWorker(registered_by="ci", host="far", queues=("q",), handlers={"h": "2"})
    )
    # Another server reads it from the database.
    worker = await others.find(worker_id, "ci")
    tasks = await worker.claim_handled(BATCH)
    assert len(tasks) == BATCH
    await worker.keep_fingerprints({task.task_id: (task.token, {"s": "x"}) for task in tasks})
    assert await worker.overdue_tasks([task.task_id for task in tasks], 0.0) == []
    worker.count("completed")
    assert await worker.heartbeat([task.task_id for task in tasks], {}) is not None
    assert (await worker.renew([task.task_id for task in tasks])).stops == set()
    assert len(await worker.report_with_receipts([outcome(task) for task in tasks])) == BATCH
    assert await workers.receipt(tasks[0].task_id, tasks[0].token) is AttemptStatus.COMPLETED
    assert plans.large() == {}
    assert [text for text in REMOTE if text not in plans.texts] == []


AUDIT = """
INSERT INTO dag_audit (actor, action, object_kind, object_id)
SELECT CASE WHEN i <= 5 THEN 'ada' ELSE 'bob' END, 'job.cancel', 'job', CASE WHEN i <= 5 THEN 'old' ELSE 'new' END
FROM generate_series(1, $crowd) AS i
"""


@pytest.mark.parametrize("world", ["direct", "pooled"], indirect=True)
@in_world
async def test_entries_of_an_actor_or_an_object_are_found_by_an_index(world):
    await world._admin.execute(AUDIT.replace("$crowd", str(CROWD)))
    await world._admin.execute("ANALYZE dag_audit")
    trail = PostgresAuditTrail(world.config)
    assert len(await trail.entries(AuditFilter(), limit=BATCH)) == BATCH
    # Its connection is open now.
    plans = Plans(world)
    await plans.watch_sessions(trail.connections.connections)
    filters = AuditFilter(actor="ada"), AuditFilter(object_kind="job", object_id="old"), AuditFilter()
    assert [len(await trail.entries(one, after=(10**9,), limit=BATCH)) for one in filters] == [5, 5, BATCH]
    # The transaction of the last read has ended.
    await trail.connections.connections[0].open()
    assert len(plans.texts) == len(filters)
    assert plans.large() == {}
    await trail.close()


JOBS = """
INSERT INTO dag_graphs (content_hash, definition) VALUES ('g', '{"nodes": {}}');
INSERT INTO dag_jobs (id, workflow_id, version, content_hash, inputs, status, created_at, finished_at)
SELECT i, CASE WHEN status = 'COMPLETED' THEN 'fine' ELSE 'other_' || i % 4 END, 1, 'g', '{}', status, clock(), clock()
FROM (SELECT i, (ARRAY['COMPLETED', 'FAILED', 'CANCELLED'])[i % 3 + 1] AS status FROM generate_series(1, 6 * $crowd) AS i) AS n
"""


@pytest.mark.parametrize("world", ["direct", "older postgres"], indirect=True)
@in_world
async def test_a_status_that_no_job_of_a_workflow_has_is_found_out_by_an_index(world):
    await world._admin.execute(JOBS.replace("$crowd", str(CROWD)))
    await world._admin.execute("VACUUM ANALYZE dag_jobs")
    reader = await world.reader()
    assert len(await reader.jobs(JobFilter(), limit=BATCH)) == BATCH
    # Its connection is open now.
    plans = Plans(world)
    await plans.watch()
    for status in (JobStatus.FAILED, JobStatus.CANCELLED):
        for job_filter in (JobFilter(workflow_id="fine"), JobFilter(name="fine")):
            assert await reader.jobs(replace(job_filter, statuses=frozenset({status})), limit=BATCH) == []
    assert len(plans.texts) == 4
    assert plans.large() == {}


async def check_plans(world: PostgresWorld, statistics: str) -> None:
    """Let services work among many rows, and check the plans of all their statements."""
    if statistics != "of full tables":
        await analyze_empty_tables(world, were_full=statistics == "of tables that were full")
    plans = Plans(world)
    played = await begin(world, plans, analyze=statistics == "of full tables")
    await world._admin.execute(UNOWNED.replace("$crowd", str(CROWD)))
    assert await played.orchestrator.claim_job(played.job_id) == []
    tasks = await work_on_tasks(world, played)
    await run_turns(world, played, tasks)
    await end_turns(world, played)
    await read_jobs(world, played)
    await world.client()
    await plans.watch()
    await serve_clients(world, played)
    await lose_workers(world, played)
    plans.check()


async def begin(world: PostgresWorld, plans: Plans, *, analyze: bool = False) -> Played:
    """Start a fan-out next to many other jobs of the same orchestrator."""
    orchestrator = await world.orchestrator()
    await fill(world, owner=orchestrator.owner_id, crowd=CROWD)
    if analyze:
        await world._admin.execute("ANALYZE")
    await plans.watch()
    played = await Played.begin(world, FAN_OUT, orchestrator)
    await plans.watch()
    return played


async def analyze_empty_tables(world: PostgresWorld, *, were_full: bool) -> None:
    """Analyze tables that have pages and no rows. The statistics of columns stay from when they were full."""
    await fill(world, owner=1, crowd=100)
    await world._admin.execute(
        "ANALYZE" if were_full else "DELETE FROM pg_statistic WHERE starelid >= 'dag_jobs'::regclass"
    )
    tables = await world._admin.fetch(
        "SELECT relname FROM pg_class WHERE relnamespace = 'dagapp'::regnamespace AND relkind = 'r'"
        " AND relname <> 'alembic_version'"
    )
    await world._admin.execute("SET session_replication_role = replica")
    for row in tables:
        await world._admin.execute(f"DELETE FROM {row['relname']}; ANALYZE {row['relname']}")
    await world._admin.execute("SET session_replication_role = origin")
    pages = "SELECT relpages > 0 AND reltuples = 0 FROM pg_class WHERE relname = 'dag_task_queue'"
    assert await world._admin.fetchval(pages)


async def fill(world: PostgresWorld, *, owner: int, crowd: int) -> None:
    await world._admin.execute(FILL.replace("$owner", str(owner)).replace("$crowd", str(crowd)))


# ── What services do ──


def outcome(task: ClaimedTask) -> TaskReport:
    return TaskReport(
        task.task_id, task.token, AttemptStatus.COMPLETED, output=JsonText("1"), handler_version="1"
    )


async def work_on_tasks(world: PostgresWorld, played: Played) -> list[ClaimedTask]:
    """Do all that a worker does; return the tasks that it still has."""
    worker = played.worker
    tasks = await worker.claim(BATCH)
    assert len(tasks) == BATCH
    # A claim locks what it claims and no more.
    assert (
        await world._admin.fetchval(
            "SELECT count(*) FROM dag_task_queue WHERE xmax <> 0 AND worker_id IS NULL"
        )
        == 0
    )
    assert await stops_of(worker, [task.task_id for task in tasks], {}) == set()
    await worker.progress({task.task_id: (task.token, "1") for task in tasks})
    await worker.mark_started({task.task_id: (task.token, 1.0) for task in tasks})
    assert await worker.claim_exclusive() is None
    await worker.checkpoint([CheckpointWrite(task.task_id, task.token, "p", "1", ()) for task in tasks])
    await worker.append_logs([LogChunk(task.task_id, task.token, 1, "text") for task in tasks])
    assert not await worker.other_worker_has_handler(tasks[0].task_id)
    assert len(await worker.release([outcome(task) for task in tasks[:10]])) == 10
    assert len(await worker.report([outcome(task) for task in tasks[10:90]])) == 80
    assert len(await worker.report([outcome(tasks[90])])) == 1
    return tasks[91:]


async def run_turns(world: PostgresWorld, played: Played, tasks: list[ClaimedTask]) -> None:
    """Commit turns of results, of commands, of children and of tasks that are not wanted any more."""
    store: Any = played.orchestrator
    assert len(await store.read_results(BATCH)) == BATCH
    assert len(await store.read_commands(BATCH)) == BATCH
    last_of_others = await world._admin.fetchval(
        "SELECT max(id) FROM dag_task_results WHERE job_id <= $1", CROWD
    )
    results = await store.read_results(BATCH, after=last_of_others)
    assert len(results) == 81
    reported = {(row.node_id, row.attempt): row.output for row in results}
    await played.turn(*map(result_event, results), reported=reported, results=[row.id for row in results])
    completed = [row.node_id for row in results]

    # One row of each kind, as in every turn of a chain.
    await played.worker.report([outcome(tasks[1])])
    (result,) = await store.read_results(BATCH, after=last_of_others)
    await write(
        played, nodes=1, results=[result.id], notified_results=[result], tasks=[a_task(world)],
        events=[AuditEvent(EventType.SIGNAL_RECEIVED)],
    )  # fmt: skip

    await played.worker.report([outcome(tasks[0])])
    (result,) = await store.read_results(BATCH, after=last_of_others)
    job_id = int(played.job_id)
    insert = "INSERT INTO dag_inbox (job_id, kind, body, created_at) SELECT $1, 'signal', '{}', clock() FROM generate_series(1, 50)"
    await world._admin.execute(insert, job_id)
    commands = await world._admin.fetch("SELECT id FROM dag_inbox WHERE job_id = $1", job_id)
    sql = "SELECT task_id::text AS id FROM dag_task_queue WHERE job_id = $1 AND worker_id IS NULL ORDER BY task_id"
    waiting = [row["id"] for row in await world._admin.fetch(sql, job_id)]
    graph = played.held.job.graph
    children = [
        a_job(world, graph, parent=ParentNode(played.job_id, f"c{number}", 1), depth=1)
        for number in range(300)
    ]
    await write(
        played, results=[result.id], notified_results=[result], commands=[row["id"] for row in commands],
        reopened=completed, superseded=["n1"], adders=["n1", "n2"], children=children, stops=waiting[:50],
        withdrawals=[Withdrawal(task_id, AttemptStatus.FAILED, "{}") for task_id in waiting[50:100]],
        events=[AuditEvent(EventType.SIGNAL_RECEIVED)],
    )  # fmt: skip
    assert await store.release_stopped() == 50
    assert len(await store.claim(BATCH)) == BATCH
    await write(played, cancelled_children=[(f"c{number}", 1) for number in range(BATCH)])


async def end_turns(world: PostgresWorld, played: Played) -> None:
    """Finish the job, and tell its parent."""
    store: Any = played.orchestrator
    (claimed,) = await store.load_owned([played.job_id])
    turn = a_turn(
        claimed,
        played.held.job.graph,
        parent=ParentNode("1", "n", 1),
        finished=FinishJob(JobStatus.COMPLETED),
    )
    turn.job.status, turn.batches = JobStatus.COMPLETED, {1: 1}
    assert await store.commit_turns([turn], store.clock.now()) == {played.job_id}


async def write(played: Played, *, nodes: int = BATCH, **fields: Any) -> None:
    """Commit a turn in which some nodes change, some are added, and some tasks are dispatched."""
    store: Any = played.orchestrator
    (claimed,) = await store.load_owned([played.job_id])
    turn: TurnCommit = a_turn(claimed, played.held.job.graph, **fields)
    turn.changed = list(turn.job.walk())[1 : nodes + 1]
    assert await store.commit_turns([turn], store.clock.now()) == {played.job_id}


async def read_jobs(world: PostgresWorld, played: Played) -> None:
    """Read what a turn reads, and what a resume reads."""
    store: Any = played.orchestrator
    nodes = [f"f__{index}" for index in range(BATCH)]
    await store.load(played.job_id, {ValueKey(ValueKind.OUTPUTS, "f"), ValueKey(ValueKind.ITEMS, "f")})
    await store.load_outputs(played.job_id, nodes)
    assert await store.blob_bytes(played.job_id, nodes) == 0
    await world._admin.execute(
        "UPDATE dag_node_states SET fingerprint = 'x' WHERE job_id = $1", int(played.job_id)
    )
    source = await store.load_source_job(played.job_id)
    assert len(await store.load_source_outputs(played.job_id, source.nodes)) == len(source.nodes) > 50
    await world._admin.execute(
        "UPDATE dag_jobs SET status = 'FAILED', finished_at = clock(), error = '{}' WHERE parent_job_id = $1",
        int(played.job_id),
    )
    children = [(played.job_id, f"c{number}") for number in range(BATCH)]
    assert len(await store.unfinished_children(children)) == BATCH
    assert await store.load_job(played.job_id) is not None
    assert len(await store.owned_job_ids()) >= CROWD
    assert await store.reclaim() == []


async def serve_clients(world: PostgresWorld, played: Played) -> None:
    client: Any = world._stores[-1]
    graph = played.held.job.graph
    jobs = [
        a_job(world, graph, idempotency_key=f"new {number % 50}", body_hash="h") for number in range(BATCH)
    ]
    assert sum(accepted.is_new for accepted in await client.submit(jobs)) == 50
    assert await client.send("1", CommandKind.CANCEL, {}, "")


async def lose_workers(world: PostgresWorld, played: Played) -> None:
    """Reconcile a worker, then expire it."""
    store: PostgresOrchestratorStore | Any = played.orchestrator
    worker: PostgresWorkerStore | Any = played.worker
    worker._reconcile_at = 0.0
    await worker.heartbeat([], {})
    await world._admin.execute(
        "UPDATE dag_workers SET stopped_at = clock() WHERE worker_id = $1", worker.worker_id
    )
    # Nothing is expired within a lease after the start of the server.
    await world.move(3600)
    await world._admin.execute("UPDATE dag_orchestrators SET heartbeat_at = clock()")
    await world._admin.execute("UPDATE dag_workers SET stopped_at = clock(), heartbeat_at = clock()")
    await store.mark_lost_tasks()


# ── Plans ──

REMOTE = [query.sql for name, query in queries("remote_workers").items() if not name.endswith("_claims")]

NAMES = {
    query.sql: query.name for file in ("worker", "orchestrator", "client") for query in queries(file).values()
}
NAMES[_REPORT_ONE.sql] = _REPORT_ONE.name
NAMES |= {
    query.sql: query.name
    for query in (submit_statement(is_single=n % 2 == 0, is_audited=n > 1) for n in range(4))
}


ONE_ROW = (
    "EXISTS (SELECT FROM owned)",
    "refuted AS (",
    "processed AS (",
    "nodes_changed AS (",
    "dispatched AS (",
)
"""What the statement of a turn contains that has one row of each kind."""


class Plans:
    """The plans of all statements that stores executed: the rows that the parts of each handled."""

    def __init__(self, world: PostgresWorld) -> None:
        self.rows: list[tuple[str, float, str]] = []
        self.texts: list[str] = []
        self._world = world
        self._watched: list[Any] = []

    async def watch(self) -> None:
        """Watch every connection of the stores that are open."""
        await self.watch_sessions([each for store in self._world._stores for each in _sessions(store)])

    async def watch_sessions(self, sessions: Sequence[Connection]) -> None:
        """Watch these connections."""
        for session in sessions:
            await session.open()
            driver: Any = session._connection
            if driver in self._watched:
                continue
            self._watched.append(driver)
            await driver.execute(
                "LOAD 'auto_explain'; SET auto_explain.log_min_duration = 0; SET auto_explain.log_analyze = on;"
                " SET auto_explain.log_timing = off; SET auto_explain.log_format = json;"
                " SET auto_explain.log_level = notice; SET client_min_messages = notice"
            )
            driver.add_log_listener(self.note)

    def note(self, _connection: object, message: Any) -> None:
        """Note the plan of a statement."""
        head, _, text = message.message.partition("plan:\n")
        if not head.startswith("duration:"):
            return
        document = json.loads(text)
        statement = document["Query Text"]
        name = NAMES.get(statement, "turn" if "owned AS (" in statement else statement)
        self.texts.append(statement)
        self.rows += [(name, *part) for part in handled(document["Plan"])]

    def large(self) -> dict[tuple[str, str], float]:
        """Return the parts that handled too many rows, by statement and part."""
        return {(name, part): rows for name, rows, part in self.rows if rows > MOST}

    def check(self) -> None:
        """Check that no part of a plan handled too many rows, and that every statement was executed."""
        large = self.large()
        assert {name for name, _ in large} <= SCANS, large
        assert max(large.values()) <= 3 * CROWD, large
        executed = {name for name, _, _ in self.rows}
        assert {*NAMES.values(), "turn"} - SMALL - executed == set()
        assert any(all(part in text for part in ONE_ROW) for text in self.texts)
        turns = "\n".join(self.texts)
        assert [name for name in PARTS if parts("turn")[name].partition(" AS (")[0] not in turns] == []


def handled(plan: dict[str, Any]) -> Iterator[tuple[float, str]]:
    """Yield for each part of a plan how many rows it returned or removed, over all of its loops, and what it is."""
    removed = sum(value for key, value in plan.items() if key.startswith("Rows Removed by"))
    rows = (plan["Actual Rows"] + removed) * plan["Actual Loops"]
    yield rows, f"{plan['Node Type']} {plan.get('Relation Name', '')} {plan.get('Index Name', '')}".strip()
    for part in plan.get("Plans", ()):
        yield from handled(part)
