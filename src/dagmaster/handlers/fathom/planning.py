"""What is to be done: files grouped into tiles, stacks into cells. Lists in, lists out; nothing is opened here."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from dagmaster.geo.bounding_boxes import parse_bbox, split_at_antimeridian
from dagmaster.handlers.fathom.depth_codes import band_name
from dagmaster.handlers.fathom.filename_grammar import bbox_of, cell_name, cell_of, union

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping, Sequence

    from dagmaster.handlers.fathom.filename_grammar import Grammar, Parsed
    from dagmaster.ports.storage import BlobInfo


@dataclass(slots=True)
class TileFiles:
    """The files of one tile of one group, by return period."""

    tile: str
    group: str
    facets: dict[str, str]
    files: dict[int, BlobInfo] = field(default_factory=dict)

    def missing(self, periods: Sequence[int]) -> list[int]:
        """The return periods that are not there."""
        return [period for period in periods if period not in self.files]


@dataclass(slots=True)
class Found:
    """All that lies below a prefix: tiles in order, names that say nothing, and names that say the same as another."""

    tiles: list[TileFiles]
    unparsed: list[str]
    twice: list[str]


def find_tiles(infos: Iterable[BlobInfo], prefix: str, grammar: Grammar) -> Found:
    """Read the names below a prefix, and bring what belongs together together."""
    found: dict[tuple[str, str], TileFiles] = {}
    unparsed: list[str] = []
    twice: list[str] = []
    for info in infos:
        name = info.uri.name[len(prefix) :].lstrip("/")
        parsed = grammar.parse(name)
        if parsed is None:
            unparsed.append(name)
            continue
        tile = found.setdefault((parsed.group, parsed.tile), _empty(parsed))
        if parsed.return_period in tile.files:
            twice.append(name)
        tile.files[parsed.return_period] = info
    return Found([found[key] for key in sorted(found)], unparsed, twice)


def _empty(parsed: Parsed) -> TileFiles:
    return TileFiles(parsed.tile, parsed.group, dict(parsed.facets))


def is_wanted(tile: TileFiles, bbox: Sequence[float] | None, where: Mapping[str, Sequence[str]]) -> bool:
    """Whether a tile touches the box and has the facets that are asked for."""
    if any(tile.facets.get(name, "") not in [each.lower() for each in values] for name, values in where.items()):
        return False
    if bbox is None:
        return True
    west, south, east, north = bbox_of(tile.tile)
    return any(
        west < right and east > left and south < top and north > bottom
        for left, bottom, right, top in split_at_antimeridian(parse_bbox(bbox))
    )


def sources_of(tile: TileFiles, periods: Sequence[int]) -> dict[str, str]:
    """The files of a tile by the names of their bands."""
    return {band_name(period): str(tile.files[period].uri) for period in periods}


@dataclass(slots=True)
class Cell:
    """The stacks of one group in one cell of the grid. `lacking`: tiles that were planned and have no stack."""

    cell: str
    group: str
    facets: dict[str, str]
    stacks: dict[str, str]
    lacking: list[str]

    @property
    def bbox(self) -> list[float]:
        """Of the tiles that are there."""
        return union([bbox_of(tile) for tile in self.stacks or self.lacking])


def find_cells(stacks: Iterable[Mapping[str, Any]], planned: Iterable[Mapping[str, Any]], degrees: int) -> list[Cell]:
    """Which stacks belong to which cell of the grid, by group and cell."""
    cells: dict[tuple[str, str], Cell] = {}
    for stack in stacks:
        _cell_of(cells, stack, degrees).stacks[stack["tile"]] = stack["href"]
    for tile in planned:
        cell = _cell_of(cells, tile, degrees)
        if tile["tile"] not in cell.stacks:
            cell.lacking.append(tile["tile"])
    for cell in cells.values():
        cell.stacks = dict(sorted(cell.stacks.items()))
        cell.lacking.sort()
    return [cells[key] for key in sorted(cells)]


def _cell_of(cells: dict[tuple[str, str], Cell], tile: Mapping[str, Any], degrees: int) -> Cell:
    name = cell_name(*cell_of(tile["tile"], degrees), degrees)
    empty = Cell(name, tile["group"], dict(tile.get("facets") or {}), {}, [])
    return cells.setdefault((tile["group"], name), empty)
