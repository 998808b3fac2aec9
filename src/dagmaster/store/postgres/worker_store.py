"""The worker's store on PostgreSQL.

Claims, reports and checkpoints are committed asynchronously: losing one in a crash of the database repeats
work, which at-least-once allows; and the commit of the next turn makes all earlier ones durable.
"""

from __future__ import annotations

import asyncio
import contextlib
import json
import os
import socket
import time
from functools import lru_cache
from importlib.metadata import version
from typing import TYPE_CHECKING, Any, Final

from dagmaster.engine.status import Isolation
from dagmaster.errors import OwnershipLost
from dagmaster.ports.run_queues import is_served
from dagmaster.ports.task_ledger import EXCLUSIVE_BUSY_SECONDS, DrainRequest, HeartbeatAnswer
from dagmaster.ports.task_source import ClaimedTask
from dagmaster.store.foreign_handlers import ForeignHandlers
from dagmaster.store.postgres.added_nodes import PostgresTaskNodes, report_with_nodes
from dagmaster.store.postgres.connection import Connection
from dagmaster.store.postgres.machine_id_lease import Identity
from dagmaster.store.postgres.named_queries import (
    array_parameters,
    compile_query,
    encode_texts,
    queries,
    split_ids,
    value_parameters,
)
from dagmaster.store.postgres.worker_role import WorkerRole, claim_text
from dagmaster.store.result_notifications import fits_notification
from dagmaster.telemetry.logs import set_process_field

if TYPE_CHECKING:
    from collections.abc import Callable, Collection, Mapping, Sequence

    from dagmaster.json_types import JsonObject, JsonValue
    from dagmaster.ports.database_config import DatabaseConfig
    from dagmaster.ports.handler_definitions import HandlerDefinition
    from dagmaster.ports.task_journal import CheckpointWrite, LogChunk
    from dagmaster.ports.task_ledger import TaskReport
    from dagmaster.store.postgres.named_queries import Query
    from dagmaster.store.postgres.tenant_session import TenantSession

_SQL = queries("worker")
_HANDLERS = queries("handlers")


def claim_query(ready: str, condition: str | None = None) -> Query:
    """Return the statement that claims the tasks of a part of claim.sql, if a condition of it is met."""
    return compile_query(f"worker.claim, {ready}", claim_text(ready, condition))


_CLAIM: Final = claim_query("ready")
_CLAIM_EXCLUSIVE: Final = claim_query("ready_exclusive")
_REPORT_ONE: Final = _SQL["report_one"]
_ISOLATIONS: Final = tuple(Isolation)
RECONCILE_SECONDS: Final = 5.0
RECONCILE_EVERY_SECONDS: Final = 60.0
CHUNKS_AT_ONCE: Final = 64
SCAN_AHEAD: Final = 1_000
"""How many tasks more than its limit a claim scans, to find some whose handlers have a free slot."""

RESCAN_SECONDS: Final = 1.0
"""How often a worker of all queues reads which queues have tasks, besides notifications."""


class WorkerConnections:
    """Claims, reports, the journal and heartbeats have a connection each, so that none waits."""

    def __init__(
        self,
        config: DatabaseConfig,
        name: str = "dagmaster worker",
        on_disconnect: Callable[[], None] | None = None,
    ) -> None:
        def connect(use: str, *, listens: bool = False) -> Connection:
            return Connection(
                config, f"{name}{use}", async_commit=True, listens=listens, on_disconnect=on_disconnect
            )

        self.tasks, self.reports, self.journal = connect(""), connect(", reports"), connect(", journal")
        self.side = connect(", side", listens=True)
        self.all = (self.tasks, self.reports, self.journal, self.side)
        self.identity = Identity(self.side)

    def for_tenant(self, tenant: str) -> TenantConnections:
        """Return the same connections on behalf of a tenant."""
        sessions = [one.for_tenant(tenant) for one in self.all]
        return TenantConnections(self, *sessions)


class TenantConnections:
    """The connections of workers on behalf of one tenant."""

    def __init__(
        self,
        connections: WorkerConnections,
        tasks: TenantSession,
        reports: TenantSession,
        journal: TenantSession,
        side: TenantSession,
    ) -> None:
        self.tasks, self.reports, self.journal, self.side = tasks, reports, journal, side
        self.all, self.identity = connections.all, connections.identity


