"""What onlookers read of a real PostgreSQL. Jobs are put there by hand: each stands where the test wants it."""

from __future__ import annotations

import asyncio
import json
import shutil
import socket
import tempfile
import time
from pathlib import Path
from typing import Any

import asyncpg
import pytest

from dagmaster.application.job_lookup import find_job
from dagmaster.application.job_snapshot import load_snapshot
from dagmaster.application.queries.fleet import serves_queue
from dagmaster.errors import SchemaVersionMismatch
from dagmaster.ports.database_config import DatabaseConfig
from dagmaster.ports.job_records import StoredWorkflow
from dagmaster.snowflakes import EPOCH_MS
from dagmaster.store.embedded.server import EmbeddedPostgres
from dagmaster.store.postgres import schema_version
from dagmaster.store.postgres.client_store import PostgresClientStore
from dagmaster.store.postgres.legacy_fleet import read_fleet
from dagmaster.store.postgres.legacy_read_store import LegacyReadStore
from dagmaster.store.postgres.read_store import PostgresReadStore
from tests.unit.application.world import application_on

DEFINITION: dict[str, Any] = {
    "workflow_id": "flow",
    "version": 1,
    "nodes": {
        "plan": {"handler": "echo", "queue": "default", "next": ["tiles", "release"]},
        "tiles": {"type": "fan_out", "source": "{{ nodes.plan.output.x }}", "task": {"handler": "echo", "queue": "q"}},
        "release": {"type": "approval", "message": "Release?"},
    },
}
NODES = list(DEFINITION["nodes"])


@pytest.fixture(scope="module")
def server():
    # Not under pytest's own folder: as root the server runs as another user, who may not load_job_view into it.
    place = Path(tempfile.mkdtemp(prefix="dagmaster-", dir="/var/tmp"))
    place.chmod(0o755)
    try:
        with EmbeddedPostgres(place / "data") as running:
            schema_version.upgrade(running.dsn)
            do(running.dsn, "INSERT INTO dag_graphs VALUES ('g', $1)", json.dumps(DEFINITION))
            yield running.dsn
    finally:
        shutil.rmtree(place, ignore_errors=True)


@pytest.fixture
def dsn(server):
    tables = "dag_jobs, dag_node_states, dag_task_queue, dag_task_attempts, dag_job_events, dag_task_logs, dag_workers"
    do(server, f"TRUNCATE {tables}, dag_orchestrators, dag_workflows, dag_inbox CASCADE")
    return server


def do(dsn: str, statement: str, *arguments: Any) -> None:
    async def work() -> None:
        connection = await asyncpg.connect(dsn, server_settings={"search_path": "dagapp"})
        try:
            await connection.execute(statement, *arguments)
        finally:
            await connection.close()

    asyncio.run(work())


def read(dsn: str, question: Any) -> Any:
    async def work() -> Any:
        store = LegacyReadStore(DatabaseConfig(dsn=dsn))
        try:
            return await question(store)
        finally:
            await store.close()

    return asyncio.run(work())


def a_job(dsn: str, job_id: int, status: str = "RUNNING", **columns: Any) -> None:
    over = status in ("COMPLETED", "FAILED", "CANCELLED")
    given = {"name": "flow", "workflow_id": "flow", "submitted_by": "ada", "inputs": "{}"} | columns
    names = ", ".join(given)
    values = ", ".join(f"${place}" for place in range(4, 4 + len(given)))
    do(
        dsn,
        f"INSERT INTO dag_jobs (id, status, version, content_hash, event_seq, created_at, started_at, finished_at, {names})"
        f" VALUES ($1, $2, 1, 'g', 3, clock(), clock(), CASE WHEN $3 THEN clock() END, {values})",
        job_id,
        status,
        over,
        *given.values(),
    )


def a_node(dsn: str, job_id: int, node_id: str, status: str, **columns: Any) -> None:
    given = {"finished_seq": 1 if status in ("COMPLETED", "FAILED") else None} | columns
    names = ", ".join(given)
    values = ", ".join(f"${place}" for place in range(4, 4 + len(given)))
    do(
        dsn,
        f"INSERT INTO dag_node_states (job_id, node_id, status, {names}) VALUES ($1, $2, $3, {values})",
        job_id,
        node_id,
        status,
        *given.values(),
    )


