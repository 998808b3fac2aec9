"""Check the content of a file of features before GDAL sees it."""

from __future__ import annotations

import re
import struct
from typing import TYPE_CHECKING, Final

from dagmaster.errors import invalid_input
from dagmaster.geo.formats.archives import check_members, open_archive
from dagmaster.geo.formats.idrisi_references import reject_idrisi_reference
from dagmaster.geo.formats.sxf_passport import check_classes, check_sxf
from dagmaster.geo.formats.vector_drivers import ARROW_FORMATS, VECTOR_DRIVERS

if TYPE_CHECKING:
    from pathlib import Path

JSON_FORMATS: Final = ("GeoJSON", "GeoJSONSeq", "TopoJSON", "JSONFG")

_SHP_HEADER: Final = 100
_DBF_HEADER: Final = 32
_HEAD_BYTES: Final = 1024 * 1024
"""More of a file than any driver examines to recognise it."""
_CHUNK_BYTES: Final = 4 * 1024 * 1024
_CONTEXT_BYTES: Final = 2_000
_IN_CRS: Final = re.compile(rb'"crs"\s*:\s*\{[^{}]*\Z')
_LINKED_CRS: Final = re.compile(rb'"type"\s*:\s*"(link|url)"', re.IGNORECASE)
_ESCAPED: Final = re.compile(rb"\\u00([46][1-9A-Fa-f]|[57][0-9Aa])")
"""A plain letter in JSON's escaped form."""
_MAPINFO_REFERENCES: Final = re.compile(
    rb'^\s*create view|"\\IsSeamless"\s*=\s*"TRUE"', re.IGNORECASE | re.MULTILINE
)
_MARKS: Final = {mark.lower(): name for name, rule in VECTOR_DRIVERS.items() for mark in rule.marks}


def check_content(path: Path, format_name: str, max_bytes: int) -> None:
    """Reject a file that is not what its name says, or that would lead GDAL to other files or servers."""
    if path.is_dir():
        return
    with path.open("rb") as file:
        head = file.read(_HEAD_BYTES)
    _reject_marked(head)
    rule = ARROW_FORMATS.get(format_name) or VECTOR_DRIVERS[format_name]
    if not head.startswith(rule.magic):
        raise invalid_input(
            f"the file is not {format_name}, as its suffix says: it begins with {_describe_start(head)}."
            " Copy it again, or name it with the suffix of its format"
        )
    if format_name in JSON_FORMATS:
        _reject_linked_crs(path)
    match format_name:
        case "ESRI Shapefile":
            _check_shapefile(path)
        case "GeoJSON":
            first_letter = head.lstrip(b"\xef\xbb\xbf \t\r\n")[:1]
            if first_letter != b"{":
                raise invalid_input(
                    f"the file is not GeoJSON: expected an object {{…}}, but it begins with"
                    f" {_describe_start(head)}"
                )
        case "MapInfo File":
            _check_mapinfo(path)
        case "Idrisi":
            reject_idrisi_reference(path.with_suffix(".vdc"))
        case "SXF":
            check_sxf(path)
            if (classes := path.with_suffix(".rsc")).exists():
                check_classes(classes)
        case "LIBKML" if head[:2] == b"PK":
            _check_archive(path, max_bytes)


def _reject_marked(head: bytes) -> None:
    lowered = head.lower()
    for mark, name in _MARKS.items():
        if mark in lowered:
            raise invalid_input(
                f"the file is {name}, which {VECTOR_DRIVERS[name].reason}: name the data itself, or convert"
                " it to GeoPackage"
            )


def _check_mapinfo(path: Path) -> None:
    """Reject a table that consists of other tables."""
    if path.suffix == ".tab" and _MAPINFO_REFERENCES.search(path.read_bytes()[:_HEAD_BYTES]):
        raise invalid_input(
            "the .tab is a view, or a seamless table, which refers to other tables: name those, or export it"
            " as one table"
        )


def _check_archive(path: Path, max_bytes: int) -> None:
    """Reject a .kmz that is not safe to unpack."""
    with open_archive(path) as archive:
        check_members(archive, max_bytes)


def _describe_start(head: bytes) -> str:
    """Return the first letters of a file, or its first bytes if they are not text."""
    text = head[:16].decode(errors="replace")
    return repr(text) if text.isprintable() and "\ufffd" not in text else f"the bytes {head[:8].hex(' ')}"


def _check_shapefile(path: Path) -> None:
    """Reject a shapefile that is truncated or whose parts do not match: GDAL would read empty features."""
    rows = {}
    for suffix in (".shp", ".shx"):
        part = path.with_suffix(suffix)
        with part.open("rb") as file:
            head = file.read(_SHP_HEADER)
        if len(head) < _SHP_HEADER or part.stat().st_size < 2 * struct.unpack(">i", head[24:28])[0]:
            raise invalid_input(
                f"the {suffix} of the shapefile is truncated: it is shorter than its header states. Copy all"
                " its files again"
            )
        rows[suffix] = (2 * struct.unpack(">i", head[24:28])[0] - _SHP_HEADER) // 8
    dbf = path.with_suffix(".dbf")
    with dbf.open("rb") as file:
        head = file.read(_DBF_HEADER)
    if len(head) < _DBF_HEADER:
        raise invalid_input(
            "the .dbf of the shapefile is truncated: it has no header. Copy all its files again"
        )
    count, start, width = struct.unpack("<IHH", head[4:12])
    if dbf.stat().st_size < start + count * width:
        raise invalid_input(
            f"the .dbf of the shapefile is truncated: it is shorter than its {count:,} rows. Copy all its"
            " files again"
        )
    if count != rows[".shx"]:
        raise invalid_input(
            f"the shapefile has {rows['.shx']:,} geometries in its .shx and {count:,} rows in its .dbf: copy"
            " all its files again"
        )


def _reject_linked_crs(path: Path) -> None:
    """Reject a CRS given as a link, which GDAL would fetch."""
    previous = b""
    with path.open("rb") as file:
        while chunk := file.read(_CHUNK_BYTES):
            window = _ESCAPED.sub(lambda match: bytes.fromhex(match[1].decode()), previous + chunk)
            for match in _LINKED_CRS.finditer(window):
                if _IN_CRS.search(window, max(0, match.start() - _CONTEXT_BYTES), match.start()):
                    raise invalid_input('the GeoJSON has its "crs" as a link: name it, or leave it out')
            # Keep the end, for what lies on both sides of a chunk border.
            previous = window[-2 * _CONTEXT_BYTES :]
