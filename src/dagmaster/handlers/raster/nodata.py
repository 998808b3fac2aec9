"""The value that says: nothing was measured here. A raster has one, and it is one that its pixels can hold."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING

import numpy as np

from dagmaster.handlers.gdal import invalid

if TYPE_CHECKING:
    from collections.abc import Sequence


def agreed(own: float | None, asked: float | None, kinds: Sequence[str]) -> float | None:
    """The nodata value of a result: the one that is asked for, or else the raster's own.

    Another one than its own is refused: the old would look like a measurement, or measurements like the new.
    """
    if asked is None:
        return own
    if own is not None and own != asked and not (math.isnan(own) and math.isnan(asked)):
        raise invalid(
            f"the raster has the nodata value {own:.17g}, and {asked:.17g} is asked for: pixels would change their"
            " meaning. Leave nodata away, or change the values first, as with gdalwarp -dstnodata"
        )
    unfit = next((kind for kind in kinds if not _holds(kind, asked)), None)
    if unfit is not None:
        raise invalid(f"{unfit} cannot hold the nodata value {asked:.17g}: give one that its pixels can have")
    return asked


def _holds(kind: str, value: float) -> bool:
    if kind == "complex_int16":
        kind = "int16"
    plain = np.dtype(kind)
    if plain.kind in "iu":
        return math.isfinite(value) and value == int(value) and np.iinfo(plain).min <= value <= np.iinfo(plain).max
    return not math.isfinite(value) or abs(value) <= float(np.finfo(plain).max)
