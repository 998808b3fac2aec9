"""The door to GDAL: which files it opens, with which drivers, and how much of the machine it takes.

GDAL never sees a user's text: it gets a local path, or one that the storage made. A file that is no raster, or that
pretends to be more than it is, is `invalid_input` here, in words of the trade.
"""

from __future__ import annotations

import contextlib
import errno
import logging
import os
import re
import shutil
import warnings
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

import rasterio
from rasterio._err import CPLE_BaseError
from rasterio._path import _UnparsedPath as UnparsedPath
from rasterio.crs import CRS
from rasterio.errors import CRSError, NotGeoreferencedWarning, RasterioError
from rasterio.io import DatasetReader

from dagmaster.errors import BlobsUnavailable, PermanentError

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from dagmaster.ports.handler_services import Share

DRIVERS: Final = ("GTiff", "JP2OpenJPEG", "PNG", "JPEG", "SRTMHGT")
"""What may be read. No VRT: it points at other files. No AAIGrid: it reads a .prj beside it, whatever it is told. No
driver that asks a network or a database."""
GIGABYTE: Final = 1_000_000_000
MAX_EXPANSION: Final = 5_000
"""How many times larger than its file a raster may be, once it is larger than a gigabyte."""
MAX_BLOCK: Final = 512 * 1024 * 1024
"""Bytes of one block, all its bands: GDAL decodes a block as a whole, whatever its cache is."""

GDAL_ERRORS: Final = (RasterioError, CPLE_BaseError)
"""What rasterio raises: some of GDAL's own errors come out as they are, and have another parent."""

# What GDAL could not do it also tells as an error, and that is put in our words.
logging.getLogger("rasterio").setLevel(logging.WARNING)

_NO_RASTER: Final = "not recognized as being in a supported file format"
_ANSWERED: Final = re.compile(r"HTTP (?:response|error) code ?: ?(\d{3})", re.IGNORECASE)
_HARDLY_ROOM: Final = 64 * 1024 * 1024
_PIECE: Final = 8 * 1024 * 1024
_CODE: Final = re.compile(r"[A-Za-z_0-9]{2,20}:[A-Za-z0-9_.]{1,40}")
_WKT: Final = re.compile(r"\s*[A-Za-z_]+\s*\[")


@contextlib.contextmanager
def gdal(share: Share, **options: Any) -> Iterator[None]:
    """GDAL with this task's share of the machine. A cache size is in bytes: GDAL reads 128 as 128 bytes."""
    # Another PROJ's data, of a system's package, gives wrong or no coordinates.
    for name in ("PROJ_DATA", "PROJ_LIB"):
        os.environ.pop(name, None)
    with rasterio.Env(
        GDAL_CACHEMAX=share.cache_mb * 1024 * 1024,
        GDAL_NUM_THREADS=share.threads,
        # Reading a file is no reason to list its folder, nor to read what lies beside it.
        GDAL_DISABLE_READDIR_ON_OPEN="EMPTY_DIR",
        GDAL_PAM_ENABLED="NO",
        GTIFF_IGNORE_READ_ERRORS="NO",
        GDAL_TIFF_INTERNAL_MASK="YES",
        CPL_VSIL_USE_TEMP_FILE_FOR_RANDOM_WRITE="YES",
        **options,
    ):
        yield


@contextlib.contextmanager
def opened(path: Path | str, share: Share, *, whole: bool = True, size: int | None = None) -> Iterator[DatasetReader]:
    """Open a raster. `whole`: all of its pixels will be read, so their number is limited.

    `size` is of its file, in bytes, where that lies elsewhere.
    """
    try:
        with quiet():
            # Not `rasterio.open`: that takes one driver, and reads URLs and schemes out of a path.
            raster = DatasetReader(UnparsedPath(str(path)), driver=list(DRIVERS), sharing=False)
    except GDAL_ERRORS as error:
        raise _not_opened(path, error) from None
    with raster:
        _check_size(raster, path, share, whole=whole, size=size)
        yield raster


