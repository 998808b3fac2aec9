"""Queries about the handlers that workers have published."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from dagmaster.application.cursors import CursorKind, next_cursor, start_page
from dagmaster.errors import HandlerNotFound
from dagmaster.errors.suggestions import did_you_mean
from dagmaster.records.page import Page
from dagmaster.sdk.handler_definitions import PublishedHandlers

if TYPE_CHECKING:
    from dagmaster.application.context import Application
    from dagmaster.records.handlers import HandlerRecord

MAX_HANDLERS: Final = 10_000
"""How many handlers are used to validate: more than any fleet has."""


async def list_handlers(
    app: Application, *, cursor: str | None = None, limit: int = 100
) -> Page[HandlerRecord]:
    records = await app.read.handlers(after=start_page(CursorKind.HANDLERS, cursor, limit), limit=limit)
    return Page(
        items=tuple(records),
        next_cursor=next_cursor(CursorKind.HANDLERS, records, limit, lambda record: (record.name,)),
    )


async def find_handler(app: Application, name: str) -> HandlerRecord:
    """Return a published handler by its name or an alias; raise `HandlerNotFound` with the nearest name."""
    records = await app.read.handlers(limit=MAX_HANDLERS)
    for record in sorted(records, key=lambda record: record.name != name):
        if name in (record.name, *record.aliases):
            return record
    hint = did_you_mean(name, [record.name for record in records])
    raise HandlerNotFound(f"no worker has published a handler {name!r}{f': {hint}' if hint else ''}")


async def published_handlers(app: Application) -> PublishedHandlers:
    records = await app.read.handlers(limit=MAX_HANDLERS)
    return PublishedHandlers((record.definition for record in records), app.default_queue)
