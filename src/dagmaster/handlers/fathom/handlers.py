"""The FATHOM handlers: tiles found, stacked, gathered into cells, merged and registered.

What is done is known by its name: the fingerprint of a stack is of the size and the etag of each file, which a listing
tells, so that eight terabytes need not be read to learn that nothing changed. That of a cell is of its stacks' names.
"""

from __future__ import annotations

import json
from dataclasses import replace
from typing import TYPE_CHECKING, Any, Final

from dagmaster.authoring.handler_context import HandlerContext
from dagmaster.authoring.handler_registry import handler
from dagmaster.errors import BlobNotFound, PermanentError
from dagmaster.geo.datetimes import normalize_datetime
from dagmaster.geo.stac_items import collection_link
from dagmaster.handlers.fathom.depth_codes import band_name
from dagmaster.handlers.fathom.filename_grammar import PATTERNS, Grammar, bbox_of, union
from dagmaster.handlers.fathom.params import (
    BandStack,
    BandStackParams,
    GridInventory,
    GridInventoryParams,
    PlannedCell,
    PlannedTile,
    SpatialMerge,
    SpatialMergeParams,
    StackParams,
    StacRegistered,
    StacRegisterParams,
    TileInventory,
    TileInventoryParams,
)
from dagmaster.handlers.fathom.planning import find_cells, find_tiles, is_wanted, sources_of
from dagmaster.handlers.optional_imports import extra
from dagmaster.handlers.provenance import Made
from dagmaster.handlers.queues import HEAVY, LIGHT
from dagmaster.handlers.raster.cog_output import CogShape
from dagmaster.handlers.result_uris import publish, result_uri
from dagmaster.handlers.source_files import LocalFile, local_file

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence
    from pathlib import Path

    from dagmaster.handlers.fathom.planning import Cell, TileFiles
    from dagmaster.ports.storage import BlobInfo, BlobUri

STACK: Final = ("fathom.band_stack", "1")
MERGE: Final = ("fathom.spatial_merge", "2")
OVERVIEWS: Final = "nearest"
"""A mean of depths and of marks for water would be neither."""
MOST_TOLD: Final = 100
BATCH: Final = 500
"""How many items go to the catalog at a time."""


# ── Tiles ───────────────────────────────────────────────────────────────────────────────────────────────────────────


@handler("fathom.tile_inventory", queue=LIGHT, timeout_seconds=3600, aliases=["fathom_tile_inventory"])
def tile_inventory(ctx: HandlerContext, params: TileInventoryParams) -> TileInventory:
    """List the files below a prefix; tell which tiles are to be stacked, which are done, and which are incomplete."""
    prefix = _place(ctx, params.prefix, params.zone)
    patterns = [params.pattern] if isinstance(params.pattern, str) else params.pattern
    found = find_tiles(ctx.blobs.under(prefix), prefix.name, Grammar(patterns or PATTERNS))
    if not found.tiles:
        what = f"{len(found.unparsed):,} files, none of them with a name that fits" if found.unparsed else "nothing"
        raise PermanentError(
            f"there is {what} below {prefix}: expected names as {' or '.join(patterns or PATTERNS)}"
            + (f", not as {found.unparsed[0]}" if found.unparsed else ""),
            kind="invalid_input",
        )
    if found.twice:
        raise PermanentError(
            f"{len(found.twice):,} files have a name that says the same as another's: {found.twice[0]}. Expected one"
            " file for a tile and return period; name one layout as pattern",
            kind="invalid_input",
        )
    where = {name: [value] if isinstance(value, str) else value for name, value in params.where.items()}
    wanted = [tile for tile in found.tiles if is_wanted(tile, params.bbox, where)]
    lacking = [(tile, missing) for tile in wanted if (missing := tile.missing(params.return_periods))]
    if lacking and params.incomplete == "fail":
        tile, missing = lacking[0]
        raise PermanentError(
            f"{len(lacking):,} of {len(wanted):,} tiles are incomplete: {tile.tile} of {tile.group} lacks"
            f" {', '.join(map(band_name, missing))}",
            kind="invalid_input",
        )
    left_out = {id(tile) for tile, _ in lacking}
    complete = [tile for tile in wanted if id(tile) not in left_out]
    to_do, done = _split(ctx, params, complete)
    later = to_do[params.limit :] if params.limit else []
    to_do = to_do[: params.limit] if params.limit else to_do
    size = sum(tile.files[period].size for tile in to_do for period in params.return_periods)
    return TileInventory(
        tiles=[_planned(tile, params.return_periods) for tile in to_do],
        done=done,
        planned=[
            {"tile": tile.tile, "group": tile.group, "facets": tile.facets}
            for tile in [*to_do, *(tile for tile, _ in lacking), *later]
        ],
        incomplete=[
            {"tile": tile.tile, "group": tile.group, "missing": [band_name(one) for one in missing]}
            for tile, missing in lacking
        ],
        unparsed=found.unparsed[:MOST_TOLD],
        counts={
            "files": sum(len(tile.files) for tile in found.tiles),
            "unparsed": len(found.unparsed),
            "tiles": len(found.tiles),
            "unwanted": len(found.tiles) - len(wanted),
            "incomplete": len(lacking),
            "done": len(done),
            "to_do": len(to_do),
            "later": len(later),
        },
        megabytes=round(size / 1e6, 3),
    )