def children(dsn: str, job_id: int, first: int, count: int, status: str) -> None:
    do(
        dsn,
        "INSERT INTO dag_node_states (job_id, node_id, status, parent_node_id, fan_out_index, attempt, finished_seq,"
        " error, task_id) SELECT $1::bigint, 'tiles__' || i, $2::text, 'tiles', i, 1,"
        " CASE WHEN $2::text IN ('COMPLETED', 'FAILED') THEN i + 10 END,"
        " CASE WHEN $2::text = 'FAILED' THEN json_build_object('message', 'no ' || i) END, $1::bigint * 1000000 + i"
        " FROM generate_series($3::int, $3::int + $4::int - 1) AS i",
        job_id,
        status,
        first,
        count,
    )


def a_task(dsn: str, job_id: int, task_id: int, node_id: str, queue: str, *, worker: int | None = None) -> None:
    do(
        dsn,
        "INSERT INTO dag_task_queue (task_id, job_id, node_id, attempt, queue, priority, handler, params,"
        " timeout_seconds, dispatched_at, worker_id, lease_token, claimed_at, progress)"
        " VALUES ($1, $2, $3, 1, $4, 5, 'echo', '{}', 9, clock(), $5::bigint, $5::bigint, CASE WHEN $5::bigint IS NOT NULL THEN clock() END,"
        """ '{"current": 1, "total": 4, "message": ""}')""",
        task_id,
        job_id,
        node_id,
        queue,
        worker,
    )


def a_worker(dsn: str, worker_id: int, queues: list[str], silent: float = 0.0) -> None:
    do(
        dsn,
        "INSERT INTO dag_workers (worker_id, host, pid, version, queues, concurrency, started_at, heartbeat_at)"
        " VALUES ($1, 'h', 1, '1', $2, 4, clock(), clock() - make_interval(secs => $3))",
        worker_id,
        queues,
        silent,
    )


def an_orchestrator(dsn: str, owner_id: int, silent: float = 0.0) -> None:
    do(
        dsn,
        "INSERT INTO dag_orchestrators (owner_id, host, pid, version, started_at, heartbeat_at)"
        " VALUES ($1, 'h', 1, '1', clock(), clock() - make_interval(secs => $2))",
        owner_id,
        silent,
    )


# ── Jobs ──


def test_there_is_no_job(dsn):
    assert read(dsn, lambda store: store.jobs()) == []
    assert read(dsn, lambda store: store.newest()) is None
    assert read(dsn, lambda store: store.job("5")) is None
    assert read(dsn, lambda store: store.job("99999999999999999999999")) is None
    assert read(dsn, lambda store: store.pulse("5")) == (0, "", 0.0)


def test_the_newest_job_comes_first_and_child_jobs_are_not_the_newest(dsn):
    a_job(dsn, 1)
    a_job(dsn, 2)
    a_job(dsn, 3, parent_job_id=2, parent_node_id="plan")
    assert [job.id for job in read(dsn, lambda store: store.jobs())] == ["3", "2", "1"]
    assert read(dsn, lambda store: store.newest()) == "2"
    assert read(dsn, lambda store: store.child_jobs("2")) == {"plan": ("3", "RUNNING")}
    assert [job.id for job in read(dsn, lambda store: store.jobs(limit=1))] == ["3"]


def test_jobs_are_found_by_status_workflow_and_age(dsn):
    a_job(dsn, 1, "COMPLETED")
    a_job(dsn, 2, "FAILED", workflow_id="other")
    now = time.time()
    young = (int(now * 1000) - EPOCH_MS) << 22
    a_job(dsn, young, "RUNNING")
    assert [job.id for job in read(dsn, lambda store: store.jobs(statuses=["FAILED", "COMPLETED"]))] == ["2", "1"]
    assert [job.id for job in read(dsn, lambda store: store.jobs(workflow_id="other"))] == ["2"]
    assert [job.id for job in read(dsn, lambda store: store.jobs(since=now - 60))] == [str(young)]


