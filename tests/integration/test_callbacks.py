"""What becomes of a job or a request is stored with it, and told at least once, in order, with one id for each state."""

from __future__ import annotations

import asyncio
import random
from dataclasses import replace
from typing import TYPE_CHECKING, Any

import asyncpg
import pytest
import standardwebhooks

from dagmaster.adapters.secret_keys import KeySource, new_key
from dagmaster.adapters.secret_vault import KeyVault
from dagmaster.application import callbacks as operations
from dagmaster.application.callbacks import (
    Callbacks,
    list_callbacks,
    list_endpoints,
    pause_endpoint,
    public_keys,
    replay_callback,
    replay_callbacks,
    resume_endpoint,
    show_callback,
)
from dagmaster.application.secret_keys import SecretKeys, rotate_keys
from dagmaster.application.signing_secrets import (
    create_signing_secret,
    list_signing_secrets,
    revoke_signing_secret,
)
from dagmaster.errors import CallbackNotFound, CallbackUrlInvalid, EndpointNotFound, SigningSecretsInUse
from dagmaster.orchestrator.callback_attempts import RetrySchedule
from dagmaster.ports.callbacks import FAILING, CallbackFilter, CallbackOutcome, Delivery, Verdict
from dagmaster.ports.signing_secrets import open_secret
from dagmaster.records.callbacks import DeliveryStatus, SecretKind
from dagmaster.store.postgres.callback_outbox import PostgresCallbackOutbox
from dagmaster.store.postgres.callback_store import PostgresCallbackStore
from dagmaster.store.postgres.secret_keys import PostgresSecretKeyAdmin, PostgresSecretKeys
from dagmaster.webhook_signatures import verify
from tests.integration.callback_world import TEST, CallbackWorld, Receiver, in_world
from tests.secret_vaults import VAULT

if TYPE_CHECKING:
    from collections.abc import Mapping

A, B = "https://a.example.com", "https://b.example.com"
DOWN = Delivery(None, "cannot be reached")
OUTCOMES = pytest.mark.parametrize(
    ("status", "state", "reason"),
    [("COMPLETED", "completed", None), ("FAILED", "failed", "failed"), ("CANCELLED", "failed", "cancelled")],
)


# ── What is stored ──────────────────────────────────────────────────────────────────────────────────────────


@OUTCOMES
def test_a_change_of_a_job_stores_its_callback_in_the_same_transaction(dsn, status, state, reason):
    async def test(world: CallbackWorld) -> None:
        await world.job(1)
        await world.job(2, None)
        transaction = world.connection.transaction()
        await transaction.start()
        await world.start(1, 2)
        await transaction.rollback()
        assert await world.stored() == []
        await world.start(1, 2)
        # What changes nothing tells nothing.
        await world.connection.execute(
            "UPDATE dag_jobs SET status = 'RUNNING', owner_epoch = owner_epoch + 1"
        )
        await world.finish(1, status)
        await world.finish(2, status)
        assert await world.stored() == [("1", 1, "running", None), ("1", 1, state, reason)]

    in_world(dsn, test)


def test_each_run_of_a_job_is_told_and_a_state_of_a_run_once(dsn):
    async def test(world: CallbackWorld) -> None:
        await world.job(1)
        await world.start(1)
        await world.finish(1, "FAILED")
        await world.connection.execute("UPDATE dag_jobs SET status = 'RUNNING', run = 2, finished_at = NULL")
        await world.connection.execute("UPDATE dag_jobs SET status = 'PENDING'")
        await world.start(1)
        await world.finish(1)
        assert [row[1:3] for row in await world.stored()] == [
            (1, "running"), (1, "failed"), (2, "running"), (2, "completed"),
        ]  # fmt: skip

    in_world(dsn, test)


def test_every_request_that_leads_to_a_job_is_told_by_its_own_id(dsn):
    async def test(world: CallbackWorld) -> None:
        await world.job(1, None, tenant="acme")
        first, second = await world.request(1, tenant="acme"), await world.request(1, f"{B}/r", tenant="acme")
        await world.request(1, None, tenant="acme")
        await world.start(1)
        await world.finish(1)
        async with world.relaying():
            await world.until_done()
        for request in (first, second):
            assert world.receiver.states(request) == ["running", "completed"]
        assert len(world.receiver.received) == 4
        assert all("job_id" not in body for _, body in world.receiver.received)

    in_world(dsn, test)


