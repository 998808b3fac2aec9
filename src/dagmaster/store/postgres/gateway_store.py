"""The reads of a gateway on PostgreSQL, with a role that can do nothing else."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final
from uuid import UUID

from dagmaster.ports.callbacks import PublicKey
from dagmaster.ports.gateway import AliveServices, DatabaseRights
from dagmaster.ports.tenants import ALL_TENANTS, Isolation
from dagmaster.records.gateway import InternalEvent, InternalJobStatusResponse, InternalNodeStatus
from dagmaster.records.tenants import TenantRecord
from dagmaster.store.postgres import schema_version
from dagmaster.store.postgres.api_key_store import key_record
from dagmaster.store.postgres.connection_pool import ReadOnlyPool
from dagmaster.store.postgres.gateway_role import find_key_query
from dagmaster.store.postgres.job_list import bigint, clamp_integer, is_storable
from dagmaster.store.postgres.named_queries import queries
from dagmaster.store.postgres.request_store import NO_REQUEST, PostgresRequestReader
from dagmaster.store.postgres.tenant_session import TenantReader

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    import asyncpg

    from dagmaster.ports.api_keys import ApiKeyRecord
    from dagmaster.ports.database_config import DatabaseConfig
    from dagmaster.ports.gateway import JobQueryRequest
    from dagmaster.store.postgres.named_queries import Query

_SQL = queries("gateway")
_KEYS: Final = queries("callbacks")["public_keys"]
_STORED: Final = {"WAITING": "RUNNING"}
"""The stored status of a displayed one, where they differ."""


class PostgresGatewayStore:
    """Reads with the role of gateways. An id that no row can have matches nothing."""

    def __init__(
        self,
        config: DatabaseConfig,
        *,
        lease_seconds: float,
        worker_lease_seconds: float,
        statement_timeout_seconds: float,
    ) -> None:
        self.pool = ReadOnlyPool(
            config, "dagmaster gateway", statement_timeout_seconds=statement_timeout_seconds
        )
        self._leases = {"lease_seconds": lease_seconds, "worker_lease_seconds": worker_lease_seconds}

    async def close(self) -> None:
        await self.pool.close()

    def requests(self, tenant: str) -> PostgresRequestReader:
        """Return the reader of a tenant's requests."""
        return PostgresRequestReader(TenantReader(self.pool, tenant))

    async def result_key(self, tenant: str, request_id: str, *, actor: str | None) -> str | None:
        """Return what signs the links to the result of a request (`ports.result_links`), if there is one."""
        params = {"request_id": _uuid(request_id) or UUID(NO_REQUEST), "actor": actor}
        row = await self.pool.row(_SQL["result_key"], params, tenant=tenant)
        return None if row is None else str(row["result_key"])

    async def check_rights(self) -> DatabaseRights:
        await schema_version.require_current_of(self.pool)
        (row,) = await self.pool.fetch(_SQL["rights"], {})
        return DatabaseRights(**dict(row))

    async def public_keys(self, key_set: str | None) -> Sequence[PublicKey]:
        rows = await self.pool.fetch(_KEYS, {"key_set": key_set})
        return [PublicKey(row["secret_id"], row["public_key"], row["expires_at"]) for row in rows]

    async def alive_services(self) -> AliveServices:
        (row,) = await self.pool.fetch(_SQL["alive_services"], self._leases, tenant=ALL_TENANTS)
        return AliveServices(**dict(row))

    # ── Jobs ──

    async def jobs(self, tenant: str, query: JobQueryRequest) -> list[InternalJobStatusResponse]:
        statement, params = _choose(query)
        if not all(is_storable(value) for value in params.values() if isinstance(value, str)):
            return []
        page = {"limit": query.limit, "offset": query.offset}
        return list(map(_job, await self.pool.fetch(statement, params | page, tenant=tenant)))

    async def job(self, tenant: str, job_id: str) -> InternalJobStatusResponse | None:
        number = bigint(job_id)
        if number is None:
            return None
        row = await self.pool.row(_SQL["job"], {"job_id": number}, tenant=tenant)
        return None if row is None else _job(row)

    async def find_jobs(
        self, tenant: str, *, correlation_id: str | None, idempotency_key: str | None, limit: int
    ) -> list[InternalJobStatusResponse]:
        if not (is_storable(correlation_id or "") and is_storable(idempotency_key or "")):
            return []
        params = {
            "correlation_id": correlation_id,
            "idempotency_key": idempotency_key,
            "request_id": _uuid(correlation_id),
            "limit": limit,
        }
        return list(map(_job, await self.pool.fetch(_SQL["find_jobs"], params, tenant=tenant)))

    async def counts(self, tenant: str) -> Mapping[str, int]:
        rows = await self.pool.fetch(_SQL["counts"], {}, tenant=tenant)
        return {row["status"]: int(row["jobs"]) for row in rows}

    # ── Nodes and events ──

    async def started_nodes(
        self, tenant: str, job_ids: Sequence[str], *, limit: int
    ) -> Mapping[str, list[InternalNodeStatus]]:
        numbers = [number for number in map(bigint, job_ids) if number is not None]
        params = {"job_ids": numbers, "limit": limit}
        nodes: dict[str, list[InternalNodeStatus]] = {job_id: [] for job_id in job_ids}
        for row in await self.pool.fetch(_SQL["started_nodes"], params, tenant=tenant):
            nodes[str(row["job_id"])].append(_node(row, row["node_id"]))
        return nodes

    async def nodes(
        self, tenant: str, job_id: str, *, after: str, limit: int
    ) -> list[InternalNodeStatus] | None:
        number = bigint(job_id)
        if number is None or not is_storable(after):
            return None
        graph = await self.pool.row(_SQL["graph_of_job"], {"job_id": number}, tenant=tenant)
        if graph is None:
            return None
        names = await self.pool.fetch(_SQL["graph_nodes"], dict(graph), tenant=tenant)
        params = {
            "job_id": number,
            "after": after,
            "graph_nodes": [name["node_id"] for name in names],
            "limit": limit,
        }
        rows = await self.pool.fetch(_SQL["nodes"], params, tenant=tenant)
        return [_node(row, row["page_node_id"]) for row in rows]

    async def events(self, tenant: str, job_id: str, *, after: int, limit: int) -> list[InternalEvent] | None:
        number = bigint(job_id)
        if number is None:
            return None
        if await self.pool.row(_SQL["graph_of_job"], {"job_id": number}, tenant=tenant) is None:
            return None
        params = {"job_id": number, "after": clamp_integer(after), "limit": limit}
        rows = await self.pool.fetch(_SQL["events"], params, tenant=tenant)
        return [InternalEvent(**dict(row)) for row in rows]


