"""The registry of handlers by name, and their discovery.

There is no global registry. `discover` imports the modules that the operator names and the entry points of
packages, and returns a new registry.
"""

from __future__ import annotations

import inspect
import json
from importlib import metadata
from typing import TYPE_CHECKING, Any, NamedTuple

from dagmaster.engine.served_handlers import ANY_FUNCTION
from dagmaster.errors import HandlerInvalid, HandlerNotFound
from dagmaster.errors.suggestions import did_you_mean, similar_handlers
from dagmaster.sdk.entrypoints import Entrypoints, not_allowed
from dagmaster.sdk.handler_decorator import (
    CheckpointableHandler,
    HandlerSpec,
    HandlerStyle,
    entrypoint_spec,
    handler,
    mark_of,
    register_handler,
    spec_of,
)
from dagmaster.sdk.handler_definitions import describe_handler, to_definition
from dagmaster.sdk.module_imports import append_working_directory, import_source, is_file

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator, Mapping
    from pathlib import Path
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
    "register_handler",
    "registry_for",
    "spec_of",
]

ENTRY_POINTS = "dagmaster.handlers"
"""The group in which an installed package names its modules of handlers."""

WORKFLOW_MARK = "__dagmaster_workflow__"
"""An attribute of the class of workflows in Python."""

ENTRYPOINT_VERSION = "1"
MAX_REJECTED = 1_000
"""How many names that are no entrypoints are remembered."""


class LazyHandler(NamedTuple):
    """A handler whose module is imported on first use.

    A module declares them in `__handlers__`, by name, and may name a file with their definitions in
    `__definitions__`. They are plain functions, executed in a child process.
    """

    module: str
    version: str = "1"
    aliases: tuple[str, ...] = ()


