"""Write small files of vector formats that nothing installed writes."""

from __future__ import annotations

import math
import struct
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Sequence
    from pathlib import Path

POINTS = ((0.0, 0.0), (3.0, 3.0))
SXF_CORNERS = (
    6_000_000.0,
    7_500_000.0,
    6_200_000.0,
    7_500_000.0,
    6_200_000.0,
    7_700_000.0,
    6_000_000.0,
    7_700_000.0,
)
SXF_DEGREES = (54.1, 39.0, 55.9, 39.0, 55.9, 41.9, 54.1, 41.9)
"""The corners of a map sheet, each northing first, and each latitude first."""
UNIT, FIELD = b"\x1f", b"\x1e"


def write_idrisi(path: Path) -> None:
    """Write points with a description, and a table of their values."""
    records = b"".join(struct.pack("<3d", number, x, y) for number, (x, y) in enumerate(POINTS, 1))
    path.write_bytes(struct.pack("<BI", 1, len(POINTS)).ljust(261, b"\0") + records)
    path.with_suffix(".vdc").write_text(
        "file format : IDRISI Vector A.1\nref. system : latlong\nref. units  : deg\n"
        "min. X : 0\nmax. X : 3\nmin. Y : 0\nmax. Y : 3\n"
    )
    path.with_suffix(".adc").write_text(
        "file format : IDRISI Values A.1\nfile type   : ascii\nrecords : 2\nfields  : 2\n"
        "field 0 :IDR_ID\ndata type:integer\nfield 1 :height\ndata type:real\n"
    )
    path.with_suffix(".avl").write_text("1\t1.5\n2\t2.5\n")


def write_s57(path: Path) -> None:
    """Write a nautical chart with two buoys: records of ISO 8211, the first of which defines the fields."""
    definitions = [
        (b"0000", b"0000;&   " + UNIT + b"0001DSIDDSIDDSSI0001DSPM0001VRIDVRIDSG2D0001FRIDFRIDFOIDFRIDATTFFRIDFSPT"),
        _definition(b"0001", b"0500", b"Record Identifier", b"", b"(b12)"),
        _definition(b"DSID", b"1600", b"Data set identification field",
                    b"RCNM!RCID!EXPP!INTU!DSNM!EDTN!UPDN!UADT!ISDT!STED!PRSP!PSDN!PRED!PROF!AGEN!COMT",
                    b"(b11,b14,2b11,3A,2A(8),R(4),b11,2A,b11,b12,A)"),
        _definition(b"DSSI", b"1600", b"Data set structure information field",
                    b"DSTR!AALL!NALL!NOMR!NOCR!NOGR!NOLR!NOIN!NOCN!NOED!NOFA", b"(3b11,8b14)"),
        _definition(b"DSPM", b"1600", b"Data set parameter field",
                    b"RCNM!RCID!HDAT!VDAT!SDAT!CSCL!DUNI!HUNI!PUNI!COUN!COMF!SOMF!COMT",
                    b"(b11,b14,3b11,b14,4b11,2b14,A)"),
        _definition(b"VRID", b"1600", b"Vector record identifier field", b"RCNM!RCID!RVER!RUIN", b"(b11,b14,b12,b11)"),
        _definition(b"SG2D", b"2500", b"2-D coordinate field", b"*YCOO!XCOO", b"(2b24)"),
        _definition(b"FRID", b"1600", b"Feature record identifier field",
                    b"RCNM!RCID!PRIM!GRUP!OBJL!RVER!RUIN", b"(b11,b14,2b11,2b12,b11)"),
        _definition(b"FOID", b"1600", b"Feature object identifier field", b"AGEN!FIDN!FIDS", b"(b12,b14,b12)"),
        _definition(b"ATTF", b"2600", b"Feature record attribute field", b"*ATTL!ATVL", b"(b12,A)"),
        _definition(b"FSPT", b"2600", b"Feature record to spatial record pointer field",
                    b"*NAME!ORNT!USAG!MASK", b"(B(40),3b11)"),
    ]  # fmt: skip
    identification = (
        struct.pack("<BIBB", 10, 1, 1, 4) + UNIT.join((b"X", b"2", b"0", b"20200101" + b"20200101" + b"03.1\1"))
        + UNIT + b"2.0" + UNIT + struct.pack("<BH", 1, 540) + UNIT
    )  # fmt: skip
    parameters = struct.pack("<BIBBBIBBBBII", 20, 1, 2, 7, 7, 1_000, 1, 1, 1, 1, 10_000_000, 10) + UNIT
    records = [
        [(b"DSID", identification), (b"DSSI", struct.pack("<3B8I", 2, 0, 0, 0, 0, 2, 0, 2, 0, 0, 0))],
        [(b"DSPM", parameters)],
    ]
    for number, (x, y) in enumerate(POINTS, 1):
        place = struct.pack("<2i", round(y * 10_000_000), round(x * 10_000_000))
        records.append([(b"VRID", struct.pack("<BIHB", 110, number, 1, 1)), (b"SG2D", place)])
    # Class 17 are lateral buoys, attribute 116 is a name.
    records += [
        [
            (b"FRID", struct.pack("<BIBBHHB", 100, number, 1, 2, 17, 1, 1)),
            (b"FOID", struct.pack("<HIH", 540, number, 1)),
            (b"ATTF", struct.pack("<H", 116) + b"a" + UNIT),
            (b"FSPT", struct.pack("<BI3B", 110, number, 255, 255, 255)),
        ]
        for number in range(1, len(POINTS) + 1)
    ]
    content = _record(b"3LE1 09", b" ! ", definitions)
    for number, fields in enumerate(records, 1):
        content += _record(b" D     ", b"   ", [(b"0001", struct.pack("<H", number)), *fields])
    path.write_bytes(content)


