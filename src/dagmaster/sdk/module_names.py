"""The names of modules in handlers: Python's name, or the stem of a file without one."""

from __future__ import annotations

import re
import sys
from functools import lru_cache
from pathlib import Path
from typing import Final

FILE_MODULE: Final = re.compile(r"dagmaster_file_[0-9a-f]{12}_(.+)")
"""The module name of a file that was imported by its path."""


def public_module_name(module: str) -> str:
    """Return the name of a module; a script, or a file that was imported by its path, is its stem."""
    if module == "__main__":
        # A notebook has no file.
        file = getattr(sys.modules.get("__main__"), "__file__", None)
        return _name_of_script(file) if file else module
    match = FILE_MODULE.fullmatch(module)
    return _clean(match[1]) if match else module


@lru_cache(maxsize=8)
def _name_of_script(file: str) -> str:
    return _clean(Path(file).stem)


def _clean(stem: str) -> str:
    return re.sub(r"[^A-Za-z0-9_]", "_", stem)
