"""Handlers that work tile by tile: the plan, and batches that go on where an attempt before them ended."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from pydantic import BaseModel, ConfigDict, Field

from dagmaster.authoring.handler_context import HandlerContext
from dagmaster.authoring.handler_registry import handler
from dagmaster.errors import PermanentError
from dagmaster.handlers.optional_imports import extra
from dagmaster.handlers.queues import HEAVY, LIGHT
from dagmaster.handlers.raster.cog_output import CogMade, CogParams, Origin, Resampling, cog_uri, made_cog, name_of
from dagmaster.handlers.raster.remote_rasters import in_place
from dagmaster.handlers.raster.shared_cache import mounted
from dagmaster.handlers.source_files import CrsName, SourceParams

TILES_FOLDER = "tiles"


class TilingParams(SourceParams):
    """The raster to cut, and how."""

    tile_size: int = Field(default=4096, ge=16, le=65_536, description="Pixels of a tile's side.")
    overlap: int = Field(default=0, ge=0, le=4096, description="Pixels that a tile reaches into its neighbours.")
    max_tiles: int = Field(default=10_000, ge=1, le=100_000, description="More are refused.")


class Tiling(BaseModel):
    """The plan."""

    tiles: list[dict[str, Any]] = Field(
        description="Each with index, column, row, window (column, row, width, height), bbox, footprint, crs, href."
    )
    count: int
    columns: int
    rows: int
    crs: str
    bbox: list[float]


@handler(
    "raster.generate_tiling_scheme",
    version="2",
    queue=LIGHT,
    timeout_seconds=600,
    aliases=["raster_plan_tiles", "raster.plan_tiles", "raster_generate_tiling_scheme"],
)
def generate_tiling_scheme(ctx: HandlerContext, params: TilingParams) -> Tiling:
    """Plan the tiles of a raster: a list for a fan-out, each with its window and its place on Earth."""
    with extra("raster"):
        from dagmaster.handlers.gdal import gdal
        from dagmaster.handlers.raster import tiling
    source = in_place(ctx, params.uri(ctx))
    with gdal(ctx.share, **source.options):
        planned = tiling.plan(
            source.path,
            ctx.share,
            tile_size=params.tile_size,
            overlap=params.overlap,
            max_tiles=params.max_tiles,
            size=source.size,
        )
    said = {"href": str(source.uri), "source_version": source.version, "source_size": source.size}
    tiles = [{**tile, **said} for tile in planned.pop("tiles")]
    return Tiling(tiles=tiles, count=len(tiles), **planned)


class TileSpec(BaseModel):
    """One tile of a plan. What else stands in it is passed by."""

    model_config = ConfigDict(extra="ignore", hide_input_in_errors=True)

    window: tuple[int, int, int, int] = Field(description="Column, row, width, height, in pixels.")
    index: int = Field(default=0, ge=0)
    column: int | None = None
    row: int | None = None
    href: str | None = Field(default=None, description="The raster that it is a part of.")
    source_version: str | None = Field(
        default=None, description="The checksum that the raster had when it was planned."
    )
    source_size: int | None = None


class TileOptions(CogParams):
    """How the COG of a tile is made."""

    target_crs: CrsName | None = Field(default=None, description="Warp to this coordinate system, as EPSG:4326.")
    resampling: Resampling = Field(default="nearest", description="Of the warp, if there is one.")
    nodata: float | None = Field(default=None, description="The nodata value of a source that has none.")


class TileBatchParams(TileOptions):
    """Tiles of a plan."""

    tiles: list[TileSpec] = Field(
        min_length=1, max_length=10_000, description="Specs of raster.generate_tiling_scheme."
    )
    href: str | None = Field(default=None, description="The raster, where the specs do not name it.")


class TileBatch(BaseModel):
    """What became of a batch."""

    tiles: list[dict[str, Any]] = Field(description="For each: index, item_id, cog_url, bbox, sha256, cog_size_mb.")
    cog_urls: list[str]
    items: list[dict[str, Any]] = Field(description="STAC items, ready to register.")
    count: int
    resumed_from: int = Field(description="How many tiles an attempt before this one had done.")


@handler(
    "raster.process_tile_batch",
    version="3",
    queue=HEAVY,
    timeout_seconds=7200,
    aliases=["raster_process_tile_batch"],
)
def process_tile_batch(ctx: HandlerContext, params: TileBatchParams) -> TileBatch:
    """Make the COGs of many tiles, with a checkpoint after each: another attempt goes on where this one ended."""
    # How many, and no more: what they gave is found where it lies.
    resumed_from = int((ctx.checkpoint_data or {}).get("done", 0))
    tiles: list[dict[str, Any]] = []
    items: list[dict[str, Any]] = []
    for number, spec in enumerate(params.tiles):
        ctx.raise_if_cancelled()
        is_done = number < resumed_from
        if not is_done:
            ctx.progress(number, len(params.tiles), f"tile {number + 1} of {len(params.tiles)}")
        made = tile_cog(ctx, spec, params, params.href)
        said = made.model_dump(include={"cog_url", "bbox", "sha256", "cog_size_mb"})
        # With what its item is told by, for one who makes an item of the file.
        told = {} if params.datetime is None else {"datetime": params.datetime}
        tiles.append({"index": spec.index, "item_id": made.item["id"], **told, **said})
        items.append(made.item)
        if not is_done:
            ctx.checkpoint(f"tile_{number + 1}", {"done": number + 1}, artifacts=[made.cog_url])
    ctx.progress(len(tiles), len(tiles), "all tiles are there")
    urls = [tile["cog_url"] for tile in tiles]
    return TileBatch(tiles=tiles, cog_urls=urls, items=items, count=len(tiles), resumed_from=resumed_from)


def tile_cog(
    ctx: HandlerContext, spec: TileSpec, params: TileOptions, href: str | None = None, *, use_mount: bool = False
) -> CogMade:
    """The COG of one tile. Only its window of the source is read, of the mount's copy if that is asked for."""
    with extra("raster"):
        from dagmaster.handlers.gdal import gdal
        from dagmaster.handlers.raster.cog_writer import make_cog
        from dagmaster.handlers.raster.grids import Warp
    named = href or spec.href
    if named is None:
        raise PermanentError(
            "the tile does not say of which raster it is: give href, or a tile_spec of raster.generate_tiling_scheme",
            kind="invalid_input",
        )
    raster = ctx.blobs.resolve(named)
    ctx.about = str(raster)
    source = in_place(ctx, raster, version=spec.source_version, size=spec.source_size)
    path = str(mounted(ctx, source.uri).path) if use_mount else source.path
    warp = Warp(crs=params.target_crs, resampling=params.resampling, nodata=params.nodata)
    shape: Mapping[str, Any] = {"window": list(spec.window), "target_crs": warp.crs}
    if warp.crs is not None:
        shape = {**shape, "resampling": warp.resampling}
    if warp.nodata is not None:
        shape = {**shape, "nodata": warp.nodata}
    where = f"{spec.index:05d}" if spec.row is None else f"r{spec.row:03d}_c{spec.column or 0:03d}"
    base = name_of(source.uri)
    name = f"{base}_{where}"
    origin = Origin.of_rasters(ctx, [(path, (str(source.uri), source.version))], source.modified, source.options)
    uri = cog_uri(ctx, name, params, origin, shape, folder=f"{TILES_FOLDER}/{base}")
    options, window = params.options(origin), spec.window
    with gdal(ctx.share, **source.options):
        return made_cog(
            ctx,
            uri,
            params,
            origin,
            lambda to: make_cog(path, to, options, ctx.share, warp=warp, window=window, size=source.size),
            name=name,
            shape=shape,
        )
