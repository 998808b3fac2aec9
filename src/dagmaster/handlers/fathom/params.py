"""What the FATHOM handlers are told and what they tell."""

from __future__ import annotations

from typing import Any, Literal

from pydantic import BaseModel, ConfigDict, Field, field_validator

from dagmaster.handlers.fathom.depth_codes import RETURN_PERIODS
from dagmaster.handlers.raster.cog_output import CogShape

BBox = list[float]


class StackParams(CogShape):
    """What shapes a stack."""

    monotone: Literal["report", "fail", "fix"] = Field(
        default="report",
        description="Where a longer return period is shallower than a shorter one: count it, refuse the tile, or raise"
        " it to the shorter one's depth (and count it).",
    )


class TileInventoryParams(StackParams):
    """Where the files lie, how they are named, and which of them count."""

    prefix: str = Field(description="A folder of a zone; or a URI; or an allowed path.")
    zone: str = Field(default="bronze", description="The zone of the folder.")
    pattern: str | list[str] | None = Field(
        default=None,
        description="How files are named below the prefix: a template with {tile}, {return_period} and any other"
        " fields, or a regular expression with such named groups; or several. Default: those of docs/howto/fathom.md.",
    )
    return_periods: list[int] = Field(default=list(RETURN_PERIODS), min_length=1, description="In years.")
    incomplete: Literal["report", "fail"] = Field(
        default="report", description="A tile lacks return periods: leave it out and tell, or fail."
    )
    bbox: BBox | None = Field(default=None, min_length=4, max_length=4, description="Only tiles that touch it.")
    where: dict[str, str | list[str]] = Field(
        default_factory=dict, description="Only tiles with these values, as {flood_type: fluvial, year: [2020, 2050]}."
    )
    limit: int | None = Field(default=None, ge=1, description="At most so many tiles to do; the next run takes others.")
    redo: bool = Field(default=False, description="Also what is done.")

    @field_validator("return_periods")
    @classmethod
    def _in_order(cls, periods: list[int]) -> list[int]:
        if len(set(periods)) < len(periods) or min(periods) < 1:
            raise ValueError("return_periods are different numbers of years")
        return sorted(periods)


class PlannedTile(BaseModel):
    """One tile to stack: an item of the fan-out."""

    tile: str
    group: str
    facets: dict[str, str]
    sources: dict[str, str] = Field(description="Files by the names of their bands.")
    bbox: BBox
    footprint: BBox = Field(description="For the map of the run.")


class TileInventory(BaseModel):
    """What is to be done, and what is."""

    tiles: list[PlannedTile] = Field(description="To be stacked.")
    done: list[dict[str, Any]] = Field(description="Stacked already, of these very files: tile, group, facets, href.")
    planned: list[dict[str, Any]] = Field(
        description="All that is not done: to be stacked now, incomplete, or beyond the limit. A cell may lack them."
    )
    incomplete: list[dict[str, Any]] = Field(description="Left out: tile, group and the return periods that it lacks.")
    unparsed: list[str] = Field(description="Names that no pattern fits; the first 100.")
    counts: dict[str, int]
    megabytes: float = Field(description="Of the files of the tiles to be stacked.")


class BandStackParams(StackParams):
    """The files of one tile."""

    tile: str = Field(description="The south-west corner of its square degree, as n10e020.")
    group: str = Field(default="all", description="What the map is of, as one word.")
    facets: dict[str, str] = Field(default_factory=dict, description="The same by field; passed on.")
    sources: dict[str, str] = Field(min_length=1, description="Files by return period, as {1in5: …, 1in10: …}.")
    bbox: BBox | None = Field(default=None, description="Not needed; an item of the inventory has it.")
    footprint: Any = Field(default=None, description="Likewise.")


class BandStack(BaseModel):
    """A stack."""

    tile: str
    group: str
    facets: dict[str, str]
    href: str = Field(description="Where the COG lies.")
    cog_url: str = Field(description="The same.")
    bands: list[str]
    bbox: BBox
    size_mb: float
    violations: int = Field(description="Pixels that are shallower than at a shorter return period.")
    worst_cm: int = Field(description="By how much at most.")
    mask_differences: int = Field(description="Pixels with a depth at one return period and none at another.")
    created: bool = Field(description="False: it was there.")


class GridInventoryParams(CogShape):
    """Stacks, and the size of a cell."""

    stacks: list[dict[str, Any] | None] = Field(
        default_factory=list,
        description="Stacks that were made now: the outputs of the fan-out. Null: that one failed.",
    )
    done: list[dict[str, Any]] = Field(default_factory=list, description="Stacks that were there.")
    planned: list[dict[str, Any]] = Field(
        default_factory=list, description="Tiles that should have stacks now: those that have none are lacking."
    )
    cell_degrees: int = Field(default=5, ge=1, le=30, description="The side of a cell of the grid.")
    lacking: Literal["hold", "merge"] = Field(
        default="hold",
        description="A cell lacks planned tiles: hold it back until they are there, or merge it without them.",
    )
    redo: bool = Field(default=False, description="Also what is done.")


class PlannedCell(BaseModel):
    """One cell to merge: an item of the fan-out."""

    cell: str
    group: str
    facets: dict[str, str]
    stacks: dict[str, str] = Field(description="COGs by tile.")
    bbox: BBox
    footprint: BBox


class GridInventory(BaseModel):
    """Which stacks belong to which cell."""

    cells: list[PlannedCell] = Field(description="To be merged.")
    done: list[dict[str, Any]] = Field(description="Merged already, of these very stacks: cell, group, facets, href.")
    held: list[dict[str, Any]] = Field(description="Not merged: cell, group, and the tiles that are lacking.")
    counts: dict[str, int]


class SpatialMergeParams(CogShape):
    """The stacks of one cell."""

    cell: str
    group: str = "all"
    facets: dict[str, str] = Field(default_factory=dict)
    stacks: dict[str, str] = Field(min_length=1, description="COGs by tile.")
    bbox: BBox | None = Field(default=None, description="Not needed; an item of the inventory has it.")
    footprint: Any = Field(default=None, description="Likewise.")


class SpatialMerge(BaseModel):
    """A merged cell."""

    cell: str
    group: str
    facets: dict[str, str]
    href: str
    cog_url: str
    tiles: int
    bands: list[str]
    bbox: BBox
    size_mb: float
    created: bool
    item: dict[str, Any] = Field(description="Its STAC item; the same lies beside the COG.")


class StacRegisterParams(BaseModel):
    """What is to be found in the catalog."""

    model_config = ConfigDict(extra="forbid", hide_input_in_errors=True)

    merged: list[dict[str, Any] | None] = Field(
        default_factory=list, description="Cells that were merged now: the outputs of the fan-out."
    )
    done: list[dict[str, Any]] = Field(default_factory=list, description="Cells that were merged before.")
    collection_id: str = Field(default="fathom-flood")
    title: str = Field(default="Flood depths by return period")
    description: str = Field(default="Depths of water in cm, a band for each return period, merged by cells of a grid.")
    when: str | None = Field(default=None, description="The moment of all items. Default: the year that files name.")


class StacRegistered(BaseModel):
    """What became of the items."""

    collection_id: str
    item_ids: list[str]
    created: int
    updated: int
    unchanged: int