def test_a_job_that_only_waits_is_waiting_and_is_found_so(dsn):
    a_job(dsn, 1)
    a_node(dsn, 1, "release", "WAITING")
    a_job(dsn, 2)
    a_node(dsn, 2, "release", "WAITING")
    a_node(dsn, 2, "plan", "DISPATCHED", attempt=1)
    assert [(job.id, job.status) for job in read(dsn, lambda store: store.jobs())] == [
        ("2", "RUNNING"),
        ("1", "WAITING"),
    ]
    assert [job.id for job in read(dsn, lambda store: store.jobs(statuses=["WAITING"]))] == ["1"]
    assert [job.id for job in read(dsn, lambda store: store.jobs(statuses=["RUNNING"]))] == ["2"]


def test_progress_counts_the_children_of_fan_outs(dsn):
    a_job(dsn, 1)
    a_node(dsn, 1, "plan", "COMPLETED")
    a_node(dsn, 1, "tiles", "RUNNING", source_count=10, expanded_count=8)
    children(dsn, 1, 0, 5, "COMPLETED")
    children(dsn, 1, 5, 3, "DISPATCHED")
    a_job(dsn, 2, "COMPLETED")
    a_job(dsn, 3, "PENDING")
    assert [(job.over, job.nodes) for job in read(dsn, lambda store: store.jobs())] == [(0, 3), (3, 3), (6, 13)]


# ── Nodes ──


def test_a_task_that_a_worker_holds_is_running(dsn):
    a_job(dsn, 1)
    a_node(dsn, 1, "plan", "DISPATCHED", attempt=1, task_id=7)
    a_task(dsn, 1, 7, "plan", "q")
    (waits,) = read(dsn, lambda store: store.nodes("1", NODES))
    assert (waits.status, waits.queue, waits.worker_id) == ("DISPATCHED", "q", None)
    do(dsn, "UPDATE dag_task_queue SET worker_id = 4, lease_token = 4, claimed_at = clock()")
    (runs,) = read(dsn, lambda store: store.nodes("1", NODES))
    assert (runs.status, runs.worker_id, runs.progress["total"]) == ("RUNNING", "4", 4)
    assert runs.started_at is not None


def test_ten_thousand_children_are_counted_and_not_listed(dsn):
    a_job(dsn, 1)
    a_node(dsn, 1, "tiles", "RUNNING", source_count=10_000, expanded_count=10_000)
    children(dsn, 1, 0, 9_000, "COMPLETED")
    children(dsn, 1, 9_000, 2, "FAILED")
    children(dsn, 1, 9_002, 998, "DISPATCHED")
    a_task(dsn, 1, 1_009_002, "tiles__9002", "q", worker=4)
    assert [line.node_id for line in read(dsn, lambda store: store.nodes("1", NODES))] == ["tiles"]
    counts = read(dsn, lambda store: store.children("1", ["tiles"]))["tiles"].counts
    assert counts == {"COMPLETED": 9_000, "FAILED": 2, "DISPATCHED": 997, "RUNNING": 1}
    failed = read(dsn, lambda store: store.failed_children("1", "tiles", limit=1))
    assert [(line.node_id, line.error) for line in failed] == [("tiles__9000", {"message": "no 9000"})]
    assert len(read(dsn, lambda store: store.nodes("1", None))) == 10_001


def test_a_fan_out_with_a_longer_name_is_another_one(dsn):
    a_job(dsn, 1)
    children(dsn, 1, 0, 3, "COMPLETED")
    a_node(dsn, 1, "tiles_b__0", "COMPLETED", parent_node_id="tiles_b", fan_out_index=0)
    assert read(dsn, lambda store: store.children("1", ["tiles"]))["tiles"].counts == {"COMPLETED": 3}


def test_what_is_superseded_is_not_counted(dsn):
    a_job(dsn, 1)
    children(dsn, 1, 0, 1, "COMPLETED")
    a_node(dsn, 1, "tiles__1", "SKIPPED", skip_reason="superseded", parent_node_id="tiles", fan_out_index=1)
    assert read(dsn, lambda store: store.children("1", ["tiles"]))["tiles"].counts == {"COMPLETED": 1}