def _place(ctx: HandlerContext, prefix: str, zone: str) -> BlobUri:
    text = prefix.rstrip("/")
    if "://" in text or text.startswith("/"):
        return ctx.blobs.resolve(text)
    return ctx.blobs.in_zone(zone, text)


def _split(
    ctx: HandlerContext, params: TileInventoryParams, tiles: Sequence[TileFiles]
) -> tuple[list[TileFiles], list[dict[str, Any]]]:
    """What is to do, and what is done: one listing tells, however many tiles there are."""
    there = set() if params.redo else _names(ctx, "fathom/stacks")
    to_do: list[TileFiles] = []
    done: list[dict[str, Any]] = []
    for tile in tiles:
        infos = {band_name(period): tile.files[period] for period in params.return_periods}
        uri = _stack_uri(ctx, params, tile.tile, tile.group, infos)
        if uri.name in there:
            done.append({"tile": tile.tile, "group": tile.group, "facets": tile.facets, "href": str(uri)})
        else:
            to_do.append(tile)
    return to_do, done


def _names(ctx: HandlerContext, folder: str) -> set[str]:
    return {info.uri.name for info in ctx.blobs.under(ctx.blobs.in_zone("silver", folder))}


def _planned(tile: TileFiles, periods: Sequence[int]) -> PlannedTile:
    bbox = bbox_of(tile.tile)
    return PlannedTile(
        tile=tile.tile, group=tile.group, facets=tile.facets, sources=sources_of(tile, periods), bbox=bbox,
        footprint=bbox,
    )  # fmt: skip


# ── One tile ────────────────────────────────────────────────────────────────────────────────────────────────────────


