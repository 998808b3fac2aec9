"""Handlers that produce a COG: convert, reproject, mosaic, clip, and the complete chain in one task."""

from __future__ import annotations

from pathlib import Path
from typing import Any, Literal, Self

from pydantic import Field, model_validator

from dagmaster.errors import invalid_input
from dagmaster.geo.optional_imports import require_extra
from dagmaster.geo.queues import HEAVY
from dagmaster.geo.raster.cog_output import (
    CogParams,
    CogResult,
    Georeferences,
    Origin,
    Resampling,
    cog_uri,
    publish_cog,
    result_name,
)
from dagmaster.geo.raster.raster_sources import RasterParams, RasterSource, fetch_raster
from dagmaster.geo.raster.tile_handlers import TileOptions, TileSpec, tile_cog
from dagmaster.geo.source_files import (
    HREF_KEYS,
    CrsName,
    data_href,
    name_in_errors,
)
from dagmaster.geo.vector.dataset_files import Fetched, fetch
from dagmaster.sdk.handler_context import HandlerContext
from dagmaster.sdk.handler_registry import handler

_SOURCE_KEYS = (*HREF_KEYS, "blob_name", "file_name", "item")


class CreateCogParams(RasterParams, TileOptions):
    """The raster, and how its COG is written."""

    use_mount: bool = Field(
        default=False, description="Copy the source to the mount first, so that a retry finds it there."
    )
    tile_spec: TileSpec | None = Field(
        default=None, description="Write the COG of this tile only. It may name the source."
    )

    @model_validator(mode="before")
    @classmethod
    def _use_source_of_tile(cls, data: Any) -> Any:
        if isinstance(data, dict) and isinstance(spec := data.get("tile_spec"), dict) and spec.get("href"):
            has_source = any(data.get(name) is not None for name in _SOURCE_KEYS)
            return data if has_source else {**data, "href": spec["href"]}
        return data


@handler(
    "raster.create_cog",
    version="5",
    queue=HEAVY,
    timeout_seconds=7200,
    aliases=[
        "create_cog",
        "raster_create_cog",
        "raster_cog_docker",
        "raster_cog_functionapp",
        "raster_cog_translate",
    ],
)
def create_cog(ctx: HandlerContext, params: CreateCogParams) -> CogResult:
    """Convert a raster, or one tile of it, to a Cloud-Optimized GeoTIFF, in its own or another CRS."""
    if params.tile_spec is not None:
        return tile_cog(ctx, params.tile_spec, params, str(params.uri(ctx)), use_mount=params.use_mount)
    return _publish_warped(
        ctx,
        fetch_raster(ctx, params.uri(ctx), subdataset=params.subdataset, use_mount=params.use_mount),
        params,
    )


class ReprojectParams(RasterParams, CogParams):
    """The raster, and the target CRS."""

    target_crs: CrsName = Field(description="A code such as EPSG:3857, or WKT.")
    resolution: float | None = Field(
        default=None, gt=0, description="The pixel size, in units of target_crs."
    )
    resampling: Resampling = Field(
        default="nearest", description="nearest keeps values; bilinear suits continuous data."
    )
    nodata: float | None = Field(default=None, description="For pixels without a source pixel.")
    georeference: Georeferences = Field(
        default="auto",
        description="By what the raster is placed: its grid, ground control points or RPCs; auto takes the"
        " first of these that it has, or RPCs if there is a dem.",
    )
    dem: str | None = Field(
        default=None, description="The href of a raster of heights above the ellipsoid, in metres, for RPCs."
    )
    ground_height: float = Field(
        default=0.0, description="The height of the ground for RPCs, if there is no dem."
    )


class Reprojected(CogResult):
    """A raster in another CRS."""

    reprojected_path: str = Field(description="The URI of the COG.")


@handler("raster.reproject", version="4", queue=HEAVY, timeout_seconds=7200, aliases=["raster_reproject"])
def reproject(ctx: HandlerContext, params: ReprojectParams) -> Reprojected:
    """Warp a raster to another CRS and write it as a COG, in one pass."""
    dem = None if params.dem is None else _fetch_dem(ctx, params.dem)
    cog = _publish_warped(
        ctx, fetch_raster(ctx, params.uri(ctx), subdataset=params.subdataset), params, dem=dem
    )
    return Reprojected(**cog.model_dump(), reprojected_path=cog.cog_path)


def _fetch_dem(ctx: HandlerContext, href: str) -> RasterSource:
    with require_extra("raster"):
        from dagmaster.geo.gdal import gdal_env
        from dagmaster.geo.raster.inspection import describe_raster
    dem = fetch_raster(ctx, ctx.blobs.resolve(href))
    with gdal_env(ctx.share, **dem.options), name_in_errors(dem.uri):
        describe_raster(dem.path, ctx.share)
    return dem


