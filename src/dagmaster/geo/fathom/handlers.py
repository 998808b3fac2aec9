"""The FATHOM handlers: list tiles, stack them, group them into cells, merge and register those.

Finished work is known by its name (`result_names`).
"""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any, Final

from dagmaster.errors import BlobNotFound, invalid_input
from dagmaster.geo.fathom.depth_codes import band_name
from dagmaster.geo.fathom.filename_grammar import PATTERNS, Grammar, tile_bbox
from dagmaster.geo.fathom.params import (
    BandStack,
    BandStackParams,
    GridInventory,
    GridInventoryParams,
    PlannedCell,
    PlannedTile,
    SpatialMerge,
    SpatialMergeParams,
    StacRegistered,
    StacRegisterParams,
    TileInventory,
    TileInventoryParams,
)
from dagmaster.geo.fathom.planning import (
    check_listing,
    describe_held,
    describe_unstacked,
    find_cells,
    find_tiles,
    select_tiles,
    sort_by_return_period,
    split_incomplete,
    tile_sources,
)
from dagmaster.geo.fathom.result_names import (
    MERGE_HANDLER,
    STACK_HANDLER,
    band_uri,
    cell_uri,
    item_uri,
    stack_uri,
)
from dagmaster.geo.optional_imports import require_extra
from dagmaster.geo.provenance import Provenance
from dagmaster.geo.queues import HEAVY, LIGHT
from dagmaster.geo.result_uris import publish_file
from dagmaster.geo.rules.bounding_boxes import bbox_union
from dagmaster.geo.rules.datetimes import normalize_datetime
from dagmaster.geo.rules.stac_items import collection_link
from dagmaster.geo.source_files import LocalFile, local_file
from dagmaster.sdk.handler_context import HandlerContext
from dagmaster.sdk.handler_registry import handler

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence
    from pathlib import Path

    from dagmaster.geo.fathom.planning import Cell, TileFiles
    from dagmaster.ports.blob_uris import BlobUri
    from dagmaster.ports.storage import BlobInfo

OVERVIEW_RESAMPLING: Final = "nearest"
"""Averaging depths with water codes would be meaningless."""
MAX_REPORTED: Final = 100
ITEMS_PER_CALL: Final = 500
"""Items per catalog call."""


# ── Tiles ───────────────────────────────────────────────────────────────────────────────────────────────────


@handler("fathom.tile_inventory", queue=LIGHT, timeout_seconds=3600, aliases=["fathom_tile_inventory"])
def tile_inventory(ctx: HandlerContext, params: TileInventoryParams) -> TileInventory:
    """List the files below a prefix; return the tiles that are to be stacked, done or incomplete."""
    prefix = _resolve_prefix(ctx, params.prefix, params.zone)
    patterns = [params.pattern] if isinstance(params.pattern, str) else params.pattern
    listing = find_tiles(ctx.blobs.list_blobs(prefix), prefix.name, Grammar(patterns or PATTERNS))
    check_listing(listing, prefix, patterns or PATTERNS)
    selected = select_tiles(listing.tiles, params.bbox, params.where)
    complete, lacking = split_incomplete(selected, params.return_periods, params.incomplete)
    unfinished, done = _split_stacked(ctx, params, complete)
    limit = params.limit or len(unfinished)
    to_do, later = unfinished[:limit], unfinished[limit:]
    size = sum(tile.files[period].size for tile in to_do for period in params.return_periods)
    return TileInventory(
        tiles=[_plan_tile(tile, params.return_periods) for tile in to_do],
        done=done,
        planned=[tile.label for tile in [*to_do, *(tile for tile, _ in lacking), *later]],
        incomplete=[
            {"tile": tile.tile, "group": tile.group, "missing": [band_name(period) for period in missing]}
            for tile, missing in lacking
        ],
        unparsed=listing.unparsed[:MAX_REPORTED],
        counts={
            "files": sum(len(tile.files) for tile in listing.tiles),
            "unparsed": len(listing.unparsed),
            "tiles": len(listing.tiles),
            "unwanted": len(listing.tiles) - len(selected),
            "incomplete": len(lacking),
            "done": len(done),
            "to_do": len(to_do),
            "later": len(later),
        },
        megabytes=round(size / 1e6, 3),
    )


def _resolve_prefix(ctx: HandlerContext, prefix: str, zone: str) -> BlobUri:
    text = prefix.rstrip("/")
    if "://" in text or text.startswith("/"):
        return ctx.blobs.resolve(text)
    return ctx.blobs.in_zone(zone, text)


