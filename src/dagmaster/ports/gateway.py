"""What a gateway reads: a store whose database role can do nothing else."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Protocol

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from dagmaster.ports.callbacks import PublicKey
    from dagmaster.records.gateway import InternalEvent, InternalJobStatusResponse, InternalNodeStatus


@dataclass(frozen=True, slots=True, kw_only=True)
class DatabaseRights:
    """What the role of a connection may do."""

    is_limited: bool
    """Whether it sees the rows of one tenant only."""
    can_write: bool
    can_read_inputs: bool
    can_read_keys: bool


@dataclass(frozen=True, slots=True, kw_only=True)
class AliveServices:
    """How many services have a lease."""

    orchestrators: int
    workers: int


@dataclass(frozen=True, slots=True, kw_only=True)
class JobQueryRequest:
    """Which jobs are listed, and which of their page. `is_open`: those that have not ended."""

    status: str | None = None
    workflow_id: str | None = None
    limit: int = 50
    offset: int = 0
    include_nodes: bool = False
    is_open: bool = False


class GatewayStore(Protocol):
    """Reads on behalf of a tenant, or of all (`ports.tenants.ALL_TENANTS`)."""

    async def check_rights(self) -> DatabaseRights:
        """Return what the role may do; raise `DatabaseUnavailable` or `SchemaVersionMismatch`."""

    async def public_keys(self, key_set: str | None) -> Sequence[PublicKey]:
        """Return the public keys of a set, or of the installation."""

    async def alive_services(self) -> AliveServices:
        """Count orchestrators and workers that have a lease."""

    async def jobs(self, tenant: str, query: JobQueryRequest) -> list[InternalJobStatusResponse]:
        """Return a page of jobs, newest first."""

    async def job(self, tenant: str, job_id: str) -> InternalJobStatusResponse | None:
        """Return a job, if the tenant has it."""

    async def find_jobs(
        self, tenant: str, *, correlation_id: str | None, idempotency_key: str | None, limit: int
    ) -> list[InternalJobStatusResponse]:
        """Return the jobs with an id of the submitter or of a request, or with a key; newest first."""

    async def counts(self, tenant: str) -> Mapping[str, int]:
        """Return how many jobs have each status."""

    async def started_nodes(
        self, tenant: str, job_ids: Sequence[str], *, limit: int
    ) -> Mapping[str, list[InternalNodeStatus]]:
        """Return the nodes of jobs that have started, up to `limit` of each."""

    async def nodes(
        self, tenant: str, job_id: str, *, after: str, limit: int
    ) -> list[InternalNodeStatus] | None:
        """Return the nodes of a job by id, pending ones included; None if the tenant does not have it."""

    async def events(self, tenant: str, job_id: str, *, after: int, limit: int) -> list[InternalEvent] | None:
        """Return the events of a job, oldest first; None if the tenant does not have it."""
