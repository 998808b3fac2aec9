"""Sidecars: the files next to a raster that GDAL reads with it, such as masks, metadata and georeferences.

They are listed by the storage, checked, and put with the raster into a separate folder. GDAL looks for
sidecars there, and sees these and nothing else: no other file of the user's folder, and none that a link
leads to.
"""

from __future__ import annotations

import re
import tempfile
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final
from xml.sax.saxutils import escape

from rasterio._path import _UnparsedPath as UnparsedPath
from rasterio.io import DatasetReader

from dagmaster.errors import PermanentError, invalid_input
from dagmaster.geo.formats.netcdf_content import is_netcdf4
from dagmaster.geo.formats.raster_drivers import RASTER_DRIVERS
from dagmaster.geo.formats.raster_files import names_of_parts
from dagmaster.geo.gdal import (
    GDAL_ERRORS,
    SIDECAR_OPTIONS,
    gdal_env,
    ignore_missing_georeference,
    reject_overview_reference,
)
from dagmaster.geo.raster.supplied_crs import supply_crs
from dagmaster.geo.result_uris import has_fingerprint
from dagmaster.geo.source_files import MAX_FILE_NAME_BYTES, check_file_size

if TYPE_CHECKING:
    from dagmaster.ports.blob_uris import BlobUri
    from dagmaster.ports.storage import BlobInfo
    from dagmaster.sdk.handler_context import HandlerContext

MAX_TEXT_BYTES: Final = 16_000_000
"""Of a sidecar that is text or XML: GDAL reads it as a whole."""
_AFTER_NAME: Final = (".aux.xml", ".msk", ".ovr", ".aux", ".msk.ovr")
"""After the whole name of a raster, as in a.tif.msk."""
_AFTER_STEM: Final = (
    *(".aux", ".rrd", ".prj", ".tab", ".wld", ".xml", ".txt"),
    *(".rpb", ".rpc", ".imd", ".pvl", ".eph", ".pass", "_rpc.txt", "_metadata.xml"),
)
"""In place of the suffix of a raster, as in a.prj and a_rpc.txt. World files are added by the suffix of the
raster."""
_LANDSAT_BAND: Final = re.compile(r"(.+?)_B", re.IGNORECASE)
_PLEIADES_TILE: Final = re.compile(r"IMG_(.+?)(?:_(?:P|RGB|NED))?_R\d+C\d+", re.IGNORECASE)
_TIFF_SUFFIXES: Final = (".msk", ".ovr")
BINARY_SUFFIXES: Final = (*_TIFF_SUFFIXES, ".aux", ".rrd", ".ige", ".gri")
_SPARSE: Final = "/vsisparse/"
_PAM: Final = re.compile(rb"<PAMDataset[^>]*(/>|>.*</PAMDataset\s*>)", re.DOTALL)


@dataclass(frozen=True, slots=True, kw_only=True)
class RasterPart:
    """A raster, or a file that belongs to it. GDAL reads it at `path`."""

    uri: BlobUri
    path: str
    size: int
    version: str
    """Its checksum, or the storage's own version if it was not read."""

    @property
    def name(self) -> str:
        return self.uri.name.rpartition("/")[2]


@dataclass(frozen=True, slots=True, kw_only=True)
class StagedRaster:
    """A raster in a folder with its sidecars. `ignored` says which sidecars are not used, and why."""

    path: str
    sidecars: Sequence[RasterPart] = ()
    ignored: Sequence[str] = ()
    options: Mapping[str, Any] = field(default_factory=dict, repr=False)
    """The options of `gdal_env` with which it is read."""