@OUTCOMES
def test_a_request_that_comes_late_is_told_what_it_missed(dsn, status, state, reason):
    async def test(world: CallbackWorld) -> None:
        await world.job(1, None)
        await world.start(1)
        running = await world.request(1)
        assert await world.stored() == [(running, 1, "running", None)]
        await world.finish(1, status)
        late = await world.request(1)
        assert await world.stored() == [
            (running, 1, "running", None), (running, 1, state, reason), (late, 1, "running", None), (late, 1, state, reason),
        ]  # fmt: skip
        # A job that ended before it started has nothing to say about a start.
        await world.job(2, None)
        await world.finish(2, "CANCELLED")
        never = await world.request(2)
        assert (await world.stored())[-1] == (never, 1, "failed", "cancelled")

    in_world(dsn, test)


def test_a_request_and_a_turn_at_the_same_moment_miss_nothing(dsn):
    """Whichever commits first, the other one waits for the job and then sees it."""

    async def test(world: CallbackWorld) -> None:
        other = await asyncpg.connect(dsn, server_settings={"search_path": "dagapp"})
        try:
            for job_id, links_first in ((1, True), (2, False)):
                await world.job(job_id, None)
                await world.start(job_id)
                transaction = other.transaction()
                await transaction.start()
                if links_first:
                    request = str(await other.fetchval(_LINK, job_id))
                    waiting: Any = asyncio.create_task(world.finish(job_id))
                else:
                    await other.execute(
                        "UPDATE dag_jobs SET status = 'COMPLETED', finished_at = now() WHERE id = $1", job_id
                    )
                    waiting = asyncio.create_task(world.request(job_id))
                await _until_blocked(other)
                await transaction.commit()
                request = await waiting if not links_first else request
                await waiting
                states = [row[2] for row in await world.stored() if row[0] == request]
                assert states == ["running", "completed"], links_first
        finally:
            await other.close()

    in_world(dsn, test)


_EXPIRE = (
    "UPDATE dag_callbacks SET leased_until = clock(), next_attempt_at = clock() WHERE leased_until > clock()"
    " AND NOT EXISTS (SELECT FROM dag_callbacks WHERE delivered_at > clock() - interval '0.5 seconds')"
)
_LINK = (
    "INSERT INTO dag_api_requests (request_id, tenant, actor, workflow_id, payload, body_hash, state, job_id, callback_url)"
    " VALUES (gen_random_uuid(), 'default', 'k', 'w', '{}', 'h', 'accepted', $1, 'https://a.example.com/r') RETURNING request_id"
)


async def _until_blocked(connection: asyncpg.Connection[asyncpg.Record]) -> None:
    sql = "SELECT EXISTS (SELECT FROM pg_locks WHERE NOT granted AND pg_backend_pid() = ANY(pg_blocking_pids(pid)))"
    while not await connection.fetchval(sql):
        pass


def test_what_a_sandbox_plays_is_told_at_its_time_and_once(dsn):
    async def test(world: CallbackWorld) -> None:
        sql = (
            "INSERT INTO dag_api_requests (request_id, actor, workflow_id, payload, body_hash, state, sandbox, callback_url)"
            " VALUES (gen_random_uuid(), 'k', 'w', '{}', 'h', 'sandbox', $1, 'https://a.example.com/r')"
            " RETURNING request_id::text"
        )
        played = '{"starts_after": 0, "ends_after": 3600, "outcome": "failed", "reason": "failed"}'
        request = str(await world.connection.fetchval(sql, played))
        assert await world.stored() == [(request, 1, "running", None), (request, 1, "failed", "failed")]
        again = "SELECT dag_enqueue_callback($1::text::uuid, 'failed', clock(), 'failed')"
        for request_id in (request, "0b6ff54c-5b7c-4a4c-9e0c-6d2f1f6f3a11"):
            assert await world.connection.fetchval(again, request_id) is None
        async with world.relaying():
            await world.receiver.until(1)
            await world.until("SELECT count(*) = 1 FROM dag_callbacks WHERE delivered_at IS NOT NULL")
            assert world.receiver.states(request) == ["running"]
            await world.connection.execute(
                "UPDATE dag_callbacks SET next_attempt_at = clock(); NOTIFY dagmaster_callbacks"
            )
            await world.until_done()
        assert world.receiver.states(request) == ["running", "failed"]

    in_world(dsn, test)


