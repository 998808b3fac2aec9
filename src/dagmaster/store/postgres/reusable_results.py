"""Reads of jobs that are resumed, from PostgreSQL: by orchestrators in turns, by clients for dry runs."""

from __future__ import annotations

import copy
import json
from typing import TYPE_CHECKING

from dagmaster.engine.status import JobStatus
from dagmaster.ports.job_records import StoredWorkflow
from dagmaster.ports.json_text import JsonText
from dagmaster.ports.reusable_results import KnownHandlers, SourceJob, SourceNode
from dagmaster.ports.tenants import DEFAULT_TENANT
from dagmaster.store.postgres import added_nodes
from dagmaster.store.postgres.connection import Connection
from dagmaster.store.postgres.job_rows import claimed_job, node_row
from dagmaster.store.postgres.named_queries import queries

if TYPE_CHECKING:
    from collections.abc import Collection, Mapping

    import asyncpg

    from dagmaster.engine.stored_rows import NodeRow
    from dagmaster.json_types import JsonValue
    from dagmaster.ports.added_nodes import StoredBatch
    from dagmaster.ports.job_records import ClaimedJob
    from dagmaster.ports.output_blobs import OutputBlobs
    from dagmaster.store.postgres.tenant_session import Session

_SQL = queries("orchestrator")
_DEFINITION = queries("read")["definition"]


class PostgresReusableResults:
    """Reads jobs over one connection. It claims and writes nothing."""

    def __init__(
        self,
        connection: Session,
        blobs: OutputBlobs,
        *,
        lease_seconds: float = 15.0,
        worker_lease_seconds: float = 6.0,
    ) -> None:
        self.session = connection
        self._blobs = blobs
        self._leases = {"lease_seconds": lease_seconds, "worker_lease_seconds": worker_lease_seconds}

    def for_tenant(self, tenant: str) -> PostgresReusableResults:
        view = copy.copy(self)
        if isinstance(self.session, Connection):
            view.session = self.session.for_tenant(tenant)
        return view

    async def load_job(self, job_id: str) -> ClaimedJob | None:
        jobs = await self._load_rows(await self.session.fetch(_SQL["load_job"], {"job_id": int(job_id)}))
        return jobs[0] if jobs else None

    async def load_source_job(self, job_id: str) -> SourceJob:
        rows = await self.session.fetch(_SQL["load_source_nodes"], {"job_id": int(job_id)})
        return SourceJob(job_id, [SourceNode(*row) for row in rows])

    async def known_handlers(self) -> KnownHandlers:
        rows = await self.session.fetch(_SQL["handler_versions"], self._leases)
        return KnownHandlers(
            {row["handler"]: frozenset(row["live"] or [row["last"]]) for row in rows},
            frozenset(row["handler"] for row in rows if row["live"]),
        )

    async def unfinished_children(self, nodes: Collection[tuple[str, str]]) -> Mapping[tuple[str, str], str]:
        params = {
            "job_ids": [int(job_id) for job_id, _ in nodes],
            "node_ids": [node_id for _, node_id in nodes],
        }
        rows = await self.session.fetch(_SQL["unfinished_children"], params)
        return {(str(row["job_id"]), row["node_id"]): str(row["id"]) for row in rows}

    async def load_source_outputs(self, job_id: str, nodes: Collection[SourceNode]) -> Mapping[str, JsonText]:
        params = {
            "job_id": int(job_id),
            "node_ids": [node.node_id for node in nodes],
            "fingerprints": [node.fingerprint for node in nodes],
            "versions": [node.handler_version for node in nodes],
            "attempts": [node.attempt for node in nodes],
        }
        rows = await self.session.fetch(_SQL["load_source_outputs"], params)
        return {row["node_id"]: JsonText(row["output"], row["output_ref"]) for row in rows}

    async def definition(self, content_hash: str) -> Mapping[str, JsonValue] | None:
        row = await self.session.row(_DEFINITION, {"content_hash": content_hash})
        return None if row is None else json.loads(row["definition"])

    async def find_workflow(
        self, workflow_id: str, version: int | None, tenant: str = DEFAULT_TENANT
    ) -> StoredWorkflow | None:
        params = {"workflow_id": workflow_id, "version": version, "tenant": tenant}
        row = await self.session.row(_SQL["find_workflow"], params)
        return None if row is None else StoredWorkflow(*row)

    async def resolve_value(self, value: JsonText) -> JsonValue:
        return json.loads(await self._blobs.read(value.ref)) if value.ref is not None else value.value()

    async def _load_rows(self, rows: list[asyncpg.Record]) -> list[ClaimedJob]:
        # A job that never started has no nodes yet.
        begun = [row["id"] for row in rows if row["status"] != JobStatus.PENDING]
        nodes: dict[int, list[NodeRow]] = {}
        tasks: dict[int, dict[str, str]] = {}
        if begun:
            for row in await self.session.fetch(_SQL["load_nodes"], {"job_ids": begun}):
                nodes.setdefault(row["job_id"], []).append(node_row(row))
                if row["task_id"] is not None:
                    tasks.setdefault(row["job_id"], {})[row["node_id"]] = str(row["task_id"])
        batches = {row["id"]: await self.load_batches(str(row["id"])) for row in rows if row["has_grown"]}
        return [
            claimed_job(row, nodes.get(row["id"], ()), tasks.get(row["id"], {}), batches.get(row["id"], ()))
            for row in rows
        ]

    async def load_batches(self, job_id: str, numbers: Collection[int] | None = None) -> list[StoredBatch]:
        return await added_nodes.load_batches(self.session, job_id, numbers)
