"""Write small files of raster formats that nothing installed writes: a header, and the pixels."""

from __future__ import annotations

import struct
from typing import TYPE_CHECKING, Any

import numpy as np

if TYPE_CHECKING:
    from pathlib import Path

    from numpy.typing import NDArray

    Pixels = NDArray[Any]


def fields(size: int, values: dict[int, bytes | str], *, fill: bytes = b" ") -> bytes:
    """Return a header of a size with values at offsets."""
    header = bytearray(fill * size)
    for offset, value in values.items():
        data = value.encode() if isinstance(value, str) else value
        header[offset : offset + len(data)] = data
    assert len(header) == size
    return bytes(header)


def write_ace2(path: Path, data: Pixels) -> None:
    """Write a tile of global elevations: its place and resolution are in its name."""
    path.write_bytes(data[0].astype("<f4").tobytes())


def write_bsb(path: Path, data: Pixels) -> None:
    """Write a nautical chart: a header in text, rows of runs, and an index of the rows."""
    colors = "".join(f"RGB/{number},{number},{number},{number}\r\n" for number in range(1, 128))
    corners = [(0, 0, 50, 10), (32, 0, 50, 10.32), (0, 32, 49.68, 10), (32, 32, 49.68, 10.32)]
    places = "".join(f"REF/{n},{x},{y},{lat},{lon}\r\n" for n, (x, y, lat, lon) in enumerate(corners, 1))
    header = (
        f"VER/3.0\r\nBSB/NA=X,NU=1,RA=32,32,DU=100\r\nKNP/SC=9,GD=WGS84,PR=UNKNOWN,PP=0\r\n{colors}{places}"
    )
    content, offsets = header.encode() + b"\x1a\0\x07", []
    for number, row in enumerate(data[0], 1):
        offsets.append(len(content))
        # Its first color has the number 1.
        content += bytes([number]) + bytes((row + 1).tolist()) + b"\0"
    path.write_bytes(content + struct.pack(">33i", *offsets, len(content)))


def write_ceos(path: Path, data: Pixels) -> None:
    """Write a picture of a satellite: records of a fixed length."""
    texts = {16: "CEOS-XX-CCT", 44: "   2", 180: "    32", 186: "    44", 216: "   8", 232: "   1", 236: "      32",
             248: "      32", 276: "   0", 288: "   0"}  # fmt: skip
    records = [struct.pack(">I", 1) + b"\x3f\xc0\x12\x12" + struct.pack(">I", 512)]
    records[0] += fields(512, {**texts})[12:]
    records += [struct.pack(">III", number, 0, 44) + row.tobytes() for number, row in enumerate(data[0], 2)]
    path.write_bytes(b"".join(records))


def write_cosar(path: Path, data: Pixels) -> None:
    """Write a complex radar image: four lines of annotations, then lines with the range of their valid samples."""
    size = 8 + 4 * 32
    header = fields(4 * size, {8: struct.pack(">3I", 32, 32, 1), 20: struct.pack(">2I", size, 36), 28: b"CSAR",
                               32: struct.pack(">I", 1)}, fill=b"\0")  # fmt: skip
    lines = np.stack([data[0].real, data[0].imag], axis=-1).astype(">i2")
    path.write_bytes(header + b"".join(struct.pack(">2I", 1, 32) + line.tobytes() for line in lines))


def write_ctg(path: Path, data: Pixels) -> None:
    """Write a land use grid: lines of 80 characters, one a cell."""
    cell, east, north = 200, 500_000, 4_000_000
    header = [
        fields(80, {0: f"{32:10}", 20: f"{32:10}", 35: f"{cell:5}", 50: f"{15:5}"}),
        fields(80, {0: f"{1:5}{1:5}{32:5}{32:5}"}),
        fields(80, {}),
        fields(80, {40: f"{east:10}{north:10}"}),
        fields(80, {0: "TITLE"}),
    ]
    cells = [
        f"{15:3}{east + cell // 2 + column * cell:8}{north - cell // 2 - row * cell:8} "
        + "".join(f"{value:10}" for value in data[:, row, column])
        for row in range(32)
        for column in range(32)
    ]
    path.write_bytes(b"".join(header) + "".join(cells).encode())