@handler(STACK[0], version=STACK[1], queue=HEAVY, timeout_seconds=3600, aliases=["fathom_band_stack"])
def band_stack(ctx: HandlerContext, params: BandStackParams) -> BandStack:
    """Stack the maps of one tile at all return periods into one COG, the shortest first, and check their depths."""
    with extra("raster"):
        from dagmaster.handlers.fathom import stack
        from dagmaster.handlers.fathom.raster_layers import of_tile, read_tags
        from dagmaster.handlers.gdal import gdal, working
        from dagmaster.handlers.raster.cog_writer import check_cog
    bbox = bbox_of(params.tile)
    hrefs = _by_return_period(params.sources)
    infos = {band: _there(ctx, band, href) for band, href in hrefs.items()}
    uri = _stack_uri(ctx, params, params.tile, params.group, infos)
    found = ctx.blobs.find(uri)
    made = ctx.scratch / f"{params.tile}.tif"
    named = {band: str(info.uri) for band, info in infos.items()}
    with of_tile(params.tile, named), gdal(ctx.share), working(to=made):
        if found is None:
            files = {band: local_file(ctx, info.uri) for band, info in infos.items()}

            def watch(done: int, total: int) -> None:
                ctx.raise_if_cancelled()
                ctx.progress(done, total, f"stacking {params.tile}")

            depths = stack.stack(
                {band: file.path for band, file in files.items()},
                made,
                tile=params.tile,
                monotone=params.monotone,
                options=params.shaped(OVERVIEWS),
                share=ctx.share,
                tags={"sources": {band: [str(file.uri), file.sha256] for band, file in files.items()}},
                watch=watch,
            )
            check_cog(made)
            found = publish(ctx, made, uri)
        else:
            depths = read_tags(local_file(ctx, uri).path, ctx.share)["depths"]
    return BandStack(
        tile=params.tile,
        group=params.group,
        facets=params.facets,
        href=str(uri),
        cog_url=str(uri),
        bands=list(infos),
        bbox=bbox,
        size_mb=round(found.size / 1e6, 6),
        violations=depths["violations"],
        worst_cm=depths["worst_cm"],
        mask_differences=depths["mask_differences"],
        created=found.created,
    )


def _by_return_period(sources: Mapping[str, str]) -> dict[str, str]:
    found: dict[int, str] = {}
    for name, href in sources.items():
        digits = name.lower().removeprefix("1in").removeprefix("rp")
        if not digits.isdecimal() or int(digits) in found:
            raise PermanentError(
                f"{name!r} is no return period, or is there twice: expected sources as 1in5, 1in10, 1in20",
                kind="invalid_input",
            )
        found[int(digits)] = href
    return {band_name(period): found[period] for period in sorted(found)}


def _there(ctx: HandlerContext, band: str, href: str) -> BlobInfo:
    uri = ctx.blobs.resolve(href)
    info = ctx.blobs.find(uri)
    if info is None:
        raise PermanentError(f"{band}: there is no file at {uri}", kind="invalid_input")
    return info


def _stack_uri(
    ctx: HandlerContext, params: StackParams, tile: str, group: str, infos: Mapping[str, BlobInfo]
) -> BlobUri:
    said = {**_shape(params), "monotone": params.monotone}
    sources = [f"{band} {info.uri} {info.size} {info.etag or info.modified}" for band, info in infos.items()]
    return result_uri(ctx, tile, ".tif", sources=sources, params=said, folder=f"fathom/stacks/{group}", made_by=STACK)


def _shape(params: CogShape) -> dict[str, Any]:
    return {"compression": params.compression, "level": params.compression_level, "tile_size": params.tile_size}


# ── Cells ───────────────────────────────────────────────────────────────────────────────────────────────────────────


@handler("fathom.grid_inventory", queue=LIGHT, timeout_seconds=3600, aliases=["fathom_grid_inventory"])
def grid_inventory(ctx: HandlerContext, params: GridInventoryParams) -> GridInventory:
    """Tell which stacks belong to which cell of a grid, which cells are to be merged, and which are done."""
    stacks = [*params.done, *(one for one in params.stacks if one is not None)]
    cells = find_cells(stacks, params.planned, params.cell_degrees)
    held = [cell for cell in cells if not cell.stacks or (cell.lacking and params.lacking == "hold")]
    is_held = {id(cell) for cell in held}
    there = set() if params.redo else _names(ctx, "fathom/cells")
    to_do: list[Cell] = []
    done: list[dict[str, Any]] = []
    for cell in cells:
        if id(cell) in is_held:
            continue
        uri = _cell_uri(ctx, params, cell.cell, cell.group, cell.stacks)
        if _item_uri(uri).name in there:
            done.append({"cell": cell.cell, "group": cell.group, "facets": cell.facets, "href": str(uri)})
        else:
            to_do.append(cell)
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
            "stacks": len(stacks), "cells": len(cells), "done": len(done), "to_do": len(to_do), "held": len(held),
            "lacking_tiles": sum(len(cell.lacking) for cell in cells),
        },
    )  # fmt: skip


