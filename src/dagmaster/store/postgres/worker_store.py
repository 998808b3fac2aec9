"""The worker's door to PostgreSQL.

Claims, reports and checkpoints do not wait for the disk: losing one in a crash of the database repeats work, which
at-least-once allows; and the next turn's commit makes all before it durable.
"""

from __future__ import annotations

import asyncio
import json
import os
import socket
import time
from importlib.metadata import version
from typing import TYPE_CHECKING, Any, Final

from dagmaster.errors import OwnershipLost
from dagmaster.ports.task_source import ClaimedTask
from dagmaster.store.postgres.connection import Connection
from dagmaster.store.postgres.machine_id_lease import Identity
from dagmaster.store.postgres.named_queries import compiled, ids_in, of_one_row, parts, queries
from dagmaster.store.result_notifications import fits_notification

if TYPE_CHECKING:
    from collections.abc import Callable, Collection, Mapping, Sequence

    from dagmaster.ports.database_config import DatabaseConfig
    from dagmaster.ports.task_journal import CheckpointWrite, LogChunk
    from dagmaster.ports.task_ledger import TaskReport

_SQL = queries("worker")
_REPORT_ONE: Final = compiled("worker.report", of_one_row(parts("worker")["report"]))
_REPORT: Final = (
    "task_ids", "tokens", "statuses", "permanents", "outputs", "output_refs", "errors", "metrics", "versions",
)  # fmt: skip
RECONCILE_SECONDS: Final = 5.0
RECONCILE_EVERY_SECONDS: Final = 60.0
CHUNKS_AT_ONCE: Final = 64
SEEN_PAST: Final = 1_000
"""A claim looks at so many tasks more than it wants, to find what is not for handlers that are full."""

LOOK_SECONDS: Final = 1.0
"""A worker of every queue looks which queues have tasks so often, besides what it hears."""


