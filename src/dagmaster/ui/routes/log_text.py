"""Reads as many chunks of a log as a page shows, and no more: one may have 64 KB, or one line."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final

from dagmaster.application.queries.events_and_logs import list_logs
from dagmaster.application.views import LogView, Page

if TYPE_CHECKING:
    from dagmaster.application.context import Application

MAX_CHUNKS: Final = 200
_STEPS: Final = 4


async def list_log_text(
    app: Application, job_id: str, *, max_characters: int, cursor: str | None = None, **selection: Any
) -> Page[LogView]:
    """List chunks until they have so many characters: one first, then as many as its length suggests."""
    chunks: list[LogView] = []
    characters, limit = 0, 1
    for _ in range(_STEPS):
        page = await list_logs(app, job_id, cursor=cursor, limit=limit, **selection)
        chunks += page.items
        characters += sum(len(chunk.text) for chunk in page.items)
        cursor = page.next_cursor
        if cursor is None or characters >= max_characters or len(chunks) >= MAX_CHUNKS:
            break
        missing = -(-(max_characters - characters) * len(chunks) // max(characters, 1))
        limit = min(max(missing, 1), MAX_CHUNKS - len(chunks))
    return Page(items=tuple(chunks), next_cursor=cursor)