# ── One cell ────────────────────────────────────────────────────────────────────────────────────────────────────────


@handler(MERGE[0], version=MERGE[1], queue=HEAVY, timeout_seconds=6 * 3600, aliases=["fathom_spatial_merge"])
def spatial_merge(ctx: HandlerContext, params: SpatialMergeParams) -> SpatialMerge:
    """Merge the stacks of one cell into one COG, band by band. An attempt that follows another begins at its band."""
    with extra("raster"):
        from dagmaster.handlers.fathom import merge
        from dagmaster.handlers.gdal import gdal, working
        from dagmaster.handlers.raster.cog_writer import check_cog
    stacks = dict(sorted(params.stacks.items()))
    uri = _cell_uri(ctx, params, params.cell, params.group, stacks)
    found = ctx.blobs.find(uri)
    made = ctx.scratch / f"{params.cell}.tif"
    with gdal(ctx.share), working(to=made):
        if found is None:
            files = {tile: local_file(ctx, ctx.blobs.resolve(href)) for tile, href in stacks.items()}
            canvas = merge.lay_out({tile: file.path for tile, file in files.items()}, ctx.share)
            parts = [_part(ctx, canvas, band, uri) for band in range(1, len(canvas.bands) + 1)]
            ctx.progress(len(parts), len(parts) + 1, f"writing {params.cell}")
            tags = {"sources": {tile: [str(file.uri), file.sha256] for tile, file in files.items()}}
            merge.put_together(canvas, parts, made, options=params.shaped(OVERVIEWS), share=ctx.share, tags=tags)
            check_cog(made)
            found = publish(ctx, made, uri)
        # What was there is another's: the item is of that, not of what was made here.
        file = LocalFile(uri=uri, path=made, size=found.size, sha256=found.sha256)
        file = file if found.created else local_file(ctx, uri)
        item = _item(ctx, params, file)
    # After the file, and before it counts as done: an item is beside whatever is merged.
    beside = ctx.scratch / "item.json"
    beside.write_text(json.dumps(item, sort_keys=True), encoding="utf-8")
    publish(ctx, beside, _item_uri(uri))
    bands = [band["name"] for band in item["assets"]["data"]["bands"]]
    for band in range(1, len(bands) + 1):
        ctx.blobs.delete(_part_uri(uri, band))
    return SpatialMerge(
        cell=params.cell,
        group=params.group,
        facets=params.facets,
        href=str(uri),
        cog_url=str(uri),
        tiles=len(stacks),
        bands=bands,
        bbox=union([bbox_of(tile) for tile in stacks]),
        size_mb=round(file.size / 1e6, 6),
        created=found.created,
        item=item,
    )


def _item(ctx: HandlerContext, params: SpatialMergeParams, file: LocalFile) -> dict[str, Any]:
    from dagmaster.handlers.fathom.raster_layers import read_tags
    from dagmaster.handlers.stac.raster_item import Told, raster_item

    year = params.facets.get("year", "")
    told = Told(
        item_id=f"{params.group}-{params.cell}",
        href=str(file.uri),
        sha256=file.sha256,
        size=file.size,
        when=f"{year}-01-01" if year.isdecimal() else None,
        assumed=0.0,
        properties={
            "fathom:cell": params.cell,
            **{f"fathom:{name}": value for name, value in params.facets.items()},
        },
    )
    sources = [(href, sha256) for href, sha256 in read_tags(file.path, ctx.share)["sources"].values()]
    return raster_item(file.path, ctx.share, told, Made.by(ctx, sources))


def _item_uri(uri: BlobUri) -> BlobUri:
    return replace(uri, name=f"{uri.name.removesuffix('.tif')}.json")


