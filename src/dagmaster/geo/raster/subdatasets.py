"""Subdatasets: the rasters in a file that contains several, such as the variables of a netCDF file."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

from dagmaster.errors import invalid_input
from dagmaster.geo.gdal import SubdatasetPath, container_of, open_container

if TYPE_CHECKING:
    from rasterio.io import DatasetReader

MAX_LISTED: Final = 1_000
_NAMED: Final = 20


@dataclass(frozen=True, slots=True, kw_only=True)
class Subdataset:
    """One raster of a file. `path` is what GDAL opens."""

    name: str
    description: str
    path: SubdatasetPath


def list_subdatasets(raster: DatasetReader, path: str) -> list[Subdataset]:
    tags = raster.tags(ns="SUBDATASETS")
    subdatasets = []
    for number in range(1, MAX_LISTED + 1):
        gdal_name = tags.get(f"SUBDATASET_{number}_NAME")
        if gdal_name is None:
            break
        name = _short_name(gdal_name, path)
        # GDAL would read a quotation mark in a name as the end of it.
        if '"' not in name:
            description = tags.get(f"SUBDATASET_{number}_DESC", "").replace(path, "")
            subdatasets.append(
                Subdataset(name=name, description=description, path=SubdatasetPath(gdal_name, path))
            )
    return subdatasets


def describe_container(path: str) -> tuple[list[dict[str, str]], bool]:
    """Return the names and descriptions of the rasters in a file, and whether this path has pixels."""
    container = container_of(path)
    with open_container(container) as raster:
        subdatasets = list_subdatasets(raster, container)
        has_pixels = isinstance(path, SubdatasetPath) or raster.count > 0
    return [{"name": one.name, "description": one.description} for one in subdatasets], has_pixels


def choose_subdataset(path: str, name: str) -> SubdatasetPath:
    with open_container(path) as raster:
        subdatasets = {subdataset.name: subdataset for subdataset in list_subdatasets(raster, path)}
    if name.strip("/") not in subdatasets:
        listed = ", ".join(list(subdatasets)[:_NAMED]) or "none"
        raise invalid_input(f"the file has no subdataset {name[:100]!r}: its subdatasets are {listed}")
    return subdatasets[name.strip("/")].path


def _short_name(gdal_name: str, path: str) -> str:
    """Return the name of a subdataset: `t2m` of `NETCDF:"/a/b.nc":t2m`, `2` of `GTIFF_DIR:2:/a/b.tif`."""
    before, _, after = gdal_name.partition(path)
    return after.strip('":/') or before.partition(":")[2].strip('":/')
