"""What `@task` declares of the function of a task in code, or of the name of one.

Nothing is imported for it.
"""

from __future__ import annotations

from collections.abc import Callable  # noqa: TC003 - the type of a constant
from functools import lru_cache
from typing import TYPE_CHECKING, Any, Final, NamedTuple

from dagmaster.authoring.entrypoint_options import read_options
from dagmaster.authoring.python.tasks import NodeCall, TaskFunction
from dagmaster.errors import HandlerInvalid
from dagmaster.sdk.entrypoint_sources import loaded_function, source_version
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
    from collections.abc import Mapping

NO_RETRY: Final = {"max_attempts": 1}
CHECKED: Final[set[str]] = set()
"""Names that were checked: 100,000 tasks of one function need one check."""
MAX_CHECKED: Final = 10_000
FUNCTIONS: Final[dict[str, Callable[..., Any]]] = {}
"""The functions that tasks were made of in this process, by entrypoint: they are run here without an import."""


class _Function(NamedTuple):
    """What tasks of one function have in common."""

    name: str
    function: Callable[..., Any] | None
    queue: str | None
    timeout_seconds: float | None
    retry: dict[str, Any] | None
    allow_failure: bool
    node_name: str | None
    constants: Mapping[str, Any]


@lru_cache(maxsize=1_000)
def read_function(callback: Any) -> _Function:
    """Return what tasks of a function have in common; raise `HandlerInvalid` if it is none."""
    mark = mark_of(callback)
    call: NodeCall | None = callback if isinstance(callback, NodeCall) else None
    options: Mapping[str, Any] = {} if call is None else call.options
    if mark is None and call is None and not hasattr(callback, "__qualname__"):
        raise no_entrypoint(callback)
    name = call.handler if call is not None else mark.name if mark is not None else function_name(callback)
    check_name(name)
    if call is None or isinstance(call, TaskFunction):
        FUNCTIONS[name] = callback
    policy: Any = options.get("retry") or (
        None if mark is None or mark.retry is None else read_retry(mark.retry, name)
    )
    return _Function(
        name=name,
        function=callback if call is None or isinstance(call, TaskFunction) else None,
        queue=options.get("queue") or (None if mark is None else mark.queue),
        timeout_seconds=options.get("timeout_seconds") or (None if mark is None else mark.timeout_seconds),
        retry=NO_RETRY if policy == "none" else policy,
        allow_failure=bool(options.get("allow_failure")),
        node_name=options.get("name"),
        constants={} if call is None else call.constants,
    )


class _Options(NamedTuple):
    """What `@task` says of a function that is named by text."""

    queue: str | None = None
    timeout_seconds: float | None = None
    retry: dict[str, Any] | None = None


_NO_OPTIONS: Final = _Options()


def declared_options(entrypoint: str) -> _Options:
    """Return the options of `@task` of a function that is named by text."""
    function = loaded_function(entrypoint)
    if function is None:
        return _options_in_source(entrypoint, source_version(entrypoint))
    mark = mark_of(function)
    if mark is None or mark.name != entrypoint:
        return _NO_OPTIONS
    options = read_function(function)
    return _Options(options.queue, options.timeout_seconds, options.retry)


@lru_cache(maxsize=1_000)
def _options_in_source(entrypoint: str, _version: tuple[int, int] | None) -> _Options:
    options = read_options(entrypoint)
    try:
        check_queue(options.get("queue"), entrypoint)
        check_timeout(options.get("timeout_seconds"), entrypoint)
        policy: Any = None if options.get("retry") is None else read_retry(options["retry"], entrypoint)
    except HandlerInvalid:
        # The import of the module fails on a worker, which reports it.
        return _NO_OPTIONS
    retry = NO_RETRY if isinstance(policy, str) else policy
    return _Options(options.get("queue"), options.get("timeout_seconds"), retry)


def check_name(name: str) -> None:
    """Raise `HandlerInvalid` if it cannot be an entrypoint; remember that it can."""
    check_entrypoint(name)
    if len(CHECKED) < MAX_CHECKED:
        CHECKED.add(name)


def no_entrypoint(callback: Any) -> HandlerInvalid:
    """Return the error about what is neither a function nor the name of one."""
    return HandlerInvalid(
        f"{short_repr(callback)} is not an entrypoint: give a function, or its name as 'module.function'"
    )