# ── What is sent ────────────────────────────────────────────────────────────────────────────────────────────


def test_states_are_told_in_order_however_often_the_receiver_fails(dsn):
    async def test(world: CallbackWorld) -> None:
        chance = random.Random(27)
        world.receiver.answer = lambda _body, _number: Delivery(500 if chance.random() < 0.3 else 200)
        jobs = range(1, 41)
        for job_id in jobs:
            await world.job(job_id, f"https://h{job_id % 4}.example.com/")
        async with world.relaying(schedule=RetrySchedule((0.001,) * 50)):
            await world.start(*jobs)
            await world.connection.execute("UPDATE dag_jobs SET status = 'COMPLETED', finished_at = now()")
            await world.until_done()
        ids: dict[tuple[str, str], set[str]] = {}
        for callback_id, body in world.receiver.received:
            ids.setdefault((body["job_id"], body["status"]), set()).add(callback_id)
        assert len(ids) == 80
        assert all(len(one) == 1 for one in ids.values())
        for job_id in jobs:
            states = world.receiver.states(str(job_id))
            assert states == sorted(states, reverse=True), "running comes before completed"

    in_world(dsn, test)


def test_a_later_state_waits_for_the_earlier_one(dsn):
    async def test(world: CallbackWorld) -> None:
        outbox = world.outbox()
        await world.job(1)
        await world.start(1)
        await world.finish(1)
        batch = await outbox.claim(10, per_endpoint=8, lease_seconds=60, sending={})
        assert [one.state for one in batch.callbacks] == ["running"]
        # Another relay finds nothing, as long as the first one holds it.
        assert (await outbox.claim(10, per_endpoint=8, lease_seconds=60, sending={})).callbacks == ()
        await outbox.record(
            [CallbackOutcome(callback=batch.callbacks[0], verdict=Verdict.DELIVERED)], pause_seconds=1.0
        )
        assert [
            one.state
            for one in (await outbox.claim(10, per_endpoint=8, lease_seconds=60, sending={})).callbacks
        ] == ["completed"]
        await outbox.close()

    in_world(dsn, test)


def test_what_a_dead_relay_held_is_sent_again_and_its_late_outcome_changes_nothing(dsn):
    async def test(world: CallbackWorld) -> None:
        dead, alive = world.outbox(), world.outbox()
        await world.job(1)
        await world.start(1)
        (held,) = (await dead.claim(10, per_endpoint=8, lease_seconds=60, sending={})).callbacks
        assert (await alive.claim(10, per_endpoint=8, lease_seconds=60, sending={})).callbacks == ()
        await world.connection.execute(
            "UPDATE dag_callbacks SET leased_until = clock(), next_attempt_at = clock()"
        )
        (again,) = (await alive.claim(10, per_endpoint=8, lease_seconds=60, sending={})).callbacks
        assert again.callback_id == held.callback_id
        await dead.record(
            [CallbackOutcome(callback=held, verdict=Verdict.DEAD, dead_reason="exhausted")], pause_seconds=1.0
        )
        assert (await show_callback(world.callbacks, held.callback_id)).status is DeliveryStatus.WAITING
        await alive.record(
            [CallbackOutcome(callback=again, verdict=Verdict.DELIVERED, status=200)], pause_seconds=1.0
        )
        assert (await show_callback(world.callbacks, held.callback_id)).status is DeliveryStatus.DELIVERED
        await dead.close()
        await alive.close()

    in_world(dsn, test)


