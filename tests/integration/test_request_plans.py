"""No statement about requests reads more rows than it needs, however many requests and tenants there are."""

from __future__ import annotations

import uuid
from typing import Any

import pytest

from dagmaster.ports.database_config import DatabaseConfig
from dagmaster.ports.requests import NewRequest, RequestFilter
from dagmaster.ports.tenants import API_ROLE
from dagmaster.records.requests import RequestBody, RequestStatus
from dagmaster.store.postgres.connection import Connection
from dagmaster.store.postgres.request_store import PostgresRequestReader, PostgresRequestStore
from dagmaster.store.postgres.tenant_session import TenantSession
from tests.conformance.jobs import a_job
from tests.conformance.stores import PostgresWorld, in_world
from tests.integration.test_plans import Plans

CROWD = 5_000
MOST = 300
"""How many rows any part of a plan may handle."""

FILL = f"""
INSERT INTO dag_graphs (content_hash, definition) VALUES ('g', '{{}}');
INSERT INTO dag_tenants (name, platforms) SELECT 't' || i, '{{*}}' FROM generate_series(0, 49) AS i;
INSERT INTO dag_jobs (id, workflow_id, version, content_hash, inputs, status, tenant, created_at, finished_at)
SELECT i, 'w', 1, 'g', '{{}}', CASE WHEN i % 100 = 0 THEN 'PENDING' ELSE 'COMPLETED' END, 't' || i % 50, clock(),
       CASE WHEN i % 100 <> 0 THEN clock() END
FROM generate_series(1, {CROWD}) AS i;
INSERT INTO dag_node_states (job_id, node_id, status, attempt, task_id)
SELECT i, 'n', 'DISPATCHED', 1, i FROM generate_series(1, {CROWD}) AS i;
INSERT INTO dag_api_requests (request_id, tenant, actor, workflow_id, payload, idempotency_key, body_hash, state, job_id,
                              error, created_at)
SELECT md5(i::text)::uuid, 't' || i % 50, 't' || i % 50 || '/key:k', 'w', '{{}}', 'k' || i, 'h',
       CASE WHEN i % 7 = 0 THEN 'rejected' ELSE 'accepted' END, CASE WHEN i % 7 <> 0 THEN i END,
       CASE WHEN i % 7 = 0 THEN '{{"code": "inputs_invalid"}}'::json END, clock() - make_interval(secs => i)
FROM generate_series(1, {CROWD}) AS i;
"""


EXPLAIN = (
    "session_preload_libraries = 'auto_explain'",
    "auto_explain.log_min_duration = 0",
    "auto_explain.log_analyze = on",
    "auto_explain.log_timing = off",
    "auto_explain.log_format = json",
    "auto_explain.log_level = notice",
    "client_min_messages = notice",
)


@pytest.fixture
def world(postgres: str) -> PostgresWorld:
    return PostgresWorld(postgres)


@pytest.mark.parametrize("is_analyzed", [True, False])
@in_world
async def test_a_request_is_found_among_those_of_50_tenants(world: PostgresWorld, is_analyzed: bool):
    """The tables are analyzed while they are full, or while they are empty."""
    text = FILL if is_analyzed else f"ANALYZE; {FILL}"
    await world._admin.execute(f"{text}; {'ANALYZE' if is_analyzed else ''}")
    config = DatabaseConfig(dsn=world.dsn, role=API_ROLE)
    reads = Connection(config, "reader", reads=True)
    writes = Connection(config, "client")
    plans = Plans(world)
    try:
        # The role may not load it.
        for setting in EXPLAIN:
            await world._admin.execute(f"ALTER DATABASE {world.name} SET {setting}")
        for session in (reads, writes):
            await session.open()
            driver: Any = session._connection
            driver.add_log_listener(plans.note)
        reader = PostgresRequestReader(TenantSession(reads, "t3"))
        store = PostgresRequestStore(TenantSession(writes, "t3"))
        mine = str(await world._admin.fetchval("SELECT md5('53')::uuid"))
        facts = await reader.status(mine)
        assert facts is not None
        assert facts.record.status is RequestStatus.COMPLETED
        theirs = str(await world._admin.fetchval("SELECT md5('54')::uuid"))
        for unknown in (theirs, str(uuid.uuid4()), "x"):
            assert await reader.status(unknown) is None
            assert await reader.request(unknown) is None
        for request_filter in (
            RequestFilter(tenant="t3"),
            RequestFilter(tenant="t3", actor="t3/key:k", idempotency_key="k53"),
            RequestFilter(tenant="t0", statuses=frozenset({RequestStatus.PENDING})),
        ):
            page = await reader.requests(request_filter, limit=20)
            after = (page[-1].submitted_at, page[-1].request_id) if page else None
            await reader.requests(request_filter, after=after, limit=20)
        new = NewRequest(
            request_id=str(uuid.uuid4()),
            tenant="t3",
            actor="t3/key:k",
            body=RequestBody(workflow_id="w", idempotency_key="k53"),
            payload="{}",
            body_hash="h",
        )
        job = a_job(world, tenant="t3")
        await world._admin.execute(
            "INSERT INTO dag_graphs (content_hash, definition) VALUES ($1, '{}')", job.content_hash
        )
        for key in ("k53", "new"):
            request = NewRequest(
                **{
                    **{name: getattr(new, name) for name in ("tenant", "actor", "payload", "body_hash")},
                    "request_id": str(uuid.uuid4()),
                    "body": RequestBody(workflow_id="w", idempotency_key=key),
                    "job_id": job.id,
                }
            )
            stored = await store.submit([request], [job])
            found = await store.find([request])
            assert (bool(stored), bool(found)) == (key == "new", True)
        large = {name: rows for name, rows, part in plans.rows if rows > MOST}
        assert large == {}, plans.rows
    finally:
        await reads.close()
        await writes.close()