def _split_stacked(
    ctx: HandlerContext, params: TileInventoryParams, tiles: Sequence[TileFiles]
) -> tuple[list[TileFiles], list[dict[str, Any]]]:
    """Split tiles into those to stack and those that are done, with a single listing."""
    existing = set() if params.redo else _list_names(ctx, "fathom/stacks")
    to_do: list[TileFiles] = []
    done: list[dict[str, Any]] = []
    for tile in tiles:
        infos = {band_name(period): tile.files[period] for period in params.return_periods}
        uri = stack_uri(ctx, params, tile.tile, tile.group, infos)
        if uri.name in existing:
            done.append({**tile.label, "href": str(uri)})
        else:
            to_do.append(tile)
    return to_do, done


def _list_names(ctx: HandlerContext, folder: str) -> set[str]:
    return {info.uri.name for info in ctx.blobs.list_blobs(ctx.blobs.in_zone("silver", folder))}


def _plan_tile(tile: TileFiles, periods: Sequence[int]) -> PlannedTile:
    bbox = tile_bbox(tile.tile)
    return PlannedTile(
        tile=tile.tile, group=tile.group, facets=tile.facets, sources=tile_sources(tile, periods), bbox=bbox,
        footprint=bbox,
    )  # fmt: skip


# ── One tile ────────────────────────────────────────────────────────────────────────────────────────────────


@handler(
    STACK_HANDLER[0],
    version=STACK_HANDLER[1],
    queue=HEAVY,
    timeout_seconds=3600,
    aliases=["fathom_band_stack"],
)
def band_stack(ctx: HandlerContext, params: BandStackParams) -> BandStack:
    """Stack the maps of one tile at all return periods into one COG, shortest first; check the depths."""
    with require_extra("raster"):
        from dagmaster.geo.fathom.raster_layers import name_tile_in_errors, read_tags
        from dagmaster.geo.fathom.stack import write_stack
        from dagmaster.geo.gdal import explain_io_errors, gdal_env
        from dagmaster.geo.raster.cog_writer import check_cog
    bbox = tile_bbox(params.tile)
    hrefs = sort_by_return_period(params.sources)
    infos = {band: _find_source(ctx, band, href) for band, href in hrefs.items()}
    uri = stack_uri(ctx, params, params.tile, params.group, infos)
    info = ctx.blobs.find(uri)
    target = ctx.scratch / f"{params.tile}.tif"
    source_uris = {band: str(source.uri) for band, source in infos.items()}
    with name_tile_in_errors(params.tile, source_uris), gdal_env(ctx.share), explain_io_errors(target=target):
        if info is None:
            files = {band: local_file(ctx, source.uri) for band, source in infos.items()}

            def on_block(done: int, total: int) -> None:
                ctx.raise_if_cancelled()
                ctx.progress(done, total, f"stacking {params.tile}")

            report = write_stack(
                {band: file.path for band, file in files.items()},
                target,
                tile=params.tile,
                monotone=params.monotone,
                options=params.writer_options(OVERVIEW_RESAMPLING),
                share=ctx.share,
                tags={"sources": {band: [str(file.uri), file.sha256] for band, file in files.items()}},
                on_block=on_block,
            )
            check_cog(target)
            info = publish_file(ctx, target, uri)
        else:
            report = read_tags(local_file(ctx, uri).path, ctx.share)["depths"]
    return BandStack(
        tile=params.tile,
        group=params.group,
        facets=params.facets,
        href=str(uri),
        cog_url=str(uri),
        bands=list(infos),
        bbox=bbox,
        size_mb=round(info.size / 1e6, 6),
        violations=report["violations"],
        worst_cm=report["worst_cm"],
        mask_differences=report["mask_differences"],
        created=info.created,
    )


def _find_source(ctx: HandlerContext, band: str, href: str) -> BlobInfo:
    uri = ctx.blobs.resolve(href)
    info = ctx.blobs.find(uri)
    if info is None:
        raise invalid_input(f"{band}: there is no file at {uri}. Put it back, or list the tiles again")
    return info


# ── Cells ───────────────────────────────────────────────────────────────────────────────────────────────────


