"""The raster handlers: params at the door, a plain function inside, a blob and its facts as the result."""

from __future__ import annotations

from typing import Any

from pydantic import BaseModel, Field

from dagmaster.authoring.handler_context import HandlerContext
from dagmaster.authoring.handler_registry import handler
from dagmaster.handlers.optional_imports import extra
from dagmaster.handlers.queues import HEAVY, LIGHT
from dagmaster.handlers.raster.analysis_handlers import ml_predict, stats_zonal, thumbnail
from dagmaster.handlers.raster.cog_handlers import clip, create_cog, mosaic, process_complete, reproject
from dagmaster.handlers.raster.file_handlers import blob_to_mount, list_files
from dagmaster.handlers.raster.remote_rasters import in_place
from dagmaster.handlers.raster.tile_handlers import generate_tiling_scheme, process_tile_batch
from dagmaster.handlers.source_files import SourceParams

__all__ = [
    "HEAVY",
    "LIGHT",
    "blob_to_mount",
    "clip",
    "create_cog",
    "generate_tiling_scheme",
    "list_files",
    "ml_predict",
    "mosaic",
    "process_complete",
    "process_tile_batch",
    "reproject",
    "stats_zonal",
    "thumbnail",
    "validate",
]


class ValidateParams(SourceParams):
    """The raster to look at."""

    dataset_id: str | None = Field(default=None, description="Passed on.")


class Validated(BaseModel):
    """What is known of a raster."""

    blob_url: str = Field(description="Where it lies: pass it on as source_url.")
    validated_path: str = Field(description="The same, for source_path.")
    size_mb: float
    file_size_mb: float = Field(description="The same.")
    crs: str
    bounds: list[float] = Field(description="In its own coordinate system.")
    bbox: list[float] = Field(description="West, south, east, north, in degrees; west beyond east: across 180°.")
    sha256: str | None = Field(description="Of its bytes; None where it was only looked at, in an object store.")
    metadata: dict[str, Any] = Field(description="Size, bands, data types, nodata, resolution, how it stands.")


@handler("raster.validate", version="2", queue=LIGHT, timeout_seconds=600, aliases=["raster_validate"])
def validate(ctx: HandlerContext, params: ValidateParams) -> Validated:
    """Check that a file is a raster with a place on Earth, and tell what is in it."""
    with extra("raster"):
        from dagmaster.handlers.gdal import gdal
        from dagmaster.handlers.raster import inspection
    # A large blob is not brought here to be looked at.
    source = in_place(ctx, params.uri(ctx))
    with gdal(ctx.share, **source.options):
        facts = inspection.describe(source.path, ctx.share, size=source.size)
    size_mb = round(source.size / 1e6, 6)
    return Validated(
        blob_url=str(source.uri),
        validated_path=str(source.uri),
        size_mb=size_mb,
        file_size_mb=size_mb,
        crs=facts["crs"],
        bounds=facts["bounds"],
        bbox=facts["bbox"],
        sha256=source.sha256,
        metadata=facts,
    )
