"""Handlers that a test replaced by name, in the runs of this process.

A worker of a fleet never looks here: only registries that `with_mocks` returns do, for runs in one
process.
"""

from __future__ import annotations

import contextlib
import copy
import functools
import inspect
import threading
import warnings
from dataclasses import replace
from typing import TYPE_CHECKING, Any, Final, Self, TypeVar

from dagmaster.errors import HandlerInvalid
from dagmaster.errors.suggestions import nearest, similar_handlers
from dagmaster.sdk.entrypoint_sources import loaded_function
from dagmaster.sdk.entrypoints import function_name
from dagmaster.sdk.handler_context import CURRENT_CONTEXT
from dagmaster.sdk.handler_decorator import HandlerStyle, check_entrypoint, entrypoint_spec, mark_of
from dagmaster.sdk.handler_registry import Registry
from dagmaster.text_format import format_count, format_list

if TYPE_CHECKING:
    from collections.abc import Callable

    from dagmaster.sdk.handler_decorator import HandlerSpec

F = TypeVar("F", bound="Callable[..., Any]")

_QUEUE: Final = "default"
"""The queue of a mock without an original. In one process it does not matter, and a task has one."""
_LOCK: Final = threading.Lock()
# Replaced as a whole, under the lock: a reader needs none.
_active: tuple[mock_handler, ...] = ()


class mock_handler:  # noqa: N801 - it is used like a function
    """Replace a handler or an entrypoint in the runs of this process, as a context manager or a decorator.

    `handler`: its name, or the function. `returns`: the result, or a function that gets the params by name
    and returns it. `raises`: the exception of every attempt. `calls` has the params of each attempt, also
    after the end; a list that is given as `calls=` is used for them. The params are checked like
    the replaced handler's; the result may be a part of its output. The last of several mocks of one handler
    is in effect.

    The name may be that of a handler that is not installed here. One that no run asked for, and that nothing
    here has, is probably misspelt: a `UserWarning` says so at the end.
    """

    def __init__(
        self,
        handler: str | Callable[..., Any],
        *,
        returns: Any = None,
        raises: BaseException | type[BaseException] | None = None,
        calls: list[dict[str, Any]] | None = None,
    ) -> None:
        if returns is not None and raises is not None:
            raise TypeError("a mock either returns or raises: give one of returns= and raises=")
        self.name = _name_of(handler)
        if callable(returns) and _is_coroutine_function(returns):
            label = getattr(returns, "__qualname__", None) or repr(returns)[:100]
            raise TypeError(
                f"mock_handler({self.name!r}): returns= is a value or a plain function, not the coroutine"
                " function"
                f" {label}: write `def` instead of `async def`"
            )
        self.returns = returns
        self.raises = raises
        self.calls: list[dict[str, Any]] = [] if calls is None else calls
        # The handlers that runs asked for meanwhile, and the registry that was asked last.
        self._asked: set[str] = set()
        self._registry: Registry | None = None

    def __enter__(self) -> Self:
        """Replace the handler, and forget earlier calls."""
        global _active  # noqa: PLW0603 - the state of this module
        with _LOCK:
            if self not in _active:
                self.calls.clear()
                self._asked.clear()
            _active = (*_active, self)
        return self

    def __exit__(self, *_exception: object) -> None:
        """Restore what was in effect before, whatever the order in which mocks end."""
        global _active  # noqa: PLW0603 - likewise
        with _LOCK:
            last = len(_active) - 1 - _active[::-1].index(self)
            _active = (*_active[:last], *_active[last + 1 :])
        if self not in _active and self._is_misspelt():
            near = nearest(self.name, similar_handlers(self.name, self._asked))
            hint = f"did you mean {near!r}?" if near else f"they used {format_list(sorted(self._asked))}"
            message = (
                f"mock_handler({self.name!r}): no run used it, and there is no such handler or function:"
                f" {hint}"
            )
            warnings.warn(message, stacklevel=2)

    def observe(self, names: tuple[str, ...], registry: Registry) -> None:
        self._asked.update(names)
        self._registry = registry

    def _is_misspelt(self) -> bool:
        """Return whether runs asked for other handlers alone, and nothing here has this name."""
        registry, self._registry = self._registry, None
        if registry is None or self.name in self._asked:
            return False
        return loaded_function(self.name) is None and self.name not in registry.served_names()

    def __call__(self, function: F) -> F:
        """Return the function with the handler replaced while it runs."""

        @functools.wraps(function)
        def call(*args: Any, **kwargs: Any) -> Any:
            with self:
                return function(*args, **kwargs)

        @functools.wraps(function)
        async def call_async(*args: Any, **kwargs: Any) -> Any:
            with self:
                return await function(*args, **kwargs)

        return call_async if inspect.iscoroutinefunction(function) else call  # type: ignore[return-value]

    def spec_for(self, original: HandlerSpec | None) -> HandlerSpec:
        """Return the handler that stands in for another, with its options and types if it is known."""
        if original is None:
            return replace(entrypoint_spec(_any_params(self), self.name), queue=_QUEUE)
        # A handler of the same kind: an executor remembers where it executes one, on the loop or a thread.
        is_blocking = original.style is HandlerStyle.PLAIN or inspect.isgeneratorfunction(original.function)
        style = HandlerStyle.PLAIN if is_blocking else HandlerStyle.ASYNC
        function = self._answer if is_blocking else self._answer_async
        # A test gives the part of the output that it needs.
        return replace(original, function=function, style=style, isolation=None, output_model=None)

    async def _answer_async(self, **arguments: Any) -> Any:
        return self._answer(**arguments)

    def _answer(self, **_arguments: Any) -> Any:
        # The params as they were sent: comparing them needs no models.
        context = CURRENT_CONTEXT.get()
        params: dict[str, Any] = {} if context is None else copy.deepcopy(dict(context.params))
        self.calls.append(params)
        if self.raises is not None:
            raise self.raises
        return self.returns(**copy.deepcopy(params)) if callable(self.returns) else self.returns

    def __repr__(self) -> str:
        return f"<mock_handler {self.name}: {format_count(len(self.calls), 'call')}>"


