"""Fetch a file of features under a name of our own: with its sidecar files, or from a zip archive.

GDAL sees only a path that we built and a file whose first bytes we checked: never a user's text, nor a file that
references others.
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

from dagmaster.errors import invalid_input
from dagmaster.handlers.source_files import local_file, name_in_errors

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
REQUIRED_SIDECARS: Final = (".shx", ".dbf")
SIDECARS: Final = (*REQUIRED_SIDECARS, ".prj", ".cpg")
MAX_MEMBERS: Final = 1_000
MAX_EXPANSION: Final = 200
"""How many times larger than its zip archive a file above 10 MB may be. Text compresses to about a twentieth."""
SMALL_BYTES: Final = 10_000_000

_MAGIC: Final = {
    "GPKG": b"SQLite format 3\0",
    "FlatGeobuf": b"fgb",
    "ESRI Shapefile": b"\0\0\x27\x0a",
    "GeoParquet": b"PAR1",
}
_SHP_HEADER: Final = 100
_DBF_HEADER: Final = 32
_CHUNK_BYTES: Final = 4 * 1024 * 1024
_CONTEXT_BYTES: Final = 2_000
_IN_CRS: Final = re.compile(rb'"crs"\s*:\s*\{[^{}]*\Z')
_LINKED_CRS: Final = re.compile(rb'"type"\s*:\s*"(link|url)"', re.IGNORECASE)
_ESCAPED: Final = re.compile(rb"\\u00([46][1-9A-Fa-f]|[57][0-9Aa])")
"""A plain letter in JSON's escaped form."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Fetched:
    """A local file of features. `sha256` covers all its parts; `modified` is in seconds since 1970."""

    uri: BlobUri
    path: Path
    format: str
    size: int
    sha256: str
    modified: float | None


def fetch(ctx: HandlerContext, uri: BlobUri, member: str | None = None) -> Fetched:
    """Fetch a file and its sidecars to the scratch folder; as links if it is on this machine."""
    if uri.suffix != ".zip" and uri.suffix not in FORMATS:
        raise invalid_input(
            f"{uri} has no supported format: expected {', '.join(FORMATS)}, or one of them in a .zip archive"
        )
    # A folder per file, since all get the same name.
    folder = Path(tempfile.mkdtemp(prefix="source-", dir=ctx.scratch))
    main = local_file(ctx, uri)
    info = ctx.blobs.find(uri)
    modified = None if info is None else info.modified
    size, sha256 = main.size, main.sha256
    if uri.suffix == ".zip":
        max_bytes = min(ctx.share.max_file_mb * 1_000_000, max(SMALL_BYTES, main.size * MAX_EXPANSION))
        with name_in_errors(uri):
            path = extract_dataset(main.path, folder, max_bytes, member)
    else:
        path = folder / f"source{uri.suffix}"
        path.symlink_to(main.path)
        if uri.suffix == ".shp":
            checksums = [main.sha256]
            for suffix, (sidecar_sha256, sidecar_size) in _fetch_sidecars(ctx, uri, folder).items():
                checksums.append(f"{suffix}:{sidecar_sha256}")
                size += sidecar_size
            sha256 = hashlib.sha256("\n".join(checksums).encode()).hexdigest()
    fetched = Fetched(uri=uri, path=path, format=FORMATS[path.suffix], size=size, sha256=sha256, modified=modified)
    with name_in_errors(uri):
        check_content(fetched.path, fetched.format)
    return fetched


def _fetch_sidecars(ctx: HandlerContext, uri: BlobUri, folder: Path) -> dict[str, tuple[str, int]]:
    """Fetch the other files of a shapefile."""
    stem = str(uri)[: -len(".shp")]
    is_upper = str(uri).endswith(".SHP")
    sidecars = {}
    for suffix in SIDECARS:
        for variant in (suffix.upper(), suffix) if is_upper else (suffix, suffix.upper()):
            # Resolve it through the storage: a symbolic link beside the file may lead elsewhere.
            sidecar = ctx.blobs.resolve(f"{stem}{variant}")
            if ctx.blobs.find(sidecar) is not None:
                file = local_file(ctx, sidecar)
                (folder / f"source{suffix}").symlink_to(file.path)
                sidecars[suffix] = file.sha256, file.size
                break
    missing = [suffix for suffix in REQUIRED_SIDECARS if suffix not in sidecars]
    if missing:
        raise invalid_input(
            f"{uri} is a shapefile without its {' and '.join(missing)}: a shapefile consists of .shp, .shx, .dbf and"
            " .prj; put them beside it, or zip them"
        )
    return sidecars


# ── Zips ────────────────────────────────────────────────────────────────────────────────────────────────────────────


def extract_dataset(path: Path, folder: Path, max_bytes: int, member: str | None = None) -> Path:
    """Extract the one file of features in a zip archive, with its sidecars. All entries are checked first."""
    try:
        with zipfile.ZipFile(path) as archive:
            members = _check_members(archive, max_bytes)
            main = _choose_member(members, member)
            suffix = PurePosixPath(main.filename).suffix.lower()
            target = folder / f"source{suffix}"
            _extract(archive, main, target)
            if suffix == ".shp":
                _extract_sidecars(archive, members, main, folder)
            return target
    except (zipfile.BadZipFile, zipfile.LargeZipFile, NotImplementedError, RuntimeError, EOFError) as error:
        raise invalid_input(f"the file is not a readable zip archive: {error}") from error


