"""The onlooker's door to PostgreSQL: jobs, their nodes, their trail and logs, and who is alive. It writes nothing."""

from __future__ import annotations

import json
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Final, NamedTuple

from dagmaster.geo.footprints import footprint_of, footprint_of_output
from dagmaster.ports.audit_events import StoredEvent
from dagmaster.snowflakes import EPOCH_MS
from dagmaster.store.postgres.connection import Connection
from dagmaster.store.postgres.named_queries import queries

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from asyncpg import Record

    from dagmaster.ports.database_config import DatabaseConfig

_SQL = queries("legacy_read")

_BIGINT: Final = 2**63 - 1
_LOW_BITS: Final = 22  # of an id: the machine and the sequence, after the milliseconds


@dataclass(slots=True, kw_only=True)
class JobSummary:
    """A job in a list, with how many of its nodes are over. `now`: the database's time when it was read."""

    id: str
    workflow_id: str
    version: int
    status: str
    run: int
    priority: int
    submitted_by: str
    parent_job_id: str | None
    cancelling: bool
    error: dict[str, Any] | None
    nodes: int
    over: int
    created_at: float
    started_at: float | None
    finished_at: float | None
    now: float
    resumed_at: float | None = None

    @property
    def seconds(self) -> float | None:
        """Return how long its last run takes, or took: between two runs nothing is done. None before it starts."""
        return _seconds(self)


@dataclass(slots=True, kw_only=True)
class JobDetail:
    """All that is stored of a job, beside its nodes. `now`: the database's time when it was read."""

    id: str
    workflow_id: str
    version: int
    content_hash: str
    status: str
    run: int
    priority: int
    inputs: dict[str, Any]
    result: Any
    result_ref: str | None
    error: dict[str, Any] | None
    submitted_by: str
    correlation_id: str | None
    idempotency_key: str | None
    queue: str | None
    event_seq: int
    parent_job_id: str | None
    parent_node_id: str | None
    cancelling: bool
    ending: bool
    deadline_at: float | None
    created_at: float
    started_at: float | None
    finished_at: float | None
    now: float
    owner_id: str | None
    host: str | None
    pid: int | None
    silent_seconds: float | None
    resumed_from: str | None = None
    resumed_at: float | None = None

    @property
    def seconds(self) -> float | None:
        """Return how long its last run takes, or took: between two runs nothing is done. None before it starts."""
        return _seconds(self)

    @property
    def is_over(self) -> bool:
        """Return whether the job has ended."""
        return self.finished_at is not None


@dataclass(slots=True, kw_only=True)
class NodeRecord:
    """What is stored of a node, and of its task while that is out."""

    node_id: str
    status: str
    skip_reason: str | None = None
    attempt: int = 0
    failed_attempts: int = 0
    branch: str | None = None
    parent_node_id: str | None = None
    source_count: int | None = None
    expanded_count: int = 0
    error: dict[str, Any] | None = None
    output_ref: str | None = None
    wake_at: float | None = None
    started_at: float | None = None
    finished_at: float | None = None
    queue: str | None = None
    worker_id: str | None = None
    progress: dict[str, Any] | None = None
    dispatched_at: float | None = None


@dataclass(slots=True)
class ChildCounts:
    """How many children of a fan-out stand where, and when the first of them started."""

    counts: dict[str, int] = field(default_factory=dict)
    first_started_at: float | None = None


@dataclass(slots=True)
class WaitInfo:
    """What a waiting node waits for."""

    at: float
    message: str = ""
    until: str | None = None


class QueueBacklog(NamedTuple):
    """Tasks that no worker holds; the live workers of their queue, and how many places of these are busy."""

    queue: str
    tasks: int
    oldest_seconds: float
    workers: int = 0
    seats: int = 0
    busy: int = 0


class LogPiece(NamedTuple):
    """A piece of a task's log. `place` says where to go on from."""

    node_id: str
    attempt: int
    at: float
    text: str
    place: tuple[Any, int, int]


class PlacedNode(NamedTuple):
    """A child of a fan-out, and where on Earth its item lies."""

    node_id: str
    fan_out: str
    number: int
    status: str
    attempt: int
    error: dict[str, Any] | None
    footprint: Any


class PendingCommand(NamedTuple):
    """What somebody asked of a job, and nobody has taken up yet."""

    kind: str
    by: str
    seconds: float


class FleetCounts(NamedTuple):
    """How many live."""

    orchestrators: int
    workers: int