def test_a_relay_whose_connection_is_cut_loses_nothing(dsn):
    async def test(world: CallbackWorld) -> None:
        cut = "SELECT pg_terminate_backend(pid) FROM pg_stat_activity WHERE application_name = 'dagmaster relay' AND datname = current_database()"
        async with world.relaying(max_backoff_seconds=0.05):
            for job_id in range(1, 31):
                await world.job(job_id)
                await world.start(job_id)
                if job_id % 10 == 0:
                    await world.connection.fetch(cut)
                await world.finish(job_id)
            # What it held when it was cut is sent again when the lease is over.
            while await world.rows("SELECT FROM dag_callbacks WHERE delivered_at IS NULL"):
                await world.connection.execute(_EXPIRE)
        for job_id in range(1, 31):
            assert list(dict.fromkeys(world.receiver.states(str(job_id)))) == ["running", "completed"]

    in_world(dsn, test)


def test_ten_thousand_callbacks_of_a_dead_endpoint_do_not_stand_in_the_way_of_others(dsn):
    async def test(world: CallbackWorld) -> None:
        world.receiver.answer = lambda body, _number: DOWN if body["url"].startswith(A) else Delivery(200)
        await world.connection.execute(
            "INSERT INTO dag_callbacks (tenant, job_id, state, url, endpoint, occurred_at, next_attempt_at)"
            " SELECT 'default', n, 'running', $1 || '/x', $1, now(), now() - interval '1 hour' FROM generate_series(1, 10000) n",
            A,
        )
        async with world.relaying():
            await world.until("SELECT failures >= $1 FROM dag_external_services", FAILING)
            await world.job(20_000, f"{B}/x")
            await world.start(20_000)
            await world.finish(20_000)
            await world.until(
                "SELECT count(*) = 2 FROM dag_callbacks WHERE endpoint = $1 AND delivered_at IS NOT NULL", B
            )
        # It is left alone after a few failures, none of its callbacks is given up, and then it gets one at a time.
        assert await world.rows(
            "SELECT open_at IS NOT NULL FROM dag_external_services WHERE failures > 0"
        ) == [(True,)]
        assert await world.rows("SELECT count(dead_at) FROM dag_callbacks") == [(0,)]
        await world.connection.execute("UPDATE dag_external_services SET open_at = NULL")
        outbox = world.outbox()
        assert len((await outbox.claim(100, per_endpoint=8, lease_seconds=60, sending={})).callbacks) == 1
        await outbox.close()

    in_world(dsn, test)


_MANY_ENDPOINTS = (
    "INSERT INTO dag_callbacks (tenant, job_id, state, url, endpoint, occurred_at, next_attempt_at)"
    " SELECT $1::text, n, 'running', e || '/x', e, now(), now() - interval '1 hour'"
    " FROM generate_series($2::int, $3::int) n CROSS JOIN LATERAL (SELECT format('https://h%s.%s.example.com', n, $1::text) e) x"
)


def test_a_tenant_whose_many_endpoints_hang_leaves_room_for_others(dsn):
    hang_up = asyncio.Event()

    class Hanging(Receiver):
        async def send(self, url: str, headers: Mapping[str, str], body: bytes) -> Delivery:
            delivery = await super().send(url, headers, body)
            if "acme" in url:
                await hang_up.wait()
            return delivery

    async def test(world: CallbackWorld) -> None:
        receiver = Hanging()
        await world.connection.execute(_MANY_ENDPOINTS, "acme", 1, 300)
        async with world.relaying(receiver, concurrency=8):
            await receiver.until(4)
            for job_id in range(1001, 1021):
                await world.job(job_id, f"{B}/x", tenant="globex")
                await world.start(job_id)
            await world.until("SELECT count(*) = 20 FROM dag_callbacks WHERE delivered_at IS NOT NULL")
            # Half of what one relay sends at once, whatever else of it waits.
            assert sum(body["job_id"] in {str(n) for n in range(301)} for _, body in receiver.received) == 4
            hang_up.set()

    in_world(dsn, test)


