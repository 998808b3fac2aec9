"""Entries of the audit trail as they were appended."""

from __future__ import annotations

from typing import TYPE_CHECKING

from dagmaster.ports.audit_trail import AuditEntry

if TYPE_CHECKING:
    from dagmaster.ports.audit_trail import AuditRecord


def appended(record: AuditRecord) -> AuditEntry:
    """Return the entry that was appended: with its key in its details."""
    key = {} if record.key_id is None else {"key_id": record.key_id}
    return AuditEntry(
        actor=record.actor,
        action=record.action,
        object_kind=record.object_kind,
        object_id=record.object_id,
        request_id=record.request_id,
        details={**key, **record.details},
    )
