"""The source of functions by their entrypoints, without an import: submitters may lack what it needs.

Files are found as an import would find them. A function is taken only if its source certainly is the one that
a worker sees: defined once, and decorated by nothing but `dagmaster`.
"""

from __future__ import annotations

import ast
import inspect
import io
import os
import sys
from functools import lru_cache
from importlib.machinery import PathFinder, SourceFileLoader
from typing import TYPE_CHECKING, Any, Final

from dagmaster.sdk.module_names import public_module_name

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

_Function = ast.FunctionDef | ast.AsyncFunctionDef
# A folder that cannot be read, a file that is no Python, a package in several places.
_NO_SOURCE: Final = (ImportError, OSError, SyntaxError, ValueError, KeyError, AttributeError, RecursionError)


def loaded_function(name: str) -> Callable[..., Any] | None:
    """Return the function of an entrypoint if its module, or the script that runs, is imported already."""
    module_name, _, function_name = name.rpartition(".")
    is_main = module_name in {"__main__", public_module_name("__main__")}
    module = sys.modules.get("__main__" if is_main else module_name)
    function = None if module is None else vars(module).get(function_name)
    return function if callable(function) else None


def read_source(name: str) -> str | None:
    """Return the source of the function of an entrypoint from its file; None if it is not certain."""
    definition = _find(name)
    if definition is None:
        return None
    source, function = definition
    first = min([function.lineno, *(decorator.lineno for decorator in function.decorator_list)])
    return "".join(inspect.getblock(io.StringIO(source).readlines()[first - 1 :]))


def find_definition(name: str) -> ast.FunctionDef | ast.AsyncFunctionDef | None:
    definition = _find(name)
    return None if definition is None else definition[1]


def source_version(name: str) -> tuple[int, int] | None:
    path = _source_path(name.rpartition(".")[0])
    if path is None:
        return None
    try:
        status = os.stat(path)  # noqa: PTH116 - each task that is made asks for it
    except OSError:
        # The module may be in another place now.
        _source_path.cache_clear()
        return None
    return status.st_mtime_ns, status.st_size


@lru_cache(maxsize=1_000)
def _source_path(module: str) -> str | None:
    try:
        loader = _find_loader(module)
    except _NO_SOURCE:
        return None
    return None if loader is None else loader.path


def _find(name: str) -> tuple[str, _Function] | None:
    module, _, function = name.rpartition(".")
    try:
        source = _read_module(module)
        return None if source is None else _find_function(source, function)
    except _NO_SOURCE:
        return None


def _read_module(name: str) -> str | None:
    loader = _find_loader(name)
    return None if loader is None else loader.get_source(name)


def _find_loader(name: str) -> SourceFileLoader | None:
    path: Any = None
    loader: object = None
    parts = name.split(".")
    for depth in range(1, len(parts) + 1):
        spec = PathFinder.find_spec(".".join(parts[:depth]), path)
        if spec is None:
            return None
        path, loader = spec.submodule_search_locations, spec.loader
        if path is None and depth < len(parts):
            return None
    return loader if isinstance(loader, SourceFileLoader) else None


def _find_function(source: str, name: str) -> tuple[str, _Function] | None:
    tree = ast.parse(source)
    bindings = [statement for statement in tree.body if name in _bound_names(statement)]
    function = bindings[0] if len(bindings) == 1 else None
    if not isinstance(function, _Function) or not _has_own_decorators(tree, function):
        return None
    return source, function


def _bound_names(statement: ast.stmt) -> Iterator[str]:
    """Yield the names that a statement of a module may give a value to."""
    if isinstance(statement, _Function | ast.ClassDef):
        yield statement.name
        return
    for node in ast.walk(statement):
        if isinstance(node, ast.Name) and isinstance(node.ctx, ast.Store | ast.Del):
            yield node.id
        elif isinstance(node, _Function | ast.ClassDef):
            yield node.name
        elif isinstance(node, ast.alias):
            yield node.asname or node.name.partition(".")[0]


def _has_own_decorators(tree: ast.Module, function: _Function) -> bool:
    """Return whether all decorators are of `dagmaster`: they do not change the source that a worker sees."""
    own = {"dagmaster"}
    for statement in tree.body:
        if isinstance(statement, ast.ImportFrom) and statement.module == "dagmaster":
            own |= {one.asname or one.name for one in statement.names}
    return all(_root_name(decorator) in own for decorator in function.decorator_list)


def _root_name(decorator: ast.expr) -> str:
    while isinstance(decorator, ast.Call | ast.Attribute):
        decorator = decorator.func if isinstance(decorator, ast.Call) else decorator.value
    return decorator.id if isinstance(decorator, ast.Name) else ""
