"""Check that a GeoTIFF is cloud-optimized, by the rules of GDAL's validate_cloud_optimized_geotiff.

rio-cogeo's check is stricter than GDAL's: it takes a level as wide as its blocks for untiled, and an overview
of one pixel's width for an invalid one. Portrait rasters and single rows are valid COGs here, as they are for
GDAL.
"""

from __future__ import annotations

import itertools
from typing import TYPE_CHECKING, Final

from rasterio._path import _UnparsedPath as UnparsedPath
from rasterio.io import DatasetReader

from dagmaster.geo.gdal import ignore_missing_georeference

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

_SMALL_PIXELS: Final = 512
"""An image whose sides are at most this long need not be tiled."""
_MAX_STRIP_PIXELS: Final = 1024
"""A block as wide as the image may be a tile up to this width; beyond it, the image is in strips."""
_TILE_MULTIPLE: Final = 16
"""Both sides of a TIFF tile are multiples of this; the height of a strip need not be one."""
_HEADER_BYTES: Final = (8, 16)
"""The length of the header of a classic TIFF, and of a BigTIFF."""
_ALIGNMENT_BYTES: Final = 2
"""A directory starts at an even byte."""


def check_layout(path: Path | str) -> list[str]:
    """Return why a GeoTIFF is not cloud-optimized; nothing if it is."""
    with ignore_missing_georeference(), _open(path) as image:
        overviews = [_open(path, level) for level in range(len(image.overviews(1)))]
        try:
            levels = [image, *overviews]
            return [
                *_check_header(image),
                *_check_tiles(levels),
                *_check_overview_sizes(levels),
                *_check_directory_order(image, len(overviews)),
                *_check_data_order(image, levels),
            ]
        finally:
            for overview in overviews:
                overview.close()


def _open(path: Path | str, level: int | None = None) -> DatasetReader:
    options = {} if level is None else {"OVERVIEW_LEVEL": level}
    return DatasetReader(UnparsedPath(str(path)), driver=["GTiff"], sharing=False, **options)


def _check_header(image: DatasetReader) -> Iterator[str]:
    metadata = image.get_tag_item("GDAL_STRUCTURAL_METADATA", "TIFF")
    if metadata is not None and "KNOWN_INCOMPATIBLE_EDITION=YES" in metadata:
        yield "the file was optimized, and later changes have invalidated that"
    if any(str(file).lower().endswith(".ovr") for file in image.files):
        yield "its overviews are in an external .ovr file, not in the file itself"
    # GDAL's structural metadata may stand between the header and the first directory.
    offset, length = _directory_offset(image), len(metadata or "")
    if not any(
        0 <= offset - header - skipped < _ALIGNMENT_BYTES
        for header in _HEADER_BYTES
        for skipped in (0, length)
    ):
        yield f"its first directory is at byte {offset:,}, not at the start of the file"


def _check_tiles(levels: list[DatasetReader]) -> Iterator[str]:
    for number, level in enumerate(levels):
        if max(level.width, level.height) > _SMALL_PIXELS and _has_strips(level):
            yield f"{_name(number)} is not tiled"


def _has_strips(level: DatasetReader) -> bool:
    rows, columns = level.block_shapes[0]
    is_no_tile = bool(rows % _TILE_MULTIPLE or columns % _TILE_MULTIPLE)
    return columns == level.width and (is_no_tile or columns > _MAX_STRIP_PIXELS)


def _check_overview_sizes(levels: list[DatasetReader]) -> Iterator[str]:
    for number in range(1, len(levels)):
        larger, smaller = levels[number - 1], levels[number]
        if smaller.width > larger.width or smaller.height > larger.height:
            yield f"{_name(number)} is larger than {_name(number - 1)}"


def _check_directory_order(image: DatasetReader, overviews: int) -> Iterator[str]:
    offsets = [_directory_offset(image), *(_directory_offset(image, level) for level in range(overviews))]
    for number in range(1, len(offsets)):
        if offsets[number] < offsets[number - 1]:
            yield f"the directory of {_name(number)} comes before that of {_name(number - 1)}"


def _check_data_order(image: DatasetReader, levels: list[DatasetReader]) -> Iterator[str]:
    """Check that directories come first, then pixels from the smallest overview to the image."""
    offsets = {
        number: offset
        for number, level in enumerate(levels)
        if (offset := _first_data_offset(image, level, number)) is not None
    }
    numbers = sorted(offsets)
    if not numbers:
        return
    smallest = numbers[-1]
    directory = _directory_offset(image, smallest - 1 if smallest else None)
    if offsets[smallest] < directory:
        yield f"the pixels of {_name(smallest)} come before its directory"
    for larger, smaller in itertools.pairwise(numbers):
        if offsets[larger] < offsets[smaller]:
            yield f"the pixels of {_name(larger)} come before the pixels of {_name(smaller)}"


def _first_data_offset(image: DatasetReader, level: DatasetReader, number: int) -> int | None:
    """Return where the first block with pixels is; None if the file is sparse and this level has none."""
    rows, columns = level.block_shapes[0]
    overview = {} if number == 0 else {"ovr": number - 1}
    for row in range(-(-level.height // rows)):
        for column in range(-(-level.width // columns)):
            offset = image.get_tag_item(f"BLOCK_OFFSET_{column}_{row}", "TIFF", bidx=1, **overview)
            if offset:
                return int(offset)
    return None


def _directory_offset(image: DatasetReader, overview: int | None = None) -> int:
    level = {} if overview is None else {"ovr": overview}
    return int(image.get_tag_item("IFD_OFFSET", "TIFF", bidx=1, **level))


def _name(number: int) -> str:
    return "the image" if number == 0 else f"overview {number}"
