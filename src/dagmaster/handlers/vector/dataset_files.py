"""A file of features on this machine, under a name of ours: with its siblings, or out of a zip.

GDAL sees a path that we made and a file whose first bytes we looked at: never a user's text, nor a file that names
others.
"""

from __future__ import annotations

import hashlib
import re
import shutil
import stat
import struct
import tempfile
import zipfile
from dataclasses import dataclass
from pathlib import Path, PurePosixPath
from typing import TYPE_CHECKING, Final

from dagmaster.errors import PermanentError
from dagmaster.handlers.source_files import beside, local_file

if TYPE_CHECKING:
    from dagmaster.authoring.handler_context import HandlerContext
    from dagmaster.ports.storage import BlobUri

FORMATS: Final = {
    ".geojson": "GeoJSON",
    ".json": "GeoJSON",
    ".gpkg": "GPKG",
    ".shp": "ESRI Shapefile",
    ".fgb": "FlatGeobuf",
    ".parquet": "GeoParquet",
    ".geoparquet": "GeoParquet",
    ".csv": "CSV",
}
NEEDED: Final = (".shx", ".dbf")
SIBLINGS: Final = (*NEEDED, ".prj", ".cpg")
MAX_MEMBERS: Final = 1_000
MAX_EXPANSION: Final = 200
"""How many times larger than its zip a file may be, once it is larger than 10 MB. Text shrinks to a twentieth."""
SMALL: Final = 10_000_000

