"""The client's store in memory. It behaves like the one on PostgreSQL: both pass `tests/conformance`."""

from __future__ import annotations

import json
from dataclasses import replace
from typing import TYPE_CHECKING

from dagmaster.engine.status import JobStatus
from dagmaster.ports.command_kinds import CommandKind
from dagmaster.ports.job_records import Accepted
from dagmaster.records.workflows import state_of
from dagmaster.store.memory import added_nodes
from dagmaster.store.memory.handler_contracts import MemoryHandlerContracts
from dagmaster.store.memory.no_requests import NoRequests
from dagmaster.store.memory.read_rows import versions_of

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from dagmaster.json_types import JsonValue
    from dagmaster.ports.added_nodes import BatchRows
    from dagmaster.ports.audit_trail import AuditEntry
    from dagmaster.ports.ids import Ids
    from dagmaster.ports.job_records import NewJob, StoredWorkflow
    from dagmaster.store.memory.database import MemoryDatabase, StoredService


class MemoryClientStore:
    """Accepts jobs and commands in memory."""

    def __init__(self, database: MemoryDatabase) -> None:
        self.database = database
        self.ids = database.new_ids()
        self.audit_trail = database.audit_trail
        self.contracts = MemoryHandlerContracts(database)
        self.requests = NoRequests()

    def for_tenant(self, tenant: str) -> MemoryClientStore:
        del tenant
        return self

    async def lease_ids(self) -> Ids:
        return self.ids

    async def put_graph(self, content_hash: str, definition: str) -> None:
        self.database.graphs.setdefault(content_hash, definition)

    async def submit(self, jobs: Sequence[NewJob], *, audit: Sequence[AuditEntry] = ()) -> list[Accepted]:
        database = self.database
        accepted: list[Accepted] = []
        for job in jobs:
            earlier = database.keys.get((job.submitted_by, job.idempotency_key or ""))
            if earlier is None:
                database.add_job(job, database.clock.now(), job.submitted_by or "anonymous")
                accepted.append(Accepted(job.id, is_new=True))
            else:
                same = job.is_same(database.jobs[earlier].new.body_hash)
                accepted.append(Accepted(earlier, is_new=False, same=same))
        stored = {job.job_id for job in accepted if job.is_new}
        self.audit_trail.add(entry for entry in audit if entry.object_id in stored)
        if stored:
            database.notify("jobs")
        return accepted

    async def submit_graph(
        self, job: NewJob, rows: BatchRows, *, audit: Sequence[AuditEntry] = ()
    ) -> Accepted:
        if not await self.find_duplicates([job]):
            added_nodes.check_ids(self.database, rows)
        accepted = (await self.submit([job], audit=audit))[0]
        if accepted.is_new:
            stored = self.database.jobs[job.id]
            added_nodes.write(stored, added_nodes.reserve(stored).number, rows, accepted_order=1)
        return accepted

    async def reserve_batch(self, job_id: str) -> int | None:
        job = self.database.jobs.get(job_id)
        return None if job is None else added_nodes.reserve(job).number

    async def add_batch(
        self, job_id: str, number: int, rows: BatchRows, sent_by: str, *, audit: Sequence[AuditEntry] = ()
    ) -> str | None:
        added_nodes.check_ids(self.database, rows)
        job = self.database.jobs.get(job_id)
        if job is None or number not in job.batches or not added_nodes.write(job, number, rows):
            return None
        return await self.send(job_id, CommandKind.ADD_NODES, {"batch": number}, sent_by, audit=audit)

    async def find_duplicates(self, jobs: Sequence[NewJob]) -> list[Accepted]:
        database = self.database
        duplicates: list[Accepted] = []
        for job in jobs:
            earlier = database.keys.get((job.submitted_by, job.idempotency_key or ""))
            if job.idempotency_key is not None and earlier is not None:
                same = job.is_same(database.jobs[earlier].new.body_hash)
                duplicates.append(Accepted(earlier, is_new=False, same=same))
        return duplicates

    async def send(
        self,
        job_id: str,
        kind: CommandKind,
        body: Mapping[str, JsonValue],
        sent_by: str,
        *,
        audit: Sequence[AuditEntry] = (),
    ) -> str | None:
        database = self.database
        if job_id not in database.jobs:
            return None
        command_id = str(database.add_command(job_id, kind, json.dumps(body), sent_by, database.clock.now()))
        self.audit_trail.add(audit, command_id=command_id)
        return command_id

    async def assign_queue(self, job_id: str, queue: str) -> bool:
        job = self.database.jobs.get(job_id)
        if job is None or job.owner_id is not None or job.row.status is JobStatus.RUNNING:
            return False
        job.new = replace(job.new, queue=queue)
        self.database.notify("jobs")
        return True

    async def drain(
        self, service_id: str, *, grace_seconds: float | None = None, audit: Sequence[AuditEntry] = ()
    ) -> bool:
        service, now = self._registered(service_id), self.database.clock.now()
        if service is None:
            return False
        if service.drain_requested_at is None:
            service.drain_requested_at = now
        service.drain_deadline_at = None if grace_seconds is None else now + grace_seconds
        self._on_drain_change(service_id, audit)
        return True

    async def undrain(self, service_id: str, *, audit: Sequence[AuditEntry] = ()) -> bool:
        service = self._registered(service_id)
        if service is None or service.drain_requested_at is None:
            return False
        service.drain_requested_at = service.drain_deadline_at = service.drain_seen_at = None
        self._on_drain_change(service_id, audit)
        return True

    def _registered(self, service_id: str) -> StoredService | None:
        database = self.database
        service = database.workers.get(service_id) or database.orchestrators.get(service_id)
        return service if service is not None and service.stopped_at is None else None

    def _on_drain_change(self, service_id: str, audit: Sequence[AuditEntry]) -> None:
        self.audit_trail.add(audit)
        self.database.notify(f"worker {service_id}", "drain")
        self.database.notify(f"owner {service_id}", "drain")

    async def publish(
        self,
        *workflows: StoredWorkflow,
        activate: bool = True,
        expected: Mapping[str, str] | None = None,
        audit: Sequence[AuditEntry] = (),
    ) -> bool:
        if not self._is_unchanged(expected):
            return False
        self.audit_trail.add(audit)
        for workflow in workflows:
            key = (workflow.workflow_id, workflow.version)
            if self.database.workflows.get(key) != workflow:
                self.database.published_at[key] = self.database.clock.now()
            self.database.workflows[key] = workflow
            if activate:
                self.database.active[workflow.workflow_id] = workflow.version
        return True

    async def activate(
        self,
        workflow_id: str,
        version: int,
        *,
        expected: Mapping[str, str] | None = None,
        audit: Sequence[AuditEntry] = (),
    ) -> bool:
        if not self._is_unchanged(expected):
            return False
        self.audit_trail.add(audit)
        if (workflow_id, version) in self.database.workflows:
            self.database.active[workflow_id] = version
        return True

    def _is_unchanged(self, expected: Mapping[str, str] | None) -> bool:
        return all(
            state_of(versions_of(self.database, workflow_id)) == state
            for workflow_id, state in (expected or {}).items()
        )
