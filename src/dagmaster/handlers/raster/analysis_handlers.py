"""Handlers that look at a raster and make something small of it: a picture, statistics, predictions."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

from pydantic import BaseModel, Field, field_validator

from dagmaster.authoring.handler_context import HandlerContext
from dagmaster.authoring.handler_registry import handler
from dagmaster.handlers.optional_imports import extra
from dagmaster.handlers.queues import HEAVY, LIGHT
from dagmaster.handlers.raster.cog_output import CogMade, CogParams, Origin, cog_uri, made_cog, name_of
from dagmaster.handlers.result_uris import publish, result_uri
from dagmaster.handlers.source_files import SourceParams, local_file
from dagmaster.handlers.vector.dataset_files import fetch


class ThumbnailParams(SourceParams):
    """The raster, and how it is drawn."""

    size: int = Field(default=512, ge=16, le=4096, description="Pixels of the longer side.")
    bands: list[int] | None = Field(
        default=None,
        description="One for grey, three for colours; else those called or coloured red, green, blue; else the first.",
    )
    percentiles: tuple[float, float] = Field(default=(2.0, 98.0), description="Values between them are stretched.")

    @field_validator("bands")
    @classmethod
    def _one_or_three(cls, bands: list[int] | None) -> list[int] | None:
        if bands is not None and len(bands) not in (1, 3):
            raise ValueError("name one band for grey, or three for red, green and blue")
        return bands

    @field_validator("percentiles")
    @classmethod
    def _rising(cls, percentiles: tuple[float, float]) -> tuple[float, float]:
        low, high = percentiles
        if not 0 <= low < high <= 100:  # noqa: PLR2004 - percent
            raise ValueError("two rising numbers from 0 to 100")
        return percentiles


class Thumbnail(BaseModel):
    """A picture."""

    thumbnail_url: str = Field(description="Where it lies.")
    thumbnail_path: str = Field(description="The same.")
    width: int
    height: int


@handler("raster.thumbnail", version="2", queue=LIGHT, timeout_seconds=1800, aliases=["raster_thumbnail"])
def thumbnail(ctx: HandlerContext, params: ThumbnailParams) -> Thumbnail:
    """Draw a small picture (PNG) of a raster, stretched between percentiles; nodata is transparent."""
    with extra("raster"):
        from dagmaster.handlers.gdal import gdal
        from dagmaster.handlers.raster import thumbnails
    source = local_file(ctx, params.uri(ctx))
    shape = params.model_dump(include={"size", "bands", "percentiles"})
    uri = result_uri(ctx, name_of(source.uri), ".png", sources=[source.sha256], params=shape, folder="thumbnails")
    to = ctx.scratch / "thumbnail.png"
    with gdal(ctx.share):
        width, height = thumbnails.thumbnail(source.path, to, ctx.share, **shape)
    publish(ctx, to, uri)
    return Thumbnail(thumbnail_url=str(uri), thumbnail_path=str(uri), width=width, height=height)


class ZonalParams(SourceParams):
    """The raster, and the zones that it is measured in."""

    zones: Any = Field(description="GeoJSON, the href of a vector file, a bbox in degrees, or a list of these.")
    zone_field: str | None = Field(default=None, description="The property that names a zone; else its id or number.")
    layer: str | None = Field(default=None, description="Of the vector file, where it has several.")
    member: str | None = Field(default=None, description="The vector file in a zip, where it has several.")
    bands: list[int] = Field(default=[1], min_length=1, max_length=1_000, description="Which bands.")


class Zonal(BaseModel):
    """Statistics of zones."""

    zones: list[dict[str, Any]] = Field(
        description="Per zone and band: id, band, count, sum, mean, min, max, std, properties. Count has fractions."
    )
    zone_count: int
    stats_url: str = Field(description="The same as a JSON file.")


@handler(
    "raster.stats_zonal", version="2", queue=HEAVY, timeout_seconds=7200, aliases=["stats_zonal", "raster_stats_zonal"]
)
def stats_zonal(ctx: HandlerContext, params: ZonalParams) -> Zonal:
    """Measure a raster in zones. A pixel that lies half in a zone counts half; nodata is left out."""
    with extra("raster"):
        from dagmaster.handlers.gdal import gdal
        from dagmaster.handlers.raster import zonal
        from dagmaster.handlers.raster.areas_of_interest import areas
    source = local_file(ctx, params.uri(ctx))
    with gdal(ctx.share):
        wanted = areas(
            params.zones,
            lambda href: fetch(ctx, ctx.blobs.resolve(href), params.member),
            name_field=params.zone_field,
            layer=params.layer,
        )
        rows = zonal.zonal(source.path, ctx.share, wanted, bands=params.bands, on_round=_each(ctx, "zone"))
    told = json.dumps({"raster": str(source.uri), "zones": rows}, sort_keys=True)
    to = ctx.scratch / "statistics.json"
    to.write_text(told, encoding="utf-8")
    # What is told names the zones and what was found in them: that is the fingerprint.
    name = name_of(source.uri)
    uri = result_uri(ctx, name, ".json", sources=[source.sha256], params={"told": told}, folder="statistics")
    publish(ctx, to, uri)
    return Zonal(zones=rows, zone_count=len(wanted), stats_url=str(uri))


class PredictParams(SourceParams, CogParams):
    """The raster, the model, and how it is used."""

    model: str = Field(description="The href of an ONNX model: one float input of batch, bands, rows, columns.")
    window: int = Field(default=256, ge=8, le=4096, description="Pixels of a window's side.")
    overlap: int = Field(default=32, ge=0, le=1024, description="Pixels thrown away on each side of a window.")
    bands: list[int] | None = Field(default=None, description="What the model is shown; else all bands.")
    scale: float = Field(default=1.0, description="The model gets pixel * scale + offset.")
    offset: float = 0.0
    classes: bool = Field(default=False, description="Write the number of the strongest channel, not the channels.")


class Predicted(CogMade):
    """What a model says."""

    prediction_path: str = Field(description="Where it lies.")


@handler(
    "raster.ml_predict", version="3", queue=HEAVY, timeout_seconds=14_400, aliases=["ml_predict", "raster_ml_predict"]
)
def ml_predict(ctx: HandlerContext, params: PredictParams) -> Predicted:
    """Run an ONNX model over a raster, in windows that overlap, into a COG."""
    with extra("raster"):
        from dagmaster.handlers.raster.cog_writer import make_cog as _  # noqa: F401 - says which extra is missing
    with extra("ml"):
        from dagmaster.handlers.raster.prediction import Prediction, predict
    source, model = local_file(ctx, params.uri(ctx)), local_file(ctx, ctx.blobs.resolve(params.model))
    shape = params.model_dump(include={"window", "overlap", "bands", "scale", "offset", "classes"})
    how, origin = Prediction(**shape), Origin.of(ctx, source, model)
    options = params.options(origin)

    def make(to: Path) -> None:
        weights = model.path.read_bytes()
        predict(source.path, to, options, ctx.share, model=weights, how=how, on_round=_each(ctx, "window"))

    name = name_of(source.uri)
    uri = cog_uri(ctx, name, params, origin, shape, folder="predictions")
    made = made_cog(ctx, uri, params, origin, make, name=name, shape=shape)
    return Predicted(**made.model_dump(), prediction_path=made.cog_path)


def _each(ctx: HandlerContext, what: str) -> Any:
    """Tell how far it is, once a round."""

    def on_round(done: int, count: int) -> None:
        ctx.raise_if_cancelled()
        ctx.progress(done, count, f"{what} {done + 1} of {count}")

    return on_round
