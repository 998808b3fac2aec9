"""The handlers that workflow files are checked with: of this machine, and published by workers."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any

from dagmaster.cli.options import load_registry
from dagmaster.cli.system import open_session
from dagmaster.records.handlers import usable
from dagmaster.sdk.handler_definitions import KnownHandlers, define_handler

if TYPE_CHECKING:
    import pathlib
    from collections.abc import Iterable

    from dagmaster.application.views import HandlerRecord
    from dagmaster.client.system import System
    from dagmaster.sdk.handler_catalog import HandlerCatalog


def known_handlers(modules: Iterable[str], data_dir: pathlib.Path | None) -> HandlerCatalog:
    """Return the handlers of this machine and, if needed, of the workers of the server or database."""

    def load() -> list[dict[str, Any]]:
        with open_session(data_dir) as session:
            views = session.run(list_all_handlers, migrate=True)
            return [_definition(view) for view in usable(views)]

    return KnownHandlers(load_registry(modules), load)


async def list_all_handlers(system: System) -> list[HandlerRecord]:
    from dagmaster.application.queries import handlers as queries

    views: list[HandlerRecord] = []
    cursor: str | None = None
    while True:
        page = await system.call(queries.list_handlers, cursor=cursor, limit=1_000)
        views += page.items
        cursor = page.next_cursor
        if cursor is None:
            return views


def _definition(view: HandlerRecord) -> dict[str, Any]:
    definition = define_handler(
        name=view.name,
        version=view.version,
        queue=view.default_queue,
        timeout_seconds=view.timeout_seconds,
        params=view.params,
        output=view.output,
    )
    return {**json.loads(definition.document), "aliases": list(view.aliases), "retry": view.retry}
