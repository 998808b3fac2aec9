"""Handlers by name: the registry, and where handlers come from.

There is no global registry. `discover` imports what the operator names and what packages announce, and gives a new one.
"""

from __future__ import annotations

import hashlib
import importlib
import importlib.util
import sys
from importlib import metadata
from pathlib import Path
from typing import TYPE_CHECKING, Any

from dagmaster.authoring.decorator import (
    CheckpointableHandler,
    HandlerSpec,
    HandlerStyle,
    handler,
    mark_of,
    register_handler,
    spec_of,
)
from dagmaster.authoring.names import did_you_mean
from dagmaster.errors import HandlerInvalid, HandlerUnknown

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator
    from types import ModuleType

__all__ = [
    "ENTRY_POINTS",
    "CheckpointableHandler",
    "HandlerSpec",
    "HandlerStyle",
    "Registry",
    "discover",
    "handler",
    "register_handler",
    "spec_of",
]

ENTRY_POINTS = "dagmaster.handlers"
"""The group in which an installed package names its modules of handlers."""


class Registry:
    """Handlers by name. An alias is another name of the same handler."""

    def __init__(self, handlers: Iterable[HandlerSpec | Callable[..., Any]] = ()) -> None:
        self._specs: dict[str, HandlerSpec] = {}
        self._all_names: dict[str, HandlerSpec] = {}
        for one in handlers:
            self.register(one)

    def register(self, handler: HandlerSpec | Callable[..., Any]) -> HandlerSpec:
        """Add a handler, or a decorated function. The same function twice is one handler."""
        spec = handler if isinstance(handler, HandlerSpec) else spec_of(handler)
        for name in (spec.name, *spec.aliases):
            other = self._all_names.get(name)
            if other is not None and other.function is not spec.function:
                raise HandlerInvalid(f"two handlers have the name {name!r}: {other.place()} and {spec.place()}")
        self._specs[spec.name] = spec
        self._all_names.update(dict.fromkeys((spec.name, *spec.aliases), spec))
        return spec

    def get(self, name: str) -> HandlerSpec:
        """The handler with this name or alias; else HandlerUnknown, with the nearest name."""
        spec = self._all_names.get(name)
        if spec is None:
            hint = did_you_mean(name, self._all_names)
            raise HandlerUnknown(f"there is no handler {name!r}{f': {hint}' if hint else ''}")
        return spec

    def find(self, name: str) -> HandlerSpec | None:
        """The handler with this name or alias, if there is one."""
        return self._all_names.get(name)

    def names(self) -> list[str]:
        """The names of all handlers, in order, without aliases."""
        return sorted(self._specs)

    def versions(self) -> dict[str, str]:
        """The version of each handler, under all its names."""
        return {name: spec.version for name, spec in self._all_names.items()}

    def __iter__(self) -> Iterator[HandlerSpec]:
        return iter([self._specs[name] for name in self.names()])

    def __len__(self) -> int:
        return len(self._specs)

    def __contains__(self, name: object) -> bool:
        return name in self._all_names


def discover(modules: Iterable[str], *, entry_points: bool = True) -> Registry:
    """Import modules (`my_package.handlers`) and files (`./my_handlers.py`), and gather the handlers in them."""
    registry = Registry()
    if entry_points:
        for point in metadata.entry_points(group=ENTRY_POINTS):
            package = f" of {point.dist.name}" if point.dist else ""
            _gather(registry, point.module, f"the module {point.module!r} (entry point {point.name!r}{package})")
    for name in modules:
        what = "file" if _is_file(name) else "module"
        _gather(registry, name, f"the {what} {name!r}")
    return registry


def _gather(registry: Registry, name: str, subject: str) -> None:
    """Register every decorated function in one module. One without handlers was named by mistake."""
    module = _imported(name, subject)
    found = [one for one in vars(module).values() if mark_of(one) is not None]
    if not found:
        inside = " or name the modules inside it" if hasattr(module, "__path__") else ""
        raise HandlerInvalid(f"{subject} has no handlers: decorate a function with @handler(){inside}")
    for one in found:
        registry.register(one)


def _imported(name: str, subject: str) -> ModuleType:
    # Whatever the module does while it is imported, the operator learns which one it was. A module that calls exit
    # would end the orchestrator without a word.
    try:
        return _from_file(Path(name), subject) if _is_file(name) else importlib.import_module(name)
    except HandlerInvalid as error:
        raise HandlerInvalid(f"{subject} cannot be used: {error}") from error
    except (Exception, SystemExit) as error:
        said = f"{type(error).__name__}: {error}" if str(error) else type(error).__name__
        raise HandlerInvalid(f"{subject} cannot be imported: {said}{_how_to_name(name, error)}") from error


def _is_file(name: str) -> bool:
    return name.endswith(".py") or "/" in name or "\\" in name


def _from_file(path: Path, subject: str) -> ModuleType:
    """Import a file under a name of its own, once."""
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


def _how_to_name(name: str, error: BaseException) -> str:
    """What to do when a module was not found: the one that was named, or one that it imports."""
    if not isinstance(error, ModuleNotFoundError) or not error.name:
        return ""
    missing = error.name
    if _is_file(name) or not f"{name}.".startswith(f"{missing}."):
        if _is_file(name) and Path(name).with_name(f"{missing}.py").is_file():
            return f" (it lies beside the file: put {str(Path(name).parent)!r} on PYTHONPATH)"
        return f" (it is imported there: install {missing!r}, or put its folder on PYTHONPATH)"
    file = Path(*name.split(".")).with_suffix(".py")
    if file.is_file():
        return f" (there is a file of that name: write ./{file})"
    return " (name it as in an import statement, or as a path: ./my_handlers.py)"
