"""What the function of a task takes, as far as the process that makes the task can see it.

A wrong keyword is reported where the task is made, not by a worker. If it is not certain what the function takes,
nothing is reported: the worker checks every call.
"""

from __future__ import annotations

import ast
from typing import TYPE_CHECKING, Any, NamedTuple

from dagmaster.authoring.entrypoint_sources import find_definition, loaded_function
from dagmaster.authoring.handler_context import HandlerContext
from dagmaster.authoring.handler_decorator import entrypoint_spec
from dagmaster.authoring.handler_mocks import active_mock
from dagmaster.authoring.suggestions import did_you_mean
from dagmaster.errors import HandlerInvalid

if TYPE_CHECKING:
    from collections.abc import Callable, Collection


class Parameters(NamedTuple):
    """The names that a function takes, None: any, and for each required one the names that it may be given by."""

    known: frozenset[str] | None
    required: tuple[frozenset[str], ...]

    def problem(self, names: Collection[str]) -> str:
        """Return what is wrong with arguments of these names; "" if nothing is."""
        unknown = [] if self.known is None else [name for name in names if name not in self.known]
        if unknown:
            hint = did_you_mean(unknown[0], self.known or ()) if self.known else "it takes no arguments"
            return f"the function has no parameter {unknown[0]!r}{f' ({hint})' if hint else ''}"
        missing = [min(spellings) for spellings in self.required if spellings.isdisjoint(names)]
        return f"the argument {missing[0]!r} is missing" if missing else ""


def parameters_of(function: Callable[..., Any] | None, entrypoint: str) -> Parameters | None:
    """Return what the function of an entrypoint takes; None if that is not known here. No module is imported."""
    if active_mock(entrypoint) is not None:
        return None
    function = function or loaded_function(entrypoint)
    if function is None:
        definition = find_definition(entrypoint)
        return None if definition is None else _read_definition(definition)
    try:
        signature = entrypoint_spec(function, entrypoint).signature
    except HandlerInvalid:
        return None
    return Parameters(signature.known(), tuple(signature.required_spellings()))


def _read_definition(function: ast.FunctionDef | ast.AsyncFunctionDef) -> Parameters | None:
    arguments = function.args
    if arguments.posonlyargs or arguments.vararg is not None:
        return None
    first_default = len(arguments.args) - len(arguments.defaults)
    defaults = [*[None] * first_default, *arguments.defaults, *arguments.kw_defaults]
    known: set[str] = set()
    required: list[frozenset[str]] = []
    for argument, default in zip([*arguments.args, *arguments.kwonlyargs], defaults, strict=True):
        annotation = "" if argument.annotation is None else ast.unparse(argument.annotation)
        if "Annotated" in annotation or isinstance(default, ast.Call):
            # It may have another name.
            return None
        if HandlerContext.__name__ in annotation:
            continue
        known.add(argument.arg)
        if default is None:
            required.append(frozenset({argument.arg}))
    return Parameters(None if arguments.kwarg is not None else frozenset(known), tuple(required))