class GatewayKeys:
    """Finds keys by a function of the database, which knows keys only by their digest: none can be listed.

    Nothing is written: that a key was used is stored where its changes are forwarded to.
    """

    def __init__(self, pool: ReadOnlyPool) -> None:
        self._pool = pool

    async def find(self, digest: str) -> tuple[ApiKeyRecord, float] | None:
        row = await self._pool.row(find_key_query(), {"digest": digest})
        return None if row is None else (key_record(row), row["now"])

    async def mark_used(self, key_ids: Sequence[str]) -> None:
        """Do nothing."""


class GatewayTenants:
    """What decides whether callers of a tenant are served: `http.tenant_guard` asks for both."""

    def __init__(self, store: PostgresGatewayStore) -> None:
        self._store = store

    async def all(self) -> Sequence[TenantRecord]:
        rows = await self._store.pool.fetch(_SQL["tenants"], {}, tenant=ALL_TENANTS)
        unread: dict[str, Any] = {"created_at": 0.0, "created_by": "", "updated_at": 0.0}
        return [TenantRecord(**dict(row), **unread) for row in rows]

    async def isolation(self) -> Isolation:
        rights = await self._store.check_rights()
        return Isolation(open_tables=() if rights.is_limited else ("dag_jobs",))


def _choose(query: JobQueryRequest) -> tuple[Query, dict[str, Any]]:
    """Return the query for a page of jobs, and its parameters besides the page."""
    if query.is_open:
        return _SQL["open_jobs"], {}
    if query.status is not None:
        stored = _STORED.get(query.status, query.status)
        params = {"stored_status": stored, "status": query.status, "workflow_id": query.workflow_id}
        return _SQL["jobs_with_status"], params
    if query.workflow_id is not None:
        return _SQL["jobs_of_workflow"], {"workflow_id": query.workflow_id}
    return _SQL["jobs"], {}


def _job(row: asyncpg.Record) -> InternalJobStatusResponse:
    owner = row["owner_id"]
    fields = dict(row)
    job_id = str(fields.pop("id"))
    return InternalJobStatusResponse(
        **fields | {"owner_id": None if owner is None else str(owner)}, job_id=job_id
    )


def _node(row: asyncpg.Record, node_id: str) -> InternalNodeStatus:
    names = ("status", "attempt", "started_at", "completed_at", "error_message")
    return InternalNodeStatus(node_id=node_id, **{name: row[name] for name in names})


def _uuid(text: str | None) -> UUID | None:
    """Return a text as the id of a request; None for any other text."""
    try:
        return None if text is None else UUID(text)
    except ValueError:
        return None
