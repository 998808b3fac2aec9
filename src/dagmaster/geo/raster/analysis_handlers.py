"""Handlers that derive something from a raster: a thumbnail, zonal statistics, model predictions."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

from pydantic import BaseModel, Field, field_validator

from dagmaster.geo.optional_imports import require_extra
from dagmaster.geo.provenance import multihash
from dagmaster.geo.queues import HEAVY, LIGHT
from dagmaster.geo.raster.cog_output import (
    CogParams,
    CogResult,
    Origin,
    cog_uri,
    publish_cog,
    result_name,
)
from dagmaster.geo.raster.raster_sources import RasterParams, RasterSource, fetch_raster
from dagmaster.geo.result_uris import publish_file, result_uri
from dagmaster.geo.source_files import local_file
from dagmaster.geo.vector.dataset_files import Fetched, fetch
from dagmaster.sdk.handler_context import HandlerContext
from dagmaster.sdk.handler_registry import handler


class ThumbnailParams(RasterParams):
    """The raster, and how its thumbnail is drawn."""

    size: int = Field(default=512, ge=16, le=4096, description="Pixels of the longer side.")
    bands: list[int] | None = Field(
        default=None,
        description="One band for grey, three for colours; by default those named red, green, blue, else the"
        " first.",
    )
    percentiles: tuple[float, float] = Field(
        default=(2.0, 98.0), description="Values between these percentiles are stretched."
    )

    @field_validator("bands")
    @classmethod
    def _one_or_three(cls, bands: list[int] | None) -> list[int] | None:
        if bands is not None and len(bands) not in (1, 3):
            raise ValueError("name one band for grey, or three for red, green and blue")
        return bands

    @field_validator("percentiles")
    @classmethod
    def _ascending(cls, percentiles: tuple[float, float]) -> tuple[float, float]:
        low, high = percentiles
        if not 0 <= low < high <= 100:  # noqa: PLR2004 - percent
            raise ValueError("expected two ascending numbers from 0 to 100")
        return percentiles


class Thumbnail(BaseModel):
    """A thumbnail."""

    thumbnail_url: str = Field(description="The URI of the PNG.")
    thumbnail_path: str = Field(description="Same as thumbnail_url.")
    width: int
    height: int


@handler("raster.thumbnail", version="3", queue=LIGHT, timeout_seconds=1800, aliases=["raster_thumbnail"])
def thumbnail(ctx: HandlerContext, params: ThumbnailParams) -> Thumbnail:
    """Draw a thumbnail (PNG) of a raster, stretched between percentiles; nodata is transparent."""
    with require_extra("raster"):
        from dagmaster.geo.gdal import gdal_env
        from dagmaster.geo.raster.thumbnails import write_thumbnail
    source = fetch_raster(ctx, params.uri(ctx), subdataset=params.subdataset)
    options = params.model_dump(include={"size", "bands", "percentiles"})
    uri = result_uri(
        ctx,
        result_name(source.uri, source.subdataset),
        ".png",
        sources=source.versions,
        params=options,
        folder="thumbnails",
    )
    target = ctx.scratch / "thumbnail.png"
    with gdal_env(ctx.share, **source.options):
        width, height = write_thumbnail(source.path, target, ctx.share, **options)
    publish_file(ctx, target, uri)
    return Thumbnail(thumbnail_url=str(uri), thumbnail_path=str(uri), width=width, height=height)


class ZonalParams(RasterParams):
    """The raster, and the zones to measure."""

    zones: Any = Field(
        description="GeoJSON, the href of a vector file, a bbox in degrees, or a list of these."
    )
    zone_field: str | None = Field(
        default=None, description="The property that names a zone; by default its id or index."
    )
    layer: str | None = Field(default=None, description="The layer of the vector file, if it has several.")
    member: str | None = Field(
        default=None, description="The vector file in a zip archive, if it has several."
    )
    bands: list[int] = Field(default=[1], min_length=1, max_length=1_000, description="The bands to measure.")


class Zonal(BaseModel):
    """Zonal statistics."""

    zones: list[dict[str, Any]] = Field(
        description="Per zone and band: id, band, count (with fractions), sum, mean, min, max, std,"
        " properties."
    )
    zone_count: int
    stats_url: str = Field(description="The same as a JSON file.")


@handler(
    "raster.stats_zonal",
    version="3",
    queue=HEAVY,
    timeout_seconds=7200,
    aliases=["stats_zonal", "raster_stats_zonal"],
)
def stats_zonal(ctx: HandlerContext, params: ZonalParams) -> Zonal:
    """Compute statistics of a raster by zone. A pixel half in a zone counts half; nodata is excluded."""
    with require_extra("raster"):
        from dagmaster.geo.gdal import gdal_env
        from dagmaster.geo.raster.areas_of_interest import read_areas
        from dagmaster.geo.raster.zonal import zonal_statistics
    source = fetch_raster(ctx, params.uri(ctx), subdataset=params.subdataset)
    sources: list[RasterSource | Fetched] = [source]

    def fetch_zones(href: str) -> Fetched:
        fetched = fetch(ctx, ctx.blobs.resolve(href), params.member)
        sources.append(fetched)
        return fetched

    with gdal_env(ctx.share, **source.options):
        zones = read_areas(params.zones, fetch_zones, name_field=params.zone_field, layer=params.layer)
        rows = zonal_statistics(
            source.path, ctx.share, zones, bands=params.bands, on_batch=_progress_reporter(ctx, "zone")
        )
    named = [
        {"href": str(file.uri), "file:checksum": multihash(file.sha256)} for file in sources if file.sha256
    ]
    text = json.dumps({"raster": str(source.uri), "sources": named, "zones": rows}, sort_keys=True)
    target = ctx.scratch / "statistics.json"
    target.write_text(text, encoding="utf-8")
    # The text contains the zones and their statistics, so it serves as the fingerprint of the params.
    uri = result_uri(
        ctx,
        result_name(source.uri, source.subdataset),
        ".json",
        sources=source.versions,
        params={"statistics": text},
        folder="statistics",
    )
    publish_file(ctx, target, uri)
    return Zonal(zones=rows, zone_count=len(zones), stats_url=str(uri))


class PredictionOptions(BaseModel):
    """How a model is applied.

    It receives zeros where there is no data. A model with a fixed input size overrides `window`.
    """

    window: int = Field(default=256, ge=8, le=4096, description="Window width and height in pixels.")
    overlap: int = Field(default=32, ge=0, le=1024, description="Pixels discarded on each side of a window.")
    bands: list[int] | None = Field(default=None, description="The input bands; by default all.")
    scale: float = Field(default=1.0, description="The model receives pixel * scale + offset.")
    offset: float = 0.0
    classes: bool = Field(
        default=False, description="Write the index of the strongest channel, not the channels."
    )


class PredictParams(PredictionOptions, RasterParams, CogParams):
    """The raster, the model, and how it is applied."""

    model: str = Field(
        description="The href of an ONNX model with one float input: batch, bands, rows, columns."
    )


class Predicted(CogResult):
    """The prediction of a model."""

    prediction_path: str = Field(description="The URI of the COG.")


@handler(
    "raster.ml_predict",
    version="4",
    queue=HEAVY,
    timeout_seconds=14_400,
    aliases=["ml_predict", "raster_ml_predict"],
)
def ml_predict(ctx: HandlerContext, params: PredictParams) -> Predicted:
    """Apply an ONNX model to a raster in overlapping windows and write a COG."""
    with require_extra("raster"):
        from dagmaster.geo.gdal import gdal_env
    with require_extra("ml"):
        from dagmaster.geo.raster.prediction import write_prediction
    source, model = (
        fetch_raster(ctx, params.uri(ctx), subdataset=params.subdataset),
        local_file(ctx, ctx.blobs.resolve(params.model)),
    )
    pixel_params = params.model_dump(include=set(PredictionOptions.model_fields))
    origin = Origin.of_files(ctx, source, model)
    options = params.options(origin)

    def write(target: Path) -> None:
        with gdal_env(ctx.share, **source.options):
            write_prediction(
                source.path,
                target,
                options,
                ctx.share,
                model=model.path.read_bytes(),
                prediction=params,
                on_window=_progress_reporter(ctx, "window"),
            )

    name = result_name(source.uri, source.subdataset)
    uri = cog_uri(ctx, name, params, origin, pixel_params, folder="predictions")
    cog = publish_cog(ctx, uri, params, origin, write, name=name, pixel_params=pixel_params)
    return Predicted(**cog.model_dump(), prediction_path=cog.cog_path)


def _progress_reporter(ctx: HandlerContext, unit: str) -> Any:
    def report(done: int, count: int) -> None:
        ctx.raise_if_cancelled()
        ctx.progress(done, count, f"{unit} {done + 1} of {count}")

    return report
