"""Handlers that make a COG of rasters: as they are, warped, cut, put together, and all of it at once."""

from __future__ import annotations

from pathlib import Path
from typing import Any, Literal, Self

from pydantic import Field, model_validator

from dagmaster.authoring.handler_context import HandlerContext
from dagmaster.authoring.handler_registry import handler
from dagmaster.errors import PermanentError
from dagmaster.handlers.optional_imports import extra
from dagmaster.handlers.queues import HEAVY
from dagmaster.handlers.raster.cog_output import CogMade, CogParams, Origin, Resampling, cog_uri, made_cog, name_of
from dagmaster.handlers.raster.shared_cache import mounted
from dagmaster.handlers.raster.tile_handlers import TileOptions, TileSpec, tile_cog
from dagmaster.handlers.source_files import ONE_OF, CrsName, LocalFile, SourceParams, data_href, local_file
from dagmaster.handlers.vector.dataset_files import fetch

_NAMES = (*ONE_OF, "blob_name", "file_name", "item")


class CreateCogParams(SourceParams, TileOptions):
    """The raster, and how its COG is made."""

    use_mount: bool = Field(default=False, description="Copy the source to the mount first: a retry finds it there.")
    tile_spec: TileSpec | None = Field(
        default=None, description="Make the COG of this tile alone. The source may stand in it."
    )

    @model_validator(mode="before")
    @classmethod
    def _source_of_tile(cls, data: Any) -> Any:
        """A tile may say of which raster it is."""
        if isinstance(data, dict) and isinstance(spec := data.get("tile_spec"), dict) and spec.get("href"):
            named = {name: data[name] for name in _NAMES if data.get(name) is not None}
            return data if named else {**data, "href": spec["href"]}
        return data


@handler(
    "raster.create_cog",
    version="3",
    queue=HEAVY,
    timeout_seconds=7200,
    aliases=["create_cog", "raster_create_cog", "raster_cog_docker", "raster_cog_functionapp", "raster_cog_translate"],
)
def create_cog(ctx: HandlerContext, params: CreateCogParams) -> CogMade:
    """Make a Cloud-Optimized GeoTIFF of a raster or of one tile of it, in its own or another coordinate system."""
    if params.tile_spec is not None:
        return tile_cog(ctx, params.tile_spec, params, str(params.uri(ctx)), use_mount=params.use_mount)
    return _warped_cog(ctx, _source(ctx, params, use_mount=params.use_mount), params)


class ReprojectParams(SourceParams, CogParams):
    """The raster, and where to."""

    target_crs: CrsName = Field(description="As EPSG:3857, or WKT.")
    resolution: float | None = Field(default=None, gt=0, description="Of a pixel, in units of target_crs.")
    resampling: Resampling = Field(default="nearest", description="nearest keeps values; bilinear for measurements.")
    nodata: float | None = Field(default=None, description="For pixels that no pixel of the source reaches.")


class Reprojected(CogMade):
    """A raster in another coordinate system."""

    reprojected_path: str = Field(description="Where it lies.")


@handler("raster.reproject", version="3", queue=HEAVY, timeout_seconds=7200, aliases=["raster_reproject"])
def reproject(ctx: HandlerContext, params: ReprojectParams) -> Reprojected:
    """Warp a raster to another coordinate system, in one pass, into a COG."""
    made = _warped_cog(ctx, _source(ctx, params), params, resolution=params.resolution)
    return Reprojected(**made.model_dump(), reprojected_path=made.cog_path)


def _warped_cog(
    ctx: HandlerContext,
    source: LocalFile,
    params: CreateCogParams | ReprojectParams | CompleteParams,
    *,
    resolution: float | None = None,
) -> CogMade:
    with extra("raster"):
        from dagmaster.handlers.raster.cog_writer import make_cog
        from dagmaster.handlers.raster.grids import Warp
    shape: dict[str, Any] = {
        **params.model_dump(include={"target_crs", "resampling", "nodata"}),
        "resolution": resolution,
    }
    warp = Warp(crs=params.target_crs, resolution=resolution, resampling=params.resampling, nodata=params.nodata)
    origin = Origin.of(ctx, source)
    options = params.options(origin)

    def make(to: Path) -> None:
        make_cog(source.path, to, options, ctx.share, warp=warp)

    name = name_of(source.uri)
    uri = cog_uri(ctx, name, params, origin, shape)
    return made_cog(ctx, uri, params, origin, make, name=name, shape=shape)


