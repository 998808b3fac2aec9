"""`@task`: a function that is a handler, and whose calls in a workflow function are nodes.

Outside of a workflow function a call is an ordinary call of the function.
"""

from __future__ import annotations

import copy
import functools
import inspect
import sys
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any, Final, Generic, ParamSpec, TypeVar, overload

from dagmaster.authoring.python.futures import Future, futures_in
from dagmaster.authoring.python.graph_nodes import Node, active_builder, note_missed_call, require_builder
from dagmaster.authoring.python.places import reject
from dagmaster.authoring.python.task_options import CallOptions
from dagmaster.errors import HandlerInvalid
from dagmaster.errors.suggestions import did_you_mean
from dagmaster.sdk.entrypoints import function_name, name_problem
from dagmaster.sdk.handler_decorator import mark_task, spec_of
from dagmaster.sdk.retry_options import read_retry

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Callable, Coroutine, Generator, Iterable
    from typing import Literal, Self, Unpack

    from dagmaster.authoring.python.task_options import Retry
    from dagmaster.sdk.handler_decorator import HandlerSpec


P = ParamSpec("P")
R = TypeVar("R")
C = TypeVar("C")

_FAN_OUT_KEYS: Final = frozenset({"max_parallel", "tolerate_failures", "on_item_error", "fail_fast"})
_CALL_OPTIONS: Final = tuple(CallOptions.__annotations__)
_NODE_OPTIONS: Final = frozenset({"name", "depends_on"})


class NodeCall:
    """What a workflow function calls to make a task: the name of a handler, and options of its nodes."""

    handler: str
    options: Mapping[str, Any]
    constants: Mapping[str, Any]

    def with_options(self, **options: Unpack[CallOptions]) -> Self:
        """Return the task with these keys for the nodes that are made of it. The last four go with `map`."""
        unknown = next((name for name in options if name not in _CALL_OPTIONS), None)
        if unknown is not None:
            raise TypeError(f"with_options() has no option {unknown!r}: {', '.join(_CALL_OPTIONS)}")
        changes = {name: value for name, value in options.items() if value is not None}
        if "retry" in changes:
            try:
                # {} is a policy of defaults; 0 is not a policy.
                retry = options["retry"]
                changes["retry"] = read_retry("none" if retry in (None, 0) else retry, self.handler)
            except HandlerInvalid as error:
                raise reject(str(error)) from None
        changed = copy.copy(self)
        changed.options = {**self.options, **changes}
        return changed

    def partial(self, /, **constants: Any) -> Self:
        """Return the task with these arguments, for `expand`."""
        changed = copy.copy(self)
        changed.constants = {**self.constants, **constants}
        return changed

    def _params(self, arguments: dict[str, Any]) -> dict[str, Any]:
        return arguments

    def _label(self) -> str:
        return self.handler.rpartition(".")[2]

    def _add(self, arguments: dict[str, Any]) -> Node:
        builder = require_builder(f"a node of {self.handler}")
        wrong = sorted(_FAN_OUT_KEYS & self.options.keys())
        if wrong:
            raise reject(
                f"{wrong[0]} goes with a fan-out", f"call {self._label()}.map(items), or remove {wrong[0]}"
            )
        return builder.add("task", self._label(), self._keys(arguments), **self._node_options())

    def _add_fan_out(self, parameter: str, items: Any, arguments: dict[str, Any]) -> Node:
        builder = require_builder(f"{self._label()}.map()")
        if not isinstance(items, Future | list | tuple):
            items = self._read_items(items)
        with builder.for_each_item() as (item, _):
            child = Node(
                "task", self._label(), self._keys({parameter: item, **arguments}), level=builder.level
            )
        keys = {key: value for key, value in self.options.items() if key in _FAN_OUT_KEYS | {"description"}}
        keys |= {"source": items, "task": child}
        child.keys.pop("description", None)
        return builder.add("fan_out", self._label(), keys, **self._node_options())

    def _read_items(self, items: Any) -> list[Any]:
        if hasattr(items, "__iter__") and not isinstance(items, str | bytes | Mapping | set | frozenset):
            return list(items)
        label = self._label()
        hint = f"to run it once, call {label}()"
        if isinstance(items, Mapping):
            hint = f"make a list of it: {label}.map(items.items())"
        elif isinstance(items, set | frozenset):
            hint = f"make a list of it: {label}.map(sorted(items))"
        message = (
            f"the items of {label} are a list or the result of a task, not of type {type(items).__name__}"
        )
        raise reject(message, hint)

    def _keys(self, arguments: dict[str, Any]) -> dict[str, Any]:
        require_builder(self.handler).tasks[self.handler] = self
        params = self._params({**self.constants, **arguments})
        options = {
            key: value
            for key, value in self.options.items()
            if key not in _FAN_OUT_KEYS and key not in _NODE_OPTIONS
        }
        return {"handler": self.handler, **({"params": params} if params else {}), **options}

    def _node_options(self) -> dict[str, Any]:
        return {key: value for key, value in self.options.items() if key in _NODE_OPTIONS}


