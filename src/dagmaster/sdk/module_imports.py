"""Import the modules and files that the operator names."""

from __future__ import annotations

import contextlib
import hashlib
import importlib
import importlib.util
import sys
import traceback
from pathlib import Path
from typing import TYPE_CHECKING

from dagmaster.errors import HandlerInvalid

if TYPE_CHECKING:
    from types import ModuleType


def import_source(name: str, subject: str) -> ModuleType:
    """Import a module or a file; raise HandlerInvalid about `subject` if that fails."""
    # Whatever the module raises, the error names the module. A module that calls exit
    # would end the orchestrator without a word.
    try:
        return _import_file(Path(name), subject) if is_file(name) else importlib.import_module(name)
    except HandlerInvalid as error:
        raise HandlerInvalid(f"{subject} cannot be used: {error}") from error
    except (Exception, SystemExit) as error:
        reason = f"{type(error).__name__}: {error}" if str(error) else type(error).__name__
        raise HandlerInvalid(f"{subject} cannot be imported: {reason}{_import_hint(name, error)}") from error


def is_file(name: str) -> bool:
    """Return whether a name is the path of a file, and not a module."""
    return name.endswith(".py") or "/" in name or "\\" in name


def _import_file(path: Path, subject: str) -> ModuleType:
    """Import a file once, under a unique module name.

    What is in its folder can be imported, as by a script.
    """
    full = path.expanduser().resolve()
    if not full.is_file():
        raise HandlerInvalid(f"there is no file {full}")
    # In sys.modules, because annotations, dataclasses and pickles look their module up there.
    name = f"dagmaster_file_{hashlib.sha256(str(full).encode()).hexdigest()[:12]}_{full.stem}"
    known = sys.modules.get(name) or sys.modules.get(full.stem)
    if known is not None and _is_module_of(known, full):
        return known
    spec = importlib.util.spec_from_file_location(name, full)
    if spec is None or spec.loader is None:
        raise HandlerInvalid(f"{subject} is not a Python file: its name has to end in .py")
    _append_folder(full.parent)
    module = importlib.util.module_from_spec(spec)
    # A file next to it that imports it gets this module, not a second one with other tasks of the same names.
    names = [name, full.stem] if _would_import(full) else [name]
    sys.modules.update(dict.fromkeys(names, module))
    try:
        spec.loader.exec_module(module)
    except BaseException:
        for one in names:
            sys.modules.pop(one, None)
        raise
    return module


def _is_module_of(module: ModuleType, file: Path) -> bool:
    own = getattr(module, "__file__", None)
    return own is not None and Path(own).resolve() == file


def _would_import(file: Path) -> bool:
    if file.stem in sys.modules or not file.stem.isidentifier():
        return False
    spec = importlib.util.find_spec(file.stem)
    return spec is not None and spec.origin is not None and Path(spec.origin).resolve() == file


def _import_hint(name: str, error: BaseException) -> str:
    """Return what to do about a relative import, or a module that was not found: named or imported."""
    if is_file(name) and "attempted relative import" in str(error):
        return _relative_import_hint(Path(name).resolve())
    if not isinstance(error, ModuleNotFoundError) or not error.name:
        return ""
    missing = error.name
    if is_file(name) or not f"{name}.".startswith(f"{missing}."):
        return f" (it is imported there: install {missing!r}, or put its folder on PYTHONPATH)"
    file = Path(*name.split(".")).with_suffix(".py")
    if file.is_file():
        return f" (there is a file of that name: write ./{file})"
    return " (name it as in an import statement, or as a path: ./my_handlers.py)"


def _relative_import_hint(file: Path) -> str:
    """Return how to write the import, or how to name a file of a package as a module."""
    plain = "a file that is named by its path is in no package: write the import without the dot"
    parts, folder = [file.stem], file.parent
    while (folder / "__init__.py").is_file():
        parts, folder = [folder.name, *parts], folder.parent
    if len(parts) == 1:
        return f" ({plain})"
    return f" ({plain}, or name the module {'.'.join(parts)} instead of the file, in {folder})"


def failing_line(file: Path, error: BaseException | None) -> int:
    """Return the line of a file at which its import failed; 0 if it is not known."""
    full = str(file.expanduser().resolve())
    if isinstance(error, SyntaxError) and error.filename == full:
        return error.lineno or 0
    lines = (
        [line for frame, line in traceback.walk_tb(error.__traceback__) if frame.f_code.co_filename == full]
        if error is not None
        else []
    )
    return lines[-1] if lines else 0


def append_working_directory() -> None:
    """Let modules of the working directory be imported."""
    # Last, so that no file in the directory hides an installed package. It may have been removed.
    with contextlib.suppress(OSError):
        _append_folder(Path.cwd())


def _append_folder(folder: Path) -> None:
    if str(folder) not in sys.path:
        sys.path.append(str(folder))