def write_sxf(path: Path) -> None:
    """Write two airfields of a map sheet in zone 7 of Gauss-Krüger, in real coordinates: SXF, version 4."""
    passport = b"SXF\0" + struct.pack("<I4BI", 400, 0, 0, 4, 0, 0)
    passport += b"20260101".ljust(12, b"\0") + b"sheet".ljust(32, b"\0") + struct.pack("<I", 1_000_000)
    passport += b"a sheet".ljust(32, b"\0") + bytes([0b11111, 1, 1, 0])
    passport += struct.pack("<I8d", 0, *SXF_CORNERS)
    passport += struct.pack("<8d", *(math.radians(degrees) for degrees in SXF_DEGREES))
    passport += bytes([1, 0, 1, 1, 0, 0, 0, 0])
    passport = (
        passport.ljust(312, b"\0") + struct.pack("<I8i4x", 20_000, *[0] * 8) + struct.pack("<6d", *[0.0] * 6)
    )
    descriptor = b"DAT\0" + struct.pack("<I", 52).ljust(36, b"\0") + struct.pack("<I8x", 2)
    content = passport + descriptor
    for number, (x, y) in enumerate(((7_500_000.0, 6_000_000.0), (7_600_000.0, 6_100_000.0)), 1):
        # Text in attribute 9, and a number in attribute 10. The flags: a point, with attributes, doubles.
        attributes = struct.pack("<H2B", 9, 126, 1) + b"a\0" + struct.pack("<H2Bd", 10, 8, 0, number + 0.5)
        content += _sxf_object(b"\x02\x06\x04\0", struct.pack("<2d", y, x), attributes)
    path.write_bytes(content)


def write_sxf_3(path: Path) -> None:
    """Write the same airfields in the coordinates of a digitiser, 50 metres each: SXF, version 3."""
    passport = b"SXF\0" + struct.pack("<I4BI", 256, 0, 3, 0, 0, 0)
    passport += b"260101\0\0" + b"sheet".ljust(24, b"\0") + struct.pack("<I", 1_000_000)
    passport += b"a sheet".ljust(26, b"\0") + bytes([0b111, 0, 0, 0]) + bytes(12)
    passport += struct.pack("<8i", *(round(10 * metres) for metres in SXF_CORNERS))
    passport += struct.pack("<8i", *(round(1e8 * math.radians(degrees)) for degrees in SXF_DEGREES))
    passport += bytes([1, 0, 1, 1, 0, 0, 0, 0])
    passport = passport.ljust(212, b"\0") + struct.pack(
        "<I8h4x", 20_000, 0, 0, 4_000, 0, 4_000, 4_000, 0, 4_000
    )
    content = passport.ljust(256, b"\0") + b"DAT\0" + bytes(28) + struct.pack("<I8x", 2)
    for x, y in ((0, 0), (2_000, 2_000)):
        content += _sxf_object(b"\x02\0\0\0", struct.pack("<2h", y, x), b"")
    path.write_bytes(content)


def write_sxf_with_classes(path: Path) -> None:
    """Write the airfields of version 4, and their classes next to them."""
    write_sxf(path)
    path.with_suffix(".rsc").write_bytes(sxf_classes())


def sxf_classes() -> bytes:
    """Return a classifier with one layer, fields, and one class of it."""
    layer = struct.pack("<I32s16s2BH", 56, b"all fields", b"fields", 1, 0, 0)
    kind = struct.pack("<4I32s32s2B14x", 96, 53_110_000, 1, 1, b"field", b"air field", 2, 1)
    header = bytearray(328)
    header[:4] = b"RSC\0"
    struct.pack_into("<3I", header, 120, len(header) + len(layer), len(kind), 1)
    struct.pack_into("<3I", header, 180, len(header), len(layer), 1)
    return bytes(header) + layer + kind


def _sxf_object(flags: bytes, geometry: bytes, attributes: bytes) -> bytes:
    """Return one point, an airfield by its code."""
    length = 32 + len(geometry) + len(attributes)
    head = struct.pack("<4I2H", 0x7FFF7FFF, length, len(geometry), 53_110_000, 0, 1) + flags
    return head + struct.pack("<I2H", 1, 0, 1) + geometry + attributes


def _definition(
    tag: bytes, kind: bytes, name: bytes, subfields: bytes, formats: bytes
) -> tuple[bytes, bytes]:
    return tag, kind + b";&   " + name + UNIT + subfields + UNIT + formats


def _record(kind: bytes, characters: bytes, fields: Sequence[tuple[bytes, bytes]]) -> bytes:
    """Return a record of ISO 8211: its leader, the directory of its fields, and the fields."""
    directory, area = b"", b""
    for tag, data in fields:
        directory += tag + b"%05d%05d" % (len(data) + 1, len(area))
        area += data + FIELD
    start = 24 + len(directory) + 1
    leader = b"%05d" % (start + len(area)) + kind + b"%05d" % start + characters + b"5504"
    assert len(leader) == 24
    return leader + directory + FIELD + area
