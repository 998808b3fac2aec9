"""The passport and classes of an SXF map before GDAL reads it: GDAL misplaces some maps.

Found with GDAL 3.12: an EPSG code in the passport moves every point to (0, 0), maps in UTM north of the
equator get a zone south of it, units and the parameters of other projections are ignored, and a truncated
file loses its last objects without an error. It hangs or crashes on a damaged table of classes and on damaged
attributes. What remains is the Gauss-Krüger projection of Pulkovo 1942, in which nearly all SXF maps are
made.
"""

from __future__ import annotations

import math
import struct
from dataclasses import dataclass
from typing import IO, TYPE_CHECKING, Final

from dagmaster.errors import invalid_input

if TYPE_CHECKING:
    from pathlib import Path

_HEAD_BYTES: Final = 452
"""The passport and the descriptor of the objects, in the longer version."""
_OLD_PASSPORT_BYTES: Final = 256
_HEADER: Final = struct.Struct("<4xIxBBx")
_RECORD_HEADER: Final = struct.Struct("<3I9xB10x")
_HAS_ATTRIBUTES: Final = 0b10
_ATTRIBUTE: Final = struct.Struct("<2xBB")
_NUMBER_BYTES: Final = {1: 1, 2: 2, 4: 4, 8: 8}
_LETTER_BYTES: Final = {0: 1, 126: 1, 127: 2}
_MAX_LETTERS: Final = 127
"""GDAL takes the length of a text for a signed number: it drops longer ones, and crashes on 255."""
_RECORD_MARK: Final = 0x7FFF7FFF
_SECTION: Final = struct.Struct("<I4xI")
_CLASS_SECTIONS: Final = ((120, 96), (180, 56))
"""Where the header of a .rsc describes its classes and its layers, and the smallest records of each."""
_EXCHANGE, _IN_PROJECTION, _REAL_COORDINATES = 0b11, 0b100, 0b10000
_METRE: Final = 0
_PULKOVO_1942, _GAUSS_KRUEGER = 1, 1
_ZONES: Final = range(2, 33)
"""Of Gauss-Krüger, each six degrees wide. In others GDAL makes a projection without its parameters."""


@dataclass(frozen=True, slots=True, kw_only=True)
class _Passport:
    """What the first bytes of a map state, whatever the version."""

    flags: int
    epsg: int
    ellipsoid: int
    projection: int
    unit: int
    longitudes: tuple[float, float]
    resolution: int
    frame: tuple[int, ...]
    record_count: int
    first_record: int


def check_sxf(path: Path) -> None:
    """Reject a map that GDAL would read wrongly, or that is truncated."""
    with path.open("rb") as file:
        passport = _read_passport(file)
        _check_projection(passport)
        _check_coordinates(passport)
        _check_records(file, passport, path.stat().st_size)


def check_classes(path: Path) -> None:
    """Reject a table of classes whose records do not follow each other within the file."""
    content = path.read_bytes()
    if not content.startswith(b"RSC"):
        raise invalid_input("the .rsc next to the SXF map is not a class table: copy it again, or remove it")
    try:
        for position, smallest in _CLASS_SECTIONS:
            start, count = _SECTION.unpack_from(content, position)
            for _ in range(count):
                (length,) = struct.unpack_from("<I", content, start)
                start += length
                if length < smallest or start > len(content):
                    raise _damaged_classes()
    except struct.error:
        raise _damaged_classes() from None


def _damaged_classes() -> Exception:
    return invalid_input("the .rsc next to the SXF map is damaged or truncated: copy it again, or remove it")


def _read_passport(file: IO[bytes]) -> _Passport:
    head = file.read(_HEAD_BYTES)
    try:
        length, old_version, new_version = _HEADER.unpack_from(head)
        version = new_version if length > _OLD_PASSPORT_BYTES else old_version
        read = {3: _read_version_3, 4: _read_version_4}.get(version)
        if read is None:
            raise invalid_input(f"the SXF map has version {version}: versions 3 and 4 are read")
        return read(head)
    except struct.error:
        raise invalid_input("the SXF map is truncated: it ends in its passport. Copy it again") from None


def _read_version_3(head: bytes) -> _Passport:
    corners = struct.unpack_from("<8i", head, 126)
    ellipsoid, projection, unit = struct.unpack_from("<BxBxxB", head, 158)
    resolution, *frame = struct.unpack_from("<I8h", head, 212)
    return _Passport(
        flags=head[78],
        epsg=0,
        ellipsoid=ellipsoid,
        projection=projection,
        unit=unit,
        longitudes=(math.degrees(corners[1] / 1e8), math.degrees(corners[5] / 1e8)),
        resolution=resolution,
        frame=tuple(frame),
        record_count=struct.unpack_from("<I", head, 288)[0],
        first_record=300,
    )


