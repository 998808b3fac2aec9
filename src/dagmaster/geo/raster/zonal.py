"""Statistics of a raster by zone. A pixel that lies half in a zone counts half."""

from __future__ import annotations

import json
import math
from typing import TYPE_CHECKING, Any, Final

import shapely
from exactextract import exact_extract
from exactextract.feature import JSONFeatureSource
from exactextract.raster import RasterioRasterSource
from rasterio.windows import Window

from dagmaster.errors import invalid_input
from dagmaster.geo.gdal import explain_io_errors, open_raster
from dagmaster.geo.raster.areas_of_interest import project_area
from dagmaster.geo.raster.georeferences import require_georeferenced
from dagmaster.geo.raster.grids import Warp, north_up_grid, open_warped

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence
    from pathlib import Path

    from dagmaster.geo.raster.areas_of_interest import Area
    from dagmaster.ports.handler_services import Share

STATISTICS: Final = {
    "count": "count",
    "sum": "sum",
    "mean": "mean",
    "min": "min",
    "max": "max",
    "std": "stdev",
}
_MAX_CELLS_IN_MEMORY: Final = 4_000_000
"""A zone may be as large as the raster."""
_ZONES_PER_BATCH: Final = 100


def zonal_statistics(
    path: Path | str,
    share: Share,
    zones: Sequence[Area],
    *,
    bands: Sequence[int] = (1,),
    on_batch: Callable[[int, int], None] = lambda _done, _count: None,
) -> list[dict[str, Any]]:
    """Return count (with fractions of pixels), sum, mean, min, max, std per zone and band; None without data.

    Nodata and masked pixels are excluded; scale and offset of the band are applied.
    """
    with open_raster(path, share) as raster:
        require_georeferenced(raster)
        for band in bands:
            if not 1 <= band <= raster.count:
                raise invalid_input(f"there is no band {band}: the raster has {raster.count}")
            if "complex" in raster.dtypes[band - 1]:
                raise invalid_input(
                    f"band {band} contains complex numbers, which have no minimum: convert it to real numbers"
                    " first"
                )
        grid = north_up_grid(raster)
        rows: list[dict[str, Any]] = []
        with explain_io_errors(path), open_warped(raster, grid, Warp()) as source:
            for begin in range(0, len(zones), _ZONES_PER_BATCH):
                on_batch(begin, len(zones))
                batch = zones[begin : begin + _ZONES_PER_BATCH]
                geometries = [project_area(zone, grid.crs, grid.bounds) for zone in batch]
                for band in bands:
                    rows += _measure_band(source, band, batch, geometries)
    # Sort by zone, so that all bands of a zone are together.
    order = {id(zone): index for index, zone in enumerate(zones)}
    return [
        row for _, row in sorted(((order[row.pop("_zone")], row) for row in rows), key=lambda pair: pair[0])
    ]


class _NanRasterSource(RasterioRasterSource):  # type: ignore[misc]
    """A source that reads masked pixels as NaN: exactextract 0.3 counts masked ones in partial zones."""

    def nodata_value(self) -> None:
        """Return None: NaN takes its place."""

    def read_window(self, x0: int, y0: int, nx: int, ny: int) -> Any:
        """Read pixels as scaled floating point numbers."""
        pixels = self.ds.read(self.band_idx, window=Window(x0, y0, nx, ny), masked=True)
        return (pixels.astype("float64") * self.scale + self.offset).filled(math.nan)


def _measure_band(
    source: Any, band: int, zones: Sequence[Area], geometries: Sequence[Any]
) -> list[dict[str, Any]]:
    # A zone without area here has no pixels, and exactextract would reject it.
    features = [
        {
            "type": "Feature",
            "properties": {"index": str(index)},
            "geometry": json.loads(shapely.to_geojson(geometry)),
        }
        for index, geometry in enumerate(geometries)
        if not geometry.is_empty and geometry.area > 0
    ]
    results: dict[str, dict[str, Any]] = {}
    if features:
        measured = exact_extract(
            _NanRasterSource(source, band, name="value"),
            JSONFeatureSource(features, srs_wkt=source.crs.to_wkt()),
            list(STATISTICS.values()),
            include_cols=["index"],
            max_cells_in_memory=_MAX_CELLS_IN_MEMORY,
        )
        results = {feature["properties"]["index"]: feature["properties"] for feature in measured}
    return [
        {
            "_zone": id(zone),
            "id": zone.name,
            "band": band,
            **_json_statistics(results.get(str(index), {})),
            "properties": zone.properties,
        }
        for index, zone in enumerate(zones)
    ]


def _json_statistics(result: dict[str, Any]) -> dict[str, float | None]:
    """Return statistics for JSON: NaN and infinity become None; without data, count and sum are 0."""
    values = {name: result.get(operation) for name, operation in STATISTICS.items()}
    numbers = {
        name: None if value is None or not math.isfinite(value) else float(value)
        for name, value in values.items()
    }
    return numbers if numbers["count"] else {**numbers, "count": 0.0, "sum": 0.0}
