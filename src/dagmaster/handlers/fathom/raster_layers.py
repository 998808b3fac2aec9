"""What has to be alike before rasters are laid on or beside one another, and how each is read under its name."""

from __future__ import annotations

import contextlib
import json
import math
import re
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final

from rasterio.errors import RasterioError

from dagmaster.errors import PermanentError
from dagmaster.handlers.fathom.depth_codes import NODATA
from dagmaster.handlers.gdal import invalid, opened
from dagmaster.handlers.raster.footprints import footprint

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping
    from pathlib import Path

    from rasterio.io import DatasetReader
    from rasterio.windows import Window

    from dagmaster.ports.handler_services import Share

TAG: Final = "DAGMASTER_FATHOM"
WINDOW: Final = 512
"""How many lines are worked on at a time."""
DTYPES: Final = ("int16", "int32")
CLOSE: Final = 0.01
"""How far, in pixels, two grids may be apart and count as one: coordinates are rounded when they are written."""


@dataclass(frozen=True, slots=True)
class Layer:
    """What is compared of a raster."""

    width: int
    height: int
    crs: Any
    dtype: str
    nodata: float
    west: float
    north: float
    x_size: float
    y_size: float
    bands: tuple[str, ...]

    @classmethod
    def of(cls, raster: DatasetReader, said: str) -> Layer:
        """Look at a raster. What cannot be a layer of depths is `invalid_input`."""
        transform = raster.transform
        if raster.crs is None:
            raise invalid(f"{said} has no coordinate system (CRS)")
        try:
            footprint(raster.crs, transform, raster.width, raster.height)
        except PermanentError as error:
            raise invalid(f"{said}: {error}") from error
        if transform.b or transform.d or transform.a <= 0 or transform.e >= 0:
            raise invalid(f"{said} is rotated or not north-up: expected lines from north to south, columns to the east")
        if len(set(raster.dtypes)) != 1 or raster.dtypes[0] not in DTYPES:
            raise invalid(
                f"{said} holds {', '.join(set(raster.dtypes))}: expected depths in cm as {' or '.join(DTYPES)}"
            )
        nodata = NODATA if raster.nodata is None else raster.nodata
        if math.isnan(nodata) or nodata >= 0:
            raise invalid(f"{said} says that {nodata:g} is no data: expected a number below 0, for 0 is dry ground")
        return cls(
            raster.width, raster.height, raster.crs, raster.dtypes[0], nodata, transform.c, transform.f, transform.a,
            -transform.e, tuple(name or "" for name in raster.descriptions),
        )  # fmt: skip

    def unlike(self, other: Layer) -> str:
        """In what the two differ, in words; empty when one may be laid beside the other."""
        said = [
            f"{what} {getattr(self, what)} instead of {getattr(other, what)}"
            for what in ("crs", "dtype", "nodata")
            if getattr(self, what) != getattr(other, what)
        ]
        sizes = (self.x_size / other.x_size, self.y_size / other.y_size)
        if any(abs(ratio - 1) * max(self.width, self.height) > CLOSE for ratio in sizes):
            said.append(
                f"pixels of {self.x_size:.9g} x {self.y_size:.9g} instead of {other.x_size:.9g} x {other.y_size:.9g}"
            )
        return "; ".join(said)

    def offset(self, west: float, north: float) -> tuple[float, float]:
        """How many columns and lines its corner is east and south of a place."""
        return (self.west - west) / self.x_size, (north - self.north) / self.y_size


@contextlib.contextmanager
def layer_opened(path: Path, share: Share, said: str) -> Iterator[DatasetReader]:
    """Open one file of several: what is wrong with it begins with its name."""
    with contextlib.ExitStack() as opening:
        try:
            raster = opening.enter_context(opened(path, share))
        except PermanentError as error:
            raise invalid(f"{said}: {error}") from error
        yield raster


@contextlib.contextmanager
def of_tile(tile: str, files: Mapping[str, str]) -> Iterator[None]:
    """What is wrong with a tile begins with its name, and ends with the file that is meant."""
    try:
        yield
    except PermanentError as error:
        said = str(error)
        band = next((name for name in files if re.match(rf"{re.escape(name)}\b", said)), None)
        where = "" if band is None else f" [{files[band]}]"
        raise PermanentError(f"{tile}: {said}{where}", kind=error.kind, **{**error.details, "tile": tile}) from error


def read(raster: DatasetReader, band: int, window: Window, said: str) -> Any:
    """Read a window of a band. A file that ends too early ends here."""
    try:
        return raster.read(band, window=window)
    except RasterioError as error:
        raise invalid(
            f"{said} cannot be read to its end: it is truncated or damaged. Expected all of its {raster.height:,}"
            f" lines; copy it anew from where it came, and run this tile again ({error.__cause__ or error})"
        ) from error


def written_tags(tags: Mapping[str, Any]) -> dict[str, str]:
    """What a file is told about itself, as GDAL keeps it."""
    return {TAG: json.dumps(tags, sort_keys=True)}


def read_tags(path: Path, share: Share) -> dict[str, Any]:
    """What a file was told about itself: its sources and, of a stack, its depths."""
    with opened(path, share, whole=False) as raster:
        told: dict[str, Any] = json.loads(raster.tags().get(TAG, "{}"))
    return told
