"""The naming scheme of flood map files, and the square degrees of tiles.

The scheme is our default and can be replaced.

Names are parsed relative to a prefix. A pattern is a template, `{flood_type}/{return_period}/{tile}.tif`, or
a regular expression with named groups, `(?P<tile>…)`. It must have `tile` and `return_period`. All other
fields together are the group: files of one group and tile are one map at several return periods.
"""

from __future__ import annotations

import math
import re
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

from dagmaster.errors import PermanentError, invalid_input
from dagmaster.patterns import PatternRefused, compile_pattern
from dagmaster.text_format import format_count

if TYPE_CHECKING:
    from collections.abc import Sequence

    from dagmaster.patterns import LinearPattern

FOLDERS: Final = "{flood_type}/{defence}/{year}/{scenario}/{return_period}/{tile}.tif"
FLAT: Final = "{tile}_{flood_type}_{defence}_{year}_{scenario}_{return_period}.tif"
PATTERNS: Final = (FOLDERS, FLAT)
"""The patterns tried, in this order, by default."""

FIELDS: Final = {
    "tile": r"[ns]\d{2}[ew]\d{3}",
    "return_period": r"1in\d{1,5}",
    "flood_type": r"fluvial|pluvial|coastal",
    "defence": r"defended|undefended",
    "year": r"\d{4}",
    "scenario": r"[a-z0-9.-]+",
}
"""The expressions of template fields, case-insensitive. Any other field is one word, `[a-z0-9.-]+`."""

_WORD: Final = r"[a-z0-9.-]+"
_TILE: Final = re.compile(r"([ns])(\d{2})([ew])(\d{3})")
_PERIOD: Final = re.compile(r"(?:1in|rp)?0*(\d{1,5})")
MAX_PATTERN_CHARACTERS: Final = 500
MAX_NAME_CHARACTERS: Final = 255
"""Longer names are not parsed: no file system has them."""


@dataclass(frozen=True, slots=True)
class ParsedName:
    """The fields of a file name. `facets` are the facets of its group, in the order of the pattern."""

    tile: str
    return_period: int
    facets: tuple[tuple[str, str], ...]

    @property
    def group(self) -> str:
        """Return the group as one word; `all` if the pattern has no other fields."""
        return "-".join(value for _, value in self.facets) or "all"


class Grammar:
    """A parser of file names. The first pattern that matches the whole name applies."""

    def __init__(self, patterns: Sequence[str] = PATTERNS) -> None:
        self._patterns = [_compile(pattern) for pattern in patterns]

    def parse(self, name: str) -> ParsedName | None:
        """Return the fields of a name in lower case; None if no pattern matches."""
        if len(name) > MAX_NAME_CHARACTERS:
            return None
        for pattern in self._patterns:
            match = pattern.fullmatch(name)
            if match is not None:
                fields = {key: value.lower() for key, value in match.items()}
                tile, period = fields.pop("tile", ""), _PERIOD.fullmatch(fields.pop("return_period", ""))
                if _is_tile(tile) and period is not None and int(period[1]) > 0:
                    return ParsedName(tile, int(period[1]), tuple(fields.items()))
        return None


def _compile(pattern: str) -> LinearPattern:
    """Compile a template or a regular expression; raise `invalid_input` if it is not usable."""
    if len(pattern) > MAX_PATTERN_CHARACTERS:
        raise _pattern_error(
            f"the pattern has {format_count(len(pattern), 'character')}: at most {MAX_PATTERN_CHARACTERS}"
        )
    is_expression = "(?P<" in pattern or "(?<" in pattern
    try:
        compiled = compile_pattern(
            pattern if is_expression else _template_expression(pattern), ignore_case=True
        )
    except PatternRefused as refused:
        raise _pattern_error(f"the pattern {pattern!r} cannot be used: {refused}") from None
    missing = {"tile", "return_period"} - compiled.groups
    if missing:
        raise _pattern_error(f"the pattern {pattern!r} has no field {' and no field '.join(sorted(missing))}")
    return compiled


def _template_expression(template: str) -> str:
    parts = re.split(r"\{([a-z_]+)\}", template)
    return "".join(
        f"(?P<{part}>{FIELDS.get(part, _WORD)})" if index % 2 else re.escape(part)
        for index, part in enumerate(parts)
    )


def _pattern_error(message: str) -> PermanentError:
    hint = f"Expected a template as {FOLDERS!r}, or named groups as '(?P<tile>…)_(?P<return_period>…)'"
    return invalid_input(f"{message}. {hint}")


# ── Squares of degrees ──────────────────────────────────────────────────────────────────────────────────────


def tile_name(west: int, south: int) -> str:
    """Return the name of the square degree with this south-west corner: `n10e020`, `s01w001`."""
    return f"{'s' if south < 0 else 'n'}{abs(south):02}{'w' if west < 0 else 'e'}{abs(west):03}"


def tile_corner(tile: str) -> tuple[int, int]:
    """Return west and south of a tile, in degrees."""
    match = _TILE.fullmatch(tile.lower())
    if match is None or not _is_tile(tile.lower()):
        raise invalid_input(
            f"{tile!r} is not a tile: expected the south-west corner of a square degree, such as n10e020 or"
            " s34w071"
        )
    return _signed_corner(match)


def _signed_corner(match: re.Match[str]) -> tuple[int, int]:
    signs = {"w": -1, "s": -1}
    return signs.get(match[3], 1) * int(match[4]), signs.get(match[1], 1) * int(match[2])


def _is_tile(text: str) -> bool:
    match = _TILE.fullmatch(text)
    if match is None:
        return False
    west, south = _signed_corner(match)
    # One place, one name: no s00, and no e180, which is w180.
    is_on_earth = -90 <= south < 90 and -180 <= west < 180  # noqa: PLR2004 - degrees
    return is_on_earth and tile_name(west, south) == text


def tile_bbox(tile: str) -> list[float]:
    west, south = tile_corner(tile)
    return [float(west), float(south), float(west + 1), float(south + 1)]


def cell_corner(tile: str, degrees: int) -> tuple[int, int]:
    """Return west and south of the grid cell that contains a tile. The grid has a corner at 0, 0."""
    west, south = tile_corner(tile)
    return math.floor(west / degrees) * degrees, math.floor(south / degrees) * degrees


def cell_name(west: int, south: int, degrees: int) -> str:
    return f"{tile_name(west, south)}_{degrees}deg"