def write_dipex(path: Path, data: Pixels) -> None:
    """Write a picture of ELAS' successor: a header of 1,024 bytes."""
    numbers = struct.pack("<8i", 1024, 32, 1, 32, 1, 32, 1, 4322)
    place = struct.pack("<4d", 49.995, 10.005, 0.01, 0.01)
    path.write_bytes(
        fields(1024, {0: numbers, 72: b"\1\0", 80: struct.pack("<i", 4326), 96: place}, fill=b"\0")
        + data.tobytes()
    )


def write_doq1(path: Path, data: Pixels) -> None:
    """Write an orthophoto of the old kind: four records of text as long as a row."""
    texts = {0: "QUAD", 144: "   500", 150: "   500", 156: "  1", 162: "  0", 167: " 4", 195: "  1", 198: "    15",
             204: "  2", 1288: f"{500_000.0:24}", 1312: f"{4_000_000.0:24}", 1559: f"{1.0:12}{1.0:12}"}  # fmt: skip
    path.write_bytes(fields(2_000, {**texts}) + data.tobytes())


def write_doq2(path: Path, data: Pixels) -> None:
    """Write an orthophoto of the new kind: a header of keywords."""
    header = """BEGIN_USGS_DOQ_HEADER
QUADRANGLE_NAME X
SAMPLES_AND_LINES 500 500
BYTE_COUNT 1000
XY_ORIGIN 500000 4000000
HORIZONTAL_RESOLUTION 1.0
BAND_ORGANIZATION BSQ
BAND_CONTENT BLACK&WHITE
BITS_PER_PIXEL 8
HORIZONTAL_COORDINATE_SYSTEM UTM
COORDINATE_ZONE 15
HORIZONTAL_UNITS METERS
HORIZONTAL_DATUM NAD83
END_USGS_DOQ_HEADER
"""
    path.write_bytes(fields(1_000, {0: header}) + data.tobytes())


def write_envisat(path: Path, data: Pixels) -> None:
    """Write an Envisat product: a main header, a specific one with the list of datasets, and one of measurements."""
    descriptor = f"""DS_NAME="MDS1                        "
DS_TYPE=M
FILENAME="                                                              "
DS_OFFSET=+{1247 + 400:020}<bytes>
DS_SIZE=+{32 * 64:020}<bytes>
NUM_DSR=+{32:010}
DSR_SIZE=+{64:010}<bytes>
"""
    specific = (
        f'SPH_DESCRIPTOR="X"\nLINE_LENGTH=+{32:05}<samples>\nSAMPLE_TYPE="DETECTED"\nDATA_TYPE="UWORD"\n'
    )
    main = f'PRODUCT="ASA_IMP_1P"\nSPH_SIZE=+{400:010}<bytes>\nNUM_DSD=+{1:010}\nDSD_SIZE=+{280:010}<bytes>\n'
    path.write_bytes(
        fields(1246, {0: main}) + b"\n" + fields(120, {0: specific}, fill=b"\n")
        + fields(279, {0: descriptor}) + b"\n" + data[0].astype(">u2").tobytes()
    )  # fmt: skip


def write_gff(path: Path, data: Pixels) -> None:
    """Write a magnitude image of a radar."""
    header = {0: b"GSATIMG\0", 8: struct.pack("<2HI", 0, 1, 128), 56: struct.pack("<6I", 1, 1, 0, 1, 32, 32)}
    path.write_bytes(fields(128, {**header}, fill=b"\0") + data.tobytes())


def write_gsc(path: Path, data: Pixels) -> None:
    """Write a grid of the Geological Survey of Canada: records of Fortran."""
    size = 32 * 4
    place = struct.pack("<8f", 0.01, 0.01, 10, 0, 0, 50, 0, 0)
    first = fields(size + 8, {0: struct.pack("<4i", size, 32, 32, 2)}, fill=b"\0")
    second = fields(size + 8, {12: place}, fill=b"\0")
    mark = struct.pack("<i", size)
    path.write_bytes(first + second + b"".join(mark + row.astype("<f4").tobytes() + mark for row in data[0]))


def write_genbin(path: Path, data: Pixels) -> None:
    """Write raw pixels with a header next to them."""
    path.with_suffix(".hdr").write_text(
        "BANDS: 1\nROWS: 32\nCOLS: 32\nDATATYPE: U8\nINTERLEAVING: BIL\nPROJECTION_NAME: UTM\nPROJECTION_ZONE: 32\n"
        "DATUM_NAME: WGS84\nUL_X_COORDINATE: 500005\nUL_Y_COORDINATE: 5499995\nLR_X_COORDINATE: 500315\n"
        "LR_Y_COORDINATE: 5499685\n"
    )
    path.write_bytes(data.tobytes())


