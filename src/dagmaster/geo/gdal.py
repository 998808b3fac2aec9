"""How handlers use GDAL: which files and drivers it may open, and how much of the machine it may use.

GDAL never receives a user's text: it gets a local path, or a `/vsi…` path that the storage built. A file that
is not a raster, or claims to be larger than is plausible, is `invalid_input` with an explanation in the
user's terms.
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
from typing import TYPE_CHECKING, Any, Final, Self

import rasterio
from rasterio._err import CPLE_BaseError
from rasterio._path import _UnparsedPath as UnparsedPath
from rasterio.crs import CRS
from rasterio.errors import CRSError, NotGeoreferencedWarning, RasterioError
from rasterio.io import DatasetReader

from dagmaster.errors import BlobsUnavailable, PermanentError, invalid_input
from dagmaster.geo.formats.raster_files import (
    IN_PLACE_DRIVERS,
    describe_content,
    readable_drivers,
    reject_references,
)
from dagmaster.ports.storage import IN_PLACE
from dagmaster.text_format import format_count, library_words

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from dagmaster.ports.handler_services import Share

GIGABYTE: Final = 1_000_000_000
MAX_EXPANSION: Final = 5_000
"""How many times larger than its file a raster above one gigabyte may be."""
MAX_BLOCK_BYTES: Final = 512 * 1024 * 1024
"""The limit of one block, all bands: GDAL decodes a block as a whole, whatever its cache size."""

NO_NETWORK: Final = {
    "CPL_VSIL_CURL_ALLOWED_EXTENSIONS": ".none",
    "GDAL_HTTP_PROXY": "http://127.0.0.1:9",
    "GDAL_HTTPS_PROXY": "http://127.0.0.1:9",
}
"""The options with which no file is read over the network, whatever names it: a request would go to a closed
port."""
SIDECAR_OPTIONS: Final = {"GDAL_DISABLE_READDIR_ON_OPEN": "NO", "GDAL_PAM_ENABLED": "YES"}
"""The options of `gdal_env` with which GDAL reads the files next to a raster: only in a folder that dagmaster
made."""

GDAL_ERRORS: Final = (RasterioError, CPLE_BaseError, UnicodeDecodeError, SystemError)
"""What rasterio raises: some GDAL errors pass through unwrapped, and a damaged file may contain text that is
none.