def _publish_warped(
    ctx: HandlerContext,
    source: RasterSource,
    params: CreateCogParams | ReprojectParams | CompleteParams,
    *,
    dem: RasterSource | None = None,
) -> CogResult:
    with require_extra("raster"):
        from dagmaster.geo.raster.cog_writer import convert_to_cog
        from dagmaster.geo.raster.georeferences import Placement
        from dagmaster.geo.raster.grids import Warp
    pixel_options = params.model_dump(include={"resampling", "nodata", "resolution"})
    place_options = params.model_dump(include={"georeference", "ground_height"})
    pixel_params: dict[str, Any] = {"target_crs": params.target_crs, **pixel_options, **place_options}
    placement = Placement(
        choice=place_options.get("georeference", "auto"),
        dem=None if dem is None else dem.path,
        ground_height=place_options.get("ground_height", 0.0),
    )
    warp = Warp(crs=params.target_crs, placement=placement, **pixel_options)
    origin = Origin.of_files(ctx, *([source] if dem is None else [source, dem]))

    def write(target: Path) -> None:
        convert_to_cog(source.path, target, params.options(origin), ctx.share, warp=warp)

    name = result_name(source.uri, source.subdataset)
    uri = cog_uri(ctx, name, params, origin, pixel_params)
    return publish_cog(ctx, uri, params, origin, write, name=name, pixel_params=pixel_params, source=source)


class MosaicParams(CogParams):
    """The rasters to merge."""

    sources: list[Any] | None = Field(
        default=None, description="Hrefs, STAC items, or outputs of steps that produced a COG."
    )
    tiles: list[Any] | None = Field(default=None, description="Alias of sources.")
    tile_results: list[Any] | None = Field(default=None, description="Alias of sources.")
    nodata: float | None = Field(default=None, description="For gaps, if the sources have no nodata value.")
    overlap: Literal["first", "last"] = Field(
        default="first", description="Which source wins where two overlap."
    )
    name: str = Field(default="mosaic", min_length=1, max_length=100, description="The name of the result.")

    @model_validator(mode="after")
    def _one_list(self) -> Self:
        lists = [sources for sources in (self.sources, self.tiles, self.tile_results) if sources is not None]
        if len(lists) != 1 or not lists[0]:
            raise ValueError("name the rasters as sources: a list of at least one")
        return self

    def hrefs(self) -> list[str]:
        entries = self.sources or self.tiles or self.tile_results or ()
        return [href for entry in entries for href in _entry_hrefs(entry)]


class Mosaicked(CogResult):
    """A mosaic."""

    mosaic_path: str = Field(description="The URI of the COG.")
    source_count: int


@handler("raster.mosaic", version="4", queue=HEAVY, timeout_seconds=14_400, aliases=["raster_mosaic"])
def mosaic(ctx: HandlerContext, params: MosaicParams) -> Mosaicked:
    """Merge rasters on one pixel grid into one COG, block by block."""
    with require_extra("raster"):
        from dagmaster.geo.raster.mosaic import write_mosaic
    hrefs = params.hrefs()
    sources = []
    for number, href in enumerate(hrefs):
        ctx.raise_if_cancelled()
        ctx.progress(number, len(hrefs), f"source {number + 1} of {len(hrefs)}")
        sources.append(fetch_raster(ctx, ctx.blobs.resolve(href)))
    origin = Origin.of_files(ctx, *sources)
    options, names = params.options(origin), [str(source.uri) for source in sources]

    def write(target: Path) -> None:
        write_mosaic(
            [source.path for source in sources],
            target,
            options,
            ctx.share,
            nodata=params.nodata,
            first_wins=params.overlap == "first",
            names=names,
            on_source=ctx.raise_if_cancelled,
        )

    pixel_params = {"nodata": params.nodata, "overlap": params.overlap}
    uri = cog_uri(ctx, params.name, params, origin, pixel_params, folder="mosaics")
    cog = publish_cog(
        ctx, uri, params, origin, write, name=params.name, pixel_params=pixel_params, source=sources[0]
    )
    return Mosaicked(**cog.model_dump(), mosaic_path=cog.cog_path, source_count=len(sources))


def _entry_hrefs(entry: Any) -> list[str]:
    """Return the rasters that an entry names: an href, an item, or a step's output with one or many COGs."""
    if isinstance(entry, str):
        return [entry]
    if isinstance(entry, dict):
        if "assets" in entry:
            return [data_href(entry)]
        for key in ("cog_path", "cog_url", "href", "reprojected_path"):
            if isinstance(entry.get(key), str):
                return [entry[key]]
        if isinstance(urls := entry.get("cog_urls"), list):
            return [href for url in urls for href in _entry_hrefs(url)]
    raise invalid_input(
        f"a source of a mosaic is an href, a STAC item or an output with cog_path, not {str(entry)[:80]!r}"
    )


