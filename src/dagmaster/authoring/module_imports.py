"""Import the modules and files that the operator names."""

from __future__ import annotations

import contextlib
import hashlib
import importlib
import importlib.util
import sys
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
    """Import a file once, under a unique module name."""
    full = path.expanduser().resolve()
    if not full.is_file():
        raise HandlerInvalid(f"there is no file {full}")
    # In sys.modules, because annotations, dataclasses and pickles look their module up there.
    name = f"dagmaster_file_{hashlib.sha256(str(full).encode()).hexdigest()[:12]}_{full.stem}"
    if name in sys.modules:
        return sys.modules[name]
    spec = importlib.util.spec_from_file_location(name, full)
    if spec is None or spec.loader is None:
        raise HandlerInvalid(f"{subject} is not a Python file: its name has to end in .py")
    module = importlib.util.module_from_spec(spec)
    sys.modules[name] = module
    try:
        spec.loader.exec_module(module)
    except BaseException:
        del sys.modules[name]
        raise
    return module


def _import_hint(name: str, error: BaseException) -> str:
    """Return what to do about a module that was not found: the named one, or one that it imports."""
    if not isinstance(error, ModuleNotFoundError) or not error.name:
        return ""
    missing = error.name
    if is_file(name) or not f"{name}.".startswith(f"{missing}."):
        if is_file(name) and Path(name).with_name(f"{missing}.py").is_file():
            return f" (it is in the same directory: put {str(Path(name).parent)!r} on PYTHONPATH)"
        return f" (it is imported there: install {missing!r}, or put its folder on PYTHONPATH)"
    file = Path(*name.split(".")).with_suffix(".py")
    if file.is_file():
        return f" (there is a file of that name: write ./{file})"
    return " (name it as in an import statement, or as a path: ./my_handlers.py)"


def append_working_directory() -> None:
    """Let modules of the working directory be imported."""
    # Last, so that no file in the directory hides an installed package. It may have been removed.
    with contextlib.suppress(OSError):
        folder = str(Path.cwd())
        if folder not in sys.path:
            sys.path.append(folder)