def with_mocks(registry: Registry) -> Registry:
    """Return a registry in which the mocks that are in effect replace handlers, whenever it is asked."""
    return MockableRegistry(registry)


def active_mock(*names: str) -> mock_handler | None:
    return next((mock for mock in reversed(_active) if mock.name in names), None)


class MockableRegistry(Registry):
    """The handlers of another registry, some of them replaced."""

    def __init__(self, originals: Registry) -> None:
        super().__init__(default_queue=originals.default_queue, python_queue=originals.python_queue)
        self._originals = self._others = originals

    def find(self, name: str, *, imports: bool = True) -> HandlerSpec | None:
        original = None
        # A module that cannot be imported here is a reason for a mock.
        with contextlib.suppress(HandlerInvalid) if active_mock(name) else contextlib.nullcontext():
            original = self._originals.find(name, imports=imports)
        names = (name,) if original is None else (name, original.name, *original.aliases)
        for one in _active:
            one.observe(names, self._originals)
        mock = active_mock(*names)
        return original if mock is None else mock.spec_for(original)

    def needs_import(self, name: str) -> bool:
        """Return whether `find` has to import a submodule of an allowed package for this name."""
        return active_mock(name) is None and self._originals.needs_import(name)

    def __contains__(self, name: object) -> bool:
        return (isinstance(name, str) and active_mock(name) is not None) or name in self._originals


def _any_params(mock: mock_handler) -> Callable[..., Any]:
    async def mocked(**params: Any) -> Any:
        return mock._answer(**params)  # noqa: SLF001 - of this module

    return mocked


def _is_coroutine_function(function: Callable[..., Any]) -> bool:
    """Return whether a call returns a coroutine: of a function, of what wraps one, or of an object."""
    candidates = (inspect.unwrap(function), type(function).__call__)
    return any(inspect.iscoroutinefunction(one) for one in candidates)


def _name_of(handler: str | Callable[..., Any]) -> str:
    mark = mark_of(handler)
    if mark is not None:
        name = mark.name
    elif callable(handler):
        name = function_name(handler)
    else:
        name = handler
    check_entrypoint(name)
    return name
