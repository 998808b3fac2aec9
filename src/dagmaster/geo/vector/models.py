"""The params and outputs of the vector handlers. Nothing heavy is imported here."""

from __future__ import annotations

from typing import Any, Literal

from pydantic import BaseModel, ConfigDict, Field

from dagmaster.geo.source_files import CrsName, SourceParams

Invalid = Literal["repair", "report", "fail"]
Missing = Literal["keep", "drop", "fail"]
Mixed = Literal["multi", "geometry", "fail"]
Heights = Literal["keep", "drop"]
Outside = Literal["fail", "clip"]
Curves = Literal["linearize", "fail"]
CURVE_STEP_DEGREES = 4.0
"""Also GDAL's default."""


class VectorSource(SourceParams):
    """A file of features, and how to read it where the file does not say."""

    layer: str | None = Field(default=None, description="The layer, if the file has several.")
    member: str | None = Field(default=None, description="The file in a zip archive, if it has several.")
    source_crs: CrsName | None = Field(
        default=None, description="The CRS of a file without one, such as EPSG:4326."
    )
    encoding: str | None = Field(
        default=None, description="The encoding of text that is not UTF-8, such as ISO-8859-1."
    )
    lon_column: str | None = Field(
        default=None, description="The longitude column of a CSV. Default: lon, lng, long, longitude or x."
    )
    lat_column: str | None = Field(
        default=None, description="The latitude column of a CSV. Default: lat, latitude, y."
    )
    wkt_column: str | None = Field(
        default=None, description="The WKT column of a CSV. Default: wkt, geometry, geom."
    )


class GeometryRules(BaseModel):
    """How to handle problematic geometries. Each case is counted."""

    invalid: Invalid = Field(
        default="repair", description="For invalid geometries, such as self-intersections."
    )
    missing_geometry: Missing = Field(
        default="keep", description="For features with no geometry or an empty one."
    )
    mixed_types: Mixed = Field(
        default="multi",
        description="For Polygon mixed with MultiPolygon: convert all to Multi, keep both, or fail.",
    )
    heights: Heights = Field(
        default="keep", description="For Z values. M values are always dropped and counted."
    )
    outside: Outside = Field(
        default="fail", description="For geometries that the target CRS cannot represent: fail, or clip them."
    )
    clip_bbox: tuple[float, float, float, float] | None = Field(
        default=None, description="West, south, east, north, in degrees: clip to this bbox."
    )
    curves: Curves = Field(
        default="linearize",
        description="For arcs, which tables do not store: replace them by chords, or fail.",
    )
    curve_step_degrees: float = Field(
        default=CURVE_STEP_DEGREES,
        gt=0,
        le=45,
        description="The angle that a chord of an arc spans at most. At 4 degrees it deviates by 0.06 % of"
        " the radius.",
    )


class PrepareParams(VectorSource, GeometryRules):
    """The features to load, and how."""

    table: str | None = Field(default=None, description="The target table. Default: the name of the file.")
    table_name: str | None = Field(default=None, description="Alias of table.")
    target_crs: CrsName = Field(
        default="EPSG:4326",
        description="As AUTHORITY:CODE; it must have an EPSG code.",
        json_schema_extra={"setting": "vector_target_crs"},
    )
    chunk_rows: int = Field(
        default=20_000,
        ge=1,
        le=1_000_000,
        description="The maximum features per chunk.",
        json_schema_extra={"setting": "vector_chunk_rows"},
    )
    chunk_mb: float = Field(
        default=64,
        gt=0,
        le=4096,
        description="The approximate maximum megabytes per chunk.",
        json_schema_extra={"setting": "vector_chunk_mb"},
    )
    replace: bool = Field(
        default=False, description="Replace the table even if it was loaded from another file."
    )
    dataset_id: str | None = Field(default=None, description="Passed on.")


class Chunk(BaseModel):
    """One chunk: an entry to fan out over."""

    chunk_id: str
    href: str
    rows: int
    bbox: list[float] | None = Field(description="In the target CRS.")
    footprint: list[float] | None = Field(description="West, south, east, north, in degrees.")
    table: str
    source: str = Field(default="", description="The file, with its layer or member if one is named.")
    replace: bool = Field(
        default=False, description="Replace the table even if it was loaded from another file."
    )


