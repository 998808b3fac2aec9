"""What the numbers in a depth map mean. The table is ours: check it against the notes of the delivery at hand.

Depths are whole centimetres of water above ground, 0 is dry. Everything below 0 is no depth.
"""

from __future__ import annotations

from typing import Final

DTYPE: Final = "int16"
UNIT: Final = "cm"

NODATA: Final = -9999
"""Nothing was modelled here: the sea, or beyond the edge of the model."""
PERMANENT_WATER: Final = -9998
"""A river or lake that is there in any year. It is no depth, and is never averaged or compared with one."""

SPECIAL: Final = {NODATA: "nodata", PERMANENT_WATER: "permanent water"}

RETURN_PERIODS: Final = (5, 10, 20, 50, 100, 200, 500, 1000)
"""In years: how often, on average, water stands at least so high. One band each, the shortest first."""


def band_name(return_period: int) -> str:
    """The description of a band, as the files are named."""
    return f"1in{return_period}"