def test_a_snapshot_says_who_serves_the_queues(dsn):
    a_job(dsn, 1)
    a_node(dsn, 1, "plan", "DISPATCHED", attempt=1, task_id=7)
    a_task(dsn, 1, 7, "plan", "light")
    a_worker(dsn, 1, ["heavy"])
    a_worker(dsn, 2, ["light"], silent=60.0)

    def snapshot() -> Any:
        async def work() -> Any:
            store = PostgresReadStore(DatabaseConfig(dsn=dsn))
            app = application_on(store)
            try:
                job = await find_job(app, "1")
                return await load_snapshot(app, job, await app.graphs.get(job.content_hash))
            finally:
                await store.close()

        return asyncio.run(work())

    found = snapshot()
    assert [(wait.queue, wait.tasks, wait.workers) for wait in found.backlog] == [("light", 1, 0)]
    assert (found.fleet.orchestrators, found.fleet.workers) == (0, 1)
    a_worker(dsn, 3, [])
    assert snapshot().backlog[0].workers == 1


# ── The trail, the logs, the fleet ──


def events(dsn: str, *rows: tuple[int, str, str | None]) -> None:
    for seq, kind, node in rows:
        do(
            dsn,
            "INSERT INTO dag_job_events (job_id, seq, type, at, by, node_id, data) VALUES (1, $1, $2, clock(), 'o', $3,"
            """ '{"message": "Release?"}')""",
            seq,
            kind,
            node,
        )


def test_the_trail_goes_on_from_a_number(dsn):
    a_job(dsn, 1)
    events(dsn, (1, "JobSubmitted", None), (2, "NodeCompleted", "tiles__0"), (3, "NodeFailed", "tiles__1"))
    assert [each.seq for each in read(dsn, lambda store: store.events("1"))] == [1, 2, 3]
    assert [each.seq for each in read(dsn, lambda store: store.events("1", after=2))] == [3]
    assert [each.seq for each in read(dsn, lambda store: store.events("1", node_ids=NODES))] == [1, 3]
    assert [each.seq for each in read(dsn, lambda store: store.events("1", limit=1))] == [1]


def test_what_a_node_waits_for_is_what_was_asked_last(dsn):
    a_job(dsn, 1)
    events(dsn, (1, "ApprovalRequested", "release"), (2, "ApprovalRequested", "release"))
    assert read(dsn, lambda store: store.questions("1", ["release"]))["release"].message == "Release?"
    assert read(dsn, lambda store: store.questions("1", [])) == {}


def test_logs_are_read_in_pieces_and_none_is_read_twice(dsn):
    for chunk in range(5):
        do(
            dsn,
            "INSERT INTO dag_task_logs VALUES (9, $1, 1, $2, $3, clock(), $4)",
            chunk,
            "a" if chunk < 4 else "b",
            1 if chunk < 2 else 2,
            f"{chunk}\n",
        )

    async def question(store: LegacyReadStore) -> list[str]:
        found: list[str] = []
        place = None
        while pieces := await store.logs("1", after=place, limit=2):
            place = pieces[-1].place
            found += [piece.text for piece in pieces]
        return found

    assert read(dsn, question) == ["0\n", "1\n", "2\n", "3\n", "4\n"]
    assert [p.text for p in read(dsn, lambda store: store.logs("1", node_id="b"))] == ["4\n"]
    assert [p.text for p in read(dsn, lambda store: store.logs("1", node_id="a", attempt=2))] == ["2\n", "3\n"]


def test_the_fleet_tells_the_living_from_the_dead(dsn):
    an_orchestrator(dsn, 1)
    an_orchestrator(dsn, 2, silent=100.0)
    a_worker(dsn, 3, ["q"])
    a_worker(dsn, 4, ["q"], silent=10_000.0)
    a_job(dsn, 1, "PENDING")
    a_job(dsn, 2, owner_id=1)
    a_task(dsn, 2, 7, "plan", "q", worker=3)
    a_task(dsn, 2, 8, "tiles__1", "q")
    found = read(dsn, read_fleet)
    assert [(each["owner_id"], each["alive"], each["jobs"]) for each in found.orchestrators] == [
        ("2", False, 0),
        ("1", True, 1),
    ]
    # One that went long ago is forgotten.
    assert [(each["worker_id"], each["running"], each["prefetched"]) for each in found.workers] == [("3", 1, 0)]
    assert [(each["queue"], each["waiting"], each["held"]) for each in found.queues] == [("q", 1, 1)]
    assert found.unowned == 1