def _check_members(archive: zipfile.ZipFile, max_bytes: int) -> list[zipfile.ZipInfo]:
    members = [member for member in archive.infolist() if not member.is_dir()]
    if len(members) > MAX_MEMBERS:
        raise invalid_input(f"the zip archive has {len(members):,} files: at most {MAX_MEMBERS:,} are allowed")
    for member in members:
        name = member.filename[:100]
        parts = PurePosixPath(member.filename).parts
        if member.filename.startswith("/") or ".." in parts or "\\" in member.filename or ":" in parts[0]:
            raise invalid_input(f"the zip archive contains {name!r}, a path that leads out of it")
        if stat.S_ISLNK(member.external_attr >> 16):
            raise invalid_input(f"the zip archive contains a link, {name!r}: include the file itself")
        if member.flag_bits & 0x1:
            raise invalid_input(f"{name!r} in the zip archive is encrypted")
    size = sum(member.file_size for member in members)
    if size > max_bytes:
        raise invalid_input(
            f"the zip archive expands to {size / 1e6:,.0f} MB: at most {max_bytes / 1e6:,.0f} MB are allowed for it"
        )
    return members


def _choose_member(members: list[zipfile.ZipInfo], name: str | None) -> zipfile.ZipInfo:
    datasets = [
        member
        for member in members
        if PurePosixPath(member.filename).suffix.lower() in FORMATS
        and not member.filename.startswith("__MACOSX/")
        and not PurePosixPath(member.filename).name.startswith(".")
    ]
    if name is not None:
        datasets = [member for member in datasets if member.filename == name]
    if len(datasets) == 1:
        return datasets[0]
    if not datasets:
        listed = ", ".join(member.filename for member in members[:10]) or "nothing"
        missing = f"no file {name!r}" if name is not None else "no file of features"
        raise invalid_input(f"the zip archive has {missing}, but {listed}")
    listed = ", ".join(member.filename for member in datasets[:10])
    raise invalid_input(f"the zip archive has {len(datasets)} files of features: name one by `member`: {listed}")


def _extract_sidecars(
    archive: zipfile.ZipFile, members: list[zipfile.ZipInfo], main: zipfile.ZipInfo, folder: Path
) -> None:
    stem = main.filename[: -len(".shp")]
    by_name = {member.filename.lower(): member for member in members}
    missing = [suffix for suffix in REQUIRED_SIDECARS if f"{stem}{suffix}".lower() not in by_name]
    if missing:
        raise invalid_input(f"{main.filename!r} in the zip archive is a shapefile without its {' and '.join(missing)}")
    for suffix in SIDECARS:
        member = by_name.get(f"{stem}{suffix}".lower())
        if member is not None:
            _extract(archive, member, folder / f"source{suffix}")


def _extract(archive: zipfile.ZipFile, member: zipfile.ZipInfo, target: Path) -> None:
    # Under a name of our own. zipfile reads at most the size that the member states, and verifies its checksum.
    with archive.open(member) as source, target.open("wb") as file:
        shutil.copyfileobj(source, file, 1024 * 1024)


# ── Checks of the content ───────────────────────────────────────────────────────────────────────────────────────────


def _describe_start(head: bytes) -> str:
    """Return the first letters of a file, or its first bytes if they are not text."""
    text = head[:16].decode(errors="replace")
    return repr(text) if text.isprintable() and "\ufffd" not in text else f"the bytes {head[:8].hex(' ')}"


def check_content(path: Path, format_name: str) -> None:
    """Reject a file that is not what its name says. A VRT under another name would lead GDAL to other files."""
    with path.open("rb") as file:
        head = file.read(4096)
    magic = _MAGIC.get(format_name)
    if magic is not None and not head.startswith(magic):
        raise invalid_input(f"the file is not {format_name}: it begins with {_describe_start(head)}")
    if format_name == "ESRI Shapefile":
        _check_shapefile(path)
    if format_name == "GeoJSON":
        first_letter = head.lstrip(b"\xef\xbb\xbf \t\r\n")[:1]
        if first_letter != b"{":
            raise invalid_input(
                f"the file is not GeoJSON: expected an object {{…}}, but it begins with {_describe_start(head)}"
            )
        _reject_linked_crs(path)


def _check_shapefile(path: Path) -> None:
    """Reject a shapefile that is truncated or whose parts do not match: GDAL would read empty features."""
    rows = {}
    for suffix in (".shp", ".shx"):
        part = path.with_suffix(suffix)
        with part.open("rb") as file:
            head = file.read(_SHP_HEADER)
        if len(head) < _SHP_HEADER or part.stat().st_size < 2 * struct.unpack(">i", head[24:28])[0]:
            raise invalid_input(f"the {suffix} of the shapefile is truncated: it is shorter than its header states")
        rows[suffix] = (2 * struct.unpack(">i", head[24:28])[0] - _SHP_HEADER) // 8
    dbf = path.with_suffix(".dbf")
    with dbf.open("rb") as file:
        head = file.read(_DBF_HEADER)
    if len(head) < _DBF_HEADER:
        raise invalid_input("the .dbf of the shapefile is truncated: it has no header")
    count, start, width = struct.unpack("<IHH", head[4:12])
    if dbf.stat().st_size < start + count * width:
        raise invalid_input(f"the .dbf of the shapefile is truncated: it is shorter than its {count:,} rows")
    if count != rows[".shx"]:
        raise invalid_input(f"the shapefile has {rows['.shx']:,} geometries in its .shx and {count:,} rows in its .dbf")


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
