"""The orchestrator's store on PostgreSQL."""

from __future__ import annotations

import json
import os
import socket
import time
from importlib.metadata import version
from typing import TYPE_CHECKING, Any

from dagmaster.engine.status import NodeStatus
from dagmaster.errors import OwnershipLost
from dagmaster.ports.job_feed import WATCH_SECONDS
from dagmaster.ports.json_text import JsonText, read_json
from dagmaster.ports.node_values import ValueKey, ValueKind
from dagmaster.ports.turn_records import Command, TaskResult
from dagmaster.store.output_sizes import sum_sizes
from dagmaster.store.postgres.connection import Connection
from dagmaster.store.postgres.handler_contracts import PostgresHandlerContracts
from dagmaster.store.postgres.machine_id_lease import Identity
from dagmaster.store.postgres.metric_rollups import MetricRollups
from dagmaster.store.postgres.named_queries import queries, split_ids
from dagmaster.store.postgres.reusable_results import PostgresReusableResults
from dagmaster.store.postgres.turn_statement import statement_of
from dagmaster.store.result_notifications import ATTEMPT_STATUSES, NotificationInbox
from dagmaster.telemetry.logs import set_process_field

if TYPE_CHECKING:
    from collections.abc import Collection, Mapping, Sequence

    import asyncpg

    from dagmaster.host.snowflakes import Snowflakes
    from dagmaster.json_types import JsonValue
    from dagmaster.ports.clock import Clock
    from dagmaster.ports.database_config import DatabaseConfig
    from dagmaster.ports.job_records import ClaimedJob
    from dagmaster.ports.output_blobs import OutputBlobs
    from dagmaster.ports.turn_records import TurnCommit

_SQL = queries("orchestrator")
_WATCH_CHANNEL = "dagmaster_watch"
_AFTER_UNDERSCORE = "`"  # ids of the children of `fan` are between `fan__` and fan_`


