"""The registry of handlers by name, and their discovery.

There is no global registry. `discover` imports the modules that the operator names and the entry points of packages,
and returns a new registry.
"""

from __future__ import annotations

import contextlib
import hashlib
import importlib
import importlib.util
import json
import sys
from importlib import metadata
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

from dagmaster.authoring.handler_decorator import (
    CheckpointableHandler,
    HandlerSpec,
    HandlerStyle,
    handler,
    mark_of,
    register_handler,
    spec_of,
)
from dagmaster.authoring.handler_definitions import describe_handler, to_definition
from dagmaster.authoring.suggestions import did_you_mean
from dagmaster.errors import HandlerInvalid, HandlerNotFound

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator, Mapping
    from types import ModuleType

    from dagmaster.json_types import JsonObject
    from dagmaster.ports.handler_definitions import HandlerDefinition

__all__ = [
    "ENTRY_POINTS",
    "CheckpointableHandler",
    "HandlerSpec",
    "HandlerStyle",
    "LazyHandler",
    "Registry",
    "discover",
    "handler",
    "import_source",
    "register_handler",
    "spec_of",
]

ENTRY_POINTS = "dagmaster.handlers"
"""The group in which an installed package names its modules of handlers."""


class LazyHandler(NamedTuple):
    """A handler whose module is imported on first use.

    A module declares them in `__handlers__`, by name, and may name a file with their definitions in `__definitions__`.
    They are plain functions, executed in a child process.
    """

    module: str
    version: str = "1"
    aliases: tuple[str, ...] = ()


class Registry:
    """Handlers by name. An alias is another name of the same handler. `default_queue`: of those that name none."""

    missing_hint = "name the module or file that has it: --handlers, or handlers= in a test"

    def __init__(
        self, handlers: Iterable[HandlerSpec | Callable[..., Any]] = (), *, default_queue: str | None = None
    ) -> None:
        self.default_queue = default_queue
        self._specs: dict[str, HandlerSpec] = {}
        self._all_names: dict[str, HandlerSpec] = {}
        # Handlers that are not imported yet: first name by each of their names.
        self._announced: dict[str, LazyHandler] = {}
        self._later: dict[str, str] = {}
        self._definition_files: list[Path] = []
        self._others: Registry | None = None
        for one in handlers:
            self.register(one)

    def register(self, handler: HandlerSpec | Callable[..., Any]) -> HandlerSpec:
        """Add a handler or a decorated function. Adding the same function again has no effect."""
        spec = handler if isinstance(handler, HandlerSpec) else spec_of(handler)
        for name in (spec.name, *spec.aliases):
            other = self._all_names.get(name)
            if other is not None and other.function is not spec.function:
                raise HandlerInvalid(f"two handlers have the name {name!r}: {other.place()} and {spec.place()}")
            if name in self._later:
                module = self._announced[self._later[name]].module
                raise HandlerInvalid(f"two handlers have the name {name!r}: one of {module} and {spec.place()}")
        self._specs[spec.name] = spec
        self._all_names.update(dict.fromkeys((spec.name, *spec.aliases), spec))
        return spec

    def register_lazy(self, announced: Mapping[str, LazyHandler], definitions: Path | None = None) -> None:
        """Add handlers whose modules are imported on first use. `definitions`: a file with their definitions."""
        self._definition_files += [] if definitions is None else [definitions]
        for name, one in announced.items():
            for alias in (name, *one.aliases):
                other = self._all_names.get(alias)
                if other is not None:
                    raise HandlerInvalid(
                        f"two handlers have the name {alias!r}: {other.place()} and one of {one.module}"
                    )
                self._later[alias] = name
            self._announced[name] = one

    def overlay(self, others: Registry) -> Registry:
        """Return a registry of these handlers on top of others: these win where names collide."""
        both = Registry(default_queue=self.default_queue or others.default_queue)
        both._specs, both._all_names = dict(self._specs), dict(self._all_names)
        both._announced, both._later = dict(self._announced), dict(self._later)
        both._definition_files = list(self._definition_files)
        both._others = others if self._others is None else self._others.overlay(others)
        return both

    def get(self, name: str) -> HandlerSpec:
        """Return the handler with this name or alias; raise HandlerNotFound with the nearest name."""
        spec = self.find(name)
        if spec is None:
            hint = did_you_mean(name, list(self.versions()))
            raise HandlerNotFound(f"there is no handler {name!r}{f': {hint}' if hint else ''}")
        return spec

    def find(self, name: str) -> HandlerSpec | None:
        """Return the handler with this name or alias, or None."""
        if name in self._later:
            self._load(self._announced[self._later[name]].module)
        spec = self._all_names.get(name)
        return self._others.find(name) if spec is None and self._others is not None else spec

    def names(self) -> list[str]:
        """Return the names of all handlers, in order, without aliases."""
        others = () if self._others is None else self._others.names()
        return sorted({*self._specs, *self._announced, *others})

    def versions(self) -> dict[str, str]:
        """Return the version of each handler, under all its names."""
        later = {name: self._announced[first].version for name, first in self._later.items()}
        others = {} if self._others is None else self._others.versions()
        return others | later | {name: spec.version for name, spec in self._all_names.items()}

    def names_matching(self, matches: Callable[[HandlerSpec], bool]) -> frozenset[str]:
        """Return all names of matching handlers; lazy ones, which are plain functions, always match."""
        others = frozenset() if self._others is None else self._others.names_matching(matches) - self._all_names.keys()
        return others.union((name for name, spec in self._all_names.items() if matches(spec)), self._later)

    def definitions(self) -> list[HandlerDefinition]:
        """Return the definitions of all handlers. Those that are not imported are read from the file of their module.

        A lazy handler without such a file has none until it is imported.
        """
        others = [] if self._others is None else self._others.definitions()
        documents = dict(self._lazy_documents())
        documents |= {spec.name: describe_handler(spec) for spec in self._specs.values()}
        own = [to_definition(document) for document in documents.values()]
        return own + [definition for definition in others if definition.name not in documents]

    def _lazy_documents(self) -> Iterator[tuple[str, JsonObject]]:
        for file in self._definition_files:
            for document in json.loads(file.read_text(encoding="utf-8")):
                if document["name"] in self._announced:
                    yield document["name"], document

    def __iter__(self) -> Iterator[HandlerSpec]:
        for module in {one.module for one in self._announced.values()}:
            self._load(module)
        others = {} if self._others is None else {spec.name: spec for spec in self._others}
        return iter([spec for _, spec in sorted((others | self._specs).items())])

    def __len__(self) -> int:
        return len(self.names())

    def __contains__(self, name: object) -> bool:
        is_here = name in self._all_names or name in self._later
        return is_here or (self._others is not None and name in self._others)

    def _load(self, module: str) -> None:
        """Import a module of lazy handlers and register its handlers."""
        handlers = _handlers_in(import_source(module, f"the module {module!r}"))
        for name in [name for name, one in self._announced.items() if one.module == module]:
            one = self._announced.pop(name)
            for alias in (name, *one.aliases):
                del self._later[alias]
        for one in handlers:
            self.register(one)


