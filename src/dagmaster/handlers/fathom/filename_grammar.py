"""How files of flood maps are named, and which square degree a tile is. The grammar is ours, and may be replaced.

A name is read below a prefix. A pattern is a template, `{flood_type}/{return_period}/{tile}.tif`, or a regular
expression with named groups, `(?P<tile>…)`. `tile` and `return_period` it must have. All other fields together are the
group: files of one group and tile are one map at several return periods.
"""

from __future__ import annotations

import math
import re
from dataclasses import dataclass
from functools import lru_cache
from typing import TYPE_CHECKING, Final

from dagmaster.errors import PermanentError

if TYPE_CHECKING:
    from collections.abc import Sequence

FOLDERS: Final = "{flood_type}/{defence}/{year}/{scenario}/{return_period}/{tile}.tif"
FLAT: Final = "{tile}_{flood_type}_{defence}_{year}_{scenario}_{return_period}.tif"
PATTERNS: Final = (FOLDERS, FLAT)
"""Tried in this order when none is given."""

FIELDS: Final = {
    "tile": r"[ns]\d{2}[ew]\d{3}",
    "return_period": r"1in\d{1,5}",
    "flood_type": r"fluvial|pluvial|coastal",
    "defence": r"defended|undefended",
    "year": r"\d{4}",
    "scenario": r"[a-z0-9.-]+",
}
"""What a field of a template may be, in any case. Another name stands for one word, `[a-z0-9.-]+`."""

_WORD: Final = r"[a-z0-9.-]+"
_TILE: Final = re.compile(r"([ns])(\d{2})([ew])(\d{3})")
_PERIOD: Final = re.compile(r"(?:1in|rp)?0*(\d{1,5})")
MAX_PATTERN: Final = 500
MAX_NAME: Final = 255
"""Longer names are not read: what a pattern tries grows with their length."""
MAX_IN_DOUBT: Final = 2
"""How many borders between words of a template may be anywhere."""
_NO_LETTER: Final = re.compile(r"[^a-z0-9.-]", re.IGNORECASE)
_VARIES: Final = re.compile(r"[*+?|]|\{\d*,\d*\}")
_REPEAT: Final = re.compile(r"[*+]|\{\d*,?\d*\}")


@dataclass(frozen=True, slots=True)
class Parsed:
    """What a name says. `facets` are the fields of its group, in the order of the pattern."""

    tile: str
    return_period: int
    facets: tuple[tuple[str, str], ...]

    @property
    def group(self) -> str:
        """The group as one word; `all` when the pattern has no other fields."""
        return "-".join(value for _, value in self.facets) or "all"


class Grammar:
    """Reads names. The first pattern that fits all of a name counts."""

    def __init__(self, patterns: Sequence[str] = PATTERNS) -> None:
        self._patterns = [_compiled(pattern) for pattern in patterns]

    def parse(self, name: str) -> Parsed | None:
        """What a name says, in lower case; None when no pattern fits."""
        if len(name) > MAX_NAME:
            return None
        for pattern in self._patterns:
            found = pattern.fullmatch(name)
            if found is not None:
                said = {key: value.lower() for key, value in found.groupdict().items() if value is not None}
                tile, period = said.pop("tile", ""), _PERIOD.fullmatch(said.pop("return_period", ""))
                if _is_tile(tile) and period is not None and int(period[1]) > 0:
                    return Parsed(tile, int(period[1]), tuple(said.items()))
        return None


@lru_cache(maxsize=32)
def _compiled(pattern: str) -> re.Pattern[str]:
    """A template or an expression as an expression. `PermanentError` says what is wrong with it."""
    if len(pattern) > MAX_PATTERN:
        raise _invalid(f"the pattern has {len(pattern):,} characters: at most {MAX_PATTERN}")
    if "(?P<" in pattern and _repeats_in_repeats(pattern):
        raise _invalid(
            f"the pattern {pattern!r} repeats a group that repeats or chooses something itself, and may never end"
        )
    try:
        found = re.compile(pattern if "(?P<" in pattern else _expression(pattern), re.IGNORECASE)
    except re.error as error:
        raise _invalid(f"the pattern {pattern!r} is not a regular expression: {error}") from error
    missing = {"tile", "return_period"} - set(found.groupindex)
    if missing:
        raise _invalid(f"the pattern {pattern!r} has no field {' and no field '.join(sorted(missing))}")
    return found