class ClipParams(RasterParams, CogParams):
    """The raster, and the area to clip it to."""

    boundary: Any = Field(
        default=None, description="A bbox in degrees, GeoJSON, or the href of a vector file."
    )
    bbox: list[float] | None = Field(
        default=None, min_length=4, max_length=4, description="West, south, east, north, in degrees."
    )
    geometry: dict[str, Any] | None = Field(default=None, description="Alias of boundary, for GeoJSON.")
    layer: str | None = Field(default=None, description="The layer of the vector file, if it has several.")
    member: str | None = Field(
        default=None, description="The vector file in a zip archive, if it has several."
    )
    all_touched: bool = Field(default=False, description="Also keep pixels that the area only touches.")

    @model_validator(mode="after")
    def _one_area(self) -> Self:
        if sum(area is not None for area in (self.boundary, self.bbox, self.geometry)) != 1:
            raise ValueError("name one area, by boundary, bbox or geometry")
        return self


class Clipped(CogResult):
    """A clipped raster."""

    clipped_path: str = Field(description="The URI of the COG.")


@handler("raster.clip", version="4", queue=HEAVY, timeout_seconds=7200, aliases=["raster_clip"])
def clip(ctx: HandlerContext, params: ClipParams) -> Clipped:
    """Clip a raster to an area and write it as a COG. Pixels outside are nodata or masked."""
    with require_extra("raster"):
        from dagmaster.geo.gdal import gdal_env
        from dagmaster.geo.raster.areas_of_interest import read_areas
        from dagmaster.geo.raster.clip import clip_raster
        from dagmaster.geo.raster.grids import crs_text
    source = fetch_raster(ctx, params.uri(ctx), subdataset=params.subdataset)
    boundary = next(area for area in (params.boundary, params.bbox, params.geometry) if area is not None)
    boundaries: list[Fetched] = []

    def fetch_boundary(href: str) -> Fetched:
        boundaries.append(fetch(ctx, ctx.blobs.resolve(href), params.member))
        return boundaries[-1]

    with gdal_env(ctx.share):
        areas = read_areas(boundary, fetch_boundary, layer=params.layer)
    pixel_params = {
        "area": [[crs_text(area.crs), area.geometry.normalize().wkb_hex] for area in areas],
        "all_touched": params.all_touched,
    }
    origin = Origin.of_files(ctx, source).naming((str(file.uri), file.sha256) for file in boundaries)
    options = params.options(origin)

    def on_block(done: int, count: int) -> None:
        ctx.raise_if_cancelled()
        ctx.progress(done, count, f"block {done + 1} of {count}")

    def write(target: Path) -> None:
        clip_raster(
            source.path, target, options, ctx.share, areas, all_touched=params.all_touched, on_block=on_block
        )

    name = f"{result_name(source.uri, source.subdataset)}_clip"
    uri = cog_uri(ctx, name, params, origin, pixel_params, folder="clips")
    cog = publish_cog(ctx, uri, params, origin, write, name=name, pixel_params=pixel_params, source=source)
    return Clipped(**cog.model_dump(), clipped_path=cog.cog_path)


class CompleteParams(RasterParams, CogParams):
    """The raster, and how its COG is written."""

    collection_id: str | None = Field(
        default="rasters", description="The collection; created if it does not exist."
    )
    target_crs: CrsName | None = Field(default=None, description="Warp to this CRS, such as EPSG:4326.")
    resampling: Resampling = Field(
        default="nearest", description="The resampling of the warp, if there is one."
    )
    nodata: float | None = Field(default=None, description="The nodata value for a source without one.")
    use_mount: bool = Field(
        default=False, description="Copy the source to the mount first, so that a retry finds it there."
    )


class Completed(CogResult):
    """A registered raster."""

    collection_id: str
    item_id: str
    registered: dict[str, int] = Field(description="How many items were created, updated, unchanged.")


@handler(
    "raster.process_complete",
    version="5",
    queue=HEAVY,
    timeout_seconds=14_400,
    aliases=["raster_process_complete"],
)
def process_complete(ctx: HandlerContext, params: CompleteParams) -> Completed:
    """Validate a raster, write its COG and register it in the catalog, in one task with checkpoints."""
    with require_extra("raster"):
        from dagmaster.geo.gdal import gdal_env
        from dagmaster.geo.raster.inspection import describe_raster
        from dagmaster.geo.stac.item_builder import new_collection
    done = dict(ctx.checkpoint_data or {})
    collection = params.collection_id or "rasters"
    if "made" not in done:
        source = fetch_raster(ctx, params.uri(ctx), subdataset=params.subdataset, use_mount=params.use_mount)
        if "validated" not in done:
            with gdal_env(ctx.share, **source.options):
                done["validated"] = describe_raster(source.path, ctx.share)
            ctx.checkpoint("validated", done)
        ctx.raise_if_cancelled()
        done["made"] = _publish_warped(ctx, source, params).model_dump()
        cog = ctx.blobs.resolve(done["made"]["cog_url"])
        ctx.checkpoint("made", done, artifacts=[ctx.blobs.find(cog) or cog])
    ctx.raise_if_cancelled()
    item = {**done["made"]["item"], "collection": collection}
    ctx.catalog.ensure_collection(new_collection(collection, description=f"Rasters of {collection}."))
    registered = ctx.catalog.register([item])
    counts = {name: getattr(registered, name) for name in ("created", "updated", "unchanged")}
    return Completed(**done["made"], collection_id=collection, item_id=item["id"], registered=counts)
