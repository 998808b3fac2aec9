"""The steps of the vector handlers, as plain functions of a context and params."""

from __future__ import annotations

import hashlib
import json
from typing import TYPE_CHECKING, Any

import pyarrow as pa
import shapely

from dagmaster.errors import BlobNotFound, PermanentError, invalid_input
from dagmaster.geo.result_uris import publish_file, result_uri, safe_name
from dagmaster.geo.rules import arrow_features
from dagmaster.geo.rules.bounding_boxes import bbox_union
from dagmaster.geo.stac.item_builder import new_collection
from dagmaster.geo.vector import columns, dataset_files, generalization, items, preparation, readers
from dagmaster.geo.vector.models import (
    Chunk,
    Described,
    Generalized,
    GeometryRules,
    Prepared,
    PrepareParams,
    TableSchema,
    VectorSource,
)
from dagmaster.geo.vector.reprojection import crs_label, find_srid, lon_lat_bounds
from dagmaster.ports.table_schemas import TableSpec, check_table

if TYPE_CHECKING:
    from collections.abc import Callable

    from dagmaster.geo.vector.dataset_files import Fetched
    from dagmaster.geo.vector.generalization import Features
    from dagmaster.geo.vector.geometry_cleaning import CleaningReport
    from dagmaster.geo.vector.models import StacParams
    from dagmaster.sdk.handler_context import HandlerContext

NOT_IN_FINGERPRINT = frozenset({"dataset_id", "collection_id", "item_id", "title", "when", "item", "replace"})
"""Params that do not change the chunks."""


def prepare_source(ctx: HandlerContext, params: PrepareParams) -> Prepared:
    """Read a file of features and publish its chunks."""
    table = _table_name(ctx, params)
    source = dataset_files.fetch(ctx, params.uri(ctx), params.member)
    folder = ctx.scratch / "chunks"
    folder.mkdir(exist_ok=True)
    plan = preparation.TablePlan(
        table=table,
        rules=GeometryRules.model_validate(
            {name: getattr(params, name) for name in GeometryRules.model_fields}
        ),
        target_crs=params.target_crs,
        source_crs=params.source_crs,
        chunk_rows=params.chunk_rows,
        chunk_mb=params.chunk_mb,
    )

    def on_batch(read: int) -> None:
        ctx.raise_if_cancelled()
        ctx.progress(read, message=f"read {read:,} features")

    with readers.open_layer(source, params) as layer:
        prepared = preparation.prepare(layer, plan, folder, on_batch)
    prepared.report.counts["integers_as_text"] = source.wide_integers
    base_params = json.loads(params.model_dump_json(exclude=set(NOT_IN_FINGERPRINT), exclude_none=True))
    chunks, boxes = [], []
    for part in prepared.write(folder):
        ctx.raise_if_cancelled()
        result_params = {**base_params, "table": table, "chunk": part.chunk_id}
        uri = result_uri(
            ctx,
            part.chunk_id,
            ".parquet",
            sources=[source.sha256],
            params=result_params,
            folder=f"vector/{safe_name(table)}",
        )
        publish_file(ctx, part.path, uri)
        part.path.unlink()
        chunks.append(
            Chunk(
                # With the fingerprint: a late upload of an earlier run is not a chunk of this one.
                chunk_id=uri.stem,
                href=str(uri),
                rows=part.rows,
                bbox=None if part.bbox is None else list(part.bbox),
                footprint=lon_lat_bounds(part.bbox, prepared.target),
                table=table,
                source=_source_label(source, params),
                replace=params.replace,
            )
        )
        boxes += [part.bbox] if part.bbox is not None else []
        ctx.progress(len(chunks), len(prepared.pending), f"wrote chunk {part.chunk_id}")
    spec = prepared.spec
    report = prepared.report
    return Prepared(
        chunks=chunks,
        table=table,
        schema=TableSchema(
            columns=[
                {"name": name, "type": column_type, "source_name": prepared.source_names[name]}
                for name, column_type in spec.columns.items()
            ],
            geometry_column=spec.geometry_column,
            geometry_type=spec.geometry_type,
            srid=spec.srid,
        ),
        counts={"rows": prepared.rows, "chunks": len(chunks), **_counts(report)},
        problems=report.problems,
        crs=crs_label(prepared.target),
        source_crs=prepared.source_crs,
        bbox=lon_lat_bounds([*bbox_union(boxes)] if boxes else None, prepared.target),
        source=_source_facts(source),
        dataset_id=params.dataset_id,
    )