def test_a_claim_shares_what_is_free_among_tenants_and_looks_at_a_few_endpoints_of_each(dsn):
    async def test(world: CallbackWorld) -> None:
        outbox = PostgresCallbackOutbox(world.config, endpoints_per_tenant=4)
        try:
            for tenant, first, last in (("acme", 1, 10), ("globex", 11, 13)):
                await world.connection.execute(_MANY_ENDPOINTS, tenant, first, last)

            async def claim(limit: int, **sending: int) -> list[str]:
                batch = await outbox.claim(limit, per_endpoint=8, lease_seconds=60, sending=sending)
                return [one.tenant for one in batch.callbacks]

            # Nobody gets more than stays free, and who holds much gets nothing.
            assert sorted(await claim(4, acme=1)) == ["acme", "globex", "globex"]
            assert await claim(1, acme=3) == ["globex"]
            assert await claim(2, acme=3) == []
            # Each claim goes on where the one before ended, and begins again.
            endpoints: set[str] = set()
            while len(endpoints) < 9:
                batch = await outbox.claim(100, per_endpoint=8, lease_seconds=60, sending={})
                assert len({one.endpoint for one in batch.callbacks}) <= 4
                assert batch.wait_seconds is None or batch.wait_seconds > 0
                endpoints |= {one.endpoint for one in batch.callbacks}
        finally:
            await outbox.close()

    in_world(dsn, test)


def test_after_its_tries_a_callback_is_dead_and_is_sent_again_with_its_id(dsn):
    async def test(world: CallbackWorld) -> None:
        world.receiver.answer = lambda _body, _number: Delivery(404, "answered 404")
        await world.job(1)
        await world.start(1)
        async with world.relaying(schedule=RetrySchedule((0.001, 0.001))):
            await world.until_done()
            (record,) = (
                await list_callbacks(world.callbacks, CallbackFilter(status=DeliveryStatus.DEAD))
            ).items
            assert (record.attempts, record.dead_reason, record.last_status) == (3, "exhausted", 404)
            world.receiver.answer = lambda _body, _number: Delivery(200)
            assert (await replay_callback(world.callbacks, record.callback_id, origin=TEST)).count == 1
            await world.until("SELECT delivered_at IS NOT NULL FROM dag_callbacks")
        assert {callback_id for callback_id, _ in world.receiver.received} == {record.callback_id}
        entries = await world.rows("SELECT actor, action, details->>'count' FROM dag_audit")
        assert ("ada", "callback.replay", "1") in entries

    in_world(dsn, test)


def test_an_address_that_no_attempt_can_reach_is_dead_at_once(dsn):
    async def test(world: CallbackWorld) -> None:
        class Strict(Receiver):
            async def send(self, url: str, headers: Mapping[str, str], body: bytes) -> Delivery:
                raise CallbackUrlInvalid("callback_url begins with https://")

        await world.job(1, "http://10.0.0.1/")
        await world.start(1)
        async with world.relaying(Strict()):
            await world.until_done()
        (record,) = (await list_callbacks(world.callbacks, CallbackFilter())).items
        assert (record.dead_reason, record.attempts) == ("url_invalid", 1)

    in_world(dsn, test)


# ── Endpoints ───────────────────────────────────────────────────────────────────────────────────────────────


def test_an_endpoint_that_fails_for_days_is_paused_and_recovers_everything_since_in_order(dsn):
    async def test(world: CallbackWorld) -> None:
        world.receiver.answer = lambda _body, _number: DOWN
        await world.job(1)
        await world.start(1)
        await world.finish(1)
        async with world.relaying(schedule=RetrySchedule((0.001,) * 2)):
            await world.until("SELECT count(dead_at) = 2 FROM dag_callbacks")
            # Three days later it fails still.
            await world.connection.execute(
                "UPDATE dag_external_services SET failing_since = now() - interval '73 hours', open_at = NULL"
            )
            await world.connection.execute("UPDATE dag_callbacks SET dead_at = now() - interval '70 hours'")
            await world.job(2)
            await world.start(2)
            await world.until("SELECT paused_at IS NOT NULL FROM dag_external_services")
            await world.until("SELECT bool_and(lease_token IS NULL) FROM dag_callbacks")
            await world.finish(2)
            count = len(world.receiver.received)
            (endpoint,) = await list_endpoints(world.callbacks, is_paused=True)
            assert (endpoint.pause_reason, endpoint.waiting, endpoint.dead) == ("failing", 2, 2)
            assert ("relay", "callback_endpoint.pause", A) in await world.rows(
                "SELECT actor, action, object_id FROM dag_audit"
            )
            world.receiver.answer = lambda _body, _number: Delivery(200)
            assert (await resume_endpoint(world.callbacks, f"{A}/", origin=TEST)).count == 1
            await world.until("SELECT bool_and(delivered_at IS NOT NULL) FROM dag_callbacks")
        told = [(body["job_id"], body["status"]) for _, body in world.receiver.received[count:]]
        assert sorted(told) == [("1", "completed"), ("1", "running"), ("2", "completed"), ("2", "running")]
        assert told.index(("1", "running")) < told.index(("1", "completed"))
        assert told.index(("2", "running")) < told.index(("2", "completed"))

    in_world(dsn, test)


