"""Plan the work: group files into tiles, and stacks into grid cells. No file is opened here."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from dagmaster.errors import invalid_input
from dagmaster.geo.fathom.depth_codes import band_name
from dagmaster.geo.fathom.filename_grammar import cell_corner, cell_name, tile_bbox
from dagmaster.geo.rules.bounding_boxes import bbox_union, parse_bbox, split_at_antimeridian
from dagmaster.text_format import format_count

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping, Sequence

    from dagmaster.geo.fathom.filename_grammar import Grammar, ParsedName
    from dagmaster.ports.blob_uris import BlobUri
    from dagmaster.ports.storage import BlobInfo


@dataclass(slots=True)
class TileFiles:
    """The files of one tile of one group, by return period."""

    tile: str
    group: str
    facets: dict[str, str]
    files: dict[int, BlobInfo] = field(default_factory=dict)

    @property
    def label(self) -> dict[str, Any]:
        return {"tile": self.tile, "group": self.group, "facets": self.facets}

    def missing(self, periods: Sequence[int]) -> list[int]:
        return [period for period in periods if period not in self.files]


@dataclass(slots=True)
class FoundFiles:
    """The files below a prefix: tiles in order, names without a match, and names that repeat another."""

    tiles: list[TileFiles]
    unparsed: list[str]
    duplicates: list[str]


def find_tiles(infos: Iterable[BlobInfo], prefix: str, grammar: Grammar) -> FoundFiles:
    """Parse the names below a prefix, and group the files by tile."""
    tiles: dict[tuple[str, str], TileFiles] = {}
    unparsed: list[str] = []
    duplicates: list[str] = []
    for info in infos:
        name = info.uri.name[len(prefix) :].lstrip("/")
        parsed = grammar.parse(name)
        if parsed is None:
            unparsed.append(name)
            continue
        tile = tiles.setdefault((parsed.group, parsed.tile), _new_tile(parsed))
        if parsed.return_period in tile.files:
            duplicates.append(name)
        tile.files[parsed.return_period] = info
    return FoundFiles([tiles[key] for key in sorted(tiles)], unparsed, duplicates)


def _new_tile(parsed: ParsedName) -> TileFiles:
    return TileFiles(parsed.tile, parsed.group, dict(parsed.facets))


def check_listing(listing: FoundFiles, prefix: BlobUri, patterns: Sequence[str]) -> None:
    """Raise if the files below a prefix are not tiles, or if several are the same map of one tile."""
    expected = f"expected names as {' or '.join(patterns)}"
    if not listing.tiles and listing.unparsed:
        raise invalid_input(
            f"no pattern matches any of the {format_count(len(listing.unparsed), 'file')} below {prefix}:"
            f" {expected}, not as {listing.unparsed[0]}"
        )
    if not listing.tiles:
        raise invalid_input(f"there are no files below {prefix}: {expected}")
    if listing.duplicates:
        raise invalid_input(
            f"{format_count(len(listing.duplicates), 'file')} repeat the tile and return period of another:"
            f" {listing.duplicates[0]}. Expected one file each; name one layout as pattern"
        )


def select_tiles(
    tiles: Sequence[TileFiles], bbox: Sequence[float] | None, where: Mapping[str, str | list[str]]
) -> list[TileFiles]:
    """Return the tiles that intersect the bbox and have the requested facets; raise if there are none."""
    values = {name: [value] if isinstance(value, str) else value for name, value in where.items()}
    selected = [tile for tile in tiles if is_selected(tile, bbox, values)]
    if not selected:
        first = tiles[0]
        raise invalid_input(
            f"bbox and where select none of the {format_count(len(tiles), 'tile')}:"
            f" the first one is {first.tile} of {first.group}"
        )
    return selected


def is_selected(tile: TileFiles, bbox: Sequence[float] | None, where: Mapping[str, Sequence[str]]) -> bool:
    if any(
        tile.facets.get(name, "") not in [value.lower() for value in values] for name, values in where.items()
    ):
        return False
    if bbox is None:
        return True
    west, south, east, north = tile_bbox(tile.tile)
    return any(
        west < right and east > left and south < top and north > bottom
        for left, bottom, right, top in split_at_antimeridian(parse_bbox(bbox))
    )


def split_incomplete(
    tiles: Sequence[TileFiles], periods: Sequence[int], policy: str
) -> tuple[list[TileFiles], list[tuple[TileFiles, list[int]]]]:
    """Split tiles into complete ones and those that lack return periods.

    Raise if none is complete, or if one lacks some and the policy is "fail".
    """
    lacking = [(tile, missing) for tile in tiles if (missing := tile.missing(periods))]
    complete = [tile for tile in tiles if not tile.missing(periods)]
    if lacking and (policy == "fail" or not complete):
        tile, missing = lacking[0]
        available = sorted(set.intersection(*(set(tile.files) for tile, _ in lacking)))
        hint = f". All of these have return_periods={available}" if available else ""
        raise invalid_input(
            f"{len(lacking):,} of {format_count(len(tiles), 'tile')} are incomplete: {tile.tile} of"
            f" {tile.group} lacks {', '.join(map(band_name, missing))}{hint}"
        )
    return complete, lacking


def describe_unstacked(planned: int, failed: Sequence[Mapping[str, Any]]) -> str:
    """Return the message about a run that stacked no tile, with the first error."""
    return (
        f"no tile was stacked: all {planned:,} planned tiles failed or are incomplete{_first_error(failed)}"
    )


def describe_held(held: Sequence[Cell], failed: Sequence[Mapping[str, Any]]) -> str:
    """Return the message about a run all of whose cells are held back, with the first error."""
    first, count = held[0], len(held)
    return (
        f"no cell can be merged, since each of {count:,} lacks tiles that failed or are incomplete:"
        f" {first.cell} of {first.group} lacks {', '.join(first.lacking[:10])}. Repair them, or set"
        f" lacking=merge to merge cells without them{_first_error(failed)}"
    )


def _first_error(failed: Sequence[Mapping[str, Any]]) -> str:
    messages = [error.get("message") for entry in failed if isinstance(error := entry.get("error"), dict)]
    return next((f". The first error: {message}" for message in messages if message), "")


def tile_sources(tile: TileFiles, periods: Sequence[int]) -> dict[str, str]:
    return {band_name(period): str(tile.files[period].uri) for period in periods}


def sort_by_return_period(sources: Mapping[str, str]) -> dict[str, str]:
    hrefs: dict[int, str] = {}
    for name, href in sources.items():
        digits = name.lower().removeprefix("1in").removeprefix("rp")
        if not digits.isdecimal() or int(digits) in hrefs:
            raise invalid_input(
                f"{name!r} is not a return period, or a duplicate: expected sources as 1in5, 1in10, 1in20"
            )
        hrefs[int(digits)] = href
    return {band_name(period): hrefs[period] for period in sorted(hrefs)}


@dataclass(slots=True)
class Cell:
    """The stacks of one group in one grid cell. `lacking`: planned tiles without a stack."""

    cell: str
    group: str
    facets: dict[str, str]
    stacks: dict[str, str]
    lacking: list[str]

    @property
    def label(self) -> dict[str, Any]:
        return {"cell": self.cell, "group": self.group, "facets": self.facets}

    def is_held(self, policy: str) -> bool:
        """Return whether a cell cannot be merged; with the policy "hold" one that lacks tiles cannot."""
        return not self.stacks or (bool(self.lacking) and policy == "hold")

    @property
    def bbox(self) -> list[float]:
        return [*bbox_union(tile_bbox(tile) for tile in self.stacks or self.lacking)]


def find_cells(
    stacks: Iterable[Mapping[str, Any]], planned: Iterable[Mapping[str, Any]], degrees: int
) -> list[Cell]:
    """Group stacks by grid cell, sorted by group and cell."""
    cells: dict[tuple[str, str], Cell] = {}
    for stack in stacks:
        _find_cell(cells, stack, degrees).stacks[stack["tile"]] = stack["href"]
    for tile in planned:
        cell = _find_cell(cells, tile, degrees)
        if tile["tile"] not in cell.stacks:
            cell.lacking.append(tile["tile"])
    for cell in cells.values():
        cell.stacks = dict(sorted(cell.stacks.items()))
        cell.lacking.sort()
    return [cells[key] for key in sorted(cells)]


def _find_cell(cells: dict[tuple[str, str], Cell], tile: Mapping[str, Any], degrees: int) -> Cell:
    name = cell_name(*cell_corner(tile["tile"], degrees), degrees)
    new = Cell(name, tile["group"], dict(tile.get("facets") or {}), {}, [])
    return cells.setdefault((tile["group"], name), new)