A `SystemError` stands for a failure for which GDAL gave no reason."""

# GDAL also logs the errors it raises; ours replace them.
logging.getLogger("rasterio").setLevel(logging.WARNING)

_UNKNOWN_FORMAT: Final = "not recognized as being in a supported file format"
_HTTP_STATUS: Final = re.compile(r"HTTP (?:response|error) code ?: ?(\d{3})", re.IGNORECASE)
_MIN_FREE_BYTES: Final = 64 * 1024 * 1024
_CHUNK_BYTES: Final = 8 * 1024 * 1024
_CRS_CODE: Final = re.compile(r"[A-Za-z_0-9]{2,20}:[A-Za-z0-9_.]{1,40}(\+[0-9]{1,6})?")
_WKT: Final = re.compile(r"\s*[A-Za-z_]+\s*\[")


@contextlib.contextmanager
def gdal_env(share: Share, **options: Any) -> Iterator[None]:
    """Configure GDAL with the resources of this task.

    It uses the network only with the options of a remote path.

    The cache size is in bytes: GDAL reads 128 as 128 bytes.
    """
    # The data of another PROJ, such as a system package's, gives wrong coordinates or none.
    for name in ("PROJ_DATA", "PROJ_LIB"):
        os.environ.pop(name, None)
    defaults = {
        "GDAL_CACHEMAX": share.cache_mb * 1024 * 1024,
        "GDAL_NUM_THREADS": share.threads,
        # Do not list the folder of a file, nor read the files next to it.
        "GDAL_DISABLE_READDIR_ON_OPEN": "EMPTY_DIR",
        "GDAL_PAM_ENABLED": "NO",
        "GTIFF_IGNORE_READ_ERRORS": "NO",
        "GDAL_TIFF_INTERNAL_MASK": "YES",
        "CPL_VSIL_USE_TEMP_FILE_FOR_RANDOM_WRITE": "YES",
        **({} if IN_PLACE in options else NO_NETWORK),
    }
    with rasterio.Env(**{**defaults, **options}):
        yield


@contextlib.contextmanager
def open_raster(
    path: Path | str, share: Share, *, whole: bool = True, size: int | None = None
) -> Iterator[DatasetReader]:
    """Open a raster. `whole`: all its pixels will be read, so their number is limited.

    `size` is the file size in bytes of a remote raster.
    """
    with open_container(path) as raster:
        _require_bands(raster)
        _check_size(raster, path, share, whole=whole, size=size)
        yield raster


@contextlib.contextmanager
def open_container(path: Path | str) -> Iterator[DatasetReader]:
    """Open a raster, or a file that contains several and has no pixels itself."""
    try:
        with ignore_missing_georeference():
            raster = _open(path)
    except GDAL_ERRORS as error:
        raise _open_error(path, error) from None
    with raster:
        yield raster


def _require_bands(raster: DatasetReader) -> None:
    names = [name for name in raster.tags(ns="SUBDATASETS") if name.endswith("_NAME")]
    if raster.count == 0 and names:
        raise invalid_input(
            f"the file contains {format_count(len(names), 'raster')}: name one by `subdataset`."
            " raster.validate lists them"
        )
    if raster.count == 0:
        raise invalid_input("the raster has no bands, so it contains no pixels: name another file")


@contextlib.contextmanager
def explain_io_errors(*sources: Path | str, target: Path | None = None) -> Iterator[None]:
    """Wrap work that reads rasters and writes `target`. On failure, read each source alone to find the cause.

    A source that cannot be read is `invalid_input`; any other cause, such as a full disk, may be gone at the
    next try.
    """
    try:
        with ignore_missing_georeference():
            yield
    except (*GDAL_ERRORS, OSError) as error:
        for source in sources:
            check_readable(source)
        if target is not None and _is_disk_full(target, sources, error):
            raise BlobsUnavailable(
                "the result cannot be written: no space left on the disk of the scratch directory"
                f" ({_free_bytes(target):,} bytes free). Free space there, or set DAGMASTER_SCRATCH_DIR to"
                " another disk"
            ) from error
        if any(_is_remote(source) for source in sources):
            raise BlobsUnavailable(
                "the result cannot be written, or the storage stopped delivering the source"
            ) from None
        raise BlobsUnavailable(
            "the result cannot be written: check the disk of the scratch"
            f" directory{library_words('GDAL', error)}"
        ) from error


def check_readable(path: Path | str) -> None:
    """Read every block once. A damaged or truncated raster is `invalid_input`."""
    try:
        with (
            ignore_missing_georeference(),
            _open(path) as raster,
        ):
            for band in raster.indexes:
                for (row, column), window in raster.block_windows(band):
                    try:
                        raster.read(band, window=window)
                    except GDAL_ERRORS as error:
                        if _is_remote(path):
                            raise BlobsUnavailable(
                                f"{path} cannot be read in place: the storage does not deliver all of it"
                                f" ({_http_answer(error)}), or the raster is damaged or truncated"
                            ) from None
                        _require_readable_bytes(path)
                        raise invalid_input(
                            f"the raster is damaged or truncated: the block at row {row:,}, column"
                            f" {column:,} of band {band} cannot be read. Copy the complete file again"
                        ) from error
    except GDAL_ERRORS as error:
        raise _open_error(path, error) from None


def reject_overview_reference(raster: DatasetReader) -> None:
    """Reject a raster that names another file for its overviews: GDAL would open it, whatever it is."""
    if raster.tags(ns="OVERVIEWS"):
        raise invalid_input(
            "the raster names another file that holds its overviews (OVERVIEW_FILE in its metadata), which"
            " is not opened. Remove that, as with gdal_translate -nomd"
        )


def parse_crs(text: str) -> CRS:
    """Parse a user's CRS: a code or WKT. Never a file or a URL, which GDAL would open."""
    if not (_CRS_CODE.fullmatch(text.strip()) or _WKT.match(text)):
        raise invalid_input(f"{text[:100]!r} is not a CRS: expected a code such as EPSG:4326, or WKT")
    try:
        return CRS.from_string(text.strip())
    except CRSError as error:
        raise invalid_input(f"unknown CRS {text[:100]!r}: expected a code such as EPSG:4326") from error


def dtype_bytes(dtype: str) -> int:
    import numpy as np

    return 4 if dtype == "complex_int16" else int(np.dtype(dtype).itemsize)


@contextlib.contextmanager
def ignore_missing_georeference() -> Iterator[None]:
    """Suppress rasterio's warning about rasters without georeference: handlers reject those themselves."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", NotGeoreferencedWarning)
        yield


class SubdatasetPath(str):
    """GDAL's name of a raster in a file that contains several. `container` is the path of that file."""

    __slots__ = ("container",)
    container: str

    def __new__(cls, name: str, container: Path | str) -> Self:
        """Create the name from GDAL's own text."""
        path = super().__new__(cls, name)
        path.container = str(container)
        return path


def _open(path: Path | str) -> DatasetReader:
    container = container_of(path)
    is_remote = _is_remote(path)
    if not is_remote:
        with _explain_unreadable(container):
            reject_references(Path(container))
    # Not `rasterio.open`: that accepts only one driver, and parses URLs and schemes in a path.
    raster = DatasetReader(
        UnparsedPath(str(path)), driver=readable_drivers(container, in_place=is_remote), sharing=False
    )
    try:
        reject_overview_reference(raster)
        if not is_remote:
            _reject_foreign_files(raster, container)
    except PermanentError:
        raster.close()
        raise
    return raster


def container_of(path: Path | str) -> str:
    """Return the file of a path; of a subdataset the file that contains it."""
    return path.container if isinstance(path, SubdatasetPath) else str(path)


