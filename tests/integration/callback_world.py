"""A database, a relay and a receiver for tests of callbacks."""

from __future__ import annotations

import asyncio
import contextlib
import json
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

import asyncpg

from dagmaster.application.callbacks import Callbacks
from dagmaster.application.signing_secrets import ensure_key_pair
from dagmaster.orchestrator.callback_attempts import RetrySchedule
from dagmaster.orchestrator.relay import Relay, RelayOptions
from dagmaster.orchestrator.signing_keys import SigningKeys
from dagmaster.ports.audit_trail import ChangeOrigin
from dagmaster.ports.callbacks import Delivery
from dagmaster.ports.database_config import DatabaseConfig
from dagmaster.store.postgres.callback_outbox import PostgresCallbackOutbox
from dagmaster.store.postgres.callback_store import PostgresCallbackStore
from tests.patience import PATIENCE_SECONDS
from tests.secret_vaults import VAULT

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Callable, Mapping

TEST = ChangeOrigin(actor="ada")
JOB = (
    "INSERT INTO dag_jobs (id, workflow_id, version, content_hash, inputs, callback_url, tenant, created_at, updated_at)"
    " VALUES ($1, 'w', 1, 'h', '{}', $2, $3, now(), now())"
)
REQUEST = (
    "INSERT INTO dag_api_requests (request_id, tenant, actor, workflow_id, payload, body_hash, state, job_id, callback_url)"
    " VALUES (gen_random_uuid(), $1, 'k', 'w', '{}', 'h', 'accepted', $2, $3) RETURNING request_id::text"
)
FINISH = "UPDATE dag_jobs SET status = $2, finished_at = now() WHERE id = $1"


@dataclass
class Receiver:
    """Takes callbacks, and answers as `answer` says: by the body, and how often its id was sent."""

    answer: Callable[[dict[str, Any], int], Delivery] = lambda _body, _number: Delivery(200)
    received: list[tuple[str, dict[str, Any]]] = field(default_factory=list)
    headers: list[Mapping[str, str]] = field(default_factory=list)
    bodies: list[bytes] = field(default_factory=list)
    arrived: asyncio.Condition = field(default_factory=asyncio.Condition)

    async def send(self, url: str, headers: Mapping[str, str], body: bytes) -> Delivery:
        parsed = json.loads(body)
        self.received.append((headers["webhook-id"], parsed))
        self.headers.append(headers)
        self.bodies.append(body)
        number = sum(one == headers["webhook-id"] for one, _ in self.received)
        async with self.arrived:
            self.arrived.notify_all()
        return self.answer(parsed | {"url": url}, number)

    async def until(self, count: int) -> None:
        async with asyncio.timeout(PATIENCE_SECONDS), self.arrived:
            await self.arrived.wait_for(lambda: len(self.received) >= count)

    def states(self, subject: str) -> list[str]:
        """Return what was said of a job or request, in order."""
        return [
            body["status"]
            for _, body in self.received
            if subject in {body.get("job_id"), body.get("request_id")}
        ]


class CallbackWorld:
    """A database of its own, seen by a user that may do everything."""

    def __init__(self, dsn: str, connection: asyncpg.Connection[asyncpg.Record]) -> None:
        self.config = DatabaseConfig(dsn=dsn)
        self.connection = connection
        self.store = PostgresCallbackStore(self.config)
        self.callbacks = Callbacks(self.store, VAULT)
        self.receiver = Receiver()

    def outbox(self) -> PostgresCallbackOutbox:
        return PostgresCallbackOutbox(self.config)

    def relay(self, receiver: Receiver | None = None, **options: Any) -> Relay:
        outbox = self.outbox()

        async def make_key_pair(tenant: str) -> None:
            await ensure_key_pair(self.callbacks, tenant)

        options = {"schedule": RetrySchedule((0.001,) * 7), "poll_seconds": 0.2, **options}
        return Relay(
            outbox,
            receiver or self.receiver,
            SigningKeys(outbox, VAULT, make_key_pair),
            options=RelayOptions(**options),
            jitter=lambda: 0.5,
        )

    @contextlib.asynccontextmanager
    async def relaying(self, receiver: Receiver | None = None, **options: Any) -> AsyncIterator[Relay]:
        relay = self.relay(receiver, **options)
        running = asyncio.create_task(relay.run())
        try:
            yield relay
        finally:
            relay.stop()
            async with asyncio.timeout(PATIENCE_SECONDS):
                await running

    async def job(
        self, job_id: int, url: str | None = "https://a.example.com/x", *, tenant: str = "default"
    ) -> None:
        await self.connection.execute(JOB, job_id, url, tenant)

    async def start(self, *job_ids: int) -> None:
        await self.connection.execute(
            "UPDATE dag_jobs SET status = 'RUNNING', started_at = now() WHERE id = ANY($1)", list(job_ids)
        )

    async def finish(self, job_id: int, status: str = "COMPLETED") -> None:
        await self.connection.execute(FINISH, job_id, status)

    async def request(
        self, job_id: int | None, url: str | None = "https://a.example.com/r", *, tenant: str = "default"
    ) -> str:
        return str(await self.connection.fetchval(REQUEST, tenant, job_id, url))

    async def rows(self, sql: str, *arguments: Any) -> list[tuple[Any, ...]]:
        return [tuple(row) for row in await self.connection.fetch(sql, *arguments)]

    async def stored(self) -> list[tuple[Any, ...]]:
        return await self.rows("SELECT subject, run, state, reason FROM dag_callbacks ORDER BY seq")

    async def until(self, sql: str, *arguments: Any) -> None:
        """Wait until a statement is true."""
        async with asyncio.timeout(PATIENCE_SECONDS):
            while not await self.connection.fetchval(sql, *arguments):
                pass

    async def until_done(self) -> None:
        await self.until(
            "SELECT NOT EXISTS (SELECT FROM dag_callbacks WHERE delivered_at IS NULL AND dead_at IS NULL)"
        )


def in_world(dsn: str, test: Callable[[CallbackWorld], Any]) -> None:
    """Run a test in the loop of its world."""

    async def main() -> None:
        connection = await asyncpg.connect(dsn, server_settings={"search_path": "dagapp"})
        world = CallbackWorld(dsn, connection)
        try:
            await connection.execute(
                "INSERT INTO dag_graphs (content_hash, definition) VALUES ('h', '{}') ON CONFLICT DO NOTHING"
            )
            await connection.execute(
                "INSERT INTO dag_tenants (name) VALUES ('default'), ('acme'), ('globex') ON CONFLICT DO NOTHING"
            )
            async with asyncio.timeout(2 * PATIENCE_SECONDS):
                await test(world)
        finally:
            await world.store.close()
            await connection.close()

    asyncio.run(main())
