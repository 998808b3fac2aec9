"""The relay's side of callbacks on PostgreSQL: one connection, which is notified of new ones."""

from __future__ import annotations

import asyncio
import secrets
import uuid
from typing import TYPE_CHECKING, Any, Final

from dagmaster.ports.callbacks import (
    FAILING,
    ID_PREFIX,
    ActiveSecret,
    ClaimBatch,
    ClaimedCallback,
    PausedEndpoint,
    Verdict,
)
from dagmaster.records.callbacks import CallbackState, SecretKind
from dagmaster.store.postgres.connection import Connection
from dagmaster.store.postgres.named_queries import array_parameters, queries

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence

    import asyncpg

    from dagmaster.ports.callbacks import CallbackOutbox, CallbackOutcome
    from dagmaster.ports.database_config import DatabaseConfig

CHANNEL: Final = "dagmaster_callbacks"
ENDPOINTS_PER_TENANT: Final = 256
"""How many endpoints of a tenant a claim looks at. The next claim looks at the next ones."""
ROUND_SECONDS: Final = 0.5
"""How long a claim waits that found nothing due, and has not looked at all endpoints of a tenant."""
_SQL: Final = queries("relay")


class PostgresCallbackOutbox:
    """Callbacks that wait, by endpoint."""

    def __init__(
        self,
        config: DatabaseConfig,
        *,
        on_disconnect: Callable[[], None] | None = None,
        endpoints_per_tenant: int = ENDPOINTS_PER_TENANT,
    ) -> None:
        self.wakeup = asyncio.Event()
        self._endpoints_per_tenant = endpoints_per_tenant
        # Of tenants with more endpoints than a claim looks at: with which one the next claim begins.
        self._first_endpoints: dict[str, str] = {}
        # What a crash of the server forgets is sent again, with the same id.
        self._connection = Connection(
            config, "dagmaster relay", async_commit=True, listens=True, on_disconnect=on_disconnect
        )

    async def listen(self) -> None:
        await self._connection.listen(CHANNEL, lambda _payload: self.wakeup.set())

    async def claim(
        self, limit: int, *, per_endpoint: int, lease_seconds: float, sending: Mapping[str, int]
    ) -> ClaimBatch:
        params = {
            "limit": limit,
            "per_endpoint": per_endpoint,
            "endpoints_per_tenant": self._endpoints_per_tenant,
            "failing": FAILING,
            **self._shares(sending),
        }
        lease = {"lease_seconds": lease_seconds, "lease_token": secrets.randbits(62)}
        rows = await self._connection.fetch(_SQL["claim"], params | lease)
        was_cut = bool(self._first_endpoints)
        self._first_endpoints = dict(zip(rows[0]["tenants"] or (), rows[0]["endpoints"] or (), strict=True))
        held = [row for row in rows if row["id"] is not None]
        if held:
            callbacks = [_claimed(row) for row in held if not row["is_parked"]]
            return ClaimBatch(callbacks, has_more=len(callbacks) < limit, wait_seconds=None)
        if was_cut or self._first_endpoints:
            return ClaimBatch((), has_more=False, wait_seconds=ROUND_SECONDS)
        due = await self._connection.row(_SQL["next_due"], params)
        return ClaimBatch((), has_more=False, wait_seconds=None if due is None else due["seconds"])

    def _shares(self, sending: Mapping[str, int]) -> dict[str, Any]:
        """Return what is known of tenants that is not in the database."""
        tenants = sorted({*sending, *self._first_endpoints})
        return {
            "share_tenant": tenants,
            "share_sending": [sending.get(tenant, 0) for tenant in tenants],
            "share_first_endpoint": [self._first_endpoints.get(tenant) for tenant in tenants],
        }

    async def record(
        self, outcomes: Sequence[CallbackOutcome], *, pause_seconds: float
    ) -> list[PausedEndpoint]:
        params: dict[str, Any] = {
            "ids": [str(_uuid(outcome.callback.callback_id)) for outcome in outcomes],
            "pause_seconds": pause_seconds,
            "min_failures": FAILING,
        }
        array_parameters("outcome", [_outcome_row(outcome) for outcome in outcomes], params)
        health = _health(outcomes)
        statements = []
        if health:
            array_parameters("health", health, params)
            # First: what dies of a failure dies after its endpoint began to fail, and recovers with it.
            statements.append((_SQL["health"], params))
        statements += [(_SQL["record"], params), (_SQL["unpark"], params)]
        failing = [_failing_row(row, outcomes) for row in health if not row["is_delivered"]]
        if failing:
            array_parameters("failing", failing, params)
            statements.append((_SQL["pause"], params))
        rows = await self._connection.execute_in_transaction(statements)
        return [PausedEndpoint(*row) for row in rows] if failing else []

    async def active_secrets(self, tenant: str) -> Sequence[ActiveSecret]:
        rows = await self._connection.fetch(_SQL["active_secrets"], {"tenant": tenant})
        return [ActiveSecret(row["secret_id"], SecretKind(row["kind"]), row["sealed"]) for row in rows]

    async def prune(self, seconds: float) -> int:
        row = await self._connection.row(_SQL["prune"], {"seconds": seconds})
        return 0 if row is None else int(row["pruned"])

    async def close(self) -> None:
        await self._connection.close()


