"""The read port on PostgreSQL. Queries run on a pool of read-only connections, each with a time limit."""

from __future__ import annotations

import copy
from contextlib import asynccontextmanager
from dataclasses import replace
from typing import TYPE_CHECKING, Any, Final

from dagmaster.engine.expressions.secret_parts import hide_secrets
from dagmaster.engine.status import JobStatus
from dagmaster.ports.read_store import ALL_LOGS, JobEvent, PendingCommand
from dagmaster.ports.tenants import ALL_TENANTS, DEFAULT_TENANT
from dagmaster.records.fleet import FleetCounts, QueueBacklog
from dagmaster.records.nodes import NodeValues, WaitInfo
from dagmaster.records.workflows import VersionRecord, WorkflowRecord
from dagmaster.store.fleet_state import queue_state
from dagmaster.store.json_columns import from_json
from dagmaster.store.postgres.added_nodes import PostgresAddedNodeReader
from dagmaster.store.postgres.connection_pool import STATEMENT_TIMEOUT_SECONDS, ReadOnlyPool
from dagmaster.store.postgres.diagnosis_reader import read_diagnosis
from dagmaster.store.postgres.finished_task_reader import PostgresFinishedTaskReader
from dagmaster.store.postgres.fleet import has_tenants, read_fleet, read_handlers, read_workers
from dagmaster.store.postgres.job_feed import PostgresJobFeed, read_child_counts
from dagmaster.store.postgres.job_list import (
    LAST_SECOND,
    MAX_BIGINT,
    MAX_INTEGER,
    JobQuery,
    bigint,
    clamp_integer,
    clamp_time,
    is_storable,
    job_query,
    newest_jobs_query,
)
from dagmaster.store.postgres.job_subscriptions import JobSubscriptions
from dagmaster.store.postgres.log_list import log_params
from dagmaster.store.postgres.metric_reader import PostgresMetricReader
from dagmaster.store.postgres.named_queries import queries
from dagmaster.store.postgres.node_list import NodeQuery, nodes_query
from dagmaster.store.postgres.read_rows import (
    attempt_record,
    footprint_record,
    job_record,
    log_record,
    node_record,
    stored_event,
    task_record,
)
from dagmaster.store.postgres.recent_events import read_recent_events
from dagmaster.store.postgres.request_store import PostgresRequestReader
from dagmaster.store.postgres.timeline_reader import PostgresTimelineReader

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Callable, Collection, Mapping, Sequence

    from dagmaster.json_types import JsonValue
    from dagmaster.ports.audit_events import StoredEvent
    from dagmaster.ports.database_config import DatabaseConfig
    from dagmaster.ports.job_filter import JobFilter
    from dagmaster.ports.read_store import (
        DiagnosisFacts,
        FootprintRecord,
        LogFilter,
        LogRecord,
        NodeFilter,
        Subscription,
        TaskFilter,
    )
    from dagmaster.records.fleet import FleetRecord
    from dagmaster.records.handlers import HandlerRecord
    from dagmaster.records.jobs import JobRecord
    from dagmaster.records.nodes import ChildCounts, NodeRecord
    from dagmaster.records.page import Position
    from dagmaster.records.tasks import AttemptRecord, TaskRecord
    from dagmaster.store.postgres.named_queries import Query
    from dagmaster.store.postgres.tenant_session import Reader

_SQL = queries("read")

_AFTER_TENANTS: Final = "~"
"""A text after the names of all tenants."""


