"""Statistics of a raster in zones. A pixel that lies half in a zone counts half."""

from __future__ import annotations

import json
import math
from typing import TYPE_CHECKING, Any, Final

import shapely
from exactextract import exact_extract
from exactextract.feature import JSONFeatureSource
from exactextract.raster import RasterioRasterSource
from rasterio.windows import Window

from dagmaster.handlers.gdal import invalid, opened, working
from dagmaster.handlers.raster.areas_of_interest import placed
from dagmaster.handlers.raster.grids import Warp, north_up, require_place, warped

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence
    from pathlib import Path

    from dagmaster.handlers.raster.areas_of_interest import Area
    from dagmaster.ports.handler_services import Share

STATISTICS: Final = {"count": "count", "sum": "sum", "mean": "mean", "min": "min", "max": "max", "std": "stdev"}
_CELLS: Final = 4_000_000
"""Pixels in memory at once: a zone may be as large as the raster."""
_BATCH: Final = 100


def zonal(
    path: Path,
    share: Share,
    zones: Sequence[Area],
    *,
    bands: Sequence[int] = (1,),
    on_round: Callable[[int, int], None] = lambda _done, _all: None,
) -> list[dict[str, Any]]:
    """For each zone and band: count (of pixels, with fractions), sum, mean, min, max and std; None where no data is.

    Nodata and masked pixels are left out, and scale and offset of the band are applied.
    """
    with opened(path, share) as raster:
        require_place(raster)
        for band in bands:
            if not 1 <= band <= raster.count:
                raise invalid(f"there is no band {band}: the raster has {raster.count}")
            if "complex" in raster.dtypes[band - 1]:
                raise invalid(f"band {band} holds complex numbers, which have no minimum: measure a part of them")
        grid = north_up(raster)
        rows: list[dict[str, Any]] = []
        with working(path), warped(raster, grid, Warp()) as source:
            for begin in range(0, len(zones), _BATCH):
                on_round(begin, len(zones))
                some = zones[begin : begin + _BATCH]
                shapes = [placed(zone, grid.crs, grid.bounds) for zone in some]
                for band in bands:
                    rows += _measured(source, band, some, shapes)
    # All bands of a zone stand together.
    order = {id(zone): place for place, zone in enumerate(zones)}
    return [row for _, row in sorted(((order[row.pop("_zone")], row) for row in rows), key=lambda one: one[0])]


class _Unmasked(RasterioRasterSource):  # type: ignore[misc]
    """Masked pixels are no numbers: of a masked array exactextract 0.3 counted them where a zone is a part of it."""

    def nodata_value(self) -> None:
        """Nothing: no pixel that is read has it."""

    def read_window(self, x0: int, y0: int, nx: int, ny: int) -> Any:
        """Pixels as floating point numbers, scaled."""
        pixels = self.ds.read(self.band_idx, window=Window(x0, y0, nx, ny), masked=True)
        return (pixels.astype("float64") * self.scale + self.offset).filled(math.nan)


def _measured(source: Any, band: int, zones: Sequence[Area], shapes: Sequence[Any]) -> list[dict[str, Any]]:
    # A zone without extent here has no pixels, and exactextract would refuse it.
    there = {str(place): shape for place, shape in enumerate(shapes) if not shape.is_empty and shape.area > 0}
    features = [
        {"type": "Feature", "properties": {"place": place}, "geometry": json.loads(shapely.to_geojson(shape))}
        for place, shape in there.items()
    ]
    found: dict[str, dict[str, Any]] = {}
    if features:
        measured = exact_extract(
            _Unmasked(source, band, name="value"),
            JSONFeatureSource(features, srs_wkt=source.crs.to_wkt()),
            list(STATISTICS.values()),
            include_cols=["place"],
            max_cells_in_memory=_CELLS,
        )
        found = {one["properties"]["place"]: one["properties"] for one in measured}
    return [
        {
            "_zone": id(zone),
            "id": zone.name,
            "band": band,
            **_numbers(found.get(str(place), {})),
            "properties": zone.properties,
        }
        for place, zone in enumerate(zones)
    ]


def _numbers(found: dict[str, Any]) -> dict[str, float | None]:
    """JSON has no NaN and no infinity: what is none of its numbers is None. Nothing counts to zero, and sums to it."""
    said = {name: found.get(op) for name, op in STATISTICS.items()}
    numbers = {name: None if one is None or not math.isfinite(one) else float(one) for name, one in said.items()}
    return numbers if numbers["count"] else {**numbers, "count": 0.0, "sum": 0.0}
