"""The `@handler` decorator. A decorated function stays an ordinary function.

The decorator only marks the function; nothing is registered. `spec_of` reads the mark and the signature. How
a handler is executed is not known here.
"""

from __future__ import annotations

import inspect
import re
import sys
from abc import ABC, abstractmethod
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, fields, replace
from enum import StrEnum
from itertools import accumulate
from typing import TYPE_CHECKING, Any, TypeVar

from dagmaster.errors import EntrypointInvalid, HandlerInvalid
from dagmaster.ports.queue_names import QUEUE_RULE, is_queue_name
from dagmaster.sdk.handler_signatures import Signature, read_execute, read_function
from dagmaster.sdk.retry_options import to_policy

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Iterable
    from types import FrameType

    from pydantic import BaseModel

    from dagmaster.engine.retry import RetryPolicy
    from dagmaster.sdk.handler_context import HandlerContext

F = TypeVar("F", bound=Callable[..., Any])

ISOLATIONS = ("process", "thread")
MAX_TIMEOUT_SECONDS = 86_400
MAX_NAME = 128
"""Of entrypoints, and of what earlier versions published: these keep loading."""
MAX_HANDLER_NAME = 64

_NAME = re.compile(r"[A-Za-z_][A-Za-z0-9_]*(?:[.-][A-Za-z0-9_]+)*")
_IDENTIFIER = re.compile(r"[^\W\d]\w*")
_MARK = "__dagmaster_handler__"


class HandlerStyle(StrEnum):
    """How a handler is written."""

    ASYNC = "async"
    PLAIN = "plain"
    GENERATOR = "generator"
    CLASS = "class"


@dataclass(frozen=True, slots=True, kw_only=True)
class HandlerOptions:
    """What is declared of a handler."""

    name: str
    queue: str | None = None
    timeout_seconds: float | None = None
    retry: RetryPolicy | None = None
    version: str = "1"
    isolation: str | None = None
    aliases: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class HandlerSpec(HandlerOptions):
    """A handler: its function, its options, and the types of its params and output."""

    function: Callable[..., Any]
    style: HandlerStyle
    params_model: type[BaseModel] | None
    output_model: type[BaseModel] | None
    description: str
    module: str
    signature: Signature = field(repr=False)
    returns_json: bool = False
    """Whether it may return any JSON value, and not only a mapping."""

    def call(self, context: HandlerContext) -> Any:
        """Call the function with its arguments; return a value, a coroutine or a generator."""
        arguments = self.signature.arguments(context)
        if self.style is HandlerStyle.CLASS:
            return self.function().execute(**arguments)
        return self.function(**arguments)

    def params_schema(self) -> dict[str, Any] | None:
        """Return the JSON schema of the params; None when they are not typed."""
        return self.signature.schema()

    def known_params(self) -> frozenset[str] | None:
        """Return the accepted params; None if any are accepted."""
        return self.signature.known()

    def required_params(self) -> frozenset[str]:
        return self.signature.required()

    def output_keys(self) -> frozenset[str] | None:
        """Return the keys of the output; None if untyped or open."""
        return self.signature.output_keys

    def place(self) -> str:
        """Return where it is written, for people: `module.function (file:line)`."""
        name, line = f"{self.module}.{getattr(self.function, '__qualname__', self.name)}", self.line()
        return f"{name} ({line})" if line else name

    def line(self) -> str:
        """Return its `file:line`; an empty text if it has none."""
        code = getattr(inspect.unwrap(self.function), "__code__", None)
        return f"{code.co_filename}:{code.co_firstlineno}" if code else ""


class CheckpointableHandler(ABC):
    """A handler as a class: a decorated subclass is instantiated for each attempt, which runs `execute`."""

    @abstractmethod
    def execute(self, params: Any, checkpoint: dict[str, Any] | None = None) -> AsyncIterator[Any]:
        """Yield checkpoints, progress and a result, as objects or as dicts, from an `async def`.

        `{"type": "checkpoint", "phase": …, "data": {…}}`, `{"type": "progress", "current": …, "total": …,
        "message": …}` and, last, `{"type": "result", "output": {…}}`. `checkpoint` is the last one saved, or
        None.
        """


@dataclass(frozen=True, slots=True, kw_only=True)
class _Mark(HandlerOptions):
    """What the decorator stores on a function."""

    local_names: Mapping[str, Any] = field(default_factory=dict)
    # Of a task: the function, which the marked object stands for. Its result is any JSON value.
    task: Callable[..., Any] | None = None


