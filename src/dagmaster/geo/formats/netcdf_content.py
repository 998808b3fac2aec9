"""Whether an HDF5 file, whatever its suffix, is netCDF-4 with coordinates.

GDAL reads a file named .h5 by its HDF5 driver, which ignores the coordinates of the CF conventions: the
raster has no place. Its netCDF driver reads the same file if its name ends in .nc.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

import h5py

from dagmaster.geo.formats.hdf5_references import MAX_OBJECTS, is_hdf5

if TYPE_CHECKING:
    from pathlib import Path

_CONVENTIONS: Final = ("Conventions", "_NCProperties")
"""The attributes of a file by which it states that it follows the conventions of netCDF."""
_SCALES: Final = "DIMENSION_LIST"
"""The attribute of a dataset whose dimensions have coordinates."""
_HDF_EOS: Final = "HDFEOS INFORMATION"
"""The group of files whose georeference GDAL's HDF5 driver reads."""


def is_netcdf4(path: Path) -> bool:
    """Return whether a file is HDF5 that follows the conventions of netCDF. A damaged one is not."""
    if not is_hdf5(path):
        return False
    try:
        with h5py.File(path, "r", locking=False) as file:
            is_stated = any(name in file.attrs for name in _CONVENTIONS)
            return is_stated and _HDF_EOS not in file and _has_scales(file)
    except (OSError, RuntimeError, LookupError, ValueError, TypeError, OverflowError, MemoryError):
        # The step that opens the file reports what is wrong.
        return False


def _has_scales(file: h5py.File) -> bool:
    """Return whether one of the first datasets has coordinates. Links to other files are not followed."""
    groups: list[h5py.Group] = [file]
    looked_at = 0
    while groups:
        group = groups.pop()
        for name in group:
            looked_at += 1
            if looked_at > MAX_OBJECTS:
                return False
            if not isinstance(group.get(name, getlink=True), h5py.HardLink):
                continue
            child = group[name]
            if isinstance(child, h5py.Dataset) and _SCALES in child.attrs:
                return True
            if isinstance(child, h5py.Group):
                groups.append(child)
    return False