@handler("fathom.grid_inventory", queue=LIGHT, timeout_seconds=3600, aliases=["fathom_grid_inventory"])
def grid_inventory(ctx: HandlerContext, params: GridInventoryParams) -> GridInventory:
    """Group stacks by grid cell; return the cells to merge, those that are done, and those held back."""
    stacks = [*params.done, *(stack for stack in params.stacks if stack is not None)]
    if params.planned and not stacks:
        raise invalid_input(describe_unstacked(len(params.planned), params.failed))
    cells = find_cells(stacks, params.planned, params.cell_degrees)
    held = [cell for cell in cells if cell.is_held(params.lacking)]
    mergeable = [cell for cell in cells if not cell.is_held(params.lacking)]
    if held and not mergeable and not params.later:
        raise invalid_input(describe_held(held, params.failed))
    to_do, done = _split_merged(ctx, params, mergeable)
    return GridInventory(
        cells=[
            PlannedCell(
                cell=cell.cell, group=cell.group, facets=cell.facets, stacks=cell.stacks, bbox=cell.bbox,
                footprint=cell.bbox,
            )
            for cell in to_do
        ],
        done=done,
        held=[{"cell": cell.cell, "group": cell.group, "lacking": cell.lacking} for cell in held],
        counts={
            "stacks": len(stacks), "cells": len(cells), "done": len(done), "to_do": len(to_do),
            "held": len(held), "lacking_tiles": sum(len(cell.lacking) for cell in cells),
        },
    )  # fmt: skip


def _split_merged(
    ctx: HandlerContext, params: GridInventoryParams, cells: Sequence[Cell]
) -> tuple[list[Cell], list[dict[str, Any]]]:
    """Split cells into those to merge and those that are done, with a single listing."""
    existing = set() if params.redo else _list_names(ctx, "fathom/cells")
    to_do: list[Cell] = []
    done: list[dict[str, Any]] = []
    for cell in cells:
        uri = cell_uri(ctx, params, cell.cell, cell.group, cell.stacks)
        if item_uri(uri).name in existing:
            done.append({**cell.label, "href": str(uri)})
        else:
            to_do.append(cell)
    return to_do, done


# ── One cell ────────────────────────────────────────────────────────────────────────────────────────────────


@handler(
    MERGE_HANDLER[0],
    version=MERGE_HANDLER[1],
    queue=HEAVY,
    timeout_seconds=6 * 3600,
    aliases=["fathom_spatial_merge"],
)
def spatial_merge(ctx: HandlerContext, params: SpatialMergeParams) -> SpatialMerge:
    """Merge the stacks of one cell into one COG, band by band.

    A later attempt resumes at the unfinished band.
    """
    with require_extra("raster"):
        from dagmaster.geo.fathom import merge
        from dagmaster.geo.gdal import explain_io_errors, gdal_env
        from dagmaster.geo.raster.cog_writer import check_cog
    stacks = dict(sorted(params.stacks.items()))
    uri = cell_uri(ctx, params, params.cell, params.group, stacks)
    info = ctx.blobs.find(uri)
    target = ctx.scratch / f"{params.cell}.tif"
    with gdal_env(ctx.share), explain_io_errors(target=target):
        if info is None:
            files = {tile: local_file(ctx, ctx.blobs.resolve(href)) for tile, href in stacks.items()}
            canvas = merge.lay_out({tile: file.path for tile, file in files.items()}, ctx.share)
            bands = [_merge_band(ctx, canvas, band, uri) for band in range(1, len(canvas.bands) + 1)]
            ctx.progress(len(bands), len(bands) + 1, f"writing {params.cell}")
            tags = {"sources": {tile: [str(file.uri), file.sha256] for tile, file in files.items()}}
            options = params.writer_options(OVERVIEW_RESAMPLING)
            merge.combine_bands(canvas, bands, target, options=options, share=ctx.share, tags=tags)
            check_cog(target)
            info = publish_file(ctx, target, uri)
        # If another attempt published first, the item describes its file, not ours.
        file = LocalFile(uri=uri, path=target, size=info.size, sha256=info.sha256)
        file = file if info.created else local_file(ctx, uri)
        item = _build_item(ctx, params, file)
    # The item is published last: only a cell with an item counts as done.
    item_path = ctx.scratch / "item.json"
    item_path.write_text(json.dumps(item, sort_keys=True), encoding="utf-8")
    publish_file(ctx, item_path, item_uri(uri))
    band_names = [band["name"] for band in item["assets"]["data"]["bands"]]
    for band in range(1, len(band_names) + 1):
        ctx.blobs.delete(band_uri(uri, band))
    return SpatialMerge(
        cell=params.cell,
        group=params.group,
        facets=params.facets,
        href=str(uri),
        cog_url=str(uri),
        tiles=len(stacks),
        bands=band_names,
        bbox=[*bbox_union(tile_bbox(tile) for tile in stacks)],
        size_mb=round(file.size / 1e6, 6),
        created=info.created,
        item=item,
    )


