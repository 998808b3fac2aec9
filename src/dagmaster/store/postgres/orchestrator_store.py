"""The orchestrator's door to PostgreSQL."""

from __future__ import annotations

import json
import os
import socket
from importlib.metadata import version
from typing import TYPE_CHECKING, Any

from dagmaster.errors import OwnershipLost
from dagmaster.ports.json_text import JsonText
from dagmaster.ports.node_values import ValueKey, ValueKind
from dagmaster.ports.turn_records import Command, TaskResult
from dagmaster.store.postgres.connection import Connection
from dagmaster.store.postgres.machine_id_lease import Identity
from dagmaster.store.postgres.named_queries import ids_in, queries
from dagmaster.store.postgres.reusable_results import PostgresReusableResults
from dagmaster.store.postgres.turn_statement import statement_of
from dagmaster.store.result_notifications import NotificationInbox

if TYPE_CHECKING:
    from collections.abc import Collection, Mapping, Sequence

    import asyncpg

    from dagmaster.ports.clock import Clock
    from dagmaster.ports.database_config import DatabaseConfig
    from dagmaster.ports.job_records import ClaimedJob
    from dagmaster.ports.output_blobs import OutputBlobs
    from dagmaster.ports.turn_records import TurnCommit
    from dagmaster.snowflakes import Snowflakes

_SQL = queries("orchestrator")
_MORE = "`"  # the character after '_': the ids of a fan-out's children lie between fan__ and fan_`


