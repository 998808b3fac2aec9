"""The meaning of the values in a depth raster.

The codes are our assumption: check them against your delivery notes.

Depths are whole centimetres of water above ground; 0 is dry. Values below 0 are not depths.
"""

from __future__ import annotations

from typing import Final

DTYPE: Final = "int16"
UNIT: Final = "cm"

NODATA: Final = -9999
"""Not modelled: the sea, or outside the model."""
PERMANENT_WATER: Final = -9998
"""A river or lake that always has water. It is not a depth, and is never averaged or compared with one."""

SPECIAL: Final = {NODATA: "nodata", PERMANENT_WATER: "permanent water"}

RETURN_PERIODS: Final = (5, 10, 20, 50, 100, 200, 500, 1000)
"""In years: how often, on average, water stands at least that high. One band each, the shortest first."""


def band_name(return_period: int) -> str:
    return f"1in{return_period}"