@contextlib.contextmanager
def working(*sources: Path | str, to: Path | None = None) -> Iterator[None]:
    """Read these rasters and write others. When that fails, who is to blame is found out by reading them alone.

    A source that cannot be read is `invalid_input`; anything else, as a full disk, may be better next time. `to` is
    what is written.
    """
    try:
        with quiet():
            yield
    except (*GDAL_ERRORS, OSError) as error:
        for source in sources:
            check_readable(source)
        if to is not None and _is_full(to, sources, error):
            raise BlobsUnavailable(
                "the result cannot be written: there is no room left on the disk of the scratch directory"
                f" ({_free(to):,} bytes are free). Make room there, or set DAGMASTER_SCRATCH_DIR to another disk"
            ) from error
        if any(_is_remote(source) for source in sources):
            raise BlobsUnavailable("the result cannot be written, or the source cannot be read all the time") from None
        raise BlobsUnavailable(f"the result cannot be written: {str(error)[:500]}") from error


def check_readable(path: Path | str) -> None:
    """Read every block once, and forget it. What is damaged or cut off is `invalid_input`."""
    try:
        with quiet(), DatasetReader(UnparsedPath(str(path)), driver=list(DRIVERS), sharing=False) as raster:
            for band in raster.indexes:
                for (row, column), window in raster.block_windows(band):
                    try:
                        raster.read(band, window=window)
                    except GDAL_ERRORS as error:
                        if _is_remote(path):
                            raise BlobsUnavailable(
                                f"{path} cannot be read where it lies: the storage does not give all of it"
                                f" ({_answer(error)}), or the raster is damaged or cut off"
                            ) from None
                        _require_bytes(path)
                        raise invalid(
                            f"the raster is damaged or cut off: the block in row {row:,}, column {column:,} of band"
                            f" {band} cannot be read. Expected a whole file: copy it again"
                        ) from error
    except GDAL_ERRORS as error:
        raise _not_opened(path, error) from None


def invalid(message: str, **details: Any) -> PermanentError:
    """Bad input is no failure of ours, and no retry mends it."""
    return PermanentError(message, kind="invalid_input", **details)


def crs_of(text: str) -> CRS:
    """A coordinate system that a user wrote: a code or WKT. Never a file or an address, which GDAL would open."""
    if not (_CODE.fullmatch(text.strip()) or _WKT.match(text)):
        raise invalid(f"{text[:100]!r} is not a coordinate system: expected a code as EPSG:4326, or WKT")
    try:
        return CRS.from_string(text.strip())
    except CRSError as error:
        raise invalid(f"nobody knows the coordinate system {text[:100]!r}: expected a code as EPSG:4326") from error


def bytes_of(kind: str) -> int:
    """Bytes of one pixel of a data type, in GDAL's names."""
    import numpy as np

    return 4 if kind == "complex_int16" else int(np.dtype(kind).itemsize)


