"""The nodata value of a raster: one per raster, and one that its data type can represent."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING

import numpy as np

from dagmaster.errors import invalid_input

if TYPE_CHECKING:
    from collections.abc import Sequence


def choose_nodata(own: float | None, requested: float | None, dtypes: Sequence[str]) -> float | None:
    """Return the requested nodata value, or else the raster's own.

    Reject a request that differs from the raster's own value: the old one would look like a measurement, or
    measurements like the new one.
    """
    if requested is None:
        return own
    if own is not None and own != requested and not (math.isnan(own) and math.isnan(requested)):
        raise invalid_input(
            f"the raster has the nodata value {own:.17g}, and {requested:.17g} is requested: pixels would"
            " change their meaning. Omit nodata, or change the values first, as with gdalwarp -dstnodata"
        )
    unsupported = next((dtype for dtype in dtypes if not _can_represent(dtype, requested)), None)
    if unsupported is not None:
        raise invalid_input(
            f"{unsupported} cannot represent the nodata value {requested:.17g}: choose a value that its"
            " pixels can have"
        )
    return requested


def _can_represent(dtype: str, value: float) -> bool:
    if dtype == "complex_int16":
        dtype = "int16"
    numpy_type = np.dtype(dtype)
    if numpy_type.kind in "iu":
        limits = np.iinfo(numpy_type)
        return math.isfinite(value) and value == int(value) and limits.min <= value <= limits.max
    return not math.isfinite(value) or abs(value) <= float(np.finfo(numpy_type).max)
