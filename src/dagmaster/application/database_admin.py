"""Administration of the database: its schema, its invariants, and its metrics counted again.

What takes long comes in parts: a caller asks for the next one with the cursor of the part before, shows
progress, and may stop at any time. Nothing about it is kept between two calls.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

from dagmaster.application.cursors import (
    LARGEST_INT,
    CursorKind,
    damaged_cursor,
    decode_cursor,
    encode_cursor,
)
from dagmaster.application.views.audit import AuditBatchView, AuditView
from dagmaster.application.views.health import SchemaVersionView, SchemaView
from dagmaster.application.views.metrics import MetricRebuildView
from dagmaster.errors import JobNotFound, SchemaVersionMismatch
from dagmaster.ports.invariant_audit import AuditedRows, AuditPosition

if TYPE_CHECKING:
    from dagmaster.ports.audit_trail import AuditTrail, ChangeOrigin
    from dagmaster.ports.invariant_audit import InvariantAuditor, Violation
    from dagmaster.ports.metric_rebuild import MetricRebuilder
    from dagmaster.ports.output_blobs import OutputBlobs
    from dagmaster.ports.schema_admin import RoleState, SchemaAdmin, SchemaState

MAX_VIOLATIONS: Final = 100
"""How many violations of one invariant are listed."""


@dataclass(frozen=True, slots=True, kw_only=True)
class DatabaseAdmin:
    """What administration works with."""

    schema: SchemaAdmin
    auditor: InvariantAuditor
    metrics: MetricRebuilder
    changes: AuditTrail
    outputs: OutputBlobs


# ── The schema ──


async def schema_state(admin: DatabaseAdmin) -> SchemaView:
    return _schema_view(await admin.schema.state())


async def schema_history(admin: DatabaseAdmin) -> list[SchemaVersionView]:
    """Return all versions that this code knows, oldest first."""
    return [
        SchemaVersionView(
            revision=version.revision, description=version.description, is_current=version.is_current
        )
        for version in await admin.schema.history()
    ]


async def migrate_schema(admin: DatabaseAdmin, *, origin: ChangeOrigin) -> SchemaView:
    """Upgrade the schema to the version of this code. A current one stays as it is."""
    before = await admin.schema.state()
    state = await admin.schema.migrate()
    if state != before:
        # After the migration: before the first one there is no table for it.
        entry = origin.entry("schema.migrate", "schema", state.version or "", {"before": before.version})
        await admin.changes.append([entry])
    return _schema_view(state)


def _schema_view(state: SchemaState) -> SchemaView:
    return SchemaView(version=state.version, newest_version=state.newest_version, is_usable=state.is_usable)


async def grant_roles(admin: DatabaseAdmin, *, is_exact: bool, origin: ChangeOrigin) -> RoleState | None:
    """Create the roles that are missing and grant their rights; None if the store has no roles.

    `is_exact`: take every right from the worker's role that this version does not need.
    """
    state = await admin.schema.apply_roles(is_exact=is_exact)
    if state is not None and is_exact and state.is_owner and not state.missing:
        entry = origin.entry("schema.roles", "schema", "roles", {"created": list(state.created)})
        await admin.changes.append([entry])
    return state


async def _check_schema(admin: DatabaseAdmin) -> None:
    """Raise `SchemaVersionMismatch`, with the remedy, unless this code can use the schema."""
    state = await admin.schema.state()
    if not state.is_usable:
        raise SchemaVersionMismatch(
            f"the schema has version {state.version or 'none'}, this code needs {state.newest_version}: run"
            " `dagmaster migrate`"
        )


# ── Invariants ──


async def audit_batch(
    admin: DatabaseAdmin, *, job_id: str | None = None, cursor: str | None = None
) -> AuditBatchView:
    """Check the invariants of the next batch of jobs, or of one job.

    A batch has at most a thousand jobs, and a bounded number of events unless it is one job. It is read in a
    separate snapshot; services may keep running.
    """
    if job_id is not None and not (job_id.isascii() and job_id.isdigit() and int(job_id) <= LARGEST_INT):
        raise JobNotFound(f"there is no job {job_id!r}")
    position = decode_cursor(CursorKind.INVARIANTS, cursor)
    jobs_total = None
    if position is None:
        await _check_schema(admin)
        jobs_total = await admin.auditor.count_jobs() if job_id is None else 1
    batch = await admin.auditor.check(None if position is None else _audit_position(*position), job_id=job_id)
    if job_id is not None and not batch.jobs:
        raise JobNotFound(f"there is no job {job_id!r}")
    return AuditBatchView(
        jobs_total=jobs_total,
        jobs_checked=batch.jobs,
        nodes_checked=batch.nodes,
        events_checked=batch.events,
        invariants_total=batch.invariants,
        violations=tuple(batch.violations),
        next_cursor=None
        if batch.next_position is None
        else encode_cursor(CursorKind.INVARIANTS, batch.next_position),
    )


def _audit_position(rows: object, start: object) -> AuditPosition:
    try:
        return AuditPosition(AuditedRows(str(rows)), int(str(start)))
    except ValueError:
        raise damaged_cursor() from None


class AuditSummary:
    """Adds up the batches of an audit."""

    def __init__(self) -> None:
        self.jobs_checked = self.jobs_total = 0
        self._nodes = self._events = self._invariants = 0
        self._violations: dict[str, list[Violation]] = {}

    def add(self, batch: AuditBatchView) -> None:
        self.jobs_checked += batch.jobs_checked
        self.jobs_total = max(self.jobs_total, batch.jobs_total or 0, self.jobs_checked)
        self._nodes += batch.nodes_checked
        self._events += batch.events_checked
        self._invariants = batch.invariants_total
        for violation in batch.violations:
            known = self._violations.setdefault(violation.invariant, [])
            if len(known) < MAX_VIOLATIONS:
                known.append(violation)

    def view(self) -> AuditView:
        return AuditView(
            is_valid=not self._violations,
            jobs_total=self.jobs_checked,
            nodes_total=self._nodes,
            events_total=self._events,
            invariants_total=self._invariants,
            violations=tuple(violation for known in self._violations.values() for violation in known),
        )


# ── Metrics ──


async def rebuild_metrics(
    admin: DatabaseAdmin, *, origin: ChangeOrigin, cursor: str | None = None
) -> MetricRebuildView:
    """Count all finished jobs again from their rows: the first call queues them, each counts some thousand.

    A caller that stops in between loses nothing: orchestrators count the rest.
    """
    position = decode_cursor(CursorKind.METRIC_REBUILD, cursor)
    if position is None:
        await _check_schema(admin)
        rebuild = await admin.metrics.start()
        await admin.changes.append([origin.entry("metrics.rebuild", "metrics", "all")])
    else:
        rebuild = int(position[0])
    counted = await admin.metrics.count(rebuild)
    return MetricRebuildView(
        counted_jobs=counted.counted,
        pending_jobs=counted.pending,
        next_cursor=None if counted.is_last else encode_cursor(CursorKind.METRIC_REBUILD, (rebuild,)),
    )