class TaskFunction(NodeCall, Generic[P, R, C]):
    """A function that is decorated with `@task`."""

    def __init__(self, function: Callable[..., Any], handler: str) -> None:
        functools.update_wrapper(self, function)
        self.handler = handler
        self.function = function
        self.options = {}
        self.constants = {}

    @overload
    def __call__(self, *args: P.args, **kwargs: P.kwargs) -> C: ...

    @overload
    def __call__(self, *args: Any, **kwargs: Any) -> Future[R]: ...

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        """Call the function; in a workflow function, add a node and return the future of its result."""
        if active_builder() is None:
            hint = note_missed_call()
            if any(True for _ in futures_in([args, kwargs])):
                raise reject(
                    f"{self._label()}() got a future outside of a workflow: the function needs a value", hint
                )
            return self.function(*args, **kwargs)
        return self.submit(*args, **kwargs)

    def submit(self, *args: Any, **kwargs: Any) -> Future[R]:
        """Add a node and return the future of its result, as a call in a workflow function does.

        For type checkers: a call without a future among its arguments has the type of the function's result.
        """
        return self._add(self._bind(args, kwargs)).result()

    def map(self, items: Iterable[Any] | Future[Iterable[Any]], /, **constants: Any) -> Future[list[R]]:
        """Run the task for each item: a fan-out.

        The item is the first argument; other arguments are constants.
        """
        names = [name for name in self._signature().parameters if name not in self.constants]
        if not names:
            raise reject(f"{self._label()}() has no parameter for the items")
        return self._fan_out(names[0], items, constants)

    def expand(self, /, **items: Iterable[Any] | Future[Iterable[Any]]) -> Future[list[R]]:
        """Run the task for each item of one argument: a fan-out. Write constants in `partial` before it."""
        if len(items) != 1:
            hint = "expand one list whose items have all values, and take the item in the @task"
            raise reject(f"expand() takes the items of one argument, not of {len(items)}", hint)
        ((parameter, values),) = items.items()
        return self._fan_out(parameter, values, {})

    @functools.cached_property
    def spec(self) -> HandlerSpec:
        return spec_of(self)

    def _fan_out(self, parameter: str, items: Any, constants: dict[str, Any]) -> Future[Any]:
        return self._add_fan_out(parameter, items, constants).result()

    def _params(self, arguments: dict[str, Any]) -> dict[str, Any]:
        return self._bind((), arguments)

    def _bind(self, args: tuple[Any, ...], kwargs: dict[str, Any]) -> dict[str, Any]:
        signature = self._signature()
        rest = next((one.name for one in signature.parameters.values() if one.kind is one.VAR_KEYWORD), None)
        try:
            bound = signature.bind(*args, **{**self.constants, **kwargs} if args else kwargs)
        except TypeError as error:
            unknown = [name for name in kwargs if name not in signature.parameters]
            if unknown and rest is None:
                hint = did_you_mean(unknown[0], signature.parameters)
                raise reject(f"{self._label()} has no parameter {unknown[0]!r}", hint) from None
            raise reject(f"{self._label()}(): {error}", f"it is {self._label()}{signature}") from None
        arguments = dict(bound.arguments)
        if rest is not None:
            arguments |= arguments.pop(rest, {})
        return arguments

    def _signature(self) -> inspect.Signature:
        """Return the signature without the parameters that the worker fills."""
        signature = inspect.signature(self.function)
        contexts = self.spec.signature.contexts
        return signature.replace(
            parameters=[one for one in signature.parameters.values() if one.name not in contexts]
        )


