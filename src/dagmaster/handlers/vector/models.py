"""The words of the vector handlers' params and results. Nothing heavy is imported here."""

from __future__ import annotations

from typing import Any, Literal

from pydantic import BaseModel, ConfigDict, Field

from dagmaster.handlers.source_files import CrsName, SourceParams

Invalid = Literal["repair", "report", "fail"]
Missing = Literal["keep", "drop", "fail"]
Mixed = Literal["multi", "geometry", "fail"]
Heights = Literal["keep", "drop"]
Outside = Literal["fail", "clip"]


class VectorSource(SourceParams):
    """A file of features, and how it is read where it does not say so itself."""

    layer: str | None = Field(default=None, description="The layer, where a file has several.")
    member: str | None = Field(default=None, description="The file in a zip, where it has several.")
    source_crs: CrsName | None = Field(default=None, description="Of a file that has none, as EPSG:4326.")
    encoding: str | None = Field(default=None, description="Of text that is not UTF-8, as ISO-8859-1.")
    lon_column: str | None = Field(default=None, description="Of a CSV. Default: lon, longitude, x and their like.")
    lat_column: str | None = Field(default=None, description="Of a CSV. Default: lat, latitude, y.")
    wkt_column: str | None = Field(default=None, description="Of a CSV. Default: wkt, geometry, geom.")


class GeometryRules(BaseModel):
    """What is done about geometries that are not as they should be. Each is counted."""

    invalid: Invalid = Field(default="repair", description="Self-intersections and their like.")
    missing_geometry: Missing = Field(default="keep", description="Features without a geometry, or an empty one.")
    mixed_types: Mixed = Field(
        default="multi", description="Polygon beside MultiPolygon: all become Multi, stay as they are, or fail."
    )
    heights: Heights = Field(default="keep", description="Z values. M values are always left out, and counted.")
    outside: Outside = Field(default="fail", description="What the target CRS cannot show: fail, or cut it off.")
    clip_bbox: tuple[float, float, float, float] | None = Field(
        default=None, description="West, south, east, north, in degrees: what is outside is cut off."
    )


class PrepareParams(VectorSource, GeometryRules):
    """The features to load, and how."""

    table: str | None = Field(default=None, description="The table they are for. Default: the file's name.")
    table_name: str | None = Field(default=None, description="Another name of table.")
    target_crs: CrsName = Field(default="EPSG:4326", description="As AUTHORITY:CODE; it has to have an EPSG code.")
    chunk_rows: int = Field(default=20_000, ge=1, le=1_000_000, description="The most features of a chunk.")
    chunk_mb: float = Field(default=64, gt=0, le=4096, description="The most megabytes of a chunk, roughly.")
    replace: bool = Field(default=False, description="Into a table that is made of another file, in its place.")
    dataset_id: str | None = Field(default=None, description="Passed on.")


class Chunk(BaseModel):
    """One chunk: an item to fan out over."""

    chunk_id: str
    href: str
    rows: int
    bbox: list[float] | None = Field(description="In the target CRS.")
    footprint: list[float] | None = Field(description="West, south, east, north, in degrees.")
    table: str
    source: str = Field(default="", description="The file, and its layer or member where one is named.")
    replace: bool = Field(default=False, description="Also where the table is made of another file.")


class TableSchema(BaseModel):
    """What the table holds."""

    columns: list[dict[str, str]] = Field(description="name, type, and source_name as the file has it.")
    geometry_column: str
    geometry_type: str
    srid: int


class Prepared(BaseModel):
    """Features that are ready to go into a table."""

    model_config = ConfigDict(populate_by_name=True)

    chunks: list[Chunk] = Field(description="Fan out over them.")
    table: str
    table_schema: TableSchema = Field(alias="schema")
    counts: dict[str, Any] = Field(description="rows, chunks, and what was repaired, reported, dropped or cut off.")
    problems: list[dict[str, Any]] = Field(description="The first geometries that were not as they should be.")
    crs: str
    source_crs: str
    bbox: list[float] | None = Field(description="West, south, east, north, in degrees.")
    source: dict[str, Any] = Field(description="href, sha256, size and time of the file: for provenance.")
    dataset_id: str | None = None


class UploadParams(BaseModel):
    """One chunk that vector.prepare wrote."""

    model_config = ConfigDict(extra="forbid", populate_by_name=True)

    chunk: Chunk | None = Field(default=None, description="An item of prepare's chunks; or its parts:")
    table: str | None = Field(default=None, description="Default: the chunk's.")
    chunk_id: str | None = None
    href: str | None = None


class Uploaded(BaseModel):
    """A chunk in its table."""

    table: str
    chunk_id: str
    rows: int


class StacParams(BaseModel):
    """The table to describe."""

    model_config = ConfigDict(extra="forbid")

    table: str
    chunks: list[Chunk | str] | None = Field(
        default=None, description="The chunks of this run. Those of earlier runs are taken away first."
    )
    collection_id: str = "vectors"
    item_id: str | None = Field(default=None, description="Default: the table's name.")
    title: str | None = None
    when: str | None = Field(default=None, description="As 2026-01-31T00:00:00Z. Default: the source's own time.")
    source: dict[str, Any] | None = Field(default=None, description="Prepare's source: for provenance.")
    expected_rows: int | None = Field(default=None, description="How many rows there have to be.")


class Described(BaseModel):
    """A table in the catalog."""

    item: dict[str, Any]
    item_id: str
    collection_id: str
    table: str
    href: str
    rows: int
    bbox: list[float] | None
    removed_rows: int = Field(description="Of chunks of earlier runs.")


class SimplifyParams(VectorSource):
    """The features to simplify."""

    tolerance: float = Field(gt=0, description="In the units of the file's CRS: degrees or metres.")


class Generalized(BaseModel):
    """Features that were simplified or dissolved, as GeoParquet."""

    href: str
    rows: int
    source_rows: int
    method: str = Field(description="coverage: shared borders stay shared; else plain.")
    crs: str
    bbox: list[float] | None = Field(description="West, south, east, north, in degrees.")
    area_before: float = Field(description="Square metres, on the ellipsoid.")
    area_after: float
    vertices_before: int
    vertices_after: int
    counts: dict[str, Any] = Field(description="Features that were read, and what was repaired before.")
    problems: list[dict[str, Any]] = Field(description="The first geometries that were not as they should be.")


class DissolveParams(VectorSource):
    """The features to merge."""

    by: list[str] = Field(default_factory=list, description="The columns whose values make a group. None: all in one.")
    sums: list[str] = Field(default_factory=list, description="The columns that are summed in each group.")


class CompleteParams(PrepareParams):
    """All of it in one task."""

    collection_id: str = "vectors"
    item_id: str | None = None
    title: str | None = None
    when: str | None = None


class Completed(BaseModel):
    """A table that is filled and in the catalog."""

    model_config = ConfigDict(populate_by_name=True)

    table: str
    href: str
    rows: int
    chunks: int
    resumed_from: int = Field(description="How many chunks an earlier attempt had uploaded.")
    table_schema: TableSchema = Field(alias="schema")
    counts: dict[str, Any]
    crs: str
    bbox: list[float] | None
    item: dict[str, Any]
    item_id: str
    collection_id: str