def _part(ctx: HandlerContext, canvas: Any, band: int, uri: BlobUri) -> Path:
    """One band of the cell: as an earlier attempt left it, else made now and left for a later one."""
    from dagmaster.handlers.fathom import merge

    place, total = _part_uri(uri, band), len(canvas.bands)
    if band <= (ctx.checkpoint_data or {}).get("bands", 0) and ctx.blobs.find(place) is not None:
        return local_file(ctx, place).path

    def watch(done: int, rows: int) -> None:
        ctx.raise_if_cancelled()
        ctx.progress(band - 1 + done / rows, total + 1, f"merging band {canvas.bands[band - 1]}")

    path = ctx.scratch / f"band{band}.tif"
    merge.merge_band(canvas, band, path, ctx.share, watch)
    publish(ctx, path, place)
    ctx.checkpoint(f"band {band}", {"bands": band}, artifacts=[str(place)])
    return path


def _part_uri(uri: BlobUri, band: int) -> BlobUri:
    # With a dot: unfinished work, of which nobody makes an item.
    folder, _, word = uri.name.rpartition("/")
    return replace(uri, name=f"{folder}/parts/{word.removesuffix('.tif')}/.band{band}.tif")


def _cell_uri(ctx: HandlerContext, params: CogShape, cell: str, group: str, stacks: Mapping[str, str]) -> BlobUri:
    sources = [f"{tile} {href}" for tile, href in stacks.items()]
    return result_uri(
        ctx, cell, ".tif", sources=sources, params=_shape(params), folder=f"fathom/cells/{group}", made_by=MERGE
    )


# ── The catalog ─────────────────────────────────────────────────────────────────────────────────────────────────────


@handler("fathom.stac_register", queue=LIGHT, timeout_seconds=3600, aliases=["fathom_stac_register"])
def stac_register(ctx: HandlerContext, params: StacRegisterParams) -> StacRegistered:
    """Register the merged cells in the catalog: a collection, and the item of each cell and group."""
    with extra("stac"):
        from dagmaster.handlers.stac.item_builder import new_collection
    when = {} if params.when is None else {"datetime": normalize_datetime(params.when)}
    cells = sorted([*params.done, *(one for one in params.merged if one)], key=lambda one: (one["group"], one["cell"]))
    collection = new_collection(params.collection_id, title=params.title, description=params.description)
    ctx.catalog.ensure_collection(collection)
    counts = {"created": 0, "updated": 0, "unchanged": 0}
    ids: list[str] = []
    for first in range(0, len(cells), BATCH):
        ctx.raise_if_cancelled()
        ctx.progress(first, len(cells), "registering")
        items = [_registered(ctx, cell, params.collection_id, when) for cell in cells[first : first + BATCH]]
        told = ctx.catalog.register(items)
        for name in counts:
            counts[name] += getattr(told, name)
        ids += [item["id"] for item in items]
    return StacRegistered(collection_id=params.collection_id, item_ids=ids, **counts)


def _registered(
    ctx: HandlerContext, cell: Mapping[str, Any], collection_id: str, when: Mapping[str, str]
) -> dict[str, Any]:
    """The item of a cell, in its collection. It lies beside the cell, which is not read again."""
    item: dict[str, Any] = cell.get("item") or _read_item(ctx, str(cell["href"]))
    links = [collection_link(collection_id), *item["links"]]
    return {**item, "collection": collection_id, "links": links, "properties": {**item["properties"], **when}}


def _read_item(ctx: HandlerContext, href: str) -> dict[str, Any]:
    uri = _item_uri(ctx.blobs.resolve(href))
    try:
        item: dict[str, Any] = json.loads(ctx.blobs.read(uri))
    except BlobNotFound as error:
        raise PermanentError(
            f"{href} has no item beside it, at {uri}: merge its cell again (redo: true)", kind="invalid_input"
        ) from error
    return item