def write_iris(path: Path, data: Pixels) -> None:
    """Write reflectivities of a weather radar, in half decibels from -32, rows from the south."""
    angle = struct.pack("<2I", int(50 / 360 * 0xFFFFFFFF), int(10 / 360 * 0xFFFFFFFF))
    header = {
        0: struct.pack("<h", 27), 12: struct.pack("<h", 26), 24: struct.pack("<H", 3), 38: struct.pack("<3h", 2020, 1, 1),
        100: struct.pack("<2i", 100_000, 100_000), 112: struct.pack("<3i", 32, 32, 1), 124: struct.pack("<2i", 16_000, 16_000),
        142: struct.pack("<H", 2), 156: struct.pack("<H", 2), 440: angle, 572: angle,
    }  # fmt: skip
    levels = (data[0, ::-1] * 2 + 64).astype("uint8")
    path.write_bytes(fields(640, {**header}, fill=b"\0") + levels.tobytes())


def write_jdem(path: Path, data: Pixels) -> None:
    """Write elevations of Japan: tenths of a metre in five characters."""
    header = fields(1011, {0: "523412", 11: "200020002000", 23: " 32 32", 29: " 350000", 36: "1350000", 43: " 352000",
                           50: "1352000"})  # fmt: skip
    rows = [
        f"523412{number:3}" + "".join(f"{value:5}" for value in row) + "\r\n"
        for number, row in enumerate(data[0], 1)
    ]
    path.write_bytes(header + "".join(rows).encode())


def write_loslas(path: Path, data: Pixels) -> None:
    """Write a grid of datum shifts: rows from the south, each with a number before it."""
    size = 32 * 4 + 4
    place = struct.pack("<4f", 10.005, 0.01, 49.685, 0.01)
    header = fields(
        size, {0: b"X" * 56, 56: b"NADGRD  ", 64: struct.pack("<3i", 32, 32, 1), 76: place}, fill=b"\0"
    )
    path.write_bytes(header + b"".join(bytes(4) + row.astype("<f4").tobytes() for row in data[0, ::-1]))


def write_nsidc(path: Path, data: Pixels) -> None:
    """Write concentrations of sea ice: a header of 300 bytes."""
    header = {
        6: "   32\0",
        12: "   32\0",
        54: "SSMIS\0",
        102: " 2010\0",
        150: "ARCTIC ICE\0",
        230: "ARCTIC ICE\0",
    }
    path.write_bytes(fields(300, {**header}, fill=b"\0") + data.tobytes())


def write_classes(path: Path, data: Pixels) -> None:
    """Write classes of Vertical Mapper: a header of 1,024 bytes, and names of classes after the pixels."""
    corners = struct.pack("<4d", 10, 10.31, 49.69, 50)
    header = {
        0: b"HGPC8",
        5: struct.pack("<fHH", 2.0, 32, 32),
        13: corners,
        256: b"Earth Projection 1, 104\0",
        1023: b"\2",
    }
    names = b"".join(
        struct.pack("<HBBBBBH", number, 0, number, number, number, 0, 1) + b"a"
        for number in range(int(data.max()) + 1)
    )
    count = struct.pack("<H", int(data.max()) + 1)
    path.write_bytes(fields(1024, {**header}, fill=b"\0") + data.tobytes() + count + names)


def write_l1b(path: Path, data: Pixels) -> None:
    """Write scan lines of a weather satellite: 2,048 pixels each, behind points on the ground."""
    points = struct.pack(
        ">102h", *(int(128 * degrees) for number in range(51) for degrees in (50, 10 + number / 5))
    )
    header = fields(122, {30: "NSS.HRPT.NJ.D95056.S1116.E1128.B0033333.GC", 97: b"\1" + bytes(19), 117: "08"})
    first = fields(2_496, {0: b"\3\x30"}, fill=b"\0")
    line = fields(448, {2: b"\xbe\x38", 8: b"\2", 52: bytes([51]), 104: points}, fill=b"\0")
    lines = [
        struct.pack(">H", number) + line[2:] + row.astype("uint8").tobytes()
        for number, row in enumerate(data[0], 1)
    ]
    path.write_bytes(header + first + b"".join(lines))
