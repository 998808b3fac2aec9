"""Reads of a real PostgreSQL that the conformance suite leaves out: large fan-outs, a large fleet, what other stores write.

Rows are inserted by SQL, so that a job is in the state that a test needs.
"""

from __future__ import annotations

import json
import os
import socket
from typing import Any

import pytest

from dagmaster.engine.status import JobStatus, NodeStatus
from dagmaster.errors import SchemaVersionMismatch
from dagmaster.ports.database_config import DatabaseConfig
from dagmaster.ports.job_filter import JobFilter
from dagmaster.ports.read_store import NodeFilter
from dagmaster.store.postgres.read_store import PostgresReadStore
from tests.conformance.jobs import Scene
from tests.conformance.server import dsn_of
from tests.conformance.stores import PostgresWorld, in_world

DEFINITION: dict[str, Any] = {
    "workflow_id": "flow",
    "version": 1,
    "nodes": {
        "plan": {"handler": "echo", "queue": "default", "next": ["tiles", "release"]},
        "tiles": {
            "type": "fan_out",
            "source": "{{ nodes.plan.output.x }}",
            "task": {"handler": "echo", "queue": "q"},
        },
        "release": {"type": "approval", "message": "Release?"},
    },
}


@pytest.fixture
def world(postgres: str) -> PostgresWorld:
    return PostgresWorld(postgres)


async def insert(world: PostgresWorld, table: str, **columns: Any) -> None:
    """Insert a row; `json` columns are given as text."""
    params = ", ".join(f"${number}" for number in range(1, len(columns) + 1))
    await world._admin.execute(
        f"INSERT INTO {table} ({', '.join(columns)}) VALUES ({params})", *columns.values()
    )


async def insert_job(world: PostgresWorld, job_id: int, status: JobStatus = JobStatus.RUNNING) -> None:
    """Insert a job of `DEFINITION`."""
    await world._admin.execute(
        "INSERT INTO dag_graphs VALUES ('g', $1) ON CONFLICT DO NOTHING", json.dumps(DEFINITION)
    )
    times = "clock(), clock(), clock()" if status is JobStatus.COMPLETED else "clock(), clock(), NULL"
    await world._admin.execute(
        "INSERT INTO dag_jobs (id, status, name, workflow_id, version, content_hash, event_seq, inputs, created_at,"
        f" started_at, finished_at) VALUES ($1, $2, 'flow', 'flow', 1, 'g', 3, '{{}}', {times})",
        job_id,
        status,
    )


async def insert_children(world: PostgresWorld, first: int, count: int, status: NodeStatus) -> None:
    """Insert children of the fan-out `tiles` of job 1."""
    await world._admin.execute(
        "INSERT INTO dag_node_states (job_id, node_id, status, parent_node_id, fan_out_index, attempt, finished_seq,"
        " error, task_id) SELECT 1, 'tiles__' || i, $1::text, 'tiles', i, 1,"
        " CASE WHEN $1::text IN ('COMPLETED', 'FAILED') THEN i + 10 END,"
        " CASE WHEN $1::text = 'FAILED' THEN json_build_object('message', 'no ' || i) END, 1000000 + i"
        " FROM generate_series($2::int, $2::int + $3::int - 1) AS i",
        status,
        first,
        count,
    )


@in_world
async def test_the_progress_of_a_job_counts_every_item_of_its_fan_outs(world):
    await insert_job(world, 1)
    await insert(world, "dag_node_states", job_id=1, node_id="plan", status="COMPLETED", finished_seq=1)
    # Of ten items, eight have become children so far.
    await insert(
        world,
        "dag_node_states",
        job_id=1,
        node_id="tiles",
        status="RUNNING",
        source_count=10,
        expanded_count=8,
    )
    await insert_children(world, 0, 5, NodeStatus.COMPLETED)
    await insert_children(world, 5, 3, NodeStatus.DISPATCHED)
    await insert_job(world, 2, JobStatus.COMPLETED)
    await insert_job(world, 3, JobStatus.PENDING)
    records = await (await world.reader()).jobs(JobFilter())
    assert [(job.nodes_finished, job.nodes_total) for job in records] == [(0, 3), (3, 3), (6, 13)]