class PostgresOrchestratorStore(NotificationInbox, PostgresReusableResults):
    """Jobs in PostgreSQL. Turns, what is read for the next one, and heartbeats have a connection each."""

    def __init__(
        self,
        address: DatabaseConfig,
        *,
        blobs: OutputBlobs,
        lease_seconds: float = 15.0,
        worker_lease_seconds: float = 6.0,
    ) -> None:
        NotificationInbox.__init__(self)
        name = "dagmaster orchestrator"
        self._turns = Connection(address, name, lost=self._lost)
        PostgresReusableResults.__init__(
            self, self._turns, blobs, lease_seconds=lease_seconds, worker_lease_seconds=worker_lease_seconds
        )
        self._reads = Connection(address, f"{name}, reads", lost=self._lost)
        self._side = Connection(address, f"{name}, side", async_commit=True, listens=True, lost=self._lost)
        self.sessions = (self._turns, self._reads, self._side)
        self.identity = Identity(self._side)
        self.owner_id = 0
        self.name = ""

    def _lost(self) -> None:
        self.on_disconnect()

    async def register(self) -> None:
        """Be known, as alive."""
        await self.identity.lease()
        self.owner_id = int(self.identity.ids.new())
        self.name = f"orchestrator {self.owner_id}"
        given = {
            "owner_id": self.owner_id,
            "host": socket.gethostname(),
            "pid": os.getpid(),
            "version": version("dagmaster"),
        }
        await self._side.fetch(_SQL["register"], given)
        await self._side.listen("dagmaster_jobs", self.hear_of_jobs)
        await self._side.listen(f"dagmaster_owner_{self.owner_id}", self.hear)

    async def heartbeat(self, counters: Mapping[str, Any]) -> None:
        """Stay alive."""
        given = {"owner_id": self.owner_id, "counters": json.dumps(counters), **self._leases}
        if await self._side.row(_SQL["heartbeat"], given) is None:
            raise OwnershipLost("others may have taken over: the heartbeat came too late")
        await self.identity.renew()

    @property
    def clock(self) -> Clock:
        """Return the database's time."""
        return self.identity.clock

    @property
    def ids(self) -> Snowflakes:
        """New ids."""
        return self.identity.ids

    # ── Owning ──

    async def claim(self, limit: int, queue: str | None = None) -> list[ClaimedJob]:
        """Own jobs that nobody owns."""
        given = {"owner_id": self.owner_id, "by": self.name, "most": limit, "queue": queue, **self._leases}
        return await self._load_rows(await self._turns.fetch(_SQL["claim"], given))

    async def load_owned(self, job_ids: Collection[str] | None = None) -> list[ClaimedJob]:
        """Load the jobs that are owned."""
        wanted = None if job_ids is None else [int(job_id) for job_id in job_ids]
        return await self._load_rows(
            await self._turns.fetch(_SQL["load_owned"], {"owner_id": self.owner_id, "job_ids": wanted})
        )

    async def owned_job_ids(self) -> set[str]:
        """Return the jobs that are owned."""
        row = await self._side.row(_SQL["owned_job_ids"], {"owner_id": self.owner_id})
        return ids_in(None if row is None else row["ids"])

    async def reclaim(self) -> int:
        """Let go of the jobs of dead orchestrators."""
        rows = await self._side.fetch(_SQL["reclaim"], {"owner_id": self.owner_id, **self._leases})
        return len(rows)

    async def mark_lost_tasks(self) -> int:
        """Report the tasks of dead workers as lost."""
        given: dict[str, Any] = {"owner_id": self.owner_id, **self._leases}
        dead = [row["worker_id"] for row in await self._side.fetch(_SQL["expired_workers"], given)]
        if not dead:
            return 0
        row = await self._side.row(_SQL["mark_lost_tasks"], {**given, "worker_ids": dead})
        return 0 if row is None else int(row["lost"])

    async def release_stopped(self) -> int:
        """Hand back the tasks that are to stop and that no worker holds."""
        row = await self._turns.row(_SQL["release_stopped"], {})
        return 0 if row is None else int(row["released"])

    async def deregister(self) -> None:
        """Release every job."""
        try:
            await self._turns.fetch(_SQL["deregister"], {"owner_id": self.owner_id})
            await self.identity.release()
        finally:
            await self.close()

    async def close(self) -> None:
        """Close the connections."""
        for session in self.sessions:
            await session.close()

    # ── Turns ──

    async def read_results(self, limit: int, resting: Collection[str] = (), *, after: int = 0) -> list[TaskResult]:
        """Read what was reported of this orchestrator's jobs."""
        rest = [int(job_id) for job_id in resting]
        given = {"owner_id": self.owner_id, "most": limit, "resting": rest, "after": after}
        return [_result(row) for row in await self._reads.fetch(_SQL["read_results"], given)]

    async def read_commands(self, limit: int, resting: Collection[str] = ()) -> list[Command]:
        """Read what was asked of this orchestrator's jobs."""
        given = {"owner_id": self.owner_id, "most": limit, "resting": [int(job_id) for job_id in resting]}
        return [_command(row) for row in await self._reads.fetch(_SQL["read_commands"], given)]

    async def commit_turns(self, turns: Sequence[TurnCommit], now: float) -> set[str]:
        """Write turns in one statement."""
        if not turns:
            return set()
        query, given = statement_of(turns, owner_id=self.owner_id, by=self.name, now=now)
        row = await self._turns.row(query, given)
        return ids_in(None if row is None else row["written"])

    # ── Values ──

    async def load(self, job_id: str, keys: Collection[ValueKey]) -> Mapping[ValueKey, Any]:
        """Load values, a statement for each kind."""
        found: dict[ValueKey, Any] = {}
        number = int(job_id)
        outputs = [key.node for key in keys if key.kind is ValueKind.OUTPUT]
        if outputs:
            for row in await self._turns.fetch(_SQL["load_outputs"], {"job_id": number, "node_ids": outputs}):
                found[ValueKey(ValueKind.OUTPUT, row["node_id"])] = await self.resolve_value(
                    JsonText(row["output"], row["output_ref"])
                )
        sources = [key.node for key in keys if key.kind is ValueKind.ITEMS]
        if sources:
            for row in await self._turns.fetch(_SQL["load_fan_out_sources"], {"job_id": number, "node_ids": sources}):
                if row["source"] is not None:
                    found[ValueKey(ValueKind.ITEMS, row["node_id"])] = json.loads(row["source"])
        for key in keys:
            if key.kind is ValueKind.OUTPUTS:
                found[key] = await self._outputs_below(number, key.node)
        return found

    async def _outputs_below(self, job_id: int, fan_id: str) -> list[Any]:
        given = {"job_id": job_id, "low": f"{fan_id}__", "high": f"{fan_id}_{_MORE}"}
        below: dict[str, list[asyncpg.Record]] = {}
        for row in await self._turns.fetch(_SQL["load_fan_out_outputs"], given):
            below.setdefault(row["parent_node_id"], []).append(row)

        async def outputs(parent: str) -> list[Any]:
            rows = sorted(below.get(parent, ()), key=lambda row: int(row["fan_out_index"]))
            values: list[Any] = []
            for row in rows:
                # An inner fan-out first: it may end in this very turn, and its row does not say so yet.
                if row["source_count"] is not None:
                    values.append(await outputs(row["node_id"]))
                elif row["status"] != "COMPLETED":
                    values.append(None)
                else:
                    values.append(await self.resolve_value(JsonText(row["output"], row["output_ref"])))
            return values

        return await outputs(fan_id)


def _result(row: asyncpg.Record) -> TaskResult:
    number, job_id, node_id, attempt, status, permanent, output, output_ref, error, *rest = row
    found = JsonText(output, output_ref) if output is not None or output_ref is not None else None
    return TaskResult(number, str(job_id), node_id, attempt, status, permanent, found, error, *rest)


def _command(row: asyncpg.Record) -> Command:
    number, job_id, kind, body, sent_by, at = row
    return Command(number, str(job_id), kind, json.loads(body), sent_by, at)
