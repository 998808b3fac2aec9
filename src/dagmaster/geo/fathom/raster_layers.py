"""Depth rasters as layers: what must agree before they are merged, and reading them with named errors."""

from __future__ import annotations

import contextlib
import json
import math
import re
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final

from rasterio.errors import RasterioError

from dagmaster.errors import PermanentError, invalid_input
from dagmaster.geo.fathom.depth_codes import NODATA
from dagmaster.geo.gdal import open_raster
from dagmaster.geo.raster.footprints import raster_footprint
from dagmaster.text_format import library_words

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping
    from pathlib import Path

    from rasterio.io import DatasetReader
    from rasterio.windows import Window

    from dagmaster.ports.handler_services import Share

TAG: Final = "DAGMASTER_FATHOM"
BLOCK_ROWS: Final = 512
"""How many rows are processed at a time."""
DTYPES: Final = ("int16", "int32")
MAX_OFFSET_PIXELS: Final = 0.01
"""How far two grids may be apart and count as one: coordinates are rounded when they are written."""


@dataclass(frozen=True, slots=True)
class Layer:
    """The properties of a raster that are compared."""

    width: int
    height: int
    crs: Any
    dtype: str
    nodata: float
    west: float
    north: float
    pixel_width: float
    pixel_height: float
    bands: tuple[str, ...]

    @classmethod
    def of(cls, raster: DatasetReader, label: str) -> Layer:
        """Return the layer of a raster. A raster that cannot contain depths is `invalid_input`."""
        transform = raster.transform
        if raster.crs is None:
            raise invalid_input(
                f"{label} has no CRS, so its place is unknown: set it with gdal_edit.py -a_srs EPSG:…, or"
                " copy it again"
            )
        try:
            raster_footprint(raster.crs, transform, raster.width, raster.height)
        except PermanentError as error:
            raise invalid_input(f"{label}: {error}") from error
        if transform.b or transform.d or transform.a <= 0 or transform.e >= 0:
            raise invalid_input(
                f"{label} is rotated or not north-up: expected rows from north to south, columns from west"
                " to east. Warp it first, with raster.reproject"
            )
        if len(set(raster.dtypes)) != 1 or raster.dtypes[0] not in DTYPES:
            raise invalid_input(
                f"{label} contains {', '.join(set(raster.dtypes))}: expected depths in cm as"
                f" {' or '.join(DTYPES)}. Convert it first"
            )
        nodata = NODATA if raster.nodata is None else raster.nodata
        if math.isnan(nodata) or nodata >= 0:
            raise invalid_input(
                f"{label} has the nodata value {nodata:g}: expected a number below 0, since 0 is dry ground."
                " Correct it, as with gdal_edit.py -a_nodata"
            )
        return cls(
            raster.width, raster.height, raster.crs, raster.dtypes[0], nodata, transform.c, transform.f,
            transform.a, -transform.e, tuple(name or "" for name in raster.descriptions),
        )  # fmt: skip

    def differences(self, other: Layer) -> str:
        """Describe how the two differ; empty if one may be placed next to the other."""
        texts = [
            f"{name} {getattr(self, name)} instead of {getattr(other, name)}"
            for name in ("crs", "dtype", "nodata")
            if getattr(self, name) != getattr(other, name)
        ]
        ratios = (self.pixel_width / other.pixel_width, self.pixel_height / other.pixel_height)
        if any(abs(ratio - 1) * max(self.width, self.height) > MAX_OFFSET_PIXELS for ratio in ratios):
            texts.append(
                f"pixels of {self.pixel_width:.9g} x {self.pixel_height:.9g} instead of"
                f" {other.pixel_width:.9g} x {other.pixel_height:.9g}"
            )
        return "; ".join(texts)

    def offset(self, west: float, north: float) -> tuple[float, float]:
        """Return how many columns and rows its corner lies east and south of a point."""
        return (self.west - west) / self.pixel_width, (north - self.north) / self.pixel_height


@contextlib.contextmanager
def open_layer(path: Path, share: Share, label: str) -> Iterator[DatasetReader]:
    """Open one of several files; errors start with its label."""
    with contextlib.ExitStack() as exit_stack:
        try:
            raster = exit_stack.enter_context(open_raster(path, share))
        except PermanentError as error:
            raise invalid_input(f"{label}: {error}") from error
        yield raster


@contextlib.contextmanager
def name_tile_in_errors(tile: str, files: Mapping[str, str]) -> Iterator[None]:
    """Start errors with the name of the tile, and end them with the file of the band they name."""
    try:
        yield
    except PermanentError as error:
        message = str(error)
        band = next((name for name in files if re.match(rf"{re.escape(name)}\b", message)), None)
        file = "" if band is None else f" [{files[band]}]"
        raise PermanentError(
            f"{tile}: {message}{file}", kind=error.kind, **{**error.details, "tile": tile}
        ) from error


def read_window(raster: DatasetReader, band: int, window: Window, label: str) -> Any:
    """Read a window of a band. A truncated file is `invalid_input`."""
    try:
        return raster.read(band, window=window)
    except RasterioError as error:
        raise invalid_input(
            f"{label} cannot be read to its end: it is truncated or damaged. Expected {raster.height:,} rows;"
            " copy it"
            f" again from its origin, and retry this tile{library_words('GDAL', error.__cause__ or error)}"
        ) from error


def encode_tags(tags: Mapping[str, Any]) -> dict[str, str]:
    """Encode the tags of a file as one GDAL metadata item."""
    return {TAG: json.dumps(tags, sort_keys=True)}


def read_tags(path: Path, share: Share) -> dict[str, Any]:
    """Read the tags of a file: its sources and, for a stack, its depth report."""
    with open_raster(path, share, whole=False) as raster:
        tags: dict[str, Any] = json.loads(raster.tags().get(TAG, "{}"))
    return tags
