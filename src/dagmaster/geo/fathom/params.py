"""The params and outputs of the FATHOM handlers."""

from __future__ import annotations

from typing import Any, Literal

from pydantic import BaseModel, ConfigDict, Field, field_validator

from dagmaster.geo.fathom.depth_codes import RETURN_PERIODS
from dagmaster.geo.raster.cog_output import CogFormat

BBox = list[float]


class StackParams(CogFormat):
    """How a stack is written."""

    monotone: Literal["report", "fail", "fix"] = Field(
        default="report",
        description="Where a longer return period is shallower than a shorter one: report it, fail the tile,"
        " or fix it by raising it to the depth of the shorter one (and report it).",
    )


class TileInventoryParams(StackParams):
    """Where the files are, how they are named, and which to use."""

    prefix: str = Field(description="A folder of a zone, a URI, or an allowed path.")
    zone: str = Field(default="bronze", description="The zone of the folder.")
    pattern: str | list[str] | None = Field(
        default=None,
        description="How files are named below the prefix: one or several templates with {tile},"
        " {return_period} and any other fields, or regular expressions with such named groups."
        " Default: the patterns of docs/howto/fathom.md.",
    )
    return_periods: list[int] = Field(default=list(RETURN_PERIODS), min_length=1, description="In years.")
    incomplete: Literal["report", "fail"] = Field(
        default="report", description="If a tile lacks return periods: skip and report it, or fail."
    )
    bbox: BBox | None = Field(
        default=None, min_length=4, max_length=4, description="Only tiles that intersect it."
    )
    where: dict[str, str | list[str]] = Field(
        default_factory=dict,
        description="Only tiles with these values, as {flood_type: fluvial, year: [2020, 2050]}.",
    )
    limit: int | None = Field(
        default=None, ge=1, description="The maximum number of tiles to stack; later runs do the others."
    )
    redo: bool = Field(default=False, description="Also process what is already done.")

    @field_validator("return_periods")
    @classmethod
    def _sort(cls, periods: list[int]) -> list[int]:
        if len(set(periods)) < len(periods) or min(periods) < 1:
            raise ValueError("return_periods must be different positive numbers of years")
        return sorted(periods)


class GroupedParams(BaseModel):
    """The group of maps that a tile or a cell belongs to, and keys of the inventory that are not used."""

    group: str = Field(default="all", description="The kind of map, as one word.")
    facets: dict[str, str] = Field(default_factory=dict, description="The fields of the group; passed on.")
    bbox: BBox | None = Field(default=None, description="Not used; an entry of the inventory has it.")
    footprint: Any = Field(default=None, description="Not used; an entry of the inventory has it.")


class PlannedWork(BaseModel):
    """One entry of a fan-out."""

    group: str
    facets: dict[str, str]
    bbox: BBox
    footprint: BBox = Field(description="For the map of the run.")


class GroupedCog(BaseModel):
    """A published COG of a group."""

    group: str
    facets: dict[str, str]
    href: str = Field(description="The URI of the COG.")
    cog_url: str = Field(description="Same as href.")
    bands: list[str]
    bbox: BBox
    size_mb: float
    created: bool = Field(description="Whether it did not exist before.")


class PlannedTile(PlannedWork):
    """One tile to stack."""

    tile: str
    sources: dict[str, str] = Field(description="Files by band name.")


class TileInventory(BaseModel):
    """The tiles to stack, and those that are done."""

    tiles: list[PlannedTile] = Field(description="The tiles to stack.")
    done: list[dict[str, Any]] = Field(
        description="Tiles already stacked from exactly these files: tile, group, facets, href."
    )
    planned: list[dict[str, Any]] = Field(
        description="All tiles that are not done: to stack now, incomplete, or beyond the limit. Cells may"
        " lack them."
    )
    incomplete: list[dict[str, Any]] = Field(
        description="Skipped tiles: tile, group and missing return periods."
    )
    unparsed: list[str] = Field(description="Names that no pattern matches; the first 100.")
    counts: dict[str, int]
    megabytes: float = Field(description="The size of the files to stack.")


class BandStackParams(GroupedParams, StackParams):
    """The files of one tile."""

    tile: str = Field(description="The south-west corner of its square degree, such as n10e020.")
    sources: dict[str, str] = Field(
        min_length=1, description="Files by return period, as {1in5: …, 1in10: …}."
    )


class BandStack(GroupedCog):
    """The stack of one tile."""

    tile: str
    violations: int = Field(description="Pixels that are shallower than at a shorter return period.")
    worst_cm: int = Field(description="The largest such difference.")
    mask_differences: int = Field(description="Pixels with a depth at one return period and none at another.")


class GridInventoryParams(CogFormat):
    """The stacks, and the size of a cell."""

    stacks: list[dict[str, Any] | None] = Field(
        default_factory=list,
        description="Stacks of this run: the outputs of the fan-out. Null: that tile failed.",
    )
    done: list[dict[str, Any]] = Field(default_factory=list, description="Stacks of earlier runs.")
    planned: list[dict[str, Any]] = Field(
        default_factory=list, description="Tiles that should have a stack by now; the others are lacking."
    )
    failed: list[dict[str, Any]] = Field(
        default_factory=list,
        description="Tiles of this run that failed, with their errors: nodes.stack.failed.",
    )
    later: int = Field(
        default=0,
        ge=0,
        description="Planned tiles that later runs stack: while there are any, all cells may be held.",
    )
    cell_degrees: int = Field(default=5, ge=1, le=30, description="The side of a grid cell in degrees.")
    lacking: Literal["hold", "merge"] = Field(
        default="hold",
        description="If a cell lacks planned tiles: hold it back until they exist, or merge it without them.",
    )
    redo: bool = Field(default=False, description="Also process what is already done.")


class PlannedCell(PlannedWork):
    """One cell to merge."""

    cell: str
    stacks: dict[str, str] = Field(description="COGs by tile.")


class GridInventory(BaseModel):
    """The cells to merge, and those that are done."""

    cells: list[PlannedCell] = Field(description="The cells to merge.")
    done: list[dict[str, Any]] = Field(
        description="Cells already merged from exactly these stacks: cell, group, facets, href."
    )
    held: list[dict[str, Any]] = Field(description="Cells held back: cell, group, and the lacking tiles.")
    counts: dict[str, int]


class SpatialMergeParams(GroupedParams, CogFormat):
    """The stacks of one cell."""

    cell: str
    stacks: dict[str, str] = Field(min_length=1, description="COGs by tile.")


class SpatialMerge(GroupedCog):
    """A merged cell."""

    cell: str
    tiles: int
    item: dict[str, Any] = Field(description="The STAC item; also stored next to the COG.")


class StacRegisterParams(BaseModel):
    """The cells to register."""

    model_config = ConfigDict(extra="forbid", hide_input_in_errors=True)

    merged: list[dict[str, Any] | None] = Field(
        default_factory=list, description="Cells merged in this run: the outputs of the fan-out."
    )
    done: list[dict[str, Any]] = Field(default_factory=list, description="Cells merged in earlier runs.")
    collection_id: str = Field(default="fathom-flood")
    title: str = Field(default="Flood depths by return period")
    description: str = Field(
        default="Depths of water in cm, a band for each return period, merged by cells of a grid."
    )
    when: str | None = Field(
        default=None, description="The datetime of all items. Default: the year in the file names."
    )


class StacRegistered(BaseModel):
    """The registered items."""

    collection_id: str
    item_ids: list[str]
    created: int
    updated: int
    unchanged: int