def save_prepared(ctx: HandlerContext, prepared: Prepared) -> str:
    """Publish what was prepared for a later attempt; return its href.

    A checkpoint is too small for many chunks.
    """
    text = prepared.model_dump_json(by_alias=True).encode()
    path = ctx.scratch / "prepared.json"
    path.write_bytes(text)
    digest = hashlib.sha256(text).hexdigest()
    folder = f"vector/{safe_name(prepared.table)}"
    uri = result_uri(ctx, "prepared", ".json", sources=[digest], params={"task": ctx.task_id}, folder=folder)
    publish_file(ctx, path, uri)
    path.unlink()
    return str(uri)


def load_prepared(ctx: HandlerContext, href: str, *, done: int) -> Prepared | None:
    """Load what an earlier attempt prepared; None if it, or a chunk after the first `done`, is missing."""
    try:
        prepared = Prepared.model_validate_json(ctx.blobs.read(ctx.blobs.resolve(href)))
    except BlobNotFound:
        return None
    chunks = (ctx.blobs.resolve(chunk.href) for chunk in prepared.chunks[done:])
    return prepared if all(ctx.blobs.find(uri) is not None for uri in chunks) else None


def delete_prepared(ctx: HandlerContext, href: str) -> None:
    ctx.blobs.delete(ctx.blobs.resolve(href))


def upload_chunk(
    ctx: HandlerContext, table: str, chunk_id: str, href: str, *, source: str = "", replace: bool = False
) -> int:
    """Upload one chunk to its table in place of its earlier rows; return the number of rows."""
    uri = ctx.blobs.resolve(href)
    path = ctx.scratch / f"{safe_name(chunk_id)}.parquet"
    try:
        ctx.blobs.fetch(uri, path, lambda done: ctx.progress(done, message=f"fetching {uri}"))
    except BlobNotFound as error:
        raise invalid_input(f"there is no chunk at {uri}: run vector.prepare again") from error
    chunk_spec, rows = arrow_features.read_chunk(path)
    path.unlink()
    spec = TableSpec(
        name=table,
        columns=chunk_spec.columns,
        geometry_type=chunk_spec.geometry_type,
        srid=chunk_spec.srid,
        geometry_column=chunk_spec.geometry_column,
        source=source,
    )
    ctx.tables.create(spec, replace=replace)
    return ctx.tables.replace_chunk(table, chunk_id, rows)


def register_table(ctx: HandlerContext, params: StacParams) -> Described:
    """Remove the chunks of earlier runs, and register the table."""
    removed = 0
    if params.chunks is not None:
        kept_ids = [chunk if isinstance(chunk, str) else chunk.chunk_id for chunk in params.chunks]
        removed = ctx.tables.keep_only(params.table, kept_ids)
    info = ctx.tables.describe(params.table)
    if info is None:
        raise invalid_input(f"there is no table {params.table}: upload its chunks first")
    if params.expected_rows is not None and info.rows != params.expected_rows:
        raise PermanentError(
            f"the table {params.table} has {info.rows:,} rows, expected {params.expected_rows:,}: chunks are"
            " missing, or another process writes to it",
            kind="rows_missing",
        )
    item_id = params.item_id or safe_name(params.table)
    item = items.table_item(
        ctx,
        info,
        item_id=item_id,
        collection_id=params.collection_id,
        title=params.title,
        when=params.when,
        source=params.source,
    )
    # A catalog is searched by place: a table without extent has no entry, and a former one is out of date.
    has_extent = info.bbox is not None
    if has_extent:
        ctx.catalog.ensure_collection(
            new_collection(params.collection_id, description=f"Tables of features of {params.collection_id}.")
        )
        ctx.catalog.register([item])
    elif ctx.catalog.item(params.collection_id, item_id) is not None:
        ctx.catalog.remove(params.collection_id, [item_id])
    return Described(
        item=item,
        item_id=item_id,
        collection_id=params.collection_id,
        table=params.table,
        href=info.href,
        rows=info.rows,
        bbox=item.get("bbox"),
        is_registered=has_extent,
        removed_rows=removed,
    )


