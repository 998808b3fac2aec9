"""The functions that tasks name, as this process has them: objects, known handlers, or imported ones."""

from __future__ import annotations

import importlib
import sys
from functools import cached_property
from typing import TYPE_CHECKING, Any

from dagmaster.authoring.python.task_options import FUNCTIONS
from dagmaster.errors import HandlerInvalid, HandlerNotFound
from dagmaster.sdk.entrypoints import is_entrypoint
from dagmaster.sdk.handler_decorator import entrypoint_spec, mark_of
from dagmaster.sdk.handler_registry import Registry
from dagmaster.sdk.module_imports import append_working_directory
from dagmaster.sdk.module_names import public_module_name

if TYPE_CHECKING:
    from collections.abc import Callable

    from dagmaster.sdk.handler_registry import HandlerSpec


class ProcessRegistry(Registry):
    """Finds functions when tasks name them: a running task may add tasks of others.

    `find_known` returns the handlers that are known without an import by name; it is called when one is
    missing.
    """

    def __init__(self, find_known: Callable[[], Registry]) -> None:
        super().__init__()
        self._find_known = find_known

    @cached_property
    def _known(self) -> Registry:
        return self._find_known()

    def find(self, name: str, **_options: Any) -> HandlerSpec | None:
        spec = super().find(name)
        if spec is not None and FUNCTIONS.get(name, spec.function) is spec.function:
            return spec
        if name in self._rejected and name not in FUNCTIONS:
            return None
        try:
            return self._resolve(name)
        except (HandlerNotFound, HandlerInvalid) as error:
            self._rejected[name] = str(error)
            return None

    def allows(self, name: str) -> bool:
        """Return whether a name can be an entrypoint: tasks may name any function that this process has."""
        return is_entrypoint(name)

    def forget_missing(self) -> None:
        """Look again for functions that were missing: their modules may have been corrected."""
        self._rejected.clear()

    def _why_missing(self, name: str) -> str:
        return self._rejected.get(name) or super()._why_missing(name)

    def __contains__(self, name: object) -> bool:
        return isinstance(name, str) and self.find(name) is not None

    def _resolve(self, name: str) -> HandlerSpec:
        function = FUNCTIONS.get(name)
        if function is None:
            function = _function_of_script(name)
        if function is None:
            known = self._known.find(name)
            if known is not None:
                return known
            function = _import_function(name)
        self._specs.pop(name, None)
        self._all_names.pop(name, None)
        return self.register(entrypoint_spec(function, name))


def _import_function(name: str) -> Any:
    """Import a function by its entrypoint; raise `HandlerNotFound` with the reason."""
    module_name, _, function_name = name.rpartition(".")
    if not is_entrypoint(name):
        raise HandlerNotFound("it has not the form 'module.function'")
    append_working_directory()
    try:
        module = importlib.import_module(module_name)
    except (Exception, SystemExit) as error:
        reason = f"{type(error).__name__}: {error}"
        raise HandlerNotFound(f"the module {module_name!r} cannot be imported: {reason}") from error
    function = vars(module).get(function_name)
    if function is None:
        raise HandlerNotFound(f"the module {module_name!r} has no function {function_name!r}")
    if not callable(function):
        raise HandlerNotFound(f"it is not a function: it is of type {type(function).__name__}")
    return function


def _function_of_script(name: str) -> Any:
    """Return a function of the script or notebook that runs, which is not imported again."""
    module_name, _, function_name = name.rpartition(".")
    main = sys.modules.get("__main__")
    if main is None or module_name not in {"__main__", public_module_name("__main__")}:
        return None
    function = vars(main).get(function_name)
    return function if callable(function) or mark_of(function) is not None else None
