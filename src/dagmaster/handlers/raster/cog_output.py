"""What handlers that make a raster have in common: params of a COG, its place, its facts and its item.

A result that is there already is not made again: its name tells what it was made of, how, and by which version.
"""

from __future__ import annotations

import hashlib
import json
import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal

from pydantic import BaseModel, ConfigDict, Field, field_validator

from dagmaster.authoring.handler_context import HandlerContext
from dagmaster.errors import PermanentError
from dagmaster.geo.datetimes import normalize_datetime
from dagmaster.handlers.optional_imports import extra
from dagmaster.handlers.provenance import MOST_SOURCES, Made
from dagmaster.handlers.result_uris import (
    UNDATED,
    dated,
    is_named_by_content,
    plain_name,
    publish,
    result_uri,
    without_fingerprint,
)
from dagmaster.handlers.source_files import LocalFile, local_file

if TYPE_CHECKING:
    from dagmaster.handlers.raster.cog_writer import CogOptions
    from dagmaster.ports.storage import BlobUri

MAX_DEFLATE = 12
_PLACE = re.compile(r"[ns]\d\d[ew]\d{3}\.(?!tiff?$)", re.IGNORECASE)

Compression = Literal["DEFLATE", "ZSTD", "LZW", "LERC", "NONE"]
Overviews = Literal["auto", "nearest", "mode", "average", "bilinear", "cubic", "cubicspline", "lanczos", "rms"]
Resampling = Literal[
    "nearest", "bilinear", "cubic", "cubic_spline", "lanczos", "average", "mode", "max", "min", "med", "q1", "q3", "sum"
]


class CogShape(BaseModel):
    """How a COG is written."""

    model_config = ConfigDict(extra="forbid", hide_input_in_errors=True)

    compression: Compression = Field(default="DEFLATE", description="Without loss. ZSTD is smaller and faster.")
    compression_level: int | None = Field(default=None, ge=1, le=22, description="Of DEFLATE (1-12) or ZSTD (1-22).")
    tile_size: int = Field(default=512, ge=64, le=4096, multiple_of=16, description="Pixels of a block's side.")

    @field_validator("compression", mode="before")
    @classmethod
    def _upper(cls, said: Any) -> Any:
        return said.upper() if isinstance(said, str) else said

    def shaped(self, resampling: str, made_of: str = "") -> CogOptions:
        """As the plain function takes them."""
        from dagmaster.handlers.raster.cog_writer import CogOptions

        if self.compression == "DEFLATE" and (self.compression_level or 0) > MAX_DEFLATE:
            raise PermanentError(f"DEFLATE has levels 1 to {MAX_DEFLATE}", kind="invalid_input")
        return CogOptions(
            compression=self.compression,
            level=self.compression_level,
            tile_size=self.tile_size,
            resampling=resampling,
            made_of=made_of,
        )


class CogParams(CogShape):
    """How a COG is written, and what is said of it."""

    overview_resampling: Overviews = Field(
        default="auto", description="average for measurements, nearest or mode for classes; auto looks at the raster."
    )
    collection_id: str | None = Field(default=None, description="The collection that the item is for.")
    datetime: str | None = Field(default=None, description="When it was measured; else the file's own date.")
    item_id: str | None = Field(default=None, description="The item's id; else made of the source's name.")

    def options(self, origin: Origin) -> CogOptions:
        """As the plain function takes them. The COG tells of what it is made."""
        from dagmaster.handlers.raster.provenance_tags import MadeOf

        made_of = MadeOf(sources=origin.named[:MOST_SOURCES], modified=origin.modified).written()
        return self.shaped(self.overview_resampling, made_of)

    def shaping(self) -> dict[str, Any]:
        """The params that change the file."""
        return self.model_dump(include={"compression", "compression_level", "tile_size", "overview_resampling"})


