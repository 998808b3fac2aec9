"""The options of tasks in Python: what they are, what `@task` declares, and what a call adds to it.

They are the keys of a task in a workflow file, and go into definitions as they are. Nothing is imported for
the options of a function that is named by text.
"""

from __future__ import annotations

import ast
import contextlib
from functools import lru_cache
from typing import TYPE_CHECKING, Any, Final, Literal, NamedTuple, TypedDict

from dagmaster.authoring.model_reader import read_model
from dagmaster.authoring.schema import TaskModel
from dagmaster.authoring.source_document import document_from_data
from dagmaster.errors import EntrypointInvalid, HandlerInvalid
from dagmaster.errors.source_map import truncate
from dagmaster.sdk.entrypoint_sources import find_definition, loaded_function, source_version
from dagmaster.sdk.entrypoints import function_name
from dagmaster.sdk.handler_decorator import (
    check_entrypoint,
    check_queue,
    check_timeout,
    mark_of,
)
from dagmaster.sdk.json_forms import short_repr
from dagmaster.sdk.retry_options import read_retry

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from dagmaster.authoring.python.futures import Dependency
    from dagmaster.engine.retry import RetryPolicy

    Retry = RetryPolicy | Mapping[str, Any] | int | Literal["none"]


class DecoratorOptions(TypedDict, total=False):
    """The options of tasks that `@task` takes."""

    queue: str | None
    retry: Retry | None
    timeout_seconds: float | None


class TaskOptions(DecoratorOptions, total=False):
    """The keys of a task in a workflow file, as options in Python. A test compares them with the schema."""

    allow_failure: bool
    dispatch_timeout_seconds: float | None
    code_fingerprint: str | None


class CallOptions(TaskOptions, total=False):
    """The options of the nodes that calls of a `@task` make; the last four go with `map`."""

    name: str | None
    description: str | None
    depends_on: Dependency | list[Dependency] | None
    max_parallel: int | None
    tolerate_failures: int | str | None
    on_item_error: Literal["fail", "tolerate"] | None
    fail_fast: bool | None


TASK_OPTIONS: Final = tuple(TaskOptions.__annotations__)
"""In the order in which definitions have them."""
DECORATOR_OPTIONS: Final = tuple(DecoratorOptions.__annotations__)
# What `ast.literal_eval` raises of an expression that is no literal, or has no value, such as `{[]: 1}`.
_NO_LITERAL: Final = (ValueError, TypeError, SyntaxError, MemoryError, RecursionError)
_NO_RETRY: Final = {"max_attempts": 1}
_NONE: Final[Mapping[str, Any]] = {}
CHECKED: Final[set[str]] = set()
"""Names that were checked: 100,000 tasks of one function need one check."""
MAX_CHECKED: Final = 10_000
_MAX_SHOWN: Final = 100
_MERGED: Final[dict[tuple[Any, ...], tuple[Mapping[str, Any], Mapping[str, Any]]]] = {}
"""Options with what they were added to: 100,000 tasks with the same options share them."""
_LAST: Final[list[tuple[Mapping[str, Any], Mapping[str, Any], Mapping[str, Any]]]] = [(_NONE, _NONE, _NONE)]
"""The last of these: a loop makes tasks with the same options, and comparing is quicker than a look-up."""
FUNCTIONS: Final[dict[str, Callable[..., Any]]] = {}
"""The functions that tasks were made of in this process, by entrypoint: they are run here without an
import."""


class _Function(NamedTuple):
    """What tasks of one function have in common."""

    name: str
    function: Callable[..., Any] | None
    options: Mapping[str, Any]
    node_name: str | None
    constants: Mapping[str, Any]


@lru_cache(maxsize=1_000)
def read_function(callback: Any) -> _Function:
    """Return what tasks of a function have in common; raise `HandlerInvalid` if it is not a function."""
    from dagmaster.authoring.python.tasks import NodeCall, TaskFunction

    mark = mark_of(callback)
    written = constants = _NONE
    function = callback
    if isinstance(callback, NodeCall):
        name, written, constants = callback.handler, callback.options, callback.constants
        if not isinstance(callback, TaskFunction):
            function = None
    elif mark is not None:
        name = mark.name
    elif hasattr(callback, "__qualname__"):
        name = function_name(callback)
    else:
        raise no_entrypoint(callback)
    check_entrypoint(name)
    if function is not None:
        FUNCTIONS[name] = function
    options: dict[str, Any] = {}
    if mark is not None:
        options = {one: getattr(mark, one) for one in DECORATOR_OPTIONS}
    options |= {one: value for one, value in written.items() if one in TASK_OPTIONS}
    return _Function(
        name=name,
        function=function,
        options=_in_order(check_options(options, name)),
        node_name=written.get("name"),
        constants=constants,
    )


def declared_options(entrypoint: str) -> Mapping[str, Any]:
    """Return the options of `@task` of a function that is named by text."""
    function = loaded_function(entrypoint)
    if function is None:
        return _options_in_source(entrypoint, source_version(entrypoint))
    mark = mark_of(function)
    return _NONE if mark is None or mark.name != entrypoint else _options_of(function)


@lru_cache(maxsize=1_000)
def _options_of(function: Any) -> Mapping[str, Any]:
    options = read_function(function).options
    return {one: value for one, value in options.items() if one in DECORATOR_OPTIONS}