class TableSchema(BaseModel):
    """The columns and geometry of a table."""

    columns: list[dict[str, str]] = Field(description="name, type, and source_name (the name in the file).")
    geometry_column: str
    geometry_type: str
    srid: int


class Prepared(BaseModel):
    """Features that are ready to upload to a table."""

    model_config = ConfigDict(populate_by_name=True)

    chunks: list[Chunk] = Field(description="To fan out over.")
    table: str
    table_schema: TableSchema = Field(alias="schema")
    counts: dict[str, Any] = Field(
        description="rows, chunks, and features repaired, reported, dropped or clipped."
    )
    problems: list[dict[str, Any]] = Field(description="The first problematic geometries.")
    crs: str
    source_crs: str
    bbox: list[float] | None = Field(description="West, south, east, north, in degrees.")
    source: dict[str, Any] = Field(description="href, sha256, size and time of the file, for provenance.")
    dataset_id: str | None = None


class UploadParams(BaseModel):
    """One chunk of vector.prepare."""

    model_config = ConfigDict(extra="forbid", populate_by_name=True)

    chunk: Chunk | None = Field(
        default=None, description="An entry of the chunks of vector.prepare; or its parts:"
    )
    table: str | None = Field(default=None, description="Default: the table of the chunk.")
    chunk_id: str | None = None
    href: str | None = None


class Uploaded(BaseModel):
    """An uploaded chunk."""

    table: str
    chunk_id: str
    rows: int


class StacParams(BaseModel):
    """The table to describe."""

    model_config = ConfigDict(extra="forbid")

    table: str
    chunks: list[Chunk | str] | None = Field(
        default=None, description="The chunks of this run. Chunks of earlier runs are removed first."
    )
    collection_id: str = "vectors"
    item_id: str | None = Field(default=None, description="Default: the name of the table.")
    title: str | None = None
    when: str | None = Field(
        default=None, description="The datetime, such as 2026-01-31T00:00:00Z. Default: that of the source."
    )
    source: dict[str, Any] | None = Field(
        default=None, description="The source in the output of vector.prepare, for provenance."
    )
    expected_rows: int | None = Field(
        default=None, description="Fail if the table has another number of rows."
    )


class Registered(BaseModel):
    """A table, and its item in the catalog."""

    item: dict[str, Any]
    item_id: str
    collection_id: str
    table: str
    href: str
    rows: int
    bbox: list[float] | None
    is_registered: bool = Field(
        description="False for a table without extent: its geometries are all null or empty, and a catalog"
        " needs a place."
    )


class Described(Registered):
    """A registered table."""

    removed_rows: int = Field(description="Rows of chunks of earlier runs.")


class SimplifyParams(VectorSource):
    """The features to simplify."""

    tolerance: float = Field(gt=0, description="In the units of the CRS of the file: degrees or metres.")


class Generalized(BaseModel):
    """Simplified or dissolved features, as GeoParquet."""

    href: str
    rows: int
    source_rows: int
    method: str = Field(description="coverage: shared borders stay shared; otherwise plain.")
    crs: str
    bbox: list[float] | None = Field(description="West, south, east, north, in degrees.")
    area_before: float = Field(description="In square metres, on the ellipsoid.")
    area_after: float
    vertices_before: int
    vertices_after: int
    counts: dict[str, Any] = Field(description="Features that were read, and repairs.")
    problems: list[dict[str, Any]] = Field(description="The first problematic geometries.")


class DissolveParams(VectorSource):
    """The features to merge."""

    by: list[str] = Field(default_factory=list, description="The columns to group by. Default: one group.")
    sums: list[str] = Field(default_factory=list, description="The columns to sum in each group.")


class CompleteParams(PrepareParams):
    """The features to load and register in one task."""

    collection_id: str = "vectors"
    item_id: str | None = None
    title: str | None = None
    when: str | None = None


class Completed(Registered):
    """A loaded and registered table."""

    model_config = ConfigDict(populate_by_name=True)

    chunks: int
    resumed_from: int = Field(description="How many chunks earlier attempts had uploaded.")
    table_schema: TableSchema = Field(alias="schema")
    counts: dict[str, Any]
    crs: str
