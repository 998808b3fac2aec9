"""What the vector handlers do, step by step, with what they are lent. Plain functions of a context and params."""

from __future__ import annotations

import hashlib
import json
from typing import TYPE_CHECKING, Any

import pyarrow as pa
import shapely

from dagmaster.errors import BlobNotFound, PermanentError
from dagmaster.geo import arrow_features
from dagmaster.handlers.result_uris import plain_name, publish, result_uri
from dagmaster.handlers.stac.item_builder import new_collection
from dagmaster.handlers.vector import columns, dataset_files, generalization, items, preparation, readers
from dagmaster.handlers.vector.geometry_cleaning import lon_lat_bounds, short
from dagmaster.handlers.vector.models import (
    Chunk,
    Described,
    Generalized,
    GeometryRules,
    Prepared,
    PrepareParams,
    TableSchema,
    VectorSource,
)
from dagmaster.ports.tables import TableSpec, check_table

if TYPE_CHECKING:
    from collections.abc import Callable

    from dagmaster.authoring.handler_context import HandlerContext
    from dagmaster.handlers.vector.dataset_files import Fetched
    from dagmaster.handlers.vector.generalization import Features
    from dagmaster.handlers.vector.geometry_cleaning import Tally
    from dagmaster.handlers.vector.models import StacParams

NOT_SHAPING = frozenset({"dataset_id", "collection_id", "item_id", "title", "when", "item", "replace"})
"""Params that change nothing in the chunks."""


def prepare_source(ctx: HandlerContext, params: PrepareParams) -> Prepared:
    """Read a file of features into published chunks."""
    table = _table_name(ctx, params)
    source = dataset_files.fetch(ctx, params.uri(ctx), params.member)
    folder = ctx.scratch / "chunks"
    folder.mkdir(exist_ok=True)
    wanted = preparation.Wanted(
        table=table,
        rules=GeometryRules.model_validate({name: getattr(params, name) for name in GeometryRules.model_fields}),
        target_crs=params.target_crs,
        source_crs=params.source_crs,
        chunk_rows=params.chunk_rows,
        chunk_mb=params.chunk_mb,
    )

    def on_batch(read: int) -> None:
        ctx.raise_if_cancelled()
        ctx.progress(read, message=f"read {read:,} features")

    with readers.opened(source, params) as layer:
        ready = preparation.prepare(layer, wanted, folder, on_batch)
    shaping = json.loads(params.model_dump_json(exclude=set(NOT_SHAPING), exclude_none=True))
    chunks, boxes = [], []
    for part in ready.write(folder):
        ctx.raise_if_cancelled()
        told = {**shaping, "table": table, "chunk": part.chunk_id}
        place = result_uri(
            ctx, part.chunk_id, ".parquet", sources=[source.sha256], params=told, folder=f"vector/{plain_name(table)}"
        )
        publish(ctx, part.path, place)
        part.path.unlink()
        chunks.append(
            Chunk(
                # With its fingerprint: what an earlier run uploads late is no chunk of this one.
                chunk_id=place.stem,
                href=str(place),
                rows=part.rows,
                bbox=None if part.bbox is None else list(part.bbox),
                footprint=lon_lat_bounds(part.bbox, ready.target),
                table=table,
                source=_source_name(source, params),
                replace=params.replace,
            )
        )
        boxes += [part.bbox] if part.bbox is not None else []
        ctx.progress(len(chunks), len(ready.waiting), f"wrote chunk {part.chunk_id}")
    spec = ready.spec
    tally = ready.tally
    return Prepared(
        chunks=chunks,
        table=table,
        schema=TableSchema(
            columns=[
                {"name": name, "type": kind, "source_name": ready.renamed[name]} for name, kind in spec.columns.items()
            ],
            geometry_column=spec.geometry_column,
            geometry_type=spec.geometry_type,
            srid=spec.srid,
        ),
        counts={"rows": ready.rows, "chunks": len(chunks), **_counts(tally)},
        problems=tally.problems,
        crs=short(ready.target),
        source_crs=ready.source_crs,
        bbox=lon_lat_bounds(_around(boxes), ready.target),
        source=_told(source),
        dataset_id=params.dataset_id,
    )


def keep(ctx: HandlerContext, prepared: Prepared) -> str:
    """Keep what was prepared for another attempt; where. With a thousand chunks it is too much for each checkpoint."""
    text = prepared.model_dump_json(by_alias=True).encode()
    path = ctx.scratch / "prepared.json"
    path.write_bytes(text)
    digest = hashlib.sha256(text).hexdigest()
    folder = f"vector/{plain_name(prepared.table)}"
    place = result_uri(ctx, "prepared", ".json", sources=[digest], params={"task": ctx.task_id}, folder=folder)
    publish(ctx, path, place)
    path.unlink()
    return str(place)


def kept_before(ctx: HandlerContext, href: str) -> Prepared | None:
    """What an earlier attempt prepared. None: it is gone, so prepare it again."""
    try:
        return Prepared.model_validate_json(ctx.blobs.read(ctx.blobs.resolve(href)))
    except BlobNotFound:
        return None


def let_go(ctx: HandlerContext, href: str) -> None:
    """Take away what was kept: all of it is in the table."""
    ctx.blobs.delete(ctx.blobs.resolve(href))


