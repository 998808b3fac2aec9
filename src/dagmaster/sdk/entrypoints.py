"""Entrypoints: functions that are tasks by their name `module.function`, without a decorator.

Only functions of modules that the operator allowed, and of submodules of allowed packages, which are imported
when a task first names them. A name is a path of modules and one function: no attributes are followed.
"""

from __future__ import annotations

import inspect
import re
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

from dagmaster.errors import EntrypointInvalid, HandlerInvalid, HandlerNotFound
from dagmaster.errors.suggestions import did_you_mean
from dagmaster.sdk.handler_decorator import MAX_HANDLER_NAME, MAX_NAME, mark_of
from dagmaster.sdk.module_imports import import_source
from dagmaster.sdk.module_names import public_module_name
from dagmaster.text_format import format_list

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence
    from types import FunctionType, ModuleType

_ENTRYPOINT: Final = re.compile(r"[A-Za-z]\w*(?:\.[A-Za-z]\w*)+", re.ASCII)


def entrypoint_of(function: Callable[..., Any] | str) -> str:
    """Return the entrypoint of a function: `module.function`. A text is checked and returned.

    A script, a notebook file and a file that was named by its path count as the module of their stem. A
    decorated function has the name of its handler. Raise `HandlerInvalid` if it cannot be one.
    """
    if isinstance(function, str):
        _check_form(function)
        return function
    mark = mark_of(function)
    if mark is not None:
        return mark.name
    if not inspect.isfunction(function):
        raise HandlerInvalid(
            f"{function!r} is not an entrypoint: give a function, or its name as 'module.function'"
            " (classes, methods and partial objects cannot be named)"
        )
    return function_name(function)


def function_name(function: Callable[..., Any]) -> str:
    """Return `module.function`; a script, or a file that was named by its path, is its stem."""
    qualname = function.__qualname__.replace(".<locals>", "").replace("<lambda>", "lambda")
    return f"{public_module_name(function.__module__)}.{qualname}"


def name_problem(name: str) -> str | None:
    """Return why a new handler cannot have a name of this length: a function in a module may have more."""
    if len(name) <= MAX_HANDLER_NAME or is_entrypoint(name):
        return None
    return (
        f"{name[:MAX_NAME]!r} is too long for a handler: its name has at most {MAX_HANDLER_NAME} characters,"
        f" this one {len(name)}"
    )


def is_entrypoint(name: str) -> bool:
    return len(name) <= MAX_NAME and _ENTRYPOINT.fullmatch(name) is not None


def _check_form(name: str) -> None:
    if not is_entrypoint(name):
        raise EntrypointInvalid(
            f"{name!r} is not an entrypoint: write 'module.function', with public names and at most"
            f" {MAX_NAME} characters"
        )


def not_allowed(name: str, modules: Sequence[str]) -> str:
    if not _ENTRYPOINT.fullmatch(name):
        return ""
    allowed = f"functions of {format_list(modules)}" if modules else "no module"
    return f"the module {name.rpartition('.')[0]!r} is not allowed here (--handlers allows {allowed})"


class Entrypoints:
    """The functions that tasks may name: all of the allowed modules."""

    def __init__(self) -> None:
        # By the name that tasks use: the stem of a file. Two files may have the same stem.
        self._modules: dict[str, list[ModuleType]] = {}
        # By the names that Python has for them.
        self._imported: set[str] = set()

    def __bool__(self) -> bool:
        return bool(self._modules)

    def allow(self, module: ModuleType) -> None:
        """Allow the functions of a module and, if it is a package, of its submodules."""
        modules = self._modules.setdefault(public_module_name(module.__name__), [])
        # A file that is named by its path, and imported by its name as well, is one.
        if not any(module is one or _have_same_file(module, one) for one in modules):
            modules.append(module)
        self._imported.add(module.__name__)

    def modules(self) -> list[str]:
        return sorted(self._modules)

    def packages(self) -> list[str]:
        return [
            name for name in self.modules() if any(hasattr(one, "__path__") for one in self._modules[name])
        ]

    def functions(self) -> dict[str, FunctionType]:
        return {
            f"{name}.{key}": value
            for name, modules in self._modules.items()
            for module in modules
            for key, value in vars(module).items()
            if not key.startswith("_") and self._is_own(value) and mark_of(value) is None
        }

    def covers(self, name: str) -> bool:
        """Return whether a name is in an allowed module or a package, whether or not the function exists."""
        module = name.rpartition(".")[0]
        return _ENTRYPOINT.fullmatch(name) is not None and (
            module in self._modules or self._is_submodule(module)
        )

    def needs_import(self, name: str) -> bool:
        """Return whether a submodule has to be imported to find this entrypoint."""
        module = name.rpartition(".")[0]
        return self.covers(name) and module not in self._modules and module not in sys.modules

    def load(self, name: str) -> Callable[..., Any]:
        """Return the function of an entrypoint, or raise `HandlerNotFound` with the reason."""
        module_name, _, key = name.rpartition(".")
        if not self.covers(name):
            raise HandlerNotFound(not_allowed(name, self.modules()))
        modules = self._modules.get(module_name) or [self._import(module_name, name)]
        values = [vars(module)[key] for module in modules if key in vars(module)]
        if not values:
            hint = did_you_mean(key, [one for one in vars(modules[0]) if not one.startswith("_")])
            raise HandlerNotFound(
                f"the module {module_name!r} has no function {key!r}{f': {hint}' if hint else ''}"
            )
        if any(one is not values[0] for one in values):
            files = format_list([str(module.__file__) for module in modules])
            raise HandlerNotFound(f"{name!r} is ambiguous: {files} have the same name; rename one of them")
        return self._checked(values[0], name)

    def _checked(self, value: Any, name: str) -> Callable[..., Any]:
        mark = mark_of(value)
        if mark is not None and mark.name != name:
            raise HandlerNotFound(f"{name!r} is the handler {mark.name!r}: use that name")
        if mark is None and not inspect.isfunction(value):
            kind = type(value).__name__
            if inspect.isclass(value):
                kind = "class"
            raise HandlerNotFound(f"{name!r} is not a function: it is a {kind}")
        if mark is None and not self._is_own(value):
            raise HandlerNotFound(
                f"{name!r} is a function of the module {value.__module__!r}, which is not allowed here: it is"
                " only imported there"
            )
        function: Callable[..., Any] = value
        return function

    def _is_own(self, value: Any) -> bool:
        """Return whether it is a function that is defined in an allowed module or a submodule."""
        return inspect.isfunction(value) and (
            value.__module__ in self._imported or self._is_submodule(value.__module__ or "")
        )

    def _is_submodule(self, module: str) -> bool:
        package = module.rpartition(".")[0]
        while package:
            if any(hasattr(one, "__path__") for one in self._modules.get(package, ())):
                return True
            package = package.rpartition(".")[0]
        return False

    def _import(self, module: str, name: str) -> ModuleType:
        try:
            return import_source(module, f"the module {module!r} of {name!r}")
        except HandlerInvalid as error:
            raise HandlerNotFound(str(error)) from error


def _have_same_file(module: ModuleType, other: ModuleType) -> bool:
    files = [getattr(one, "__file__", None) for one in (module, other)]
    return None not in files and len({Path(str(file)).resolve() for file in files}) == 1
