"""Methods of clients about workflows, handlers, services, metrics, keys, the database and the audit trail."""

from __future__ import annotations

from dataclasses import asdict, replace
from typing import TYPE_CHECKING, Any, Final

from dagmaster.application.api_keys import NO_LIMITS, id_of
from dagmaster.application.tenants import NO_CHANGES
from dagmaster.application.views import (
    ActivateResult,
    ApiKeyView,
    AuditBatchView,
    AuditRecord,
    BrowserSessionView,
    DrainResult,
    FailureReport,
    FleetRecord,
    HandlerRecord,
    HandlerTestView,
    HandlerTrustView,
    MetricRebuildView,
    NewApiKeyView,
    NodeMetricsReport,
    OrchestratorRecord,
    PublishResult,
    QueueRecord,
    SchemaVersionView,
    SchemaView,
    TenantRecord,
    ThroughputReport,
    VersionRecord,
    WorkerRecord,
    WorkflowDetailView,
    WorkflowMetricsReport,
    WorkflowRecord,
)
from dagmaster.client.callback_methods import CallbackMethods
from dagmaster.client.methods import Request, get, post, returns, returns_list, returns_page
from dagmaster.ports.tenants import DEFAULT_TENANT

if TYPE_CHECKING:
    from collections.abc import Collection, Mapping, Sequence

    from dagmaster.application.commands.publication import WorkflowSource
    from dagmaster.application.tenants import TenantChanges
    from dagmaster.client.connection import Connection
    from dagmaster.json_types import JsonObject, JsonValue
    from dagmaster.ports.api_keys import KeyLimits, Scope
    from dagmaster.ports.audit_trail import AuditFilter


ADMIN_SECONDS: Final = 600.0
"""How long a migration, a batch of an audit or the start of a rebuild may take."""


