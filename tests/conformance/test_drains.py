"""Drains: a service that was asked to drain claims nothing, learns it with its heartbeat, and may be asked to go on."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, Any

import pytest

from dagmaster.application.remote_tasks import ClaimRequest, RemoteTasks
from dagmaster.engine.status import AttemptStatus, Isolation
from dagmaster.errors import DatabaseUnavailable
from dagmaster.ports.audit_trail import AuditFilter, ChangeOrigin
from dagmaster.ports.remote_workers import NewWorker
from dagmaster.ports.task_ledger import DrainRequest, TaskReport
from dagmaster.store.postgres.audit_trail import PostgresAuditTrail
from tests.conformance.audit_entries import appended
from tests.conformance.jobs import Played, Scene, a_task, submitted, wait_for_event
from tests.conformance.stores import MemoryWorld
from tests.patience import PATIENCE_SECONDS

if TYPE_CHECKING:
    from collections.abc import Mapping

    from dagmaster.ports.audit_trail import AuditEntry
    from dagmaster.records.fleet import DrainRecord
    from tests.conformance.stores import World

ADA = ChangeOrigin(actor="ada")


async def trail_of(world: World) -> list[AuditEntry]:
    if isinstance(world, MemoryWorld):
        return [appended(record) for record in await world.database.audit_trail.entries(AuditFilter())]
    trail = PostgresAuditTrail(world.config)  # type: ignore[attr-defined]
    try:
        return [appended(record) for record in await trail.entries(AuditFilter())]
    finally:
        await trail.close()


async def drain_of(world: World, service_id: str) -> DrainRecord | None:
    fleet = await (await world.reader()).fleet()
    by_id = {one.worker_id: one.drain for one in fleet.workers} | {
        one.orchestrator_id: one.drain for one in fleet.orchestrators
    }
    return by_id[service_id]


async def register_after_a_lost_connection(store: Any, *args: Any) -> None:
    """Register a store again; on PostgreSQL, the connection is lost before the first try is stored."""
    side = getattr(store, "_side", None)
    if side is not None:
        fetch = side.fetch

        async def fail(query: Any, params: Mapping[str, Any], **options: Any) -> Any:
            if "previous_id" not in params:
                return await fetch(query, params, **options)
            side.fetch = fetch
            raise DatabaseUnavailable("connection lost")

        side.fetch = fail
        with pytest.raises(DatabaseUnavailable):
            await store.register(*args)
    await store.register(*args)


# ── Workers ──


async def test_a_worker_that_drains_claims_nothing_and_still_reports_what_it_holds(world):
    scene = await Scene.begin(world)
    client, worker, other = (
        await world.client(),
        await world.worker(handlers={"h": "1"}),
        await world.worker(),
    )
    await scene.dispatch("a")
    (held,) = await worker.claim(1)
    await scene.write(tasks=[a_task(world, "b"), a_task(world, "c", isolation=Isolation.EXCLUSIVE)])
    assert await client.drain(str(worker.worker_id))
    assert await worker.claim(5) == []
    assert await worker.claim_exclusive() is None
    assert [task.node_id for task in await other.claim(5)] == ["b"]
    assert await worker.report([TaskReport(held.task_id, held.token, AttemptStatus.COMPLETED)]) == {
        held.task_id
    }


async def test_the_worker_that_was_drained_is_named_where_its_queue_waits(world):
    client, reader = await world.client(), await world.reader()
    played = await Played.begin(world, "{name: n, nodes: {a: {handler: h, queue: q}}}")
    worker_id = (await reader.fleet()).workers[0].worker_id
    (before,) = await reader.backlog(played.job_id)
    assert await client.drain(worker_id)
    (after,) = await reader.backlog(played.job_id)
    assert (before.state.workers, before.state.drained_worker) == (1, None)
    assert (after.state.workers, after.state.drained_worker) == (0, worker_id)
    explained = await reader.diagnosis(played.job_id)
    assert explained is not None
    assert explained.queues["q"].drained_worker == worker_id


async def test_the_heartbeat_brings_the_request_and_the_time_that_is_left(world):
    client, worker = await world.client(), await world.worker()
    answer = await worker.heartbeat([], {})
    assert answer is not None
    assert answer.drain is None
    worker.stops.clear()
    assert await client.drain(str(worker.worker_id))
    await wait_for_event(worker.stops)
    drain = await drain_of(world, str(worker.worker_id))
    assert drain is not None
    assert not drain.is_seen
    answer = await worker.heartbeat([], {})
    assert answer is not None
    assert answer.drain == DrainRequest(None)
    drain = await drain_of(world, str(worker.worker_id))
    assert drain is not None
    assert drain.is_seen
    # A second request sets another limit.
    assert await client.drain(str(worker.worker_id), grace_seconds=50)
    await world.move(40)
    answer = await worker.heartbeat([], {})
    assert answer is not None
    assert answer.drain is not None
    assert 0 < (answer.drain.seconds_left or 0) <= 10
    await world.move(20)
    answer = await worker.heartbeat([], {})
    assert answer is not None
    assert answer.drain is not None
    assert (answer.drain.seconds_left or 0) < 0


async def test_a_worker_that_is_undrained_claims_again(world):
    scene = await Scene.begin(world)
    client, worker = await world.client(), await world.worker()
    await client.drain(str(worker.worker_id), grace_seconds=1)
    await worker.heartbeat([], {})
    await scene.dispatch("a")
    worker.stops.clear()
    assert await client.undrain(str(worker.worker_id))
    await wait_for_event(worker.stops)
    answer = await worker.heartbeat([], {})
    assert answer is not None
    assert answer.drain is None
    assert await drain_of(world, str(worker.worker_id)) is None
    assert len(await worker.claim(5)) == 1
    assert not await client.undrain(str(worker.worker_id))


async def test_a_worker_that_expired_before_it_saw_the_request_keeps_it_when_it_registers_again(world):
    scene = await Scene.begin(world)
    client, worker = await world.client(), await world.worker()
    first = str(worker.worker_id)
    await scene.dispatch("a")
    assert await client.drain(first, grace_seconds=60)
    # It is paused for longer than its lease.
    await world.move(16)
    await world.silence(scene.orchestrator, 0)
    await scene.orchestrator.mark_lost_tasks()
    assert await worker.heartbeat([], {}) is None
    await register_after_a_lost_connection(worker, [], 4)
    assert str(worker.worker_id) != first
    assert await worker.claim(5) == []
    answer = await worker.heartbeat([], {})
    assert answer is not None
    assert answer.drain is not None
    assert answer.drain.seconds_left is not None


async def test_an_exclusive_task_does_not_wait_for_workers_that_drain(world):
    scene = await Scene.begin(world)
    client = await world.client()
    first, second = await world.worker(handlers={"h": "1"}), await world.worker(handlers={"h": "1"})
    await scene.dispatch("a")
    (held,) = await second.claim(1)
    await scene.write(tasks=[a_task(world, "b", isolation=Isolation.EXCLUSIVE)])
    await world.move(11)
    # The later worker leaves it to the earlier one for another while.
    for worker in (first, second):
        await worker.heartbeat([held.task_id], {})
    answer = await second.heartbeat([held.task_id], {})
    assert answer is not None
    assert not answer.has_exclusive
    await client.drain(str(first.worker_id))
    answers = [await worker.heartbeat([held.task_id], {}) for worker in (first, second)]
    assert [answer is not None and answer.has_exclusive for answer in answers] == [False, True]


async def test_a_worker_that_speaks_http_drains_like_any_other(world):
    scene = await Scene.begin(world)
    client, workers = await world.client(), await world.remote_workers()
    worker_id = await workers.register(NewWorker(registered_by="ci", host="far", handlers={"h": "2"}))
    worker = await workers.find(worker_id, "ci")
    assert worker is not None
    await scene.dispatch("a")
    assert await client.drain(worker_id)
    assert await worker.claim_handled(5) == []
    answer = await worker.heartbeat([], {})
    assert answer is not None
    assert answer.drain == DrainRequest(None)


async def test_a_worker_that_drains_leaves_the_wake_ups_to_others(world):
    async def is_connected() -> bool:
        return True

    scene = await Scene.begin(world)
    client, workers = await world.client(), await world.remote_workers()
    new = NewWorker(registered_by="ci", host="far", queues=("q",), handlers={"h": "2"})
    # Its heartbeats are too rare to help.
    tasks = RemoteTasks(workers, world.blobs, lambda _name: None, lease_seconds=3_000.0)
    before, meanwhile, other = [await workers.register(new) for _ in range(3)]
    assert await client.drain(before)
    requests = []
    for count, worker_id in enumerate((before, meanwhile, other), start=1):
        request = ClaimRequest(worker_id=worker_id, wait_seconds=600.0)
        requests.append(asyncio.create_task(tasks.claim(request, "ci", is_connected)))
        async with asyncio.timeout(PATIENCE_SECONDS):
            while len(tasks._polls) < count:  # noqa: ASYNC110 - nothing signals that a request waits
                await asyncio.sleep(0)
    assert await client.drain(meanwhile)
    await scene.dispatch("a")
    async with asyncio.timeout(PATIENCE_SECONDS):
        assert [task["node_id"] for task in (await requests[2]).tasks] == ["a"]
    tasks.stop()
    assert [(view.tasks, view.drain) for view in await asyncio.gather(*requests[:2])] == [((), True)] * 2


# ── Orchestrators ──


async def test_an_orchestrator_that_drains_claims_no_jobs_and_releases_its_own(world):
    client, one, two = await world.client(), await world.orchestrator(), await world.orchestrator()
    owned, unowned = await submitted(world, client), await submitted(world, client)
    assert [job.row.id for job in await one.claim(1)] == [owned]
    assert not await one.heartbeat({})
    one.pending_kinds.clear()
    assert await client.drain(str(one.owner_id))
    await world.deliver_notifications()
    assert "drain" in one.pending_kinds
    assert await one.claim(5) == []
    assert await one.heartbeat({})
    assert await one.release_jobs() == 1
    assert await one.release_jobs() == 0
    assert await one.claim(5) == []
    assert sorted(job.row.id for job in await two.claim(5)) == sorted([owned, unowned])
    (_, _, claimed) = await world.events(owned)
    assert claimed.data["after"] == "released"


async def test_an_orchestrator_that_expired_keeps_the_request_until_it_is_undrained(world):
    client, one, two = await world.client(), await world.orchestrator(), await world.orchestrator()
    job_id = await submitted(world, client)
    await client.drain(str(one.owner_id))
    await world.move(16)
    await world.silence(two, 0)
    await two.reclaim()
    await register_after_a_lost_connection(one)
    assert await one.heartbeat({})
    assert await one.claim(5) == []
    assert await client.undrain(str(one.owner_id))
    assert not await one.heartbeat({})
    assert [job.row.id for job in await one.claim(5)] == [job_id]


# ── Counts, audit, ids ──


async def test_services_that_drain_are_alive_and_not_counted_among_those_that_claim(world):
    client, reader = await world.client(), await world.reader()
    orchestrator, worker = await world.orchestrator(), await world.worker()
    assert await reader.fleet_counts() == (1, 1, 0, 0)
    for service_id in (str(orchestrator.owner_id), str(worker.worker_id)):
        assert await client.drain(service_id)
    assert await reader.fleet_counts() == (0, 0, 1, 0)
    fleet = await reader.fleet()
    assert [(one.is_alive, one.is_draining) for one in (*fleet.orchestrators, *fleet.workers)] == [
        (True, True)
    ] * 2
    diagnosis = await reader.diagnosis(await submitted(world, client))
    assert diagnosis is not None
    assert (diagnosis.orchestrators, diagnosis.draining_orchestrators) == (0, 1)


async def test_a_drain_is_stored_with_its_entry_and_only_if_there_is_such_a_service(world):
    client, worker, gone = await world.client(), await world.worker(), await world.worker()
    service_id, gone_id = str(worker.worker_id), str(gone.worker_id)
    await gone.deregister()
    entries = {
        one: [ADA.entry("worker.drain", "worker", one)] for one in (service_id, gone_id, "7", "x", "9" * 30)
    }
    assert [await client.drain(one, audit=audit) for one, audit in entries.items()] == [True] + [False] * 4
    assert await client.undrain(service_id, audit=[ADA.entry("worker.undrain", "worker", service_id)])
    assert not await client.undrain(service_id, audit=[ADA.entry("worker.undrain", "worker", service_id)])
    assert [(entry.actor, entry.action, entry.object_id) for entry in await trail_of(world)] == [
        ("ada", "worker.undrain", service_id),
        ("ada", "worker.drain", service_id),
    ]