def handler(
    name: str | None = None,
    *,
    queue: str | None = None,
    timeout_seconds: float | None = None,
    retry: RetryPolicy | Mapping[str, Any] | int | str | None = None,
    version: str | int = "1",
    isolation: str | None = None,
    aliases: Iterable[str] = (),
) -> Callable[[F], F]:
    """Make a function a handler.

    `retry` is a policy, its keys as in YAML, a number of attempts, or "none".
    """
    return _decorator(
        name,
        MAX_NAME if _is_in_module(name) else MAX_HANDLER_NAME,
        queue=queue,
        timeout_seconds=timeout_seconds,
        retry=retry,
        version=version,
        isolation=isolation,
        aliases=aliases,
    )


def _decorator(
    name: str | None,
    max_name: int,
    *,
    queue: str | None = None,
    timeout_seconds: float | None = None,
    retry: RetryPolicy | Mapping[str, Any] | int | str | None = None,
    version: str | int = "1",
    isolation: str | None = None,
    aliases: Iterable[str] = (),
) -> Callable[[F], F]:
    if callable(name):
        raise HandlerInvalid("write `@handler()` with parentheses: they may contain a name")
    label = name or "the handler"
    if isinstance(aliases, str):
        raise HandlerInvalid(f"{label}: aliases is a list of names: write [{aliases!r}]")
    names = tuple(aliases)
    for one in (*names, *([] if name is None else [name])):
        _check_name(one, max_name)
    check_queue(queue, label)
    if isolation is not None and isolation not in ISOLATIONS:
        raise HandlerInvalid(f"{label}: isolation is {' or '.join(ISOLATIONS)}, not {isolation!r}")
    check_timeout(timeout_seconds, label)
    policy = to_policy(retry, label)

    def mark(function: F) -> F:
        own_name: str = getattr(function, "__name__", "") if name is None else name
        _check_name(own_name, max_name)
        earlier = mark_of(function)
        if earlier is not None:
            raise HandlerInvalid(
                f"{own_name}: the function is the handler {earlier.name!r} already: use aliases"
            )
        left = _Mark(
            name=own_name,
            queue=queue,
            timeout_seconds=timeout_seconds,
            retry=policy,
            version=str(version),
            isolation=isolation,
            aliases=names,
            local_names=local_names_of(function, sys._getframe(1)),  # noqa: SLF001 - see there
        )
        try:
            setattr(function, _MARK, left)
        except (AttributeError, TypeError) as error:
            raise HandlerInvalid(
                f"{own_name}: a handler is a function or a class, not {function!r}"
            ) from error
        return function

    return mark


register_handler = handler
"""The same decorator under the name that older handlers use."""


def mark_task(function: Callable[..., Any], name: str, frame: FrameType, **options: Any) -> None:
    """Make a function a handler whose result is any JSON value. `frame`: where it is defined."""
    mark: _Mark = getattr(_decorator(name, MAX_NAME, **options)(function), _MARK)
    setattr(function, _MARK, replace(mark, task=function, local_names=local_names_of(function, frame)))


def spec_of(function: Any) -> HandlerSpec:
    """Read a decorated function or class; raise HandlerInvalid with the handler's name if it cannot work."""
    mark = mark_of(function)
    if mark is None:
        raise HandlerInvalid(f"{function!r} is not a handler: decorate it with @handler() or @task")
    return _read_spec(function, mark)


def entrypoint_spec(function: Callable[..., Any], name: str) -> HandlerSpec:
    """Read a function as a task of this name; a decorated one keeps its options.

    Raise HandlerInvalid as `spec_of`.
    """
    _check_name(name, MAX_NAME)
    mark = mark_of(function)
    if mark is not None:
        return _read_spec(function, replace(mark, name=name, aliases=()))
    return _read_spec(function, _Mark(name=name, task=function))


