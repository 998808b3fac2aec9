"""Queries about the handlers that workers have published."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final

from dagmaster.application.cursors import CursorKind, next_cursor, start_page
from dagmaster.errors import HandlerNotFound
from dagmaster.errors.suggestions import did_you_mean
from dagmaster.records.handlers import INSTALLATION, usable
from dagmaster.records.page import Page
from dagmaster.sdk.handler_definitions import PublishedHandlers

if TYPE_CHECKING:
    from dagmaster.application.context import Application
    from dagmaster.records.handlers import HandlerRecord

PAGE: Final = 10_000
"""How many handlers are read at once, where all are read."""


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
    records = await _read_all(app)
    # A name of the installation wins over that of a caller, and a name over an alias.
    for record in sorted(records, key=lambda one: (one.owner != INSTALLATION, one.name != name)):
        if name in (record.name, *record.aliases):
            return record
    hint = did_you_mean(name, [record.name for record in records])
    raise HandlerNotFound(f"no worker has published a handler {name!r}{f': {hint}' if hint else ''}")


async def published_handlers(app: Application) -> PublishedHandlers:
    """Return what workflows are checked against."""
    documents = [contract_of(record) for record in await usable_handlers(app)]
    return PublishedHandlers(documents, app.default_queue)


async def usable_handlers(app: Application) -> list[HandlerRecord]:
    """Return the handlers against whose contracts workflows are checked."""
    return usable(await _read_all(app))


def contract_of(record: HandlerRecord) -> dict[str, Any]:
    """Return the contract of a handler: without the default queue if no administrator trusts it."""
    return {**record.definition, "queue": record.default_queue}


async def _read_all(app: Application) -> list[HandlerRecord]:
    """Return all published handlers: quotas of keys bound them, and no name hides another."""
    records = await app.read.handlers(limit=PAGE)
    while len(records) % PAGE == 0 and records:
        more = await app.read.handlers(after=(records[-1].name,), limit=PAGE)
        if not more:
            break
        records += more
    return records