def test_all_who_live_are_shown_and_of_those_who_went_the_last(dsn):
    a_worker(dsn, 1, ["rare"])
    an_orchestrator(dsn, 1)
    many = (
        ("dag_workers (queues, concurrency, worker_id,", "'{q}', 4,"),
        ("dag_orchestrators (owner_id,", ""),
    )
    for columns, values in many:
        do(
            dsn,
            f"INSERT INTO {columns} host, pid, version, started_at, heartbeat_at, stopped_at) SELECT {values} i, 'h', i, '1',"
            " clock(), clock(), CASE WHEN i > 300 THEN clock() - make_interval(secs => i) END FROM generate_series(2, 600) AS i",
        )
    found = read(dsn, read_fleet)
    for key, each in (("worker_id", found.workers), ("owner_id", found.orchestrators)):
        assert {int(one[key]) for one in each if one["alive"]} == set(range(1, 301))
        assert {int(one[key]) for one in each if not one["alive"]} == set(range(301, 501))
    assert sum(serves_queue(one["queues"], "rare") for one in found.workers if one["alive"]) == 1


def test_workflows_have_versions_and_one_is_active(dsn):
    do(dsn, "INSERT INTO dag_workflows VALUES ('flow', 1, 'g', false), ('flow', 2, 'g', true), ('flow', 3, 'g', false)")
    (found,) = read(dsn, lambda store: store.workflows())
    assert (found["workflow_id"], found["versions"], found["newest"], found["active"]) == ("flow", 3, 3, 2)
    assert [each["is_active"] for each in read(dsn, lambda store: store.versions("flow"))] == [False, True, False]
    assert read(dsn, lambda store: store.definition("g"))["workflow_id"] == "flow"
    assert read(dsn, lambda store: store.definition("h")) is None


def test_the_same_content_again_is_as_old_as_it_was(dsn):
    do(dsn, "INSERT INTO dag_graphs SELECT 'other', definition FROM dag_graphs WHERE content_hash = 'g'")
    do(dsn, "INSERT INTO dag_workflows VALUES ('flow', 1, 'g', false, now() - interval '1 day')")

    def age_after(content_hash: str) -> float:
        async def publish() -> None:
            store = PostgresClientStore(DatabaseConfig(dsn=dsn))
            try:
                await store.publish(StoredWorkflow("flow", 1, content_hash))
            finally:
                await store.session.close()

        asyncio.run(publish())
        (found,) = read(dsn, lambda store: store.workflows())
        assert found["active"] == 1
        return float(found["age_seconds"])

    assert age_after("g") >= 86_400
    assert age_after("other") < 86_400


def test_an_end_is_heard(dsn):
    async def question(store: LegacyReadStore) -> None:
        heard = asyncio.Event()
        await store.on_end("1", heard.set)
        connection = await asyncpg.connect(dsn)
        await connection.execute("SELECT pg_notify('dagmaster_job_1', '')")
        await connection.close()
        await asyncio.wait_for(heard.wait(), 10)

    read(dsn, question)


def test_a_database_without_tables_is_told_so(server):
    do(server, "CREATE DATABASE empty")
    with pytest.raises(SchemaVersionMismatch, match="dagmaster migrate"):
        read(server.replace("/dagmaster?", "/empty?"), lambda store: store.jobs())


def test_one_that_was_seen_to_be_dead_died_when_it_was_heard_last(dsn):
    an_orchestrator(dsn, 1, silent=2.0)
    do(dsn, "UPDATE dag_orchestrators SET host = $1, pid = 4", socket.gethostname())

    async def expire_process() -> None:
        store = PostgresClientStore(DatabaseConfig(dsn=dsn))
        try:
            # Twice: what is known is not forgotten.
            for _ in range(2):
                await store.expire_process(4, lease_seconds=1000.0, worker_lease_seconds=1000.0)
        finally:
            await store.session.close()

    asyncio.run(expire_process())
    (found,) = read(dsn, read_fleet).orchestrators
    assert (found["alive"], found["died"], "heard_at" in found["counters"]) == (False, True, False)
    assert 2.0 <= found["silent_seconds"] < 500.0