class CogMade(BaseModel):
    """A COG, where it is, and its STAC item."""

    cog_url: str = Field(description="Where it lies.")
    cog_path: str = Field(description="The same, for input_path or cog_path.")
    cog_size_mb: float
    bbox: list[float] = Field(description="West, south, east, north, in degrees; west beyond east: across 180°.")
    crs: str
    bounds: list[float] = Field(description="In its own coordinate system.")
    sha256: str
    metadata: dict[str, Any] = Field(description="Size, bands, data types, nodata, resolution.")
    item: dict[str, Any] = Field(description="A STAC item, ready to register.")


@dataclass(frozen=True, slots=True, kw_only=True)
class Origin:
    """What a result is made of: pairs of href and version, and the moment when the first of them last changed."""

    sources: Sequence[tuple[str, str]]
    modified: float | None = None
    first: Sequence[tuple[str, str]] = ()
    """Of what the sources are made in turn, which is what a reader wants to know: the scene, not its tiles."""

    @property
    def named(self) -> Sequence[tuple[str, str]]:
        """The sources that a result names."""
        return self.first or self.sources

    @classmethod
    def of(cls, ctx: HandlerContext, *files: LocalFile) -> Origin:
        """Of these files."""
        info = ctx.blobs.find(files[0].uri)
        known = [(str(one.path), (str(one.uri), one.sha256)) for one in files]
        return cls.of_rasters(ctx, known, None if info is None else info.modified)

    @classmethod
    def of_rasters(
        cls,
        ctx: HandlerContext,
        rasters: Sequence[tuple[str, tuple[str, str]]],
        modified: float | None,
        options: Mapping[str, str] | None = None,
    ) -> Origin:
        """Of rasters where GDAL reads them. What one of ours was made of stands in it."""
        with extra("raster"):
            from dagmaster.handlers.gdal import gdal
            from dagmaster.handlers.raster.provenance_tags import first_sources
        with gdal(ctx.share, **(options or {})):
            first = first_sources(rasters, ctx.share)
        return cls(sources=[itself for _, itself in rasters], modified=first.modified or modified, first=first.sources)


def name_of(uri: BlobUri) -> str:
    """What a result of this blob is called: its name, without the fingerprint that a step before gave it."""
    return without_fingerprint(uri.stem)


def known_as(href: str, version: str) -> str:
    """What tells a source from all others: its checksum, and its name where its place stands in that, as N00E006."""
    word = href.rpartition("/")[2]
    return f"{version} {word}" if _PLACE.match(word) else version


def cog_uri(
    ctx: HandlerContext, name: str, params: CogParams, origin: Origin, shape: Mapping[str, Any], *, folder: str = "cogs"
) -> BlobUri:
    """The place of a COG."""
    return result_uri(
        ctx,
        name,
        ".tif",
        sources=[known_as(*one) for one in origin.sources],
        params={**params.shaping(), **shape},
        folder=folder,
    )


def cog_of(
    ctx: HandlerContext,
    source: LocalFile,
    params: CogParams,
    write: Callable[[Path], None],
    *,
    name: str,
    shape: Mapping[str, Any],
    folder: str = "cogs",
) -> CogMade:
    """The COG of what `write` makes of a source: checked, published once, described, with its STAC item.

    For handlers that compute. `write` writes any GeoTIFF at the path that it is given, and is not called where the
    result is there already. `shape` names the params that change the pixels: they are part of the result's name.
    """
    origin = Origin.of(ctx, source)

    def make(to: Path) -> None:
        from dagmaster.handlers.gdal import opened, working
        from dagmaster.handlers.raster.cog_writer import write_cog
        from dagmaster.handlers.raster.grids import require_place

        plain = to.with_suffix(".plain.tif")
        write(plain)
        with opened(plain, ctx.share) as raster, working(plain, to=to):
            require_place(raster)
            write_cog(raster, to, params.options(origin), ctx.share)
        plain.unlink()

    uri = cog_uri(ctx, name, params, origin, shape, folder=folder)
    return made_cog(ctx, uri, params, origin, make, name=name, shape=shape)