class PostgresReadStore:
    """Reads. An id that no row can have, and a text that cannot be stored, match nothing."""

    def __init__(
        self,
        config: DatabaseConfig,
        name: str = "dagmaster reader",
        *,
        lease_seconds: float = 15.0,
        worker_lease_seconds: float = 6.0,
        statement_timeout_seconds: float = STATEMENT_TIMEOUT_SECONDS,
    ) -> None:
        self.tenant: str | None = None
        self.connections = ReadOnlyPool(config, name, statement_timeout_seconds=statement_timeout_seconds)
        self.read_with(self.connections)
        # Of its own: a thousand clients that connect at once must not delay the streams of those that are
        # there.
        self.feed_connections = ReadOnlyPool(
            config, f"{name}, feed", statement_timeout_seconds=statement_timeout_seconds, max_connections=1
        )
        self.subscriptions = JobSubscriptions(config, name)
        self.feed_pool: Reader = self.feed_connections
        # The leases of orchestrators and of workers.
        self.lease_seconds = lease_seconds
        self.worker_lease_seconds = worker_lease_seconds

    def for_tenant(self, tenant: str) -> PostgresReadStore:
        view = copy.copy(self)
        view.tenant = tenant
        view.feed_pool = self.feed_connections.for_tenant(tenant)
        view.read_with(self.connections.for_tenant(tenant))
        return view

    def read_with(self, pool: Reader) -> None:
        """Send queries of all kinds to this pool."""
        self.pool = pool
        self.metrics = PostgresMetricReader(pool)
        self.timelines = PostgresTimelineReader(pool)
        self.finished_tasks = PostgresFinishedTaskReader(pool)
        self.added_nodes = PostgresAddedNodeReader(pool)
        self.requests = PostgresRequestReader(pool)

    async def close(self) -> None:
        await self.subscriptions.close()
        await self.connections.close()
        await self.feed_connections.close()

    # ── Jobs ──

    async def jobs(
        self,
        job_filter: JobFilter,
        *,
        after: Position | None = None,
        limit: int = 20,
        oldest_first: bool = False,
    ) -> list[JobRecord]:
        query = JobQuery(self._of_tenant(job_filter), after_id=None if after is None else str(after[0]))
        page = query.page(limit, oldest_first=oldest_first)
        return [] if query.is_empty else [job_record(row) for row in await self.pool.fetch(*page)]

    async def job(self, job_id: str) -> JobRecord | None:
        number = bigint(job_id)
        row = None if number is None else await self.pool.row(job_query(), {"job_id": number})
        return None if row is None else job_record(row)

    async def newest_job_id(self, *, submitted_by: str | None = None) -> str | None:
        query = _SQL["newest_job" if submitted_by is None else "newest_job_of_submitter"]
        row = await self.pool.row(query, {} if submitted_by is None else {"submitted_by": submitted_by})
        return None if row is None else str(row["id"])

    async def newest_jobs(self, workflow_ids: Collection[str]) -> list[JobRecord]:
        params = {"workflow_ids": [*filter(is_storable, workflow_ids)]}
        return [job_record(row) for row in await self.pool.fetch(newest_jobs_query(), params)]

    async def job_counts(self, job_filter: JobFilter) -> Mapping[JobStatus, int]:
        query = JobQuery(self._of_tenant(job_filter))
        if query.is_empty:
            return {}
        return {JobStatus(row["status"]): row["jobs"] for row in await self.pool.fetch(*query.counts())}

    def _of_tenant(self, job_filter: JobFilter) -> JobFilter:
        """Return a filter that names the tenant: its jobs are found by their index.

        That others are not found is up to the database.
        """
        if self.tenant in (None, ALL_TENANTS) or job_filter.tenant is not None:
            return job_filter
        return replace(job_filter, tenant=self.tenant)

    async def child_jobs(self, job_id: str) -> Mapping[str, tuple[str, JobStatus]]:
        rows = await self._fetch(_SQL["child_jobs"], job_id)
        return {row["parent_node_id"]: (str(row["id"]), JobStatus(row["status"])) for row in rows}

    async def definition(self, content_hash: str) -> Mapping[str, JsonValue] | None:
        if not is_storable(content_hash):
            return None
        row = await self.pool.row(_SQL["definition"], {"content_hash": content_hash})
        return None if row is None else from_json(row["definition"])

    # ── Nodes ──

    async def nodes(self, job_id: str, node_ids: Sequence[str]) -> list[NodeRecord]:
        number, storable = bigint(job_id), [node_id for node_id in node_ids if is_storable(node_id)]
        if number is None or not storable:
            return []
        params = {"job_id": number, "node_ids": storable}
        return [node_record(row) for row in await self.pool.fetch(nodes_query(), params)]

    async def list_nodes(
        self, node_filter: NodeFilter, *, after: Position | None = None, limit: int = 100
    ) -> list[NodeRecord]:
        query = NodeQuery(node_filter, after)
        return (
            [] if query.is_empty else [node_record(row) for row in await self.pool.fetch(*query.page(limit))]
        )

    async def child_counts(self, job_id: str, fan_outs: Sequence[str]) -> Mapping[str, ChildCounts]:
        counts = await read_child_counts(self.pool, [(job_id, fan_out) for fan_out in fan_outs])
        return {fan_out: counts[job_id, fan_out] for fan_out in fan_outs}

    async def node_values(
        self, job_id: str, node_id: str, *, child_of: tuple[str, int] | None = None
    ) -> NodeValues:
        rows = await self._fetch(_SQL["node_values"], job_id, node_id=node_id) if is_storable(node_id) else []
        item_rows = []
        if child_of is not None and is_storable(child_of[0]) and 0 <= child_of[1] <= MAX_INTEGER:
            item_rows = await self._fetch(_SQL["item"], job_id, fan_out=child_of[0], number=child_of[1])
        item = next((row["item"] for row in item_rows if row["item"] is not None), None)
        row = rows[0] if rows else {"output": None, "output_ref": None, "params": None, "secrets": None}
        secrets = from_json(row["secrets"]) or {}
        return NodeValues(
            output=from_json(row["output"]),
            output_ref=row["output_ref"],
            params=hide_secrets(from_json(row["params"]), secrets.get("places", ())),
            hidden=tuple(secrets.get("hide", ())),
            has_item=item is not None,
            item=from_json(item),
        )

    async def attempts(
        self, job_id: str, node_id: str, *, after: Position | None = None, limit: int = 100
    ) -> list[AttemptRecord]:
        if not is_storable(node_id):
            return []
        before = MAX_INTEGER if after is None else clamp_integer(after[0])
        rows = await self._fetch(_SQL["attempts"], job_id, node_id=node_id, before=before, limit=limit)
        return [attempt_record(row) for row in rows]

    async def attempt_count(self, job_id: str) -> int:
        return sum(row["attempts"] for row in await self._fetch(_SQL["attempt_count"], job_id))

    async def tasks(
        self, task_filter: TaskFilter, *, after: Position | None = None, limit: int = 100
    ) -> list[TaskRecord]:
        ids = {
            name: None if text is None else bigint(text)
            for name, text in (
                ("before_id", str(MAX_BIGINT) if after is None else str(after[0])),
                ("worker_id", task_filter.worker_id),
                ("job_id", task_filter.job_id),
            )
        }
        asked = {"worker_id": task_filter.worker_id, "job_id": task_filter.job_id, "before_id": ""}
        texts = (task_filter.queue or "", task_filter.handler or "")
        if any(ids[name] is None and text is not None for name, text in asked.items()) or not all(
            map(is_storable, texts)
        ):
            return []
        params = {
            **ids,
            "queue": task_filter.queue,
            "handler": task_filter.handler,
            "is_claimed": task_filter.is_claimed,
            "limit": limit,
        }
        return [task_record(row) for row in await self.pool.fetch(_SQL["tasks"], params)]

    async def waits(self, job_id: str, node_ids: Sequence[str]) -> Mapping[str, WaitInfo]:
        storable = [node_id for node_id in node_ids if is_storable(node_id)]
        waits: dict[str, WaitInfo] = {}
        for row in await self._fetch(_SQL["waits"], job_id, node_ids=storable) if storable else ():
            data = from_json(row["data"]) or {}
            waits[row["node_id"]] = WaitInfo(row["at"], str(data.get("message", "")), data.get("until"))
        return waits

    async def backlog(self, job_id: str) -> list[QueueBacklog]:
        rows = await self._fetch(_SQL["backlog"], job_id)
        if not rows:
            return []
        workers = await read_workers(self.pool, (), self.worker_lease_seconds)
        states = {row["queue"]: queue_state(workers.values(), row["queue"]) for row in rows}
        return [
            QueueBacklog(queue, tasks, oldest, states[queue], is_exclusive)
            for queue, is_exclusive, tasks, oldest in rows
        ]

    async def footprints(
        self, job_id: str, *, after: Position | None = None, limit: int = 1000
    ) -> list[FootprintRecord]:
        fan_out, number = ("", -1) if after is None else (str(after[0]), clamp_integer(after[1]))
        records: list[FootprintRecord] = []
        # Not every item has a footprint: a page may need more rows than it has records.
        while is_storable(fan_out) and len(records) < limit:
            params = {"after_fan_out": fan_out, "after_number": number, "limit": limit}
            rows = await self._fetch(_SQL["footprints"], job_id, **params)
            records += [record for row in rows if (record := footprint_record(row)) is not None]
            if len(rows) < limit:
                break
            fan_out, number = rows[-1]["fan_out"], rows[-1]["number"]
        return records[:limit]

    # ── Commands, events, logs ──

    async def pending_commands(
        self, job_id: str, *, after: Position | None = None, limit: int = 20
    ) -> list[PendingCommand]:
        after_id = bigint("0" if after is None else str(after[0]))
        if after_id is None:
            return []
        rows = await self._fetch(_SQL["pending_commands"], job_id, after_id=after_id, limit=limit)
        return [PendingCommand(*row.values()) for row in rows]

    async def events(
        self, job_id: str, *, after: int = 0, limit: int = 1000, node_ids: Collection[str] | None = None
    ) -> list[StoredEvent]:
        if after > MAX_INTEGER:
            return []
        storable = None if node_ids is None else [node_id for node_id in node_ids if is_storable(node_id)]
        rows = await self._fetch(_SQL["events"], job_id, after=max(after, 0), limit=limit, node_ids=storable)
        return [stored_event(row) for row in rows]

    async def recent_events(
        self,
        *,
        types: Collection[str] = (),
        since: float | None = None,
        after: Position | None = None,
        limit: int = 100,
    ) -> list[JobEvent]:
        return await read_recent_events(self.pool, types=types, since=since, after=after, limit=limit)

    async def event_counts(
        self, *, since: float | None = None, until: float | None = None
    ) -> Mapping[str, int]:
        params = {
            "since": clamp_time(since or 0.0),
            "until": LAST_SECOND if until is None else clamp_time(until),
        }
        return {row["type"]: row["events"] for row in await self.pool.fetch(_SQL["event_counts"], params)}

    async def logs(
        self,
        job_id: str,
        log_filter: LogFilter = ALL_LOGS,
        *,
        after: Position | None = None,
        limit: int = 1000,
        newest_first: bool = False,
    ) -> list[LogRecord]:
        params = log_params(log_filter, after)
        if params is None:
            return []
        rows = await self._fetch(_SQL["logs"], job_id, **params, newest_first=newest_first, limit=limit)
        return [log_record(row) for row in rows]

    async def log_chunk(self, task_id: str, chunk: int) -> LogRecord | None:
        params = {"task_id": bigint(task_id), "chunk": clamp_integer(chunk)}
        rows = await self.pool.fetch(_SQL["log_chunk"], params)
        return log_record(rows[0]) if rows else None

    # ── Workflows ──

    async def workflows(
        self, *, tag: str | None = None, after: Position | None = None, limit: int = 100
    ) -> list[WorkflowRecord]:
        last, _, last_tenant = ("" if after is None else str(after[0])).partition(" ")
        if not all(map(is_storable, (last, last_tenant, tag or ""))):
            return []
        # A cursor of an earlier version has no tenant: it is after all of them.
        after_tenant = last_tenant or (_AFTER_TENANTS if last else "")
        params = {"after": last, "after_tenant": after_tenant, "tag": tag, "limit": limit}
        rows = await self.pool.fetch(_SQL["workflows"], params)
        return [WorkflowRecord(**{**row, "tags": tuple(row["tags"])}) for row in rows]

    async def versions(
        self,
        workflow_id: str,
        *,
        after: Position | None = None,
        limit: int | None = None,
        is_own: bool = False,
    ) -> list[VersionRecord]:
        if not is_storable(workflow_id):
            return []
        last = 0 if after is None else clamp_integer(after[0])
        params = {"workflow_id": workflow_id, "after": last, "limit": limit, "is_own": is_own}
        rows = await self.pool.fetch(_SQL["versions"], params)
        return [VersionRecord(**dict(row)) for row in rows]

    # ── Handlers, the fleet ──

    async def handlers(self, *, after: Position | None = None, limit: int = 100) -> list[HandlerRecord]:
        return await read_handlers(self.pool, after, limit, self.worker_lease_seconds)

    async def fleet_counts(self) -> FleetCounts:
        row = await self.pool.row(
            _SQL["fleet_counts"],
            {"lease_seconds": self.lease_seconds, "worker_lease_seconds": self.worker_lease_seconds},
        )
        return FleetCounts(0, 0) if row is None else FleetCounts(*row.values())

    async def fleet(self) -> FleetRecord:
        return await read_fleet(
            self.pool,
            lease_seconds=self.lease_seconds,
            worker_lease_seconds=self.worker_lease_seconds,
            sees_all=self.tenant in (None, ALL_TENANTS)
            or (self.tenant == DEFAULT_TENANT and not await has_tenants(self.pool)),
        )

    # ── Diagnosis ──

    async def diagnosis(self, job_id: str) -> DiagnosisFacts | None:
        number = bigint(job_id)
        if number is None:
            return None
        return await read_diagnosis(
            self.pool,
            number,
            lease_seconds=self.lease_seconds,
            worker_lease_seconds=self.worker_lease_seconds,
        )

    async def outputs(self, job_id: str, node_ids: Sequence[str]) -> Mapping[str, JsonValue]:
        storable = [node_id for node_id in node_ids if is_storable(node_id)]
        rows = await self._fetch(_SQL["outputs"], job_id, node_ids=storable) if storable else []
        return {row["node_id"]: from_json(row["output"]) for row in rows}

    # ── Wake-ups ──

    @asynccontextmanager
    async def subscribe(self, job_id: str) -> AsyncIterator[Subscription]:
        async with self.subscriptions.subscribe(bigint(job_id)) as subscription:
            yield subscription

    def feed(self, on_change: Callable[[str], None]) -> PostgresJobFeed:
        return PostgresJobFeed(self.feed_pool, self.subscriptions, on_change)

    async def _fetch(self, query: Query, job_id: str, **params: Any) -> list[Any]:
        number = bigint(job_id)
        return [] if number is None else await self.pool.fetch(query, {"job_id": number, **params})