def _claimed(row: asyncpg.Record) -> ClaimedCallback:
    return ClaimedCallback(
        callback_id=f"{ID_PREFIX}{row['id'].replace('-', '')}",
        lease_token=row["lease_token"],
        tenant=row["tenant"],
        endpoint=row["endpoint"],
        url=row["url"],
        request_id=row["request_id"],
        job_id=row["job_id"],
        run=row["run"],
        state=CallbackState(row["state"]),
        reason=row["reason"],
        occurred_at=row["occurred_at"],
        attempts=row["attempts"],
        failures=row["failures"],
        result_key=row["result_key"],
    )


def _outcome_row(outcome: CallbackOutcome) -> dict[str, Any]:
    return {
        "id": str(_uuid(outcome.callback.callback_id)),
        "lease_token": outcome.callback.lease_token,
        "verdict": outcome.verdict.value,
        "status": outcome.status,
        "error": outcome.error or "",
        "dead_reason": outcome.dead_reason or "",
        "delay_seconds": outcome.delay_seconds,
    }


def _health(outcomes: Sequence[CallbackOutcome]) -> list[dict[str, Any]]:
    """Return what outcomes say about each endpoint: one delivery makes it healthy."""
    by_endpoint: dict[tuple[str, str], dict[str, Any]] = {}
    for outcome in outcomes:
        if outcome.verdict is Verdict.POSTPONED or outcome.dead_reason == "url_invalid":
            continue
        callback = outcome.callback
        row = by_endpoint.setdefault(
            (callback.tenant, callback.endpoint),
            {
                "tenant": callback.tenant,
                "endpoint": callback.endpoint,
                "is_delivered": False,
                "failures": 0,
                "error": "",
                "closed_seconds": 0.0,
            },
        )
        if outcome.verdict is Verdict.DELIVERED:
            row["is_delivered"] = True
        else:
            row["failures"] += 1
            row["error"] = outcome.error or ""
        row["closed_seconds"] = max(row["closed_seconds"], outcome.closed_seconds)
    for row in by_endpoint.values():
        if row["is_delivered"]:
            row["failures"] = 0
    # In one order: two relays never wait for each other.
    return [by_endpoint[key] for key in sorted(by_endpoint)]


def _failing_row(row: dict[str, Any], outcomes: Sequence[CallbackOutcome]) -> dict[str, Any]:
    place = row["tenant"], row["endpoint"]
    is_gone = any(
        outcome.dead_reason == "gone" and (outcome.callback.tenant, outcome.callback.endpoint) == place
        for outcome in outcomes
    )
    return {"tenant": row["tenant"], "endpoint": row["endpoint"], "is_gone": is_gone}


def _uuid(callback_id: str) -> uuid.UUID:
    return uuid.UUID(hex=callback_id.removeprefix(ID_PREFIX))


if TYPE_CHECKING:

    def _is_outbox(outbox: PostgresCallbackOutbox) -> CallbackOutbox:
        return outbox
