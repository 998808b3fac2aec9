"""The client's store on PostgreSQL: submits jobs, sends commands, publishes workflows."""

from __future__ import annotations

import asyncio
import copy
import json
import socket
from typing import TYPE_CHECKING, Any, Final

from dagmaster.ports.command_kinds import CommandKind
from dagmaster.ports.job_records import Accepted
from dagmaster.store.postgres.added_nodes import copies_of, reserve_batch, unique_ids
from dagmaster.store.postgres.audit_trail import APPEND, entry_columns
from dagmaster.store.postgres.connection import Connection, GuardFailed
from dagmaster.store.postgres.connection_pool import PooledSession, TenantConnections
from dagmaster.store.postgres.handler_contracts import PostgresHandlerContracts
from dagmaster.store.postgres.job_columns import submitted_columns
from dagmaster.store.postgres.job_list import bigint
from dagmaster.store.postgres.machine_id_lease import Identity
from dagmaster.store.postgres.named_queries import (
    Query,
    queries,
    split_ids,
)
from dagmaster.store.postgres.request_store import PostgresRequestStore
from dagmaster.store.postgres.submit_statement import submission, submit_statement

if TYPE_CHECKING:
    from collections.abc import Collection, Mapping, Sequence

    from dagmaster.json_types import JsonValue
    from dagmaster.ports.added_nodes import BatchRows
    from dagmaster.ports.audit_trail import AuditEntry
    from dagmaster.ports.database_config import DatabaseConfig
    from dagmaster.ports.ids import Ids
    from dagmaster.ports.job_records import NewJob, StoredWorkflow
    from dagmaster.store.postgres.tenant_session import Session

_SQL = queries("client")
_ADDED = queries("added_nodes")
MAX_ID: Final = 2**63 - 1


