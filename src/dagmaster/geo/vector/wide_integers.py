"""Integers of JSON that a column of 64 bits does not hold, such as the cell ids of S2.

GDAL reads them as floating-point numbers, of 16 digits, or clamps them; also negative ones of 19 digits
(3.12). So they are written as text into a copy of the file, and GDAL makes a text column of them, in which
every digit is kept.
"""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path
    from typing import BinaryIO

_CHUNK_BYTES: Final = 4 * 1024 * 1024
_MIN_DIGITS: Final = 19
_DIGITS: Final = b"0" * _MIN_DIGITS
_TO_ZERO: Final = bytes.maketrans(b"123456789", b"0" * 9)
_CANDIDATE: Final = re.compile(rb"(?<![\d.])[0-9]{19}")
"""What may be the beginning of a wide integer, also in a text."""
_NEXT: Final = re.compile(rb'"|(?<![-+.0-9eE])-?[0-9]{19}[-+.0-9eE]*')
"""The beginning of a text, or a long number."""
_TEXT: Final = re.compile(rb'(?:[^"\\]|\\.)*+', re.DOTALL)
_IN_NUMBERS: Final = b"-+.0123456789eE"
_MAX_INTEGER: Final = 2**63 - 1
_MAX_NUMBER_BYTES: Final = 1_000_000
"""What is longer is not a number: to read on to its end would hold all of a file in memory."""


def quote_wide_integers(path: Path) -> int:
    """Replace a JSON file by a copy with integers beyond 64 bits as text, if it has any; return how many.

    `path` is an entry of a folder of ours. If it is a link, the file it leads to is not changed.
    """
    with path.open("rb") as source:
        if not _has_candidates(source):
            return 0
        source.seek(0)
        copy = path.with_name(f"{path.name}.quoted")
        with copy.open("wb") as target:
            count = 0
            for part, is_wide in _parts(source):
                target.write(b'"%b"' % part if is_wide else part)
                count += is_wide
    if count:
        copy.replace(path)
    else:
        copy.unlink()
    return count


def _has_candidates(file: BinaryIO) -> bool:
    end = b""
    while chunk := file.read(_CHUNK_BYTES):
        window = end + chunk
        # The first look takes a tenth of the second's time (2026-11: 43 MB of polygons, 0.05 s and 0.5 s).
        if _DIGITS in window.translate(_TO_ZERO) and _CANDIDATE.search(window):
            return True
        end = window[-_MIN_DIGITS:]
    return False


def _parts(file: BinaryIO) -> Iterator[tuple[bytes, bool]]:
    """Yield the content of a file in parts, and of each whether it is a wide integer."""
    rest, is_text = b"", False
    while chunk := file.read(_CHUNK_BYTES):
        window, start, position = rest + chunk, 0, 0
        while True:
            if is_text:
                position = _end_of(_TEXT.match(window, position))
                # The end of the window, or a backslash whose letter is behind it.
                if window[position : position + 1] != b'"':
                    break
                position, is_text = position + 1, False
            token = _NEXT.search(window, position)
            if token is None or token.end() == len(window):
                is_text = token is not None and token[0] == b'"'
                position = len(window) if is_text else _start_of_cut_number(window, position)
                break
            position, is_text = token.end(), token[0] == b'"'
            if _is_wide(token[0]):
                yield window[start : token.start()], False
                yield token[0], True
                start = position
        yield window[start:position], False
        rest = window[position:]
    yield rest, _is_wide(rest)


def _start_of_cut_number(window: bytes, position: int) -> int:
    """Return where the number begins that the end of a window may cut; the end if it cuts none."""
    start = max(position, len(window.rstrip(_IN_NUMBERS)))
    return start if len(window) - start < _MAX_NUMBER_BYTES else len(window)


def _end_of(match: re.Match[bytes] | None) -> int:
    assert match is not None  # noqa: S101 - for mypy; the pattern also matches nothing
    return match.end()


def _is_wide(token: bytes) -> bool:
    """Return whether GDAL would change an integer: it reads 20 letters or more as a float."""
    if not token.removeprefix(b"-").isdigit():
        return False
    return len(token) > _MIN_DIGITS or (len(token) == _MIN_DIGITS and int(token) > _MAX_INTEGER)
