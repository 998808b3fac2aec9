"""Handlers that work by tile: the plan, and batches that resume after an interrupted attempt."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

from pydantic import BaseModel, ConfigDict, Field

from dagmaster.errors import invalid_input
from dagmaster.geo.optional_imports import require_extra
from dagmaster.geo.queues import HEAVY, LIGHT
from dagmaster.geo.raster.cog_output import (
    CogParams,
    CogResult,
    Origin,
    Resampling,
    cog_uri,
    publish_cog,
    result_name,
)
from dagmaster.geo.raster.raster_sources import RasterParams, fetch_raster, locate_raster
from dagmaster.geo.source_files import CrsName
from dagmaster.sdk.handler_context import HandlerContext
from dagmaster.sdk.handler_registry import handler

TILES_FOLDER = "tiles"


class TilingParams(RasterParams):
    """The raster to tile, and how."""

    tile_size: int = Field(default=4096, ge=16, le=65_536, description="Tile width and height in pixels.")
    overlap: int = Field(
        default=0, ge=0, le=4096, description="Pixels that a tile shares with each neighbour."
    )
    max_tiles: int = Field(default=10_000, ge=1, le=100_000, description="Fail if there are more tiles.")


class Tiling(BaseModel):
    """The tiles of a raster."""

    tiles: list[dict[str, Any]] = Field(
        description="Each with index, column, row, window (column, row, width, height), bbox, footprint,"
        " crs, href."
    )
    count: int
    columns: int
    rows: int
    crs: str
    bbox: list[float] | None = Field(description="West, south, east, north, in degrees. None off the Earth.")


@handler(
    "raster.generate_tiling_scheme",
    version="3",
    queue=LIGHT,
    timeout_seconds=600,
    aliases=["raster_plan_tiles", "raster.plan_tiles", "raster_generate_tiling_scheme"],
)
def generate_tiling_scheme(ctx: HandlerContext, params: TilingParams) -> Tiling:
    """Plan the tiles of a raster: a list to fan out over, each with its pixel window and footprint."""
    with require_extra("raster"):
        from dagmaster.geo.gdal import gdal_env
        from dagmaster.geo.raster.tiling import plan_tiles
    source = locate_raster(ctx, params.uri(ctx), subdataset=params.subdataset)
    with gdal_env(ctx.share, **source.options):
        plan = plan_tiles(
            source.path,
            ctx.share,
            tile_size=params.tile_size,
            overlap=params.overlap,
            max_tiles=params.max_tiles,
            size=source.size,
        )
    identity = {
        "href": str(source.uri),
        "subdataset": source.subdataset,
        "source_version": source.version,
        "source_size": source.size,
        "source_sidecars": source.sidecar_digest,
    }
    tiles = [{**tile, **identity} for tile in plan.pop("tiles")]
    return Tiling(tiles=tiles, count=len(tiles), **plan)


class TileSpec(BaseModel):
    """One tile of a plan. Other keys are ignored."""

    model_config = ConfigDict(extra="ignore", hide_input_in_errors=True)

    window: tuple[int, int, int, int] = Field(description="Column, row, width, height, in pixels.")
    index: int = Field(default=0, ge=0)
    column: int | None = None
    row: int | None = None
    href: str | None = Field(default=None, description="The raster of the tile.")
    subdataset: str | None = Field(default=None, description="The raster in a file that contains several.")
    source_version: str | None = Field(
        default=None, description="The checksum of the raster when it was planned."
    )
    source_size: int | None = None
    source_sidecars: str | None = Field(
        default=None, description="A digest of the files that belong to the raster."
    )


class TileOptions(CogParams):
    """How the COG of a tile is written."""

    target_crs: CrsName | None = Field(default=None, description="Warp to this CRS, such as EPSG:4326.")
    resampling: Resampling = Field(
        default="nearest", description="The resampling of the warp, if there is one."
    )
    nodata: float | None = Field(default=None, description="The nodata value for a source without one.")


class TileBatchParams(TileOptions):
    """The tiles of a batch."""

    tiles: list[TileSpec] = Field(
        min_length=1, max_length=10_000, description="Tiles of raster.generate_tiling_scheme."
    )
    href: str | None = Field(default=None, description="The raster, if the tiles do not name it.")


class TileBatch(BaseModel):
    """The results of a batch."""

    tiles: list[dict[str, Any]] = Field(
        description="For each: index, item_id, cog_url, bbox, sha256, cog_size_mb."
    )
    cog_urls: list[str]
    items: list[dict[str, Any]] = Field(description="STAC items, ready to register.")
    count: int
    resumed_from: int = Field(description="How many tiles earlier attempts had finished.")


@handler(
    "raster.process_tile_batch",
    version="4",
    queue=HEAVY,
    timeout_seconds=7200,
    aliases=["raster_process_tile_batch"],
)
def process_tile_batch(ctx: HandlerContext, params: TileBatchParams) -> TileBatch:
    """Write the COGs of many tiles, a checkpoint after each; a later attempt resumes after the last one."""
    # The checkpoint holds only the count: finished results are found by their names.
    resumed_from = int((ctx.checkpoint_data or {}).get("done", 0))
    tiles: list[dict[str, Any]] = []
    items: list[dict[str, Any]] = []
    for number, spec in enumerate(params.tiles):
        ctx.raise_if_cancelled()
        is_done = number < resumed_from
        if not is_done:
            ctx.progress(number, len(params.tiles), f"tile {number + 1} of {len(params.tiles)}")
        cog = tile_cog(ctx, spec, params, params.href)
        facts = cog.model_dump(include={"cog_url", "bbox", "sha256", "cog_size_mb"})
        # Pass on the datetime, so that an item built from the file gets it too.
        datetime = {} if params.datetime is None else {"datetime": params.datetime}
        tiles.append({"index": spec.index, "item_id": cog.item["id"], **datetime, **facts})
        items.append(cog.item)
        if not is_done:
            ctx.checkpoint(f"tile_{number + 1}", {"done": number + 1}, artifacts=[cog.cog_url])
    ctx.progress(len(tiles), len(tiles), "all tiles are done")
    urls = [tile["cog_url"] for tile in tiles]
    return TileBatch(tiles=tiles, cog_urls=urls, items=items, count=len(tiles), resumed_from=resumed_from)


def tile_cog(
    ctx: HandlerContext,
    spec: TileSpec,
    params: TileOptions,
    href: str | None = None,
    *,
    use_mount: bool = False,
) -> CogResult:
    """Publish the COG of one tile.

    Only its window of the source is read, from the mount's copy if requested.
    """
    with require_extra("raster"):
        from dagmaster.geo.raster.cog_writer import convert_to_cog
        from dagmaster.geo.raster.grids import Warp
    href = href or spec.href
    if href is None:
        raise invalid_input(
            "the tile does not name its raster: set href, or use a tile_spec of raster.generate_tiling_scheme"
        )
    uri = ctx.blobs.resolve(href)
    ctx.about = str(uri)
    source = locate_raster(
        ctx,
        uri,
        subdataset=spec.subdataset,
        version=spec.source_version,
        size=spec.source_size,
        sidecars=spec.source_sidecars,
    )
    # Named by the raster in place, read from its copy.
    read = fetch_raster(ctx, source.uri, subdataset=spec.subdataset, use_mount=True) if use_mount else source
    warp = Warp(crs=params.target_crs, resampling=params.resampling, nodata=params.nodata)
    pixel_params: Mapping[str, Any] = {"window": list(spec.window), "target_crs": warp.crs}
    if warp.crs is not None:
        pixel_params = {**pixel_params, "resampling": warp.resampling}
    if warp.nodata is not None:
        pixel_params = {**pixel_params, "nodata": warp.nodata}
    position = f"{spec.index:05d}" if spec.row is None else f"r{spec.row:03d}_c{spec.column or 0:03d}"
    raster_name = result_name(source.uri, source.subdataset)
    name = f"{raster_name}_{position}"
    origin = Origin.of_files(ctx, source)
    target_uri = cog_uri(ctx, name, params, origin, pixel_params, folder=f"{TILES_FOLDER}/{raster_name}")
    options, window = params.options(origin), spec.window

    def write(target: Path) -> None:
        convert_to_cog(read.path, target, options, ctx.share, warp=warp, window=window, size=source.size)

    return publish_cog(
        ctx, target_uri, params, origin, write, name=name, pixel_params=pixel_params, source=read
    )
