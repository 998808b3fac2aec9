"""The CRS of a raster whose file has none: from a .prj file, or WGS 84 for coordinates in degrees.

GDAL reads a .prj file only for some formats, and takes netCDF's longitudes and latitudes for numbers unless
they have a grid mapping, which most files of weather and climate data have not. The CRS is written into the
.aux.xml file in the folder that dagmaster made for the raster, where GDAL looks for it.
"""

from __future__ import annotations

import re
from pathlib import Path
from typing import TYPE_CHECKING, Final
from xml.sax.saxutils import escape, quoteattr

from rasterio.crs import CRS
from rasterio.errors import CRSError

from dagmaster.errors import PermanentError
from dagmaster.geo.formats.raster_drivers import RASTER_DRIVERS
from dagmaster.geo.gdal import SubdatasetPath, container_of, open_raster

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from rasterio.io import DatasetReader

    from dagmaster.geo.raster.sidecars import RasterPart
    from dagmaster.ports.handler_services import Share

_PAM_ROOT: Final = re.compile(rb"<PAMDataset[^>]*(?<!/)>")
_DEGREES: Final = {
    axis: tuple(
        f"{degree}{letter}" for degree in ("degrees", "degree") for letter in (f"_{axis}", f"_{short}", short)
    )
    for axis, short in (("east", "E"), ("north", "N"))
}
"""The units of longitudes and latitudes, as the CF conventions spell them."""
_OTHER_COORDINATES: Final = (
    "grid_longitude",
    "grid_latitude",
    "projection_x_coordinate",
    "projection_y_coordinate",
)
_POLE: Final = 90.0
_FULL_CIRCLE: Final = 360.0


def supply_crs(
    path: str, share: Share, sidecars: Sequence[RasterPart], write: Callable[[str, bytes], object]
) -> list[str]:
    """Give a raster without a CRS one; return why a .prj file is not used, if it is not.

    `write` writes a file next to the raster, by the path at which GDAL would read it.
    """
    projection = next((part for part in sidecars if part.name.lower().endswith(".prj")), None)
    if (
        projection is None
        and Path(container_of(path)).suffix.lower() not in RASTER_DRIVERS["netCDF"].suffixes
    ):
        return []
    try:
        with open_raster(path, share, whole=False) as raster:
            if raster.crs is not None or raster.gcps[1] is not None:
                return _report_unused(projection, raster.files)
            crs = CRS.from_epsg(4326) if projection is None and _is_in_degrees(raster) else None
    except PermanentError:
        # The step that reads the raster reports what is wrong.
        return []
    if projection is not None:
        try:
            text = Path(projection.path).read_text(encoding="utf-8")
            crs = CRS.from_wkt(text, morph_from_esri_dialect=True)
        except (CRSError, UnicodeDecodeError):
            return [f"{projection.name}: it does not contain a CRS as WKT"]
    if crs is not None:
        _write_crs(path, crs, sidecars, write)
    return []


def _report_unused(projection: RasterPart | None, files: Sequence[str]) -> list[str]:
    """Say that a .prj file is not used, unless GDAL took the CRS of the raster from it."""
    if projection is None or projection.name in {Path(file).name for file in files}:
        return []
    return [f"{projection.name}: the raster has a CRS itself"]


def _is_in_degrees(raster: DatasetReader) -> bool:
    """Return whether coordinates of a netCDF file are longitudes and latitudes, without a grid mapping."""
    tags = raster.tags()
    units = {value for key, value in tags.items() if key.endswith("#units")}
    names = {value for key, value in tags.items() if key.endswith("#standard_name")}
    left, bottom, right, top = raster.bounds
    pixel = max(map(abs, raster.res))
    return (
        raster.driver == "netCDF"
        and all(not units.isdisjoint(spellings) for spellings in _DEGREES.values())
        and names.isdisjoint(_OTHER_COORDINATES)
        and not any(key.endswith("#grid_mapping") for key in tags)
        # Cells around the poles may reach beyond them. Rows and columns without coordinates have other
        # limits.
        and not raster.transform.is_identity
        and max(abs(top), abs(bottom)) <= _POLE + pixel
        and max(abs(left), abs(right)) <= _FULL_CIRCLE + pixel
    )


def _write_crs(
    path: str, crs: CRS, sidecars: Sequence[RasterPart], write: Callable[[str, bytes], object]
) -> None:
    container = container_of(path)
    metadata = next((part for part in sidecars if part.name.lower().endswith(".aux.xml")), None)
    own = b"<PAMDataset></PAMDataset>" if metadata is None else Path(metadata.path).read_bytes()
    root = _PAM_ROOT.search(own)
    if root is None:
        return
    added = f"<SRS>{escape(crs.to_wkt())}</SRS>"
    if isinstance(path, SubdatasetPath):
        name = path.partition(container)[2].lstrip('":')
        added = f"<Subdataset name={quoteattr(name)}><PAMDataset>{added}</PAMDataset></Subdataset>"
    write(f"{container}.aux.xml", own[: root.end()] + added.encode() + own[root.end() :])
