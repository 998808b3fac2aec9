"""The audit trail: list who changed what."""

from __future__ import annotations

from typing import TYPE_CHECKING

from dagmaster.application.cursors import CursorKind, next_cursor, start_page
from dagmaster.records.page import Page

if TYPE_CHECKING:
    from dagmaster.ports.audit_trail import AuditFilter, AuditRecord, AuditTrail


async def list_changes(
    trail: AuditTrail, audit_filter: AuditFilter, *, cursor: str | None = None, limit: int = 100
) -> Page[AuditRecord]:
    """List changes that match, newest first."""
    after = start_page(CursorKind.AUDIT_TRAIL, cursor, limit)
    records = await trail.entries(audit_filter, after=after, limit=limit)
    return Page(
        items=tuple(records),
        next_cursor=next_cursor(CursorKind.AUDIT_TRAIL, records, limit, lambda one: (int(one.entry_id),)),
    )
