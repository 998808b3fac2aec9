"""What the function of a task takes, as far as the process that makes the task can see it.

A wrong keyword is reported where the task is made, not by a worker. If it is not certain what the function
takes, nothing is reported: the worker checks every call.
"""

from __future__ import annotations

import ast
from functools import lru_cache
from typing import TYPE_CHECKING, Any, Final, NamedTuple

from dagmaster.errors import HandlerInvalid
from dagmaster.errors.suggestions import did_you_mean
from dagmaster.sdk.entrypoint_sources import find_definition, loaded_function
from dagmaster.sdk.handler_context import HandlerContext
from dagmaster.sdk.handler_decorator import entrypoint_spec
from dagmaster.sdk.handler_mocks import active_mock
from dagmaster.sdk.handler_signatures import CONTEXT_NAMES

if TYPE_CHECKING:
    from collections.abc import Callable, Collection

    from dagmaster.sdk.handler_signatures import Signature

_PLAIN: Final = frozenset(
    {"Any", "bool", "bytes", "dict", "float", "int", "list", "object", "set", "str", "tuple"}
)


class Parameters(NamedTuple):
    """The names that a function takes (None: any), and for each required one the names that give it."""

    known: frozenset[str] | None
    required: tuple[frozenset[str], ...]

    def problem(self, names: Collection[str]) -> str:
        unknown = [] if self.known is None else [name for name in names if name not in self.known]
        if unknown:
            hint = did_you_mean(unknown[0], self.known or ()) if self.known else "it takes no arguments"
            return f"the function has no parameter {unknown[0]!r}{f' ({hint})' if hint else ''}"
        missing = [min(spellings) for spellings in self.required if spellings.isdisjoint(names)]
        return f"the argument {missing[0]!r} is missing" if missing else ""


def argument_problem(function: Callable[..., Any] | None, entrypoint: str, names: Collection[str]) -> str:
    """Return why a function cannot be called with arguments of these names; "" if it can, or is not known.

    No module is imported.
    """
    if active_mock(entrypoint) is not None:
        return ""
    function = function or loaded_function(entrypoint)
    if function is not None:
        parameters = _inspect(function, entrypoint)
    else:
        parameters = _read_source(entrypoint)
        if parameters is not None and parameters.problem(names):
            # The file may have been edited since it was read.
            _read_source.cache_clear()
            parameters = _read_source(entrypoint)
    return "" if parameters is None else parameters.problem(names)


def typed_signature(function: Callable[..., Any] | None, entrypoint: str) -> Signature | None:
    """Return the signature that the worker will check values with; None if it is not known, or has no types.

    No module is imported.
    """
    if active_mock(entrypoint) is not None:
        return None
    function = function or loaded_function(entrypoint)
    signature = None if function is None else _read_signature(function, entrypoint)
    return signature if signature is not None and signature.has_types else None


@lru_cache(maxsize=1_000)
def _inspect(function: Callable[..., Any], entrypoint: str) -> Parameters | None:
    signature = _read_signature(function, entrypoint)
    return None if signature is None else Parameters(signature.known(), tuple(signature.required_spellings()))


@lru_cache(maxsize=1_000)
def _read_signature(function: Callable[..., Any], entrypoint: str) -> Signature | None:
    try:
        return entrypoint_spec(function, entrypoint).signature
    except (HandlerInvalid, TypeError, ValueError):
        # The worker reports what is wrong with the function itself.
        return None


@lru_cache(maxsize=1_000)
def _read_source(entrypoint: str) -> Parameters | None:
    definition = find_definition(entrypoint)
    return None if definition is None else _read_definition(definition)


def _read_definition(function: ast.FunctionDef | ast.AsyncFunctionDef) -> Parameters | None:
    arguments = function.args
    if arguments.posonlyargs or arguments.vararg is not None:
        return None
    first_default = len(arguments.args) - len(arguments.defaults)
    defaults = [*[None] * first_default, *arguments.defaults, *arguments.kw_defaults]
    known: set[str] = set()
    required: list[frozenset[str]] = []
    for argument, default in zip([*arguments.args, *arguments.kwonlyargs], defaults, strict=True):
        annotation = argument.annotation
        if argument.arg in CONTEXT_NAMES if annotation is None else _is_context(annotation):
            continue
        if isinstance(default, ast.Call) or not _is_plain(annotation):
            # It may have another name, or be the context: only the imported module tells.
            return None
        known.add(argument.arg)
        if default is None:
            required.append(frozenset({argument.arg}))
    return Parameters(None if arguments.kwarg is not None else frozenset(known), tuple(required))


def _is_context(annotation: ast.expr) -> bool:
    return ast.unparse(annotation).rpartition(".")[2] == HandlerContext.__name__


def _is_plain(annotation: ast.expr | None) -> bool:
    """Return whether an annotation has only names that mean the same in every module."""
    names = (
        () if annotation is None else [node.id for node in ast.walk(annotation) if isinstance(node, ast.Name)]
    )
    is_text = annotation is not None and any(
        isinstance(node, ast.Attribute) or (isinstance(node, ast.Constant) and node.value is not None)
        for node in ast.walk(annotation)
    )
    return not is_text and _PLAIN.issuperset(names)
