"""Methods of clients about workflows, handlers, services, metrics, keys, the database and the audit trail."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final

from dagmaster.application.api_keys import id_of
from dagmaster.application.views.api_keys import ApiKeyView, NewApiKeyView
from dagmaster.application.views.audit import AuditBatchView
from dagmaster.application.views.audit_trail import AuditEntryView
from dagmaster.application.views.fleet import FleetView, OrchestratorView, QueueView, WorkerView
from dagmaster.application.views.handlers import HandlerTestView, HandlerView
from dagmaster.application.views.health import SchemaVersionView, SchemaView
from dagmaster.application.views.metrics import (
    FailureReport,
    MetricRebuildView,
    NodeMetricsReport,
    ThroughputReport,
    WorkflowMetricsReport,
)
from dagmaster.application.views.results import ActivateResult, DrainResult, PublishResult
from dagmaster.application.views.workflows import VersionView, WorkflowDetailView, WorkflowView
from dagmaster.client.answers import page_of, view_of, views_of

if TYPE_CHECKING:
    from collections.abc import Collection, Mapping, Sequence

    from dagmaster.application.commands.publication import WorkflowSource
    from dagmaster.client.connection import Answer, Connection
    from dagmaster.json_types import JsonValue
    from dagmaster.ports.api_keys import Scope
    from dagmaster.ports.audit_trail import AuditFilter
    from dagmaster.records.page import Page


ADMIN_SECONDS: Final = 600.0
"""How long a migration, a batch of an audit or the start of a rebuild may take."""


class SystemMethods:
    """What can be asked about everything but jobs."""

    connection: Connection

    # ── Workflows ──

    async def list_workflows(
        self, *, tag: str | None = None, cursor: str | None = None, limit: int = 100
    ) -> Page[WorkflowView]:
        """List the published workflows by id; with `tag`, those that have it."""
        return page_of(
            WorkflowView, await self.connection.get("workflows", tag=tag, cursor=cursor, limit=limit)
        )

    async def list_versions(
        self, workflow_id: str, *, cursor: str | None = None, limit: int = 100
    ) -> Page[VersionView]:
        """List the versions of a workflow, oldest first."""
        answer = await self.connection.get("workflows", workflow_id, "versions", cursor=cursor, limit=limit)
        return page_of(VersionView, answer)

    async def workflow_detail(self, workflow_id: str, version: int | None = None) -> WorkflowDetailView:
        """Return a version of a workflow (default: the active one, else the newest) with its redacted definition."""
        return view_of(
            WorkflowDetailView, await self.connection.get("workflows", workflow_id, version=version)
        )

    async def publish_workflows(
        self, sources: Sequence[WorkflowSource], *, replace: bool = False, activate: bool = True
    ) -> list[PublishResult]:
        """Publish workflow versions, all or none."""
        workflows = [{"definition": source.graph.definition, "file": source.file} for source in sources]
        body = {"workflows": workflows, "replace": replace, "activate": activate}
        answer = await self.connection.post("workflows", "batch", body=body, is_repeatable=True)
        return views_of(PublishResult, answer)

    async def activate_version(self, workflow_id: str, version: int) -> ActivateResult:
        """Make a published version the one that new jobs get."""
        path = ("workflows", workflow_id, "activate")
        return view_of(ActivateResult, await self.connection.post(*path, body={"version": version}))

    # ── Handlers ──

    async def list_handlers(self, *, cursor: str | None = None, limit: int = 100) -> Page[HandlerView]:
        """List the handlers that workers have published, by name."""
        return page_of(HandlerView, await self.connection.get("handlers", cursor=cursor, limit=limit))

    async def find_handler(self, name: str) -> HandlerView:
        """Return a published handler by its name or an alias."""
        return view_of(HandlerView, await self.connection.get("handlers", name))

    async def run_handler(
        self,
        name: str,
        params: Mapping[str, JsonValue],
        *,
        queue: str | None = None,
        timeout_seconds: float | None = None,
        wait_seconds: float = 10.0,
    ) -> HandlerTestView:
        """Run a handler once on a worker, as a job that lists leave out; wait for its outcome for a while."""
        body = {
            "params": dict(params),
            "queue": queue,
            "timeout_seconds": timeout_seconds,
            "wait_seconds": wait_seconds,
        }
        return view_of(HandlerTestView, await self.connection.post("handlers", name, "test", body=body))

    # ── Services ──

    async def fleet(self) -> FleetView:
        """Return the services that are alive or stopped within the last hour, and the queues with tasks."""
        return view_of(FleetView, await self.connection.get("fleet"))

    async def drain_service(self, service: str, *, grace_seconds: float | None = None) -> DrainResult:
        """Ask an orchestrator or a worker, by its id or HOST:PID, to claim nothing more."""
        body = {"grace_seconds": grace_seconds}
        answer = await self.connection.post("fleet", service, "drain", body=body, is_repeatable=True)
        return view_of(DrainResult, answer)

    async def undrain_service(self, service: str) -> DrainResult:
        """Let a service that drains claim again."""
        return view_of(
            DrainResult, await self.connection.post("fleet", service, "undrain", is_repeatable=True)
        )

    async def list_orchestrators(
        self, *, cursor: str | None = None, limit: int = 100
    ) -> Page[OrchestratorView]:
        """List the orchestrators that are alive or stopped within the last hour, by id."""
        return page_of(
            OrchestratorView, await self.connection.get("orchestrators", cursor=cursor, limit=limit)
        )

    async def list_workers(self, *, cursor: str | None = None, limit: int = 100) -> Page[WorkerView]:
        """List the workers that are alive or stopped within the last hour, by id."""
        return page_of(WorkerView, await self.connection.get("workers", cursor=cursor, limit=limit))

    async def list_queues(self, *, cursor: str | None = None, limit: int = 100) -> Page[QueueView]:
        """List the queues that have tasks, by name."""
        return page_of(QueueView, await self.connection.get("queues", cursor=cursor, limit=limit))

    # ── Metrics ──

    async def workflow_metrics(
        self, *, workflow_id: str | None = None, days: int = 7
    ) -> WorkflowMetricsReport:
        """Return how many jobs of each workflow completed and failed, how long they took, and why they failed."""
        answer = await self.connection.get("metrics", "workflows", workflow_id=workflow_id, days=days)
        return view_of(WorkflowMetricsReport, answer)

    async def node_metrics(self, workflow_id: str, *, days: int = 7) -> NodeMetricsReport:
        """Return how often each node of a workflow completed and failed, and how long it took."""
        path = ("metrics", "workflows", workflow_id, "nodes")
        return view_of(NodeMetricsReport, await self.connection.get(*path, days=days))

    async def failure_metrics(
        self, *, workflow_id: str | None = None, days: int = 7, limit: int = 20
    ) -> FailureReport:
        """Return the most frequent failures, grouped by their message."""
        query = {"workflow_id": workflow_id, "days": days, "limit": limit}
        return view_of(FailureReport, await self.connection.get("metrics", "failures", **query))

    async def throughput(self, *, hours: int = 24, bucket_minutes: int = 60) -> ThroughputReport:
        """Return how many jobs were submitted and finished over time."""
        query = {"hours": hours, "bucket_minutes": bucket_minutes}
        return view_of(ThroughputReport, await self.connection.get("metrics", "throughput", **query))

    # ── Keys ──

    async def create_key(
        self, name: str, scopes: Collection[Scope], *, days: float | None = None
    ) -> NewApiKeyView:
        """Create a key for a caller; `days`: how long it is valid."""
        body = {"name": name, "scopes": [str(scope) for scope in scopes], "days": days}
        return view_of(NewApiKeyView, await self.connection.post("keys", body=body))

    async def list_keys(self, *, cursor: str | None = None, limit: int = 100) -> Page[ApiKeyView]:
        """List keys, newest first."""
        return page_of(ApiKeyView, await self.connection.get("keys", cursor=cursor, limit=limit))

    async def revoke_key(self, key_id: str) -> ApiKeyView:
        """Revoke a key: requests with it are rejected within seconds."""
        return view_of(
            ApiKeyView, await self.connection.post("keys", id_of(key_id), "revoke", is_repeatable=True)
        )

    async def rotate_key(self, key_id: str, *, overlap_hours: float = 24.0) -> NewApiKeyView:
        """Create a key with the name, scopes and life of another, which is valid for some more hours."""
        path, body = ("keys", id_of(key_id), "rotate"), {"overlap_hours": overlap_hours}
        return view_of(NewApiKeyView, await self.connection.post(*path, body=body))

    # ── The database ──

    async def schema_state(self) -> SchemaView:
        """Return the version of the database's schema, and that of the server's code."""
        return view_of(SchemaView, await self.connection.get("admin", "schema"))

    async def schema_history(self) -> list[SchemaVersionView]:
        """Return all versions that the server knows, oldest first."""
        return views_of(SchemaVersionView, await self.connection.get("admin", "schema", "versions"))

    async def migrate_schema(self) -> SchemaView:
        """Upgrade the schema to the version of the server. A current one stays as it is."""
        return view_of(SchemaView, await self._administer("POST", "migrate"))

    async def audit_batch(self, *, job_id: str | None = None, cursor: str | None = None) -> AuditBatchView:
        """Check the invariants of the next batch of jobs, or of one job."""
        answer = await self._administer("GET", "invariants", job_id=job_id, cursor=cursor)
        return view_of(AuditBatchView, answer)

    async def rebuild_metrics(self, *, cursor: str | None = None) -> MetricRebuildView:
        """Count all finished jobs again: the first call queues them, each call counts some thousand."""
        return view_of(MetricRebuildView, await self._administer("POST", "metrics", "rebuild", cursor=cursor))

    async def _administer(self, method: str, *path: str, **params: Any) -> Answer:
        """Send a request that may take long, and has no other effect if it is repeated."""
        return await self.connection.request(
            method, ("admin", *path), params=params, is_repeatable=True, timeout_seconds=ADMIN_SECONDS
        )

    # ── The audit trail ──

    async def list_changes(
        self, audit_filter: AuditFilter, *, cursor: str | None = None, limit: int = 100
    ) -> Page[AuditEntryView]:
        """List changes that match, newest first."""
        query = {
            name: getattr(audit_filter, name) for name in ("actor", "action", "object_kind", "object_id")
        }
        return page_of(
            AuditEntryView, await self.connection.get("audit", **query, cursor=cursor, limit=limit)
        )
