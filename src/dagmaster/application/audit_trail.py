"""The audit trail: list who changed what."""

from __future__ import annotations

from typing import TYPE_CHECKING

from dagmaster.application.cursors import CursorKind, next_cursor, start_page
from dagmaster.application.views.audit_trail import AuditEntryView
from dagmaster.records.page import Page

if TYPE_CHECKING:
    from dagmaster.ports.audit_trail import AuditFilter, AuditRecord, AuditTrail


async def list_changes(
    trail: AuditTrail, audit_filter: AuditFilter, *, cursor: str | None = None, limit: int = 100
) -> Page[AuditEntryView]:
    """List changes that match, newest first."""
    after = start_page(CursorKind.AUDIT_TRAIL, cursor, limit)
    records = await trail.entries(audit_filter, after=after, limit=limit)
    return Page(
        items=tuple(map(_view, records)),
        next_cursor=next_cursor(CursorKind.AUDIT_TRAIL, records, limit, lambda record: (record.entry_id,)),
    )


def _view(record: AuditRecord) -> AuditEntryView:
    entry = record.entry
    key_id = entry.details.get("key_id")
    return AuditEntryView(
        entry_id=str(record.entry_id),
        at=record.at,
        actor=entry.actor,
        key_id=None if key_id is None else str(key_id),
        action=entry.action,
        object_kind=entry.object_kind,
        object_id=entry.object_id,
        request_id=entry.request_id,
        details={name: value for name, value in entry.details.items() if name != "key_id"},
    )
