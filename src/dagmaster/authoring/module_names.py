"""The names of modules in handlers: those of Python, or the stem of a file that has none."""

from __future__ import annotations

import re
import sys
from pathlib import Path
from typing import Final

FILE_MODULE: Final = re.compile(r"dagmaster_file_[0-9a-f]{12}_(.+)")
"""The module name of a file that was imported by its path."""


def public_module_name(module: str) -> str:
    """Return the name of a module; a script, or a file that was imported by its path, is its stem."""
    match = FILE_MODULE.fullmatch(module)
    stem = match[1] if match else ""
    if module == "__main__":
        # A notebook has no file.
        file = getattr(sys.modules.get("__main__"), "__file__", None)
        stem = Path(file).stem if file else ""
    return re.sub(r"[^A-Za-z0-9_]", "_", stem) if stem else module