def test_an_endpoint_that_answers_gone_is_paused_at_once(dsn):
    async def test(world: CallbackWorld) -> None:
        world.receiver.answer = lambda _body, _number: Delivery(410, "answered 410")
        await world.job(1)
        await world.start(1)
        async with world.relaying():
            await world.until("SELECT pause_reason = 'gone' FROM dag_external_services")
            await world.finish(1)
            (record,) = (
                await list_callbacks(world.callbacks, CallbackFilter(status=DeliveryStatus.DEAD))
            ).items
            assert record.dead_reason == "gone"
            world.receiver.answer = lambda _body, _number: Delivery(200)
            await resume_endpoint(world.callbacks, A, origin=TEST)
            await world.until("SELECT bool_and(delivered_at IS NOT NULL) FROM dag_callbacks")
        assert world.receiver.states("1") == ["running", "running", "completed"]

    in_world(dsn, test)


def test_an_endpoint_says_when_to_come_again_and_nothing_is_sent_before(dsn):
    async def test(world: CallbackWorld) -> None:
        world.receiver.answer = lambda _body, _number: Delivery(429, "answered 429", 1000.0)
        await world.job(1)
        await world.job(2)
        await world.start(1)
        async with world.relaying():
            await world.until("SELECT open_at > clock() + interval '900 seconds' FROM dag_external_services")
            await world.start(2)
            await world.job(3, f"{B}/x")
            await world.start(3)
            await world.until("SELECT attempts > 0 FROM dag_callbacks WHERE job_id = 3")
        assert world.receiver.states("2") == []

    in_world(dsn, test)


def test_a_paused_endpoint_gets_nothing_until_it_is_resumed(dsn):
    async def test(world: CallbackWorld) -> None:
        await world.job(1)
        with pytest.raises(EndpointNotFound):
            await pause_endpoint(world.callbacks, A, origin=TEST)
        await world.start(1)
        assert (await pause_endpoint(world.callbacks, A, origin=TEST)).count == 1
        with pytest.raises(EndpointNotFound):
            await pause_endpoint(world.callbacks, A, origin=TEST)
        await world.job(2, f"{B}/x")
        await world.start(2)
        async with world.relaying():
            await world.until("SELECT delivered_at IS NOT NULL FROM dag_callbacks WHERE job_id = 2")
            assert world.receiver.states("1") == []
            await resume_endpoint(world.callbacks, A, origin=TEST)
            await world.until_done()
        with pytest.raises(EndpointNotFound):
            await resume_endpoint(world.callbacks, A, origin=TEST)
        assert world.receiver.states("1") == ["running"]

    in_world(dsn, test)


def test_a_range_is_replayed_and_nothing_else(dsn):
    async def test(world: CallbackWorld) -> None:
        for job_id in (1, 2, 3):
            await world.job(job_id, f"{A if job_id < 3 else B}/x")
            await world.start(job_id)
        async with world.relaying():
            await world.until_done()
        await world.connection.execute("UPDATE dag_callbacks SET created_at = to_timestamp(job_id * 1000)")
        delivered = CallbackFilter(status=DeliveryStatus.DELIVERED, since=1000.0, until=2000.0)
        assert (await replay_callbacks(world.callbacks, delivered, origin=TEST)).count == 1
        waiting = (await list_callbacks(world.callbacks, CallbackFilter(status=DeliveryStatus.WAITING))).items
        assert [one.job_id for one in waiting] == ["1"]
        at_b = CallbackFilter(status=DeliveryStatus.DELIVERED, endpoint=B)
        assert (await replay_callbacks(world.callbacks, at_b, origin=TEST)).count == 1
        assert (await replay_callbacks(world.callbacks, CallbackFilter(), origin=TEST)).count == 0

    in_world(dsn, test)