class MosaicParams(CogParams):
    """The rasters that are put together."""

    sources: list[Any] | None = Field(
        default=None, description="Hrefs, STAC items, or outputs of steps that made a COG."
    )
    tiles: list[Any] | None = Field(default=None, description="Another name of sources.")
    tile_results: list[Any] | None = Field(default=None, description="Another name of sources.")
    nodata: float | None = Field(default=None, description="For gaps, where the sources have no nodata value.")
    overlap: Literal["first", "last"] = Field(default="first", description="Which source wins where two lie.")
    name: str = Field(default="mosaic", min_length=1, max_length=100, description="What the result is called.")

    @model_validator(mode="after")
    def _one_list(self) -> Self:
        given = [one for one in (self.sources, self.tiles, self.tile_results) if one is not None]
        if len(given) != 1 or not given[0]:
            raise ValueError("give the rasters as sources: a list of at least one")
        return self

    def hrefs(self) -> list[str]:
        """Where the sources lie, in order."""
        return [href for one in (self.sources or self.tiles or self.tile_results or ()) for href in _hrefs(one)]


class Mosaicked(CogMade):
    """A mosaic."""

    mosaic_path: str = Field(description="Where it lies.")
    source_count: int


@handler("raster.mosaic", version="3", queue=HEAVY, timeout_seconds=14_400, aliases=["raster_mosaic"])
def mosaic(ctx: HandlerContext, params: MosaicParams) -> Mosaicked:
    """Put rasters on one grid together into one COG, block by block."""
    with extra("raster"):
        from dagmaster.handlers.raster import mosaic
    hrefs = params.hrefs()
    files = []
    for number, href in enumerate(hrefs):
        ctx.raise_if_cancelled()
        ctx.progress(number, len(hrefs), f"source {number + 1} of {len(hrefs)}")
        files.append(local_file(ctx, ctx.blobs.resolve(href)))
    origin = Origin.of(ctx, *files)
    options, names = params.options(origin), [str(file.uri) for file in files]

    def make(to: Path) -> None:
        mosaic.mosaic(
            [file.path for file in files],
            to,
            options,
            ctx.share,
            nodata=params.nodata,
            first=params.overlap == "first",
            names=names,
            on_round=ctx.raise_if_cancelled,
        )

    shape = {"nodata": params.nodata, "overlap": params.overlap}
    uri = cog_uri(ctx, params.name, params, origin, shape, folder="mosaics")
    made = made_cog(ctx, uri, params, origin, make, name=params.name, shape=shape)
    return Mosaicked(**made.model_dump(), mosaic_path=made.cog_path, source_count=len(files))


def _source(ctx: HandlerContext, params: SourceParams, *, use_mount: bool = False) -> LocalFile:
    uri = params.uri(ctx)
    return mounted(ctx, uri) if use_mount else local_file(ctx, uri)


def _hrefs(one: Any) -> list[str]:
    """The rasters that an entry names: an href, an item, or what a step gave, of one or of many."""
    if isinstance(one, str):
        return [one]
    if isinstance(one, dict):
        if "assets" in one:
            return [data_href(one)]
        for key in ("cog_path", "cog_url", "href", "reprojected_path"):
            if isinstance(one.get(key), str):
                return [one[key]]
        if isinstance(many := one.get("cog_urls"), list):
            return [href for inner in many for href in _hrefs(inner)]
    raise PermanentError(
        f"a source of a mosaic is an href, a STAC item or an output with cog_path, not {str(one)[:80]!r}",
        kind="invalid_input",
    )


class ClipParams(SourceParams, CogParams):
    """The raster, and the area that is cut out."""

    boundary: Any = Field(default=None, description="A bbox in degrees, GeoJSON, or the href of a vector file.")
    bbox: list[float] | None = Field(default=None, min_length=4, max_length=4, description="West, south, east, north.")
    geometry: dict[str, Any] | None = Field(default=None, description="Another name of boundary, for GeoJSON.")
    layer: str | None = Field(default=None, description="Of the vector file, where it has several.")
    member: str | None = Field(default=None, description="The vector file in a zip, where it has several.")
    all_touched: bool = Field(default=False, description="Keep pixels that the area only touches.")

    @model_validator(mode="after")
    def _one_area(self) -> Self:
        if sum(one is not None for one in (self.boundary, self.bbox, self.geometry)) != 1:
            raise ValueError("name one area, by boundary, bbox or geometry")
        return self


