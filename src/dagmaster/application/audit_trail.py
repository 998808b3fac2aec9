"""The audit trail of the API: record changes, list them."""

from __future__ import annotations

import asyncio
import logging
from typing import TYPE_CHECKING

from dagmaster.application.cursors import CursorKind, next_cursor, start_page
from dagmaster.application.views.audit_trail import AuditEntryView
from dagmaster.application.views.page import Page
from dagmaster.errors import DagmasterError

if TYPE_CHECKING:
    from dagmaster.ports.audit_trail import AuditEntry, AuditFilter, AuditRecord, AuditTrail

_LOGGER = logging.getLogger("dagmaster.audit")


class AuditRecorder:
    """Stores entries together: those that arrive while others are written share the next statement."""

    def __init__(self, trail: AuditTrail) -> None:
        self._trail = trail
        self._pending: list[tuple[AuditEntry, asyncio.Future[None]]] = []
        self._writer: asyncio.Task[None] | None = None

    async def record(self, entry: AuditEntry) -> None:
        """Store an entry. One that cannot be stored is logged: the change that it is about was made."""
        stored: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        self._pending.append((entry, stored))
        if self._writer is None:
            self._writer = asyncio.create_task(self._write())
        # A request that is cancelled leaves its entry to the writer.
        await asyncio.shield(stored)

    async def _write(self) -> None:
        while self._pending:
            batch, self._pending = self._pending, []
            try:
                await self._trail.append([entry for entry, _ in batch])
            except DagmasterError as error:
                for entry, _ in batch:
                    _LOGGER.error("not in the audit trail: %s; %s", entry, error)  # noqa: TRY400 - the sentence says all
            for _, stored in batch:
                if not stored.done():
                    stored.set_result(None)
        self._writer = None


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
    return AuditEntryView(
        entry_id=str(record.entry_id),
        at=record.at,
        actor=entry.actor,
        action=entry.action,
        object_kind=entry.object_kind,
        object_id=entry.object_id,
        request_id=entry.request_id,
        details=dict(entry.details),
    )
