"""COG outputs: the params they share, their names, and publishing them with facts and a STAC item.

An existing result is not produced again: its name has a fingerprint of its sources, its params and the
handler version.
"""

from __future__ import annotations

import hashlib
import json
import re
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal

from pydantic import BaseModel, ConfigDict, Field, field_validator

from dagmaster.errors import invalid_input
from dagmaster.geo.optional_imports import require_extra
from dagmaster.geo.provenance import MAX_SOURCES, Provenance, source_entries
from dagmaster.geo.raster.raster_sources import RasterSource
from dagmaster.geo.result_uris import (
    UNDATED_ID,
    dated_id,
    has_fingerprint,
    publish_file,
    result_uri,
    safe_name,
    strip_fingerprint,
)
from dagmaster.geo.rules.datetimes import normalize_datetime
from dagmaster.geo.source_files import LocalFile, local_file, modified_at
from dagmaster.sdk.handler_context import HandlerContext

if TYPE_CHECKING:
    from dagmaster.geo.raster.cog_writer import CogOptions
    from dagmaster.ports.blob_uris import BlobUri

MAX_DEFLATE_LEVEL = 12
_TILE_NAME = re.compile(r"[ns]\d\d[ew]\d{3}\.(?!tiff?$)", re.IGNORECASE)
"""A file name that states the place of its raster, such as N00E006.hgt."""

Compression = Literal["DEFLATE", "ZSTD", "LZW", "LERC", "NONE"]
Overviews = Literal[
    "auto", "nearest", "mode", "average", "bilinear", "cubic", "cubicspline", "lanczos", "rms"
]
Georeferences = Literal["auto", "grid", "gcps", "rpcs"]
Resampling = Literal[
    "nearest",
    "bilinear",
    "cubic",
    "cubic_spline",
    "lanczos",
    "average",
    "mode",
    "max",
    "min",
    "med",
    "q1",
    "q3",
    "sum",
]


class CogFormat(BaseModel):
    """How a COG is encoded."""

    model_config = ConfigDict(extra="forbid", hide_input_in_errors=True)

    compression: Compression = Field(
        default="DEFLATE",
        description="Lossless. ZSTD is smaller and faster.",
        json_schema_extra={"setting": "raster_compression"},
    )
    compression_level: int | None = Field(
        default=None, ge=1, le=22, description="For DEFLATE (1-12) or ZSTD (1-22)."
    )
    tile_size: int = Field(
        default=512,
        ge=64,
        le=4096,
        multiple_of=16,
        description="Block width and height in pixels.",
        json_schema_extra={"setting": "raster_tile_size"},
    )

    @field_validator("compression", mode="before")
    @classmethod
    def _to_upper(cls, value: Any) -> Any:
        return value.upper() if isinstance(value, str) else value

    def writer_options(self, resampling: str, provenance_tag: str = "") -> CogOptions:
        from dagmaster.geo.raster.cog_writer import CogOptions

        if self.compression == "DEFLATE" and (self.compression_level or 0) > MAX_DEFLATE_LEVEL:
            raise invalid_input(
                f"compression_level is {self.compression_level}: DEFLATE has levels 1 to {MAX_DEFLATE_LEVEL}"
            )
        return CogOptions(
            compression=self.compression,
            level=self.compression_level,
            tile_size=self.tile_size,
            resampling=resampling,
            provenance_tag=provenance_tag,
        )


class CogParams(CogFormat):
    """How a COG is encoded, and the metadata of its item."""

    overview_resampling: Overviews = Field(
        default="auto",
        description="average for continuous data, nearest or mode for classes; auto decides by the raster.",
        json_schema_extra={"setting": "raster_overview_resampling"},
    )
    collection_id: str | None = Field(default=None, description="The collection of the item.")
    datetime: str | None = Field(
        default=None, description="The datetime of the measurement; by default that of the file."
    )
    item_id: str | None = Field(
        default=None, description="The id of the item; by default derived from the name of the source."
    )

    def options(self, origin: Origin) -> CogOptions:
        """Return the options of `write_cog`, with a tag that names the sources."""
        from dagmaster.geo.raster.provenance_tags import ProvenanceTag

        tag = ProvenanceTag(sources=origin.reported_sources[:MAX_SOURCES], modified=origin.modified)
        return self.writer_options(self.overview_resampling, tag.to_json())

    def format_params(self) -> dict[str, Any]:
        return self.model_dump(
            include={"compression", "compression_level", "tile_size", "overview_resampling"}
        )