def find_sidecars(ctx: HandlerContext, uri: BlobUri) -> list[BlobInfo]:
    """Return the sidecars of a raster that are in storage. A too large one is `invalid_input`."""
    if _is_result(ctx, uri):
        return []
    name = uri.name.rpartition("/")[2]
    stem = name.rpartition(".")[0] or name
    expected = sidecar_names(name)
    # Not all that begins with the stem: a folder may contain a_0001.tif to a_9999.tif.
    prefixes = (f"{stem}.", f"{stem}_rpc", f"{stem}_RPC", f"{stem}_metadata")
    siblings = ctx.blobs.list_beside(uri, *prefixes)
    sidecars = [info for info in siblings if info.uri.name.rpartition("/")[2].lower() in expected]
    folder = uri.name.rpartition("/")[0]
    for sensor_name in _sensor_names(stem):
        info = ctx.blobs.find(replace(uri, name=f"{folder}/{sensor_name}".lstrip("/")))
        sidecars += [] if info is None else [info]
    for info in sidecars:
        check_file_size(ctx, info)
        check_text_size(info.uri, info.size)
    return sidecars


def _is_result(ctx: HandlerContext, uri: BlobUri) -> bool:
    """Return whether a raster is a result named by its content: what a viewer adds is no part of it.

    It also spares the mosaic of a thousand tiles four thousand listings.
    """
    zones = tuple(f"{ctx.blobs.in_zone(zone)}/" for zone in ("silver", "gold"))
    return has_fingerprint(str(uri)) and str(uri).startswith(zones)


def check_text_size(uri: BlobUri, size: int) -> None:
    """Reject a sidecar that GDAL would read as a whole, if it is too large for that."""
    if size > MAX_TEXT_BYTES and not is_binary(uri):
        raise invalid_input(
            f"{uri}, which belongs to the raster, has {size / 1e6:,.0f} MB: at most"
            f" {MAX_TEXT_BYTES / 1e6:g} MB are read. Make it smaller, or move it away"
        )


def sidecar_names(name: str) -> set[str]:
    """Return the names that sidecars of a raster may have, in lower case."""
    stem, _, suffix = name.rpartition(".")
    stem = stem or name
    return {
        *(f"{name}{end}".lower() for end in _AFTER_NAME),
        *(f"{stem}{end}".lower() for end in (*_AFTER_STEM, f".{suffix[:1]}{suffix[-1:]}w", f".{suffix}w")),
        *(sensor_name.lower() for sensor_name in _sensor_names(stem)),
        *names_of_parts(name),
    } - {name.lower()}


def _sensor_names(stem: str) -> Iterator[str]:
    """Yield the names of files next to an image of some satellites that do not begin with its name."""
    tile = _PLEIADES_TILE.fullmatch(stem)
    if tile is not None:
        whole = stem[len("IMG_") :]
        yield from (f"{kind}_{name}.XML" for kind in ("DIM", "RPC") for name in (whole, tile[1]))
    elif stem.upper().startswith("IMG-"):
        # ALOS. The polarisation or camera may be left out: IMG-01-ALAV… has RPC-ALAV….
        yield from (f"{kind}{stem[skipped:]}.txt" for kind in ("HDR", "RPC") for skipped in (3, 6))
        yield "summary.txt"
    band = _LANDSAT_BAND.match(stem)
    if band is not None:
        yield f"{band[1]}_MTL.txt"


def is_binary(uri: BlobUri) -> bool:
    """Return whether a sidecar holds pixels: it may be as large as the raster, and is read in parts."""
    return uri.name.lower().endswith(BINARY_SUFFIXES)