def _expression(template: str) -> str:
    parts = re.split(r"\{([a-z_]+)\}", template)
    words = [FIELDS.get(part, _WORD) == _WORD for part in parts[1::2]]
    # Where neither a slash nor a '_' nor a field that is no word stands between two words, either may have a letter.
    doubts = sum(
        first and second and not _NO_LETTER.search(between)
        for first, second, between in zip(words, words[1:], parts[2::2], strict=False)
    )
    if doubts > MAX_IN_DOUBT:
        raise _invalid(
            f"the pattern {template!r} does not tell where one field ends and the next begins: put a slash or '_'"
            " between them"
        )
    return "".join(
        f"(?P<{part}>{FIELDS.get(part, _WORD)})" if place % 2 else re.escape(part) for place, part in enumerate(parts)
    )


def _repeats_in_repeats(pattern: str) -> bool:
    """Whether a group with a repeat or a choice in it is repeated. Such may take longer than anybody waits."""
    # What stands in a class or after a backslash is a letter.
    plain = re.sub(r"\\.|\[\^?\]?(?:\\.|[^\]\\])*\]", "x", pattern, flags=re.DOTALL)
    plain = re.sub(r"\(\?(?:P<\w+>|:|[=!])", "(", plain)
    inside = [False]
    for place, letter in enumerate(plain):
        if letter == "(":
            inside.append(False)
        elif letter == ")" and len(inside) > 1:
            varies = inside.pop()
            if varies and _REPEAT.match(plain, place + 1):
                return True
            inside[-1] |= varies
        elif _VARIES.match(plain, place):
            inside[-1] = True
    return False


def _invalid(message: str) -> PermanentError:
    hint = f"Expected a template as {FOLDERS!r}, or named groups as '(?P<tile>…)_(?P<return_period>…)'"
    return PermanentError(f"{message}. {hint}", kind="invalid_input")


# ── Squares of degrees ──────────────────────────────────────────────────────────────────────────────────────────────


def tile_name(west: int, south: int) -> str:
    """The name of the square whose south-west corner is there: `n10e020`, `s01w001`."""
    return f"{'s' if south < 0 else 'n'}{abs(south):02}{'w' if west < 0 else 'e'}{abs(west):03}"


def corner(tile: str) -> tuple[int, int]:
    """West and south of a tile, in degrees."""
    found = _TILE.fullmatch(tile.lower())
    if found is None or not _is_tile(tile.lower()):
        raise PermanentError(
            f"{tile!r} is no tile: expected the south-west corner of a square degree, as n10e020 or s34w071",
            kind="invalid_input",
        )
    south, west = int(found[2]), int(found[4])
    return (-west if found[3] == "w" else west), (-south if found[1] == "s" else south)


def _is_tile(text: str) -> bool:
    found = _TILE.fullmatch(text)
    if found is None:
        return False
    south = -int(found[2]) if found[1] == "s" else int(found[2])
    west = -int(found[4]) if found[3] == "w" else int(found[4])
    # One place, one name: no s00, and no e180, which is w180.
    return -90 <= south < 90 and -180 <= west < 180 and tile_name(west, south) == text  # noqa: PLR2004 - degrees


def bbox_of(tile: str) -> list[float]:
    """West, south, east, north of a tile."""
    west, south = corner(tile)
    return [float(west), float(south), float(west + 1), float(south + 1)]


def cell_of(tile: str, degrees: int) -> tuple[int, int]:
    """West and south of the cell of the grid that a tile is in. The grid has a corner at 0, 0."""
    west, south = corner(tile)
    return math.floor(west / degrees) * degrees, math.floor(south / degrees) * degrees


def cell_name(west: int, south: int, degrees: int) -> str:
    """The name of a cell: its corner, and its size."""
    return f"{tile_name(west, south)}_{degrees}deg"


def union(boxes: Sequence[Sequence[float]]) -> list[float]:
    """The box around boxes."""
    west, south, east, north = zip(*boxes, strict=True)
    return [min(west), min(south), max(east), max(north)]