class CogResult(BaseModel):
    """A published COG and its STAC item."""

    cog_url: str = Field(description="The URI of the COG.")
    cog_path: str = Field(description="Same as cog_url; for input_path or cog_path.")
    cog_size_mb: float
    bbox: list[float] | None = Field(
        description="West, south, east, north, in degrees; west is greater than east across the"
        " antimeridian. None off the Earth."
    )
    crs: str
    bounds: list[float] = Field(description="Left, bottom, right, top in the CRS of the COG.")
    sha256: str
    metadata: dict[str, Any] = Field(description="Size, bands, data types, nodata, resolution.")
    item: dict[str, Any] = Field(description="The STAC item, ready to register.")
    sidecars: list[str] = Field(
        default=[],
        description="The files next to the source that were used with it, such as a mask or metadata.",
    )
    not_carried: list[str] = Field(
        default=[], description="What the source or the files next to it say and the COG does not."
    )


@dataclass(frozen=True, slots=True, kw_only=True)
class Origin:
    """The sources of a result: pairs of href and version, and when the first of them last changed."""

    sources: Sequence[tuple[str, str]]
    sidecars: Sequence[tuple[str, str]] = ()
    """The files that belong to the sources."""
    modified: float | None = None
    roots: Sequence[tuple[str, str]] = ()
    """What the sources were made from, which matters more to a reader: the scene, not its tiles."""

    @property
    def reported_sources(self) -> Sequence[tuple[str, str]]:
        return self.roots or self.sources

    def naming(self, sources: Iterable[tuple[str, str]]) -> Origin:
        """Return an origin that also names these sources; the fingerprint of the result stays the same."""
        return replace(self, roots=[*self.reported_sources, *sources])

    @classmethod
    def of_files(cls, ctx: HandlerContext, *files: LocalFile | RasterSource) -> Origin:
        """Return the origin of a result made from files.

        Tags of COGs that dagmaster wrote lead to their roots.
        """
        with require_extra("raster"):
            from dagmaster.geo.raster.provenance_tags import trace_sources
        sources = [file if isinstance(file, RasterSource) else _plain_source(ctx, file) for file in files]
        tag = trace_sources(sources, ctx.share)
        return cls(
            sources=[(source.href, source.version) for source in sources],
            sidecars=[sidecar for source in sources for sidecar in source.sidecar_versions],
            modified=tag.modified or sources[0].modified,
            roots=tag.sources,
        )


def _plain_source(ctx: HandlerContext, file: LocalFile) -> RasterSource:
    modified = modified_at(ctx, file.uri)
    return RasterSource(
        uri=file.uri, path=str(file.path), version=file.sha256, size=file.size, modified=modified
    )


def result_name(uri: BlobUri, subdataset: str | None = None) -> str:
    """Return the name of a result made from this blob: its stem without an earlier step's fingerprint."""
    name = strip_fingerprint(uri.stem)
    return name if subdataset is None else f"{name}_{safe_name(subdataset)}"


def _source_key(href: str, version: str) -> str:
    """Return what identifies a source: its checksum, and its name if that is its place, such as N00E006."""
    name = href.rpartition("/")[2]
    return f"{version} {name}" if _TILE_NAME.match(name) else version


def cog_uri(
    ctx: HandlerContext,
    name: str,
    params: CogParams,
    origin: Origin,
    pixel_params: Mapping[str, Any],
    *,
    folder: str = "cogs",
) -> BlobUri:
    return result_uri(
        ctx,
        name,
        ".tif",
        sources=[
            *(_source_key(*source) for source in origin.sources),
            *(version for _, version in origin.sidecars),
        ],
        params={**params.format_params(), **pixel_params},
        folder=folder,
    )


def publish_computed_cog(
    ctx: HandlerContext,
    sources: LocalFile | RasterSource | Sequence[LocalFile | RasterSource],
    params: CogParams,
    write: Callable[[Path], None],
    *,
    name: str,
    pixel_params: Mapping[str, Any],
    folder: str = "cogs",
) -> CogResult:
    """Convert the GeoTIFF that `write` computes from its sources to a COG; check, publish and describe it.

    For handlers that compute. `write` writes any GeoTIFF to the path it receives; it is not called if the
    result already exists. `pixel_params` are the params that change the pixels: they are part of the result's
    fingerprint.
    """
    origin = Origin.of_files(ctx, *([sources] if isinstance(sources, LocalFile | RasterSource) else sources))

    def write_target(target: Path) -> None:
        from dagmaster.geo.gdal import explain_io_errors, open_raster
        from dagmaster.geo.raster.cog_writer import write_cog
        from dagmaster.geo.raster.georeferences import require_georeferenced

        plain = target.with_suffix(".plain.tif")
        write(plain)
        with open_raster(plain, ctx.share) as raster, explain_io_errors(plain, target=target):
            require_georeferenced(raster)
            write_cog(raster, target, params.options(origin), ctx.share)
        plain.unlink()

    uri = cog_uri(ctx, name, params, origin, pixel_params, folder=folder)
    return publish_cog(ctx, uri, params, origin, write_target, name=name, pixel_params=pixel_params)