def _reject_foreign_files(raster: DatasetReader, path: str) -> None:
    """Reject a raster with files outside its folder: an .img file names the one with its pixels."""
    folder = os.path.normpath(Path(path).parent)
    foreign = [
        Path(file) for file in raster.files if not os.path.normpath(file).startswith(f"{folder}{os.sep}")
    ]
    if foreign:
        raise invalid_input(
            f"the raster refers to a file outside its folder, {foreign[0].name!r}, which is not opened:"
            " write all of it into one file, as with gdal_translate"
        )


def _check_size(
    raster: DatasetReader, path: Path | str, share: Share, *, whole: bool, size: int | None
) -> None:
    stated_bytes = sum(raster.width * raster.height * dtype_bytes(dtype) for dtype in raster.dtypes)
    file_bytes = size if size is not None or _is_remote(path) else _file_bytes(path)
    on_disk = stated_bytes if file_bytes is None else file_bytes
    if stated_bytes > GIGABYTE and stated_bytes > MAX_EXPANSION * max(on_disk, 1):
        raise invalid_input(
            f"a file of {on_disk:,} bytes claims {raster.width:,} x {raster.height:,} pixels,"
            f" {stated_bytes:,} bytes: measurements do not compress that well. Expected at most"
            f" {MAX_EXPANSION:,} times the size of the file"
        )
    bands_per_block = raster.count if str(getattr(raster.interleaving, "value", "")).lower() == "pixel" else 1
    block_bytes = max(
        (
            rows * columns * dtype_bytes(dtype)
            for (rows, columns), dtype in zip(raster.block_shapes, raster.dtypes, strict=True)
        ),
        default=0,
    )
    if block_bytes * bands_per_block > MAX_BLOCK_BYTES:
        raise invalid_input(
            f"one block of the raster has {block_bytes * bands_per_block:,} bytes: at most"
            f" {MAX_BLOCK_BYTES:,} can be"
            " decoded. Write it in tiles first, as with gdal_translate -co TILED=YES"
        )
    pixels = raster.width * raster.height * raster.count
    if whole and pixels > share.max_pixels:
        raise invalid_input(
            f"the raster has {raster.width:,} x {raster.height:,} pixels in {raster.count} bands, {pixels:,}"
            " in all: at"
            f" most {share.max_pixels:,} are processed at once (DAGMASTER_RASTER_MAX_PIXELS); tile it"
        )


def _is_remote(path: Path | str) -> bool:
    """Return whether GDAL reads the path over a network: a failure then may not be the raster's fault."""
    return str(path).startswith("/vsi")


def _is_disk_full(target: Path, sources: Sequence[Path | str], error: BaseException) -> bool:
    """Return whether a write probably failed for lack of disk space.

    GDAL reports no cause and deletes what it had written, so compare the free space with the size of the
    sources.
    """
    if isinstance(error, OSError) and error.errno in (errno.ENOSPC, errno.EDQUOT):
        return True
    needed = 2 * sum(_file_bytes(source) for source in sources if not _is_remote(source))
    return _free_bytes(target) < max(_MIN_FREE_BYTES, needed)


def _free_bytes(target: Path) -> int:
    return shutil.disk_usage(target.parent).free


def _files(path: Path | str) -> list[Path]:
    root = Path(container_of(path))
    return [file for file in root.rglob("*") if file.is_file()] if root.is_dir() else [root]


def _file_bytes(path: Path | str) -> int:
    with _explain_unreadable(path):
        return sum(file.stat().st_size for file in _files(path))


def _require_readable_bytes(path: Path | str) -> None:
    """Read a file to its end: if the disk or share fails, the raster is not to blame."""
    with _explain_unreadable(path):
        for part in _files(path):
            with part.open("rb") as file:
                while file.read(_CHUNK_BYTES):
                    pass


@contextlib.contextmanager
def _explain_unreadable(path: Path | str) -> Iterator[None]:
    try:
        yield
    except OSError as error:
        raise BlobsUnavailable(f"{container_of(path)} cannot be read: {error.strerror or error}") from error


def _http_answer(error: BaseException) -> str:
    """Return the status a storage answered with.

    GDAL's message may contain a signed URL, so it is not shown.
    """
    match = _HTTP_STATUS.search(str(error))
    return f"HTTP status {match[1]}" if match else "no response"


def _open_error(path: Path | str, error: BaseException) -> Exception:
    if _is_remote(path) and _UNKNOWN_FORMAT not in str(error):
        return BlobsUnavailable(f"{path} cannot be read in place: {_http_answer(error)}")
    if _is_remote(path):
        return invalid_input(
            "the file is not a raster that is read in an object store: expected"
            f" {', '.join(IN_PLACE_DRIVERS)}. Others"
            " are fetched if their names have the suffix of their format"
        )
    with _explain_unreadable(path):
        description = describe_content(Path(container_of(path)))
    words = "" if _UNKNOWN_FORMAT in str(error) else library_words("GDAL", error)
    return invalid_input(f"{description}{words}")