@lru_cache(maxsize=1_000)
def _options_in_source(entrypoint: str, _version: tuple[int, int] | None) -> Mapping[str, Any]:
    try:
        return _in_order(check_options(_read_options(entrypoint), entrypoint))
    except HandlerInvalid:
        # The import of the module fails on a worker, which reports it.
        return _NONE


def _read_options(entrypoint: str) -> Mapping[str, Any]:
    """Return the options of a function's `@task` decorator from its source, without importing its module.

    Only literals are read: what a name or a call in a decorator stands for is known when the module is
    imported. If one option is not a literal, none of them applies: a task has all options of its function, or
    none.
    """
    definition = find_definition(entrypoint)
    if definition is None:
        return {}
    calls = [one for one in definition.decorator_list if isinstance(one, ast.Call)]
    keywords = [keyword for call in calls if _is_task(call) for keyword in call.keywords]
    if any(keyword.arg is None for keyword in keywords):
        # `**options` may have any of them.
        return {}
    try:
        return {one.arg: ast.literal_eval(one.value) for one in keywords if one.arg in DECORATOR_OPTIONS}
    except _NO_LITERAL:
        return {}


def _is_task(decorator: ast.Call) -> bool:
    return ast.unparse(decorator.func).rpartition(".")[2] == "task"


def merged_options(declared: Mapping[str, Any], options: Mapping[str, Any]) -> Mapping[str, Any] | None:
    """Return what `add_options` returned for these options; None if not called, or if not hashable."""
    # 1 equals True, and is no value of an option.
    if type(options.get("allow_failure", True)) is not bool:
        return None
    last_declared, last_options, merged = _LAST[0]
    if last_declared is declared and last_options == options:
        return merged
    try:
        known = _MERGED.get((id(declared), *options.items()))
    except TypeError:
        return None
    if known is None or known[0] is not declared:
        return None
    _LAST[0] = (declared, options, known[1])
    return known[1]


def add_options(declared: Mapping[str, Any], options: Mapping[str, Any], label: str) -> Mapping[str, Any]:
    """Return a function's options with a task's own; raise `HandlerInvalid` about a wrong one."""
    merged = _in_order({**declared, **check_options(options, label)})
    if len(_MERGED) < MAX_CHECKED:
        # The keys of a retry cannot be part of a key.
        with contextlib.suppress(TypeError):
            _MERGED[id(declared), *options.items()] = (declared, merged)
    return merged


def check_options(options: Mapping[str, Any], label: str) -> dict[str, Any]:
    """Return the options that are set, as definitions have them; raise `HandlerInvalid` about wrong ones."""
    checked = {one: value for one, value in options.items() if value is not None}
    if checked.get("allow_failure") is False:
        del checked["allow_failure"]
    check_queue(checked.get("queue"), label)
    check_timeout(checked.get("timeout_seconds"), label)
    if "retry" in checked:
        policy = read_retry(checked["retry"], label)
        checked["retry"] = _NO_RETRY if isinstance(policy, str) else policy
    others = {one: value for one, value in checked.items() if one not in DECORATOR_OPTIONS}
    if others:
        task = {"handler": label, **others}
        _, problems = read_model(document_from_data(task), TaskModel, task, ())
        if problems:
            raise HandlerInvalid(f"{label}: {problems[0].message}")
    return checked


def _in_order(options: Mapping[str, Any]) -> Mapping[str, Any]:
    return {one: options[one] for one in TASK_OPTIONS if one in options}


def check_written_name(name: str) -> None:
    """Raise `EntrypointInvalid` if a text does not name a function of a module; remember that it does."""
    check_entrypoint(name)
    if "." not in name:
        raise EntrypointInvalid(
            f"{name!r} is not an entrypoint: write 'module.function', or give the function. A handler with"
            f" another name: handler_task({name!r})"
        )
    if len(CHECKED) < MAX_CHECKED:
        CHECKED.add(name)


def no_entrypoint(callback: Any) -> EntrypointInvalid:
    """Return the error about what is neither a function nor the name of one."""
    return EntrypointInvalid(
        f"{short_repr(callback)} is not an entrypoint: give a function, or its name as 'module.function'"
    )


def check_keywords(maker: str, callback: Any, kwargs: Any, options: Mapping[str, Any]) -> None:
    """Raise TypeError about keywords that are no options: most are arguments of the function."""
    unknown = {name: value for name, value in options.items() if name not in TASK_OPTIONS}
    if not unknown:
        return
    arguments = {**kwargs, **unknown} if isinstance(kwargs, dict) else unknown
    listed = ", ".join(f"{name!r}: {short_repr(value)}" for name, value in arguments.items())
    mapping = f"{'kwargs=' if maker == 'Task' else ''}{{{truncate(listed, _MAX_SHOWN)}}}"
    raise TypeError(
        f"{', '.join(unknown)}: not an option of a task ({', '.join(sorted(['name', *TASK_OPTIONS]))})."
        " Arguments of the"
        f" function go into the mapping: {maker}({shown(callback)}, {mapping})"
    )


def shown(callback: Any) -> str:
    """Return a name of a function for messages."""
    return str(getattr(callback, "__name__", None) or short_repr(callback))