def stage_raster(
    ctx: HandlerContext,
    raster: RasterPart,
    sidecars: Sequence[RasterPart],
    options: Mapping[str, Any] | None = None,
) -> StagedRaster:
    """Put a raster and its sidecars into a separate folder.

    `options` are those with which GDAL reads the raster in an object store. The folder then holds
    descriptions of byte ranges instead of links.
    """
    folder = _Folder(ctx, raster.name, is_remote=options is not None)
    name = raster.name if options is not None else _name_for_gdal(raster)
    path = folder.add(name, raster.path, raster.size)
    used, ignored = [], []
    with gdal_env(ctx.share, **(options or {})):
        for sidecar in sidecars:
            reason = _reason_to_ignore(sidecar)
            if reason:
                ignored.append(f"{sidecar.name}: {reason}")
            else:
                after_name = sidecar.name.removeprefix(raster.name)
                folder.add(
                    sidecar.name if after_name == sidecar.name else f"{name}{after_name}",
                    sidecar.path,
                    sidecar.size,
                )
                used.append(sidecar)
    all_options = {**(options or {}), **SIDECAR_OPTIONS}
    with gdal_env(ctx.share, **all_options):
        ignored += supply_crs(path, ctx.share, used, partial(write_beside, ctx))
    return StagedRaster(path=path, sidecars=used, ignored=ignored, options=all_options)


def _name_for_gdal(raster: RasterPart) -> str:
    """Return the name by which GDAL chooses the driver that reads all of a raster."""
    is_named = raster.name.lower().endswith(RASTER_DRIVERS["netCDF"].suffixes)
    return f"{raster.name}.nc" if not is_named and is_netcdf4(Path(raster.path)) else raster.name


class _Folder:
    """A folder in which GDAL sees files that are elsewhere."""

    def __init__(self, ctx: HandlerContext, raster_name: str, *, is_remote: bool) -> None:
        self._root = Path(tempfile.mkdtemp(prefix="staged-", dir=ctx.scratch))
        self._stem = raster_name.rpartition(".")[0] or raster_name
        self._is_remote = is_remote

    def add(self, name: str, path: str, size: int) -> str:
        """Add a file; return the path at which GDAL reads it."""
        is_long = len(self._stem.encode()) > MAX_FILE_NAME_BYTES
        # A file system allows 255 bytes, a bucket more. The raster and its sidecars keep a common stem.
        entry = self._root / (f"long{name[len(self._stem) :]}" if is_long else name)
        entry.unlink(missing_ok=True)
        if not self._is_remote:
            entry.symlink_to(Path(path).absolute())
            return str(entry)
        entry.write_text(_describe_range(path, size), encoding="utf-8")
        return f"{_SPARSE}{entry}"


def _describe_range(path: str, size: int) -> str:
    """Return what `/vsisparse/` reads: a file that consists of ranges of others, here of all of one."""
    return (
        f"<VSISparseFile><Length>{size}</Length><SubfileRegion><Filename>{escape(path)}</Filename>"
        "<DestinationOffset>0</DestinationOffset><SourceOffset>0</SourceOffset>"
        f"<RegionLength>{size}</RegionLength></SubfileRegion></VSISparseFile>"
    )


def write_beside(ctx: HandlerContext, path: str, content: bytes) -> None:
    """Write a file into the folder of a staged raster, by the path at which GDAL reads it."""
    entry = Path(path.removeprefix(_SPARSE))
    entry.unlink(missing_ok=True)
    if not path.startswith(_SPARSE):
        entry.write_bytes(content)
        return
    file = Path(tempfile.mkdtemp(dir=ctx.scratch), entry.name)
    file.write_bytes(content)
    entry.write_text(_describe_range(str(file), len(content)), encoding="utf-8")


def _reason_to_ignore(sidecar: RasterPart) -> str:
    """Return why a sidecar is not used; empty if it is.

    GDAL would open a mask in any format that it knows.
    """
    name = sidecar.name.lower()
    if name.endswith(".aux.xml"):
        return (
            "" if _PAM.search(Path(sidecar.path).read_bytes()) else "it is not metadata of GDAL, or truncated"
        )
    if not name.endswith(_TIFF_SUFFIXES):
        return ""
    try:
        with (
            ignore_missing_georeference(),
            DatasetReader(UnparsedPath(sidecar.path), driver=["GTiff"], sharing=False) as raster,
        ):
            reject_overview_reference(raster)
    except (*GDAL_ERRORS, PermanentError):
        return "it is not a TIFF that can be read alone"
    return ""