class LegacyReadStore:
    """Reads. `lease_seconds`: how long orchestrators and workers may be silent before they count as dead."""

    def __init__(
        self,
        address: DatabaseConfig,
        name: str = "dagmaster onlooker",
        *,
        lease_seconds: float = 15.0,
        worker_lease_seconds: float = 6.0,
    ) -> None:
        self.session = Connection(address, name, reads=True)
        self._ears = Connection(address, name, listens=True)
        self.leases = {"lease_seconds": lease_seconds, "worker_lease_seconds": worker_lease_seconds}

    async def close(self) -> None:
        """Leave."""
        await self._ears.close()
        await self.session.close()

    async def on_end(self, job_id: str, ended: Callable[[], None]) -> None:
        """Call when the job has ended. Behind a pooler nothing is heard, and the poll serves."""
        await self._ears.listen(f"dagmaster_job_{int(job_id)}", lambda _: ended())

    # ── Jobs ──

    async def jobs(
        self,
        *,
        statuses: Sequence[str] | None = None,
        workflow_id: str | None = None,
        since: float | None = None,
        limit: int = 20,
    ) -> list[JobSummary]:
        """Return the newest jobs; `since` is a bound of ids, which grow with time."""
        oldest = 0 if since is None else max(int(since * 1000) - EPOCH_MS, 0) << _LOW_BITS
        given = {
            "statuses": None if not statuses else list(statuses),
            "workflow_id": workflow_id,
            "oldest": min(oldest, _BIGINT),
            "most": limit,
        }
        return [_job_line(row) for row in await self.session.fetch(_SQL["jobs"], given)]

    async def newest(self) -> str | None:
        """Return the id of the newest job."""
        row = await self.session.row(_SQL["newest"], {})
        return None if row is None else str(row["id"])

    async def job(self, job_id: str) -> JobDetail | None:
        """Return a job."""
        if int(job_id) > _BIGINT:
            return None
        row = await self.session.row(_SQL["job"], {"job_id": int(job_id)})
        if row is None:
            return None
        given = dict(row)
        for name in ("inputs", "result", "error"):
            given[name] = _value(given[name])
        for name in ("id", "owner_id", "parent_job_id", "resumed_from"):
            given[name] = _id(given[name])
        return JobDetail(**given)

    async def pulse(self, job_id: str) -> tuple[int, str, float]:
        """Return the number of the last event, the status, and the time. (0, "", 0) if the job is gone."""
        row = await self.session.row(_SQL["pulse"], {"job_id": int(job_id)})
        return (0, "", 0.0) if row is None else (row["event_seq"], row["status"], row["now"])

    async def definition(self, content_hash: str) -> dict[str, Any] | None:
        """Return a stored graph."""
        row = await self.session.row(_SQL["definition"], {"content_hash": content_hash})
        return None if row is None else _value(row["definition"])

    async def nodes(self, job_id: str, node_ids: Sequence[str] | None) -> list[NodeRecord]:
        """Return the rows of these nodes; of all, children of fan-outs too, where none are named."""
        given = {"job_id": int(job_id), "node_ids": node_ids}
        rows = await self.session.fetch(_SQL["all_nodes" if node_ids is None else "nodes"], given)
        return [_node_line(row) for row in rows]

    async def children(self, job_id: str, fans: Sequence[str]) -> dict[str, ChildCounts]:
        """Return how the children of these fan-outs stand."""
        found: dict[str, ChildCounts] = {fan: ChildCounts() for fan in fans}
        if not fans:
            return found
        for row in await self.session.fetch(_SQL["children"], {"job_id": int(job_id), "fans": list(fans)}):
            counts = found[row["fan"]]
            counts.counts[row["status"]] = row["count"]
            first = row["first_started_at"]
            if first is not None and (counts.first_started_at is None or first < counts.first_started_at):
                counts.first_started_at = first
        return found

    async def failed_children(self, job_id: str, fan: str, limit: int = 3) -> list[NodeRecord]:
        """Return the first children of a fan-out that failed."""
        given = {"job_id": int(job_id), "fan": fan, "most": limit}
        return [
            NodeRecord(node_id=row["node_id"], status="FAILED", attempt=row["attempt"], error=_value(row["error"]))
            for row in await self.session.fetch(_SQL["failed_children"], given)
        ]

    async def footprints(self, job_id: str) -> list[PlacedNode]:
        """Return the children of fan-outs whose items, or else whose outputs, say where on Earth they lie."""
        rows = await self.session.fetch(_SQL["footprints"], {"job_id": int(job_id)})
        return [
            PlacedNode(
                row["node_id"], row["fan"], row["number"], row["status"], row["attempt"], _value(row["error"]), place
            )
            for row in rows
            if (place := footprint_of(_value(row["item"])) or footprint_of_output(_value(row["output"]))) is not None
        ]

    async def attempts(self, job_id: str) -> int:
        """Return how many attempts of a job are over."""
        row = await self.session.row(_SQL["attempts"], {"job_id": int(job_id)})
        return 0 if row is None else int(row["count"])

    async def child_jobs(self, job_id: str) -> dict[str, tuple[str, str]]:
        """Return the jobs that were started for nodes: (id, status), the newest of each node."""
        rows = await self.session.fetch(_SQL["child_jobs"], {"job_id": int(job_id)})
        return {row["parent_node_id"]: (str(row["id"]), row["status"]) for row in rows}

    async def questions(self, job_id: str, node_ids: Sequence[str]) -> dict[str, WaitInfo]:
        """Return what waiting nodes wait for."""
        if not node_ids:
            return {}
        rows = await self.session.fetch(_SQL["questions"], {"job_id": int(job_id), "node_ids": list(node_ids)})
        found: dict[str, WaitInfo] = {}
        for row in rows:
            data = _value(row["data"]) or {}
            found[row["node_id"]] = WaitInfo(row["at"], str(data.get("message", "")), data.get("until"))
        return found

    async def waiting_tasks(self, job_id: str) -> list[QueueBacklog]:
        """Return the tasks of a job that no worker holds."""
        rows = await self.session.fetch(_SQL["waiting_tasks"], {"job_id": int(job_id), **self.leases})
        return [QueueBacklog(*row.values()) for row in rows]

    async def commands(self, job_id: str) -> list[PendingCommand]:
        """Return what was asked of a job and waits for its owner."""
        rows = await self.session.fetch(_SQL["commands"], {"job_id": int(job_id)})
        return [PendingCommand(*row.values()) for row in rows]

    async def alive(self) -> FleetCounts:
        """Return how many orchestrators and workers live."""
        row = await self.session.row(_SQL["alive"], self.leases)
        return FleetCounts(0, 0) if row is None else FleetCounts(*row.values())

    # ── The trail and the logs ──

    async def events(
        self, job_id: str, *, after: int = 0, limit: int = 1000, node_ids: Sequence[str] | None = None
    ) -> list[StoredEvent]:
        """Return the trail after a number. With nodes: only theirs, the job's, and what went wrong anywhere."""
        given = {"job_id": int(job_id), "after": after, "most": limit, "node_ids": node_ids}
        return [_event(row) for row in await self.session.fetch(_SQL["events"], given)]

    async def logs(
        self,
        job_id: str,
        *,
        node_id: str | None = None,
        attempt: int | None = None,
        after: tuple[Any, int, int] | None = None,
        limit: int = 1000,
    ) -> list[LogPiece]:
        """Pieces of logs, in the order in which they were written."""
        moment, task_id, chunk = after or (None, 0, 0)
        given = {
            "job_id": int(job_id), "node_id": node_id, "attempt": attempt,
            "moment": moment, "task_id": task_id, "chunk": chunk, "most": limit,
        }  # fmt: skip
        return [
            LogPiece(r["node_id"], r["attempt"], r["at"], r["text"], (r["moment"], r["task_id"], r["chunk"]))
            for r in await self.session.fetch(_SQL["logs"], given)
        ]

    # ── Workflows ──

    async def workflows(self) -> list[dict[str, Any]]:
        """Return the published workflows."""
        return [dict(row) for row in await self.session.fetch(_SQL["workflows"], {})]

    async def versions(self, workflow_id: str) -> list[dict[str, Any]]:
        """Return the versions of a workflow."""
        return [dict(row) for row in await self.session.fetch(_SQL["versions"], {"workflow_id": workflow_id})]