@in_world
async def test_ten_thousand_children_are_counted_and_listed_only_by_page(world):
    await insert_job(world, 1)
    await insert(
        world,
        "dag_node_states",
        job_id=1,
        node_id="tiles",
        status="RUNNING",
        source_count=10_000,
        expanded_count=10_000,
    )
    await insert_children(world, 0, 9_000, NodeStatus.COMPLETED)
    await insert_children(world, 9_000, 2, NodeStatus.FAILED)
    await insert_children(world, 9_002, 998, NodeStatus.DISPATCHED)
    await world._admin.execute(
        "INSERT INTO dag_task_queue (task_id, job_id, node_id, attempt, queue, priority, handler, params,"
        " timeout_seconds, dispatched_at, worker_id, lease_token, claimed_at)"
        " VALUES (1009002, 1, 'tiles__9002', 1, 'q', 5, 'echo', '{}', 9, clock(), 4, 4, clock())"
    )
    reader = await world.reader()
    assert [node.node_id for node in await reader.nodes("1", list(DEFINITION["nodes"]))] == ["tiles"]
    assert (await reader.child_counts("1", ["tiles"]))["tiles"].counts == {
        NodeStatus.COMPLETED: 9_000,
        NodeStatus.FAILED: 2,
        NodeStatus.DISPATCHED: 997,
        NodeStatus.CLAIMED: 1,
    }
    failed = NodeFilter(job_id="1", parent_node_id="tiles", statuses=frozenset({NodeStatus.FAILED}))
    (node,) = await reader.list_nodes(failed, limit=1)
    assert (node.node_id, node.error) == ("tiles__9000", {"message": "no 9000"})
    assert len(await reader.list_nodes(NodeFilter(job_id="1"), limit=20_000)) == 10_001


@in_world
async def test_children_of_a_fan_out_with_a_longer_name_and_superseded_ones_are_not_counted(world):
    await insert_job(world, 1)
    await insert_children(world, 0, 3, NodeStatus.COMPLETED)
    await insert(
        world, "dag_node_states", job_id=1, node_id="tiles_b__0", status="COMPLETED", parent_node_id="tiles_b",
        fan_out_index=0, finished_seq=1,
    )  # fmt: skip
    await insert(
        world, "dag_node_states", job_id=1, node_id="tiles__3", status="SKIPPED", parent_node_id="tiles",
        fan_out_index=3, skip_reason="superseded",
    )  # fmt: skip
    counts = await (await world.reader()).child_counts("1", ["tiles"])
    assert counts["tiles"].counts == {NodeStatus.COMPLETED: 3}


@in_world
async def test_every_live_service_is_listed_and_the_last_of_those_that_stopped(world):
    for columns, values in (
        ("dag_workers (queues, concurrency, worker_id,", "'{q}', 4,"),
        ("dag_orchestrators (owner_id,", ""),
    ):
        await world._admin.execute(
            f"INSERT INTO {columns} host, pid, version, started_at, heartbeat_at, stopped_at) SELECT {values} i, 'h', i,"
            " '1', clock(), clock(), CASE WHEN i > 300 THEN clock() - make_interval(secs => i) END"
            " FROM generate_series(1, 600) AS i"
        )
    fleet = await (await world.reader()).fleet()
    for services in (
        [(worker.worker_id, worker.is_alive) for worker in fleet.workers],
        [(orchestrator.orchestrator_id, orchestrator.is_alive) for orchestrator in fleet.orchestrators],
    ):
        assert {int(service_id) for service_id, is_alive in services if is_alive} == set(range(1, 301))
        assert {int(service_id) for service_id, is_alive in services if not is_alive} == set(range(301, 501))


@in_world
async def test_an_expired_process_is_dead_since_its_last_heartbeat(world):
    client, orchestrator, reader = await world.client(), await world.orchestrator(), await world.reader()
    await world.silence(orchestrator, 2.0)
    await world._admin.execute("UPDATE dag_orchestrators SET host = $1, pid = 4", socket.gethostname())
    # The second call must not replace the time of the last heartbeat.
    for _ in range(2):
        await client.expire_process(4, lease_seconds=1000.0, worker_lease_seconds=1000.0)
    (record,) = (await reader.fleet()).orchestrators
    assert (record.is_alive, record.has_died, dict(record.counters)) == (False, True, {})
    assert 2.0 <= record.silent_seconds < 500.0


@in_world
async def test_a_job_and_the_fleet_agree_since_when_an_expired_owner_is_dead(world):
    scene, client, reader = await Scene.begin(world), await world.client(), await world.reader()
    await world.silence(scene.orchestrator, 2.0)
    await world._admin.execute("UPDATE dag_orchestrators SET host = $1, pid = 4", socket.gethostname())
    await client.expire_process(4, lease_seconds=1000.0, worker_lease_seconds=1000.0)
    owner = (await reader.job(scene.job_id)).owner
    (record,) = (await reader.fleet()).orchestrators
    explained = (await reader.diagnosis(scene.job_id)).owner
    assert owner.is_over
    assert owner.silent_seconds == pytest.approx(record.silent_seconds, abs=5.0)
    assert explained.silent_seconds == pytest.approx(record.silent_seconds, abs=5.0)


@in_world
async def test_a_database_without_tables_raises_an_error_that_names_the_remedy(world):
    name = f"without_tables_{os.getpid()}"
    await world._admin.execute(f"CREATE DATABASE {name}")
    store = PostgresReadStore(DatabaseConfig(dsn=dsn_of(world._server, name)))
    try:
        with pytest.raises(SchemaVersionMismatch, match="dagmaster migrate"):
            await store.jobs(JobFilter())
    finally:
        await store.close()
        await world._admin.execute(f"DROP DATABASE {name}")
