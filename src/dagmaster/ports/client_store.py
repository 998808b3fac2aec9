"""The client's port to the store: submit jobs, send commands, publish workflows."""

from __future__ import annotations

from typing import TYPE_CHECKING, Protocol

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from dagmaster.json_types import JsonValue
    from dagmaster.ports.added_nodes import BatchRows
    from dagmaster.ports.audit_trail import AuditEntry
    from dagmaster.ports.command_kinds import CommandKind
    from dagmaster.ports.handler_contracts import HandlerContracts
    from dagmaster.ports.ids import Ids
    from dagmaster.ports.job_records import Accepted, NewJob, StoredWorkflow
    from dagmaster.ports.requests import RequestStore


class ClientStore(Protocol):
    """What a client writes. It reads through the read store.

    `audit` is stored in the transaction of the change.
    """

    def for_tenant(self, tenant: str) -> ClientStore:
        """Return the store on behalf of a tenant: it changes only what the tenant sees."""

    @property
    def contracts(self) -> HandlerContracts:
        """Return whose contracts of handlers are."""

    @property
    def requests(self) -> RequestStore:
        """Return what stores requests; without PostgreSQL, nothing does."""

    async def lease_ids(self) -> Ids:
        """Return a source of unique ids for the next seconds; ask again before each use."""

    async def put_graph(self, content_hash: str, definition: str) -> None:
        """Store a graph, if it is not stored yet."""

    async def submit(self, jobs: Sequence[NewJob], *, audit: Sequence[AuditEntry] = ()) -> list[Accepted]:
        """Store jobs, in order.

        A job whose idempotency key is in use is not stored again, nor is its entry.
        """

    async def find_duplicates(self, jobs: Sequence[NewJob]) -> list[Accepted]:
        """Return what `submit` would return for the jobs whose idempotency key is in use."""

    async def submit_graph(
        self, job: NewJob, rows: BatchRows, *, audit: Sequence[AuditEntry] = ()
    ) -> Accepted:
        """Store a job with the nodes of its graph, all or nothing; not if its idempotency key is in use."""

    async def reserve_batch(self, job_id: str) -> int | None:
        """Return the number of a new batch of nodes for a job; None if there is no such job."""

    async def add_batch(
        self, job_id: str, number: int, rows: BatchRows, sent_by: str, *, audit: Sequence[AuditEntry] = ()
    ) -> str | None:
        """Store a batch and ask the owner of the job to accept it; return the id of the command.

        None if there is no such job, or the batch is stored already.
        """

    async def send(
        self,
        job_id: str,
        kind: CommandKind,
        body: Mapping[str, JsonValue],
        sent_by: str,
        *,
        audit: Sequence[AuditEntry] = (),
    ) -> str | None:
        """Put a command into a job's inbox; return its id, None if there is no such job.

        The audit event that the owner writes about the command has this id as `command_id`, and so have the
        entries.
        """

    async def assign_queue(self, job_id: str, queue: str) -> bool:
        """Give all tasks of a job to a queue of one process; return False if the job is not idle.

        A job is idle while no orchestrator owns it, and it has not started or has finished.
        """

    async def drain(
        self, service_id: str, *, grace_seconds: float | None = None, audit: Sequence[AuditEntry] = ()
    ) -> bool:
        """Ask an orchestrator or worker to claim nothing more; return False if none has this id.

        No claim that starts after this takes anything. `grace_seconds`: when a worker releases what still
        runs; None: it lets every task finish. A second request replaces that.
        """

    async def undrain(self, service_id: str, *, audit: Sequence[AuditEntry] = ()) -> bool:
        """Let a service claim again; return False if no registered one with this id was asked to drain."""

    async def publish(
        self,
        *workflows: StoredWorkflow,
        activate: bool = True,
        expected: Mapping[str, str] | None = None,
        audit: Sequence[AuditEntry] = (),
    ) -> bool:
        """Publish versions, all or none; with `activate` each becomes the version that new jobs get.

        `expected`: the states (`records.workflows.state_of`) that workflows must have, by their ids. If one
        has another, nothing is changed: return False.
        """

    async def activate(
        self,
        workflow_id: str,
        version: int,
        *,
        expected: Mapping[str, str] | None = None,
        audit: Sequence[AuditEntry] = (),
    ) -> bool:
        """Make a published version the one that new jobs get; return False as `publish` does."""