def made_cog(
    ctx: HandlerContext,
    uri: BlobUri,
    params: CogParams,
    origin: Origin,
    make: Callable[[Path], None],
    *,
    name: str,
    shape: Mapping[str, Any],
) -> CogMade:
    """Make a COG in the scratch folder, look at it, publish it, and describe what is there then."""
    item_id = _item_id(name, origin, shape)

    def look(to: Path) -> None:
        # What cannot be described, as a raster of no known place, is refused before anybody sees it.
        described(ctx, LocalFile(uri=uri, path=to, size=0, sha256=""), params, origin, item_id=item_id)

    file = _there(ctx, uri) or _made(ctx, uri, make, look)
    return described(ctx, file, params, origin, item_id=item_id)


def described(ctx: HandlerContext, file: LocalFile, params: CogParams, origin: Origin, *, item_id: str) -> CogMade:
    """What is known of a COG, and its item: of this id, or of the one that was told.

    A source with a plain path keeps its id, whatever its date. One that is named by its content may be of many days, so
    the day is a part of the id; where nobody has told it yet, the item says that.
    """
    with extra("raster"):
        from dagmaster.handlers.gdal import gdal
        from dagmaster.handlers.raster.inspection import describe
        from dagmaster.handlers.stac.raster_item import Told, raster_item
    by_content = params.item_id is None and any(is_named_by_content(href) for href, _ in origin.sources)
    if by_content and params.datetime is not None:
        item_id = dated(item_id, normalize_datetime(params.datetime))
    with gdal(ctx.share):
        facts = describe(file.path, ctx.share, sample=False)
        info = ctx.blobs.find(file.uri)
        told = Told(
            item_id=params.item_id or item_id,
            href=str(file.uri),
            sha256=file.sha256,
            size=file.size,
            collection=params.collection_id,
            when=params.datetime,
            assumed=origin.modified,
            created=None if info is None else info.modified,
            properties={UNDATED: True} if by_content and params.datetime is None else {},
        )
        item = raster_item(file.path, ctx.share, told, Made.by(ctx, origin.named))
    return CogMade(
        cog_url=str(file.uri),
        cog_path=str(file.uri),
        cog_size_mb=round(file.size / 1e6, 6),
        bbox=facts["bbox"],
        crs=facts["crs"],
        bounds=facts["bounds"],
        sha256=file.sha256,
        metadata=facts,
        item=item,
    )


def _there(ctx: HandlerContext, uri: BlobUri) -> LocalFile | None:
    return None if ctx.blobs.find(uri) is None else local_file(ctx, uri)


def _made(ctx: HandlerContext, uri: BlobUri, make: Callable[[Path], None], look: Callable[[Path], None]) -> LocalFile:
    with extra("raster"):
        from dagmaster.handlers.gdal import gdal
        from dagmaster.handlers.raster.cog_writer import check_cog
    to = ctx.scratch / f"result-{hashlib.sha256(str(uri).encode()).hexdigest()[:8]}.tif"
    ctx.progress(0, 3, f"making {uri.name.rpartition('/')[2]}")
    with gdal(ctx.share):
        make(to)
        ctx.progress(1, 3, "checking")
        check_cog(to)
        look(to)
    ctx.raise_if_cancelled()
    ctx.progress(2, 3, "publishing")
    info = publish(ctx, to, uri)
    ctx.progress(3, 3, "published")
    if not info.created:
        # A twin was faster. What counts is what lies there.
        to.unlink()
        return local_file(ctx, uri)
    return LocalFile(uri=uri, path=to, size=info.size, sha256=info.sha256)


def _item_id(name: str, origin: Origin, shape: Mapping[str, Any]) -> str:
    """An id that a later version of a handler gives too: of what it is made and what part, not how."""
    said = json.dumps([[href for href, _ in origin.sources], dict(shape)], sort_keys=True, default=str)
    return f"{plain_name(name)}-{hashlib.sha256(said.encode()).hexdigest()[:8]}"