def _build_item(ctx: HandlerContext, params: SpatialMergeParams, file: LocalFile) -> dict[str, Any]:
    from dagmaster.geo.fathom.raster_layers import read_tags
    from dagmaster.geo.stac.raster_item import ItemMetadata, raster_item

    year = params.facets.get("year", "")
    metadata = ItemMetadata(
        item_id=f"{params.group}-{params.cell}",
        href=str(file.uri),
        sha256=file.sha256,
        size=file.size,
        datetime=f"{year}-01-01" if year.isdecimal() else None,
        source_modified=0.0,
        properties={
            "fathom:cell": params.cell,
            **{f"fathom:{name}": value for name, value in params.facets.items()},
        },
    )
    sources = [(href, sha256) for href, sha256 in read_tags(file.path, ctx.share)["sources"].values()]
    return raster_item(file.path, ctx.share, metadata, Provenance.of_task(ctx, sources))


def _merge_band(ctx: HandlerContext, canvas: Any, band: int, uri: BlobUri) -> Path:
    """Return one merged band: from an earlier attempt, else merged now and published for a later one."""
    from dagmaster.geo.fathom import merge

    part_uri, band_count = band_uri(uri, band), len(canvas.bands)
    if band <= (ctx.checkpoint_data or {}).get("bands", 0) and ctx.blobs.find(part_uri) is not None:
        return local_file(ctx, part_uri).path

    def on_block(done: int, total: int) -> None:
        ctx.raise_if_cancelled()
        ctx.progress(band - 1 + done / total, band_count + 1, f"merging band {canvas.bands[band - 1]}")

    path = ctx.scratch / f"band{band}.tif"
    merge.merge_band(canvas, band, path, ctx.share, on_block)
    publish_file(ctx, path, part_uri)
    # No artifacts: each band is looked up by itself, so that a missing one does not cost the others.
    ctx.checkpoint(f"band {band}", {"bands": band})
    return path


# ── The catalog ─────────────────────────────────────────────────────────────────────────────────────────────


@handler("fathom.stac_register", queue=LIGHT, timeout_seconds=3600, aliases=["fathom_stac_register"])
def stac_register(ctx: HandlerContext, params: StacRegisterParams) -> StacRegistered:
    """Register the merged cells in the catalog: a collection, and one item per cell and group."""
    with require_extra("stac"):
        from dagmaster.geo.stac.item_builder import new_collection
    overrides = {} if params.when is None else {"datetime": normalize_datetime(params.when)}
    merged = [*params.done, *(cell for cell in params.merged if cell)]
    cells = sorted(merged, key=lambda cell: (cell["group"], cell["cell"]))
    collection = new_collection(params.collection_id, title=params.title, description=params.description)
    ctx.catalog.ensure_collection(collection)
    counts = {"created": 0, "updated": 0, "unchanged": 0}
    ids: list[str] = []
    for first in range(0, len(cells), ITEMS_PER_CALL):
        ctx.raise_if_cancelled()
        ctx.progress(first, len(cells), "registering items")
        batch = cells[first : first + ITEMS_PER_CALL]
        items = [_load_item(ctx, cell, params.collection_id, overrides) for cell in batch]
        registered = ctx.catalog.register(items)
        for name in counts:
            counts[name] += getattr(registered, name)
        ids += [item["id"] for item in items]
    return StacRegistered(collection_id=params.collection_id, item_ids=ids, **counts)


def _load_item(
    ctx: HandlerContext, cell: Mapping[str, Any], collection_id: str, overrides: Mapping[str, str]
) -> dict[str, Any]:
    """Return the item of a cell in its collection, from the output or from the file next to the COG."""
    item: dict[str, Any] = cell.get("item") or _read_item(ctx, str(cell["href"]))
    links = [collection_link(collection_id), *item["links"]]
    return {
        **item,
        "collection": collection_id,
        "links": links,
        "properties": {**item["properties"], **overrides},
    }


def _read_item(ctx: HandlerContext, href: str) -> dict[str, Any]:
    uri = item_uri(ctx.blobs.resolve(href))
    try:
        item: dict[str, Any] = json.loads(ctx.blobs.read(uri))
    except BlobNotFound as error:
        raise invalid_input(
            f"{href} has no item next to it at {uri}: merge its cell again (redo: true)"
        ) from error
    return item