def publish_cog(
    ctx: HandlerContext,
    uri: BlobUri,
    params: CogParams,
    origin: Origin,
    write: Callable[[Path], None],
    *,
    name: str,
    pixel_params: Mapping[str, Any],
    source: RasterSource | None = None,
) -> CogResult:
    """Write a COG to the scratch folder, check it, publish it, and describe what is published.

    `source` is the raster whose metadata the COG carries: `write` runs in the GDAL environment in which it is
    read.
    """
    item_id = _item_id(name, origin, pixel_params)
    options = {} if source is None else source.options

    facts: dict[Path, dict[str, Any]] = {}

    def check(target: Path) -> None:
        # Reject what cannot be described, such as a raster at an unknown place, before it is published.
        unpublished = LocalFile(uri=uri, path=target, size=0, sha256="")
        facts[target] = describe_cog(ctx, unpublished, params, origin, item_id=item_id).metadata

    file = _find_existing(ctx, uri) or _write_and_publish(ctx, uri, write, check, options)
    # Another attempt may have published first: its file has its own facts.
    result = describe_cog(ctx, file, params, origin, item_id=item_id, facts=facts.get(file.path))
    if source is None:
        return result
    from dagmaster.geo.raster.carried_metadata import find_lost_metadata

    sidecars, lost = find_lost_metadata(ctx, source, file.path)
    return result.model_copy(update={"sidecars": sidecars, "not_carried": lost})


def describe_cog(
    ctx: HandlerContext,
    file: LocalFile,
    params: CogParams,
    origin: Origin,
    *,
    item_id: str,
    facts: dict[str, Any] | None = None,
) -> CogResult:
    """Return the facts of a COG, unless they are known, and its item, with this id unless params set one.

    A source with a plain name keeps its id, whatever its datetime. A source named by its content may be of
    many days, so the datetime is part of the id; as long as it is unknown, the item is marked as undated.
    """
    with require_extra("raster"):
        from dagmaster.geo.gdal import gdal_env
        from dagmaster.geo.raster.inspection import describe_raster
        from dagmaster.geo.stac.raster_item import ItemMetadata, raster_item
    is_content_named = params.item_id is None and any(has_fingerprint(href) for href, _ in origin.sources)
    if is_content_named and params.datetime is not None:
        item_id = dated_id(item_id, normalize_datetime(params.datetime))
    with gdal_env(ctx.share):
        facts = facts or describe_raster(file.path, ctx.share, sample=False)
        metadata = ItemMetadata(
            item_id=params.item_id or item_id,
            href=str(file.uri),
            sha256=file.sha256,
            size=file.size,
            collection=params.collection_id,
            datetime=params.datetime,
            source_modified=origin.modified,
            created=modified_at(ctx, file.uri),
            properties={
                **({UNDATED_ID: True} if is_content_named and params.datetime is None else {}),
                **({"dagmaster:sidecars": source_entries(origin.sidecars)} if origin.sidecars else {}),
            },
        )
        item = raster_item(file.path, ctx.share, metadata, Provenance.of_task(ctx, origin.reported_sources))
    return CogResult(
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


def _find_existing(ctx: HandlerContext, uri: BlobUri) -> LocalFile | None:
    return None if ctx.blobs.find(uri) is None else local_file(ctx, uri)


def _write_and_publish(
    ctx: HandlerContext,
    uri: BlobUri,
    write: Callable[[Path], None],
    check: Callable[[Path], None],
    options: Mapping[str, Any],
) -> LocalFile:
    with require_extra("raster"):
        from dagmaster.geo.gdal import gdal_env
        from dagmaster.geo.raster.cog_writer import check_cog
    target = ctx.scratch / f"result-{hashlib.sha256(str(uri).encode()).hexdigest()[:8]}.tif"
    ctx.progress(0, 3, f"writing {uri.name.rpartition('/')[2]}")
    with gdal_env(ctx.share, **options):
        write(target)
    ctx.progress(1, 3, "checking")
    # Without the files that GDAL may have written next to it: only the COG itself is published.
    with gdal_env(ctx.share):
        check_cog(target)
        check(target)
    ctx.raise_if_cancelled()
    ctx.progress(2, 3, "publishing")
    info = publish_file(ctx, target, uri)
    ctx.progress(3, 3, "published")
    if not info.created:
        # Another attempt published first: use its file.
        target.unlink()
        return local_file(ctx, uri)
    return LocalFile(uri=uri, path=target, size=info.size, sha256=info.sha256)


def _item_id(name: str, origin: Origin, pixel_params: Mapping[str, Any]) -> str:
    """Return an id that later handler versions keep: it covers sources and params, not the method."""
    text = json.dumps([[href for href, _ in origin.sources], dict(pixel_params)], sort_keys=True, default=str)
    return f"{safe_name(name)}-{hashlib.sha256(text.encode()).hexdigest()[:8]}"