def test_many_callbacks_are_replayed_and_recovered_in_batches(dsn, monkeypatch):
    monkeypatch.setattr(operations, "MAX_CHANGED", 4)
    died = (
        "UPDATE dag_callbacks SET dead_at = now(), dead_reason = 'exhausted', attempts = 8 WHERE job_id <= $1"
    )
    revived = "SELECT count(*), count(*) FILTER (WHERE dead_at IS NULL) FROM dag_callbacks"

    async def test(world: CallbackWorld) -> None:
        await world.connection.execute(_MANY_ENDPOINTS, "default", 1, 10)
        await world.connection.execute("UPDATE dag_callbacks SET endpoint = $1", A)
        await world.connection.execute(died, 10)
        counts: list[tuple[int, int]] = []
        cursor: str | None = None
        while not counts or cursor is not None:
            result = await replay_callbacks(
                world.callbacks, CallbackFilter(endpoint=A), origin=TEST, cursor=cursor
            )
            counts.append((result.count, result.left))
            cursor = result.next_cursor
            # What dies again meanwhile is not sent twice.
            await world.connection.execute(died, 4)
        assert counts == [(4, 6), (4, 2), (2, 0)]
        await world.connection.execute(died, 10)
        await pause_endpoint(world.callbacks, A, origin=TEST)
        await world.connection.execute(
            "UPDATE dag_external_services SET failures = 5, failing_since = now() - interval '1 hour'"
        )
        for left in (6, 2):
            part = await resume_endpoint(world.callbacks, A, origin=TEST)
            assert (part.count, part.left) == (0, left)
            # Nothing is sent before the last: the order stays.
            assert [one.endpoint for one in await list_endpoints(world.callbacks, is_paused=True)] == [A]
            assert await world.rows(revived) == [(10, 10 - left)]
        assert (await resume_endpoint(world.callbacks, A, origin=TEST)).count == 1
        assert await world.rows(revived) == [(10, 10)]
        assert not await list_endpoints(world.callbacks, is_paused=True)
        entries = "SELECT action, details->>'count' FROM dag_audit WHERE action <> 'callback_endpoint.pause' ORDER BY 1, 2"
        assert await world.rows(entries) == [
            ("callback.replay", "2"), ("callback.replay", "4"), ("callback.replay", "4"), ("callback_endpoint.resume", "1"),
        ]  # fmt: skip

    in_world(dsn, test)


# ── Signatures and tenants ──────────────────────────────────────────────────────────────────────────────────


def test_callbacks_are_signed_with_each_active_secret_and_with_a_key_pair_if_there_is_none(dsn):
    async def test(world: CallbackWorld) -> None:
        for job_id in (1, 2, 3):
            await world.job(job_id)
        async with world.relaying():
            await world.start(1)
            await world.receiver.until(1)
            (public,) = (await public_keys(world.callbacks)).keys
            _verify(world, public.public_key, -1)
            first = await create_signing_secret(world.callbacks, SecretKind.HMAC, origin=TEST)
            second = await create_signing_secret(world.callbacks, SecretKind.HMAC, origin=TEST)
            with pytest.raises(SigningSecretsInUse):
                await create_signing_secret(world.callbacks, SecretKind.HMAC, origin=TEST)
        assert first.secret is not None
        assert second.secret is not None
        async with world.relaying():
            await world.start(2)
            await world.receiver.until(2)
            for secret in (first.secret, second.secret, public.public_key):
                _verify(world, secret, -1)
            standardwebhooks.Webhook(first.secret).verify(
                world.receiver.bodies[-1], dict(world.receiver.headers[-1])
            )
            for secret_id in (first.secret_id, public.key_id):
                await revoke_signing_secret(world.callbacks, secret_id, origin=TEST)
        assert (await public_keys(world.callbacks)).keys == ()
        async with world.relaying():
            await world.start(3)
            await world.receiver.until(3)
            _verify(world, second.secret, -1)
            assert " " not in world.receiver.headers[-1]["webhook-signature"]
        stored = str(await world.rows("SELECT sealed::text FROM dag_signing_secrets"))
        assert second.secret.removeprefix("whsec_") not in stored

    in_world(dsn, test)


