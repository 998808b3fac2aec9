"""Answers that a browser saves as a file, sent in chunks."""

from __future__ import annotations

from typing import TYPE_CHECKING
from urllib.parse import quote

from starlette.responses import StreamingResponse

if TYPE_CHECKING:
    from collections.abc import AsyncIterable

    from dagmaster.application.queries.downloads import Download


def json_attachment(download: Download, *words: str) -> StreamingResponse:
    response = text_attachment(download.chunks, "application/json", ".json", *words)
    if download.bytes is not None:
        response.headers["Content-Length"] = str(download.bytes)
    return response


def text_attachment(
    chunks: AsyncIterable[bytes], media_type: str, suffix: str, *words: str
) -> StreamingResponse:
    name = quote("-".join(words), safe="")
    disposition = f"attachment; filename*=UTF-8''{name}{suffix}"
    return StreamingResponse(chunks, media_type=media_type, headers={"Content-Disposition": disposition})