def _read_spec(function: Any, mark: _Mark) -> HandlerSpec:
    function = mark.task or function
    try:
        style = _style(function)
        if style is HandlerStyle.CLASS:
            signature = read_execute(function.execute, mark.local_names)
        else:
            signature = read_function(function, mark.local_names, by_name=mark.task is not None)
    except HandlerInvalid as error:
        place = f"{getattr(function, '__module__', '?')}.{getattr(function, '__qualname__', '?')}"
        raise HandlerInvalid(f"handler {mark.name!r} ({place}): {error}") from error
    return HandlerSpec(
        **{one.name: getattr(mark, one.name) for one in fields(HandlerOptions)},
        function=function,
        style=style,
        params_model=signature.params_model,
        output_model=signature.output_model,
        description=_description(function),
        module=getattr(function, "__module__", "") or "",
        signature=signature,
        returns_json=mark.task is not None,
    )


def mark_of(thing: Any) -> _Mark | None:
    """Return the mark on a function or a class.

    A subclass does not inherit it: that would duplicate the handler.
    """
    try:
        mark = vars(thing).get(_MARK)
    except (TypeError, RuntimeError, AttributeError):
        # No attributes, or a proxy that is bound to nothing yet: modules hold all kinds of things.
        return None
    return mark if isinstance(mark, _Mark) else None


def _style(function: Any) -> HandlerStyle:
    if inspect.isclass(function):
        if not issubclass(function, CheckpointableHandler):
            raise HandlerInvalid("a class that is a handler extends CheckpointableHandler")
        if inspect.isabstract(function) or not inspect.isasyncgenfunction(function.execute):
            raise HandlerInvalid("`execute` of a class is an `async def` that yields")
        return HandlerStyle.CLASS
    if inspect.isasyncgenfunction(function) or inspect.isgeneratorfunction(function):
        return HandlerStyle.GENERATOR
    return HandlerStyle.ASYNC if inspect.iscoroutinefunction(function) else HandlerStyle.PLAIN


def _is_in_module(name: Any) -> bool:
    """Return whether a name is that of something in a loaded module: the double of a task has its name."""
    modules = accumulate(str(name).split(".")[:-1], "{}.{}".format)
    return any(module in sys.modules for module in modules)


def _check_name(name: Any, max_length: int) -> None:
    if not isinstance(name, str) or not _NAME.fullmatch(name):
        raise HandlerInvalid(
            f"{name!r} is not a name for a handler: letters, digits and _, with dots between, as in"
            " raster.validate"
        )
    if len(name) > max_length:
        raise HandlerInvalid(
            f"{name[:MAX_NAME]!r} is too long for a handler: its name has at most {max_length} characters,"
            f" this one {len(name)}"
        )


def check_queue(queue: Any, label: str) -> None:
    """Raise HandlerInvalid if a queue is not the name of one."""
    if queue is not None and not is_queue_name(queue):
        raise HandlerInvalid(f"{label}: queue is {QUEUE_RULE}, not {queue!r:.200}")


def check_timeout(seconds: Any, label: str) -> None:
    """Raise HandlerInvalid if it is not a timeout of a task."""
    if seconds is None:
        return
    if (
        isinstance(seconds, bool)
        or not isinstance(seconds, int | float)
        or not 1 <= seconds <= MAX_TIMEOUT_SECONDS
    ):
        raise HandlerInvalid(
            f"{label}: timeout_seconds is from 1 to {MAX_TIMEOUT_SECONDS:,}, not {seconds!r}"
        )


def check_entrypoint(name: Any) -> None:
    """Raise EntrypointInvalid if it cannot be the name of a function or a handler."""
    if not isinstance(name, str) or len(name) > MAX_NAME or not _NAME.fullmatch(name):
        raise EntrypointInvalid(
            f"{name!r} is not an entrypoint: give a function, or its name as 'module.function', at most"
            f" {MAX_NAME}"
            " characters"
        )


def local_names_of(function: Any, frame: FrameType) -> dict[str, Any]:
    """Return the local names that postponed annotations use, for a handler defined in a frame's function.

    There is no other way to the names around a definition.
    """
    if "<locals>" not in getattr(function, "__qualname__", ""):
        return {}
    execute = getattr(function, "execute", function)
    texts = [one for one in getattr(execute, "__annotations__", {}).values() if isinstance(one, str)]
    names = {name for text in texts for name in _IDENTIFIER.findall(text)}
    return {name: frame.f_locals[name] for name in names if name in frame.f_locals}


def _description(function: Any) -> str:
    """Return the first paragraph of the docstring, on one line."""
    doc = inspect.getdoc(function) if function.__doc__ else ""
    return " ".join((doc or "").partition("\n\n")[0].split())
