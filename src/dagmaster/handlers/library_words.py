"""The words of a library in an error of ours: after our own sentence, short, and without paths of this machine."""

from __future__ import annotations

import re
from typing import Final

MAX_CHARACTERS: Final = 200
_PATH: Final = re.compile(r"(?<![\w.:/])/(?:[^\s'\"`:,;()\[\]]+/)+")
"""The directories of an absolute path."""


def library_words(library: str, error: BaseException | str) -> str:
    """Return what a library reports, to append to a sentence of ours: ` (GDAL: …)`; empty if it reports nothing."""
    words = " ".join(_PATH.sub("", str(error)).split()).rstrip(". ")
    if not words:
        return ""
    shortened = words if len(words) <= MAX_CHARACTERS else f"{words[: MAX_CHARACTERS - 1]}…"
    return f" ({library}: {shortened})"
