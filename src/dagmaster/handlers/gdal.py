"""The door to GDAL: which files it opens, with which drivers, and how much of the machine it takes.

GDAL never sees a user's text: it gets a local path, or one that the storage made. A file that is no raster, or that
pretends to be more than it is, is `invalid_input` here, in words of the trade.
"""

from __future__ import annotations

import contextlib
import os
from typing import TYPE_CHECKING, Any, Final

import rasterio
from rasterio._path import _UnparsedPath as UnparsedPath
from rasterio.errors import NotGeoreferencedWarning, RasterioError, RasterioIOError
from rasterio.io import DatasetReader

from dagmaster.errors import PermanentError

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

    from dagmaster.ports.services import Share

DRIVERS: Final = ("GTiff", "JP2OpenJPEG", "PNG", "JPEG", "SRTMHGT", "AAIGrid")
"""What may be read. No VRT: it points at other files. No driver that asks a network or a database."""
GIGABYTE: Final = 1_000_000_000
MAX_EXPANSION: Final = 5_000
"""How many times larger than its file a raster may be, once it is larger than a gigabyte."""


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
        CPL_VSIL_USE_TEMP_FILE_FOR_RANDOM_WRITE="YES",
        **options,
    ):
        yield


@contextlib.contextmanager
def opened(path: Path | str, share: Share, *, whole: bool = True) -> Iterator[DatasetReader]:
    """Open a raster. `whole`: all of its pixels will be read, so their number is limited."""
    try:
        with _quiet():
            # Not `rasterio.open`: that takes one driver, and reads URLs and schemes out of a path.
            raster = DatasetReader(UnparsedPath(str(path)), driver=list(DRIVERS), sharing=False)
    except (RasterioIOError, RasterioError) as error:
        raise invalid(f"not a raster that can be read ({', '.join(DRIVERS)}): {error}") from error
    with raster:
        if whole:
            _check_size(raster, path, share)
        yield raster


def invalid(message: str, **details: Any) -> PermanentError:
    """Bad input is no failure of ours, and no retry mends it."""
    return PermanentError(message, kind="invalid_input", **details)


def _check_size(raster: DatasetReader, path: Path | str, share: Share) -> None:
    pixels = raster.width * raster.height * raster.count
    if pixels > share.max_pixels:
        raise invalid(
            f"{raster.width:,} x {raster.height:,} pixels in {raster.count} bands are {pixels:,}: at most"
            f" {share.max_pixels:,} are worked through at once (DAGMASTER_RASTER_MAX_PIXELS); tile it"
        )
    size = sum(raster.width * raster.height * _bytes(kind) for kind in raster.dtypes)
    on_disk = os.stat(path).st_size if os.path.exists(path) else size  # noqa: PTH110, PTH116 - may be a path of GDAL's
    if size > GIGABYTE and size > MAX_EXPANSION * max(on_disk, 1):
        raise invalid(f"a file of {on_disk:,} bytes says that it holds {size:,}: that is no raster of measurements")


def _bytes(kind: str) -> int:
    import numpy as np

    return 16 if kind == "complex_int16" else int(np.dtype(kind).itemsize)


@contextlib.contextmanager
def _quiet() -> Iterator[None]:
    import warnings

    with warnings.catch_warnings():
        # What has no place on Earth is refused in our words.
        warnings.simplefilter("ignore", NotGeoreferencedWarning)
        yield
