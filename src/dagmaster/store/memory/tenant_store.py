"""Tenants in memory. The stores next to it have one tenant: this one is for tests of interfaces."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING, Any

from dagmaster.host.clocks import SystemClock
from dagmaster.ports.tenants import DEFAULT_TENANT
from dagmaster.records.tenants import TenantRecord
from dagmaster.store.memory.audit_trail import MemoryAuditTrail

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from dagmaster.ports.audit_trail import AuditEntry
    from dagmaster.ports.clock import Clock


class MemoryTenantStore:
    """Tenants in memory."""

    def __init__(self, clock: Clock | None = None, audit_trail: MemoryAuditTrail | None = None) -> None:
        self._clock = clock or SystemClock()
        self._audit_trail = audit_trail or MemoryAuditTrail(self._clock)
        self._tenants: dict[str, TenantRecord] = {}
        self.known = {"ddh", "arcgis"}
        """The platforms and the workflows that there are."""
        self._add(DEFAULT_TENANT, {"title": "The installation", "workflows": ["*"]}, "")

    async def all(self) -> Sequence[TenantRecord]:
        return [self._tenants[name] for name in sorted(self._tenants)]

    async def missing(
        self, platforms: Sequence[str], workflows: Sequence[str]
    ) -> tuple[Sequence[str], Sequence[str]]:
        known = {"*", *self.known}
        return [one for one in platforms if one not in known], [one for one in workflows if one not in known]

    async def create(
        self, name: str, changes: Mapping[str, Any], *, created_by: str, audit: Sequence[AuditEntry] = ()
    ) -> TenantRecord | None:
        if name in self._tenants:
            return None
        self._audit_trail.add(audit)
        return self._add(name, changes, created_by)

    async def change(
        self,
        name: str,
        changes: Mapping[str, Any],
        *,
        is_disabled: bool | None = None,
        audit: Sequence[AuditEntry] = (),
    ) -> TenantRecord | None:
        tenant, now = self._tenants.get(name), self._clock.now()
        if tenant is None:
            return None
        disabled_at = tenant.disabled_at
        if is_disabled is not None:
            disabled_at = (disabled_at or now) if is_disabled else None
        changed = replace(tenant, **_with_tuples(changes), disabled_at=disabled_at, updated_at=now)
        self._tenants[name] = changed
        self._audit_trail.add(audit)
        return changed

    def _add(self, name: str, changes: Mapping[str, Any], created_by: str) -> TenantRecord:
        now = self._clock.now()
        fields = {field: value for field, value in _with_tuples(changes).items() if value is not None}
        tenant = TenantRecord(name=name, **fields, created_at=now, created_by=created_by, updated_at=now)
        self._tenants[name] = tenant
        return tenant


def _with_tuples(changes: Mapping[str, Any]) -> dict[str, Any]:
    return {
        name: tuple(value) if isinstance(value, list | tuple) else value for name, value in changes.items()
    }
