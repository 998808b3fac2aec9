"""The raster handlers, all importable from here, and `raster.validate`."""

from __future__ import annotations

from typing import Any

from pydantic import BaseModel, Field

from dagmaster.geo.optional_imports import require_extra
from dagmaster.geo.queues import HEAVY, LIGHT
from dagmaster.geo.raster.analysis_handlers import ml_predict, stats_zonal, thumbnail
from dagmaster.geo.raster.cog_handlers import clip, create_cog, mosaic, process_complete, reproject
from dagmaster.geo.raster.file_handlers import blob_to_mount, list_files
from dagmaster.geo.raster.raster_sources import RasterParams, locate_raster
from dagmaster.geo.raster.tile_handlers import generate_tiling_scheme, process_tile_batch
from dagmaster.sdk.handler_context import HandlerContext
from dagmaster.sdk.handler_registry import handler

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


class ValidateParams(RasterParams):
    """The raster to validate."""

    dataset_id: str | None = Field(default=None, description="Not used; accepted for existing workflows.")


class Validated(BaseModel):
    """The facts of a raster."""

    blob_url: str = Field(description="The URI of the raster; pass it on as source_url.")
    validated_path: str = Field(description="Same as blob_url; for source_path.")
    size_mb: float
    file_size_mb: float = Field(description="Same as size_mb.")
    crs: str | None = Field(description="None for a file that contains several rasters, if none is named.")
    bounds: list[float] | None = Field(description="Left, bottom, right, top in the CRS of the raster.")
    bbox: list[float] | None = Field(
        description="West, south, east, north, in degrees; west is greater than east across the"
        " antimeridian. None off the Earth."
    )
    sha256: str | None = Field(
        description="The checksum; None if the raster was inspected in an object store."
    )
    metadata: dict[str, Any] = Field(description="Size, bands, data types, nodata, resolution, orientation.")
    subdataset: str | None = Field(default=None, description="The raster that was named.")
    subdatasets: list[dict[str, str]] = Field(
        default=[],
        description="The rasters in a file that contains several: name (for subdataset) and description.",
    )


@handler("raster.validate", version="3", queue=LIGHT, timeout_seconds=600, aliases=["raster_validate"])
def validate(ctx: HandlerContext, params: ValidateParams) -> Validated:
    """Check that a file is a georeferenced raster, and return its facts."""
    with require_extra("raster"):
        from dagmaster.geo.gdal import gdal_env
        from dagmaster.geo.raster.inspection import describe_raster
        from dagmaster.geo.raster.subdatasets import describe_container
    # A large blob is inspected in place, not fetched.
    source = locate_raster(ctx, params.uri(ctx), subdataset=params.subdataset)
    with gdal_env(ctx.share, **source.options):
        subdatasets, has_pixels = describe_container(source.path)
        facts = (
            describe_raster(source.path, ctx.share, size=source.size) if has_pixels or not subdatasets else {}
        )
    size_mb = round(source.size / 1e6, 6)
    return Validated(
        blob_url=str(source.uri),
        validated_path=str(source.uri),
        size_mb=size_mb,
        file_size_mb=size_mb,
        crs=facts.get("crs"),
        bounds=facts.get("bounds"),
        bbox=facts.get("bbox"),
        sha256=source.sha256,
        metadata=facts,
        subdataset=source.subdataset,
        subdatasets=subdatasets,
    )