def upload(
    ctx: HandlerContext, table: str, chunk_id: str, href: str, *, source: str = "", replace: bool = False
) -> int:
    """Put one chunk into its table, in the place of what it had; how many rows."""
    place = ctx.blobs.resolve(href)
    path = ctx.scratch / f"{plain_name(chunk_id)}.parquet"
    try:
        ctx.blobs.fetch(place, path, lambda done: ctx.progress(done, message=f"fetching {place}"))
    except BlobNotFound as error:
        raise PermanentError(f"there is no chunk at {place}", kind="invalid_input") from error
    said, rows = arrow_features.read_chunk(path)
    path.unlink()
    spec = TableSpec(
        name=table,
        columns=said.columns,
        geometry_type=said.geometry_type,
        srid=said.srid,
        geometry_column=said.geometry_column,
        source=source,
    )
    ctx.tables.create(spec, replace=replace)
    return ctx.tables.replace_chunk(table, chunk_id, rows)


def describe(ctx: HandlerContext, params: StacParams) -> Described:
    """Take away what earlier runs left, and register the table."""
    removed = 0
    if params.chunks is not None:
        kept = [one if isinstance(one, str) else one.chunk_id for one in params.chunks]
        removed = ctx.tables.keep_only(params.table, kept)
    info = ctx.tables.describe(params.table)
    if info is None:
        raise PermanentError(f"there is no table {params.table}: upload its chunks first", kind="invalid_input")
    if params.expected_rows is not None and info.rows != params.expected_rows:
        raise PermanentError(
            f"the table {params.table} has {info.rows:,} rows, and {params.expected_rows:,} were expected: not all of"
            " its chunks are there, or somebody else writes to it",
            kind="rows_missing",
        )
    item_id = params.item_id or plain_name(params.table)
    item = items.table_item(
        ctx,
        info,
        item_id=item_id,
        collection_id=params.collection_id,
        title=params.title,
        when=params.when,
        source=params.source,
    )
    ctx.catalog.ensure_collection(
        new_collection(params.collection_id, description=f"Tables of features of {params.collection_id}.")
    )
    ctx.catalog.register([item])
    return Described(
        item=item,
        item_id=item_id,
        collection_id=params.collection_id,
        table=params.table,
        href=info.href,
        rows=info.rows,
        bbox=item.get("bbox"),
        removed_rows=removed,
    )


def generalize(
    ctx: HandlerContext, params: VectorSource, name: str, change: Callable[[Features], tuple[Features, str]]
) -> Generalized:
    """Read all of a file, change it, and publish it as GeoParquet."""
    source = dataset_files.fetch(ctx, params.uri(ctx), params.member)

    def on_batch(read: int) -> None:
        ctx.raise_if_cancelled()
        ctx.progress(read, message=f"read {read:,} features")

    with readers.opened(source, params) as layer:
        before, tally = generalization.load(layer, params.source_crs, on_batch)
    ctx.raise_if_cancelled()
    after, method = change(before)
    srid = after.crs.to_epsg()
    if srid is None:
        raise PermanentError(f"the CRS {after.crs.name} has no EPSG code: reproject it first", kind="invalid_input")
    found = set(arrow_features.geometry_types(after.shapes))
    kind = next(iter(found)) if len(found) == 1 else preparation.table_type(found, "geometry")
    spec = TableSpec(
        name="features", columns=after.kinds, geometry_type=kind, srid=srid, geometry_column=columns.GEOMETRY
    )
    wkb = pa.array(shapely.to_wkb(after.shapes, flavor="iso"), pa.binary())
    rows = pa.table([*after.rows.columns, wkb], names=[*after.rows.column_names, columns.GEOMETRY])
    path = ctx.scratch / "result.parquet"
    written = arrow_features.write_geoparquet(arrow_features.fit_to_table(rows, spec), path, spec)
    told = json.loads(params.model_dump_json(exclude={"item"}, exclude_none=True))
    place = result_uri(
        ctx, f"{source.uri.stem}-{name}", ".parquet", sources=[source.sha256], params=told, folder="vector"
    )
    publish(ctx, path, place)
    return Generalized(
        href=str(place),
        rows=written.rows,
        source_rows=len(before.shapes),
        method=method,
        crs=short(after.crs),
        bbox=lon_lat_bounds(written.bbox, after.crs),
        area_before=before.area(),
        area_after=after.area(),
        vertices_before=before.vertices,
        vertices_after=after.vertices,
        counts=_counts(tally),
        problems=tally.problems,
    )


def _counts(tally: Tally) -> dict[str, Any]:
    counts: dict[str, Any] = {name: count for name, count in sorted(tally.counts.items()) if count}
    return {**counts, "invalid": dict(sorted(tally.invalid.items()))}


def _table_name(ctx: HandlerContext, params: PrepareParams) -> str:
    if params.table and params.table_name and params.table != params.table_name:
        raise PermanentError("table and table_name differ: give one of them", kind="invalid_input")
    said = params.table or params.table_name
    return check_table(said) if said else columns.plain_column(params.uri(ctx).stem)


def _source_name(source: Fetched, params: VectorSource) -> str:
    """What a table remembers: not the version, which may change."""
    named = [f"{what} {name}" for what, name in (("member", params.member), ("layer", params.layer)) if name]
    return ", ".join([str(source.uri), *named])


def _told(source: Fetched) -> dict[str, Any]:
    return {
        "href": str(source.uri),
        "sha256": source.sha256,
        "size": source.size,
        "modified": source.modified,
        "format": source.format,
    }


def _around(boxes: list[tuple[float, float, float, float]]) -> list[float] | None:
    if not boxes:
        return None
    west, south, east, north = zip(*boxes, strict=True)
    return [min(west), min(south), max(east), max(north)]