class PostgresWorkerStore:
    """Tasks in PostgreSQL. Claims, reports and all else have a connection each: none of them waits for another."""

    def __init__(self, address: DatabaseConfig) -> None:
        self.wakeup = asyncio.Event()
        self.stops = asyncio.Event()
        self.on_disconnect: Callable[[], None] = lambda: None
        name = "dagmaster worker"
        self._tasks = Connection(address, name, async_commit=True, lost=self._lost)
        self._reports = Connection(address, f"{name}, reports", async_commit=True, lost=self._lost)
        self._notes = Connection(address, f"{name}, notes", async_commit=True, lost=self._lost)
        self._side = Connection(address, f"{name}, side", async_commit=True, listens=True, lost=self._lost)
        self.sessions = (self._tasks, self._reports, self._notes, self._side)
        self.identity = Identity(self._side)
        self.worker_id = 0
        self._queues: list[str] = []
        self._heard: set[str] = set()
        self._look_at = 0.0
        self._losses = 0
        self._reconcile_at = self.identity.clock.now() + RECONCILE_EVERY_SECONDS

    def _lost(self) -> None:
        self.on_disconnect()

    async def register(
        self, queues: Sequence[str], concurrency: int, handlers: Mapping[str, str] | None = None
    ) -> None:
        """Be known, as alive."""
        await self.identity.lease()
        self.worker_id = int(self.identity.ids.new())
        self._queues = list(queues)
        given = {
            "worker_id": self.worker_id, "host": socket.gethostname(), "pid": os.getpid(),
            "version": version("dagmaster"), "queues": self._queues, "concurrency": concurrency,
            "handlers": json.dumps(dict(handlers or {})),
        }  # fmt: skip
        await self._side.fetch(_SQL["register"], given)
        served = set(self._queues)

        def heard(queue: str) -> None:
            if queue in served or (not served and not queue.startswith("run:")):
                self._heard.add(queue)
                self.wakeup.set()

        await self._side.listen("dagmaster_tasks", heard)
        await self._side.listen(f"dagmaster_worker_{self.worker_id}", lambda _payload: self.stops.set())

    async def heartbeat(self, held: Collection[str], counters: Mapping[str, Any]) -> set[str] | None:
        """Stay alive; give the tasks to stop."""
        given = {
            "worker_id": self.worker_id, "task_ids": [int(each) for each in held], "counters": json.dumps(counters),
        }  # fmt: skip
        row = await self._side.row(_SQL["heartbeat"], given)
        if row is None:
            return None
        try:
            await self.identity.renew()
        except OwnershipLost:
            return None
        await self._reconcile(given)
        return ids_in(row["to_stop"])

    async def _reconcile(self, given: Mapping[str, Any]) -> None:
        """Release tasks that the database says this worker holds and that it does not know, after a lost connection."""
        losses = self._tasks.losses + self._reports.losses
        if losses > self._losses:
            self._losses = losses
            # A claim that is under way now is known by then.
            self._reconcile_at = self.identity.clock.now() + RECONCILE_SECONDS
        elif self.identity.clock.now() >= self._reconcile_at:
            self._reconcile_at = self.identity.clock.now() + RECONCILE_EVERY_SECONDS
            await self._side.fetch(_SQL["reconcile"], {**given, "seconds": RECONCILE_SECONDS})

    async def claim(self, limit: int, process_bound: Collection[str] = (), process_slots: int = 0) -> list[ClaimedTask]:
        """Hold tasks; of those whose handler is one of `process_bound`, so many at most."""
        queues = self._queues or await self._any_queues()
        if not queues:
            return []
        token = int(self.identity.ids.new())
        given = {
            "queues": queues, "most": limit, "process_bound": list(process_bound), "process_slots": process_slots,
            "seen": limit + SEEN_PAST, "worker_id": self.worker_id, "token": token,
        }  # fmt: skip
        return [
            ClaimedTask(str(task_id), token, str(job_id), *rest)
            for task_id, job_id, *rest in await self._tasks.fetch(_SQL["claim"], given)
        ]

    async def other_worker_has_handler(self, task_id: str) -> bool:
        """Return whether another could run this task."""
        row = await self._side.row(
            _SQL["other_worker_has_handler"], {"task_id": int(task_id), "worker_id": self.worker_id}
        )
        return row is not None and bool(row["is_served"])

    def rescan_queues(self) -> None:
        """Let the next claim look at every queue."""
        self._heard.clear()

    async def _any_queues(self) -> list[str]:
        """Return the queues to claim from: those that were heard of. Who heard of none looks which have tasks."""
        if not self._heard or time.monotonic() > self._look_at:
            self._look_at = time.monotonic() + LOOK_SECONDS
            self._heard.update([row["queue"] for row in await self._tasks.fetch(_SQL["queues_with_tasks"], {})])
        return sorted(self._heard)

    async def report(self, reports: Sequence[TaskReport]) -> set[str]:
        """Report tasks."""
        rows = [
            (
                int(r.task_id), r.token, r.status, r.permanent, None if r.output is None else r.output.text,
                None if r.output is None else r.output.ref, r.error, r.metrics, r.handler_version,
            )
            # In one order, so that nobody who locks several waits in a ring.
            for r in sorted(reports, key=lambda each: int(each.task_id))
        ]  # fmt: skip
        query, given = _SQL["report"], _columns(_REPORT, rows)
        if len(rows) == 1:
            query, given = _REPORT_ONE, dict(zip(_REPORT, rows[0], strict=True))
        row = await self._reports.row(
            query, {"worker_id": self.worker_id, "pushes": fits_notification(reports), **given}
        )
        return ids_in(None if row is None else row["task_ids"])

    async def release(self, reports: Sequence[TaskReport]) -> set[str]:
        """Let go of tasks that never began."""
        rows = sorted((int(each.task_id), each.token) for each in reports)
        given = {"worker_id": self.worker_id, **_columns(("task_ids", "tokens"), rows)}
        row = await self._reports.row(_SQL["release"], given)
        return ids_in(None if row is None else row["task_ids"])

    async def append_logs(self, chunks: Sequence[LogChunk]) -> None:
        """Keep pieces of logs."""
        names = ("task_ids", "tokens", "chunks", "texts")
        rows = [(int(each.task_id), each.token, each.chunk, each.text) for each in chunks]
        # A chunk has up to 64 KiB: some at a time.
        for start in range(0, len(rows), CHUNKS_AT_ONCE):
            part = rows[start : start + CHUNKS_AT_ONCE]
            await self._notes.fetch(_SQL["append_logs"], _columns(names, part))

    async def checkpoint(self, checkpoints: Sequence[CheckpointWrite]) -> None:
        """Keep the newest checkpoint of each task."""
        # One row each: a statement may not change a row twice.
        newest = {each.task_id: each for each in checkpoints}.values()
        rows = [(int(c.task_id), c.token, c.phase, c.data, json.dumps(c.artifacts)) for c in newest]
        names = ("task_ids", "tokens", "phases", "data", "artifacts")
        await self._notes.fetch(_SQL["checkpoint"], _columns(names, rows))

    async def progress(self, progress: Mapping[str, tuple[int, str]]) -> None:
        """Keep how far tasks are."""
        rows = sorted((int(task_id), token, text) for task_id, (token, text) in progress.items())
        await self._notes.fetch(_SQL["progress"], _columns(("task_ids", "tokens", "progress"), rows))

    async def deregister(self) -> None:
        """Hand back what is held."""
        try:
            # Stopped last: whoever dies in between is given up when its lease is over.
            given = {"worker_id": self.worker_id, "task_ids": [], "seconds": 0.0}
            await self._tasks.fetch(_SQL["reconcile"], given)
            await self._tasks.fetch(_SQL["deregister"], given)
            await self.identity.release()
        finally:
            await self.close()

    async def close(self) -> None:
        """Close the connections."""
        await asyncio.gather(*(session.close() for session in self.sessions))


def _columns(names: Sequence[str], rows: Sequence[tuple[Any, ...]]) -> dict[str, Any]:
    columns = list(map(list, zip(*rows, strict=True))) or [[] for _ in names]
    return dict(zip(names, columns, strict=True))