class PostgresClientStore:
    """Accepts jobs and commands. An accepted one is on disk."""

    def __init__(self, config: DatabaseConfig, name: str = "dagmaster client") -> None:
        self.connection = Connection(config, name)
        self._tenant_connections = TenantConnections(config, f"{name}, of tenants")
        self.session: Session = self.connection
        self.identity = Identity(self.connection)
        self.contracts = PostgresHandlerContracts(self.session)
        self.requests = PostgresRequestStore(self.session)
        self._leasing = asyncio.Lock()

    def for_tenant(self, tenant: str) -> PostgresClientStore:
        view = copy.copy(self)
        view.session = PooledSession(self._tenant_connections, tenant)
        view.contracts = PostgresHandlerContracts(view.session)
        view.requests = PostgresRequestStore(view.session)
        return view

    async def open(self) -> None:
        """Connect, and lease a machine id for new ids."""
        await self.lease_ids()

    async def lease_ids(self) -> Ids:
        """Return a source of unique ids; lease a machine id for it, or renew the lease."""
        async with self._leasing:
            await self.identity.ensure_leased()
        return self.identity.ids

    async def close(self) -> None:
        """Release the machine id and close the connections."""
        await self.identity.release()
        await self._tenant_connections.close()
        await self.connection.close()

    async def put_graph(self, content_hash: str, definition: str) -> None:
        await self.session.fetch(_SQL["put_graph"], {"content_hash": content_hash, "definition": definition})

    async def submit(self, jobs: Sequence[NewJob], *, audit: Sequence[AuditEntry] = ()) -> list[Accepted]:
        if not jobs:
            return []
        row = await self.session.row(*submission(jobs, audit))
        stored = split_ids(None if row is None else row["ids"])
        known = await self._with_keys([job for job in jobs if job.id not in stored])
        accepted: list[Accepted] = []
        for job in jobs:
            if job.id in stored:
                accepted.append(Accepted(job.id, is_new=True))
            else:
                earlier = known.get((job.submitted_by, job.idempotency_key))
                if earlier is None:
                    # The job with this key was deleted between the two statements: now the key is free.
                    accepted += await self.submit([job], audit=[e for e in audit if e.object_id == job.id])
                else:
                    same = job.is_same(earlier["body_hash"])
                    accepted.append(Accepted(str(earlier["id"]), is_new=False, same=same))
        return accepted

    async def submit_graph(
        self, job: NewJob, rows: BatchRows, *, audit: Sequence[AuditEntry] = ()
    ) -> Accepted:
        """Store a job with the nodes of its graph in one transaction, unless its key is in use."""
        columns = submitted_columns([job]) | (entry_columns(audit) if audit else {})
        params = {name: column[0] for name, column in columns.items()}
        submit = submit_statement(is_single=True, is_audited=bool(audit))
        number = {"job_id": int(job.id)}
        before = [(submit, params), (_ADDED["first_batch"], number)]
        with unique_ids(rows):
            stored = await self.session.copy_in_transaction(before, copies_of(int(job.id), 1, rows))
        if stored:
            return Accepted(job.id, is_new=True)
        return (await self.find_duplicates([job]))[0]

    async def reserve_batch(self, job_id: str) -> int | None:
        reserved = await reserve_batch(self.session, _ADDED["reserve_job_batch"], {"job_id": int(job_id)})
        return None if reserved is None else reserved[1].number

    async def add_batch(
        self, job_id: str, number: int, rows: BatchRows, sent_by: str, *, audit: Sequence[AuditEntry] = ()
    ) -> str | None:
        params = {"job_id": int(job_id), "number": number}
        command = {"kind": CommandKind.ADD_NODES, "body": json.dumps({"batch": number}), "sent_by": sent_by}
        copies = copies_of(int(job_id), number, rows)
        before = [(_ADDED["mark_written"], params)]
        after = [(_SQL["send"], {**params, **command, **entry_columns(audit)})]
        with unique_ids(rows):
            stored = await self.session.copy_in_transaction(before, copies, after)
        return str(stored[0]["id"]) if stored else None

    async def find_duplicates(self, jobs: Sequence[NewJob]) -> list[Accepted]:
        keyed = [job for job in jobs if job.idempotency_key is not None]
        known = await self._with_keys(keyed)
        pairs = [(job, known.get((job.submitted_by, job.idempotency_key))) for job in keyed]
        return [
            Accepted(str(row["id"]), is_new=False, same=job.is_same(row["body_hash"]))
            for job, row in pairs
            if row
        ]

    async def _with_keys(self, jobs: Sequence[NewJob]) -> dict[tuple[str, str | None], Any]:
        if not jobs:
            return {}
        params = {
            "submitters": [job.submitted_by for job in jobs],
            "keys": [job.idempotency_key for job in jobs],
        }
        rows = await self.session.fetch(_SQL["jobs_with_keys"], params)
        return {(row["submitted_by"], row["idempotency_key"]): row for row in rows}

    async def send(
        self,
        job_id: str,
        kind: CommandKind,
        body: Mapping[str, JsonValue],
        sent_by: str,
        *,
        audit: Sequence[AuditEntry] = (),
    ) -> str | None:
        if not job_id.isdecimal() or int(job_id) > MAX_ID:
            return None
        params = {"job_id": int(job_id), "kind": kind, "body": json.dumps(body), "sent_by": sent_by}
        row = await self.session.row(_SQL["send"], params | entry_columns(audit))
        return None if row is None else str(row["id"])

    async def assign_queue(self, job_id: str, queue: str) -> bool:
        params = {"job_id": int(job_id), "queue": queue}
        return await self.session.row(_SQL["assign_queue"], params) is not None

    async def drain(
        self, service_id: str, *, grace_seconds: float | None = None, audit: Sequence[AuditEntry] = ()
    ) -> bool:
        return await self._change_drain(_SQL["drain"], service_id, {"grace_seconds": grace_seconds}, audit)

    async def undrain(self, service_id: str, *, audit: Sequence[AuditEntry] = ()) -> bool:
        return await self._change_drain(_SQL["undrain"], service_id, {}, audit)

    async def _change_drain(
        self, query: Query, service_id: str, params: Mapping[str, Any], audit: Sequence[AuditEntry]
    ) -> bool:
        number = bigint(service_id)
        if number is None:
            return False
        row = await self.session.row(query, {"service_id": number, **params, **entry_columns(audit)})
        return row is not None and row["services"] > 0

    async def expire_process(self, pid: int, *, lease_seconds: float, worker_lease_seconds: float) -> None:
        """Expire the leases of a dead process of this host: its jobs and tasks are reclaimed at once."""
        params = {"lease_seconds": lease_seconds, "worker_lease_seconds": worker_lease_seconds}
        await self.session.fetch(_SQL["expire_process"], {"host": socket.gethostname(), "pid": pid, **params})

    # ── Workflows ──

    async def publish(
        self,
        *workflows: StoredWorkflow,
        activate: bool = True,
        expected: Mapping[str, str] | None = None,
        audit: Sequence[AuditEntry] = (),
    ) -> bool:
        guards = _guards({workflow.workflow_id for workflow in workflows}, expected)
        statements: list[tuple[Any, Mapping[str, Any]]] = [(APPEND, entry_columns(audit))] if audit else []
        for workflow in workflows:
            params = workflow._asdict()
            statements.append((_SQL["put_workflow"], params))
            if activate:
                statements += [(_SQL["deactivate"], params), (_SQL["activate"], params)]
        return await self._change_workflows(guards, statements)

    async def activate(
        self,
        workflow_id: str,
        version: int,
        *,
        expected: Mapping[str, str] | None = None,
        audit: Sequence[AuditEntry] = (),
    ) -> bool:
        params = {"workflow_id": workflow_id, "version": version}
        change: list[tuple[Any, Mapping[str, Any]]] = [
            (_SQL["deactivate"], params),
            (_SQL["activate"], params),
        ]
        statements = [*change, (APPEND, entry_columns(audit))]
        return await self._change_workflows(_guards({workflow_id}, expected), statements)

    async def _change_workflows(
        self, guards: list[tuple[Any, Mapping[str, Any]]], statements: list[tuple[Any, Mapping[str, Any]]]
    ) -> bool:
        try:
            await self.session.execute_in_transaction([*guards, *statements], guards=len(guards))
        except GuardFailed:
            return False
        return True


def _guards(
    workflow_ids: Collection[str], expected: Mapping[str, str] | None
) -> list[tuple[Any, Mapping[str, Any]]]:
    """Return the statements before a change of workflows. Each is locked, in the same order by everybody."""
    names = sorted(workflow_ids)
    locks = [(_SQL["lock_workflow"], {"workflow_id": name}) for name in names]
    states = {name: state for name, state in (expected or {}).items() if name in workflow_ids}
    return [
        *locks,
        *((_SQL["workflow_is"], {"workflow_id": name, "state": state}) for name, state in states.items()),
    ]