class HandlerTask(NodeCall):
    """A registered handler, by name: what YAML calls with `handler:`."""

    def __init__(self, handler: str) -> None:
        problem = name_problem(handler)
        if problem is not None:
            raise reject(problem)
        self.handler = handler
        self.options = {}
        self.constants = {}

    def __call__(self, /, **params: Any) -> Future[Any]:
        """Add a node and return the future of its output."""
        return self._add(params).result()

    def expand(self, /, **items: Any) -> Future[list[Any]]:
        """Run the handler for each item of one param: a fan-out. Write constants in `partial` before it."""
        if len(items) != 1:
            raise reject(f"expand() takes the items of one param, not of {len(items)}")
        ((parameter, values),) = items.items()
        future: Future[list[Any]] = self._add_fan_out(parameter, values, {}).result()
        return future


def handler_task(handler: str) -> HandlerTask:
    """Return a task that runs a registered handler: `handler_task("raster.validate")(uri=uri)`."""
    return HandlerTask(handler)


@overload
def task(function: Callable[P, Coroutine[Any, Any, R]], /) -> TaskFunction[P, R, Coroutine[Any, Any, R]]: ...


@overload
def task(function: Callable[P, Generator[Any, Any, R]], /) -> TaskFunction[P, R, Generator[Any, Any, R]]: ...


@overload
def task(function: Callable[P, AsyncIterator[R]], /) -> TaskFunction[P, R, AsyncIterator[R]]: ...


@overload
def task(function: Callable[P, R], /) -> TaskFunction[P, R, R]: ...


@overload
def task(
    *,
    queue: str | None = None,
    retry: Retry | None = None,
    timeout_seconds: float | None = None,
    version: str | int = "1",
    isolation: Literal["process", "thread"] | None = None,
) -> _TaskDecorator: ...


def task(
    function: Callable[..., Any] | None = None,
    /,
    *,
    queue: str | None = None,
    retry: Retry | None = None,
    timeout_seconds: float | None = None,
    version: str | int = "1",
    isolation: str | None = None,
) -> Any:
    """Make a function a task: `@task` or `@task(retry=3, queue="light")`.

    It has the keys of `@handler`. The name of the handler is `module.function`; a worker runs it if its
    operator allowed the module (`--handlers`). The result is any JSON value, a model, a date …, but no set
    and no bytes. `retry`: a number of attempts, a policy, its keys as in YAML, or "none".
    """
    frame = sys._getframe(1)  # noqa: SLF001 - local names of postponed annotations

    def decorate(function: Callable[..., Any]) -> TaskFunction[Any, Any, Any]:
        if not inspect.isfunction(function):
            raise HandlerInvalid(f"a task is a function, not {function!r}")
        name = function_name(function)
        mark_task(
            function,
            name,
            frame,
            queue=queue,
            retry=retry,
            timeout_seconds=timeout_seconds,
            version=version,
            isolation=isolation,
        )
        return TaskFunction(function, name)

    return decorate if function is None else decorate(function)


if TYPE_CHECKING:

    class _TaskDecorator:
        """The type of `task(…)`: the same overloads."""

        @overload
        def __call__(
            self, function: Callable[P, Coroutine[Any, Any, R]], /
        ) -> TaskFunction[P, R, Coroutine[Any, Any, R]]: ...
        @overload
        def __call__(
            self, function: Callable[P, Generator[Any, Any, R]], /
        ) -> TaskFunction[P, R, Generator[Any, Any, R]]: ...
        @overload
        def __call__(
            self, function: Callable[P, AsyncIterator[R]], /
        ) -> TaskFunction[P, R, AsyncIterator[R]]: ...
        @overload
        def __call__(self, function: Callable[P, R], /) -> TaskFunction[P, R, R]: ...
        def __call__(self, function: Any, /) -> Any: ...
