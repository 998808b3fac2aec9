"""A client store, and an owner that processes the commands sent to it, for tests of commands."""

from __future__ import annotations

import asyncio
import contextlib
import json
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from dagmaster.application.context import Application
from dagmaster.host.clocks import SystemClock
from dagmaster.host.snowflakes import Snowflakes
from dagmaster.ports.job_records import Accepted, StoredWorkflow
from dagmaster.ports.read_store import PendingCommand
from dagmaster.records.fleet import FleetCounts
from dagmaster.records.workflows import VersionRecord
from tests.unit.application.world import FakeBlobs, FakeReadStore, an_event

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Callable, Mapping, Sequence

    from dagmaster.ports.audit_events import StoredEvent
    from dagmaster.ports.audit_trail import AuditEntry
    from dagmaster.ports.command_kinds import CommandKind
    from dagmaster.ports.job_records import NewJob


@dataclass
class Reads(FakeReadStore):
    """A read store whose subscription wakes when the owner has processed a command."""

    owner: Callable[[], None] | None = None
    """Processes what is pending; called while a command waits. None: no notification ever comes."""
    orchestrators: int = 1
    has_notifications: bool = True
    timeouts: list[float] = field(default_factory=list)
    """The timeout of each wait."""

    async def fleet_counts(self) -> FleetCounts:
        return FleetCounts(self.orchestrators, 1)

    @contextlib.asynccontextmanager
    async def subscribe(self, job_id: str) -> AsyncIterator[Any]:
        yield self

    async def wait(self, timeout_seconds: float) -> bool:
        self.timeouts.append(timeout_seconds)
        if self.owner is None:
            await asyncio.sleep(timeout_seconds)
            return False
        self.owner()
        return True


@dataclass
class Client:
    """Keeps what is sent and submitted; publishes into the versions of a read store."""

    reads: Reads
    sent: list[tuple[str, CommandKind, Any, str]] = field(default_factory=list)
    jobs: list[NewJob] = field(default_factory=list)
    graphs: dict[str, str] = field(default_factory=dict)
    publishes: int = 0
    ids: Snowflakes = field(default_factory=lambda: Snowflakes(SystemClock()))

    async def lease_ids(self) -> Snowflakes:
        return self.ids

    async def put_graph(self, content_hash: str, definition: str) -> None:
        self.graphs[content_hash] = definition
        self.reads.definitions[content_hash] = json.loads(definition)

    async def submit(self, jobs: list[NewJob], audit: Sequence[AuditEntry] = ()) -> list[Accepted]:
        return [self._accept(job) for job in jobs]

    def _accept(self, job: NewJob) -> Accepted:
        for earlier in self.jobs:
            if job.idempotency_key and (earlier.submitted_by, earlier.idempotency_key) == (
                job.submitted_by,
                job.idempotency_key,
            ):
                return Accepted(earlier.id, is_new=False, same=earlier.body_hash == job.body_hash)
        self.jobs.append(job)
        return Accepted(job.id, is_new=True)

    async def send(
        self, job_id: str, kind: CommandKind, body: Any, sent_by: str, audit: Sequence[AuditEntry] = ()
    ) -> str:
        self.sent.append((job_id, kind, body, sent_by))
        command_id = str(len(self.sent))
        self.reads.commands.append(PendingCommand(command_id, kind, sent_by, 0.0))
        return command_id

    async def publish(
        self,
        *workflows: StoredWorkflow,
        activate: bool = True,
        expected: Mapping[str, str] | None = None,
        audit: Sequence[AuditEntry] = (),
    ) -> bool:
        self.publishes += 1
        for workflow in workflows:
            records = [
                record
                for record in self.reads.version_records
                if (record.workflow_id, record.version) != (workflow.workflow_id, workflow.version)
            ]
            self.reads.version_records = [*records, a_version(*workflow, is_active=False)]
            if activate:
                await self.activate(workflow.workflow_id, workflow.version)
        return True

    async def activate(
        self,
        workflow_id: str,
        version: int,
        *,
        expected: Mapping[str, str] | None = None,
        audit: Sequence[AuditEntry] = (),
    ) -> bool:
        self.reads.version_records = [
            a_version(
                record.workflow_id, record.version, record.content_hash, is_active=record.version == version
            )
            if record.workflow_id == workflow_id
            else record
            for record in self.reads.version_records
        ]
        return True


def a_version(workflow_id: str, version: int, content_hash: str, *, is_active: bool) -> VersionRecord:
    return VersionRecord(
        workflow_id=workflow_id,
        version=version,
        content_hash=content_hash,
        is_active=is_active,
        published_at=100.0,
    )


def an_app(reads: Reads, **values: Any) -> tuple[Application, Client]:
    """Return an application over these doubles, and its client store."""
    client = Client(reads)
    doubles: Any = {"read": reads, "client": client, "results": None, "blobs": FakeBlobs(), **values}
    return Application(**doubles), client


def processed(reads: Reads, *events: StoredEvent) -> None:
    """Let the owner process every pending command when it is next waited for, and write these events."""

    def process() -> None:
        reads.commands.clear()
        reads.stored_events.extend(events)
        reads.owner = lambda: None

    reads.owner = process


__all__ = ["Client", "Reads", "a_version", "an_app", "an_event", "processed"]