def generalize(
    ctx: HandlerContext,
    params: VectorSource,
    name: str,
    transform: Callable[[Features], tuple[Features, str]],
) -> Generalized:
    """Read a whole file, transform its features, and publish them as GeoParquet."""
    source = dataset_files.fetch(ctx, params.uri(ctx), params.member)

    def on_batch(read: int) -> None:
        ctx.raise_if_cancelled()
        ctx.progress(read, message=f"read {read:,} features")

    with readers.open_layer(source, params) as layer:
        before, report = generalization.load(layer, params.source_crs, on_batch)
    report.counts["integers_as_text"] = source.wide_integers
    ctx.raise_if_cancelled()
    after, method = transform(before)
    srid = find_srid(after.crs)
    if srid is None:
        raise invalid_input(
            f"the CRS of the file, {after.crs.name}, has no EPSG code, and the result needs one: reproject"
            " the file first, as with ogr2ogr -t_srs EPSG:…"
        )
    types = set(arrow_features.geometry_types(after.geometries))
    geometry_type = (
        next(iter(types)) if len(types) == 1 else preparation.table_geometry_type(types, "geometry")
    )
    spec = TableSpec(
        name="features",
        columns=after.column_types,
        geometry_type=geometry_type,
        srid=srid,
        geometry_column=columns.GEOMETRY,
    )
    wkb = pa.array(shapely.to_wkb(after.geometries, flavor="iso"), pa.binary())
    rows = pa.table([*after.rows.columns, wkb], names=[*after.rows.column_names, columns.GEOMETRY])
    path = ctx.scratch / "result.parquet"
    written = arrow_features.write_geoparquet(arrow_features.fit_to_table(rows, spec), path, spec)
    result_params = json.loads(params.model_dump_json(exclude={"item"}, exclude_none=True))
    uri = result_uri(
        ctx,
        f"{source.uri.stem}-{name}",
        ".parquet",
        sources=[source.sha256],
        params=result_params,
        folder="vector",
    )
    publish_file(ctx, path, uri)
    return Generalized(
        href=str(uri),
        rows=written.rows,
        source_rows=len(before.geometries),
        method=method,
        crs=crs_label(after.crs),
        bbox=lon_lat_bounds(written.bbox, after.crs),
        area_before=before.area(),
        area_after=after.area(),
        vertices_before=before.vertices,
        vertices_after=after.vertices,
        counts=_counts(report),
        problems=report.problems,
    )


def _counts(report: CleaningReport) -> dict[str, Any]:
    counts: dict[str, Any] = {name: count for name, count in sorted(report.counts.items()) if count}
    return {**counts, "invalid": dict(sorted(report.invalid.items()))}


def _table_name(ctx: HandlerContext, params: PrepareParams) -> str:
    if params.table and params.table_name and params.table != params.table_name:
        raise invalid_input("table and table_name differ: set only one of them")
    name = params.table or params.table_name
    return check_table(name) if name else columns.safe_column_name(params.uri(ctx).stem)


def _source_label(source: Fetched, params: VectorSource) -> str:
    """Return what a table remembers of its source: not the version, which may change."""
    parts = [f"{key} {name}" for key, name in (("member", params.member), ("layer", params.layer)) if name]
    return ", ".join([str(source.uri), *parts])


def _source_facts(source: Fetched) -> dict[str, Any]:
    return {
        "href": str(source.uri),
        "sha256": source.sha256,
        "size": source.size,
        "modified": source.modified,
        "format": source.format,
    }
