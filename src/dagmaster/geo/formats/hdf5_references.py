"""References of HDF5 and netCDF-4 files to other files: external links, storage and virtual datasets.

The HDF5 library follows them wherever they lead, to any file that the worker may read, and GDAL has no option
against it. So the structure of a file is walked first, without following anything.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

import h5py

from dagmaster.errors import invalid_input
from dagmaster.text_format import library_words

if TYPE_CHECKING:
    from pathlib import Path

MAX_OBJECTS: Final = 100_000
_SIGNATURE: Final = b"\x89HDF\r\n\x1a\n"
_MAX_USER_BLOCK: Final = 1 << 24
_SAME_FILE: Final = "."


def is_hdf5(path: Path) -> bool:
    """Return whether a file is HDF5: its signature is at the start, or after 512, 1024, 2048 … bytes."""
    size = path.stat().st_size
    with path.open("rb") as file:
        offset = 0
        while offset + len(_SIGNATURE) <= min(size, _MAX_USER_BLOCK):
            file.seek(offset)
            if file.read(len(_SIGNATURE)) == _SIGNATURE:
                return True
            offset = 2 * offset or 512
    return False


def reject_hdf5_references(path: Path) -> None:
    """Reject an HDF5 file in which an object refers to another file."""
    try:
        with h5py.File(path, "r", locking=False) as file:
            reference = _find_reference(file)
    except (OSError, RuntimeError, LookupError, ValueError, TypeError, OverflowError, MemoryError) as error:
        raise invalid_input(
            f"the HDF5 file is damaged or truncated: its structure cannot be read. Copy it again"
            f"{library_words('HDF5', error)}"
        ) from error
    if reference is not None:
        name, kind = reference
        raise invalid_input(
            f"the HDF5 file refers to another file: {name[:100]!r} is {kind}. Write one file that contains"
            " its data, as with h5repack or nccopy"
        )


def _find_reference(file: h5py.File) -> tuple[str, str] | None:
    groups: list[h5py.Group] = [file]
    seen = {h5py.h5o.get_info(file.id).addr}
    while groups:
        group = groups.pop()
        for name in group:
            link = group.get(name, getlink=True)
            path = f"{group.name.rstrip('/')}/{name}"
            if isinstance(link, h5py.SoftLink):
                # It leads to an object of this file, by its path, which is visited itself.
                continue
            if not isinstance(link, h5py.HardLink):
                return path, "an external link"
            child = group[name]
            address = h5py.h5o.get_info(child.id).addr
            if address in seen:
                continue
            seen.add(address)
            if len(seen) > MAX_OBJECTS:
                raise invalid_input(f"the HDF5 file has more than {MAX_OBJECTS:,} objects: split it")
            _read_description(child)
            if isinstance(child, h5py.Group):
                groups.append(child)
            elif isinstance(child, h5py.Dataset) and _refers_elsewhere(child):
                return path, "a dataset whose values are in another file"
    return None


def _read_description(child: h5py.Group | h5py.Dataset | h5py.Datatype) -> None:
    """Read what describes an object, which fails if it is damaged: the netCDF library may crash on it."""
    for name in child.attrs:
        # Not its value: a damaged length would be read for minutes.
        attribute = child.attrs.get_id(name)
        _ = attribute.dtype, attribute.shape
    if isinstance(child, h5py.Dataset):
        _ = (
            child.dtype,
            child.shape,
            child.maxshape,
            child.chunks,
            child.compression,
            child.fillvalue,
            list(child.dims),
        )


def _refers_elsewhere(dataset: h5py.Dataset) -> bool:
    if dataset.external:
        return True
    return dataset.is_virtual and any(source.file_name != _SAME_FILE for source in dataset.virtual_sources())
