"""The vector handlers: prepare, upload, register, simplify, dissolve, and all of it in one task."""

from __future__ import annotations

from typing import Any

from dagmaster.errors import PermanentError
from dagmaster.geo.optional_imports import require_extra
from dagmaster.geo.queues import HEAVY, LIGHT
from dagmaster.geo.vector.models import (
    Completed,
    CompleteParams,
    Described,
    DissolveParams,
    Generalized,
    Prepared,
    PrepareParams,
    Registered,
    SimplifyParams,
    StacParams,
    Uploaded,
    UploadParams,
)
from dagmaster.sdk.handler_context import HandlerContext
from dagmaster.sdk.handler_registry import handler


@handler("vector.prepare", version="4", queue=HEAVY, timeout_seconds=7200, aliases=["vector_prepare"])
def prepare(ctx: HandlerContext, params: PrepareParams) -> Prepared:
    """Load a file of features, repair and reproject it, and split it into chunks for a table."""
    with require_extra("vector"):
        from dagmaster.geo.vector import pipeline
    return pipeline.prepare_source(ctx, params)


@handler("vector.upload_chunk", queue=LIGHT, timeout_seconds=1800, aliases=["vector_upload_chunk"])
def upload_chunk(ctx: HandlerContext, params: UploadParams) -> Uploaded:
    """Upload one chunk to its table, atomically replacing its earlier rows. Idempotent."""
    with require_extra("vector"):
        from dagmaster.geo.vector import pipeline
    chunk = params.chunk
    table = params.table or (chunk and chunk.table)
    chunk_id = params.chunk_id or (chunk and chunk.chunk_id)
    href = params.href or (chunk and chunk.href)
    if not (table and chunk_id and href):
        message = "name a chunk: an entry of the chunks of vector.prepare, or table, chunk_id and href"
        raise PermanentError(message, kind="invalid_params")
    source, replace = ("", False) if chunk is None else (chunk.source, chunk.replace)
    rows = pipeline.upload_chunk(ctx, table, chunk_id, href, source=source, replace=replace)
    return Uploaded(table=table, chunk_id=chunk_id, rows=rows)


@handler("vector.create_stac", version="3", queue=LIGHT, timeout_seconds=600, aliases=["vector_create_stac"])
def create_stac(ctx: HandlerContext, params: StacParams) -> Described:
    """Describe a table as a STAC item and register it. Chunks of earlier runs are removed first."""
    with require_extra("vector"):
        from dagmaster.geo.vector import pipeline
    return pipeline.register_table(ctx, params)


@handler("vector.simplify", version="4", queue=HEAVY, timeout_seconds=3600, aliases=["vector_simplify"])
def simplify(ctx: HandlerContext, params: SimplifyParams) -> Generalized:
    """Simplify geometries. Shared borders stay shared if the features form a coverage."""
    with require_extra("vector"):
        from dagmaster.geo.vector import generalization, pipeline
    return pipeline.generalize(
        ctx, params, "simplified", lambda features: generalization.simplify(features, params.tolerance)
    )


@handler("vector.dissolve", version="4", queue=HEAVY, timeout_seconds=3600, aliases=["vector_dissolve"])
def dissolve(ctx: HandlerContext, params: DissolveParams) -> Generalized:
    """Merge features with equal values, and sum columns."""
    with require_extra("vector"):
        from dagmaster.geo.vector import generalization, pipeline
    return pipeline.generalize(
        ctx, params, "dissolved", lambda features: generalization.dissolve(features, params.by, params.sums)
    )


@handler(
    "vector.process_complete",
    version="4",
    queue=HEAVY,
    timeout_seconds=14_400,
    aliases=["vector_docker_complete", "vector_process_complete"],
)
def process_complete(ctx: HandlerContext, params: CompleteParams) -> Completed:
    """Prepare, upload and register in one task. A later attempt resumes after the last uploaded chunk."""
    with require_extra("vector"):
        from dagmaster.geo.vector import pipeline
    checkpoint: dict[str, Any] = ctx.checkpoint_data or {}
    saved_href = str(checkpoint.get("kept", ""))
    prepared = pipeline.load_prepared(ctx, saved_href, done=int(checkpoint["done"])) if saved_href else None
    done = 0 if prepared is None else int(checkpoint["done"])
    if prepared is None:
        prepared = pipeline.prepare_source(ctx, params)
        saved_href = pipeline.save_prepared(ctx, prepared)
        ctx.checkpoint("prepared", {"kept": saved_href, "done": 0}, [saved_href])
    for number, chunk in enumerate(prepared.chunks[done:], done + 1):
        ctx.raise_if_cancelled()
        pipeline.upload_chunk(
            ctx, prepared.table, chunk.chunk_id, chunk.href, source=chunk.source, replace=chunk.replace
        )
        ctx.checkpoint(f"chunk {number}", {"kept": saved_href, "done": number}, [saved_href])
        ctx.progress(number, len(prepared.chunks), f"uploaded {chunk.chunk_id}")
    described = pipeline.register_table(
        ctx,
        StacParams(
            table=prepared.table,
            chunks=[chunk.chunk_id for chunk in prepared.chunks],
            collection_id=params.collection_id,
            item_id=params.item_id,
            title=params.title,
            when=params.when,
            source=prepared.source,
            expected_rows=prepared.counts["rows"],
        ),
    )
    pipeline.delete_prepared(ctx, saved_href)
    return Completed(
        **dict(Registered.model_validate(described, from_attributes=True)),
        chunks=len(prepared.chunks),
        resumed_from=done,
        schema=prepared.table_schema,
        counts=prepared.counts,
        crs=prepared.crs,
    )