class SystemMethods(CallbackMethods):
    """What can be asked about everything but jobs."""

    connection: Connection

    # ── Workflows ──

    @returns_page(WorkflowRecord)
    def list_workflows(
        self, *, tag: str | None = None, cursor: str | None = None, limit: int = 100
    ) -> Request:
        """List the published workflows by id; with `tag`, those that have it."""
        return get("workflows", tag=tag, cursor=cursor, limit=limit)

    @returns_page(VersionRecord)
    def list_versions(self, workflow_id: str, *, cursor: str | None = None, limit: int = 100) -> Request:
        """List the versions of a workflow, oldest first."""
        return get("workflows", workflow_id, "versions", cursor=cursor, limit=limit)

    @returns(WorkflowDetailView)
    def workflow_detail(self, workflow_id: str, version: int | None = None) -> Request:
        """Return a version of a workflow (default: the active one, else the newest), redacted."""
        return get("workflows", workflow_id, version=version)

    @returns_list(PublishResult)
    def publish_workflows(
        self,
        sources: Sequence[WorkflowSource],
        *,
        replace: bool = False,
        activate: bool = True,
        expected: Mapping[str, Collection[str]] | None = None,
    ) -> Request:
        """Publish workflow versions, all or none.

        `expected`: the states (`WorkflowDetailView.state`) of which a workflow must have one, by its id.
        """
        states = expected or {}
        workflows: list[dict[str, Any]] = [
            {"definition": source.graph.definition, "file": source.file}
            | ({"expected": [*states[name]]} if (name := source.graph.workflow_id) in states else {})
            for source in sources
        ]
        body = {"workflows": workflows, "replace": replace, "activate": activate}
        return post("workflows", "batch", body=body, is_repeatable=True)

    @returns(ActivateResult)
    def activate_version(
        self, workflow_id: str, version: int, *, expected: Collection[str] | None = None
    ) -> Request:
        """Make a published version the one that new jobs get. `expected`: as of `publish_workflows`."""
        request = post("workflows", workflow_id, "activate", body={"version": version})
        if expected is None:
            return request
        return replace(request, headers={"If-Match": ", ".join(f'"{state}"' for state in expected)})

    # ── Handlers ──

    @returns_page(HandlerRecord)
    def list_handlers(self, *, cursor: str | None = None, limit: int = 100) -> Request:
        """List the handlers that workers have published, by name."""
        return get("handlers", cursor=cursor, limit=limit)

    @returns(HandlerRecord)
    def find_handler(self, name: str) -> Request:
        """Return a published handler by its name or an alias."""
        return get("handlers", name)

    @returns(HandlerTestView)
    def run_handler(
        self,
        name: str,
        params: Mapping[str, JsonValue],
        *,
        queue: str | None = None,
        timeout_seconds: float | None = None,
        wait_seconds: float = 10.0,
    ) -> Request:
        """Run a handler once on a worker, as a job that lists leave out; wait for its outcome for a while."""
        body = {
            "params": dict(params),
            "queue": queue,
            "timeout_seconds": timeout_seconds,
            "wait_seconds": wait_seconds,
        }
        return post("handlers", name, "test", body=body)

    @returns(HandlerTrustView)
    def trust_handler(self, name: str, *, caller: str | None = None) -> Request:
        """Accept what a caller published of a handler: its workers get tasks of it."""
        return post("handlers", name, "trust", body={"caller": caller})

    @returns(HandlerTrustView)
    def distrust_handler(self, name: str, *, caller: str | None = None) -> Request:
        """Remove what a caller has of a handler: trust, changes that wait, its contract."""
        return post("handlers", name, "distrust", body={"caller": caller})

    # ── Services ──

    @returns(FleetRecord)
    def fleet(self) -> Request:
        """Return the services that are alive or stopped within the last hour, and the queues with tasks."""
        return get("fleet")

    @returns(DrainResult)
    def drain_service(self, service: str, *, grace_seconds: float | None = None) -> Request:
        """Ask an orchestrator or a worker, by its id or HOST:PID, to claim nothing more."""
        body = {"grace_seconds": grace_seconds}
        return post("fleet", service, "drain", body=body, is_repeatable=True)

    @returns(DrainResult)
    def undrain_service(self, service: str) -> Request:
        """Let a service that drains claim again."""
        return post("fleet", service, "undrain", is_repeatable=True)

    @returns_page(OrchestratorRecord)
    def list_orchestrators(self, *, cursor: str | None = None, limit: int = 100) -> Request:
        """List the orchestrators that are alive or stopped within the last hour, by id."""
        return get("orchestrators", cursor=cursor, limit=limit)

    @returns_page(WorkerRecord)
    def list_workers(self, *, cursor: str | None = None, limit: int = 100) -> Request:
        """List the workers that are alive or stopped within the last hour, by id."""
        return get("workers", cursor=cursor, limit=limit)

    @returns_page(QueueRecord)
    def list_queues(self, *, cursor: str | None = None, limit: int = 100) -> Request:
        """List the queues that have tasks, by name."""
        return get("queues", cursor=cursor, limit=limit)

    # ── Metrics ──

    @returns(WorkflowMetricsReport)
    def workflow_metrics(self, *, workflow_id: str | None = None, days: int = 7) -> Request:
        """Return how many jobs of each workflow completed or failed, how long they took, and their errors."""
        return get("metrics", "workflows", workflow_id=workflow_id, days=days)

    @returns(NodeMetricsReport)
    def node_metrics(self, workflow_id: str, *, days: int = 7) -> Request:
        """Return how often each node of a workflow completed and failed, and how long it took."""
        path = ("metrics", "workflows", workflow_id, "nodes")
        return get(*path, days=days)

    @returns(FailureReport)
    def failure_metrics(self, *, workflow_id: str | None = None, days: int = 7, limit: int = 20) -> Request:
        """Return the most frequent failures, grouped by their message."""
        query = {"workflow_id": workflow_id, "days": days, "limit": limit}
        return get("metrics", "failures", **query)

    @returns(ThroughputReport)
    def throughput(self, *, hours: int = 24, bucket_minutes: int = 60) -> Request:
        """Return how many jobs were submitted and finished over time."""
        query = {"hours": hours, "bucket_minutes": bucket_minutes}
        return get("metrics", "throughput", **query)

    # ── Keys ──

    @returns(NewApiKeyView)
    def create_key(
        self,
        name: str,
        scopes: Collection[Scope],
        *,
        days: float | None = None,
        limits: KeyLimits = NO_LIMITS,
        is_sandbox: bool = False,
        tenant: str = DEFAULT_TENANT,
    ) -> Request:
        """Create a key for a caller; `days`: how long it is valid; `limits`: what it is narrowed to.

        `is_sandbox`: its requests are played, and start nothing.
        """
        body: JsonObject = {"name": name, "scopes": [str(scope) for scope in scopes], "days": days}
        # A server of before does not know limits.
        body |= asdict(limits) if limits else {}
        body |= {"is_sandbox": True} if is_sandbox else {}
        body |= {"tenant": tenant} if tenant != DEFAULT_TENANT else {}
        return post("keys", body=body)

    @returns_list(BrowserSessionView)
    def list_sessions(self) -> Request:
        """List the sessions of browsers that have not ended, newest first."""
        return get("keys", "sessions")

    @returns(BrowserSessionView)
    def revoke_session(self, session_id: str) -> Request:
        """End a session of a browser: requests with it are rejected within seconds."""
        return post("keys", "sessions", session_id, "revoke", is_repeatable=True)

    @returns_page(ApiKeyView)
    def list_keys(self, *, cursor: str | None = None, limit: int = 100) -> Request:
        """List keys, newest first."""
        return get("keys", cursor=cursor, limit=limit)

    @returns(ApiKeyView)
    def revoke_key(self, key_id: str) -> Request:
        """Revoke a key: requests with it are rejected within seconds."""
        return post("keys", id_of(key_id), "revoke", is_repeatable=True)

    @returns(NewApiKeyView)
    def rotate_key(self, key_id: str, *, overlap_hours: float = 24.0) -> Request:
        """Create a key with the name, scopes and life of another, which is valid for some more hours."""
        path, body = ("keys", id_of(key_id), "rotate"), {"overlap_hours": overlap_hours}
        return post(*path, body=body)

    # ── Tenants ──

    @returns_list(TenantRecord)
    def list_tenants(self) -> Request:
        """List all tenants by name."""
        return get("tenants")

    @returns(TenantRecord)
    def show_tenant(self, name: str) -> Request:
        """Return a tenant."""
        return get("tenants", name)

    @returns(TenantRecord)
    def create_tenant(self, name: str, changes: TenantChanges = NO_CHANGES) -> Request:
        """Create a tenant."""
        return post("tenants", body={"name": name, **changes.fields})

    @returns(TenantRecord)
    def set_tenant(self, name: str, changes: TenantChanges) -> Request:
        """Change the fields of a tenant that are named."""
        disabled = {} if changes.is_disabled is None else {"is_disabled": changes.is_disabled}
        return post("tenants", name, body={**changes.fields, **disabled}, is_repeatable=True)

    # ── The database ──

    @returns(SchemaView)
    def schema_state(self) -> Request:
        """Return the version of the database's schema, and that of the server's code."""
        return get("admin", "schema")

    @returns_list(SchemaVersionView)
    def schema_history(self) -> Request:
        """Return all versions that the server knows, oldest first."""
        return get("admin", "schema", "versions")

    @returns(SchemaView)
    def migrate_schema(self) -> Request:
        """Upgrade the schema to the version of the server. A current one stays as it is."""
        return _administer("POST", "migrate")

    @returns(AuditBatchView)
    def audit_batch(self, *, job_id: str | None = None, cursor: str | None = None) -> Request:
        """Check the invariants of the next batch of jobs, or of one job."""
        return _administer("GET", "invariants", job_id=job_id, cursor=cursor)

    @returns(MetricRebuildView)
    def rebuild_metrics(self, *, cursor: str | None = None) -> Request:
        """Count all finished jobs again: the first call queues them, each call counts some thousand."""
        return _administer("POST", "metrics", "rebuild", cursor=cursor)

    # ── The audit trail ──

    @returns_page(AuditRecord)
    def list_changes(
        self, audit_filter: AuditFilter, *, cursor: str | None = None, limit: int = 100
    ) -> Request:
        """List changes that match, newest first."""
        query = {
            name: getattr(audit_filter, name) for name in ("actor", "action", "object_kind", "object_id")
        }
        return get("audit", **query, cursor=cursor, limit=limit)


def _administer(method: str, *path: str, **params: Any) -> Request:
    """Send a request that may take long, and has no other effect if it is repeated."""
    return Request(
        method=method,
        path=("admin", *path),
        params=params,
        is_repeatable=True,
        timeout_seconds=ADMIN_SECONDS,
    )