def _read_version_4(head: bytes) -> _Passport:
    corners = struct.unpack_from("<8d", head, 168)
    ellipsoid, projection, unit = struct.unpack_from("<BxBxxB", head, 232)
    resolution, *frame = struct.unpack_from("<I8i", head, 312)
    return _Passport(
        flags=head[96],
        epsg=struct.unpack_from("<i", head, 100)[0],
        ellipsoid=ellipsoid,
        projection=projection,
        unit=unit,
        longitudes=(math.degrees(corners[1]), math.degrees(corners[5])),
        resolution=resolution,
        frame=tuple(frame),
        record_count=struct.unpack_from("<I", head, 440)[0],
        first_record=452,
    )


def _check_projection(passport: _Passport) -> None:
    if passport.flags & _EXCHANGE != _EXCHANGE or not passport.flags & _IN_PROJECTION:
        raise invalid_input(
            "the SXF map is not in its projection, or not meant for exchange: export it again"
        )
    if passport.epsg:
        raise invalid_input(
            f"the SXF map names its CRS by the code EPSG:{passport.epsg}, and GDAL would place all objects"
            " at (0, 0): convert it to GeoPackage with the program that made it"
        )
    if (passport.ellipsoid, passport.projection) != (_PULKOVO_1942, _GAUSS_KRUEGER):
        raise invalid_input(
            "the SXF map is in another projection than the Gauss-Krüger one of Pulkovo 1942, and GDAL would"
            f" place it wrongly (ellipsoid {passport.ellipsoid}, projection {passport.projection}): convert"
            " it to GeoPackage with the program that made it"
        )
    west, east = passport.longitudes
    centre = west + abs(east - west) / 2
    if not math.isfinite(centre) or int((centre + 3) / 6 + 0.5) not in _ZONES:
        raise invalid_input(
            f"the SXF map lies around longitude {centre:g}: expected one in the zones 2 to 32 of"
            " Gauss-Krüger, 6 to 192 degrees east"
        )


def _check_coordinates(passport: _Passport) -> None:
    if passport.flags & _REAL_COORDINATES or not any(passport.frame):
        if passport.unit != _METRE:
            raise invalid_input(
                f"the coordinates of the SXF map are not in metres (unit {passport.unit}), and GDAL would"
                " take them for metres: convert it to GeoPackage with the program that made it"
            )
    elif not passport.resolution or min(passport.frame) < 0:
        raise invalid_input(
            "the SXF map has device coordinates that GDAL cannot place: its passport has no resolution, or a"
            " frame with negative corners. Export it with real coordinates"
        )


def _check_records(file: IO[bytes], passport: _Passport, size: int) -> None:
    position = passport.first_record
    for number in range(passport.record_count):
        file.seek(position)
        header = file.read(_RECORD_HEADER.size)
        if len(header) < _RECORD_HEADER.size:
            raise _truncated(number, passport)
        mark, length, geometry_length, flags = _RECORD_HEADER.unpack(header)
        attributes_length = length - _RECORD_HEADER.size - geometry_length
        if mark != _RECORD_MARK or attributes_length < 0:
            raise invalid_input(f"object {number + 1} of the SXF map is damaged: copy it again")
        position += length
        if position > size:
            raise _truncated(number, passport)
        if flags & _HAS_ATTRIBUTES:
            file.seek(position - attributes_length)
            _check_attributes(file.read(attributes_length), number)


def _check_attributes(data: bytes, number: int) -> None:
    position = 0
    while position + _ATTRIBUTE.size < len(data):
        kind, length = _ATTRIBUTE.unpack_from(data, position)
        position += _ATTRIBUTE.size
        if kind in _NUMBER_BYTES:
            position += _NUMBER_BYTES[kind]
        elif kind in _LETTER_BYTES and length <= _MAX_LETTERS:
            position += (length + 1) * _LETTER_BYTES[kind]
        else:
            raise invalid_input(
                f"object {number + 1} of the SXF map is damaged, or has an attribute with a text of over"
                f" {_MAX_LETTERS}"
                " letters, which GDAL would lose: copy it again, or convert it with the program that made it"
            )


def _truncated(number: int, passport: _Passport) -> Exception:
    return invalid_input(
        f"the SXF map is truncated: {number:,} of its {passport.record_count:,} objects are complete. Copy it"
        " again"
    )
