"""Who sees which rows: the policies of every table that holds rows of a tenant.

They apply to the roles of servers and gateways, which set the tenant for each transaction. A transaction
without one sees nothing. Orchestrators and workers serve all tenants: their role is exempt, and so is the
owner of the tables.

A policy's name has a digest of its text: `migrate` leaves those that are as they should be, so that no table
is locked for nothing.
"""

from __future__ import annotations

import hashlib
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

PREFIX: Final = "tenant_"
READERS: Final = ("dagmaster_api", "dagmaster_gateway")
EXEMPT: Final = ("dagmaster_orchestrator", "dagmaster_worker")

# As a subquery it is evaluated once a statement, and not once a row.
_TENANT: Final = "(SELECT dagapp.dag_tenant())"
_ALL: Final = "(SELECT dagapp.dag_tenant() = '*')"
_OWN: Final = f"{_ALL} OR tenant = {_TENANT}"
_INSTALLATION: Final = f"{_TENANT} <> '' AND tenant = 'default'"
_OF_JOB: Final = f"{_ALL} OR EXISTS (SELECT FROM dagapp.dag_jobs j WHERE j.id = job_id)"

# A job that the same statement inserts is not there yet.
_OF_NEW_JOB: Final = f"{_ALL} OR coalesce(dagapp.dag_job_tenant(job_id), {_TENANT}) = {_TENANT}"


@dataclass(frozen=True, slots=True)
class Policy:
    """Which rows of a table a tenant sees, and which it may write; what it may insert, if that differs."""

    sees: str
    writes: str
    inserts: str = ""


def _same(condition: str) -> Policy:
    return Policy(condition, condition)


POLICIES: Final[Mapping[str, Policy]] = {
    **dict.fromkeys(
        (
            *("dag_jobs", "dag_api_keys", "dag_browser_sessions", "dag_audit", "dag_task_receipts"),
            *("dag_callbacks", "dag_external_services", "dag_signing_secrets"),
        ),
        _same(_OWN),
    ),
    **dict.fromkeys(
        (
            *("dag_node_states", "dag_task_attempts", "dag_task_queue", "dag_task_results", "dag_inbox"),
            *("dag_job_events", "dag_task_logs", "dag_checkpoints", "dag_node_batches", "dag_added_nodes"),
            *("dag_groups", "dag_dependencies", "dag_metric_pending"),
        ),
        Policy(_OF_JOB, _OF_JOB, inserts=_OF_NEW_JOB),
    ),
    # The services of the installation serve all tenants.
    "dag_workers": Policy(f"{_OWN} OR {_INSTALLATION}", _OWN),
    "dag_orchestrators": Policy(f"{_TENANT} <> ''", _ALL),
    # Contracts of the installation, and its own ones.
    "dag_handlers": Policy(f"{_OWN} OR {_INSTALLATION}", _OWN),
    **dict.fromkeys(("dag_handler_changes", "dag_handler_trust"), _same(_OWN)),
    # Orchestrators count.
    **dict.fromkeys(
        ("dag_metric_jobs", "dag_metric_nodes", "dag_metric_failures", "dag_metric_throughput"),
        Policy(_OWN, _ALL),
    ),
    # Its own ones, and the installation's that it may use.
    "dag_workflows": Policy(
        f"{_OWN} OR ({_INSTALLATION} AND"  # noqa: S608 - our own names
        " (SELECT t.workflows FROM dagapp.dag_tenants t WHERE t.name = dagapp.dag_tenant())"
        " && ARRAY['*', workflow_id])",
        _OWN,
    ),
    "dag_tenants": Policy(f"{_ALL} OR name = {_TENANT}", _ALL),
    "dag_platforms": Policy(
        f"{_ALL} OR (SELECT t.platforms FROM dagapp.dag_tenants t"  # noqa: S608 - our own names
        " WHERE t.name = dagapp.dag_tenant())"
        " && ARRAY['*', platform_id]",
        _ALL,
    ),
    **dict.fromkeys(("dag_api_requests", "dag_tenant_usage"), _same(_OWN)),
}
SHARED: Final = frozenset({"alembic_version", "dag_leases", "dag_secret_keys"})
"""Tables without rows of a tenant."""
HIDDEN: Final = frozenset({"dag_graphs", "dag_job_events_all", "dag_pool_slots", "dag_schedules"})
"""Tables that the roles of servers and gateways cannot read. Graphs are found by their hash: `dag_graph`.
Partitions are read through the table that they are part of, which has the policies."""


def wanted(table: str, policy: Policy) -> Iterator[tuple[str, str]]:
    """Return the policies of a table: names, and the statements that create them."""
    readers, exempt = ", ".join(READERS), ", ".join(EXEMPT)
    for part in (
        f"FOR SELECT TO {readers} USING ({policy.sees})",
        f"FOR INSERT TO {readers} WITH CHECK ({policy.inserts or policy.writes})",
        f"FOR UPDATE TO {readers} USING ({policy.writes}) WITH CHECK ({policy.writes})",
        f"FOR DELETE TO {readers} USING ({policy.writes})",
        f"TO {exempt} USING (true) WITH CHECK (true)",
    ):
        name = f"{PREFIX}{hashlib.sha256(part.encode()).hexdigest()[:12]}"
        yield name, f"CREATE POLICY {name} ON dagapp.{table} {part}"


async def apply_policies(connection: Any) -> None:
    """Create the policies that are missing, and drop others of earlier versions."""
    existing: dict[str, set[str]] = {}
    for row in await connection.fetch(
        "SELECT tablename, policyname FROM pg_policies WHERE schemaname = 'dagapp'"
    ):
        existing.setdefault(row["tablename"], set()).add(row["policyname"])
    for table, policy in POLICIES.items():
        names = dict(wanted(table, policy))
        present = existing.pop(table, set())
        for name in sorted(names.keys() - present):
            await connection.execute(names[name])
        for name in sorted(present - names.keys()):
            await connection.execute(f"DROP POLICY {name} ON dagapp.{table}")
        if names.keys() - present:
            await connection.execute(f"ALTER TABLE dagapp.{table} ENABLE ROW LEVEL SECURITY")