def _seconds(job: JobSummary | JobDetail) -> float | None:
    began = job.started_at if job.resumed_at is None else job.resumed_at
    return None if began is None else max((job.finished_at or job.now) - began, 0.0)


def _job_line(row: Record) -> JobSummary:
    given = dict(row)
    del given["owner_id"]
    for name in ("id", "parent_job_id"):
        given[name] = _id(given[name])
    given["error"] = _value(given["error"])
    given["nodes"] = int(given["nodes"] or 0)
    if given["over"] is None:
        given["over"] = 0 if given["finished_at"] is None else given["nodes"]
    # Children of inner fan-outs are counted when they are over, and known only then.
    given["over"] = min(given["over"], given["nodes"])
    return JobSummary(**given)


def _node_line(row: Record) -> NodeRecord:
    given = dict(row)
    for name in ("error", "progress"):
        if given[name] is not None:
            given[name] = _value(given[name])
    given["worker_id"] = _id(given["worker_id"])
    return NodeRecord(**given)


def _event(row: Record) -> StoredEvent:
    return StoredEvent(
        seq=row["seq"],
        type=row["type"],
        at=row["at"],
        by=row["by"],
        node=row["node_id"],
        attempt=row["attempt"],
        data=_value(row["data"]) or {},
    )


def _id(number: int | None) -> str | None:
    return None if number is None else str(number)


def _value(text: str | None) -> Any:
    return None if text is None else json.loads(text)
