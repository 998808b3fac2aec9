"""The rules of GDAL drivers: which of them read files for handlers, and why the others do not.

A driver reads only if it opens nothing but its own files: no network, no program, no file that its content
names. The tables are `raster_drivers.py` and `vector_drivers.py`; a driver that is in neither table is
refused.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    from collections.abc import Collection, Mapping

ONE_FILE: Final = "one file"
FILE_SET: Final = "a file and the files of the same name next to it"
DIRECTORY: Final = "a directory, or a zip archive of it"

NETWORK: Final = "reads from a server over the network"
RUNS_CODE: Final = "runs a program or code"
REFERENCES: Final = "refers to other files"
PRODUCT: Final = "a product of many files, some of which its index names"
NO_FILE: Final = "reads no file"
WRITE_ONLY: Final = "write only"
NO_GEOMETRIES: Final = "its tables have no geometries"
UNKNOWN: Final = "not reviewed: newer than this version of dagmaster"


@dataclass(frozen=True, slots=True, kw_only=True)
class FileType:
    """A kind of file. `required` and `optional` are suffixes of other files that belong to it.

    They replace the suffix of the file, as in a.shx for a.shp; those with a plus sign follow its whole name,
    as in a.slc.rsc for a.slc. A type with `markers` is a directory: it contains at least one file of these
    names.
    """

    suffix: str
    required: tuple[str, ...] = ()
    optional: tuple[str, ...] = ()
    markers: tuple[str, ...] = ()

    @property
    def parts(self) -> tuple[str, ...]:
        return (*self.required, *self.optional)

    def part_name(self, name: str, part: str) -> str:
        return f"{name}{part[1:]}" if part.startswith("+") else f"{name[: -len(self.suffix)]}{part}"


@dataclass(frozen=True, slots=True, kw_only=True)
class DriverRule:
    """Whether a driver reads, and why.

    `magic` is how a file of the driver begins. A driver that `needs_suffix` takes other files for its own,
    too: it reads only files with one of its suffixes. `marks` are the words by which GDAL recognises the
    content of a refused driver's files, whatever their names: a file with such a mark is refused before GDAL
    sees it.
    """

    is_read: bool
    reason: str
    files: tuple[FileType, ...] = ()
    magic: bytes = b""
    needs_suffix: bool = False
    marks: tuple[bytes, ...] = ()

    @property
    def suffixes(self) -> tuple[str, ...]:
        return tuple(file.suffix for file in self.files)


def reads(*files: FileType | str, magic: bytes = b"", needs_suffix: bool = False) -> DriverRule:
    types = tuple(FileType(suffix=file) if isinstance(file, str) else file for file in files)
    reason = ONE_FILE
    if any(file.markers for file in types):
        reason = DIRECTORY
    elif any(file.parts for file in types):
        reason = FILE_SET
    return DriverRule(
        is_read=True,
        reason=reason,
        files=types,
        magic=magic,
        needs_suffix=needs_suffix,
    )


def refused(reason: str, *marks: bytes) -> DriverRule:
    return DriverRule(is_read=False, reason=reason, marks=marks)


def file_types(rules: Mapping[str, DriverRule]) -> dict[str, FileType]:
    types: dict[str, FileType] = {}
    for file in (file for rule in rules.values() for file in rule.files):
        other = types.get(file.suffix)
        # Of two drivers with one suffix, the file may be either's: what one requires is optional.
        types[file.suffix] = file if other is None else _combine(file, other)
    return types


def _combine(first: FileType, second: FileType) -> FileType:
    required = tuple(part for part in first.required if part in second.required)
    optional = tuple(dict.fromkeys(part for part in (*first.parts, *second.parts) if part not in required))
    return FileType(
        suffix=first.suffix, required=required, optional=optional, markers=(*first.markers, *second.markers)
    )


def drivers_of_suffix(rules: Mapping[str, DriverRule], suffix: str) -> tuple[str, ...]:
    """Return the drivers that read files with this suffix, the usual one first."""
    return tuple(name for name, rule in rules.items() if suffix in rule.suffixes)


def complete(rules: Mapping[str, DriverRule], installed: Collection[str]) -> dict[str, DriverRule]:
    """Return the rules of the installed drivers; those without a rule are refused."""
    unknown = refused(UNKNOWN)
    return {name: rules.get(name, unknown) for name in sorted(installed, key=str.lower)}