def discover(modules: Iterable[str], *, entry_points: bool = True, default_queue: str | None = None) -> Registry:
    """Import modules (`my_package.handlers`) and files (`./my_handlers.py`), and register their handlers.

    Modules below the working directory can be imported, as with `python -m`.
    """
    _append_working_directory()
    registry = Registry(default_queue=default_queue)
    if entry_points:
        for point in metadata.entry_points(group=ENTRY_POINTS):
            package = f" of {point.dist.name}" if point.dist else ""
            _register_module(
                registry, point.module, f"the module {point.module!r} (entry point {point.name!r}{package})"
            )
    for name in modules:
        kind = "file" if _is_file(name) else "module"
        _register_module(registry, name, f"the {kind} {name!r}")
    return registry


def _append_working_directory() -> None:
    # Last, so that no file in the directory hides an installed package. It may have been removed.
    with contextlib.suppress(OSError):
        folder = str(Path.cwd())
        if folder not in sys.path:
            sys.path.append(folder)


def _register_module(registry: Registry, name: str, subject: str) -> None:
    """Register every decorated function of a module; raise if it has none."""
    module = import_source(name, subject)
    announced: Mapping[str, LazyHandler] = getattr(module, "__handlers__", {})
    registry.register_lazy(announced, getattr(module, "__definitions__", None))
    handlers = _handlers_in(module)
    if not handlers and not announced:
        inside = " or name the modules inside it" if hasattr(module, "__path__") else ""
        raise HandlerInvalid(f"{subject} has no handlers: decorate a function with @handler(){inside}")
    for one in handlers:
        registry.register(one)


def _handlers_in(module: ModuleType) -> list[Any]:
    return [one for one in vars(module).values() if mark_of(one) is not None]


def import_source(name: str, subject: str) -> ModuleType:
    """Import a module or a file; raise HandlerInvalid about `subject` if that fails."""
    # Whatever the module raises, the error names the module. A module that calls exit
    # would end the orchestrator without a word.
    try:
        return _import_file(Path(name), subject) if _is_file(name) else importlib.import_module(name)
    except HandlerInvalid as error:
        raise HandlerInvalid(f"{subject} cannot be used: {error}") from error
    except (Exception, SystemExit) as error:
        reason = f"{type(error).__name__}: {error}" if str(error) else type(error).__name__
        raise HandlerInvalid(f"{subject} cannot be imported: {reason}{_import_hint(name, error)}") from error


def _is_file(name: str) -> bool:
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
    if _is_file(name) or not f"{name}.".startswith(f"{missing}."):
        if _is_file(name) and Path(name).with_name(f"{missing}.py").is_file():
            return f" (it is in the same directory: put {str(Path(name).parent)!r} on PYTHONPATH)"
        return f" (it is imported there: install {missing!r}, or put its folder on PYTHONPATH)"
    file = Path(*name.split(".")).with_suffix(".py")
    if file.is_file():
        return f" (there is a file of that name: write ./{file})"
    return " (name it as in an import statement, or as a path: ./my_handlers.py)"
