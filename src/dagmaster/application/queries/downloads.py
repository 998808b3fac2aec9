"""The values of a job as files: the output of a node, the result of a job.

A large one is never whole in memory.
"""

from __future__ import annotations

import asyncio
import codecs
import json
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from dagmaster.application.job_lookup import find_job
from dagmaster.application.node_lookup import find_node
from dagmaster.application.secret_inputs import redactor_of
from dagmaster.redaction import JsonTextRedactor, redact_value

if TYPE_CHECKING:
    from collections.abc import AsyncGenerator, Collection

    from dagmaster.application.context import Application


@dataclass(frozen=True, slots=True, kw_only=True)
class Download:
    """A JSON text in chunks. `bytes`: its length, if that is known before it is read."""

    chunks: AsyncGenerator[bytes]
    bytes: int | None


async def download_output(app: Application, job_id: str | None, node_id: str) -> Download:
    """Return the output of a node, or of one child of a fan-out; null if it has none.

    Raise `BlobNotFound` if it was deleted.
    """
    job = await find_job(app, job_id)
    graph = await app.outlines.get(job.content_hash)
    await find_node(app, job, graph, node_id)
    values = await app.read.node_values(job.job_id, node_id)
    secrets = [*redactor_of(graph.inputs, job).secrets, *values.hidden]
    return await _download(app, values.output, values.output_ref, secrets)


async def download_result(app: Application, job_id: str | None) -> Download:
    """Return the result of a job; null if it has none. Raise `BlobNotFound` if it was deleted."""
    job = await find_job(app, job_id)
    graph = await app.outlines.get(job.content_hash)
    return await _download(app, job.result, job.result_ref, redactor_of(graph.inputs, job).secrets)


async def _download(app: Application, value: Any, ref: str | None, secrets: Collection[str]) -> Download:
    if ref is None:
        text = json.dumps(redact_value(value, secrets)).encode()
        return Download(chunks=_one_chunk(text), bytes=len(text))
    # Before the first chunk: what does not exist is an error, not a file that breaks off.
    size = await app.blobs.size(ref)
    chunks = app.blobs.read_chunks(ref)
    if any(secrets):
        return Download(chunks=_redact_chunks(chunks, secrets), bytes=None)
    return Download(chunks=chunks, bytes=size)


async def _one_chunk(text: bytes) -> AsyncGenerator[bytes]:
    yield text


async def _redact_chunks(chunks: AsyncGenerator[bytes], secrets: Collection[str]) -> AsyncGenerator[bytes]:
    decoder = codecs.getincrementaldecoder("utf-8")(errors="replace")
    redactor = JsonTextRedactor(secrets)
    async for chunk in chunks:
        # On a thread: a chunk with many secrets would keep the event loop busy.
        if text := await asyncio.to_thread(redactor.feed, decoder.decode(chunk)):
            yield text.encode()
    yield redactor.feed(decoder.decode(b"", final=True), is_last=True).encode()
