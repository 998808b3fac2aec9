"""A small TIFF writer that shares no code with GDAL, for files that GDAL itself does not write.

Either byte order, classic or BigTIFF, strips or tiles, pixels together or by band, overviews in any order or in SubIFDs,
and extra samples and color maps as asked for, right or wrong.
"""

from __future__ import annotations

import itertools
import struct
import zlib
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final

import numpy as np

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence
    from pathlib import Path

_SHORT: Final = 3
_LONG: Final = 4
_DOUBLE: Final = 12
_ASCII: Final = 2
_LONG8: Final = 16
_CODES: Final = {_ASCII: "s", _SHORT: "H", _LONG: "I", _DOUBLE: "d", _LONG8: "Q"}
_SAMPLE_FORMATS: Final = {"u": 1, "i": 2, "f": 3, "c": 6}
_WHOLE_IMAGE: Final = 1 << 20


@dataclass(frozen=True, slots=True, kw_only=True)
class TiffOptions:
    """How a TIFF is written."""

    byte_order: str = "<"
    big: bool = False
    tile: int | None = None
    """The side of a tile; None for strips."""
    rows_per_strip: int = 16
    by_band: bool = False
    compress: bool = False
    photometric: int = 1
    extra_samples: Sequence[int] | None = None
    color_map: Sequence[int] | None = None
    nodata: str | None = None
    overviews: Sequence[int] = ()
    sub_ifds: bool = False
    crs: int = 32631
    transform: tuple[float, float, float, float] = (500_000.0, 30.0, 5_000_000.0, 30.0)
    """Left, pixel width, top, pixel height."""
    software: str | None = None


def write_tiff(path: Path, pixels: Any, options: TiffOptions) -> None:
    """Write bands, rows and columns as a GeoTIFF."""
    _Writer(options).write(path, np.asarray(pixels))


class _Writer:
    def __init__(self, options: TiffOptions) -> None:
        self._options = options
        self._order = options.byte_order
        self._data = bytearray()

    def write(self, path: Path, pixels: Any) -> None:
        options = self._options
        mark = b"II" if self._order == "<" else b"MM"
        header = struct.pack(f"{self._order}HHHQ", 43, 8, 0, 0) if options.big else self._pack("HI", 42, 0)
        self._data += mark + header
        reduced = [pixels[:, ::factor, ::factor] for factor in options.overviews]
        main = self._image_tags(pixels) | self._geo_tags()
        subordinate = [{254: (_LONG, [1])} | self._image_tags(overview) for overview in reduced]
        if options.sub_ifds and subordinate:
            main[330] = (_LONG, [self._directory(tags)[0] for tags in subordinate])
            subordinate = []
        offsets = [self._directory(tags) for tags in (main, *subordinate)]
        for (_, link), (following, _) in itertools.pairwise(offsets):
            self._patch(link, following)
        self._patch(8 if options.big else 4, offsets[0][0])
        path.write_bytes(self._data)

    def _image_tags(self, pixels: Any) -> dict[int, tuple[int, Any]]:
        options = self._options
        count, height, width = pixels.shape
        kind = pixels.dtype
        tags: dict[int, tuple[int, Any]] = {
            256: (_LONG, [width]),
            257: (_LONG, [height]),
            258: (_SHORT, [kind.itemsize * 8] * count),
            259: (_SHORT, [8 if options.compress else 1]),
            262: (_SHORT, [options.photometric]),
            277: (_SHORT, [count]),
            284: (_SHORT, [2 if options.by_band else 1]),
            339: (_SHORT, [_SAMPLE_FORMATS[kind.kind]] * count),
        }
        blocks = list(self._blocks(pixels))
        encoded = [zlib.compress(block) if options.compress else block for block in blocks]
        offsets = []
        for block in encoded:
            offsets.append(len(self._data))
            self._data += block
            self._data += b"\0" * (len(self._data) % 2)
        if options.tile is None:
            tags |= {278: (_LONG, [min(options.rows_per_strip, height)])}
            tags |= {273: (_LONG, offsets), 279: (_LONG, [len(block) for block in encoded])}
        else:
            tags |= {322: (_LONG, [options.tile]), 323: (_LONG, [options.tile])}
            tags |= {324: (_LONG, offsets), 325: (_LONG, [len(block) for block in encoded])}
        if options.extra_samples is not None:
            tags[338] = (_SHORT, list(options.extra_samples))
        if options.color_map is not None:
            tags[320] = (_SHORT, list(options.color_map))
        return tags

    def _geo_tags(self) -> dict[int, tuple[int, Any]]:
        options = self._options
        left, pixel_width, top, pixel_height = options.transform
        is_geographic = options.crs < 5000
        keys = [1, 1, 0, 3, 1024, 0, 1, 2 if is_geographic else 1, 1025, 0, 1, 1]
        tags: dict[int, tuple[int, Any]] = {
            33550: (_DOUBLE, [pixel_width, pixel_height, 0.0]),
            33922: (_DOUBLE, [0.0, 0.0, 0.0, left, top, 0.0]),
            34735: (_SHORT, [*keys, 2048 if is_geographic else 3072, 0, 1, options.crs]),
        }
        for tag, text in ((42113, options.nodata), (305, options.software)):
            if text is not None:
                tags[tag] = (_ASCII, text.encode() + b"\0")
        return tags

    def _blocks(self, pixels: Any) -> Iterator[bytes]:
        options = self._options
        _, height, width = pixels.shape
        swapped = pixels.astype(pixels.dtype.newbyteorder(self._order))
        planes = [swapped[band : band + 1] for band in range(len(pixels))] if options.by_band else [swapped]
        rows = options.tile or options.rows_per_strip
        columns = options.tile or _WHOLE_IMAGE
        for plane in planes:
            for top in range(0, height, rows):
                for left in range(0, width, columns):
                    block = plane[:, top : top + rows, left : left + columns]
                    if options.tile is not None:
                        missing = (rows - block.shape[1], columns - block.shape[2])
                        block = np.pad(block, ((0, 0), (0, missing[0]), (0, missing[1])))
                    yield np.ascontiguousarray(np.moveaxis(block, 0, -1)).tobytes()

    def _directory(self, tags: dict[int, tuple[int, Any]]) -> tuple[int, int]:
        """Append a directory; return its offset, and that of its link to the next one."""
        big = self._options.big
        inline, pointer = (8, "Q") if big else (4, "I")
        entries = []
        for tag, (kind, values) in sorted(tags.items()):
            code = _CODES[kind]
            packed = values if kind == _ASCII else self._pack(f"{len(values)}{code}", *values)
            if len(packed) > inline:
                offset = len(self._data)
                self._data += packed
                self._data += b"\0" * (len(self._data) % 2)
                packed = self._pack(pointer, offset)
            entries.append((tag, kind, len(values), packed.ljust(inline, b"\0")))
        start = len(self._data)
        self._data += self._pack("Q" if big else "H", len(entries))
        for tag, kind, count, packed in entries:
            self._data += self._pack(f"HH{pointer}", tag, kind, count) + packed
        link = len(self._data)
        self._data += self._pack(pointer, 0)
        return start, link

    def _patch(self, at: int, offset: int) -> None:
        packed = self._pack("Q" if self._options.big else "I", offset)
        self._data[at : at + len(packed)] = packed

    def _pack(self, layout: str, *values: Any) -> bytes:
        return struct.pack(self._order + layout, *values)