class PostgresOrchestratorStore(NotificationInbox, PostgresReusableResults):
    """Jobs in PostgreSQL. Turns, reads for the next turn, heartbeats and chores have a connection each."""

    def __init__(
        self,
        config: DatabaseConfig,
        *,
        blobs: OutputBlobs,
        lease_seconds: float = 15.0,
        worker_lease_seconds: float = 6.0,
    ) -> None:
        NotificationInbox.__init__(self)
        name = "dagmaster orchestrator"
        self._turns = Connection(config, name, on_disconnect=self._disconnected)
        PostgresReusableResults.__init__(
            self, self._turns, blobs, lease_seconds=lease_seconds, worker_lease_seconds=worker_lease_seconds
        )
        self._reads = Connection(config, f"{name}, reads", on_disconnect=self._disconnected)
        self._side = Connection(
            config, f"{name}, side", async_commit=True, listens=True, on_disconnect=self._disconnected
        )
        # Opened when there is something to count. On the one of heartbeats, a long count could let the lease
        # expire.
        self._chores = Connection(config, f"{name}, chores", async_commit=True)
        self._rollups = MetricRollups(self._chores)
        self._contracts = PostgresHandlerContracts(self._chores)
        self.sessions = (self._turns, self._reads, self._side, self._chores)
        self.identity = Identity(self._side)
        self.owner_id = 0
        self.name = ""
        self._watched = _WatchedJobs()
        self._losses_at_read = 0

    def _disconnected(self) -> None:
        self.on_disconnect()

    async def register(self) -> None:
        await self.identity.lease()
        owner_id = int(self.identity.ids.new())
        params = {
            "owner_id": owner_id,
            "previous_id": self.owner_id,
            "host": socket.gethostname(),
            "pid": os.getpid(),
            "version": version("dagmaster"),
        }
        await self._side.fetch(_SQL["register"], params)
        # Not before: if the statement fails, the next try has to find the row with the request to drain.
        self.owner_id, self.name = owner_id, f"orchestrator {owner_id}"
        set_process_field("owner_id", str(owner_id))
        await self._side.listen("dagmaster_jobs", self.on_jobs)
        await self._side.listen(f"dagmaster_owner_{self.owner_id}", self.on_notification)
        await self._side.listen(_WATCH_CHANNEL, self._watched.on_announcement)

    async def heartbeat(self, counters: Mapping[str, JsonValue]) -> bool:
        params = {"owner_id": self.owner_id, "counters": json.dumps(counters), **self._leases}
        row = await self._side.row(_SQL["heartbeat"], params)
        if row is None:
            raise OwnershipLost(
                "the lease expired before this heartbeat; other orchestrators may have claimed the jobs"
            )
        await self.identity.renew()
        return bool(row["is_draining"])

    @property
    def clock(self) -> Clock:
        return self.identity.clock

    @property
    def ids(self) -> Snowflakes:
        return self.identity.ids

    # ── Owning ──

    async def claim(self, limit: int, queue: str | None = None) -> list[ClaimedJob]:
        params = {"owner_id": self.owner_id, "by": self.name, "limit": limit, "queue": queue, **self._leases}
        return await self._load_rows(await self._turns.fetch(_SQL["claim"], params))

    async def claim_job(self, job_id: str) -> list[ClaimedJob]:
        """Claim one unowned job."""
        params = {"owner_id": self.owner_id, "by": self.name, "job_id": int(job_id), **self._leases}
        return await self._load_rows(await self._turns.fetch(_SQL["claim_job"], params))

    async def load_owned(self, job_ids: Collection[str] | None = None) -> list[ClaimedJob]:
        numbers = None if job_ids is None else [int(job_id) for job_id in job_ids]
        return await self._load_rows(
            await self._turns.fetch(_SQL["load_owned"], {"owner_id": self.owner_id, "job_ids": numbers})
        )

    async def owned_job_ids(self) -> set[str]:
        row = await self._side.row(_SQL["owned_job_ids"], {"owner_id": self.owner_id})
        return split_ids(None if row is None else row["ids"])

    async def reclaim(self) -> list[str]:
        rows = await self._side.fetch(_SQL["reclaim"], {"owner_id": self.owner_id, **self._leases})
        return [str(job_id) for job_id in sorted(row["id"] for row in rows)]

    async def mark_lost_tasks(self) -> list[str]:
        params: dict[str, Any] = {"owner_id": self.owner_id, **self._leases}
        dead = [row["worker_id"] for row in await self._side.fetch(_SQL["expired_workers"], params)]
        if not dead:
            return []
        row = await self._side.row(_SQL["mark_lost_tasks"], {**params, "worker_ids": dead})
        return [] if row is None else [str(job_id) for job_id in row["job_ids"] or ()]

    async def release_stopped(self) -> int:
        row = await self._turns.row(_SQL["release_stopped"], {})
        return 0 if row is None else int(row["released"])

    async def roll_up_metrics(self) -> int:
        return await self._rollups.roll_up(self.owner_id)

    async def prune_metrics(self, retention_seconds: float) -> int:
        return await self._rollups.prune(self.owner_id, retention_seconds)

    async def collect_handlers(self, older_than_seconds: float) -> int:
        """Remove a batch of contracts of callers whose workers are gone; return how many."""
        return await self._contracts.collect(older_than_seconds)

    async def release_jobs(self) -> int:
        row = await self._turns.row(_SQL["release_jobs"], {"owner_id": self.owner_id})
        return 0 if row is None else int(row["released"])

    async def deregister(self) -> None:
        try:
            await self._turns.fetch(_SQL["deregister"], {"owner_id": self.owner_id})
            await self.identity.release()
        finally:
            await self.close()

    async def close(self) -> None:
        for session in self.sessions:
            await session.close()

    # ── Turns ──

    async def read_results(
        self, limit: int, quarantined: Collection[str] = (), *, after: int = 0
    ) -> list[TaskResult]:
        params = {
            "owner_id": self.owner_id,
            "limit": limit,
            "quarantined": list(map(int, quarantined)),
            "after": after,
        }
        self._losses_at_read = self._turns.losses
        return [_result(row) for row in await self._reads.fetch(_SQL["read_results"], params)]

    async def read_commands(self, limit: int | None, quarantined: Collection[str] = ()) -> list[Command]:
        params = {"owner_id": self.owner_id, "limit": limit, "quarantined": list(map(int, quarantined))}
        return [_command(row) for row in await self._reads.fetch(_SQL["read_commands"], params)]

    async def commit_turns(self, turns: Sequence[TurnCommit], now: float) -> set[str]:
        if not turns:
            return set()
        query, params = statement_of(
            turns, owner_id=self.owner_id, by=self.name, now=now, watched=self._watched
        )
        # Results are not flushed when they are read: a server that crashed since may have lost them. Notified
        # ones are compared with those that are stored.
        has_read = any(turn.has_read_results for turn in turns)
        row = await self._turns.row(query, params, losses=self._losses_at_read if has_read else None)
        return split_ids(None if row is None else row["written"])

    # ── Values ──

    async def load_outputs(self, job_id: str, node_ids: Collection[str]) -> Mapping[str, JsonValue]:
        rows = await self._turns.fetch(
            _SQL["load_outputs"], {"job_id": int(job_id), "node_ids": list(node_ids)}
        )
        return {
            node_id: read_json(output) if ref is None else await self.resolve_value(JsonText(output, ref))
            for node_id, output, ref in rows
        }

    async def load(self, job_id: str, keys: Collection[ValueKey]) -> Mapping[ValueKey, JsonValue]:
        values: dict[ValueKey, Any] = {}
        number = int(job_id)
        sources = [key.node for key in keys if key.kind is ValueKind.ITEMS]
        if sources:
            for row in await self._turns.fetch(
                _SQL["load_fan_out_sources"], {"job_id": number, "node_ids": sources}
            ):
                if row["source"] is not None:
                    values[ValueKey(ValueKind.ITEMS, row["node_id"])] = json.loads(row["source"])
        for key in keys:
            if key.kind is ValueKind.OUTPUTS:
                values[key] = await self._outputs_below(number, key.node)
        return values

    async def blob_bytes(
        self, job_id: str, node_ids: Collection[str], reported: Collection[JsonText] = ()
    ) -> int:
        params = {"job_id": int(job_id), "node_ids": list(node_ids)}
        rows = await self._turns.fetch(_SQL["output_refs"], params) if node_ids else ()
        return await sum_sizes(
            self._blobs, [*(row["output_ref"] for row in rows), *(one.ref for one in reported)]
        )

    async def _outputs_below(self, job_id: int, fan_id: str) -> list[JsonValue]:
        params = {"job_id": job_id, "low": f"{fan_id}__", "high": f"{fan_id}_{_AFTER_UNDERSCORE}"}
        below: dict[str, list[asyncpg.Record]] = {}
        for row in await self._turns.fetch(_SQL["load_fan_out_outputs"], params):
            below.setdefault(row["parent_node_id"], []).append(row)

        async def outputs(parent: str) -> list[JsonValue]:
            rows = sorted(below.get(parent, ()), key=lambda row: int(row["fan_out_index"]))
            values: list[JsonValue] = []
            for row in rows:
                # An inner fan-out first: it may complete in this turn, and its row does not show it yet.
                if row["source_count"] is not None:
                    values.append(await outputs(row["node_id"]))
                elif row["status"] != NodeStatus.COMPLETED:
                    values.append(None)
                else:
                    values.append(await self.resolve_value(JsonText(row["output"], row["output_ref"])))
            return values

        return await outputs(fan_id)


def _result(row: asyncpg.Record) -> TaskResult:
    number, job_id, node_id, attempt, status, permanent, output, output_ref, error, *rest = row
    value = JsonText(output, output_ref) if output is not None or output_ref is not None else None
    return TaskResult(
        number, str(job_id), node_id, attempt, ATTEMPT_STATUSES[status], permanent, value, error, *rest
    )


def _command(row: asyncpg.Record) -> Command:
    number, job_id, kind, body, sent_by, at = row
    return Command(number, str(job_id), kind, json.loads(body), sent_by, at)


class _WatchedJobs:
    """The jobs that have readers, as feeds announce them: their owner notifies of every turn.

    Each is forgotten some time after its last announcement.
    """

    def __init__(self) -> None:
        self._until: dict[object, float] = {}

    def on_announcement(self, payload: str) -> None:
        """Remember the jobs of an announcement: ids, separated by commas."""
        now = time.monotonic()
        self._until = {job_id: until for job_id, until in self._until.items() if until > now}
        self._until |= dict.fromkeys(payload.split(","), now + WATCH_SECONDS)

    def __contains__(self, job_id: object) -> bool:
        until = self._until.get(job_id)
        return until is not None and until > time.monotonic()