def _verify(world: CallbackWorld, secret: str, number: int) -> None:
    headers = world.receiver.headers[number]
    verify([secret], headers, world.receiver.bodies[number], now=int(headers["webhook-timestamp"]))


def test_a_rotation_of_the_installation_key_keeps_signing_secrets_readable(dsn):
    async def test(world: CallbackWorld) -> None:
        old, new = new_key(), new_key()
        registry = PostgresSecretKeys(world.config)
        before = Callbacks(world.store, KeyVault(KeySource(text=old), registry))
        created = await create_signing_secret(before, SecretKind.HMAC, origin=TEST)
        admin = PostgresSecretKeyAdmin(world.config)
        try:
            view = await rotate_keys(SecretKeys(KeyVault(KeySource(text=f"{new},{old}"), admin), admin))
        finally:
            await admin.aclose()
        assert [(key.is_current, key.signing_secrets) for key in view.keys] == [(True, 1), (False, 0)]
        after = KeyVault(KeySource(text=new), registry)
        await after.prepare()
        ((secret_id, sealed),) = await world.rows("SELECT secret_id, sealed::text FROM dag_signing_secrets")
        assert open_secret(after, secret_id, sealed) == created.secret

    in_world(dsn, test)


def test_a_tenant_sees_and_changes_its_own_callbacks_endpoints_and_secrets_alone(dsn):
    async def test(world: CallbackWorld) -> None:
        for job_id, tenant in ((1, "acme"), (2, "globex")):
            await world.job(job_id, tenant=tenant)
            await world.start(job_id)
            await create_signing_secret(world.callbacks, SecretKind.ED25519, origin=TEST, tenant=tenant)
        await world.connection.execute("GRANT dagmaster_api TO CURRENT_USER")

        store = PostgresCallbackStore(replace(world.config, role="dagmaster_api"))
        try:
            acme = Callbacks(store, VAULT).for_tenant("acme")
            (record,) = (await list_callbacks(acme, CallbackFilter())).items
            assert record.job_id == "1"
            (other,) = (await list_callbacks(world.callbacks, CallbackFilter(tenant="globex"))).items
            with pytest.raises(CallbackNotFound):
                await show_callback(acme, other.callback_id)
            assert [one.tenant for one in await list_endpoints(acme)] == ["acme"]
            assert (await pause_endpoint(acme, A, origin=TEST)).count == 1
            assert [one.tenant for one in await list_endpoints(world.callbacks, is_paused=True)] == ["acme"]
            await world.connection.execute(
                "UPDATE dag_callbacks SET dead_at = now(), dead_reason = 'exhausted'"
            )
            assert (await replay_callbacks(acme, CallbackFilter(), origin=TEST)).count == 1
            (secret,) = await list_signing_secrets(acme)
            # The public keys of a set are open to who knows its name, and to nobody else.
            assert len((await public_keys(acme, secret.key_set)).keys) == 1
            assert (await public_keys(acme)).keys == ()
            (foreign,) = await list_signing_secrets(world.callbacks, tenant="globex")
            assert foreign.key_set != secret.key_set
            # Without a tenant, nothing.
            assert (await list_callbacks(Callbacks(store, VAULT), CallbackFilter())).items == ()
        finally:
            await store.close()

    in_world(dsn, test)


@pytest.mark.parametrize(
    "statement",
    [
        "SELECT * FROM dagapp.dag_callbacks",
        "SELECT * FROM dagapp.dag_signing_secrets",
        "SELECT * FROM dagapp.dag_external_services",
        "SELECT dagapp.dag_add_callback('default', NULL, 1, 1, 'running', NULL, 'https://x.example.com', now(), now())",
    ],
)
@pytest.mark.parametrize("role", ["dagmaster_gateway", "dagmaster_worker"])
def test_a_gateway_and_a_worker_may_not_touch_callbacks(dsn, role, statement):
    async def test(world: CallbackWorld) -> None:
        await world.connection.execute(f"SET ROLE {role}")
        with pytest.raises(asyncpg.InsufficientPrivilegeError):
            await world.connection.fetch(statement)

    in_world(dsn, test)
