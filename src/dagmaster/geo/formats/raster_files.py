"""Raster files before GDAL opens them: which drivers may read one, and whether it refers to others."""

from __future__ import annotations

from functools import cache
from pathlib import Path
from typing import TYPE_CHECKING, Final

import rasterio

from dagmaster.errors import invalid_input
from dagmaster.geo.formats.driver_rules import drivers_of_suffix, file_types
from dagmaster.geo.formats.hdf5_references import is_hdf5, reject_hdf5_references
from dagmaster.geo.formats.idrisi_references import reject_idrisi_reference
from dagmaster.geo.formats.raster_drivers import RASTER_DRIVERS

if TYPE_CHECKING:
    from collections.abc import Iterator

IN_PLACE_DRIVERS: Final = ("GTiff", "JP2OpenJPEG", "PNG", "JPEG", "SRTMHGT")
"""The drivers that read an object store in place: others read too much of a file, or need a local one."""
_RULES: Final = {name: rule for name, rule in RASTER_DRIVERS.items() if rule.is_read}
FILE_TYPES: Final = file_types(_RULES)
ZIP_SUFFIX: Final = ".zip"
_ENVI_SUFFIX: Final = ".envi"
"""Stands for no suffix at all, which ENVI's own files have."""
_HEAD_BYTES: Final = 128 * 1024
"""More of a file than any driver examines to recognise it."""
_MARKS: Final = {mark.lower(): name for name, rule in RASTER_DRIVERS.items() for mark in rule.marks}
_TIFF_STARTS: Final = (b"II*\x00", b"MM\x00*", b"II+\x00", b"MM\x00+")
_TEXT_SUFFIXES: Final = (".asc", ".grass", ".isg", ".xyz", ".gxf", ".dem", ".zmap", ".grd", ".vic", ".xpm")
"""Of formats that are text, or may begin with it."""
_ZARR_REFERENCES: Final = b'"record_size"'
"""In the metadata of a Zarr directory whose chunks are ranges of other files."""


@cache
def installed_drivers() -> frozenset[str]:
    with rasterio.Env() as env:
        return frozenset(env.drivers())


def readable_drivers(name: str, *, in_place: bool = False) -> list[str]:
    return list(_drivers(Path(name).suffix.lower() or _ENVI_SUFFIX, in_place=in_place))


def names_of_parts(name: str) -> Iterator[str]:
    """Yield the names of files that belong to a file of this name, such as ENVI's .hdr, in lower case."""
    named = name if Path(name).suffix else f"{name}{_ENVI_SUFFIX}"
    file_type = FILE_TYPES.get(Path(named).suffix.lower())
    if file_type is not None:
        yield from (file_type.part_name(named, part).lower() for part in file_type.parts)


@cache
def _drivers(suffix: str, *, in_place: bool) -> tuple[str, ...]:
    return tuple(
        driver
        for driver, rule in _RULES.items()
        if driver in installed_drivers()
        and (not in_place or driver in IN_PLACE_DRIVERS)
        and (not rule.needs_suffix or suffix in rule.suffixes)
    )


def can_read_in_place(suffix: str) -> bool:
    """Return whether a file with this suffix in an object store is read there.

    One without a known suffix may be.
    """
    drivers = drivers_of_suffix(_RULES, suffix)
    return suffix != ZIP_SUFFIX and (not drivers or any(driver in IN_PLACE_DRIVERS for driver in drivers))


def reject_references(path: Path) -> None:
    """Reject a file or directory that would lead GDAL to other files, programs or servers."""
    if path.is_dir():
        _reject_zarr_references(path)
        return
    with path.open("rb") as file:
        head = file.read(_HEAD_BYTES).lower()
    for mark, name in _MARKS.items():
        if mark in head:
            raise invalid_input(
                f"the file is {name}, which {RASTER_DRIVERS[name].reason}: name the rasters themselves, or"
                " convert it to GeoTIFF"
            )
    if is_hdf5(path):
        reject_hdf5_references(path)
    if path.suffix.lower() == ".rst":
        reject_idrisi_reference(path.with_suffix(".rdc"))


def _reject_zarr_references(path: Path) -> None:
    metadata = path / ".zmetadata"
    if metadata.is_file() and _ZARR_REFERENCES in metadata.read_bytes():
        raise invalid_input(
            "the Zarr directory refers to other files, in which its chunks are: name those files, or write"
            " the chunks into the directory"
        )


def describe_content(path: Path) -> str:
    """Describe a file that no driver reads, without quoting it: its content is the user's."""
    suffix = path.suffix.lower()
    if path.is_dir():
        kind = suffix or "raster"
        return f"the directory is not a readable {kind}: it is incomplete or damaged. Copy it again"
    with path.open("rb") as file:
        head = file.read(512)
    if not head:
        return "the file is empty (0 bytes): copy it again"
    if head[:4] in _TIFF_STARTS:
        return (
            "the file is a TIFF whose directory cannot be read, so it is damaged or truncated: copy it again"
        )
    if head[:2] == b"PK":
        return "the file is a zip archive: name it with the suffix .zip, or extract the raster in it"
    drivers = drivers_of_suffix(_RULES, suffix)
    if drivers:
        return _describe_mismatch(path, head, suffix, " or ".join(drivers))
    kind = "a text file" if _is_text(head) else "not a raster of a format that is read"
    return (
        f"the file is {kind}: expected a raster such as GeoTIFF, JPEG 2000, netCDF, HDF5, GRIB, Zarr"
        " or an ASCII grid"
    )


def _describe_mismatch(path: Path, head: bytes, suffix: str, drivers: str) -> str:
    parts, is_required = _describing_parts(suffix)
    if any(sibling.name.endswith(tuple(parts)) for sibling in path.parent.iterdir()):
        parts = []
    if parts and is_required:
        return (
            f"the file has no {' or '.join(parts)} next to it, which describes a {suffix} file: put it there"
        )
    if _is_text(head) and suffix not in _TEXT_SUFFIXES:
        return f"the file is a text file, not the {drivers} that its suffix {suffix} says: copy it again"
    lacking = f", or lacks the {' or '.join(parts)} that may describe it" if parts else ""
    return (
        f"the file is not a readable {drivers}, as its suffix {suffix} says: it is damaged, truncated"
        f" or of another format{lacking}. Copy it again"
    )


def _describing_parts(suffix: str) -> tuple[list[str], bool]:
    """Return the suffixes of the files that describe such a file, and whether every driver needs one."""
    by_driver = [file.required for rule in _RULES.values() for file in rule.files if file.suffix == suffix]
    return sorted({part.removeprefix("+") for parts in by_driver for part in parts}), all(by_driver)


def _is_text(head: bytes) -> bool:
    return all(byte >= ord(" ") or byte in b"\t\r\n" for byte in head)