_MAGIC: Final = {
    "GPKG": b"SQLite format 3\0",
    "FlatGeobuf": b"fgb",
    "ESRI Shapefile": b"\0\0\x27\x0a",
    "GeoParquet": b"PAR1",
}
_SHP_HEADER: Final = 100
_DBF_HEADER: Final = 32
_PIECE: Final = 4 * 1024 * 1024
_NEAR: Final = 2_000
_IN_CRS: Final = re.compile(rb'"crs"\s*:\s*\{[^{}]*\Z')
_LINKED_CRS: Final = re.compile(rb'"type"\s*:\s*"(link|url)"', re.IGNORECASE)
_ESCAPED: Final = re.compile(rb"\\u00([46][1-9A-Fa-f]|[57][0-9Aa])")
"""A plain letter, as JSON may spell it, too."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Fetched:
    """A file of features. `sha256` is of all its parts; `modified` in seconds since 1970."""

    uri: BlobUri
    path: Path
    format: str
    size: int
    sha256: str
    modified: float | None


def fetch(ctx: HandlerContext, uri: BlobUri, member: str | None = None) -> Fetched:
    """Have the file, and what belongs to it, in the scratch folder: as links where it lies on this machine."""
    if uri.suffix != ".zip" and uri.suffix not in FORMATS:
        raise invalid(f"{uri} is none of the formats that are read: {', '.join(FORMATS)}, or one of them in a .zip")
    # A folder of its own for each file: all are named alike.
    folder = Path(tempfile.mkdtemp(prefix="source-", dir=ctx.scratch))
    main = local_file(ctx, uri)
    info = ctx.blobs.find(uri)
    modified = None if info is None else info.modified
    if uri.suffix == ".zip":
        most = min(ctx.share.max_file_mb * 1_000_000, max(SMALL, main.size * MAX_EXPANSION))
        with beside(uri):
            path = unpack(main.path, folder, most, member)
        found = Fetched(
            uri=uri, path=path, format=FORMATS[path.suffix], size=main.size, sha256=main.sha256, modified=modified
        )
    else:
        path = folder / f"source{uri.suffix}"
        path.symlink_to(main.path)
        sums, size = [main.sha256], main.size
        if uri.suffix == ".shp":
            for suffix, (sha256, more) in _siblings(ctx, uri, folder).items():
                sums.append(f"{suffix}:{sha256}")
                size += more
        whole = sums[0] if len(sums) == 1 else hashlib.sha256("\n".join(sums).encode()).hexdigest()
        found = Fetched(uri=uri, path=path, format=FORMATS[uri.suffix], size=size, sha256=whole, modified=modified)
    with beside(uri):
        look(found.path, found.format)
    return found


def _siblings(ctx: HandlerContext, uri: BlobUri, folder: Path) -> dict[str, tuple[str, int]]:
    """A shapefile is several files: fetch those that lie beside it."""
    stem = str(uri)[: -len(".shp")]
    is_upper = str(uri).endswith(".SHP")
    found = {}
    for suffix in SIBLINGS:
        for spelled in (suffix.upper(), suffix) if is_upper else (suffix, suffix.upper()):
            # Through the door of the storage: a link beside the file may lead elsewhere.
            sibling = ctx.blobs.resolve(f"{stem}{spelled}")
            if ctx.blobs.find(sibling) is not None:
                part = local_file(ctx, sibling)
                (folder / f"source{suffix}").symlink_to(part.path)
                found[suffix] = part.sha256, part.size
                break
    missing = [suffix for suffix in NEEDED if suffix not in found]
    if missing:
        raise invalid(
            f"{uri} is a shapefile without its {' and '.join(missing)}: a shapefile is .shp, .shx and .dbf together,"
            " and .prj; put them beside it, or zip them"
        )
    return found


# ── Zips ────────────────────────────────────────────────────────────────────────────────────────────────────────────


def unpack(path: Path, folder: Path, most: int, member: str | None = None) -> Path:
    """Take the one file of features out of a zip, with its siblings. All is looked at before a byte is unpacked."""
    try:
        with zipfile.ZipFile(path) as archive:
            members = _checked(archive, most)
            wanted = _chosen(members, member)
            suffix = PurePosixPath(wanted.filename).suffix.lower()
            to = folder / f"source{suffix}"
            _take(archive, wanted, to)
            if suffix == ".shp":
                _take_siblings(archive, members, wanted, folder)
            return to
    except (zipfile.BadZipFile, zipfile.LargeZipFile, NotImplementedError, RuntimeError, EOFError) as error:
        raise invalid(f"not a zip that can be read: {error}") from error


def _checked(archive: zipfile.ZipFile, most: int) -> list[zipfile.ZipInfo]:
    members = [one for one in archive.infolist() if not one.is_dir()]
    if len(members) > MAX_MEMBERS:
        raise invalid(f"the zip has {len(members):,} files: at most {MAX_MEMBERS:,} are looked through")
    for one in members:
        parts = PurePosixPath(one.filename).parts
        if one.filename.startswith("/") or ".." in parts or "\\" in one.filename or ":" in parts[0]:
            raise invalid(f"the zip has a file {one.filename[:100]!r}, whose name leads out of it")
        if stat.S_ISLNK(one.external_attr >> 16):
            raise invalid(f"the zip has a link, {one.filename[:100]!r}: put the file itself into it")
        if one.flag_bits & 0x1:
            raise invalid(f"{one.filename[:100]!r} in the zip is encrypted")
    size = sum(one.file_size for one in members)
    if size > most:
        raise invalid(
            f"the zip would become {size / 1e6:,.0f} MB: at most {most / 1e6:,.0f} MB are unpacked of this one"
        )
    return members


def _chosen(members: list[zipfile.ZipInfo], member: str | None) -> zipfile.ZipInfo:
    found = [
        one
        for one in members
        if PurePosixPath(one.filename).suffix.lower() in FORMATS
        and not one.filename.startswith("__MACOSX/")
        and not PurePosixPath(one.filename).name.startswith(".")
    ]
    if member is not None:
        found = [one for one in found if one.filename == member]
    if len(found) == 1:
        return found[0]
    names = ", ".join(one.filename for one in members[:10]) or "nothing"
    if not found:
        what = f"no file {member!r}" if member is not None else "no file of features"
        raise invalid(f"the zip has {what}, but {names}")
    names = ", ".join(one.filename for one in found[:10])
    raise invalid(f"the zip has {len(found)} files of features: say which as `member`: {names}")


def _take_siblings(
    archive: zipfile.ZipFile, members: list[zipfile.ZipInfo], main: zipfile.ZipInfo, folder: Path
) -> None:
    stem = main.filename[: -len(".shp")]
    by_name = {one.filename.lower(): one for one in members}
    missing = [suffix for suffix in NEEDED if f"{stem}{suffix}".lower() not in by_name]
    if missing:
        raise invalid(f"{main.filename!r} in the zip is a shapefile without its {' and '.join(missing)}")
    for suffix in SIBLINGS:
        one = by_name.get(f"{stem}{suffix}".lower())
        if one is not None:
            _take(archive, one, folder / f"source{suffix}")


def _take(archive: zipfile.ZipFile, member: zipfile.ZipInfo, to: Path) -> None:
    # Under a name of ours. zipfile reads no byte more than the member says it has, and checks its sum.
    with archive.open(member) as source, to.open("wb") as file:
        shutil.copyfileobj(source, file, 1024 * 1024)


# ── First looks ─────────────────────────────────────────────────────────────────────────────────────────────────────


def _shown(head: bytes) -> str:
    """The first letters, or else the first bytes."""
    text = head[:16].decode(errors="replace")
    return repr(text) if text.isprintable() and "\ufffd" not in text else f"the bytes {head[:8].hex(' ')}"


def look(path: Path, format_: str) -> None:
    """Refuse a file that is not what its name says. A VRT under another name would lead GDAL to other files."""
    with path.open("rb") as file:
        head = file.read(4096)
    magic = _MAGIC.get(format_)
    if magic is not None and not head.startswith(magic):
        raise invalid(f"the file is no {format_}: it begins with {_shown(head)}")
    if format_ == "ESRI Shapefile":
        _check_shapefile(path)
    if format_ == "GeoJSON":
        begins = head.lstrip(b"\xef\xbb\xbf \t\r\n")[:1]
        if begins != b"{":
            raise invalid(f"the file is no GeoJSON: an object {{…}} was expected, and it begins with {_shown(head)}")
        _refuse_links(path)


def _check_shapefile(path: Path) -> None:
    """Refuse a shapefile that is cut off, or whose parts are not of one: GDAL reads such features as empty ones."""
    rows = {}
    for suffix in (".shp", ".shx"):
        part = path.with_suffix(suffix)
        with part.open("rb") as file:
            head = file.read(_SHP_HEADER)
        if len(head) < _SHP_HEADER or part.stat().st_size < 2 * struct.unpack(">i", head[24:28])[0]:
            raise invalid(f"the {suffix} of the shapefile is cut off: it is shorter than it says")
        rows[suffix] = (2 * struct.unpack(">i", head[24:28])[0] - _SHP_HEADER) // 8
    dbf = path.with_suffix(".dbf")
    with dbf.open("rb") as file:
        head = file.read(_DBF_HEADER)
    if len(head) < _DBF_HEADER:
        raise invalid("the .dbf of the shapefile is cut off: it has no header")
    count, start, width = struct.unpack("<IHH", head[4:12])
    if dbf.stat().st_size < start + count * width:
        raise invalid(f"the .dbf of the shapefile is cut off: it is shorter than its {count:,} rows")
    if count != rows[".shx"]:
        raise invalid(f"the shapefile has {rows['.shx']:,} geometries in its .shx and {count:,} rows in its .dbf")


def _refuse_links(path: Path) -> None:
    """A CRS given as a link would be fetched from wherever that leads."""
    before = b""
    with path.open("rb") as file:
        while piece := file.read(_PIECE):
            window = _ESCAPED.sub(lambda found: bytes.fromhex(found[1].decode()), before + piece)
            for found in _LINKED_CRS.finditer(window):
                if _IN_CRS.search(window, max(0, found.start() - _NEAR), found.start()):
                    raise invalid('the GeoJSON has its "crs" as a link to elsewhere: name it, or leave it out')
            # What stands on both sides of a cut is looked at with the next piece.
            before = window[-2 * _NEAR :]


def invalid(message: str) -> PermanentError:
    """Bad input is no failure of ours, and no retry mends it."""
    return PermanentError(message, kind="invalid_input")
