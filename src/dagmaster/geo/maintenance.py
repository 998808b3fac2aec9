"""The maintenance handlers: find blobs that no item references, and register rasters of the silver zone."""

from __future__ import annotations

import time

from pydantic import BaseModel, Field

from dagmaster.geo.queues import HEAVY
from dagmaster.geo.stac.asset_references import referenced_blobs
from dagmaster.geo.stac.catalog_maintenance import Indexed, PlaceParams, index_rasters
from dagmaster.sdk.handler_context import HandlerContext
from dagmaster.sdk.handler_registry import handler


class OrphanParams(PlaceParams):
    """Where to search, and the minimum age."""

    min_age_seconds: float = Field(
        default=3600, ge=0, description="Younger blobs may belong to a job that has yet to register them."
    )
    limit: int = Field(
        default=1000, ge=0, le=10_000, description="How many orphans are listed; all are counted."
    )


class Orphan(BaseModel):
    """A blob that no item references."""

    href: str
    size: int
    modified: float | None = Field(description="In seconds since 1970.")


class Orphans(BaseModel):
    """The orphans. Nothing is deleted."""

    orphans: list[Orphan] = Field(description="The first of them, sorted by name.")
    orphan_count: int
    orphan_mb: float
    checked: int = Field(description="Blobs that were checked.")
    referenced: int = Field(description="Of these, those that an item references.")
    too_young: int = Field(description="Of these, those younger than min_age_seconds.")


@handler(
    "maintenance.detect_orphan_blobs", queue=HEAVY, timeout_seconds=3600, aliases=["detect_orphan_blobs"]
)
def detect_orphan_blobs(ctx: HandlerContext, params: OrphanParams) -> Orphans:
    """Find blobs of a zone that no item of any collection references. Nothing is deleted."""
    # List the blobs first: one registered meanwhile is then found in the catalog.
    files = params.files(ctx)
    ctx.progress(0, len(files), "reading the catalog")
    known = set(referenced_blobs(ctx))
    now = time.time()
    unknown = [info for info in files if info.uri not in known]
    old = [info for info in unknown if info.modified is None or now - info.modified >= params.min_age_seconds]
    ctx.progress(len(files), len(files), "done")
    return Orphans(
        orphans=[
            Orphan(href=str(info.uri), size=info.size, modified=info.modified) for info in old[: params.limit]
        ],
        orphan_count=len(old),
        orphan_mb=round(sum(info.size for info in old) / 1e6, 6),
        checked=len(files),
        referenced=len(files) - len(unknown),
        too_young=len(unknown) - len(old),
    )


class SilverParams(PlaceParams):
    """The rasters to register."""

    collection_id: str = Field(default="silver", description="The collection of the items.")


@handler(
    "maintenance.register_silver_blobs",
    version="2",
    queue=HEAVY,
    timeout_seconds=7200,
    aliases=["register_silver_blobs"],
)
def register_silver_blobs(ctx: HandlerContext, params: SilverParams) -> Indexed:
    """Register an item for each raster of the silver zone that no item of any collection references."""
    return index_rasters(ctx, params.rasters(ctx), set(referenced_blobs(ctx)), params.collection_id)