class PostgresWorkerStore(PostgresTaskNodes):
    """Tasks in PostgreSQL."""

    def __init__(
        self, config: DatabaseConfig, connections: WorkerConnections | TenantConnections | None = None
    ) -> None:
        self.wakeup = asyncio.Event()
        self.stops = asyncio.Event()
        self.on_disconnect: Callable[[], None] = lambda: None
        connections = connections or WorkerConnections(config, on_disconnect=self._disconnected)
        self._tasks, self._reports, self._journal = (
            connections.tasks,
            connections.reports,
            connections.journal,
        )
        self._side = connections.side
        self._listener = connections.all[-1]
        self.sessions = connections.all
        self.identity = connections.identity
        self.worker_id = 0
        self._role = WorkerRole()
        self._queues: list[str] = []
        self._notified_queues: set[str] = set()
        self._rescan_at = 0.0
        self._foreign = ForeignHandlers(time.monotonic)
        self._losses = 0
        self._reconcile_at = self.identity.clock.now() + RECONCILE_EVERY_SECONDS

    def _disconnected(self) -> None:
        self.on_disconnect()

    async def register(
        self, queues: Sequence[str], concurrency: int, handlers: Mapping[str, str] | None = None
    ) -> None:
        await self._choose_rights()
        await self.identity.lease()
        worker_id = int(self.identity.ids.new())
        self._queues = list(queues)
        params = {
            "worker_id": worker_id, "host": socket.gethostname(), "pid": os.getpid(),
            "version": version("dagmaster"), "queues": self._queues, "concurrency": concurrency,
            "handlers": json.dumps(dict(handlers or {})), "registered_by": None,
            "secret_digest": self._role.digest, "previous_id": self.worker_id, "offered": None,
        }  # fmt: skip
        await self._side.fetch(_SQL["register"], params)
        # Not before: if the statement fails, the next try has to find the row with the request to drain.
        self.worker_id = self._role.worker_id = worker_id
        set_process_field("worker_id", str(worker_id))
        served = set(self._queues)

        def on_tasks(queue: str) -> None:
            if is_served(queue, served):
                self._notified_queues.add(queue)
                self.wakeup.set()

        await self._listener.listen("dagmaster_tasks", on_tasks)
        await self._listener.listen(f"dagmaster_worker_{self.worker_id}", lambda _payload: self.stops.set())

    async def _choose_rights(self) -> None:
        """Send statements if this user may change the tables; else call the functions of its role."""
        # With a role, this question would be sent as the call of a function.
        self._listener.role = None
        row = await self._side.row(_SQL["has_table_rights"], {})
        role = None if row is None or row["is_direct"] else self._role
        for session in self.sessions:
            session.role = role

    async def heartbeat(
        self, held: Collection[str], counters: Mapping[str, JsonValue]
    ) -> HeartbeatAnswer | None:
        answer = await self._renew(held, json.dumps(counters))
        if answer is not None:
            await self._reconcile(held)
        return answer

    async def _renew(self, held: Collection[str], counters: str | None = None) -> HeartbeatAnswer | None:
        """Renew the lease; without counters, leave the last heartbeat's."""
        params = {
            "worker_id": self.worker_id, "task_ids": list(map(int, held)), "counters": counters,
            "queues": self._queues, "busy_seconds": EXCLUSIVE_BUSY_SECONDS,
        }  # fmt: skip
        row = await self._side.row(_SQL["heartbeat"], params)
        if row is None:
            return None
        if not await self._renew_identity():
            return None
        drain = DrainRequest(row["drain_seconds_left"]) if row["is_draining"] else None
        return HeartbeatAnswer(split_ids(row["to_stop"]), row["has_exclusive"], drain)

    async def _renew_identity(self) -> bool:
        """Renew the lease of the ids; return whether it had not expired."""
        with contextlib.suppress(OwnershipLost):
            await self.identity.renew()
            return True
        return False

    async def publish_handlers(self, definitions: Sequence[HandlerDefinition]) -> None:
        by_key = {(each.name, each.version): each for each in definitions}
        rows = [(each.name, each.version, each.content_hash) for each in by_key.values()]
        missing = await self._side.fetch(
            _HANDLERS["unpublished_handlers"], _columns(("names", "versions", "hashes"), rows)
        )
        changed = [by_key[row["name"], row["version"]] for row in missing]
        if changed:
            names = ("names", "versions", "definitions", "hashes")
            ordered = sorted((each.name, each.version, each.document, each.content_hash) for each in changed)
            await self._side.fetch(
                _HANDLERS["publish_handlers"], {"worker_id": self.worker_id, **_columns(names, ordered)}
            )

    async def _reconcile(self, held: Collection[str]) -> None:
        """Release tasks that are claimed in the database and unknown here, after a lost connection."""
        losses = self._tasks.losses + self._reports.losses
        if losses > self._losses:
            self._losses = losses
            # Claims that are in flight now are known by then.
            self._reconcile_at = self.identity.clock.now() + RECONCILE_SECONDS
        elif self.identity.clock.now() >= self._reconcile_at:
            self._reconcile_at = self.identity.clock.now() + RECONCILE_EVERY_SECONDS
            params = {
                "worker_id": self.worker_id,
                "task_ids": list(map(int, held)),
                "seconds": RECONCILE_SECONDS,
            }
            await self._side.fetch(_SQL["reconcile"], params)

    async def claim(
        self, limit: int, process_bound: Collection[str] = (), process_slots: int | None = None
    ) -> list[ClaimedTask]:
        queues = self._queues or await self._any_queues()
        if not queues:
            return []
        return await self._claim(_CLAIM, {
            "queues": queues, "limit": limit, "other_slots": limit, "process_slots": process_slots or 0,
            "process_bound": _encode_names(frozenset(process_bound)), "isolates": process_slots is not None,
            "scan_limit": limit + SCAN_AHEAD, "foreign_handlers": _encode_names(self._foreign.names()),
        })  # fmt: skip

    async def claim_exclusive(self) -> ClaimedTask | None:
        return next(iter(await self._claim(_CLAIM_EXCLUSIVE, {"queues": self._queues})), None)

    async def _claim(
        self, query: Query, params: Mapping[str, Any], *, lock: Query | None = None
    ) -> list[ClaimedTask]:
        token = int(self.identity.ids.new())
        params = {**params, "worker_id": self.worker_id, "token": token}
        if lock is None:
            rows = await self._tasks.fetch(query, params)
        else:
            rows = await self._tasks.execute_in_transaction([(lock, params), (query, params)])
        return [_claimed_task(token, *row) for row in rows]

    async def other_worker_has_handler(self, task_id: str, *, by_package: bool = True) -> bool:
        params = {"task_id": int(task_id), "worker_id": self.worker_id, "by_package": by_package}
        row = await self._side.row(_SQL["other_worker_has_handler"], params)
        if row is not None:
            self._foreign.add(row["handler"])
        return row is not None

    def rescan_queues(self) -> None:
        self._notified_queues.clear()

    async def _any_queues(self) -> list[str]:
        """Return the queues to claim from: notified ones, and now and then all that have tasks."""
        if not self._notified_queues or time.monotonic() > self._rescan_at:
            self._rescan_at = time.monotonic() + RESCAN_SECONDS
            self._notified_queues.update(
                [row["queue"] for row in await self._tasks.fetch(_SQL["queues_with_tasks"], {})]
            )
        return sorted(self._notified_queues)

    async def report(self, reports: Sequence[TaskReport]) -> set[str]:
        growing = [report for report in reports if report.added_rows is not None]
        if growing:
            others = [report for report in reports if report.added_rows is None]
            accepted = await self.report(others) if others else set()
            for report in growing:
                rows = await report_with_nodes(self._reports, report, self._report_statement([report]))
                accepted |= split_ids(rows[0]["task_ids"]) if rows else set()
            return accepted
        if not reports:
            return set()
        query, params = self._report_statement(reports)
        row = await self._reports.row(query, params)
        return split_ids(None if row is None else row["task_ids"])

    def _report_statement(self, reports: Sequence[TaskReport]) -> tuple[Query, JsonObject]:
        # Rows are locked in the same order everywhere, so that no two statements deadlock.
        rows = [_report_row(report) for report in sorted(reports, key=lambda report: int(report.task_id))]
        params: JsonObject = {"worker_id": self.worker_id, "notifies_results": fits_notification(reports)}
        if len(rows) == 1:
            value_parameters("report", rows, params)
            return _REPORT_ONE, params
        array_parameters("report", rows, params)
        return _SQL["report"], params

    async def release(self, reports: Sequence[TaskReport]) -> set[str]:
        rows = sorted((int(report.task_id), report.token) for report in reports)
        params = {"worker_id": self.worker_id, **_columns(("task_ids", "tokens"), rows)}
        row = await self._reports.row(_SQL["release"], params)
        return split_ids(None if row is None else row["task_ids"])

    async def mark_started(self, running_seconds: Mapping[str, tuple[int, float]]) -> None:
        rows = sorted((int(task_id), token, seconds) for task_id, (token, seconds) in running_seconds.items())
        await self._write(_SQL["mark_started"], ("task_ids", "tokens", "running_seconds"), rows)

    async def append_logs(self, chunks: Sequence[LogChunk]) -> None:
        names = ("task_ids", "tokens", "chunks", "texts")
        rows = [(int(chunk.task_id), chunk.token, chunk.chunk, chunk.text) for chunk in chunks]
        # A chunk has up to 64 KiB: limit the size of a statement.
        for start in range(0, len(rows), CHUNKS_AT_ONCE):
            part = rows[start : start + CHUNKS_AT_ONCE]
            await self._write(_SQL["append_logs"], names, part)

    async def checkpoint(self, checkpoints: Sequence[CheckpointWrite]) -> None:
        # One row each: a statement cannot change a row twice.
        newest = {checkpoint.task_id: checkpoint for checkpoint in checkpoints}.values()
        rows = [(int(c.task_id), c.token, c.phase, c.data, json.dumps(c.artifacts)) for c in newest]
        names = ("task_ids", "tokens", "phases", "data", "artifacts")
        await self._write(_SQL["checkpoint"], names, rows)

    async def progress(self, progress: Mapping[str, tuple[int, str]]) -> None:
        rows = sorted((int(task_id), token, text) for task_id, (token, text) in progress.items())
        await self._write(_SQL["progress"], ("task_ids", "tokens", "progress"), rows)

    async def _write(self, query: Query, names: Sequence[str], rows: Sequence[tuple[JsonValue, ...]]) -> None:
        await self._journal.fetch(query, {"worker_id": self.worker_id, **_columns(names, rows)})

    async def deregister(self) -> None:
        try:
            await self.release_all()
            await self.identity.release()
        finally:
            await self.close()

    async def release_all(self) -> None:
        """Release all claimed tasks; then the worker is no longer registered."""
        # Deregistered last: a worker that dies in between is expired after its lease.
        params = {"worker_id": self.worker_id, "task_ids": [], "seconds": 0.0}
        await self._tasks.fetch(_SQL["reconcile"], params)
        await self._tasks.fetch(_SQL["deregister"], params)

    async def close(self) -> None:
        await asyncio.gather(*(session.close() for session in self.sessions))


def _claimed_task(
    token: int, queue: str, isolation: int, task_id: int, job_id: int, *rest: Any
) -> ClaimedTask:
    return ClaimedTask(
        str(task_id), str(job_id), *rest, token=token, queue=queue, isolation=_ISOLATIONS[isolation]
    )


@lru_cache(maxsize=4)
def _encode_names(names: frozenset[str]) -> str | None:
    """Return the names of handlers as an array.

    Once, and not for each claim: a worker has about a hundred.
    """
    return encode_texts(sorted(names))


def _report_row(report: TaskReport) -> JsonObject:
    output = report.output
    return {
        "task_id": int(report.task_id),
        "token": report.token,
        "status": report.status,
        "permanent": report.permanent,
        "output": None if output is None else output.text,
        "output_ref": None if output is None else output.ref,
        "error": report.error,
        "metrics": report.metrics,
        "handler_version": report.handler_version,
        "running_seconds": report.running_seconds,
    }


def _columns(names: Sequence[str], rows: Sequence[tuple[JsonValue, ...]]) -> JsonObject:
    columns = list(map(list, zip(*rows, strict=True))) or [[] for _ in names]
    return dict(zip(names, columns, strict=True))