class Clipped(CogMade):
    """A part of a raster."""

    clipped_path: str = Field(description="Where it lies.")


@handler("raster.clip", version="3", queue=HEAVY, timeout_seconds=7200, aliases=["raster_clip"])
def clip(ctx: HandlerContext, params: ClipParams) -> Clipped:
    """Cut a raster along an area, into a COG. What lies outside is nodata, or masked."""
    with extra("raster"):
        from dagmaster.handlers.gdal import gdal
        from dagmaster.handlers.raster import clip
        from dagmaster.handlers.raster.areas_of_interest import areas
        from dagmaster.handlers.raster.grids import crs_text
    source = _source(ctx, params)
    told = next(one for one in (params.boundary, params.bbox, params.geometry) if one is not None)
    with gdal(ctx.share):
        wanted = areas(told, lambda href: fetch(ctx, ctx.blobs.resolve(href), params.member), layer=params.layer)
    shape = {
        "area": [[crs_text(area.crs), area.shape.normalize().wkb_hex] for area in wanted],
        "all_touched": params.all_touched,
    }
    origin = Origin.of(ctx, source)
    options = params.options(origin)

    def on_round(done: int, count: int) -> None:
        ctx.raise_if_cancelled()
        ctx.progress(done, count, f"block {done + 1} of {count}")

    def make(to: Path) -> None:
        clip.clip(source.path, to, options, ctx.share, wanted, all_touched=params.all_touched, on_round=on_round)

    name = f"{name_of(source.uri)}_clip"
    uri = cog_uri(ctx, name, params, origin, shape, folder="clips")
    made = made_cog(ctx, uri, params, origin, make, name=name, shape=shape)
    return Clipped(**made.model_dump(), clipped_path=made.cog_path)


class CompleteParams(SourceParams, CogParams):
    """The raster, and how its COG is made."""

    collection_id: str | None = Field(default="rasters", description="The collection; made if it is not there.")
    target_crs: CrsName | None = Field(default=None, description="Warp to this coordinate system, as EPSG:4326.")
    resampling: Resampling = Field(default="nearest", description="Of the warp, if there is one.")
    nodata: float | None = Field(default=None, description="The nodata value of a source that has none.")
    use_mount: bool = Field(default=False, description="Copy the source to the mount first: a retry finds it there.")


class Completed(CogMade):
    """A raster that is in the catalog."""

    collection_id: str
    item_id: str
    registered: dict[str, int] = Field(description="How many items were created, updated, unchanged.")


@handler(
    "raster.process_complete", version="3", queue=HEAVY, timeout_seconds=14_400, aliases=["raster_process_complete"]
)
def process_complete(ctx: HandlerContext, params: CompleteParams) -> Completed:
    """Validate a raster, make its COG, and register it in the catalog: in one task, with a checkpoint after each."""
    with extra("raster"):
        from dagmaster.handlers.gdal import gdal
        from dagmaster.handlers.raster.inspection import describe
        from dagmaster.handlers.stac.item_builder import new_collection
    done = dict(ctx.checkpoint_data or {})
    collection = params.collection_id or "rasters"
    if "made" not in done:
        source = _source(ctx, params, use_mount=params.use_mount)
        if "validated" not in done:
            with gdal(ctx.share):
                done["validated"] = describe(source.path, ctx.share)
            ctx.checkpoint("validated", done)
        ctx.raise_if_cancelled()
        done["made"] = _warped_cog(ctx, source, params).model_dump()
        ctx.checkpoint("made", done, artifacts=[done["made"]["cog_url"]])
    ctx.raise_if_cancelled()
    item = {**done["made"]["item"], "collection": collection}
    ctx.catalog.ensure_collection(new_collection(collection, description=f"Rasters of {collection}."))
    registered = ctx.catalog.register([item])
    counts = {name: getattr(registered, name) for name in ("created", "updated", "unchanged")}
    return Completed(**done["made"], collection_id=collection, item_id=item["id"], registered=counts)