class Registry:
    """Handlers by name. An alias is another name of the same handler.

    `default_queue`: of tasks whose node and handler name none; `python_queue`: of those in Python workflows.
    """

    missing_hint = "name the module or file that has it: --handlers, or handlers= in a test"

    def __init__(
        self,
        handlers: Iterable[HandlerSpec | Callable[..., Any]] = (),
        *,
        default_queue: str | None = None,
        python_queue: str | None = None,
    ) -> None:
        self.default_queue = default_queue
        self.python_queue = python_queue
        self._specs: dict[str, HandlerSpec] = {}
        self._all_names: dict[str, HandlerSpec] = {}
        # Handlers that are not imported yet: first name by each of their names.
        self._announced: dict[str, LazyHandler] = {}
        self._later: dict[str, str] = {}
        self._definition_files: list[Path] = []
        self._others: Registry | None = None
        self.entrypoints = Entrypoints()
        # Names that are no entrypoints, with the reason: they are not looked up again.
        self._rejected: dict[str, str] = {}
        for one in handlers:
            self.register(one)

    def register(self, handler: HandlerSpec | Callable[..., Any]) -> HandlerSpec:
        """Add a handler or a decorated function. Adding the same function again has no effect."""
        spec = handler if isinstance(handler, HandlerSpec) else spec_of(handler)
        for name in (spec.name, *spec.aliases):
            other = self._all_names.get(name)
            if other is not None and other.function is not spec.function:
                raise HandlerInvalid(
                    f"two handlers have the name {name!r}: {other.place()} and {spec.place()}"
                )
            if name in self._later:
                module = self._announced[self._later[name]].module
                raise HandlerInvalid(
                    f"two handlers have the name {name!r}: one of {module} and {spec.place()}"
                )
        self._specs[spec.name] = spec
        self._all_names.update(dict.fromkeys((spec.name, *spec.aliases), spec))
        return spec

    def register_lazy(self, announced: Mapping[str, LazyHandler], definitions: Path | None = None) -> None:
        """Add handlers whose modules are imported on first use.

        `definitions`: a file with their definitions.
        """
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
        both = Registry(
            default_queue=self.default_queue or others.default_queue,
            python_queue=self.python_queue or others.python_queue,
        )
        both._specs, both._all_names = dict(self._specs), dict(self._all_names)
        both._announced, both._later = dict(self._announced), dict(self._later)
        both._definition_files = list(self._definition_files)
        both.entrypoints = self.entrypoints
        both._others = others if self._others is None else self._others.overlay(others)
        return both

    def get(self, name: str) -> HandlerSpec:
        """Return the handler with this name or alias; raise HandlerNotFound with the nearest name."""
        spec = self.find(name)
        if spec is None:
            reason = self._why_missing(name)
            raise HandlerNotFound(f"there is no handler {name!r}{f': {reason}' if reason else ''}")
        return spec

    def find(self, name: str, *, imports: bool = True) -> HandlerSpec | None:
        """Return the handler with this name or alias, or the entrypoint, or None.

        `imports`: a submodule of an allowed package is imported for it. That may take long: see
        `needs_import`.
        """
        if name in self._later:
            self._load(self._announced[self._later[name]].module)
        spec = self._all_names.get(name)
        if spec is None and self._others is not None:
            spec = self._others.find(name, imports=imports)
        if spec is None and self.entrypoints and (imports or not self.entrypoints.needs_import(name)):
            spec = self._find_entrypoint(name)
        return spec

    def needs_import(self, name: str) -> bool:
        """Return whether `find` has to import a submodule of an allowed package for this name."""
        if name in self._all_names or name in self._rejected:
            return False
        return self.entrypoints.needs_import(name) or (
            self._others is not None and self._others.needs_import(name)
        )

    def allows(self, name: str) -> bool:
        """Return whether a name is in a module whose functions tasks may name, even a missing one."""
        return self.entrypoints.covers(name) or (self._others is not None and self._others.allows(name))

    def _find_entrypoint(self, name: str) -> HandlerSpec | None:
        if name in self._rejected:
            return None
        try:
            spec = entrypoint_spec(self.entrypoints.load(name), name)
        except (HandlerNotFound, HandlerInvalid) as error:
            if len(self._rejected) >= MAX_REJECTED:
                self._rejected.clear()
            self._rejected[name] = str(error)
            return None
        self._all_names[name] = spec
        return spec

    def _why_missing(self, name: str) -> str:
        """Return why there is no handler or entrypoint of this name; "" if nothing is known."""
        if self.entrypoints.covers(name):
            return self._rejected.get(name, "")
        if self._others is not None and self._others.allows(name):
            return self._others._why_missing(name)  # noqa: SLF001 - of this class
        names = list(self.served_names())
        is_known = name.rpartition(".")[0] in {other.rpartition(".")[0] for other in names}
        note = "" if is_known else not_allowed(name, self._allowed_modules())
        return "; ".join(filter(None, (note, did_you_mean(name, similar_handlers(name, names)))))

    def _allowed_modules(self) -> list[str]:
        modules = {*self.entrypoints.modules()}
        if self._others is not None:
            modules |= {*self._others._allowed_modules()}  # noqa: SLF001 - of this class
        return sorted(modules)

    def names(self) -> list[str]:
        others = () if self._others is None else self._others.names()
        return sorted({*self._specs, *self._announced, *others})

    def versions(self) -> dict[str, str]:
        """Return the version of each handler, under all its names."""
        later = {name: self._announced[first].version for name, first in self._later.items()}
        others = {} if self._others is None else self._others.versions()
        return others | later | {name: spec.version for name, spec in self._all_names.items()}

    def served_names(self) -> dict[str, str]:
        """Return what a worker registers: `versions`, the entrypoints of allowed modules, and `package.*`."""
        others = {} if self._others is None else self._others.served_names()
        packages = [f"{package}{ANY_FUNCTION}" for package in self.entrypoints.packages()]
        own = dict.fromkeys((*self.entrypoints.functions(), *packages), ENTRYPOINT_VERSION)
        return others | own | self.versions()

    def names_matching(self, matches: Callable[[HandlerSpec], bool]) -> frozenset[str]:
        """Return the names of matching handlers; lazy ones and functions of allowed modules always match."""
        others = (
            frozenset()
            if self._others is None
            else self._others.names_matching(matches) - self._all_names.keys()
        )
        plain = (
            name
            for name, one in self.entrypoints.functions().items()
            if name not in self._all_names
            and not (inspect.iscoroutinefunction(one) or inspect.isasyncgenfunction(one))
        )
        return others.union(
            (name for name, spec in self._all_names.items() if matches(spec)), self._later, plain
        )

    def definitions(self) -> list[HandlerDefinition]:
        """Return the definitions of all handlers.

        Those that are not imported are read from the file of their module.

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
        if is_here or (self._others is not None and name in self._others):
            return True
        return isinstance(name, str) and bool(self.entrypoints) and self._find_entrypoint(name) is not None

    def _load(self, module: str) -> None:
        handlers = _handlers_in(import_source(module, f"the module {module!r}"))
        for name in [name for name, one in self._announced.items() if one.module == module]:
            one = self._announced.pop(name)
            for alias in (name, *one.aliases):
                del self._later[alias]
        for one in handlers:
            self.register(one)


def discover(
    modules: Iterable[str],
    *,
    entry_points: bool = True,
    default_queue: str | None = None,
    python_queue: str | None = None,
) -> Registry:
    """Import modules (`my_package.handlers`) and files (`./my_handlers.py`), and register their handlers.

    Modules below the working directory can be imported, as with `python -m`. Other functions of these modules
    are entrypoints (`entrypoints.py`); handlers of packages that are only installed are not.
    """
    append_working_directory()
    registry = Registry(default_queue=default_queue, python_queue=python_queue)
    if entry_points:
        for point in metadata.entry_points(group=ENTRY_POINTS):
            package = f" of {point.dist.name}" if point.dist else ""
            _register_module(
                registry, point.module, f"the module {point.module!r} (entry point {point.name!r}{package})"
            )
    for name in modules:
        kind = "file" if is_file(name) else "module"
        _register_module(registry, name, f"the {kind} {name!r}", has_entrypoints=not _is_shipped(name))
    return registry


def registry_for(
    functions: Mapping[str, Callable[..., Any]],
    modules: Iterable[str] = (),
    *,
    default_queue: str | None = None,
) -> Registry:
    """Return a registry that has these functions under these names, and what `discover` finds in the modules.

    For a run in this process: functions of a script, a notebook or a test, which no worker could import.
    """
    specs = [entrypoint_spec(function, name) for name, function in functions.items()]
    registry = Registry(specs, default_queue=default_queue)
    names = tuple(modules)
    return registry.overlay(discover(names, entry_points=False)) if names else registry


def _is_shipped(name: str) -> bool:
    """Return whether a module is one of this package: its handlers are tasks, its other functions are not."""
    return f"{name}.".startswith("dagmaster.")


def _register_module(registry: Registry, name: str, subject: str, *, has_entrypoints: bool = False) -> None:
    """Register every decorated function of a module, and allow its entrypoints; raise if it has neither."""
    module = import_source(name, subject)
    if has_entrypoints:
        registry.entrypoints.allow(module)
    announced: Mapping[str, LazyHandler] = getattr(module, "__handlers__", {})
    registry.register_lazy(announced, getattr(module, "__definitions__", None))
    handlers = _handlers_in(module)
    if not (handlers or announced or (has_entrypoints and _has_entrypoints(module))):
        inside = " or name the modules inside it" if hasattr(module, "__path__") else ""
        raise HandlerInvalid(f"{subject} has no handlers: decorate a function with @handler(){inside}")
    for one in handlers:
        registry.register(one)


def _has_entrypoints(module: ModuleType) -> bool:
    """Return whether tasks can name functions of a module: it has some, is a package, or has workflows.

    A file with workflows only is named for its folder: there are the modules of its tasks.
    """
    own = Entrypoints()
    own.allow(module)
    if own.functions() or own.packages():
        return True
    return any(hasattr(type(one), WORKFLOW_MARK) for one in vars(module).values())


def _handlers_in(module: ModuleType) -> list[Any]:
    return [one for one in vars(module).values() if mark_of(one) is not None]