@contextlib.contextmanager
def quiet() -> Iterator[None]:
    """What has no place on Earth is refused in our words."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", NotGeoreferencedWarning)
        yield


def _check_size(raster: DatasetReader, path: Path | str, share: Share, *, whole: bool, size: int | None) -> None:
    says = sum(raster.width * raster.height * bytes_of(kind) for kind in raster.dtypes)
    known = size if size is not None or _is_remote(path) else _size(path)
    on_disk = says if known is None else known
    if says > GIGABYTE and says > MAX_EXPANSION * max(on_disk, 1):
        raise invalid(
            f"a file of {on_disk:,} bytes says that it holds {raster.width:,} x {raster.height:,} pixels, {says:,}"
            f" bytes: that is no raster of measurements. Expected at most {MAX_EXPANSION:,} times the size of the file"
        )
    at_once = raster.count if str(getattr(raster.interleaving, "value", "")).lower() == "pixel" else 1
    block = max(
        (
            rows * columns * bytes_of(kind)
            for (rows, columns), kind in zip(raster.block_shapes, raster.dtypes, strict=True)
        ),
        default=0,
    )
    if block * at_once > MAX_BLOCK:
        raise invalid(
            f"one block of the raster has {block * at_once:,} bytes: at most {MAX_BLOCK:,} are decoded at once."
            " Write it in tiles first, as with gdal_translate -co TILED=YES"
        )
    pixels = raster.width * raster.height * raster.count
    if whole and pixels > share.max_pixels:
        raise invalid(
            f"{raster.width:,} x {raster.height:,} pixels in {raster.count} bands are {pixels:,}: at most"
            f" {share.max_pixels:,} are worked through at once (DAGMASTER_RASTER_MAX_PIXELS); tile it"
        )


def _is_remote(path: Path | str) -> bool:
    """Whether GDAL reads it over a network: then a failure tells nothing of the raster."""
    return str(path).startswith("/vsi")


def _is_full(to: Path, sources: Sequence[Path | str], error: BaseException) -> bool:
    """Whether a file could not be written for want of room.

    GDAL does not tell why, and takes away what it had written: that there is hardly room for the sources has to do.
    """
    if isinstance(error, OSError) and error.errno in (errno.ENOSPC, errno.EDQUOT):
        return True
    wanted = 2 * sum(_size(source) for source in sources if not _is_remote(source))
    return _free(to) < max(_HARDLY_ROOM, wanted)


def _free(to: Path) -> int:
    return shutil.disk_usage(to.parent).free


def _size(path: Path | str) -> int:
    try:
        return Path(path).stat().st_size
    except OSError as error:
        raise _gone(path, error) from error


def _require_bytes(path: Path | str) -> None:
    """Read a file to its end. What a disk or a share does not give tells nothing of the raster."""
    try:
        with Path(path).open("rb") as file:
            while file.read(_PIECE):
                pass
    except OSError as error:
        raise _gone(path, error) from error


def _gone(path: Path | str, error: OSError) -> BlobsUnavailable:
    return BlobsUnavailable(f"{path} cannot be read: {error.strerror or error}")


def _answer(error: BaseException) -> str:
    """What a storage answered. GDAL's own words may hold what was signed, and are not told."""
    found = _ANSWERED.search(str(error))
    return f"it answers {found[1]}" if found else "it does not answer"


def _not_opened(path: Path | str, error: BaseException) -> Exception:
    if _is_remote(path) and _NO_RASTER not in str(error):
        return BlobsUnavailable(f"{path} cannot be read where it lies: {_answer(error)}")
    return invalid(_what_it_is(path))


def _what_it_is(path: Path | str) -> str:
    """What lies there instead of a raster, from its first bytes. They themselves are not told: they are somebody's."""
    wanted = f"expected one of {', '.join(DRIVERS)}"
    if _is_remote(path):
        return f"the file is not a raster that can be read: {wanted}"
    try:
        with Path(path).open("rb") as file:
            head = file.read(512)
    except OSError as error:
        raise _gone(path, error) from error
    if not head:
        return f"the file is empty (0 bytes): {wanted}"
    if head.lstrip().startswith((b"<VRTDataset", b"<?xml")) and b"VRTDataset" in head:
        return "the file is a VRT, which points at other files: name the rasters themselves, or write it out as GeoTIFF"
    if head[:4] in (b"II*\x00", b"MM\x00*", b"II+\x00", b"MM\x00+"):
        return "the file is a TIFF whose directory cannot be read, so it is damaged or cut off: copy it again"
    if head[:2] == b"PK":
        return "the file is a zip archive: unpack it, and name the raster in it"
    if all(byte >= ord(" ") or byte in b"\t\r\n" for byte in head):
        return f"the file is a text file, and no raster: {wanted}"
    return f"the file is not a raster that can be read: {wanted}"
